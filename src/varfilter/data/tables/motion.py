"""Whether a column keeps to a level or moves on, and how a model is told of it.

A column that comes back to a mean is best told as it is. One that does not, such as a price or a
concentration that rises, soon lies where no training row did; its changes do not. Where it turns
with the seasons, what is left is its change beyond that of a season before.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from varfilter.data.dataset import Transform

# How a column is told to a model, in the words of the user: as it is, by its change since the step
# before, by its logarithm, or by the change of that; and by changes beyond those of N steps before.
MOTIONS = ("level", "change", "log", "log-change", "change-N", "log-change-N")
# With fewer changes to judge by, a column is taken for one that keeps to its level.
FEWEST_CHANGES = 30
# Of its variance, what the last value may leave of a column that is told by its change: of one
# that leaves more, most changes are noise that comes and goes.
LEFT = 0.25
# Lags in the regression of Dickey and Fuller: enough for what a few steps pass on.
MOST_LAGS = 12
# Of the last third of the training rows, in the range of which the first two thirds never were.
OUTSIDE = 0.5
# Nats in all by which Gaussian changes of the logarithm must be the likelier ones: odds of 20 to 1.
LEAST_EVIDENCE = 3.0
# The scale of changes is at least so many times what 32-bit numbers can tell apart.
COARSEST = 100.0


class Motion(NamedTuple):
    """One of `MOTIONS`, and what in the training rows it was chosen for, in words."""

    word: str
    reason: str = ""


class MotionForm(NamedTuple):
    """The form in which a model sees a column: logarithms, changes, changes beyond a season's."""

    is_log: bool = False
    is_change: bool = False
    season: int | None = None

    @staticmethod
    def of(word: str) -> "MotionForm":
        """The form that a motion's word stands for; any other word is refused."""
        found = re.fullmatch(r"level|(log)|(log-)?change(?:-(\d+))?", word)
        if found is None:
            raise ValueError(f"A motion is one of {', '.join(MOTIONS)}; got {word!r}.")
        is_log = bool(found[1] or found[2])
        season = None if found[3] is None else int(found[3])
        if season is not None and season < 2:
            raise ValueError(f"A season has at least 2 steps; got {word!r}.")
        return MotionForm(is_log, "change" in word, season)

    def values(self, column: np.ndarray) -> np.ndarray:
        """The logarithms and changes of one sequence of a column, one less for each step back."""
        values = np.asarray(column, np.float64)
        values = np.log(values) if self.is_log else values
        values = np.diff(values) if self.is_change else values
        return values if self.season is None else values[self.season :] - values[: -self.season]


def is_motion(word: str) -> bool:
    """Whether a word is that of a motion."""
    try:
        MotionForm.of(word)
    except ValueError:
        return False
    return True


def usual_motion(
    kind: str,
    sequences: Sequence[np.ndarray],
    inputs: Sequence[np.ndarray] | None = None,
    *,
    goes_on: bool,
) -> Motion:
    """The motion of a column, from its training sequences alone, NaN where it was not observed.

    `inputs` are the known inputs (steps, inputs) beside each sequence; `goes_on` says that held-out
    rows come after these, and not beside them.

    A numeric column or a count is predicted by its change if the last value leaves less than a
    quarter of its variance, and if it does not come back: a Dickey-Fuller regression does not show,
    at 5%, that it is drawn to a mean, or to one that the inputs tell (a season); or, where rows go
    on, more than half of the last third of them lies outside of the range before. A positive
    numeric column that leaves its range so is predicted by the change of its logarithm, if its
    changes in proportion are Gaussian ones with odds of 20 to 1 over its changes as they are.
    """
    sequences = [np.asarray(values, np.float64) for values in sequences]
    changes = np.concatenate([_seen(np.diff(values)) for values in sequences] or [np.zeros(0)])
    values = np.concatenate([_seen(values) for values in sequences])
    if kind == "binary" or changes.size < FEWEST_CHANGES:
        return Motion("level")
    if np.mean(changes**2) >= LEFT * np.var(values):
        return Motion("level")
    leaves = goes_on and _share_outside(sequences) > OUTSIDE
    statistic, critical = dickey_fuller(sequences, inputs)
    if leaves:
        reason = "most of the final third of the training rows lies outside of the range before"
    elif statistic > critical:
        reason = "nothing in the training rows draws it back to a mean"
    else:
        return Motion("level")
    by_proportion = kind in ("numeric", "heavy") and leaves and values.min() > 0
    if by_proportion and _evidence_of_logarithms(sequences, changes) > LEAST_EVIDENCE:
        return Motion("log-change", reason)
    return Motion("change", reason)


def dickey_fuller(
    sequences: Sequence[np.ndarray], inputs: Sequence[np.ndarray] | None = None
) -> tuple[float, float]:
    """The t-value of b in x_t - x_{t-1} = a + b x_{t-1} + lagged changes + inputs; its 5% point.

    A value below it shows that the column is drawn to a mean (b < 0). The number of lagged changes
    is the cube root of that of the rows, at most 12, and less where gaps leave too few rows.
    """
    num_changes = sum(max(len(values) - 1, 0) for values in sequences)
    lags = min(MOST_LAGS, int(num_changes ** (1 / 3)))
    known = [np.zeros((len(values), 0)) for values in sequences] if inputs is None else inputs
    while True:
        rows = _regression(sequences, known, lags)
        if len(rows) >= max(FEWEST_CHANGES, 4 * rows.shape[1]) or not lags:
            break
        lags //= 2
    count = len(rows) - rows.shape[1]
    if count < 1:
        return 0.0, -2.86
    # Standardised, so that the products do not lose the digits of a column far from 0.
    spread = rows.std(axis=0)
    rows = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    target, given = rows[:, 0], rows[:, 1:]
    inverse = np.linalg.pinv(given.T @ given)
    factors = inverse @ (given.T @ target)
    noise = np.sum((target - given @ factors) ** 2) / count
    error = np.sqrt(max(noise * inverse[0, 0], np.finfo(float).tiny))
    # MacKinnon (2010), table 2, for a regression with a constant; waves of the calendar beside it
    # change nothing of it in the limit.
    critical = -2.8615 - 2.8903 / len(rows) - 4.234 / len(rows) ** 2
    return float(factors[0] / error), float(critical)


