"""Whether forecast bands hold what they promise, on held-out sequences."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from varfilter._arguments import require_all_positive, require_key
from varfilter.data.dataset import Dataset
from varfilter.filtering import Belief, start, step
from varfilter.filters.base import AbstractFilter
from varfilter.filters.contract import require_fitting
from varfilter.forecast import forecast
from varfilter.model import AbstractModel

# Forecasts that are made side by side.
LOT = 16


@dataclass(frozen=True)
class Coverage:
    """How many of the observed points lay within the bands, by step ahead and element.

    `covered` and `count` are (horizon, *observation_shape); `levels` are the band's edges.
    """

    covered: np.ndarray
    count: np.ndarray
    levels: tuple[float, float]

    @property
    def share(self) -> float:
        """Of all points."""
        return float(self.covered.sum() / max(self.count.sum(), 1))

    @property
    def by_step(self) -> np.ndarray:
        """Of the points of each step ahead; NaN where there are none."""
        axes = tuple(range(1, self.count.ndim))
        return _shares(self.covered.sum(axes), self.count.sum(axes))

    @property
    def by_element(self) -> np.ndarray:
        """Of the points of each element; NaN where there are none."""
        return _shares(self.covered.sum(0), self.count.sum(0))


def forecast_coverage(
    filter: AbstractFilter,
    model: AbstractModel,
    dataset: Dataset,
    key: PRNGKeyArray,
    *,
    horizon: int,
    split: str = "test",
    every: int = 4,
    num_samples: int = 200,
    levels: tuple[float, float] = (0.05, 0.95),
) -> Coverage:
    """Forecast from every `every`-th step of each sequence, and count what fell within.

    A band that reaches from the 5% to the 95% quantile should hold nine points in ten. Points on
    an edge count as held: the quantiles of whole numbers are whole numbers.
    """
    require_fitting(filter, model)
    require_key(key)
    require_all_positive(horizon=horizon, every=every, num_samples=num_samples)
    shape = (horizon, *dataset.observation_shape)
    covered, count = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for number, rows in enumerate(dataset.split(split)):
        xs = dataset.observations(rows)
        own_key = jax.random.fold_in(key, number)
        places = np.arange(every, len(xs) - horizon, every)
        if not places.size:
            continue
        beliefs = _beliefs(filter, model, jnp.asarray(xs), own_key)
        for begin in range(0, len(places), LOT):
            lot = places[begin : begin + LOT]
            filled = jnp.asarray(np.resize(lot, LOT))
            quantiles = _quantiles(
                filter, model, beliefs, filled, own_key, horizon, num_samples, levels
            )
            for place, (low, high) in zip(lot, np.asarray(quantiles), strict=False):
                points = xs[place + 1 : place + 1 + horizon]
                seen = ~np.isnan(points)
                # Levels went through float32: what is on an edge may lie a rounding beyond it.
                slack = 1e-4
                covered += seen & (points >= low - slack) & (points <= high + slack)
                count += seen
    return Coverage(covered, count, levels)


@eqx.filter_jit
def _beliefs(filter: AbstractFilter, model: AbstractModel, xs: Array, key: PRNGKeyArray) -> Belief:
    """After each step of a sequence; the first is conditioned on."""

    def one(belief: Belief, x: Array) -> tuple[Belief, Belief]:
        after, _ = step(filter, model, belief, x, key)
        return after, after

    first = start(filter, model, xs[0])
    rest = jax.lax.scan(one, first, xs[1:])[1]
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, rest)


@eqx.filter_jit
def _quantiles(
    filter: AbstractFilter,
    model: AbstractModel,
    beliefs: Belief,
    places: Array,
    key: PRNGKeyArray,
    horizon: int,
    num_samples: int,
    levels: tuple[float, float],
) -> Array:
    def ahead(place: Array) -> Array:
        belief = jax.tree.map(lambda leaf: leaf[place], beliefs)
        own_key = jax.random.fold_in(jax.random.fold_in(key, place), 1)
        return forecast(
            filter, model, belief, horizon, own_key, num_samples=num_samples, levels=levels
        ).quantiles

    return jax.vmap(ahead)(places)


def _shares(covered: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.where(count > 0, covered / np.maximum(count, 1), np.nan)
