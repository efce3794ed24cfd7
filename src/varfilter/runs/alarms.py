"""Alarms: which steps are too rare for healthy ones, which columns caused it, what was expected.

How rare a step is, the calibration says, which is made once of the validation part of a run's data
and kept in its folder.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from varfilter._text import count
from varfilter.data.dataset import SPLITS, Dataset, Family
from varfilter.media import NewSequence
from varfilter.media.rows import Alarms, Filtering
from varfilter.runs.calibration import (
    FEWEST_VALUES,
    Calibration,
    keep_calibration,
    known_calibration,
)
from varfilter.runs.run import Run

if TYPE_CHECKING:
    from varfilter.runs.applied import AppliedRun

# The part of healthy steps that may raise an alarm, unless another is asked for.
DEFAULT_RATE = 0.001
# How many columns the cause of an alarm names.
MOST_NAMED = 3
# How many digits more than a band needs tell a value that lies just outside of it from its end.
MOST_DIGITS_MORE = 3
# By what a band is: by the past of the column, or by the other columns of the step too.
ALONE, GIVEN = "by itself", "by the other columns"
# How many times rarer than one in the validated steps a p-value may say that a step is.
RAREST_TOLD = 100
# How many validated steps say what is healthy: more would take longer than they are worth.
MOST_CALIBRATED = 10_000
# Training steps beside them: so many give a tail its shape, in seconds.
MOST_LEARNED = 4000


@dataclass(frozen=True)
class AlarmRule:
    """An alarm where a step is so surprising that a part `rate` of healthy ones would be."""

    calibration: Calibration
    rate: float
    dataset: Dataset

    def judged(self, filtering: Filtering) -> Filtering:
        """What was filtered, with its alarms; each step is judged by itself.

        So few steps do not show how rare the rarest are: no p-value is told below one in 100 times
        as many, or below the rate where that is less. Beyond that the surprise says which is rarer.
        """
        columns = filtering.columns
        assert columns is not None
        p_values, alone, given = self.calibration.judged(columns)
        flags = p_values <= self.rate
        least = 1.0 / (RAREST_TOLD * self.calibration.num_steps)
        p_values = np.maximum(p_values, min(least, self.rate))
        named, causes = np.zeros(alone.shape, bool), [""] * len(flags)
        for t in np.flatnonzero(flags).tolist():
            found = self._causing(columns.given[t], alone[t], given[t])
            causes[t], named[t, found] = self._cause(filtering, t, found, alone[t], given[t]), True
        return replace(filtering, alarms=Alarms(p_values, flags, np.array(causes, str), named))

    @property
    def note(self) -> str | None:
        """A warning if the rate is below one in the number of calibrated steps, else None."""
        count = self.calibration.num_steps
        if self.rate * count >= 1.0:
            return None
        return (
            f"`alarm_rate` is {self.rate:g}, less than one in the {count:,} steps that alarms were"
            " calibrated on: what is so rare was never seen, and its tail is extrapolated. For a"
            f" rate that was seen, give {1 / count:.2g} or more, or train with more rows."
        )

    def _causing(self, nats: np.ndarray, alone: np.ndarray, given: np.ndarray) -> list[int]:
        """The columns that caused the alarm of a step, first the one with the most against it.

        A column beside one that is wrong seems wrong itself, given that one. So the first is the
        one that its past and the others say the most against, in nats; and others are named for
        their own past alone.
        """
        by_others = np.nanmin(given) <= np.nanmin(alone)
        first = int(np.nanargmax(nats) if by_others else np.nanargmin(alone))
        others = (int(i) for i in np.argsort(alone) if alone[i] <= self.rate)
        # Of a column of levels the one level that has the most against it.
        by_column: dict[str, int] = {}
        for i in (first, *others):
            name, family = self.dataset.column_families[i]
            by_column.setdefault(family.group or name, i)
        return list(by_column.values())

    def _cause(
        self, filtering: Filtering, t: int, found: list[int], alone: np.ndarray, given: np.ndarray
    ) -> str:
        """What these columns were, and what was expected of them."""
        columns = filtering.columns
        assert columns is not None
        texts = []
        for place, i in enumerate(found[:MOST_NAMED]):
            is_given = place == 0 and given[i] <= alone[i]
            group = self.dataset.column_families[i][1].group
            if group is not None:
                text = self._level(group, filtering, t)
                texts.append(f"{text} {GIVEN}" if is_given else text)
                continue
            value = float(filtering.rows[t, i])
            bands = {ALONE: columns.band[t, i]}
            if is_given:
                bands = {GIVEN: columns.band_given[t, i]} | bands
            elif place == 0:  # the others are named for their own past
                bands[GIVEN] = columns.band_given[t, i]
            texts.append(self._expected(i, value, bands))
        more = len(found) - len(texts)
        return "; ".join([*texts, f"{more} more"] if more else texts)

    def _level(self, group: str, filtering: Filtering, t: int) -> str:
        """The level that a column had, how probable it was, and which one was expected."""
        families = self.dataset.column_families
        own = [i for i, (_, family) in enumerate(families) if family.group == group]
        names = [families[i][0].removeprefix(f"{group}=") for i in own]
        came = int(np.argmax(filtering.rows[t, own]))
        chances = filtering.parts["mean"][t, own]
        best = int(np.argmax(chances))
        return f"{group}: {names[came]} (p {chances[came]:.2g}), expected {names[best]}"

    def _expected(self, column: int, value: float, bands: dict[str, np.ndarray]) -> str:
        """What came, and the band that it lies outside of: the first, or if it is in that, another.

        A value that is ordinary by itself may contradict the other columns, and the reverse.
        """
        name, family = self.dataset.column_families[column]
        shown = {of: _shown(value, band, family) for of, band in bands.items()}
        first, *others = shown
        came, band, is_inside = shown[first]
        by = "" if first == ALONE else f" {first}"
        if not is_inside:
            return f"{name}: {came}, expected {band}{by}"
        for other in others:
            came, against, is_inside = shown[other]
            if not is_inside:
                return f"{name}: {came}, expected {band} {first}, but {against} {other}"
        return f"{name}: {came}, inside of the expected {band}{by}, but rarer than healthy values"


def with_alarms(
    run: Run, applied: "AppliedRun", rate: float | None = None, dataset: Dataset | None = None
) -> "AppliedRun":
    """Return `applied` with alarms at this rate, by what is healthy in the validation data.

    They are those of `dataset`, or read again. Where they are not at hand, and were not before, or
    are too few, a warning says so, and the columns of alarms are there all the same, empty.
    """
    asked = require_rate(rate)
    if not (asked and applied.surprises):
        return applied
    known = known_calibration(run.folder, applied.settings, applied.step)
    reason = lack_of_rows(run.record["data"]) if known is None else ""
    if known is None and reason is None:  # else the data need not be read
        try:
            dataset = run.dataset if dataset is None else dataset
        except (ValueError, OSError) as error:
            reason = f"{str(error).partition('. ')[0].rstrip('.')}."
        else:
            known = calibrated(run, applied, dataset)
            reason = lack_of_steps(dataset) or "Too few steps of it were observed."
    if known is None:
        warnings.warn(
            "There are no alarms: they are set by the validation part of the run's data, for the"
            f" trajectories and draws that are asked for. {reason}",
            stacklevel=3,
        )
        return replace(applied, is_uncalibrated=True)
    rule = AlarmRule(known, asked, applied.dataset)
    if rate is not None and rule.note is not None:
        warnings.warn(rule.note, stacklevel=3)
    return replace(applied, alarms=rule)


def calibrated(run: Run, applied: "AppliedRun", dataset: Dataset) -> Calibration | None:
    """Calibrate a filter on the validation part of a run's data, and keep it in the run's folder.

    What validated steps say too little of, the tail, is found by the last training steps, too. None
    where too few validated ones were observed. All randomness is of one seed, so that a calibration
    does not depend on who asked for it first.
    """
    if lack_of_steps(dataset) is not None:  # known without a filter
        return None
    applied = replace(applied, key=jax.random.key(0), alarms=None)
    valid = held_sequences(dataset, "valid", MOST_CALIBRATED)
    train = held_sequences(dataset, "train", MOST_LEARNED, latest=True)
    found, learned = (
        (part for sequence in each for part in applied.filterings(sequence))
        for each in (valid, train)
    )
    columns = applied.dataset.columns
    known = Calibration.of(applied.settings, applied.step, columns, found, learned)
    if known is not None:
        keep_calibration(run.folder, known)
    return known


def lack_of_steps(dataset: Dataset) -> str | None:
    """Why the validation part says too little of what is healthy, and the fix; None if it may do.

    What counts are steps with a value that is not missing; first ones are not judged.
    """
    valid = dataset.valid
    found = sum(
        int(np.isfinite(np.asarray(valid[i][1:], np.float64)).any(axis=1).sum())
        for i in range(len(valid))
    )
    return _too_few(found, sum(len(dataset.split(split).values) for split in SPLITS))


def lack_of_rows(record: dict[str, Any]) -> str | None:
    """What `lack_of_steps` says of data as a run has them on record, if no value is missing."""
    rows, sequences = record["rows"], record["sequences"]
    return _too_few(max(rows["valid"] - sequences["valid"], 0), sum(rows.values()))


def _too_few(found: int, num_rows: int) -> str | None:
    if found >= FEWEST_VALUES:
        return None
    return (
        f"It has {count(found, 'step')} to be judged by, and less than {FEWEST_VALUES} say too"
        " little of what is healthy. Give a table of about"
        f" {math.ceil(num_rows * (FEWEST_VALUES + 1) / max(found, 1)):,} rows or more, of which as"
        " large a part is for validation."
    )


def held_sequences(
    dataset: Dataset,
    split: str,
    most: int | None = None,
    *,
    first: int | None = None,
    latest: bool = False,
) -> Iterator[NewSequence]:
    """The sequences of a split as those that are filtered, up to so many rows in all.

    With `first`, so many rows of each that has them, and the others are left out. With `latest`
    the last rows of each, from the last sequence back.
    """
    ragged, names, times = dataset.split(split), dataset.sequence_names(split), dataset.times
    left = len(ragged.values) if most is None else most
    numbers = range(len(ragged))
    for number in reversed(numbers) if latest else numbers:
        if first is not None and not first <= min(left, len(ragged[number])):
            continue
        count = left if first is None else first
        rows = np.asarray(ragged[number][slice(-count, None) if latest else slice(count)])
        xs, us = dataset.observations(rows), dataset.known(split, number)
        which = slice(-len(xs), None) if latest else slice(len(xs))
        moments = np.asarray(times[split][number]) if split in times else np.arange(len(xs))
        known = None if us is None else us[which]
        yield NewSequence(names[number], rows, xs, moments[which], known)
        left -= len(rows)
        if left < 2:
            return


def require_rate(rate: float | None) -> float:
    """The rate of alarms, or the default; what is no part of the steps is refused."""
    if rate is None:
        return DEFAULT_RATE
    if not 0.0 <= rate < 1.0:
        raise ValueError(
            "`alarm_rate` must be the part of healthy steps that may raise an alarm, such as"
            f" {DEFAULT_RATE}, or 0 for no alarms; got {rate}."
        )
    return float(rate)


def _shown(value: float, ends: np.ndarray, family: Family) -> tuple[str, str, bool]:
    """A value, its band and whether it lies in that, as people see them."""
    low, high = (float(np.rint(end)) if family.has_levels else float(end) for end in ends)
    is_inside = low <= value <= high
    # As many digits as tell the ends of the band apart, and a value outside from the nearer one.
    width = high - low
    digits = 0 if family.has_levels or not width > 0 else 1 - int(np.floor(np.log10(width)))
    most = digits if is_inside or family.has_levels else digits + MOST_DIGITS_MORE
    while True:
        came, first, last = (_number(each, digits) for each in (value, low, high))
        if came not in (first, last) or digits >= most:
            return came, first if first == last else f"{first} to {last}", is_inside
        digits += 1


def _number(value: float, digits: int) -> str:
    """A number as people write it; only what is very large or small has an exponent."""
    if abs(value) >= 1e7 or digits > 6:
        return f"{value:.4g}"
    return f"{round(value, max(digits, 0)) + 0.0:.{max(digits, 0)}f}"
