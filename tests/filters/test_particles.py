"""Particle filters: their limit, their bounds, and their resampling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import varfilter as vf
from varfilter.filters.particle import particle_keys
from varfilter.filters.resampling import systematic
from varfilter.inference import Exact
from worlds import (
    KEY,
    linear_gaussian,
    linear_gaussian_parameters,
    many_bounds,
    observations,
    scalar_world,
    standard_error,
    with_gaps,
)


@pytest.fixture(scope="module")
def world():
    """(model, a sequence with gaps): three latents, two observed elements."""
    model = linear_gaussian()
    return model, with_gaps(observations(model, 8))


@pytest.fixture(scope="module")
def scalar():
    """(a scalar model, a sequence of 30 steps, its exact evidence)."""
    model = scalar_world()
    xs = observations(model, 30)
    return model, xs, exact_evidence(model, xs)


@pytest.fixture(scope="module")
def short(scalar):
    """The same with eight steps, two of them missing."""
    model, xs, _ = scalar
    xs = with_gaps(xs[:8])
    return model, xs, exact_evidence(model, xs)


def exact_evidence(model, xs) -> float:
    return float(vf.run(vf.KalmanFilter(), model, xs, KEY)[1].bound.sum())


def test_bootstrap_converges_to_kalman_like_one_over_root_n(short):
    model, xs, evidence = short
    sizes = [64, 512, 4096]
    filters = [vf.ParticleFilter(vf.Prior(), n) for n in sizes]
    bounds = [many_bounds(filter, model, xs, 64, batch_size=4) for filter in filters]
    errors = [np.sqrt(np.mean((bound - evidence) ** 2)) for bound in bounds]
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    # A root mean square of 64 draws is right to 1 / sqrt(128) = 9%, so the slope over a factor
    # 64 is to 0.13 / log(64) = 0.03; the rest of the margin is for terms of order 1 / N.
    assert -0.62 < slope < -0.4
    # The standard deviation of a log-evidence of 8 steps is of order sqrt(8 / N).
    assert errors[-1] < 3 * np.sqrt(8 / 4096)


def test_bootstrap_posterior_moments_converge_to_kalman(world):
    model, xs = world
    _, exact = vf.run(vf.KalmanFilter(), model, xs, KEY)
    _, particles = vf.run(vf.ParticleFilter(vf.Prior(), 4096), model, xs, KEY)
    variance = np.asarray(jax.vmap(lambda d: d.variance)(exact.posterior))
    size = np.asarray(particles.info.effective_sample_size)[:, None]
    # Resampling correlates the particles, so the error is a few times that of `size`
    # independent draws: six standard errors of these.
    mean = np.asarray(jax.vmap(lambda d: d.mean)(particles.posterior))
    assert np.all(np.abs(mean - exact.posterior.mean) < 6 * np.sqrt(variance / size))
    spread = np.asarray(jax.vmap(lambda d: d.variance)(particles.posterior))
    assert np.all(np.abs(spread / variance - 1) < 6 * np.sqrt(2 / size))


def _log_normal(x, mean, covariance):
    return scipy.stats.multivariate_normal.logpdf(x, mean, covariance)


def _trajectory_weights(xs, zs, proposal):
    """log p(x, z) - log q(z) of one trajectory, from the definition of the model alone."""
    p = linear_gaussian_parameters()
    total = 0.0
    for t, (x, z) in enumerate(zip(xs, zs, strict=True)):
        mean = p["initial_mean"] if t == 0 else p["transition"] @ zs[t - 1] + p["transition_bias"]
        covariance = p["initial_covariance"] if t == 0 else p["process_covariance"]
        seen = ~np.isnan(x)
        loading, noise = p["loading"][seen], p["noise_covariance"][np.ix_(seen, seen)]
        if seen.any():
            total += _log_normal(x[seen], loading @ z + p["loading_bias"][seen], noise)
        total += _log_normal(z, mean, covariance)
        if proposal == "Exact":
            gain = covariance @ loading.T @ np.linalg.inv(loading @ covariance @ loading.T + noise)
            mean = mean + gain @ (x - p["loading_bias"])[seen] - gain @ loading @ mean
            covariance = covariance - gain @ loading @ covariance
        total -= _log_normal(z, mean, covariance)
    return total


@pytest.mark.parametrize("proposal", [vf.Prior(), Exact()], ids=lambda p: type(p).__name__)
def test_without_resampling_the_bound_is_iwae(world, proposal):
    """log mean_i p(x, z_i) / q(z_i) over whole trajectories, from the recorded z's alone."""
    model, xs = world
    _, filtered = vf.run(vf.ParticleFilter(proposal, 5, resample_below=0.0), model, xs, KEY)
    zs = np.asarray(filtered.posterior.values, float)
    weights = [
        _trajectory_weights(xs, zs[:, i], type(proposal).__name__) for i in range(zs.shape[1])
    ]
    expected = scipy.special.logsumexp(weights) - np.log(len(weights))
    # Sixteen float32 log-densities of order ten, each right to 1e-6.
    np.testing.assert_allclose(np.sum(filtered.bound), expected, rtol=1e-5, atol=1e-4)
    assert not np.any(filtered.info.resampled)


