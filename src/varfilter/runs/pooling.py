"""Forecasts of a table pooled with its references: p(x) = sum_k w_k p_k(x), by column and horizon.

The futures that a model simulates feed on themselves: what it has wrong of one step goes into the
next, and far ahead it may be worse than the last value. A pool of several forecasts is rarely much
worse than the best of them, which nobody knows beforehand (Stone 1961; Geweke and Amisano 2011).

The weights are those by which the values of the validation part are the most probable. Nothing was
learned from these, but the checkpoint was chosen by them, so that the weights are slightly in the
model's favour. Few values leave them near where they start: one step ahead, which a model is
trained for, two thirds for the model and the rest shared by its references; further ahead the same
for each. The model is there as it is, and with predictions that are narrower or wider, since in
validation it may have been too wide, or too sure (a spread-adjusted pool: Gneiting and Ranjan
2013). They are kept in the run's folder, with all that is needed to forecast without the training
data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from varfilter.data.dataset import Dataset
from varfilter.distributions import Normal, StudentT
from varfilter.media.gaussians import Gaussians
from varfilter.runs.metrics import MODEL
from varfilter.simulation import Forecast
from varfilter.training.predictive_draws import AS_IT_IS, WIDTHS, Drawn
from varfilter.training.predictive_scores import LEVELS, Predictions, Weighted

# The weight of the model before anything was validated, one step ahead, which it was trained for.
# Further ahead nobody knows which of the predictors is the best, and each begins with as much.
START = 2 / 3
# How the widths of the model share its weight.
START_OF_WIDTHS = (0.05, 0.1, 0.7, 0.1, 0.05)
# How many independent values the start counts for.
STRENGTH = 5.0
NUM_ITERATIONS = 200
# By so many of its quantiles a Gaussian stands among the draws of the model.
NUM_QUANTILES = 99
# Numbers of a mixture that are in memory at once, each a few times: 32 MiB of them.
AT_ONCE = 1 << 22
QUANTILES = tuple((number + 0.5) / NUM_QUANTILES for number in range(NUM_QUANTILES))


@dataclass(frozen=True)
class ForecastPool:
    """The weights (horizons, columns, predictors) of a pool.

    The first are those of the model, by its width (`WIDTHS`). Between two horizons they lie on a
    line, over the logarithm of the horizon, and beyond the last they stay as they are. `num_values`
    is how many values of a column they were found by.
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
        predictors = (*(f"{MODEL} x {width:g}" for width in WIDTHS), *references)
        weights, wide = [], widened_elements(dataset)
        for horizon, own in drawn.items():
            start = start_weights(horizon, len(references))
            nats = _nats(dataset, own, [each[horizon] for each in references.values()])
            count = 1.0 if horizon == 1 else min(1.0, every / horizon)
            found = np.empty((len(_columns(dataset)), len(predictors)))
            for can_widen in (False, True):
                columns = [
                    (number, places)
                    for number, places in enumerate(_columns(dataset))
                    if (places[0] in wide) == can_widen
                ]
                if not columns:
                    continue
                of_all = [i for _, places in columns for i in places]
                own_start = start if can_widen else _as_it_is(start)
                # All columns together first: what is so of most is likely so of one with few
                # values.
                common = most_probable_weights(
                    nats[:, of_all].reshape(-1, len(predictors)), count / len(of_all), own_start
                )
                for number, places in columns:
                    found[number] = most_probable_weights(
                        nats[:, places].reshape(-1, len(predictors)), count / len(places), common
                    )
            weights.append(found)
        num_values = len(next(iter(drawn.values())).xs)
        return ForecastPool(predictors, tuple(drawn), np.array(weights), num_values)

    def at(self, dataset: Dataset, horizon: int) -> np.ndarray:
        """The weights (elements, predictors) so many steps ahead."""
        logs = np.log(np.asarray(self.horizons, np.float64))
        place = float(np.interp(np.log(horizon), logs, np.arange(len(logs))))
        low = min(int(place), len(logs) - 1)
        high = min(low + 1, len(logs) - 1)
        found = self.weights[low] + (place - low) * (self.weights[high] - self.weights[low])
        return np.stack([found[i] for i in _column_numbers(dataset)])

    def without(self, number: int) -> "ForecastPool":
        """The pool without one of its references: the others have their weights in proportion."""
        place = len(WIDTHS) + number
        weights = np.delete(self.weights, place, axis=-1)
        predictors = (*self.predictors[:place], *self.predictors[place + 1 :])
        weights = weights / weights.sum(axis=-1, keepdims=True)
        return replace(self, predictors=predictors, weights=weights)

    def as_json(self) -> dict[str, Any]:
        """The pool as plain JSON."""
        return vars(self) | {"weights": self.weights.tolist()}

    @staticmethod
    def from_json(known: dict[str, Any]) -> "ForecastPool":
        """The pool that `as_json` wrote down."""
        return ForecastPool(
            tuple(known["predictors"]),
            tuple(known["horizons"]),
            np.asarray(known["weights"], np.float64),
            known["num_values"],
        )


