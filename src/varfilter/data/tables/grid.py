"""From time stamps to steps: rows come to lie on a regular grid, and gaps become missing rows."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from varfilter._arguments import kind
from varfilter.data.tables.columns import Column, column_of
from varfilter.data.tables.dates import (
    DIGITS,
    SIX_DIGITS,
    dates_in,
    described,
    digits_of,
    in_style,
    uncertain,
)
from varfilter.data.tables.files import Columns
from varfilter.data.tables.forms import form_of, in_form
from varfilter.data.tables.parts import Part, join_parts
from varfilter.data.tables.spacing import DAY, MOST_GAPS, Even
from varfilter.data.tables.zones import in_utc, offset_text, on_wall

# A grid of more rows than this for each row of data is nearly all gaps: a wrong time or step.
MOST_ROWS = 20


@dataclass(frozen=True)
class Clock:
    """How the stamps of a table are counted: microseconds of dates, numbers, or rows.

    `column` is the name of the column they stand in; None: rows are steps. A time that several
    columns tell together has their names in `column`, and what each of them holds in `parts`.
    `unit` is how dates are written: as a month (M), as a day (D), or with the time of the day (us);
    and `style` in which way, where it is not ISO's (`dates.py`); `form` is the text of one, where
    its unit does not tell (`forms.py`). `zone` is where they are told (`zones.py`): stamps are then
    in UTC. Without one they are what the wall shows; None: of a run that did not ask.
    """

    column: str | None
    is_date: bool = False
    unit: Literal["M", "D", "us"] = "us"
    parts: tuple[Part, ...] = ()
    style: str = ""
    zone: str | None = ""
    form: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The user's columns that tell the time."""
        if self.parts:
            return tuple(name for name, _, _ in self.parts)
        return () if self.column is None else (self.column,)

    def joined(self, columns: Columns) -> Columns:
        """The columns of a table, with one of the times beside those of its parts."""
        if not self.parts or any(name not in columns for name in self.columns):
            return columns
        return columns | {self.column or "": join_parts(columns, self.parts)}

    def written(self, time: Any) -> Any:
        """A time, of the clock's own, as dates are written here: in their unit, or as quarters."""
        if not self.is_date or not isinstance(time, np.datetime64):
            return time
        if (quarter := in_style(time, self.style)) is not None:
            return quarter
        short = time.astype(f"datetime64[{self.unit}]")
        return short if short == time else time

    def in_own_style(self, column: Column) -> Column:
        """Times that are text, read in the clock's own style if all of them can be.

        A few rows alone would not tell the day from the month, or tell it wrongly.
        """
        if not self.style or column.style == self.style:
            return column
        texts = column.values if column.form == "text" else column.texts
        if self.style in (DIGITS, SIX_DIGITS) and column.form == "number":
            texts = digits_of(column.values)
        if texts is None:
            return column
        dates = dates_in(self.style, [text for text in texts if text is not None])
        if dates is None:
            return column
        each = iter(dates)
        stamps = [None if text is None else next(each) for text in texts]
        return Column(np.array(stamps, "datetime64[us]"), "time", (), texts, self.style)

    def written_as_text(self, time: Any) -> str:
        """A time as text in any case."""
        text, short = self.text(time), self.written(time)
        if text is None and isinstance(short, np.datetime64):
            is_short = np.datetime_data(short)[0] in ("D", "M")
            text = str(short) if is_short else short.astype("datetime64[us]").item().isoformat()
        return str(short) if text is None else text

    def text(self, time: Any) -> str | None:
        """A time as text, where it is not enough to write it by its unit; else None."""
        if not isinstance(time, np.datetime64) or not (self.zone or self.form):
            return None
        stamp = time.astype("datetime64[us]").astype(np.int64)
        text = in_form(stamp, self.form, self.zone or "") if self.form else None
        return self.shown(stamp) if text is None and self.zone else text

    def like(self, texts: Iterable[str]) -> "Clock":
        """The clock that writes times as these are written, if they are times."""
        column = self.in_own_style(column_of(texts))
        if column.form != "time" or self.parts:
            return self
        found = clock_of(self.column or "", column)
        if found.zone and not self.zone:
            return self
        return replace(found, zone=found.zone or self.zone)

    def style_note(self, column: Column) -> str | None:
        """What to say of times that are written otherwise than those of training; None: nothing."""
        if column.form != "time" or column.texts is None or column.style == self.style:
            return None
        if not column.style:  # ISO's are what they are, in every table
            return None
        own = described(self.style) if self.style else "written as ISO has them, as 2024-01-31"
        return f"holds dates, read as {described(column.style)}; those of training were {own}"

    def in_own_zone(self, column: Column) -> tuple[Column, str | None]:
        """The times as the clock counts them, and a note if they have a zone and it none, or not.

        Whatever the one that is not known, a clock on the wall shows the hour.
        """
        if column.form != "time" or self.zone is None or bool(self.zone) == bool(column.zone):
            return column, None
        stamps = column.values.astype("datetime64[us]").astype(np.int64)
        moved = in_utc(stamps, self.zone) if self.zone else on_wall(stamps, column.zone)
        values = np.where(np.isnat(column.values), column.values, moved.astype("datetime64[us]"))
        note = (
            f"holds times without a zone; they are taken for those of {self.zone}, as in training"
            if self.zone
            else f"holds times of {column.zone}, where those of training have no zone; they are"
            " taken as clocks show them there"
        )
        return replace(column, values=values, zone=self.zone), note

    def stamps(self, column: Column) -> np.ndarray:
        """The stamp of each row: whole microseconds (int64), or numbers (float64)."""
        values = column.values
        is_date = column.form == "time"
        if column.form not in ("time", "number"):
            is_date = clock_of(self.column or "", column).is_date
        if is_date != self.is_date:
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
        """Stamps as times: datetime64[us], or numbers."""
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

    def even(self, length: float | int) -> Even:
        """Steps of one length; whole days between days, but in runs that did not ask for a zone."""
        has_days = self.is_date and self.unit != "us" and self.zone is not None
        return Even(length, has_days and length > DAY and length % DAY != 0)

    def seconds(self, distance: float | int) -> float | None:
        """`distance` as the user knows it; None if rows are steps."""
        if self.column is None:
            return None
        return distance / 1e6 if self.is_date else float(distance)

    def shown(self, stamp: Any) -> str:
        """A stamp as people write it, for an error message."""
        if not self.is_date:
            return f"{stamp:g}"
        wall = on_wall(np.array([stamp], np.int64), self.zone)[0].astype("datetime64[us]").item()
        return wall.isoformat() + (offset_text(stamp, self.zone) if self.zone else "")


