"""Whether a positive column with a long tail is better told by its logarithm.

A Gaussian, or Student's t, of a column whose spread is a large part of its mean says that values
below 0 are to be expected: bands and futures would have what cannot come. Of the logarithm both are
positive. Where the logarithm predicts the column no better, or a 0 may yet come, it stays as it is.
"""

from collections.abc import Sequence

import numpy as np

from varfilter.data.tables.kinds import named_share, refined_kind
from varfilter.data.tables.motion import FEWEST_CHANGES, Motion, MotionForm, in_words
from varfilter.data.tables.tails import student_fit

# A column whose mean is so many times its spread is never near 0: its tail is short.
FAR_FROM_ZERO = 3.0
# Its lowest value is so many times the finest difference between two of them: 0 is not the next.
FINEST_STEPS = 10.0
# Nats by which the logarithm must be the likelier one: in all, and of each value.
LEAST_EVIDENCE, LEAST_EACH = 5.0, 0.025
# The form of what is told by its logarithm, in the place of what is not.
BY_LOGARITHM = {"level": "log", "change": "log-change"}

LONG_TAIL = "it is positive with a long tail"


def positive_motion(
    found: Motion, kind: str, sequences: Sequence[np.ndarray], name: str = ""
) -> Motion:
    """`found`, or the same of the logarithm, if that keeps a long-tailed column positive.

    All training values are positive and well away from 0, their mean is less than three times their
    spread, and what a line through the step before leaves of logarithms is the likelier one, by the
    better of a Gaussian and Student's t for either, as densities of the values: 5 nats in all and
    0.025 each. What is bounded, or a share by its name, stays as it is.
    """
    if kind not in ("numeric", "heavy") or found.word not in BY_LOGARITHM:
        return found
    sequences = [np.asarray(each, np.float64) for each in sequences]
    values = np.concatenate([each[~np.isnan(each)] for each in sequences])
    if not _has_long_tail(values):
        return found
    if named_share(name, values) or refined_kind(kind, found.word, sequences).word == "bounded":
        return found
    by_logarithm = BY_LOGARITHM[found.word]
    (own, count), (other, _) = (_nats(word, sequences) for word in (found.word, by_logarithm))
    if count < FEWEST_CHANGES or own - other < max(LEAST_EVIDENCE, LEAST_EACH * count):
        return found
    reason = (
        f"{LONG_TAIL}, and in training that predicts it better than"
        f" {in_words(found.word)} does, by {(own - other) / count:.2g} nats each time"
    )
    return Motion(by_logarithm, reason)


def _has_long_tail(values: np.ndarray) -> bool:
    """Whether a Gaussian of such values would reach below 0, where none of them can be."""
    levels = np.unique(values)
    if levels.size < 2 or levels[0] <= 0:
        return False
    finest = float(np.min(np.diff(levels)))
    return bool(
        levels[0] >= FINEST_STEPS * finest and np.mean(values) < FAR_FROM_ZERO * np.std(values)
    )


def _nats(word: str, sequences: Sequence[np.ndarray]) -> tuple[float, int]:
    """(-log p of the training values in this form, as densities of these; how many they are)."""
    form = MotionForm.of(word)
    found = [form.values(each) for each in sequences]
    pairs = np.concatenate([np.stack([each[:-1], each[1:]]) for each in found], axis=1)
    is_seen = ~np.isnan(pairs).any(axis=0)
    before, after = pairs[:, is_seen]
    if after.size < FEWEST_CHANGES:
        return 0.0, 0
    away = before - before.mean()
    slope = np.mean(away * after) / max(float(np.mean(away**2)), np.finfo(float).tiny)
    fit = student_fit(after - after.mean() - slope * away)
    spread = float(np.std(after - slope * away))
    # Student's t has more parameters: without a gain it is the Gaussian.
    nats = after.size * np.log(max(spread, np.finfo(float).tiny)) - max(fit.gain, 0.0)
    if form.is_log:
        ends = np.concatenate([each[1 + form.is_change :] for each in sequences])
        nats += float(np.sum(np.log(ends[is_seen])))
    return float(nats), after.size
