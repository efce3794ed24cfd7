"""Forecasts of a table pooled with its references: p(x) = sum_k w_k p_k(x), by column and horizon.

The futures that a model simulates feed on themselves: what it has wrong of one step goes into the
next, and far ahead it may be worse than the last value. A pool of several forecasts is rarely much
worse than the best of them, which nobody knows beforehand (Stone 1961; Geweke and Amisano 2011).

The weights are those by which the values of the validation part are the most probable. Nothing was
learned from these, but the checkpoint was chosen by them, so that the weights are slightly in the
model's favour. Few values leave them near where they start: one step ahead, which a model is
trained for, two thirds for the model and the rest shared by its references; further ahead the same
for each. What a reference has of that share, the last of the training rows say, which it knows no
better than others (the model does, and is not judged by them). The model is there as it is, and
with predictions that are narrower or wider, since in validation it may have been too wide, or too
sure (a spread-adjusted pool: Gneiting and Ranjan 2013).

A mixture is wider than it should be; what it is sharpened by is in `sharpness.py`. The mean of a
forecast has weights of its own, by squared errors: the mean of a density with a heavy
tail may be far from where values are. So may that of one predictor, which is held within the
quartiles of the pool. All are kept in the run's folder, with what is needed to
forecast without the training data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.dataset import Dataset
from varfilter.distributions import Normal, StudentT
from varfilter.media.gaussians import Gaussians
from varfilter.runs.metrics import MODEL
from varfilter.runs.pool_weights import (
    as_it_is,
    least_error_weights,
    most_probable_weights,
    start_weights,
)
from varfilter.runs.sharpness import fitted_sharpness, nats_of_sharpness, sharpened
from varfilter.training.predictive_draws import AS_IT_IS, WIDTHS, Drawn
from varfilter.training.predictive_scores import LEVELS, Predictions, Weighted

# Of plain numbers what a predictor expects counts no further off than these of the whole pool: by
# one outlier just before, a linear model expects what nobody else does.
QUARTILES = (0.25, 0.75)
# By so many of its quantiles a Gaussian stands among the draws of the model.
NUM_QUANTILES = 99
# Numbers of a mixture that are in memory at once, each a few times: 32 MiB of them.
AT_ONCE = 1 << 22
QUANTILES = tuple((number + 0.5) / NUM_QUANTILES for number in range(NUM_QUANTILES))


class Lately(NamedTuple):
    """What each reference said of the last training rows, by its name and horizon.

    `xs` are these values, by horizon, (values, elements), and `counts` how many independent ones
    each of them counts for: less, the longer ago it was.
    """

    xs: Mapping[int, np.ndarray]
    counts: Mapping[int, np.ndarray]
    references: Mapping[str, Mapping[int, Gaussians]]

    def shares(self, dataset: Dataset, horizon: int, places: Sequence[int]) -> np.ndarray:
        """The weights of the references among each other, by what they said of a column."""
        said = (each[horizon].nats(dataset, self.xs[horizon]) for each in self.references.values())
        nats = np.stack([each[:, places] for each in said], axis=-1)
        counts = np.repeat(self.counts[horizon], len(places)) / len(places)
        even = np.full(nats.shape[-1], 1.0 / nats.shape[-1])
        return most_probable_weights(nats.reshape(-1, nats.shape[-1]), counts, even)


@dataclass(frozen=True)
class ForecastPool:
    """The weights (horizons, columns, predictors) of a pool.

    The first are those of the model, by its width (`WIDTHS`). Between two horizons they lie on a
    line, over the logarithm of the horizon, and beyond the last they stay as they are. `num_values`
    is how many values of a column they were found by. `of_means` are those of the means; None: the
    same, as in records of before there were any. `sharpness` (2, columns) is that of one step
    ahead, and of all further ones; None: 1.
    """

    predictors: tuple[str, ...]
    horizons: tuple[int, ...]
    weights: np.ndarray
    num_values: int
    of_means: np.ndarray | None = None
    sharpness: np.ndarray | None = None

    @staticmethod
    def of(
        dataset: Dataset,
        drawn: Mapping[int, Drawn],
        references: Mapping[str, Mapping[int, Gaussians]],
        every: int,
        lately: Lately | None = None,
    ) -> "ForecastPool":
        """Find the weights by what the model and its references said of the same values.

        `drawn` has what the model expected at each horizon, `references` the same of each by its
        name. Forecasts began `every` so many steps: those whose ways overlap tell less. `lately`
        has what the references said before.
        """
        predictors = (*(f"{MODEL} x {width:g}" for width in WIDTHS), *references)
        weights, of_means, ranks, counts = [], [], [], []
        for horizon, own in drawn.items():
            others = [each[horizon] for each in references.values()]
            count = 1.0 if horizon == 1 else min(1.0, every / horizon)
            starts = _starts(dataset, horizon, len(others), lately)
            nats = _nats(dataset, own, others)
            weights.append(_probable(dataset, nats, count, starts))
            chances, quartiles = _mixed(dataset, weights[-1], own, others)
            means = expected_means(dataset, own.mean, own.centre, others, quartiles)
            of_means.append(_least_errors(dataset, means, own.xs, count, starts, weights[-1]))
            ranks.append(chances)
            counts.append(count)
        num_values = len(next(iter(drawn.values())).xs)
        found = list(zip(drawn, ranks, counts, strict=True))
        sharpness = [
            [_sharpness(dataset, places, [each for each in found if (each[0] > 1) == is_far])
             for places in _columns(dataset)]
            for is_far in (False, True)
        ]  # fmt: skip
        return ForecastPool(
            predictors, tuple(drawn), np.array(weights), num_values,
            np.array(of_means), np.array(sharpness),
        )  # fmt: skip

    def at(self, dataset: Dataset, horizon: int) -> "PoolWeights":
        """The weights so many steps ahead."""
        both = (self.weights, self.weights if self.of_means is None else self.of_means)
        known = np.ones((2, self.weights.shape[1])) if self.sharpness is None else self.sharpness
        sharpness = known[int(horizon > 1)][_column_numbers(dataset)]
        of_densities, of_means = (self._at(dataset, horizon, each) for each in both)
        return PoolWeights(of_densities, of_means, sharpness)

    def _at(self, dataset: Dataset, horizon: int, weights: np.ndarray) -> np.ndarray:
        """Weights (elements, predictors) so many steps ahead."""
        logs = np.log(np.asarray(self.horizons, np.float64))
        place = float(np.interp(np.log(horizon), logs, np.arange(len(logs))))
        low = min(int(place), len(logs) - 1)
        high = min(low + 1, len(logs) - 1)
        found = weights[low] + (place - low) * (weights[high] - weights[low])
        return np.stack([found[i] for i in _column_numbers(dataset)])

    def without(self, number: int) -> "ForecastPool":
        """The pool without one of its references: the others have their weights in proportion."""
        place = len(WIDTHS) + number
        predictors = (*self.predictors[:place], *self.predictors[place + 1 :])

        def others(weights: np.ndarray) -> np.ndarray:
            weights = np.delete(weights, place, axis=-1)
            return weights / weights.sum(axis=-1, keepdims=True)

        of_means = None if self.of_means is None else others(self.of_means)
        return replace(self, predictors=predictors, weights=others(self.weights), of_means=of_means)

    def as_json(self) -> dict[str, Any]:
        """The pool as plain JSON."""
        arrays = {name: vars(self)[name] for name in ("weights", "of_means", "sharpness")}
        return vars(self) | {n: None if a is None else a.tolist() for n, a in arrays.items()}

    @staticmethod
    def from_json(known: dict[str, Any]) -> "ForecastPool":
        """The pool that `as_json` wrote down."""
        weights, of_means, sharpness = (
            None if known.get(name) is None else np.asarray(known[name], np.float64)
            for name in ("weights", "of_means", "sharpness")
        )
        assert weights is not None
        return ForecastPool(
            tuple(known["predictors"]), tuple(known["horizons"]), weights,
            known["num_values"], of_means, sharpness,
        )  # fmt: skip


class PoolWeights(NamedTuple):
    """The weights of the densities of a pool, and those of its means, (..., predictors).

    `sharpness` is that of each element.
    """

    of_densities: np.ndarray
    of_means: np.ndarray
    sharpness: np.ndarray | float = 1.0


def pooled_predictions(
    dataset: Dataset, pooled: PoolWeights, drawn: Drawn, references: Sequence[Gaussians]
) -> Predictions:
    """What the pool said of values, and how well; its weights are (elements, predictors)."""
    weights, of_means = pooled[:2]
    sharpness = np.broadcast_to(pooled.sharpness, dataset.num_elements)
    # NaN where nothing was observed, as in each of them; of what weighs nothing, nothing counts.
    nats = np.where(weights > 0, _nats(dataset, drawn, references), np.inf)
    least = nats.min(axis=-1)
    nats = least - np.log(np.sum(weights * np.exp(least[..., None] - nats), axis=-1))
    weights = np.broadcast_to(weights, (len(drawn.xs), *weights.shape))
    draws = np.moveaxis(drawn.draws, 1, 0)
    quantiles = np.empty((len(LEVELS), *drawn.xs.shape))
    chances, quartiles = np.empty((2, *drawn.xs.shape)), np.empty((2, *drawn.xs.shape))
    mean, crps = np.empty(drawn.xs.shape), np.empty(drawn.xs.shape)
    for which, each in in_parts(dataset, draws, references):
        for columns, mixture in mixtures(dataset, weights[which], draws[:, which], each):
            quartiles[:, which, columns] = mixture.quantiles(QUARTILES)
            before = mixture.chances(drawn.xs[which, columns])
            nats[which, columns] += nats_of_sharpness(before, sharpness[columns])
            mixture = sharpened(mixture, sharpness[columns])
            quantiles[:, which, columns] = mixture.quantiles(LEVELS)
            crps[which, columns] = mixture.crps(drawn.xs[which, columns])
            chances[:, which, columns] = mixture.chances(drawn.xs[which, columns])
        own, centre = drawn.mean[which], drawn.centre[which]
        means = expected_means(dataset, own, centre, each, quartiles[:, which])
        mean[which] = weighted_mean(of_means, means)
    is_binary = [family.is_binary for family in dataset.families]
    quantiles = np.where(is_binary, np.nan, quantiles)
    return Predictions(drawn.xs, mean, nats, crps, quantiles, chances)


def _nats(dataset: Dataset, drawn: Drawn, references: Sequence[Gaussians]) -> np.ndarray:
    """-log p(x) of each predictor, (values, elements, predictors)."""
    others = [each.nats(dataset, drawn.xs) for each in references]
    return np.concatenate(
        [np.moveaxis(drawn.nats, 1, -1), *(each[..., None] for each in others)], axis=-1
    )


def _sharpness(
    dataset: Dataset, places: list[int], found: Sequence[tuple[int, np.ndarray, float]]
) -> float:
    """The sharpness of a column by what was found at some horizons: (horizon, ranks, count) each.

    What is 0 or 1 is as the mixture has it.
    """
    if dataset.families[places[0]].is_binary:
        return 1.0
    ranks, counts = [each[1][:, :, places[0]] for each in found], [each[2] for each in found]
    return fitted_sharpness(ranks, counts)


def _mixed(
    dataset: Dataset, weights: np.ndarray, drawn: Drawn, references: Sequence[Gaussians]
) -> tuple[np.ndarray, np.ndarray]:
    """(P(X < x) and P(X = x); the quartiles), (2, values, elements) each.

    By weights (columns, predictors).
    """
    found, quartiles = np.full((2, *drawn.xs.shape), np.nan), np.empty((2, *drawn.xs.shape))
    draws = np.moveaxis(drawn.draws, 1, 0)
    weights = weights[_column_numbers(dataset)]
    weights = np.broadcast_to(weights, (len(drawn.xs), *weights.shape))
    for which, each in in_parts(dataset, draws, references):
        for columns, mixture in mixtures(dataset, weights[which], draws[:, which], each):
            xs = drawn.xs[which, columns]
            found[:, which, columns] = mixture.chances(xs) + 0.0 * xs
            quartiles[:, which, columns] = mixture.quantiles(QUARTILES)
    return found, quartiles


def _starts(
    dataset: Dataset, horizon: int, num_references: int, lately: Lately | None
) -> list[np.ndarray]:
    """The weights of each column before anything was validated."""
    wide, found = widened_elements(dataset), []
    for places in _columns(dataset):
        shares = None if lately is None else lately.shares(dataset, horizon, places)
        start = start_weights(horizon, num_references, shares)
        found.append(start if places[0] in wide else as_it_is(start))
    return found


def _probable(
    dataset: Dataset, nats: np.ndarray, count: float, starts: Sequence[np.ndarray]
) -> np.ndarray:
    """The weights (columns, predictors) of densities, by what they said of values."""
    wide, columns = widened_elements(dataset), list(enumerate(_columns(dataset)))
    found = np.empty((len(columns), nats.shape[-1]))
    for can_widen in (False, True):
        some = [(n, places) for n, places in columns if (places[0] in wide) == can_widen]
        if not some:
            continue
        of_all = [i for _, places in some for i in places]
        # All columns together: what is so of most is likely so of one with few values.
        start = np.mean([starts[number] for number, _ in some], axis=0)
        filled = np.where(start > 0, start, 1.0)
        common = most_probable_weights(
            nats[:, of_all].reshape(-1, nats.shape[-1]), count / len(of_all), start
        )
        for number, places in some:
            # What all of them have found of the start is found of its own, too.
            own = common * starts[number] / filled
            found[number] = most_probable_weights(
                nats[:, places].reshape(-1, nats.shape[-1]), count / len(places), own / own.sum()
            )
    return found


def _least_errors(
    dataset: Dataset,
    means: np.ndarray,
    xs: np.ndarray,
    count: float,
    starts: Sequence[np.ndarray],
    weights: np.ndarray,
) -> np.ndarray:
    """The weights (columns, predictors) of means; what is 0 or 1 has those of its density."""
    found = weights.copy()
    for number, places in enumerate(_columns(dataset)):
        if not dataset.families[places[0]].is_binary:
            own = means[:, places].reshape(-1, means.shape[-1])
            found[number] = least_error_weights(own, xs[:, places].ravel(), count, starts[number])
    return found


def expected_means(
    dataset: Dataset,
    own: np.ndarray,
    centre: np.ndarray,
    references: Sequence[Gaussians],
    quartiles: np.ndarray,
) -> np.ndarray:
    """What each predictor expects; a width moves the mean of the model about its centre.

    Of plain numbers it is held within the `quartiles` (2, ...) of the pool.
    """
    means = [centre + width * (own - centre) for width in WIDTHS]
    found = np.stack([*means, *(each.mean(dataset) for each in references)], axis=-1)
    wide = widened_elements(dataset)
    low, high = quartiles[..., wide, None]
    found[..., wide, :] = np.clip(found[..., wide, :], low, high)
    return found


def weighted_mean(weights: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Sum the means of the predictors; one that weighs nothing may have none."""
    return np.sum(weights * np.where(weights > 0, means, 0.0), axis=-1)


def in_parts(
    dataset: Dataset, draws: np.ndarray, references: Sequence[Gaussians]
) -> Iterator[tuple[slice, list[Gaussians]]]:
    """Some of the values (num_samples, values, elements) at a time, and what is said of them."""
    num_points = len(WIDTHS) * len(draws) + len(references) * NUM_QUANTILES
    at_once = max(AT_ONCE // (num_points * dataset.num_elements), 1)
    for begin in range(0, draws.shape[1], at_once):
        which = slice(begin, begin + at_once)
        yield which, [each.part(which) for each in references]


def mixtures(
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


def _column_numbers(dataset: Dataset) -> list[int]:
    """Which column each element of a row belongs to: the levels of one are one."""
    names = [family.group or name for name, family in dataset.column_families]
    places = list(dict.fromkeys(names))
    return [places.index(name) for name in names]


def _columns(dataset: Dataset) -> list[list[int]]:
    """The elements of each column."""
    numbers = _column_numbers(dataset)
    return [[i for i, n in enumerate(numbers) if n == column] for column in range(max(numbers) + 1)]
