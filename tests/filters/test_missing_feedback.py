"""Missing data where the recurrence sees x: an autoregression, whose exact answer is known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
import worlds
from varfilter.inference import Exact, Prior
from varfilter.prediction import run_predictive
from varfilter.testing import oracles

KEY = jax.random.key(5)
NUM_STEPS = 10


def autoregression() -> vf.LinearGaussian:
    """What is observed pushes the next latent; the noise is correlated, the latent is hidden."""
    return vf.LinearGaussian(
        transition=[[0.6, 0.2], [-0.1, 0.5]],
        feedback=[[0.4, 0.0], [0.1, 0.3]],
        process_covariance=[[0.3, 0.05], [0.05, 0.2]],
        loading=[[1.0, 0.3], [0.0, 1.0]],
        noise_covariance=[[0.4, 0.1], [0.1, 0.5]],
        initial_mean=[0.5, -0.5],
        initial_covariance=[[1.0, 0.2], [0.2, 0.8]],
        transition_bias=[0.1, 0.0],
        loading_bias=[0.0, 0.2],
    )


def gappy(model: vf.LinearGaussian) -> np.ndarray:
    """A sequence with single elements, and three whole steps, missing."""
    xs = np.array(vf.generate(model, NUM_STEPS, jax.random.key(1))[0])
    xs[1, 0] = xs[2, 1] = xs[8, 0] = np.nan
    xs[4:7] = np.nan
    return xs


def predicted_moments(model: vf.LinearGaussian, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each x_t given what was observed before it, from the dense joint."""
    dense = oracles.joint(model, len(xs))
    means, variances = [], []
    for t in range(len(xs)):
        before = np.arange(dense.x(0).start, dense.x(t).start)
        seen = ~np.isnan(xs[:t].ravel())
        mean, covariance, _ = oracles.gaussian_conditional(
            dense.mean, dense.covariance, dense.x(t), before[seen], xs[:t].ravel()[seen]
        )
        means.append(mean)
        variances.append(np.diag(covariance))
    return np.stack(means), np.stack(variances)


def test_the_kalman_filter_is_exact_with_feedback_and_gaps():
    with jax.enable_x64(True):
        model = autoregression()
        xs = gappy(model)
        _, filtered = vf.run(vf.KalmanFilter(), model, xs, KEY)
        exact = oracles.reference(model, xs)
        means, variances = predicted_moments(model, xs)
        predictive = jax.vmap(lambda p: (p.mean, p.variance))(filtered.prediction)
        covariances = jax.vmap(lambda q: q.covariance)(filtered.posterior)
        # Sums of some hundred products of numbers of order one, in double precision.
        np.testing.assert_allclose(filtered.bound, exact.log_evidences, atol=1e-10)
        np.testing.assert_allclose(filtered.posterior.mean, exact.means, atol=1e-10)
        np.testing.assert_allclose(covariances, exact.covariances, atol=1e-10)
        np.testing.assert_allclose(predictive[0], means, atol=1e-10)
        np.testing.assert_allclose(predictive[1], variances, atol=1e-10)


@pytest.mark.parametrize("x0", [[np.nan, np.nan], [np.nan, 0.7], [1.3, 0.7]], ids=str)
def test_what_is_missing_of_a_first_observation_is_marginalised(x0):
    """z_1 ~ N(m + G x0, P), with x0 drawn from the model that has seen nothing, given its rest."""
    with jax.enable_x64(True):
        model, x0 = autoregression(), np.array(x0)
        dense = oracles.joint(model, 1)
        seen = np.arange(dense.x(0).start, dense.x(0).stop)[~np.isnan(x0)]
        mean, covariance, _ = oracles.gaussian_conditional(
            dense.mean, dense.covariance, dense.x(0), seen, x0[~np.isnan(x0)]
        )
        mean, covariance = (
            np.where(np.isnan(x0), mean, x0),
            np.where(np.isnan(x0)[:, None] & np.isnan(x0)[None], covariance, 0.0),
        )
        feedback = np.asarray(model.feedback)
        found = vf.start(vf.KalmanFilter(), model, x0, KEY).carry.state.latent
        wanted = model.initial.mean + feedback @ mean
        # Sums of a few products of numbers of order one, in double precision.
        np.testing.assert_allclose(found.mean, wanted, atol=1e-12)
        spread = model.initial.covariance + feedback @ covariance @ feedback.T
        np.testing.assert_allclose(found.covariance, spread, atol=1e-12)


