"""The kinds of columns, and the family of distributions that each has: chosen by its training rows.

What is stated of a kind below is what the rows must show for it; all else is numeric.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from varfilter.data.dataset import Family, Scaling
from varfilter.data.tables.columns import WHOLE
from varfilter.data.tables.motion import MOTIONS, MotionForm
from varfilter.data.tables.tails import StudentFit, events_fit, student_fit
from varfilter.distributions import (
    Bernoulli,
    Categorical,
    DiscretizedNormal,
    NegativeBinomial,
    Normal,
    Rectified,
    StudentT,
    ZeroInflated,
)

# Enough values to infer a kind from, and so few levels of a count that rounding matters.
FEWEST_VALUES, HIGHEST_COUNT = 20, 1000
# What a user calls the kinds, and what they are.
KINDS = {
    "numeric": "a Gaussian",
    "heavy": "Student's t, for outliers that belong to it",
    "zeros": "zero, or a positive number with a Gaussian logarithm",
    "bounded": "a Gaussian that is held at its bounds",
    "binary": "0 or 1",
    "count": "whole numbers of a Gaussian",
    "events": "whole numbers of a negative binomial",
    "categorical": "one of several levels",
}
# What the training rows of a column show that no other family is likelier for.
GROUNDS = {
    "numeric": "numbers for which no other family is likelier",
    "binary": "only 0 and 1, or true and false",
    "count": f"only whole numbers from 0 to {HIGHEST_COUNT:,}",
    "categorical": "text, or another type, with several levels",
}
# How each may be told to a model, beside as it is.
MOTIONS_OF = {
    "numeric": MOTIONS[1:],
    "heavy": MOTIONS[1:],
    "bounded": ("change", "change-N"),
    "count": ("change", "change-N"),
}
# Those of which any number may be read: an absurd one is the filter's to judge.
REAL = ("numeric", "heavy", "zeros", "bounded")
# Of the training values, those that are exactly 0 in a column of many zeros; or at a bound that
# binds, where they are also so many times as many as at the next value.
MANY_ZEROS, AT_BOUND, TIMES_NEXT = 0.1, 0.02, 3
# Nats in all by which another family must be the likelier one, and in the mean of each value: by as
# much Student's t with six degrees of freedom is, and Poisson's counts with a mean of one.
LEAST_EVIDENCE, LEAST_GAIN = 5.0, 0.025
# Words in the name of a column that is a share, or percent; and those of one that need not be.
SHARES = {"share", "fraction", "frac", "proportion", "probability", "prob"}
PERCENT = {"percent", "percentage", "pct", "%"}
CHANGES = {"change", "growth", "return"}
# The smallest scale of a prediction, of the spread of its column (`models/columns.py`).
FINEST = 0.03


class Kind(NamedTuple):
    """One of `KINDS`, and what in the training rows it was chosen for, in words."""

    word: str
    reason: str = ""


def infer_kind(values: np.ndarray, form: str) -> str:
    """What the values of a column are, from its training rows alone.

    Binary: booleans; or at least 20 zeros and ones, and both of them. Count: at least 20 whole
    numbers from 0 to 1000 with more than two different ones. Categorical: text of several levels.
    Numeric: all else. `refined_kind` says which of the families for such values it is.
    """
    present = values[~np.isnan(values)]
    levels = np.unique(present)
    if form == "level":
        return "categorical"
    if form == "bool":
        return "binary"
    if present.size < FEWEST_VALUES or levels.size < 2 or np.any(levels != np.round(levels)):
        return "numeric"
    if levels[0] < 0 or levels[-1] > HIGHEST_COUNT:
        return "numeric"
    if levels.size == 2:
        return "binary" if np.array_equal(levels, [0.0, 1.0]) else "numeric"
    return "count"


def refined_kind(kind: str, motion: str, sequences: Sequence[np.ndarray], name: str = "") -> Kind:
    """The kind of a column by the family that its training sequences show.

    - zeros: a numeric column that is told as it is, never below 0, and 0 in a tenth of its values;
      the logarithms of the others are more symmetric than the others themselves.
    - bounded: 2% of the values of a numeric column (and ten) are exactly the lowest, or the
      highest, three times as many as have the next value.
    - heavy: of a numeric column, or of its changes where it is told by these, what a line through
      the value before leaves is rather Student's t than Gaussian: 5 nats in all, and 0.025 each.
    - bounded, too: of a numeric column that is none of these, the name says a share or percent, and
      all values lie within 0 and 1, or 0 and 100.
    - events: a negative binomial is so much likelier for the values of a count than whole numbers
      of a Gaussian, and its changes vary at least as much as those of Poisson's counts.
    """
    values = np.concatenate([_seen(np.asarray(each, np.float64)) for each in sequences])
    if kind not in ("numeric", "count") or values.size < FEWEST_VALUES:
        return Kind(kind)
    if kind == "count":
        return _events(values, sequences) if motion == "level" else Kind(kind)
    if motion == "level" and (found := _zeros(values)):
        return found
    if not motion.startswith("log") and (found := _bounded(values)):
        return found
    found = _heavy(motion, sequences)
    if not (found or motion.startswith("log")):
        found = named_share(name, values)
    return found or Kind(kind)


def model_values(motion: str, sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a model sees of a column: its values, changes, logarithms, or changes of these."""
    form = MotionForm.of(motion)
    return [form.values(each) for each in sequences]