def clock_of(name: str, column: Column) -> Clock:
    """How the times of a column are counted; an error names the first that cannot be read."""
    if column.form == "number":
        return Clock(name)
    if column.form == "time":
        return _with_form(Clock(name, True, _unit(column), (), column.style, column.zone), column)
    texts = [value for value in column.values if value is not None]
    reason = uncertain(texts) if column.form == "text" else None
    if reason is not None:
        raise ValueError(
            f"`time` is column `{name}`, which holds {reason}. Or give `time=False` if rows are"
            " steps."
        )
    forms = [column_of([value]).form if value is not None else None for value in column.values]
    first = next((form for form in forms if form is not None), None)
    readable = first if column.form == "text" and first in ("number", "time") else None
    bad = next((row for row, form in enumerate(forms) if form not in (None, readable)), 0)
    raise ValueError(
        f"`time` is column `{name}`, in which row {bad} (counted from 0) is"
        f" {str(column.values[bad])!r}, which cannot be read as a time. Give numbers or ISO dates"
        " such as 2024-01-31T12:30:00, or `time=False` if rows are steps."
    )


def _with_form(clock: Clock, column: Column) -> Clock:
    """The clock with the form of the column's texts, where it would write them otherwise."""
    present = np.flatnonzero(~np.isnat(column.values))
    if column.texts is None or not present.size:
        return clock
    texts, stamps = [column.texts[i] for i in present], column.values[present].astype(np.int64)
    if clock.written_as_text(column.values[present[0]]) == texts[0]:
        return clock
    return replace(clock, form=form_of(texts, stamps, column.style, column.zone))


def _unit(column: Column) -> Literal["M", "D", "us"]:
    """How the dates of a column are written; without a text, whole days are days."""
    if column.texts is None:
        stamps = column.values[~np.isnat(column.values)].astype(np.int64)
        times = on_wall(stamps, column.zone).astype("datetime64[us]")
        is_day = bool(np.all(times == times.astype("datetime64[D]")))
        return "D" if is_day else "us"
    texts = [text for text in column.texts if text is not None]
    if any(":" in text for text in texts):
        return "us"
    is_month = not column.style and all(len(text) == len("2024-01") for text in texts)
    return "M" if is_month else "D"


