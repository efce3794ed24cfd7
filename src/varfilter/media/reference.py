"""The score of a naive predictor, in the units of a model's: what a model must beat."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from varfilter.data.dataset import Dataset, Family
from varfilter.distributions import ZeroInflated

# No probability is less: a level that the naive predictor rules out costs 700 nats, not infinity.
SMALLEST = 1e-304
# Training numbers that tell a spread well enough; all of a large set would take minutes.
MOST_NUMBERS = 1 << 25


class Reference(NamedTuple):
    """What the naive predictor does, in words, and its nats per step, as `Evaluation.nats`."""

    what: str
    nats: float


def marginal_reference(dataset: Dataset, split: str) -> Reference:
    """Score each element by its frequency, or its mean and spread, in training, alone.

    Frequencies have one added to either count, so that none is 0.
    """
    count, total, square = _sums(_training(dataset))
    mean = total / np.maximum(count, 1)
    spread = np.sqrt(np.maximum(square / np.maximum(count, 1) - mean**2, 0.0))
    centre = np.where(_are_binary(dataset), (total + 1.0) / (count + 2.0), mean)
    scores = [_nats(dataset, xs[1:], centre[None], spread) for xs in _sequences(dataset, split)]
    return Reference("each element by its mean and spread in training", float(np.mean(scores)))


def last_value_reference(dataset: Dataset, split: str) -> Reference:
    """Score each element as it was last seen, with the spread of its changes in training.

    What is 0 or 1 stays so with the frequency with which it did in training.
    """
    count, total, _ = _sums(_training(dataset))
    mean = total / np.maximum(count, 1)
    changes = (xs[1:] - last_seen(xs)[:-1] for xs in _training(dataset))
    num_changes, _, square = _sums(changes)
    spread = np.sqrt(square / np.maximum(num_changes, 1))
    # A change of what is 0 or 1 has the square 1.
    stays = (num_changes - square + 1.0) / (num_changes + 2.0)
    is_binary = _are_binary(dataset)
    zeros = _Zeros.of_columns(dataset)
    scores = []
    for xs in _sequences(dataset, split):
        last = last_seen(xs)[:-1]
        # Of what was never seen before, the mean of training is all that is known.
        known = np.where(np.isnan(last), mean, last)
        centre = np.where(is_binary, np.where(known > 0.5, stays, 1.0 - stays), known)
        scores.append(_nats(dataset, xs[1:], centre, spread, zeros))
    what = "the last value, with the spread of its changes in training"
    return Reference(what, float(np.mean(scores)))


class _Zeros(NamedTuple):
    """How often a column is above 0 after 0 and after more, and the moments of its logarithm."""

    after_zero: float
    after_more: float
    log_mean: float
    log_std: float

    @staticmethod
    def of_columns(dataset: Dataset) -> "dict[int, _Zeros]":
        """Fit each column with many zeros to the training part; frequencies have one added."""
        places = [i for i, f in enumerate(dataset.families) if f.distribution is ZeroInflated]
        found: dict[int, _Zeros] = {}
        for i in places if isinstance(dataset.family, tuple) else ():
            pairs = [(last_seen(xs)[:-1, i], xs[1:, i]) for xs in _training(dataset)]
            last, now = (np.concatenate(each) for each in zip(*pairs, strict=True))
            seen = ~(np.isnan(last) | np.isnan(now))
            shares = [
                (np.sum(seen & is_after & (now > 0)) + 1.0) / (np.sum(seen & is_after) + 2.0)
                for is_after in (last == 0, last > 0)
            ]
            logs = np.log(now[seen & (now > 0)])
            moments = (logs.mean(), max(logs.std(), 1e-3)) if logs.size else (0.0, 1.0)
            found[i] = _Zeros(*map(float, (*shares, *moments)))
        return found

    def nats(self, xs: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Minus the log-probability of 0, or minus the log-density of more, after the last."""
        above = np.where(last == 0, self.after_zero, self.after_more)
        logs = np.log(np.maximum(xs, np.finfo(np.float32).tiny))
        z = (logs - self.log_mean) / self.log_std
        density = 0.5 * z**2 + np.log(self.log_std) + 0.5 * np.log(2 * np.pi) + logs
        return np.where(xs == 0, -np.log(1.0 - above), density - np.log(above)) + 0.0 * xs