def start_weights(horizon: int, num_references: int) -> np.ndarray:
    """The weights of a pool so many steps ahead before anything was validated."""
    own = START if horizon == 1 else 1.0 / (1 + num_references)
    others = [(1.0 - own) / num_references] * num_references
    return np.append(own * np.array(START_OF_WIDTHS), others)


def most_probable_weights(nats: np.ndarray, count: float, start: np.ndarray) -> np.ndarray:
    """The weights of a mixture by which values are the most probable, by expectation-maximization.

    `nats` (values, predictors) are -log p_k(x), NaN where nothing was observed; each value counts
    for `count` independent ones. `start` is the mean of their Dirichlet prior; what is 0 there
    stays 0.
    """
    possible = start > 0
    nats, own = nats[:, possible], start[possible]
    nats = nats[~np.isnan(nats).any(axis=1)]
    likelihoods, weights = np.exp(nats.min(axis=1, keepdims=True) - nats), own
    for _ in range(NUM_ITERATIONS):
        shares = weights * likelihoods
        shares = shares / shares.sum(axis=1, keepdims=True)
        weights = count * shares.sum(axis=0) + STRENGTH * own
        weights = weights / weights.sum()
    found = np.zeros_like(start)
    found[possible] = weights
    return found


def pooled_predictions(
    dataset: Dataset, weights: np.ndarray, drawn: Drawn, references: Sequence[Gaussians]
) -> Predictions:
    """What the pool said of values, and how well; `weights` are (elements, predictors)."""
    # NaN where nothing was observed, as in each of them; of what weighs nothing, nothing counts.
    nats = np.where(weights > 0, _nats(dataset, drawn, references), np.inf)
    least = nats.min(axis=-1)
    pooled = least - np.log(np.sum(weights * np.exp(least[..., None] - nats), axis=-1))
    weights = np.broadcast_to(weights, (len(drawn.xs), *weights.shape))
    draws = np.moveaxis(drawn.draws, 1, 0)
    quantiles = np.empty((len(LEVELS), *drawn.xs.shape))
    mean, crps = np.empty(drawn.xs.shape), np.empty(drawn.xs.shape)
    for which, each in _parts(dataset, draws, references):
        mean[which] = _mean(dataset, weights[which], drawn.mean[which], drawn.centre[which], each)
        for columns, mixture in _mixtures(dataset, weights[which], draws[:, which], each):
            quantiles[:, which, columns] = mixture.quantiles(LEVELS)
            crps[which, columns] = mixture.crps(drawn.xs[which, columns])
    is_binary = [family.is_binary for family in dataset.families]
    return Predictions(drawn.xs, mean, pooled, crps, np.where(is_binary, np.nan, quantiles))


def _nats(dataset: Dataset, drawn: Drawn, references: Sequence[Gaussians]) -> np.ndarray:
    """-log p(x) of each predictor, (values, elements, predictors)."""
    others = [each.nats(dataset, drawn.xs) for each in references]
    return np.concatenate(
        [np.moveaxis(drawn.nats, 1, -1), *(each[..., None] for each in others)], axis=-1
    )


