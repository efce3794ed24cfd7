"""Forecasts of a model pooled with those of its references: bands, means and futures."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from varfilter.data.dataset import Dataset
from varfilter.media.gaussians import Gaussians
from varfilter.runs.pooling import (
    NUM_QUANTILES,
    QUANTILES,
    QUARTILES,
    ForecastPool,
    expected_means,
    in_parts,
    mixtures,
    weighted_mean,
)
from varfilter.runs.sharpness import sharpened
from varfilter.simulation import Forecast
from varfilter.training.predictive_draws import WIDTHS
from varfilter.training.predictive_scores import Weighted


def pooled_forecast(
    dataset: Dataset, pool: ForecastPool, own: Forecast, references: Sequence[Gaussians]
) -> Forecast:
    """A forecast of the model pooled with those of its references, (horizon, elements) each.

    Of its futures as many are those of a reference as that weighs, each at one of the quantiles
    of it throughout.
    """
    draws, means = np.asarray(own.samples), np.asarray(own.mean, np.float64)
    num_samples, horizon = draws.shape[:2]
    both = [pool.at(dataset, ahead + 1) for ahead in range(horizon)]
    weights, of_means = (np.stack([each[part] for each in both]) for part in (0, 1))
    sharpness = np.stack([np.broadcast_to(each.sharpness, dataset.num_elements) for each in both])
    # The same of a future at each step, so that it goes over to another predictor once, if at all.
    place = np.random.default_rng(0).permutation(num_samples) + 0.5
    place = (place / num_samples)[:, None, None]
    samples = draws.copy()
    mean, quantiles = np.empty(means.shape), np.empty((len(own.levels), *means.shape))
    for which, each in in_parts(dataset, draws, references):
        part, here = weights[which], draws[:, which].astype(np.float64)
        centre = np.median(here, axis=0)
        quartiles = np.empty((2, *centre.shape))
        samples[:, which] = _futures(dataset, part, here, each, place)
        for columns, mixture in mixtures(dataset, part, here, each):
            quartiles[..., columns] = mixture.quantiles(QUARTILES)
            mixture = sharpened(mixture, sharpness[which][:, columns])
            quantiles[:, which, columns] = mixture.quantiles(own.levels)
            for column, i in enumerate(columns):
                if np.any(sharpness[which, i] != 1.0):
                    samples[:, which, i] = _at_ranks(samples[:, which, i], mixture, column)
        expected = expected_means(dataset, means[which], centre, each, quartiles)
        mean[which] = weighted_mean(of_means[which], expected)
    samples, mean, quantiles = (
        jnp.asarray(part, own.mean.dtype) for part in (samples, mean, quantiles)
    )
    return Forecast(samples, mean, quantiles, own.levels)


def _futures(
    dataset: Dataset,
    weights: np.ndarray,
    draws: np.ndarray,
    references: Sequence[Gaussians],
    place: np.ndarray,
) -> np.ndarray:
    """Futures of which each is that of the predictor in whose share of the weights it stands."""
    centre, ends, samples = np.median(draws, axis=0), np.cumsum(weights, axis=-1), draws
    for k in range(weights.shape[-1]):
        begin = ends[..., k] - weights[..., k]
        if k < len(WIDTHS):
            said = centre + WIDTHS[k] * (draws - centre)
        else:
            table = references[k - len(WIDTHS)].quantiles(dataset, QUANTILES)
            level = np.clip((place - begin) / np.maximum(weights[..., k], 1e-12), 0.0, 1.0)
            number = np.minimum((level * NUM_QUANTILES).astype(int), NUM_QUANTILES - 1)
            said = np.take_along_axis(table, number, axis=0)
        samples = np.where((place > begin) & (place <= ends[..., k]), said, samples)
    return samples


def _at_ranks(samples: np.ndarray, mixture: Weighted, column: int) -> np.ndarray:
    """Samples (num_samples, values) of a column, moved to where as many of a mixture lie below."""
    ends = np.cumsum(mixture.weights[..., column], axis=0)
    levels = (np.arange(len(samples)) + 0.5) / len(samples)
    found = np.empty_like(samples)
    for t in range(samples.shape[1]):
        at = np.minimum(np.searchsorted(ends[:, t], levels), len(ends) - 1)
        found[np.argsort(samples[:, t], kind="stable"), t] = mixture.values[at, t, column]
    return found