def transform_of(motion: str, sequences: Sequence[np.ndarray], finest: float) -> Transform | None:
    """The numbers of a motion, from the training sequences in the units of the observations.

    `finest` is the distance of the 32-bit numbers there.
    """
    if motion == "level":
        return None
    form = MotionForm.of(motion)
    log_centre, log_scale, drift, change_scale, season_spread = 0.0, None, 0.0, None, None
    values = [np.asarray(each, np.float64) for each in sequences]
    if form.is_log:
        values = [np.log(each) for each in values]
        seen = np.concatenate([_seen(each) for each in values])
        log_centre = float(seen.mean())
        # The distance of 32-bit numbers in proportion to them.
        finest = float(np.finfo(np.float32).eps)
        log_scale = max(float(seen.std()), COARSEST * finest)
        values = [(each - log_centre) / log_scale for each in values]
        finest /= log_scale
    if form.is_change:
        of_steps, of_seasons = MotionForm(is_change=True), form._replace(is_log=False)
        drift, change_scale = _centre_and_spread(values, of_seasons, COARSEST * finest)
        if form.season is not None:
            _, season_spread = _centre_and_spread(values, of_steps, COARSEST * finest)
    return Transform(log_scale, log_centre, change_scale, drift, form.season, season_spread)


def _centre_and_spread(
    sequences: Sequence[np.ndarray], form: MotionForm, least: float
) -> tuple[float, float]:
    """The mean and the spread of a column in this form; 0 and 1 where it has no values."""
    seen = np.concatenate([_seen(form.values(each)) for each in sequences])
    return (float(seen.mean()), max(float(seen.std()), least)) if seen.size else (0.0, 1.0)


def motion_notes(motions: Mapping[str, Motion]) -> list[str]:
    """Sentences on the columns that a model does not see as they are, or no longer, and why."""
    groups: dict[Motion, list[str]] = {}
    for name, motion in motions.items():
        if motion.word != "level" or motion.reason:
            groups.setdefault(motion, []).append(name)
    notes = []
    for motion, names in groups.items():
        listed = ", ".join(f"'{name}'" for name in names)
        each = "Column" if len(names) == 1 else "Each of"
        why = f": {motion.reason}. For another, give `kinds`" if motion.reason else ", as asked for"
        other = "change" if motion.word == "level" else "level"
        word = f", such as {names[0]}={other}" if motion.reason else ""
        notes.append(f"{each} {listed} is predicted by {in_words(motion.word)}{why}{word}.")
    return notes


def in_words(word: str) -> str:
    """The form in which a model sees a column, as a part of a sentence."""
    form = MotionForm.of(word)
    if not form.is_change:
        return "its logarithm" if form.is_log else "its value"
    what = "the change of its logarithm" if form.is_log else "its change"
    beyond = "" if form.season is None else f", beyond that of {form.season} steps before"
    return f"{what} since the step before{beyond}"


def _seen(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]


def _share_outside(sequences: Sequence[np.ndarray]) -> float:
    """The share of the last thirds of the sequences outside of the range of their first two."""
    num_outside = num_late = 0
    for values in sequences:
        cut = 2 * len(values) // 3
        early, late = _seen(values[:cut]), _seen(values[cut:])
        if early.size and late.size:
            num_outside += int(np.sum((late < early.min()) | (late > early.max())))
            num_late += late.size
    return num_outside / max(num_late, 1)


def _evidence_of_logarithms(sequences: Sequence[np.ndarray], changes: np.ndarray) -> float:
    """Nats in all by which Gaussian changes of log x are likelier than those of x, as densities."""
    pairs = [np.stack([values[:-1], values[1:]]) for values in sequences]
    before, after = np.concatenate([pair[:, ~np.isnan(pair).any(axis=0)] for pair in pairs], axis=1)
    proportions = np.log(after) - np.log(before)
    spread, of_proportions = np.std(changes), np.std(proportions)
    if not (spread > 0 and of_proportions > 0):
        return 0.0
    gain = np.log(spread) - np.log(of_proportions) - np.mean(np.log(after))
    return float(changes.size * gain)


def _regression(
    sequences: Sequence[np.ndarray], inputs: Sequence[np.ndarray], lags: int
) -> np.ndarray:
    """Rows of (change, value before, changes before that, inputs) in which nothing is missing."""
    found = []
    for values, known in zip(sequences, inputs, strict=True):
        if len(values) < lags + 2:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(values, lags + 2)
        changes = np.diff(windows, axis=1)
        rows = [changes[:, -1], windows[:, -2], changes[:, :-1], known[lags + 1 :]]
        rows = np.column_stack(rows)
        found.append(rows[~np.isnan(rows).any(axis=1)])
    return np.concatenate(found) if found else np.zeros((0, lags + 2))
