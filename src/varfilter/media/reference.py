"""The score of a naive predictor, in the units of a model's: what a model must beat."""

from typing import NamedTuple

import numpy as np

from varfilter.data.dataset import Dataset, Family

# No probability is less: a level that the naive predictor rules out costs 700 nats, not infinity.
SMALLEST = 1e-304


class Reference(NamedTuple):
    """What the naive predictor does, in words, and its nats per step, as `Evaluation.nats`."""

    what: str
    nats: float


def marginal_reference(dataset: Dataset, split: str) -> Reference:
    """Each element by itself, always alike: by its frequency, or its mean and spread, in training.

    Frequencies have one added to either count, so that none is 0.
    """
    train = _observed(dataset, dataset.train.values)
    count = np.maximum((~np.isnan(train)).sum(0), 1)
    mean = np.nansum(train, axis=0) / count
    frequency = (np.nansum(train, axis=0) + 1.0) / (count + 2.0)
    spread = np.sqrt(np.nansum((train - mean) ** 2, axis=0) / count)
    centre = np.where(_are_binary(dataset), frequency, mean)
    scores = [
        _nats(dataset, xs[1:], np.broadcast_to(centre, xs[1:].shape), spread)
        for xs in _sequences(dataset, split)
    ]
    return Reference("each element by its mean and spread in training", float(np.mean(scores)))


def last_value_reference(dataset: Dataset, split: str) -> Reference:
    """Each element as it was last seen, with the spread of its changes in training.

    What is 0 or 1 stays so with the frequency with which it did in training.
    """
    pairs = [(_last_seen(xs)[:-1], xs[1:]) for xs in _sequences(dataset, "train")]
    before, after = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    changes = after - before
    count = np.maximum((~np.isnan(changes)).sum(0), 1)
    spread = np.sqrt(np.nansum(changes**2, axis=0) / count)
    stays = ((changes == 0).sum(0) + 1.0) / (count + 2.0)
    train = _observed(dataset, dataset.train.values)
    mean = np.nansum(train, axis=0) / np.maximum((~np.isnan(train)).sum(0), 1)
    is_binary = _are_binary(dataset)
    scores = []
    for xs in _sequences(dataset, split):
        last = _last_seen(xs)[:-1]
        # Of what was never seen before, the mean of training is all that is known.
        known = np.where(np.isnan(last), mean, last)
        centre = np.where(is_binary, np.where(known > 0.5, stays, 1.0 - stays), known)
        scores.append(_nats(dataset, xs[1:], centre, spread))
    return Reference("the last value, with the spread of its changes in training",
                     float(np.mean(scores)))  # fmt: skip


def _nats(dataset: Dataset, xs: np.ndarray, centre: np.ndarray, spread: np.ndarray) -> float:
    """Minus the log-probability per step of one sequence; `centre` of a 0 or 1 is p(1)."""
    families = dataset.families
    if len(families) == 1:
        total = _element_nats(families[0], xs, centre, spread)
    else:
        total = np.stack(
            [
                _element_nats(family, xs[:, i], centre[:, i], spread[i])
                for i, family in enumerate(families)
            ],
            axis=1,
        )
    return float(np.nansum(total) / len(xs))


def _element_nats(
    family: Family, xs: np.ndarray, centre: np.ndarray, spread: np.ndarray
) -> np.ndarray:
    # Imported here: it takes a third of a second, and most commands need no reference.
    from scipy.special import log_ndtr, ndtr

    if family.is_binary:
        return -np.log(np.where(xs > 0.5, centre, 1.0 - centre)) + 0.0 * xs
    width = family.width
    spread = np.maximum(spread, 1e-6 if width is None else width / 4)
    z = (xs - centre) / spread
    if width is None:
        return 0.5 * z**2 + np.log(spread) + 0.5 * np.log(2 * np.pi)
    half = width / 2 / spread
    mass = ndtr(half - np.abs(z)) - ndtr(-half - np.abs(z))
    nats = -np.log(np.maximum(mass, SMALLEST))
    # All that lies beyond the lowest and the highest level counts as that level.
    if family.low is not None:
        nats = np.where(xs <= family.low + width / 4, -log_ndtr(z + half), nats)
    if family.high is not None:
        nats = np.where(xs >= family.high - width / 4, -log_ndtr(half - z), nats)
    return np.minimum(nats, -np.log(SMALLEST)) + 0.0 * xs


def _are_binary(dataset: Dataset) -> np.ndarray:
    return np.array([family.is_binary for family in dataset.families])


def _observed(dataset: Dataset, rows: np.ndarray) -> np.ndarray:
    return dataset.observations(rows).astype(np.float64)


def _sequences(dataset: Dataset, split: str) -> list[np.ndarray]:
    """Those of two steps or more: the first step is conditioned on, and not scored."""
    found = (_observed(dataset, rows) for rows in dataset.split(split))
    return [xs for xs in found if len(xs) > 1]


def _last_seen(xs: np.ndarray) -> np.ndarray:
    """Each element as it was last observed, at every step; NaN before the first time."""
    steps = np.arange(len(xs)).reshape((-1,) + (1,) * (xs.ndim - 1))
    latest = np.maximum.accumulate(np.where(np.isnan(xs), -1, steps), axis=0)
    values = np.take_along_axis(xs, np.maximum(latest, 0), axis=0)
    return np.where(latest < 0, np.nan, values)