def unfit(kind: str, values: np.ndarray) -> np.ndarray:
    """The places of values that a column of this kind cannot have."""
    if kind == "binary":
        return np.flatnonzero(~(np.isnan(values) | (values == 0) | (values == 1)))
    if kind in ("count", "events"):
        fits = (values >= 0) & (values == np.round(values)) & (values <= WHOLE)
        return np.flatnonzero(~(np.isnan(values) | fits))
    if kind == "zeros":
        return np.flatnonzero(values < 0)
    return np.zeros(0, np.int64)


def what_fits(kind: str) -> str:
    """The values that a column of this kind can have, in words."""
    if kind == "binary":
        return "0 and 1"
    return "numbers from 0 on" if kind == "zeros" else "whole numbers from 0 to 16777216"


def scaling_of(
    kinds: Mapping[str, str], training: np.ndarray, motions: Mapping[str, str]
) -> Scaling:
    """Standardising by column; what is binary or a level stays as it is.

    A column that is told by its logarithm, or has many zeros, is only divided: 0 must stay 0.
    """
    fitted = Scaling.standardizing(training, axis=0)
    as_is = np.array([kind in ("binary", "categorical") for kind in kinds.values()])
    logs = np.array(
        [kind == "zeros" or motions.get(n, "").startswith("log") for n, kind in kinds.items()]
    )
    offset = np.where(as_is | logs, 0.0, fitted.offset)
    return Scaling(offset, np.where(as_is, 1.0, fitted.scale))


def family_of(
    name: str, kind: str, motion: str, offset: float, scale: float, sequences: Sequence[np.ndarray]
) -> Family:
    """The distribution of a scaled column; the levels of a count are 1 / scale apart.

    `sequences` are those of training, in the user's units.
    """
    if kind == "binary":
        return Family(Bernoulli)
    if kind == "categorical":
        return Family(Categorical, group=name)
    if kind in ("count", "events"):
        family = DiscretizedNormal if kind == "count" else NegativeBinomial
        return Family(family, width=1.0 / scale, low=-offset / scale)
    if kind == "zeros":
        return Family(ZeroInflated)
    if kind == "heavy":
        return Family(StudentT, freedom=tails_of(motion, sequences).freedom)
    if kind == "bounded":
        values = np.concatenate([_seen(np.asarray(each, np.float64)) for each in sequences])
        low, high = (
            None if bound is None else (bound - offset) / scale for bound in _bounds(name, values)
        )
        return Family(Rectified, low=low, high=high)
    return Family(Normal)


def kind_notes(kinds: Mapping[str, Kind]) -> list[str]:
    """Sentences on the columns for which the training rows chose an unusual family, and why."""
    return [
        f"Column '{name}' is {kind.word} ({KINDS[kind.word]}): {kind.reason}. For another, give"
        f" `kinds`, such as {name}={'count' if kind.word == 'events' else 'numeric'}."
        for name, kind in kinds.items()
        if kind.reason and kind.word not in GROUNDS
    ]


def _seen(values: np.ndarray) -> np.ndarray:
    return values[~np.isnan(values)]


def _zeros(values: np.ndarray) -> Kind | None:
    """Whether it is zero or positive, with a tail as a logarithm has."""
    positive = values[values > 0]
    num_zeros = values.size - positive.size
    if values.min() < 0 or num_zeros < MANY_ZEROS * values.size or positive.size < FEWEST_VALUES:
        return None
    if num_zeros < FEWEST_VALUES or abs(_skewness(np.log(positive))) > abs(_skewness(positive)):
        return None
    share = num_zeros / values.size
    return Kind("zeros", f"{share:.0%} of its training values are 0, and none is below")


