"""What is known of a step before it comes: given columns, the calendar, the time elapsed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.dataset import Scaling
from varfilter.data.tables.spacing import DAY
from varfilter.data.tables.zones import on_wall

PERIODS = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}
# Sines and cosines of so many multiples of a period: enough for a morning and an evening peak.
NUM_WAVES = 2
# A period is told by at least so many steps; its waves are inputs where a training sequence
# goes through it twice.
LEAST_STEPS = 4
LEAST_PERIODS = 2


class PlannedInputs(NamedTuple):
    """The input columns of some steps (steps, columns), in the model's units.

    `stamps` are their times; None: they are the next steps, in their order.
    """

    stamps: np.ndarray | None
    known: np.ndarray


@dataclass(frozen=True)
class KnownInputs:
    """How u_t of a step is made, in the model's units.

    - `columns`: the user's columns that are known beforehand, with the offset and the scale that
      standardise their training rows.
    - `calendar`: the periods (day, week, year) whose waves are inputs.
    - `usual`: the usual distance of two rows, as a number of stamps, where each row is a step
      however long after the one before it comes: log(1 + elapsed / usual) - log 2 is then an input.
      None: all steps are equally long.
    - `zone`: the one by whose clocks it is morning or January; stamps are in UTC if there is one.
    """

    columns: dict[str, tuple[float, float]] = field(default_factory=dict)
    calendar: tuple[str, ...] = ()
    usual: float | int | None = None
    zone: str = ""

    @staticmethod
    def fitted(
        names: Sequence[str],
        training: np.ndarray,
        calendar: Sequence[str] = (),
        usual: float | int | None = None,
        zone: str | None = "",
    ) -> "KnownInputs":
        """The inputs whose columns are standardised by `training`, (rows, columns)."""
        scaling = Scaling.standardizing(training, axis=0)
        pairs = zip(np.asarray(scaling.offset), np.asarray(scaling.scale), strict=True)
        columns = {
            name: (float(offset), float(scale))
            for name, (offset, scale) in zip(names, pairs, strict=True)
        }
        return KnownInputs(columns, tuple(calendar), usual, zone or "")

    @property
    def names(self) -> tuple[str, ...]:
        """What each input is, in order."""
        waves = (
            f"{period} {wave}{number}"
            for period in self.calendar
            for number in range(1, NUM_WAVES + 1)
            for wave in ("sin", "cos")
        )
        return (*self.columns, *waves, *(() if self.usual is None else ("elapsed",)))

    @property
    def is_by_rows(self) -> bool:
        """Whether each row is a step, however long after the one before it comes."""
        return self.usual is not None

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Values of the input columns (rows, columns) in the model's units."""
        if not self.columns:
            return np.zeros((len(values), 0))
        offsets, scales = np.array(list(self.columns.values())).T
        return (values - offsets) / scales

    def us(
        self, known: np.ndarray, stamps: np.ndarray, *, before: float | int | None = None
    ) -> np.ndarray:
        """u_t of steps at `stamps`, (steps, inputs), from their `known` columns, scaled.

        `before` is the stamp of the step before the first; not given, it was the usual time ago.
        """
        parts = [known]
        walls = on_wall(stamps, self.zone)
        for period in self.calendar:
            phase = 2 * np.pi * _share(period, walls)
            parts += [
                wave(number * phase)[:, None]
                for number in range(1, NUM_WAVES + 1)
                for wave in (np.sin, np.cos)
            ]
        if self.usual is not None:
            first = stamps[:1] - self.usual if before is None else np.array([before])
            elapsed = np.diff(np.concatenate([first, stamps])) / self.usual
            parts.append(np.log1p(np.maximum(elapsed, 0.0))[:, None] - np.log(2.0))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def as_json(self) -> dict[str, Any] | None:
        """The inputs as plain JSON, for the record of a run; None if there are none."""
        if not self.names:
            return None
        columns = {name: list(pair) for name, pair in self.columns.items()}
        return {"columns": columns, "calendar": list(self.calendar), "usual": self.usual}

    @staticmethod
    def from_json(known: dict[str, Any] | None, zone: str | None = "") -> "KnownInputs":
        """What `as_json` made, as inputs again; records of before there were any have None."""
        if known is None:
            return KnownInputs(zone=zone or "")
        columns = {name: (pair[0], pair[1]) for name, pair in known["columns"].items()}
        return KnownInputs(columns, tuple(known["calendar"]), known["usual"], zone or "")

    def notes(self, *, has_gaps: bool, chosen_calendar: bool) -> list[str]:
        """Sentences on what is an input, and why."""
        notes = []
        if self.columns:
            held = " A step without a row has the inputs of the row before." if has_gaps else ""
            notes.append(
                f"Columns known beforehand, not predicted: {', '.join(self.columns)}.{held}"
            )
        if self.calendar:
            why = "as given" if chosen_calendar else "which the training rows go through twice"
            notes.append(f"The time of the {', '.join(self.calendar)} is a known input ({why}).")
        if self.is_by_rows:
            notes.append("Each row is a step; the time since the row before is a known input.")
        return notes


def require_calendar(calendar: Any, *, is_date: bool) -> tuple[str, ...] | None:
    """The periods that were named; None if they are to be found, none of them if False."""
    if calendar is None or calendar is False:
        return () if calendar is False else None
    words = (calendar,) if isinstance(calendar, str) else tuple(calendar)
    given = [period for word in words for period in word.split(",") if period]
    for period in given:
        if period not in PERIODS:
            raise ValueError(
                f"`calendar` must be of {', '.join(PERIODS)}, or False for none; got {period!r}."
            )
    if given and not is_date:
        raise ValueError(
            f"`calendar` is {', '.join(given)}, but the table has no column of dates. Name it in"
            " `time`, or leave `calendar` out."
        )
    return tuple(period for period in PERIODS if period in given)


def usual_periods(runs: Iterable[np.ndarray], step: float | int) -> tuple[str, ...]:
    """The periods that a training sequence goes through twice, in steps short enough to tell them.

    `runs` are the stamps of the sequences, in microseconds, and `step` is between two rows.
    """
    longest = max((float(run[-1] - run[0]) for run in runs if len(run)), default=0.0)
    return tuple(
        period
        for period, length in PERIODS.items()
        if longest >= LEAST_PERIODS * length and length >= LEAST_STEPS * step
    )


def held(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Rows at the grid points `at`, in order; a point without a row has that of the one before."""
    at = (at - at[0]).astype(np.int64)
    return values[np.searchsorted(at, np.arange(at[-1] + 1), side="right") - 1]


def _share(period: str, stamps: np.ndarray) -> np.ndarray:
    """How much of the period has passed at each stamp, from 0 to 1."""
    if period == "year":  # from its first of January on: leap years are longer
        dates = stamps.astype("datetime64[us]")
        begins = dates.astype("datetime64[Y]")
        ends = (begins + 1).astype("datetime64[us]")
        begins = begins.astype("datetime64[us]")
        return (dates - begins) / (ends - begins)
    # The first of January 1970 was a Thursday; weeks begin on Mondays.
    shifted = stamps + (3 * DAY if period == "week" else 0)
    return (shifted % PERIODS[period]) / PERIODS[period]