def on_grid(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Rows at the grid points `at`, in order; NaN between; of two values at a point the last."""
    at = (at - at[0]).astype(np.int64)
    rows = np.full((int(at[-1]) + 1, values.shape[1]), np.nan, np.float32)
    row, column = np.nonzero(~np.isnan(values))
    rows[at[row], column] = values[row, column]
    return rows


def overwritten(
    values: np.ndarray, at: np.ndarray, stamps: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of which a value is lost to another one that comes later at the same grid point.

    And those of which each value comes again as it is, at the same time: nothing of them is lost.
    """
    same = np.diff(at) == 0
    shared = np.flatnonzero(np.append(same, False) | np.append(False, same))
    row, column = np.nonzero(~np.isnan(values[shared]))
    points, cells = at[shared][row], values[shared][row, column]
    order = np.lexsort((row, points, column))
    again = (np.diff(points[order]) == 0) & (np.diff(column[order]) == 0)
    ordered = shared[row[order]]
    differs = (np.diff(cells[order]) != 0) | (np.diff(stamps[ordered]) != 0)
    rows = ordered[:-1]
    lost = np.unique(rows[again & differs])
    return lost, np.setdiff1d(rows[again], lost)


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


# A slip of the grid that puts two rows on a point loses a value; one that leaves a point empty
# loses none.
WEIGHT_OF_MERGED = 10.0
# How far a rounded step may lead from the fitted one over the whole of a run, in steps.
MOST_DRIFT = 0.1


def usual_step(runs: list[np.ndarray], unit: float = 1.0) -> float | int | None:
    """The step whose grid loses the fewest rows, rounded (in `unit`s) where that loses nothing.

    Several guesses are fitted to all stamps at once, so that the grid does not drift: of months,
    or of a clock that jitters, the median alone would soon be a step ahead of the data. None if
    no run has two different stamps.
    """
    is_whole = bool(runs) and runs[0].dtype.kind == "i"
    elapsed = [(run - run[0]).astype(np.float64) for run in map(np.unique, runs) if len(run)]
    elapsed = [run for run in elapsed if len(run) > 1]
    if not elapsed:
        return None
    differences = np.concatenate([np.diff(run) for run in elapsed])
    middle = np.median(differences)
    near = differences[(differences >= 0.5 * middle) & (differences <= 2.0 * middle)]
    guesses = [*np.quantile(differences, [0.1, 0.25, 0.5], method="lower"), near.mean()]
    fitted = [_fitted(elapsed, float(guess)) for guess in dict.fromkeys(guesses)]
    best = min(fitted, key=lambda step: _cost(elapsed, step))
    best = _tidy(elapsed, best, unit)
    return max(round(best), 1) if is_whole else best


def _fitted(runs: list[np.ndarray], step: float) -> float:
    """Least squares of stamps on grid points, over windows that double until they are whole runs.

    What a window has told of the step is enough to count the points of one twice as long.
    """
    # In steps and not in rows: at last a window spans all gaps.
    length, longest = 2, max(float(run[-1]) for run in runs) / step
    final = 0
    while final < 3:
        products = squares = 0.0
        for run in runs:
            new = np.zeros(len(run), bool)
            new[::length] = True
            # Over a gap longer than a window the points cannot be counted yet.
            new[1:] |= np.diff(run) > length * step
            starts = np.flatnonzero(new)
            sizes = np.diff(np.append(starts, len(run)))
            since = run - np.repeat(run[starts], sizes)
            points = np.floor(since / step + 0.5)
            centre = np.add.reduceat(points, starts) / sizes
            points -= np.repeat(centre, sizes)
            products += float(np.sum(points * since))
            squares += float(np.sum(points * points))
        refined = products / squares if squares > 0 else step
        if not 0.5 * step < refined < 2.0 * step:
            return step
        step = refined
        final += length >= longest
        length *= 2
    return step


def _slips(runs: list[np.ndarray], step: float) -> tuple[float, float]:
    """The shares of neighbours that come to lie on one point, and of those with a gap between."""
    jumps = np.concatenate([np.diff(np.floor(run / step + 0.5)) for run in runs])
    return float(np.mean(jumps == 0)), float(np.mean(jumps > 1))


def _cost(runs: list[np.ndarray], step: float) -> tuple[bool, float]:
    merged, gaps = _slips(runs, step)
    return gaps > MOST_GAPS, WEIGHT_OF_MERGED * merged + gaps


def _tidy(runs: list[np.ndarray], step: float, unit: float) -> float:
    """The step with as few digits as the stamps allow, if no row is lost and no gap opened."""
    merged, gaps = _slips(runs, step)
    farthest = max(float(run[-1]) for run in runs) / step
    allowed = min(_uncertainty(runs, step), MOST_DRIFT * step / farthest)
    for digits in range(1, 13):
        # Through decimal text: 0.3 and not 0.30000000000000004.
        rounded = float(f"{step / unit:.{digits - 1}e}") * unit
        if abs(rounded - step) > max(allowed, 1e-12 * step):
            continue
        other = _slips(runs, rounded)
        if other[0] <= merged and other[1] <= gaps:
            return rounded
    return step


def _uncertainty(runs: list[np.ndarray], step: float) -> float:
    """Four standard errors of the fitted step: none if all rows lie on the grid."""
    residuals = squares = 0.0
    for run in runs:
        points = np.floor(run / step + 0.5)
        residuals += float(np.sum(np.square(run - step * points - np.mean(run - step * points))))
        squares += float(np.sum(np.square(points - np.mean(points))))
    num_rows = sum(map(len, runs))
    return 4.0 * (residuals / num_rows / max(squares, 1.0)) ** 0.5