@pytest.mark.parametrize(
    "inference",
    [
        pytest.param(Prior(), id="bootstrap", marks=pytest.mark.slow),
        pytest.param(Exact(), id="exact proposal"),
    ],
)
def test_particles_go_to_the_exact_evidence_and_moments(inference):
    model = autoregression()
    xs = gappy(model)
    exact = oracles.reference(model, xs).log_evidences.sum()
    means, variances = predicted_moments(model, xs)

    def answers(num_particles: int, num_runs: int) -> tuple[np.ndarray, ...]:
        filter = vf.ParticleFilter(inference, num_particles)

        def one(key: jax.Array) -> tuple[jax.Array, ...]:
            filtered = vf.run(filter, model, xs, key)[1]
            mixture = jax.vmap(lambda p: (p.mean, p.variance))(filtered.prediction)
            # The mixture puts z_t at its prior's mean: the prior's own spread comes on top.
            own = model.loading @ model.process.covariance @ model.loading.T
            first = model.loading @ model.initial.covariance @ model.loading.T
            extra = jnp.stack([jnp.diag(first), *[jnp.diag(own)] * (NUM_STEPS - 1)])
            return jnp.sum(filtered.bound), mixture[0], mixture[1] + extra

        found = eqx.filter_jit(jax.vmap(one))(jax.random.split(KEY, num_runs))
        return tuple(map(np.asarray, found))

    few, many = answers(16, 64), answers(2048, 8)
    # Evidence: its error falls as 1/N. Moments: errors of 1/sqrt(N) of one standard deviation,
    # some 0.02 for 2048 particles and less for the mean over 8 runs; five times that is allowed.
    assert abs(many[0] - exact).mean() < 0.25 * abs(few[0] - exact).mean()
    assert abs(many[0].mean() - exact) < 0.1
    assert np.abs((many[1].mean(0) - means) / np.sqrt(variances)).max() < 0.05
    assert np.abs(many[2].mean(0) / variances - 1).max() < 0.1


def test_bands_inside_a_gap_hold_what_they_say():
    """Nine in ten of what the model itself made, 12 steps long unseen; one sampled past, fewer."""
    model = vf.LinearGaussian(
        transition=[[0.5]], feedback=[[0.45]], process_covariance=[[0.3]], loading=[[1.0]],
        noise_covariance=[[0.1]],
    )  # fmt: skip
    keys = jax.random.split(KEY, 80)
    truth = eqx.filter_jit(jax.vmap(lambda k: vf.generate(model, 24, k)[0]))(keys)
    gap = slice(8, 20)
    seen = truth.at[:, gap].set(jnp.nan)

    def coverage(filter: vf.AbstractFilter) -> np.ndarray:
        def band(xs: jax.Array, key: jax.Array) -> jax.Array:
            found = run_predictive(filter, model, xs, key, num_samples=128, levels=(0.05, 0.95))
            return found[2].quantiles

        low, high = jnp.moveaxis(eqx.filter_jit(jax.vmap(band))(seen, keys), 2, 0)
        held = (low <= truth) & (truth <= high)
        return np.asarray(held[:, gap].mean(axis=(1, 2)))

    many = coverage(vf.ParticleFilter(Exact(), 64))
    one = coverage(vf.VariationalFilter(Exact()))
    # Its own error by the scatter of 80 sequences; 64 trajectories in the place of all take from
    # the spread of their mean a 64th, and from the coverage less than a hundredth.
    assert abs(many.mean() - 0.9) < 4 * worlds.standard_error(many) + 0.01
    assert one.mean() < 0.8


def test_a_mean_in_the_gap_would_be_overconfident():
    """The fault that drawing mends, so that the tests above can fail: fed with its own
    prediction, the filter's variance in the gap is well below the exact one."""
    model = autoregression()
    xs = gappy(model)
    means, variances = predicted_moments(model, xs)
    filled = xs.copy()
    filled[4:7] = means[4:7]
    _, blind = predicted_moments(model, filled)
    assert (blind[6] < 0.9 * variances[6]).all()


def test_each_particle_draws_its_own_missing_elements_and_a_stream_the_same():
    model = autoregression()
    xs = gappy(model)
    filter = vf.ParticleFilter(Prior(), 32)
    last, filtered = vf.run(filter, model, xs[:6], KEY)
    stream = vf.Stream(filter, model, KEY)
    pushed = [stream.push(x) for x in xs[:6]]
    np.testing.assert_array_equal(np.stack([p.bound for p in pushed]), filtered.bound)
    worlds.assert_same_bits(stream.belief, last)
    # z_t is resampled at most every other step: without own draws of x states would coincide.
    assert len(np.unique(np.asarray(last.carry.states.latent.mean)[:, 0])) == 32
