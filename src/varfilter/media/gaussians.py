"""Gaussian predictions of the columns of a table: what all references say, and how well they do.

A Gaussian of each value, or of its logarithm; counts and other levels have the probability of the
Gaussian around them, and of what is 0 or 1 there is the probability of a 1.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.continued import Continued
from varfilter.data.dataset import Dataset
from varfilter.media.reference import element_nats, level_groups, support
from varfilter.training.predictive_draws import origins
from varfilter.training.predictive_scores import LEVELS, SLACK, Predictions

# Beyond it the mean of a log-normal is infinite in any unit.
HIGHEST_LOG = 80.0


class Gaussians(NamedTuple):
    """N(centre, spread^2) of each value, (..., columns) in the model's units; of a 0 or 1, p(1).

    `is_log`, (columns): whether it is the logarithm of the value that has this Gaussian.
    """

    centre: np.ndarray
    spread: np.ndarray
    is_log: np.ndarray

    @staticmethod
    def of(centre: np.ndarray, spread: np.ndarray) -> "Gaussians":
        """Gaussians of the values as they are; `spread` is broadcast, and is never quite 0."""
        spread = np.maximum(np.broadcast_to(spread, centre.shape), 1e-6)
        return Gaussians(centre, spread, np.zeros(centre.shape[-1], bool))

    def summing_to_one(self, groups: Sequence[Sequence[int]]) -> "Gaussians":
        """Scale the probabilities of the levels at each group of places so that they sum to 1."""
        centre = self.centre.copy()
        for places in map(list, groups):
            centre[..., places] /= np.sum(centre[..., places], axis=-1, keepdims=True)
        return self._replace(centre=centre)

    def part(self, *which: Any) -> "Gaussians":
        """The Gaussians of some of the values."""
        return Gaussians(self.centre[which], self.spread[which], self.is_log)

    def mean(self, dataset: Dataset) -> np.ndarray:
        """The expected values; what lies beyond a bound of a column is held there."""
        # Imported where it is used, as `reference.py` does: most commands need no reference.
        from scipy.special import ndtr

        log_mean = np.minimum(self.centre + 0.5 * self.spread**2, HIGHEST_LOG)
        found = np.where(self.is_log, np.exp(np.where(self.is_log, log_mean, 0.0)), self.centre)
        for i, (low, high) in self._bounds(dataset):
            centre, spread = self.centre[..., i], self.spread[..., i]
            z_low, z_high = (low - centre) / spread, (high - centre) / spread
            mean = centre * (ndtr(z_high) - ndtr(z_low)) + spread * (_phi(z_low) - _phi(z_high))
            if np.isfinite(low):
                mean = mean + low * ndtr(z_low)
            if np.isfinite(high):
                mean = mean + high * ndtr(-z_high)
            found[..., i] = np.clip(mean, low, high)
        return found

    def _bounds(self, dataset: Dataset) -> list[tuple[int, tuple[float, float]]]:
        """The columns of numbers that have bounds, and these; of logarithms it is 0 anyway."""
        found = [(i, support(family)) for i, family in enumerate(dataset.families)]
        return [
            (i, bounds) for i, bounds in found if np.isfinite(bounds).any() and not self.is_log[i]
        ]

    def quantiles(self, dataset: Dataset, levels: Sequence[float]) -> np.ndarray:
        """The values (levels, ..., columns) below which a value lies with these probabilities.

        Those of what has levels are levels, and of a 0 or 1 they are 0 or 1. Of a column of several
        levels that one is 1 where the probabilities of it and those before reach the given one.
        """
        from scipy.special import ndtri

        places = np.asarray(levels, np.float64).reshape(-1, *(1,) * (self.centre.ndim - 1))
        found = np.empty((len(levels), *self.centre.shape))
        for i, family in enumerate(dataset.families):
            centre, spread = self.centre[..., i], self.spread[..., i]
            if family.is_binary:
                found[..., i] = places > 1.0 - centre
                continue
            edge = centre + ndtri(places) * spread
            if self.is_log[i]:
                edge = np.exp(np.minimum(edge, HIGHEST_LOG))
            if family.width is not None:
                low = 0.0 if family.low is None else family.low
                edge = low + np.rint((edge - low) / family.width) * family.width
            found[..., i] = np.clip(edge, *support(family))
        for group in level_groups(dataset):
            ends = np.cumsum(self.centre[..., group], axis=-1)
            ends = ends / ends[..., -1:]
            own = np.sum(ends < places[..., None], axis=-1)
            found[..., group] = own[..., None] == np.arange(len(group))
        return found

    def nats(self, dataset: Dataset, xs: np.ndarray) -> np.ndarray:
        """-log p(x) of each value of `xs` (..., columns) by itself."""
        found = np.zeros(xs.shape)
        tiny = float(np.finfo(np.float32).tiny)
        for i, family in enumerate(dataset.families):
            x, centre, spread = xs[..., i], self.centre[..., i], self.spread[..., i]
            if self.is_log[i]:
                log_x = np.log(np.fmax(x, tiny))
                z = (log_x - centre) / spread
                found[..., i] = 0.5 * z**2 + np.log(spread) + 0.5 * np.log(2 * np.pi) + log_x
                found[..., i] += 0.0 * x  # NaN where nothing was observed
            else:
                found[..., i] = element_nats(family, x, centre, spread)
        return found

    def chances(self, dataset: Dataset, xs: np.ndarray) -> np.ndarray:
        """P(X < x) and P(X = x) of each value of `xs`, (2, ..., columns); NaN for NaN."""
        from scipy.special import ndtr

        found = np.zeros((2, *xs.shape))
        tiny = float(np.finfo(np.float32).tiny)
        for i, family in enumerate(dataset.families):
            x, centre, spread = xs[..., i], self.centre[..., i], self.spread[..., i]
            if family.is_binary:
                is_one = x > 0.5
                below, up_to = is_one * (1.0 - centre), np.where(is_one, 1.0, 1.0 - centre)
            elif self.is_log[i]:
                below = up_to = ndtr((np.log(np.fmax(x, tiny)) - centre) / spread)
            else:
                half = 0.0 if family.width is None else 0.5 * family.width
                spread = spread if family.width is None else np.maximum(spread, 0.5 * half)
                below, up_to = (ndtr((x + by - centre) / spread) for by in (-half, half))
                low, high = support(family)
                near = max(half, SLACK)
                below = np.where(x < low + near, 0.0, below)
                up_to = np.where(x > high - near, 1.0, up_to)
            found[:, ..., i] = below, up_to - below
        return found + 0.0 * xs

    def scored(self, dataset: Dataset, xs: np.ndarray) -> Predictions:
        """How well they predicted the values `xs`, (values, columns)."""
        from scipy.special import ndtr

        mean = self.mean(dataset)
        is_binary = np.array([family.is_binary for family in dataset.families])
        quantiles = np.where(is_binary, np.nan, self.quantiles(dataset, LEVELS))
        z = (xs - self.centre) / self.spread
        crps = _below(z) + _below(-z)
        # Of what is held at its bounds nothing is said beyond them.
        for i, (low, high) in self._bounds(dataset):
            centre, spread = self.centre[..., i], self.spread[..., i]
            beyond = _below((low - centre) / spread) + _below((centre - high) / spread)
            crps[..., i] -= beyond
        crps = self.spread * crps
        if self.is_log.any():  # of a log-normal: Baran and Lerch (2015)
            z = (np.log(np.fmax(xs, np.finfo(np.float32).tiny)) - self.centre) / self.spread
            below = ndtr(z - self.spread) + ndtr(self.spread / np.sqrt(2)) - 1
            log_crps = xs * (2 * ndtr(z) - 1) - 2 * mean * below
            crps = np.where(self.is_log, log_crps, crps)
        nats, chances = self.nats(dataset, xs), self.chances(dataset, xs)
        return Predictions(xs, mean, nats, crps, quantiles, chances)


# What is said of the steps from each place of a sequence on, (places, horizon, columns), told of
# all steps before that place; and of the known inputs, as far ahead as `horizon`.
Predictor = Callable[[Continued, np.ndarray, int], Gaussians]


def reference_gaussians(
    predictor: Predictor, sequences: Sequence[Continued], horizons: Sequence[int], every: int
) -> dict[int, Gaussians]:
    """What is said of the values that `filter_predictions` predicts with the same arguments."""
    longest = max(horizons)
    found: dict[int, list[Gaussians]] = {horizon: [] for horizon in horizons}
    for sequence in sequences:
        if 1 in found:
            found[1].append(_step(predictor(sequence, origins(sequence, 1, 1), 1), 1))
        places = origins(sequence, longest, every)
        if longest > 1 and len(places):
            further = predictor(sequence, places, longest)
            for horizon in horizons:
                if horizon > 1:
                    found[horizon].append(_step(further, horizon))
    return {
        horizon: Gaussians(
            np.concatenate([each.centre for each in parts]),
            np.concatenate([each.spread for each in parts]),
            parts[0].is_log,
        )
        for horizon, parts in found.items()
        if parts
    }


def _step(gaussians: Gaussians, horizon: int) -> Gaussians:
    """The Gaussians at one horizon, (places, columns)."""
    return gaussians.part(slice(None), horizon - 1)


def _phi(z: np.ndarray) -> np.ndarray:
    """The density of N(0, 1)."""
    return np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)


def _below(z: np.ndarray) -> np.ndarray:
    """The integral of P(Z < y)^2 up to z, of Z ~ N(0, 1): Gneiting et al. (2006)."""
    from scipy.special import ndtr

    with np.errstate(invalid="ignore"):
        found = z * ndtr(z) ** 2 + 2 * _phi(z) * ndtr(z) - ndtr(np.sqrt(2) * z) / np.sqrt(np.pi)
    return np.where(z == -np.inf, 0.0, found)
