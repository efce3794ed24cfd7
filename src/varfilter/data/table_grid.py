"""From time stamps to steps: rows come to lie on a regular grid, and gaps become missing rows."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from varfilter._arguments import kind
from varfilter.data.table_columns import Column, column_of

# A grid of more rows than this for each row of data is nearly all gaps: a wrong time or step.
MOST_ROWS = 20


@dataclass(frozen=True)
class Clock:
    """How the stamps of a table are counted: microseconds of dates, numbers, or rows.

    `column` is the name of the column they stand in; None: rows are steps.
    """

    column: str | None
    is_date: bool = False

    def stamps(self, column: Column) -> np.ndarray:
        """Of each row: whole microseconds (int64), or numbers (float64)."""
        values = column.values
        if clock_of(self.column or "", column).is_date != self.is_date:
            raise ValueError(
                f"`time` is column `{self.column}`, which must hold"
                f" {'dates' if self.is_date else 'numbers'}, as in the first table; row 0 is"
                f" {str(values[0])!r}."
            )
        missing = np.flatnonzero(np.isnat(values) if self.is_date else ~np.isfinite(values))
        if missing.size:
            raise ValueError(
                f"`time` is column `{self.column}`, which has no time in row {missing[0]}"
                " (counted from 0). Every row needs one."
            )
        return values.astype(np.int64) if self.is_date else values

    def times(self, stamps: np.ndarray) -> np.ndarray:
        """Stamps as the user knows them: datetime64[us], or numbers."""
        return stamps.astype("datetime64[us]") if self.is_date else stamps

    def distance(self, step: Any) -> float | int:
        """`step` as a number of stamps: a number, a duration, or seconds between dates."""
        is_duration = isinstance(step, dt.timedelta | np.timedelta64)
        if is_duration and self.is_date:
            number = np.timedelta64(step) / np.timedelta64(1, "us")
        elif isinstance(step, int | float | np.number) and not (
            is_duration or isinstance(step, bool)
        ):
            number = float(step) * (1e6 if self.is_date else 1.0)
        else:
            raise TypeError(
                "`step` must be a number, in the unit of the times (seconds between dates), or a"
                f" `timedelta` between dates; got {kind(step)}."
            )
        if not 0 < number < np.inf or (self.is_date and round(number) < 1):
            raise ValueError(f"`step` must be a positive time; got {step!r}.")
        return round(number) if self.is_date else number

    def seconds(self, distance: float | int) -> float | None:
        """`distance` as the user knows it; None if rows are steps."""
        if self.column is None:
            return None
        return distance / 1e6 if self.is_date else float(distance)

    def shown(self, stamp: Any) -> str:
        """One stamp in words."""
        return str(np.int64(stamp).astype("datetime64[us]")) if self.is_date else f"{stamp:g}"


def clock_of(name: str, column: Column) -> Clock:
    """For a column of times; an error names the first that cannot be read."""
    if column.form in ("number", "time"):
        return Clock(name, column.form == "time")
    forms = [column_of([value]).form if value is not None else None for value in column.values]
    first = next((form for form in forms if form is not None), None)
    readable = first if column.form == "text" and first in ("number", "time") else None
    bad = next((row for row, form in enumerate(forms) if form not in (None, readable)), 0)
    raise ValueError(
        f"`time` is column `{name}`, in which row {bad} (counted from 0) is"
        f" {str(column.values[bad])!r}, which cannot be read as a time. Give numbers or ISO dates"
        " such as 2024-01-31T12:30:00, or `time=False` if rows are steps."
    )


def places(stamps: np.ndarray, origin: float | int, step: float | int) -> np.ndarray:
    """The nearest grid point of each stamp, counted from `origin`."""
    elapsed = stamps - origin
    if elapsed.dtype.kind == "i":
        return (elapsed + step // 2) // step
    return np.floor(elapsed / step + 0.5)


def on_grid(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Rows at the grid points `at`, in order; NaN between; of two values at a point the last."""
    at = (at - at[0]).astype(np.int64)
    rows = np.full((int(at[-1]) + 1, values.shape[1]), np.nan, np.float32)
    row, column = np.nonzero(~np.isnan(values))
    rows[at[row], column] = values[row, column]
    return rows


def overwritten(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The rows of which a value is lost to a later one at the same grid point."""
    same = np.diff(at) == 0
    shared = np.flatnonzero(np.append(same, False) | np.append(False, same))
    row, column = np.nonzero(~np.isnan(values[shared]))
    points = at[shared][row]
    order = np.lexsort((row, points, column))
    lost = (np.diff(points[order]) == 0) & (np.diff(column[order]) == 0)
    return np.unique(shared[row[order[:-1][lost]]])


def require_dense(
    clock: Clock, runs: list[np.ndarray], points: Iterable[np.ndarray], *, at_least: int
) -> None:
    """An error, naming the longest gap, if a grid of over `at_least` rows is nearly all gaps."""
    points = list(points)
    num_rows = sum(map(len, runs))
    num_points = sum(float(at[-1]) - float(at[0]) + 1.0 for at in points)
    if num_points <= max(MOST_ROWS * num_rows, at_least):
        return
    jumps = [float(np.max(np.diff(at), initial=0)) for at in points]
    run = runs[int(np.argmax(jumps))]
    gap = int(np.argmax(np.diff(run)))
    raise ValueError(
        f"`time` is column `{clock.column}`, whose {num_rows} rows would be spread over"
        f" {num_points:.4g} steps; the longest gap is from {clock.shown(run[gap])} to"
        f" {clock.shown(run[gap + 1])}. Split the table there (by a column named in `sequence`), or"
        " give a longer `step`."
    )
