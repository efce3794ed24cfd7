"""Known inputs: the Kalman filter with B u and D u as oracle, then every driver with `us`."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
import worlds
from varfilter.inference import Exact, Prior
from varfilter.prediction import predict, run_predictive
from varfilter.testing import check_filter, check_model, oracles

KEY = jax.random.key(12)
BUILDS = [
    worlds.driven_gaussian,
    functools.partial(worlds.deep_markov, inputs=2),
    functools.partial(worlds.vrnn, inputs=2),
    functools.partial(worlds.srnn, inputs=2),
]
NAMES = ["linear-gaussian", "deep-markov", "vrnn", "srnn"]


def sequence(model: vf.AbstractModel, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    return worlds.observations(model, num_steps), worlds.known_inputs(model, 16)[:num_steps]


def test_the_kalman_filter_with_inputs_is_the_dense_joint_gaussian():
    with jax.enable_x64(True):
        model = worlds.driven_gaussian()
        xs, us = sequence(model, 8)
        xs = worlds.with_gaps(xs)
        _, filtered = vf.run(vf.KalmanFilter(), model, xs, KEY, us=us)
        exact = oracles.reference(model, xs, us)
        covariances = jax.vmap(lambda q: q.covariance)(filtered.posterior)
        np.testing.assert_allclose(filtered.bound, exact.log_evidences, atol=1e-10)
        np.testing.assert_allclose(filtered.posterior.mean, exact.means, atol=1e-10)
        np.testing.assert_allclose(covariances, exact.covariances, atol=1e-10)
        # The inputs matter: without them the evidence is another.
        other = oracles.reference(model, xs, np.zeros_like(us))
        assert np.abs(other.log_evidences - exact.log_evidences).max() > 0.1


def test_particles_with_inputs_go_to_the_kalman_filter():
    model = worlds.driven_gaussian()
    xs, us = sequence(model, 12)
    exact = oracles.reference(model, xs, us).log_evidences.sum()
    for inference in (Prior(), Exact()):
        filter = vf.ParticleFilter(inference, 4096)
        found = float(jnp.sum(vf.run(filter, model, xs, KEY, us=us)[1].bound))
        # The estimate of 12 steps errs by some sqrt(12 * 10 / 4096) = 0.17 by the bootstrap.
        assert abs(found - exact) < 0.5


# By default the SRNN: its inputs enter both a network and a recurrence.
CONFORMING = [
    pytest.param(build, marks=[] if name == "srnn" else [pytest.mark.slow], id=name)
    for build, name in zip(BUILDS, NAMES, strict=True)
]


@pytest.mark.parametrize("build", CONFORMING)
def test_models_with_inputs_conform_and_streams_equal_runs(build):
    model = build()
    assert check_model(model, KEY)
    avf = vf.Iterative(model, hidden_size=6, num_layers=1, key=KEY)
    assert check_filter(vf.VariationalFilter(avf), model, KEY)


def test_every_driver_takes_the_inputs_and_heeds_them():
    model = functools.partial(worlds.deep_markov, inputs=2)()
    # Untrained, an input moves no latent yet: its last layer starts at zero.
    weight = model.input_effect.out.weight
    model = eqx.tree_at(lambda m: m.input_effect.out.weight, model, jnp.full_like(weight, 0.3))
    filter = vf.ParticleFilter(Prior(), 16)
    xs, us = sequence(model, 6)
    other = us.copy()
    other[-1] += 2.0
    belief, filtered = vf.run(filter, model, xs, KEY, us=us)
    _, changed = vf.run(filter, model, xs, KEY, us=other)
    np.testing.assert_array_equal(filtered.bound[:-1], changed.bound[:-1])
    assert float(filtered.bound[-1]) != float(changed.bound[-1])

    stream = vf.Stream(filter, model, KEY)
    pushed = [float(stream.push(x, u).bound) for x, u in zip(xs, us, strict=True)]
    np.testing.assert_array_equal(np.float32(pushed), filtered.bound)

    ahead = us[:3]
    near = vf.forecast(filter, model, belief, 3, KEY, us=ahead)
    far = vf.forecast(filter, model, belief, 3, KEY, us=ahead + np.float32([[0], [0], [3.0]]))
    np.testing.assert_array_equal(near.mean[:2], far.mean[:2])
    assert np.abs(near.mean[2] - far.mean[2]).max() > 0.01
    streamed = stream.forecast(3, us=ahead, key=KEY)
    # Two programs, and two beliefs, whose roundings differ in the last places of some tens.
    np.testing.assert_allclose(streamed.samples, near.samples, rtol=1e-5, atol=1e-4)

    first = predict(filter, model, belief, KEY, u=us[0])
    assert np.abs(first.mean - predict(filter, model, belief, KEY, u=us[0] + 3.0).mean).max() > 0.01
    _, _, predicted = run_predictive(filter, model, xs, KEY, us=us)
    assert predicted.mean.shape == xs.shape
    drawn = [vf.generate(model, 4, KEY, us=each)[0] for each in (us[:4], us[:4] + 1.0)]
    assert np.abs(drawn[0] - drawn[1]).max() > 0.01
    skipped = stream.skip(2, us=us[:2])
    assert float(skipped.bound) == 0.0


def test_bad_inputs_are_refused_by_name_place_and_fix():
    model, blind = worlds.driven_gaussian(), worlds.linear_gaussian()
    filter = vf.KalmanFilter()
    xs, us = sequence(model, 4)
    gap = us.copy()
    gap[2, 1] = np.nan
    with pytest.raises(ValueError, match=r"`us` is missing: `LinearGaussian` has 2 known inputs"):
        vf.run(filter, model, xs, KEY)
    with pytest.raises(ValueError, match=r"`us\[2, 1\]` is missing \(NaN\)"):
        vf.run(filter, model, xs, KEY, us=gap)
    with pytest.raises(ValueError, match=r"`us` must have shape \(4, 2\)"):
        vf.run(filter, model, xs, KEY, us=us[:3])
    with pytest.raises(ValueError, match=r"`us` was given, but `LinearGaussian` has no known"):
        vf.run(filter, blind, xs, KEY, us=us)
    stream = vf.Stream(filter, model, KEY)
    with pytest.raises(ValueError, match=r"`u` is missing"):
        stream.push(xs[0])
    with pytest.raises(ValueError, match=r"`u\[0\]` is missing"):
        stream.push(xs[0], [np.nan, 1.0])
    assert stream.t == 0
    with pytest.raises(ValueError, match=r"`us` must have shape \(3, 2\)"):
        stream.forecast(3, us=us[:2])


class Pushed(vf.AbstractModel):
    """z_t ~ N(0.9 z_{t-1} + u_t, 1): a user's model with one input, and what may go wrong."""

    input_size = 1

    def init(self, x0=None):
        return jnp.zeros(1)

    def embed(self, x):
        return None

    def prior(self, state):
        return vf.Normal(state, jnp.zeros(1))

    def emission(self, state, z):
        return vf.Normal(z, jnp.zeros(1))

    def advance(self, state, z, features):
        return 0.9 * z

    def drive(self, state, u):
        return state + u


class Undriven(Pushed):
    drive = vf.AbstractModel.drive


class Grows(Pushed):
    def drive(self, state, u):
        return jnp.concatenate([state, u])


class Ignores(Pushed):
    def drive(self, state, u):
        return state + 0.0 * u


def test_a_users_model_with_inputs_and_its_mistakes():
    xs, us = np.zeros((3, 1), np.float32), np.ones((3, 1), np.float32)
    assert check_model(Pushed(), KEY)
    filter = vf.VariationalFilter(Prior())
    prior = vf.run(filter, Pushed(), xs, KEY, us=us)[1].prior
    assert float(prior.mean[0, 0]) == 1.0
    with pytest.raises(TypeError, match=r"`Undriven.input_size` is 1, but it has no `drive"):
        vf.run(filter, Undriven(), xs, KEY, us=us)
    with pytest.raises(TypeError, match=r"`Grows.drive\(state, u\)` must return a state like"):
        vf.run(filter, Grows(), xs, KEY, us=us)
    with pytest.raises(vf.testing.ConformanceError, match=r"^\[drive-effect\]"):
        check_model(Ignores(), KEY)
