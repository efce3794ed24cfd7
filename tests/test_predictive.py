"""One-step predictions: the exact moments where they are known, and the filter's own numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
from varfilter.prediction import no_steps, predict, predictive_quantiles, run_predictive
from varfilter.simulation import steady_mean
from worlds import KEY, linear_gaussian_parameters, observations

# With noise that is independent over elements, as that of the columns of a table is.
NOISE = {"noise_covariance": np.diag([0.7, 1.1])}
MODEL = vf.LinearGaussian(**linear_gaussian_parameters() | NOISE)
XS = np.asarray(observations(MODEL, 6, 0))
XS = np.where(np.arange(12).reshape(6, 2) % 5 == 3, np.nan, XS)  # some missing
NUM = 4000


@pytest.fixture(scope="module")
def exact():
    return run_predictive(
        vf.KalmanFilter(), MODEL, XS, KEY, num_samples=NUM, levels=(0.1, 0.5), surprises=True
    )


def test_moments_and_quantiles_are_those_of_the_kalman_filter(exact):
    _, filtered, predicted = exact
    mean, variance = (
        np.asarray(a) for a in jax.vmap(lambda d: (d.mean, d.variance))(filtered.prediction)
    )
    std = np.sqrt(variance)
    # A mean of NUM draws is off by std / sqrt(NUM), a variance by variance * sqrt(2 / NUM); five
    # times that for the 12 elements.
    off = 5.0 / NUM**0.5
    assert np.all(np.abs(predicted.mean - mean) < off * std)
    assert np.all(np.abs(predicted.variance / variance - 1.0) < off * 2**0.5)
    # The density at the 10% quantile is 0.175 / std: sqrt(0.1 * 0.9) / 0.175 = 1.7.
    low = mean - 1.2816 * std
    assert np.all(np.abs(predicted.quantiles[:, 0] - low) < 1.8 * off * std)
    assert np.all(np.abs(predicted.quantiles[:, 1] - mean) < 1.8 * off * std)


def test_surprises_are_of_each_element_by_the_past_and_given_the_others(exact):
    """The marginal and the conditional density of the exact Gaussian prediction."""
    _, filtered, predicted = exact
    mean, covariance = (
        np.asarray(a, np.float64)
        for a in jax.vmap(lambda d: (d.mean, d.covariance))(filtered.prediction)
    )
    found = predicted.surprises

    def surprise(x, m, v):
        return 0.5 * (np.log(2 * np.pi * v) + (x - m) ** 2 / v)

    seen = ~np.isnan(XS)
    np.testing.assert_array_equal(np.isnan(found.alone), ~seen)
    for t, k in np.argwhere(seen):
        m, v = mean[t, k], covariance[t, k, k]
        reach = 1.6449 * v**0.5
        # As the moments below: what is drawn of each emission adds less than its mean is off.
        np.testing.assert_allclose(found.band[t, :, k], [m - reach, m + reach], atol=0.15 * v**0.5)
        # The mean of NUM densities of one emission each, whose spread is of their own size.
        assert found.alone[t, k] == pytest.approx(surprise(XS[t, k], m, v), abs=0.1)
        other = 1 - k
        if seen[t, other]:
            gain = covariance[t, k, other] / covariance[t, other, other]
            m, v = m + gain * (XS[t, other] - mean[t, other]), v - gain * covariance[t, other, k]
        assert found.given[t, k] == pytest.approx(surprise(XS[t, k], m, v), abs=0.1)
        assert found.mean[t, k] == pytest.approx(m, abs=0.1 * v**0.5)
        assert found.variance[t, k] == pytest.approx(v, rel=0.1)
        reach = 1.6449 * v**0.5
        np.testing.assert_allclose(
            found.band_given[t, :, k], [m - reach, m + reach], atol=0.15 * v**0.5
        )


@pytest.mark.parametrize("num_samples", [1, 16, 128])
def test_one_more_draw_lies_below_a_quantile_as_often_as_it_says(num_samples):
    """Few draws too: of uniform numbers the share below a value is the value itself."""
    draws = jax.random.uniform(KEY, (num_samples, 20_000))
    levels = (0.05, 0.3, 0.95)
    below = np.asarray(predictive_quantiles(draws, levels)).mean(axis=1)
    # With n draws no rank is below 1 or above n: nothing lies beyond 1 / (n + 1) and n / (n + 1).
    edges = 1 / (num_samples + 1), num_samples / (num_samples + 1)
    # A share of n draws has a standard deviation of at most 0.3, its mean over 20,000 of 0.002.
    np.testing.assert_allclose(below, np.clip(levels, *edges), atol=5 * 0.002)


def test_no_steps_are_like_steps_but_for_their_number(exact):
    none = no_steps(
        vf.KalmanFilter(), MODEL, KEY, num_samples=NUM, levels=(0.1, 0.5), surprises=True
    )
    assert jax.tree.structure(none) == jax.tree.structure(exact[1:])
    for empty, whole in zip(jax.tree.leaves(none), jax.tree.leaves(exact[1:]), strict=True):
        assert (empty.shape, empty.dtype) == ((0, *whole.shape[1:]), whole.dtype)


def test_the_filter_goes_its_own_way_beside_the_predictions():
    filter = vf.ParticleFilter(vf.Prior(), 7)
    belief, filtered = vf.run(filter, MODEL, XS, KEY)
    after, beside, predicted = run_predictive(filter, MODEL, XS, KEY, num_samples=5, surprises=True)
    for mine, theirs in zip(
        jax.tree.leaves((after, beside)), jax.tree.leaves((belief, filtered)), strict=True
    ):
        # The same operations in another program: the last bits may differ.
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
    assert predicted.quantiles.shape == (6, 0, 2)

    # One step at a time, as on a stream: what is predicted does not depend on what comes.
    belief, step = vf.start(filter, MODEL), eqx.filter_jit(vf.step)
    for t, x in enumerate(XS[:2]):
        alone = predict(filter, MODEL, belief, KEY, x=x, num_samples=5)
        np.testing.assert_allclose(alone.mean, predicted.mean[t], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(alone.variance, predicted.variance[t], rtol=1e-5)
        each = jax.tree.map(lambda leaf, t=t: leaf[t], predicted.surprises)
        for mine, theirs in zip(
            jax.tree.leaves(alone.surprises), jax.tree.leaves(each), strict=True
        ):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
        belief, _ = step(filter, MODEL, belief, x, KEY)


def test_the_spread_has_what_the_plug_in_leaves_out():
    filter = vf.VariationalFilter(vf.Prior())
    _, filtered, predicted = run_predictive(filter, MODEL, XS, KEY, num_samples=200)
    plugged = jax.vmap(lambda d: d.variance)(filtered.prediction)
    assert np.all(predicted.variance > plugged)


def test_padding_changes_nothing(exact):
    padded = np.concatenate([XS[:4], np.zeros((2, 2))])
    filter = vf.KalmanFilter()
    belief, filtered, _ = run_predictive(
        filter, MODEL, padded, KEY, mask=np.arange(6) < 4, num_samples=NUM, levels=(0.1, 0.5)
    )
    assert int(belief.t) == 4
    np.testing.assert_allclose(filtered.bound[:4], exact[1].bound[:4], rtol=1e-5)
    assert not np.any(filtered.bound[4:])


def test_refusals():
    filter = vf.KalmanFilter()
    with pytest.raises(ValueError, match="`num_samples`"):
        run_predictive(filter, MODEL, XS, KEY, num_samples=0)
    with pytest.raises(ValueError, match="`levels`"):
        run_predictive(filter, MODEL, XS, KEY, levels=(1.5,))
    with pytest.raises(ValueError, match="give only one"):
        run_predictive(filter, MODEL, XS, KEY, belief=vf.start(filter, MODEL), x0=XS[0])


def test_one_future_that_runs_away_is_not_the_mean_of_all():
    """Of a hundred numbers one that is absurdly far out is left out; of a few, none is."""
    values = np.random.default_rng(0).permutation(100).astype(np.float32)[:, None]
    far = np.where(values == 99.0, np.float32(1e12), values)
    np.testing.assert_allclose(steady_mean(jnp.asarray(far)), np.arange(99).mean(), rtol=1e-6)
    infinite = np.where(values == 0.0, -np.inf, far)
    inner = np.mean(np.arange(1, 99))
    np.testing.assert_allclose(steady_mean(jnp.asarray(infinite)), inner, rtol=1e-6)
    np.testing.assert_allclose(steady_mean(jnp.asarray(far[:20])), far[:20].mean(0), rtol=1e-6)


def test_what_is_rare_counts_in_a_mean():
    """The event that one trajectory in a hundred is sure of, and the tail of what is skewed."""
    event = np.zeros((200, 1), np.float32)
    event[[3, 77]] = 1.0
    np.testing.assert_allclose(steady_mean(jnp.asarray(event)), 0.01, rtol=1e-6)
    skewed = np.exp(np.random.default_rng(0).normal(size=(256, 50))).astype(np.float32)
    np.testing.assert_allclose(steady_mean(jnp.asarray(skewed)), skewed.mean(axis=0), rtol=1e-5)