def test_with_resampling_the_bound_is_fivo(world):
    """sum_t log mean_i w_t^i: every step starts from equal weights, whatever came before."""
    model, xs = world
    _, filtered = vf.run(vf.ParticleFilter(vf.Prior(), 6, resample_below=1.0), model, xs, KEY)
    assert np.all(filtered.info.resampled)
    p = linear_gaussian_parameters()
    for x, zs, bound in zip(xs, filtered.posterior.values, filtered.bound, strict=True):
        seen = ~np.isnan(x)
        expected = 0.0
        if seen.any():
            noise = p["noise_covariance"][np.ix_(seen, seen)]
            means = (np.asarray(zs, float) @ p["loading"].T + p["loading_bias"])[:, seen]
            weights = [_log_normal(x[seen], mean, noise) for mean in means]
            expected = scipy.special.logsumexp(weights) - np.log(6)
        np.testing.assert_allclose(bound, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("proposal", "resample_below"), [(vf.Prior(), 0.0), (vf.Prior(), 1.0), (Exact(), 0.5)]
)
def test_the_evidence_estimate_is_unbiased(short, proposal, resample_below):
    """E[exp(bound)] = p(x): the property that makes log of it a bound."""
    model, xs, evidence = short
    filter = vf.ParticleFilter(proposal, 16, resample_below=resample_below)
    ratios = np.exp(many_bounds(filter, model, xs, 2000, batch_size=500) - evidence)
    assert standard_error(ratios) < 0.05  # else the next line could not fail
    assert abs(ratios.mean() - 1) < 5 * standard_error(ratios)


def test_resampling_tightens_the_bound_over_long_sequences(scalar):
    """FIVO against IWAE with the same 16 particles; both stay below the evidence on average."""
    model, xs, evidence = scalar
    iwae, fivo = (
        many_bounds(vf.ParticleFilter(vf.Prior(), 16, resample_below=below), model, xs, 400)
        for below in (0.0, 1.0)
    )
    for bounds in (iwae, fivo):
        assert bounds.mean() < evidence
    assert fivo.mean() - iwae.mean() > 5 * np.hypot(standard_error(fivo), standard_error(iwae))


def test_the_exact_proposal_has_less_variance_than_the_bootstrap(scalar):
    model, xs, evidence = scalar
    blind, informed = (
        many_bounds(vf.ParticleFilter(proposal, 16), model, xs, 400)
        for proposal in (vf.Prior(), Exact())
    )
    # A variance of 400 draws is right to sqrt(2 / 400) = 7%: a factor two is far outside.
    assert informed.var() < 0.5 * blind.var()
    assert blind.mean() < informed.mean() < evidence


def test_adaptive_resampling_acts_below_its_threshold_only(scalar):
    model, xs, _ = scalar
    _, filtered = vf.run(vf.ParticleFilter(vf.Prior(), 20, resample_below=0.5), model, xs, KEY)
    sizes, resampled = (
        np.asarray(v) for v in (filtered.info.effective_sample_size, filtered.info.resampled)
    )
    np.testing.assert_array_equal(resampled, sizes < 10)
    assert 0 < resampled.sum() < len(xs)  # both cases occur, or this shows nothing
    # What the next step starts from: equal weights after resampling, the same ones otherwise.
    after, before = filtered.prior.log_weights[1:], filtered.posterior.log_weights[:-1]
    expected = np.where(resampled[:-1, None], -np.log(20.0), before)
    np.testing.assert_allclose(after, expected, rtol=1e-6)