def pooled_forecast(
    dataset: Dataset, pool: ForecastPool, own: Forecast, references: Sequence[Gaussians]
) -> Forecast:
    """A forecast of the model pooled with those of its references, (horizon, elements) each.

    Of its futures as many are those of a reference as that weighs, each at one of the quantiles
    of it throughout.
    """
    draws, means = np.asarray(own.samples), np.asarray(own.mean, np.float64)
    num_samples, horizon = draws.shape[:2]
    weights = np.stack([pool.at(dataset, ahead + 1) for ahead in range(horizon)])
    # The same of a future at each step, so that it goes over to another predictor once, if at all.
    place = np.random.default_rng(0).permutation(num_samples) + 0.5
    place = (place / num_samples)[:, None, None]
    samples = draws.copy()
    mean, quantiles = np.empty(means.shape), np.empty((len(own.levels), *means.shape))
    for which, each in _parts(dataset, draws, references):
        part, here = weights[which], draws[:, which].astype(np.float64)
        centre = np.median(here, axis=0)
        mean[which] = _mean(dataset, part, means[which], centre, each)
        samples[:, which] = _futures(dataset, part, here, each, place)
        for columns, mixture in _mixtures(dataset, part, here, each):
            quantiles[:, which, columns] = mixture.quantiles(own.levels)
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


def _mean(
    dataset: Dataset,
    weights: np.ndarray,
    own: np.ndarray,
    centre: np.ndarray,
    references: Sequence[Gaussians],
) -> np.ndarray:
    """The mean of the mixture; a width moves that of the model about its centre."""
    means = [centre + width * (own - centre) for width in WIDTHS]
    means = np.stack([*means, *(each.mean(dataset) for each in references)], axis=-1)
    return np.sum(weights * np.where(weights > 0, means, 0.0), axis=-1)


def _parts(
    dataset: Dataset, draws: np.ndarray, references: Sequence[Gaussians]
) -> Iterator[tuple[slice, list[Gaussians]]]:
    """Some of the values (num_samples, values, elements) at a time, and what is said of them."""
    num_points = len(WIDTHS) * len(draws) + len(references) * NUM_QUANTILES
    at_once = max(AT_ONCE // (num_points * dataset.num_elements), 1)
    for begin in range(0, draws.shape[1], at_once):
        which = slice(begin, begin + at_once)
        yield which, [each.part(which) for each in references]


def _mixtures(
    dataset: Dataset, weights: np.ndarray, draws: np.ndarray, references: Sequence[Gaussians]
) -> Iterator[tuple[list[int], Weighted]]:
    """(elements, their mixture): draws of the model (num_samples, values, elements), and others'.

    The model is there in each width, if it is one of an element that has some.
    """
    known = [each.quantiles(dataset, QUANTILES) for each in references]
    wide = widened_elements(dataset)
    for can_widen in (False, True):
        own = [i for i in range(draws.shape[-1]) if (i in wide) == can_widen]
        if not own:
            continue
        said = draws[..., own].astype(np.float64)
        centre = np.median(said, axis=0)
        widths = list(range(len(WIDTHS))) if can_widen else [AS_IT_IS]
        shares = weights[:, own]
        yield (
            own,
            Weighted.of(
                [centre + WIDTHS[k] * (said - centre) for k in widths],
                [shares[..., k] for k in widths],
                [each[..., own] for each in known],
                [shares[..., len(WIDTHS) + k] for k in range(len(known))],
            ),
        )


def widened_elements(dataset: Dataset) -> list[int]:
    """The elements whose predictions may be narrower or wider: any numbers, without bounds."""
    return [
        i
        for i, family in enumerate(dataset.families)
        if family.distribution in (Normal, StudentT)
        and (family.transform is None or family.transform.log_scale is None)
        and family.low is None
        and family.high is None
    ]


def _as_it_is(start: np.ndarray) -> np.ndarray:
    """The start of a column whose predictions have the one width that they have."""
    found = start.copy()
    found[: len(WIDTHS)] = 0.0
    found[AS_IT_IS] = start[: len(WIDTHS)].sum()
    return found


def _column_numbers(dataset: Dataset) -> list[int]:
    """Which column each element of a row belongs to: the levels of one are one."""
    names = [family.group or name for name, family in dataset.column_families]
    places = list(dict.fromkeys(names))
    return [places.index(name) for name in names]


def _columns(dataset: Dataset) -> list[list[int]]:
    """The elements of each column."""
    numbers = _column_numbers(dataset)
    return [[i for i, n in enumerate(numbers) if n == column] for column in range(max(numbers) + 1)]