def _bounded(values: np.ndarray) -> Kind | None:
    """Whether many of its values are exactly the lowest, or the highest."""
    low, high = binding_bounds(values)
    found = [(low, "lowest"), (high, "highest")]
    parts = [
        f"{np.mean(values == bound):.0%} of its training values are exactly {bound:g}, the {which}"
        for bound, which in found
        if bound is not None
    ]
    return Kind("bounded", "; ".join(parts)) if parts else None


def named_share(name: str, values: np.ndarray) -> Kind | None:
    """Whether its name says that it is a share or percent, and all of its values can be."""
    words = set(re.split(r"[^a-z%]+", name.lower()))
    if words & CHANGES or values.min() < 0.0:
        return None
    for word, names, top in (("a share", SHARES, 1.0), ("percent", PERCENT, 100.0)):
        # What never exceeds 1 may be percent or a share that is called so.
        if words & names and top / 100.0 < values.max() <= top:
            reason = f"its name says {word}, and its training values lie within 0 and {top:g}"
            return Kind("bounded", reason)
    return None


def tails_of(motion: str, sequences: Sequence[np.ndarray]) -> StudentFit:
    """Fit Student's t to what a line through the value before leaves of each value a model sees."""
    values = model_values(motion, sequences)
    pairs = np.concatenate([np.stack([each[:-1], each[1:]]) for each in values], axis=1)
    before, after = pairs[:, ~np.isnan(pairs).any(axis=0)]
    seen = np.concatenate([_seen(each) for each in values])
    if before.size < FEWEST_VALUES:
        return student_fit(seen)
    variance = np.var(before)
    slope = np.mean((before - before.mean()) * (after - after.mean())) / variance if variance else 0
    left = after - after.mean() - slope * (before - before.mean())
    # No finer than a model's own: values that repeat would be as likely as one likes.
    return student_fit(left, finest=FINEST * float(np.std(seen)))


def _heavy(motion: str, sequences: Sequence[np.ndarray]) -> Kind | None:
    """Whether Student's t is the likelier family."""
    found = tails_of(motion, sequences)
    if not _is_likelier(found.gain, found.num_values):
        return None
    what = "changes" if MotionForm.of(motion).is_change else "values"
    return Kind(
        "heavy",
        f"what the one before leaves of its training {what} is likelier Student's t, with"
        f" {found.freedom:.3g} degrees of freedom, than Gaussian, by"
        f" {found.gain / found.num_values:.2g} nats each",
    )


def _events(values: np.ndarray, sequences: Sequence[np.ndarray]) -> Kind:
    """Whether a count is one of events, whose spread grows with their number."""
    changes = np.concatenate([_seen(np.diff(np.asarray(each, np.float64))) for each in sequences])
    # Two counts of one Poisson law differ by twice their mean, squared; half of that is allowed for
    # what has been learned of the one before.
    if changes.size < FEWEST_VALUES or np.mean(changes**2) < values.mean():
        return Kind("count")
    gain = events_fit(values).gain
    if not _is_likelier(gain, values.size):
        return Kind("count")
    return Kind(
        "events",
        "for its training values a negative binomial is likelier than whole numbers of a Gaussian,"
        f" by {gain / values.size:.2g} nats each",
    )


def _is_likelier(gain: float, count: int) -> bool:
    return gain > max(LEAST_EVIDENCE, LEAST_GAIN * count)


def binding_bounds(values: np.ndarray) -> tuple[float | None, float | None]:
    """The lowest and the highest value, where so many are exactly there that it is a bound."""
    levels, counts = np.unique(values, return_counts=True)
    if levels.size < FEWEST_VALUES:
        return None, None

    def binds(own: int, following: int) -> bool:
        at, after = counts[own], counts[following]
        return bool(at >= max(AT_BOUND * values.size, 10) and at >= TIMES_NEXT * after)

    low = float(levels[0]) if binds(0, 1) else None
    return low, float(levels[-1]) if binds(-1, -2) else None


def _bounds(name: str, values: np.ndarray) -> tuple[float | None, float | None]:
    """The bounds of a column that was said to have them: those that bind, or those of shares."""
    low, high = binding_bounds(values)
    if low is not None or high is not None:
        return low, high
    natural = [top for top in (1.0, 100.0) if values.min() >= 0.0 and values.max() <= top]
    if not natural:
        raise ValueError(
            f"`kinds[{name!r}]` is 'bounded', but its training values, from {values.min():g} to"
            f" {values.max():g}, neither lie in 0 to 1 or 0 to 100, nor are many of them exactly"
            " the lowest or the highest. Give 'numeric'."
        )
    return 0.0, natural[0]


def _skewness(values: np.ndarray) -> float:
    spread = values.std()
    return float(np.mean((values - values.mean()) ** 3) / spread**3) if spread > 0 else 0.0