def test_an_unobserved_step_weighs_nothing(scalar):
    model, _, _ = scalar
    _, filtered = vf.run(vf.ParticleFilter(Exact(), 50), model, np.full((5, 1), np.nan), KEY)
    # log of a sum of 50 float32 weights that should be one.
    np.testing.assert_allclose(filtered.bound, 0.0, atol=1e-5)
    np.testing.assert_allclose(filtered.info.effective_sample_size, 50.0, rtol=1e-5)


# Systematic resampling


def test_systematic_counts_are_floor_or_ceil_and_right_on_average():
    weights = np.random.default_rng(0).dirichlet(np.full(12, 0.5))
    log_weights = jnp.asarray(np.log(weights) + 3.0, jnp.float32)  # any constant may be added
    keys = jax.random.split(jax.random.key(1), 4000)
    ancestors = np.asarray(jax.jit(jax.vmap(lambda k: systematic(log_weights, k)))(keys))
    counts = np.stack([(ancestors == i).sum(axis=1) for i in range(12)], axis=1)
    expected = 12 * weights
    assert np.all((counts == np.floor(expected)) | (counts == np.ceil(expected)))
    for i in range(12):
        # Five standard errors, and 1e-5 for the float32 sums where a count never varies.
        error = abs(counts[:, i].mean() - expected[i])
        assert error < 5 * standard_error(counts[:, i]) + 1e-5


def test_systematic_keeps_equal_particles_and_drops_impossible_ones():
    keys = jax.random.split(jax.random.key(2), 50)
    equal = jax.jit(jax.vmap(lambda k: systematic(jnp.zeros(16), k)))(keys)
    np.testing.assert_array_equal(equal, np.tile(np.arange(16), (50, 1)))
    lonely = jnp.full(16, -jnp.inf).at[11].set(0.0)
    np.testing.assert_array_equal(
        jax.jit(jax.vmap(lambda k: systematic(lonely, k)))(keys), np.full((50, 16), 11)
    )


# Keys


def test_counted_keys_draw_as_independently_as_split_ones():
    """Means, variances and the correlations of neighbours of 4,096 x 64 draws, and none twice."""
    keys = particle_keys(jax.random.fold_in(KEY, 3), 4096)
    assert len(np.unique(jax.random.key_data(keys), axis=0)) == 4096
    draws = np.asarray(jax.vmap(lambda k: jax.random.normal(k, (64,)))(keys))
    assert len(np.unique(draws)) > 0.98 * draws.size  # float32 has some 2^23 of them
    count = draws.size
    assert abs(draws.mean()) < 5 / np.sqrt(count)
    assert abs(draws.var() - 1) < 5 * np.sqrt(2 / count)
    for lag in (1, 2, 64):
        products = draws[lag:] * draws[:-lag]
        assert abs(products.mean()) < 5 / np.sqrt(products.size)
    assert abs((draws[:, 1:] * draws[:, :-1]).mean()) < 5 / np.sqrt(count)
    of_next_step = np.asarray(
        jax.vmap(lambda k: jax.random.normal(k, (64,)))(
            particle_keys(jax.random.fold_in(KEY, 4), 4096)
        )
    )
    assert abs((draws * of_next_step).mean()) < 5 / np.sqrt(count)


def test_keys_of_other_kinds_are_split():
    key = jax.random.key(0, impl="rbg")
    ours, split = particle_keys(key, 3), jax.random.split(key, 3)
    np.testing.assert_array_equal(jax.random.key_data(ours), jax.random.key_data(split))


def test_sequences_of_a_batch_resample_each_when_they_must(scalar):
    """One decision for the batch whether any resamples; what each does is its own affair."""
    model, xs, _ = scalar
    filter = vf.ParticleFilter(vf.Prior(), 20, resample_below=0.5)
    batch = jnp.stack([jnp.asarray(xs), jnp.asarray(xs[::-1])])
    many = jax.vmap(lambda xs: vf.run(filter, model, xs, KEY)[1])(batch)
    resampled = np.asarray(many.info.resampled)
    assert (resampled[0] != resampled[1]).any()  # or this shows nothing
    for k in range(2):
        _, alone = vf.run(filter, model, batch[k], KEY)
        np.testing.assert_array_equal(alone.info.resampled, resampled[k])
        # Float32 sums in a batch, in another order.
        np.testing.assert_allclose(many.bound[k], alone.bound, rtol=1e-4, atol=1e-4)