def _nats(
    dataset: Dataset,
    xs: np.ndarray,
    centre: np.ndarray,
    spread: np.ndarray,
    zeros: Mapping[int, _Zeros] = MappingProxyType({}),
) -> float:
    """Minus the log-probability per step of one sequence; `centre` of a 0 or 1 is p(1)."""
    families = dataset.families
    if not isinstance(dataset.family, tuple):
        total = element_nats(families[0], xs, centre, spread)
    else:
        total = np.stack(
            [
                element_nats(family, xs[:, i], centre[:, i], spread[i])
                for i, family in enumerate(families)
            ],
            axis=1,
        )
        for i, each in zeros.items():
            total[:, i] = each.nats(xs[:, i], centre[:, i])
        for places in level_groups(dataset):
            # One of the levels: each as probable as it would be by itself, in proportion.
            shares = np.broadcast_to(centre[:, places], xs[:, places].shape)
            own = np.sum(xs[:, places] * shares, axis=1) / np.sum(shares, axis=1)
            total[:, places] = 0.0
            total[:, places[0]] = -np.log(np.maximum(own, SMALLEST))
    return float(np.nansum(total) / len(xs))


def element_nats(
    family: Family, xs: np.ndarray, centre: np.ndarray, spread: np.ndarray | float
) -> np.ndarray:
    """-log p of values of one family, of a Gaussian; `centre` of a 0 or 1 is p(1)."""
    # Imported here: it takes a third of a second, and most commands need no reference.
    from scipy.special import log_ndtr, ndtr

    if family.is_binary:
        return -np.log(np.where(xs > 0.5, centre, 1.0 - centre)) + 0.0 * xs
    width = family.width
    spread = np.maximum(spread, 1e-6 if width is None else width / 4)
    z = (xs - centre) / spread
    if width is None:
        nats = 0.5 * z**2 + np.log(spread) + 0.5 * np.log(2 * np.pi)
        # Held at a bound, which all that lies beyond counts as; many zeros are held at 0.
        low, high = support(family)
        nats = np.where(np.abs(xs - low) < 1e-5, -log_ndtr(z), nats)
        return np.where(np.abs(xs - high) < 1e-5, -log_ndtr(-z), nats)
    half = width / 2 / spread
    mass = ndtr(half - np.abs(z)) - ndtr(-half - np.abs(z))
    nats = -np.log(np.maximum(mass, SMALLEST))
    # All that lies beyond the lowest and the highest level counts as that level.
    if family.low is not None:
        nats = np.where(xs <= family.low + width / 4, -log_ndtr(z + half), nats)
    if family.high is not None:
        nats = np.where(xs >= family.high - width / 4, -log_ndtr(half - z), nats)
    return np.minimum(nats, -np.log(SMALLEST)) + 0.0 * xs


def support(family: Family) -> tuple[float, float]:
    """The lowest and the highest value that there can be, infinite where there is none."""
    low = 0.0 if family.distribution is ZeroInflated else family.low
    return -np.inf if low is None else low, np.inf if family.high is None else family.high


def level_groups(dataset: Dataset) -> list[list[int]]:
    """The elements of each categorical column."""
    found: dict[str, list[int]] = {}
    for i, family in enumerate(dataset.families):
        if family.group is not None:
            found.setdefault(family.group, []).append(i)
    return list(found.values())


def _are_binary(dataset: Dataset) -> np.ndarray:
    return np.array([family.is_binary for family in dataset.families])


def _sequences(dataset: Dataset, split: str) -> Iterator[np.ndarray]:
    """The sequences of two steps or more: the first step is conditioned on, not scored."""
    for rows in dataset.split(split):
        xs = dataset.observations(rows).astype(np.float64)
        if len(xs) > 1:
            yield xs


def _training(dataset: Dataset) -> Iterator[np.ndarray]:
    """The training sequences; of a large set only some, which tell the spread as well."""
    every = max(1, dataset.train.values.size // MOST_NUMBERS)
    for number, xs in enumerate(_sequences(dataset, "train")):
        if number % every == 0:
            yield xs


def _sums(arrays: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(count, sum, sum of squares) of each element over time, of what was observed."""
    count = total = square = np.zeros(())
    for xs in arrays:
        seen = ~np.isnan(xs)
        count = count + seen.sum(0)
        total = total + np.sum(xs, axis=0, where=seen)
        square = square + np.sum(xs**2, axis=0, where=seen)
    return count, total, square


def last_seen(xs: np.ndarray) -> np.ndarray:
    """Each element as it was last observed, at every step; NaN before the first time."""
    if not np.isnan(xs).any():
        return xs
    steps = np.arange(len(xs)).reshape((-1,) + (1,) * (xs.ndim - 1))
    latest = np.maximum.accumulate(np.where(np.isnan(xs), -1, steps), axis=0)
    values = np.take_along_axis(xs, np.maximum(latest, 0), axis=0)
    return np.where(latest < 0, np.nan, values)
