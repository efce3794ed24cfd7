"""Forecasts of a table pooled with its references: p(x) = sum_k w_k p_k(x), by column and horizon.

The futures that a model simulates feed on themselves: what it has wrong of one step goes into the
next, and far ahead it may be worse than the last value. A pool of several forecasts is rarely much
worse than the best of them, which nobody knows beforehand (Stone 1961; Geweke and Amisano 2011).

The weights are those by which the values of the validation part, which nothing was learned from,
are the most probable; few values leave them near where they start, two thirds for the model and
the rest shared by its references. They are kept in the run's folder, with all that is needed to
forecast without the training data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from varfilter.data.dataset import Dataset
from varfilter.media.gaussians import Gaussians
from varfilter.media.naive import at_horizon
from varfilter.prediction import Forecast
from varfilter.runs.metrics import MODEL
from varfilter.training.predictive_scores import LEVELS, Drawn, Predictions, Weighted

# The weight of the model before anything was validated.
START = 2 / 3
# How many independent values the start counts for.
STRENGTH = 5.0
NUM_ITERATIONS = 200
# By so many of its quantiles a Gaussian stands among the draws of the model.
NUM_QUANTILES = 99
QUANTILES = tuple((number + 0.5) / NUM_QUANTILES for number in range(NUM_QUANTILES))


@dataclass(frozen=True)
class ForecastPool:
    """The weights (horizons, columns, predictors) of a pool, of which the model is the first.

    Between two horizons they lie on a line, over the logarithm of the horizon, and beyond the last
    they stay as they are. `num_values` is how many values of a column they were found by.
    """

    predictors: tuple[str, ...]
    horizons: tuple[int, ...]
    weights: np.ndarray
    num_values: int

    @staticmethod
    def of(
        dataset: Dataset,
        drawn: Mapping[int, Drawn],
        references: Mapping[str, Mapping[int, Gaussians]],
        every: int,
    ) -> "ForecastPool":
        """Find the weights by what the model and its references said of the same values.

        `drawn` has what the model expected at each horizon, `references` the same of each by its
        name. Forecasts began `every` so many steps: those whose ways overlap tell less.
        """
        predictors = (MODEL, *references)
        start = np.array([START, *[(1.0 - START) / len(references)] * len(references)])
        weights = []
        for horizon, own in drawn.items():
            nats = np.stack(
                [own.nats, *(each[horizon].nats(dataset, own.xs) for each in references.values())],
                axis=-1,
            )
            count = 1.0 if horizon == 1 else min(1.0, every / horizon)
            whole = nats.reshape(-1, len(predictors))
            # All columns together first: what is so of most is likely so of one with few values.
            common = most_probable_weights(whole, count / nats.shape[1], start)
            weights.append(
                [
                    most_probable_weights(
                        nats[:, places].reshape(-1, len(predictors)), count / len(places), common
                    )
                    for places in _columns(dataset)
                ]
            )
        num_values = len(next(iter(drawn.values())).xs)
        return ForecastPool(predictors, tuple(drawn), np.array(weights), num_values)

    def at(self, dataset: Dataset, horizon: int) -> np.ndarray:
        """The weights (elements, predictors) so many steps ahead."""
        found = at_horizon(self.weights, self.horizons, horizon)
        return np.stack([found[i] for i in _column_numbers(dataset)])

    def as_json(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return vars(self) | {"weights": self.weights.tolist()}

    @staticmethod
    def from_json(known: dict[str, Any]) -> "ForecastPool":
        """What `as_json` made."""
        return ForecastPool(
            tuple(known["predictors"]),
            tuple(known["horizons"]),
            np.asarray(known["weights"], np.float64),
            known["num_values"],
        )


def most_probable_weights(nats: np.ndarray, count: float, start: np.ndarray) -> np.ndarray:
    """The weights of a mixture by which values are the most probable, by expectation-maximization.

    `nats` (values, predictors) are -log p_k(x), NaN where nothing was observed; each value counts
    for `count` independent ones. `start` is the mean of their Dirichlet prior.
    """
    seen = ~np.isnan(nats).any(axis=1)
    nats = nats[seen] - nats[seen].min(axis=1, keepdims=True)
    likelihoods, weights = np.exp(-nats), start
    for _ in range(NUM_ITERATIONS):
        shares = weights * likelihoods
        shares = shares / shares.sum(axis=1, keepdims=True)
        weights = count * shares.sum(axis=0) + STRENGTH * start
        weights = weights / weights.sum()
    return weights


def pooled_predictions(
    dataset: Dataset, weights: np.ndarray, drawn: Drawn, references: Sequence[Gaussians]
) -> Predictions:
    """What the pool said of values, and how well; `weights` are (elements, predictors)."""
    means = np.stack([drawn.mean, *(each.mean for each in references)], axis=-1)
    nats = np.stack([drawn.nats, *(each.nats(dataset, drawn.xs) for each in references)], axis=-1)
    mean, least = np.sum(weights * means, axis=-1), nats.min(axis=-1)
    # NaN where nothing was observed, as in each of them.
    pooled = least - np.log(np.sum(weights * np.exp(least[..., None] - nats), axis=-1))
    together = _together(dataset, weights, np.moveaxis(drawn.draws, 1, 0), references)
    quantiles = np.where(
        [family.is_binary for family in dataset.families], np.nan, together.quantiles(LEVELS)
    )
    return Predictions(drawn.xs, mean, pooled, together.crps(drawn.xs), quantiles)


def pooled_forecast(
    dataset: Dataset, pool: ForecastPool, own: Forecast, references: Sequence[Gaussians]
) -> Forecast:
    """A forecast of the model pooled with those of its references, (horizon, elements) each.

    Of its futures as many are those of a reference as that weighs, each at one of the quantiles
    of it throughout.
    """
    samples = np.asarray(own.samples, np.float64)
    num_samples, horizon = samples.shape[:2]
    weights = np.stack([pool.at(dataset, ahead + 1) for ahead in range(horizon)])
    means = np.stack([own.mean, *(each.mean for each in references)], axis=-1)
    together = _together(dataset, weights, samples, references)
    # The same of all futures at each step, so that one goes over to a reference once, if at all.
    place = np.random.default_rng(0).permutation(num_samples) + 0.5
    place = (place / num_samples)[:, None, None]
    below = weights[..., 0]
    for k, reference in enumerate(references, 1):
        own_weight = weights[..., k]
        level = np.clip((place - below) / np.maximum(own_weight, 1e-12), 0.0, 1.0)
        is_own = (place > below) & (place <= below + own_weight)
        table = reference.quantiles(dataset, QUANTILES)
        number = np.minimum((level * NUM_QUANTILES).astype(int), NUM_QUANTILES - 1)
        samples = np.where(is_own, np.take_along_axis(table, number, axis=0), samples)
        below = below + own_weight
    mean = np.sum(weights * means, axis=-1)
    samples, mean, quantiles = (
        jnp.asarray(each, own.mean.dtype)
        for each in (samples, mean, together.quantiles(own.levels))
    )
    return Forecast(samples, mean, quantiles, own.levels)


def _together(
    dataset: Dataset, weights: np.ndarray, draws: np.ndarray, references: Sequence[Gaussians]
) -> Weighted:
    """The draws of the model (num_samples, ..., elements) and quantiles of the references."""
    parts = [draws, *(each.quantiles(dataset, QUANTILES) for each in references)]
    own = [np.broadcast_to(weights[..., k] / len(part), part.shape) for k, part in enumerate(parts)]
    return Weighted.of(np.concatenate(parts), np.concatenate(own))


def _column_numbers(dataset: Dataset) -> list[int]:
    """Which column each element of a row belongs to: the levels of one are one."""
    names = [family.group or name for name, family in dataset.column_families]
    places = list(dict.fromkeys(names))
    return [places.index(name) for name in names]


def _columns(dataset: Dataset) -> list[list[int]]:
    """The elements of each column."""
    numbers = _column_numbers(dataset)
    return [[i for i, n in enumerate(numbers) if n == column] for column in range(max(numbers) + 1)]
