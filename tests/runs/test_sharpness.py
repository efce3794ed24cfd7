"""Pools that say too much are sharpened: by ranks, and everything that they say in the same way."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from varfilter.data.dataset import Dataset, Family
from varfilter.data.ragged import Ragged
from varfilter.distributions import NegativeBinomial, Normal
from varfilter.media.gaussians import Gaussians
from varfilter.runs.pool_futures import pooled_forecast
from varfilter.runs.pooling import ForecastPool, PoolWeights, pooled_predictions
from varfilter.runs.sharpness import fitted_sharpness, nats_of_sharpness, sharpened
from varfilter.simulation import Forecast
from varfilter.training.predictive_draws import AS_IT_IS, WIDTHS, Drawn
from varfilter.training.predictive_scores import Weighted

RNG = np.random.default_rng(0)
PART = Ragged.of([np.zeros((3, 1), np.float32)])
ONE = Dataset("made", PART, PART, PART, (Family(Normal),), columns=("level",))


def densities(ranks):
    """A rank of a density: as much lies below, and nothing is exactly there."""
    return np.stack([ranks, np.zeros_like(ranks)])


def test_sharpness_is_that_of_the_ranks_and_few_leave_it_near_1():
    ranks = RNG.beta(2.0, 2.0, 4000)
    # 1 / sqrt of the information of log a, about a per value: 4 / (2 sqrt(4000)).
    assert fitted_sharpness([densities(ranks)], [1.0]) == pytest.approx(2.0, rel=0.06)
    halves = [densities(ranks[:2000]), densities(ranks[2000:])]
    both = fitted_sharpness(halves, [1.0, 1.0])
    assert both == pytest.approx(fitted_sharpness([densities(ranks)], [1.0]), rel=1e-3)
    assert fitted_sharpness([densities(RNG.random(4000))], [1.0]) == pytest.approx(1.0, abs=0.06)
    assert fitted_sharpness([densities(ranks)], [0.0]) == pytest.approx(1.0, abs=1e-3)
    assert 1.0 < fitted_sharpness([densities(ranks[:10])], [1.0]) < 1.3
    ranks[::2] = np.nan  # not observed
    assert fitted_sharpness([densities(ranks)], [1.0]) == pytest.approx(2.0, rel=0.1)
    # Of a count that is nearly always 0, and should be in three of four, too.
    zeros = np.stack([np.zeros(4000), np.full(4000, 0.75)])
    assert fitted_sharpness([zeros], [1.0]) > 2.0


def test_what_is_sharpened_is_a_density_and_its_quantiles_are_those_of_its_ranks():
    points = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)[:, None]
    nothing = np.zeros((2, 1))
    mixture = Weighted.of([nothing], [np.zeros(1)], [points], [np.ones(1)])
    found = sharpened(mixture, np.array([2.0]))
    np.testing.assert_allclose(found.weights.sum(axis=0), 1.0)
    levels = (0.05, 0.5, 0.95)
    expected = stats.norm.ppf(stats.beta(2, 2).ppf(levels))
    np.testing.assert_allclose(found.quantiles(levels)[:, 0], expected, atol=5e-3)
    xs = np.linspace(-4, 4, 2001)
    nats = nats_of_sharpness(densities(stats.norm.cdf(xs)), 2.0) - stats.norm.logpdf(xs)
    assert np.trapezoid(np.exp(-nats), xs) == pytest.approx(1.0, abs=1e-3)
    # The probabilities of levels are still 1 in all.
    ends = stats.poisson(0.7).cdf(np.arange(12))
    own = np.diff(ends, prepend=0.0)
    masses = own * np.exp(-nats_of_sharpness(np.stack([ends - own, own]), 2.0))
    assert masses[own > 1e-3].sum() == pytest.approx(1.0, abs=1e-3)
    assert sharpened(mixture, np.ones(1)) is mixture


def test_a_pool_says_the_same_in_each_of_its_forms():
    """Log score, bands, CRPS, futures: of a reference that is sharpened, beside the closed form."""
    num, a = 300, np.array([2.0])
    xs = RNG.normal(size=(num, 1)) * 0.6
    nats = np.zeros((num, len(WIDTHS), 1))
    own = Drawn(xs, 0 * xs, nats, np.zeros((num, 4, 1), np.float32))
    reference = Gaussians.of(np.zeros((num, 1)), np.ones(1))
    weights = np.append(np.zeros(len(WIDTHS)), 1.0)[None]
    assert weights[0, AS_IT_IS] == 0
    found = pooled_predictions(ONE, PoolWeights(weights, weights, a), own, [reference])
    ranks = stats.norm.cdf(xs[:, 0])
    exact = -stats.norm.logpdf(xs[:, 0]) - stats.beta(2, 2).logpdf(ranks)
    np.testing.assert_allclose(found.nats[:, 0], exact, atol=0.1)  # by 99 points
    assert np.mean(found.nats[:, 0] - exact) == pytest.approx(0.0, abs=0.01)
    edge = stats.norm.ppf(stats.beta(2, 2).ppf(0.95))
    np.testing.assert_allclose(found.quantiles[3], edge, atol=0.03)
    np.testing.assert_allclose(found.mean, 0.0)
    wide = pooled_predictions(ONE, PoolWeights(weights, weights), own, [reference])
    assert found.crps.mean() < wide.crps.mean()  # these are narrower than was said
    samples = jnp.asarray(RNG.normal(size=(400, 3, 1)), jnp.float32)
    model = Forecast(samples, samples.mean(axis=0), jnp.zeros((1, 3, 1)), (0.95,))
    both = np.array([[2.0], [1.5]])
    pool = ForecastPool(tuple("abcdef"), (1,), weights[None], 9, weights[None], both)
    ahead = pooled_forecast(ONE, pool, model, [reference.part(slice(3))])
    # One step ahead by the one sharpness, and further by the other.
    further = stats.norm.ppf(stats.beta(1.5, 1.5).ppf(0.95))
    edges = np.array([edge, further, further])
    np.testing.assert_allclose(ahead.quantiles[0, :, 0], edges, atol=0.03)
    np.testing.assert_allclose(np.quantile(ahead.samples, 0.95, axis=0)[:, 0], edges, atol=0.06)
    again = ForecastPool.from_json(pool.as_json())
    assert again.at(ONE, 1).sharpness == a
    assert again.at(ONE, 8).sharpness == 1.5
    old = {name: value for name, value in pool.as_json().items() if name != "sharpness"}
    assert ForecastPool.from_json(old).at(ONE, 1).sharpness == 1.0


def test_futures_of_counts_stay_counts():
    family = Family(NegativeBinomial, width=1.0, low=0.0)
    counts = Dataset("made", PART, PART, PART, (family,), columns=("visits",))
    samples = jnp.asarray(RNG.poisson(2.0, (300, 4, 1)), jnp.float32)
    model = Forecast(samples, samples.mean(axis=0), jnp.zeros((1, 4, 1)), (0.5,))
    weights = np.append(np.zeros(len(WIDTHS)), 0.5)[None]
    weights[0, AS_IT_IS] = 0.5
    pool = ForecastPool(
        tuple("abcdef"), (1,), weights[None], 9, weights[None], np.full((2, 1), 1.6)
    )
    reference = Gaussians.of(np.full((4, 1), 5.0), np.ones(1))
    found = np.asarray(pooled_forecast(counts, pool, model, [reference]).samples)
    np.testing.assert_array_equal(found, np.rint(found))
    assert found.std() < np.asarray(samples).std() + 2.0
