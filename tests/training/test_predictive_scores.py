"""Scores by draws against the closed forms of a world in which they are known."""

import jax
import numpy as np
import pytest
from scipy import stats

import varfilter as vf
from varfilter.data.continued import Continued
from varfilter.training.predictive_draws import WIDTHS, _expected, filter_predictions

FACTOR, PROCESS, NOISE = 0.9, 0.5, 0.3
HORIZON = 3


@pytest.fixture(scope="module")
def found():
    model = vf.LinearGaussian(
        transition=np.array([[FACTOR]], np.float32),
        process_covariance=np.array([[PROCESS]], np.float32),
        loading=np.ones((2, 1), np.float32),
        noise_covariance=np.diag([NOISE, 2 * NOISE]).astype(np.float32),
        initial_covariance=np.array([[1.0]], np.float32),
    )
    rng = np.random.default_rng(0)
    z, xs = 0.0, []
    for _ in range(90):
        z = FACTOR * z + np.sqrt(PROCESS) * rng.normal()
        xs.append(z + np.sqrt([NOISE, 2 * NOISE]) * rng.normal(size=2))
    xs = np.array(xs, np.float32)
    xs[40, 0] = np.nan
    sequence = Continued("one", xs, None, None, 10)
    predictions = filter_predictions(
        vf.KalmanFilter(), model, [sequence], jax.random.key(0),
        horizons=(1, HORIZON), every=2, num_samples=512,
    )  # fmt: skip
    predictions = {ahead: each.scored() for ahead, each in predictions.items()}
    _, filtered = vf.run(vf.KalmanFilter(), model, xs[1:], keep="prior")
    return xs, predictions, filtered.prior


def moments(prior, steps, horizon):
    """The exact mean and standard deviation of x, `horizon` steps after what is known."""
    mean = np.asarray(prior.mean, np.float64)[steps, 0]
    variance = np.asarray(jax.vmap(lambda p: p.covariance)(prior), np.float64)[steps, 0, 0]
    for _ in range(horizon - 1):
        mean, variance = FACTOR * mean, FACTOR**2 * variance + PROCESS
    spread = np.sqrt(variance[:, None] + np.array([NOISE, 2 * NOISE]))
    return np.stack([mean, mean], axis=1), spread


@pytest.mark.parametrize(("horizon", "every"), [(1, 1), (HORIZON, 2)])
def test_draws_have_the_scores_of_the_exact_prediction(found, horizon, every):
    xs, predictions, prior = found
    steps = np.arange(10, 90 - horizon + 1, every)
    mean, spread = moments(prior, steps - 1, horizon)
    values = xs[steps + horizon - 1].astype(np.float64)
    own = predictions[horizon]
    np.testing.assert_array_equal(own.xs, values)
    seen = ~np.isnan(values)
    # The mean of 512 draws of z is off by a 22nd of their spread, and so are edges by two or three
    # times that; five of these bound all of the 160.
    assert np.abs((own.mean - mean) / spread).max() < 5 * 512**-0.5
    exact = -stats.norm(mean, spread).logpdf(values)
    assert np.mean(own.nats[seen] - exact[seen]) == pytest.approx(0.0, abs=0.02)
    z = (values - mean) / spread
    crps = spread * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert np.mean(own.crps[seen]) == pytest.approx(np.mean(crps[seen]), rel=0.03)
    edges = mean + stats.norm.ppf(0.95) * spread
    assert np.abs((own.quantiles[3] - edges) / spread).mean() < 4 * 512**-0.5


@pytest.mark.parametrize("width", WIDTHS)
def test_a_mixture_of_any_width_is_a_density(width):
    """It is 1 in all, and has so many times the spread about the median of the draws."""

    def both(values):
        return jax.numpy.tile(jax.numpy.asarray(values)[:, None], (1, 2))

    means, stds = np.array([-1.0, 0.5, 2.0], np.float32), np.array([0.3, 1.0, 0.6], np.float32)
    emissions = vf.Normal(both(means), both(2 * np.log(stds)))
    draws = both(means)
    grid = np.linspace(-30.0, 31.0, 4001, dtype=np.float32)
    xs = np.stack([grid, np.full_like(grid, 0.7)], axis=1)
    found = jax.jit(jax.vmap(lambda x: _expected(x, emissions, draws, (0,))[1]))(xs)
    own = np.exp(-np.asarray(found, np.float64)[:, WIDTHS.index(width)])
    # Sums over a grid that is finer than the narrowest part, 0.075, by five.
    step = 61.0 / 4000
    assert own[:, 0].sum() * step == pytest.approx(1.0, abs=1e-4)
    first = (own[:, 0] * grid).sum() * step
    assert first == pytest.approx(0.5 + width * (np.mean(means) - 0.5), abs=1e-3)
    variance = np.mean(means.astype(float) ** 2 + stds**2) - np.mean(means) ** 2
    second = (own[:, 0] * (grid - first) ** 2).sum() * step
    assert second == pytest.approx(width**2 * variance, rel=1e-3)
    # The other element has the width that it has, and no other.
    exact = np.mean(stats.norm(means, stds).pdf(0.7))
    expected = exact if width == 1.0 else np.nan
    np.testing.assert_allclose(own[:, 1], expected, rtol=1e-5)
