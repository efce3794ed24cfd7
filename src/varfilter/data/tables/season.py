"""Whether a column is better told by its change beyond that of a season before.

Waves of the calendar tell of a season that is the same each year, and a model that sees the steps
just before cannot look up what came exactly a year ago. Where the season itself grows or drifts,
x_{t-1} + x_{t-s} - x_{t-s-1} is much the better start: what every airline's own forecast begins
with (Box and Jenkins).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from varfilter.data.tables.motion import FEWEST_CHANGES, Motion, MotionForm, in_words

# Seasons of fewer steps are what a model remembers by itself; longer ones would be carried along
# by every trajectory, and need windows as long.
SHORTEST, LONGEST = 4, 60
# A sequence has at least so many of them to judge by.
FEWEST_SEASONS = 4
# Changes before that both are told of; and those of a season before.
LAGS = 4
# Nats by which a season must be the better one: in all, and of each value.
LEAST_EVIDENCE, LEAST_EACH = 5.0, 0.05


def season_lengths(periods: Sequence[float | int], step: float | int) -> list[int]:
    """The periods of the calendar, in steps, that can be a season."""
    found = {round(period / step) for period in periods}
    return sorted(length for length in found if SHORTEST <= length <= LONGEST)


def seasonal_motion(
    usual: Motion,
    kind: str,
    sequences: Sequence[np.ndarray],
    inputs: Sequence[np.ndarray],
    lengths: Sequence[int],
) -> Motion:
    """`usual`, or the change beyond that of a season before if that predicts the column better.

    Both, and for positive numbers the season of their logarithms, are judged by a line through
    what they tell of the steps before: of `usual` the last few values or changes and the waves of
    the calendar in `inputs`, of a season the last few of its own and those a season before. What
    counts is the likelihood of the same training values, less what the number of slopes is worth
    (BIC).
    """
    sequences = [np.asarray(values, np.float64) for values in sequences]
    longest = max(map(len, sequences), default=0)
    lengths = [s for s in lengths if FEWEST_SEASONS * s <= longest]
    if not lengths or kind not in ("numeric", "heavy"):
        return usual
    is_positive = min(float(np.nanmin(v)) for v in sequences if not np.isnan(v).all()) > 0
    own, best = MotionForm.of(usual.word), None
    for length in lengths:
        plain, logs = MotionForm(False, True, length), MotionForm(True, True, length)
        gain = _gain(own, plain, sequences, inputs)
        if _is_plain(gain) and (best is None or gain.nats > best[1].nats):
            best = f"change-{length}", gain
        if not is_positive:
            continue
        # Better for its season, and not for its logarithm alone; and better than without that,
        # since a value of 0 may yet come.
        gain = _gain(own, logs, sequences, inputs)
        others = [
            _gain(own._replace(is_log=True), logs, sequences, inputs),
            _gain(plain, logs, sequences, inputs),
        ]
        is_better = all(map(_is_plain, (gain, *others)))
        if is_better and (best is None or gain.nats > best[1].nats):
            best = f"log-change-{length}", gain
    if best is None:
        return usual
    word, gain = best
    reason = (
        f"in training that predicts it better than {in_words(usual.word)} does, by"
        f" {gain.nats / gain.num_values:.2f} nats each time"
    )
    return Motion(word, reason)


class _Gain(NamedTuple):
    """How many nats one form is better by in all, and over how many values."""

    nats: float = 0.0
    num_values: int = 1


def _is_plain(gain: _Gain) -> bool:
    return gain.nats >= max(LEAST_EVIDENCE, LEAST_EACH * gain.num_values)


def _gain(
    usual: MotionForm,
    seasonal: MotionForm,
    sequences: Sequence[np.ndarray],
    inputs: Sequence[np.ndarray],
) -> _Gain:
    """What is gained by a season; nothing if there are too few values."""
    rows = [
        both
        for values, known in zip(sequences, inputs, strict=True)
        if (both := _rows(usual, seasonal, values, known)) is not None
    ]
    if not rows:
        return _Gain()
    one, other, logs = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    if len(one) < max(FEWEST_CHANGES, 2 * one.shape[1], 2 * other.shape[1]):
        return _Gain()
    own = _nats(one) + (logs.sum() if usual.is_log else 0.0)
    found = _nats(other) + (logs.sum() if seasonal.is_log else 0.0)
    return _Gain(float(own - found), len(one))


def _rows(
    usual: MotionForm, seasonal: MotionForm, values: np.ndarray, known: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """For each step that both can predict: (targets and predictors of each form, log x)."""
    season = seasonal.season
    assert season is not None
    first = 2 * season + LAGS + 2
    if len(values) <= first:
        return None
    steps = np.arange(first, len(values))

    def lagged(form: MotionForm, lags: Sequence[int]) -> np.ndarray:
        if form.season is not None:
            lags = (*lags, form.season, form.season + 1)
        own = form.values(values)
        # The last of what is told is that of the last step.
        place = steps - (len(values) - len(own))
        return np.column_stack([own[place - lag] for lag in (0, *lags)])

    before = range(1, LAGS + 1)
    one, other = lagged(usual, before), lagged(seasonal, before)
    if usual.season is None:
        one = np.column_stack([one, known[steps]])
    logs = np.log(values[steps]) if usual.is_log or seasonal.is_log else np.zeros(len(steps))
    seen = ~(np.isnan(one).any(axis=1) | np.isnan(other).any(axis=1))
    return one[seen], other[seen], logs[seen]


def _nats(rows: np.ndarray) -> float:
    """The negative log-likelihood of the first column by a line through the others, and BIC's."""
    target, given = rows[:, 0], np.column_stack([np.ones(len(rows)), rows[:, 1:]])
    spread = given.std(axis=0)
    given = given / np.where(spread > 0, spread, 1.0)
    left = target - given @ np.linalg.lstsq(given, target, rcond=None)[0]
    variance = max(float(np.mean(left**2)), float(np.finfo(np.float32).tiny))
    return 0.5 * len(rows) * np.log(variance) + 0.5 * given.shape[1] * np.log(len(rows))
