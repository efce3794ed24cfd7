"""A widened model: its prior alone, by the factor that was asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
import worlds
from varfilter.models import Ensemble, Widened, widened

KEY = jax.random.key(0)


@pytest.mark.parametrize("model", [worlds.deep_markov(), worlds.linear_gaussian()])
def test_the_standard_deviation_of_the_latent_is_larger_and_nothing_else(model):
    wide, state = Widened(model, 1.5), model.init()
    before, after = model.prior(state), wide.prior(state)
    np.testing.assert_allclose(after.mean, before.mean)
    np.testing.assert_allclose(after.variance, 1.5**2 * before.variance, rtol=1e-5)
    z = before.mean
    one, other = model.emission(state, z), wide.emission(state, z)
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.variance, other.variance)


def test_what_is_further_ahead_is_wider():
    """Two steps ahead, the variance of a random walk is that of two steps and of the noise."""
    walk = vf.LinearGaussian(
        transition=np.eye(1), process_covariance=np.eye(1), loading=np.eye(1),
        noise_covariance=0.5 * np.eye(1), initial_covariance=np.eye(1),
    )  # fmt: skip
    filter = vf.VariationalFilter(vf.Prior())
    for factor in (1.0, 2.0):
        model = widened(walk, factor)
        ahead = vf.forecast(filter, model, vf.start(filter, model), 2, KEY, num_samples=20_000)
        # The error of a variance of so many draws is a hundredth of it.
        expected = [factor**2 + 0.5, 2 * factor**2 + 0.5]
        np.testing.assert_allclose(np.var(ahead.samples[..., 0], axis=0), expected, rtol=0.05)


def test_of_an_ensemble_each_member_is_widened():
    model = worlds.ensemble()
    wide = widened(model, 2.0)
    assert isinstance(wide, Ensemble)
    for m in range(2):
        before, after = (each.member(m) for each in (model, wide))
        state = before.init()
        np.testing.assert_allclose(
            after.prior(state).variance, 4.0 * before.prior(state).variance, rtol=1e-5
        )
    assert widened(model, 1.0) is model


def test_latents_without_a_spread_of_their_own_stay_as_they_are():
    switch = vf.Bernoulli(jnp.zeros(2))
    assert switch.widened(1.5) is switch


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf"), "wide"])
def test_a_factor_that_is_none_is_refused(factor, as_users_run_it):
    with pytest.raises(ValueError, match="`factor` must be a positive number"):
        Widened(worlds.deep_markov(), factor)
