"""Inference against exact posteriors: bounds, optima, and what an iterative update is told."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
from varfilter.inference import (
    Exact,
    Gradients,
    Highway,
    LayerNorm,
    LearnedStep,
    LSTMPosterior,
    MeanNormalized,
    MLPPosterior,
    NormAndLog,
    PrecisionWeightedErrors,
    Shift,
    SignedLog,
)
from varfilter.models.linear_gaussian import kalman_update
from varfilter.observation import observe
from worlds import (
    KEY,
    deep_markov,
    linear_gaussian,
    many_bounds,
    observations,
    scalar_world,
    standard_error,
    with_gaps,
)


@pytest.fixture(scope="module")
def scalar():
    """(a scalar model, a sequence with gaps, its exact evidence)."""
    model = scalar_world()
    xs = with_gaps(observations(model, 10))
    return model, xs, float(vf.run(vf.KalmanFilter(), model, xs, KEY)[1].bound.sum())


# Bounds

INFERENCES = {
    "Prior": lambda model: vf.Prior(),
    "Exact": lambda model: Exact(),
    "GradientDescent": lambda model: vf.GradientDescent(num_iterations=10, num_samples=4),
    "Amortized": lambda model: vf.Amortized(MLPPosterior(model, hidden_size=8, key=KEY)),
    "Recurrent": lambda model: vf.Recurrent(LSTMPosterior(model, hidden_size=8, key=KEY)),
    "Iterative": lambda model: vf.Iterative(model, hidden_size=8, num_iterations=2, key=KEY),
    "Highway": lambda model: vf.Iterative(
        model, hidden_size=8, signal=Gradients(), normalize=LayerNorm(), update=Highway, key=KEY
    ),
    "LearnedStep": lambda model: vf.Iterative(
        model, hidden_size=8, update=LearnedStep, encode_observation=True, key=KEY
    ),
    "Errors": lambda model: vf.Iterative(
        model, hidden_size=8, signal=PrecisionWeightedErrors(), key=KEY
    ),
}


# Other updates of the same inference are as untrained, and bound as well.
USUAL = [
    pytest.param(name, marks=pytest.mark.slow if name in ("Highway", "LearnedStep") else ())
    for name in INFERENCES
]


@pytest.mark.parametrize("name", USUAL)
def test_the_mean_bound_lies_below_the_evidence(scalar, name):
    """For any q at all: also that of a network that was never trained."""
    model, xs, evidence = scalar
    bounds = many_bounds(vf.VariationalFilter(INFERENCES[name](model)), model, xs, 400)
    assert bounds.mean() + 5 * standard_error(bounds) < evidence


def optimum(model: vf.LinearGaussian, xs: np.ndarray) -> float:
    """sum_t E[-log p(x_t | z_{t-1})] with z_t ~ p(z_t | z_{t-1}, x_t), in closed form.

    The exact one-step posterior is linear in z_{t-1}, so z_t stays Gaussian, N(mean, spread).
    """
    a, c = np.asarray(model.transition, float), np.asarray(model.loading, float)
    b, d = np.asarray(model.process.mean, float), np.asarray(model.noise.mean, float)
    q, r = np.asarray(model.process.covariance, float), np.asarray(model.noise.covariance, float)
    predicted, p = np.asarray(model.initial.mean, float), np.asarray(model.initial.covariance)
    between = np.zeros_like(q)  # covariance of the predicted mean over the sampled pasts
    total = 0.0
    for x in xs:
        s = c @ p @ c.T + r
        residual = x - c @ predicted - d
        expected_square = residual @ np.linalg.solve(s, residual)
        expected_square += np.trace(np.linalg.solve(s, c @ between @ c.T))
        total += 0.5 * (np.linalg.slogdet(2 * np.pi * s)[1] + expected_square)
        gain = p @ c.T @ np.linalg.inv(s)
        keep = np.eye(len(p)) - gain @ c
        mean, spread = predicted + gain @ residual, keep @ between @ keep.T + keep @ p
        predicted, p, between = a @ mean + b, q, a @ spread @ a.T
    return total


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(scalar_world, id="scalar", marks=pytest.mark.slow),
        pytest.param(linear_gaussian, id="full"),
    ],
)
def test_exact_inference_attains_the_optimum_of_the_sampled_recursion(build):
    """The optimum of the sampled recursion; it lies strictly above the Kalman evidence."""
    model = build()
    xs = observations(model, 30)
    free_energies = -many_bounds(vf.VariationalFilter(Exact(), num_samples=4), model, xs, 400)
    expected = optimum(model, xs)
    assert standard_error(free_energies) < 0.005 * expected  # else the next line could not fail
    assert abs(free_energies.mean() - expected) < 5 * standard_error(free_energies)
    evidence = float(vf.run(vf.KalmanFilter(), model, xs, KEY)[1].bound.sum())
    # The gap is some 3.2 nats in 30 steps of the scalar model.
    assert expected + evidence > 1.0


# Variational filtering EM


def one_problem(model, x, seed=5):
    """(state, observation) after one sampled step."""
    state = model.init(None)
    state = model.advance(state, model.prior(state).sample(jax.random.key(seed)), None)
    return state, observe(model, state, jnp.asarray(x, jnp.float32))


@pytest.mark.parametrize("x", [[0.7, -1.1], [np.nan, 2.0]], ids=["complete", "missing"])
def test_gradient_descent_converges_to_the_exact_one_step_posterior(x):
    model = linear_gaussian()
    state, observation = one_problem(model, x)
    # Each gradient has a standard error of order 1 / sqrt(512), and a rate that falls to zero
    # averages it over some hundred iterations: the mean is right to 0.005 posterior widths.
    descent = vf.GradientDescent(
        optax.adam(optax.cosine_decay_schedule(0.1, 300)), num_iterations=300, num_samples=512
    )
    q = jax.jit(lambda k: descent.infer(model, state, None, observation, k).posterior)(KEY)
    exact, _, log_evidence = kalman_update(model, state, observation.x)
    # KL is quadratic in such errors: nine parameters' worth of 0.005^2 / 2, ten times over.
    gap = float(vf.kl(q, exact))
    assert 0 <= gap < 1e-3
    np.testing.assert_allclose(
        q.mean, exact.mean, atol=0.05 * float(jnp.sqrt(exact.variance.min()))
    )
    np.testing.assert_allclose(q.covariance, exact.covariance, atol=0.03)
    # F(q) = -log p(x | z') + KL(q || posterior), so F is the evidence itself at the optimum.
    values = jax.jit(jax.vmap(lambda k: vf.free_energy(q, model, state, observation.x, k).total))(
        jax.random.split(KEY, 4000)
    )
    assert abs(np.mean(values) + log_evidence - gap) < 5 * standard_error(values)


def test_gradient_descent_goes_on_from_where_another_inference_ends():
    """At a rate of 0 it stays there, and a few steps from the optimum do not leave it."""
    model = linear_gaussian()
    state, observation = one_problem(model, [0.7, -1.1])
    exact, _, _ = kalman_update(model, state, observation.x)

    @jax.jit
    def gap(rate, key):
        descent = vf.GradientDescent(
            optax.sgd(rate), num_iterations=5, num_samples=256, start=Exact()
        )
        return vf.kl(descent.infer(model, state, None, observation, key).posterior, exact)

    assert float(gap(0.0, KEY)) < 1e-6
    from_prior = float(vf.kl(model.prior(state), exact))
    # Gradients of 256 draws are off by about 1 / sqrt(256), and five steps of 0.05 add up to less.
    assert 0 < float(gap(0.05, KEY)) < 1e-2 < from_prior


def test_a_wholly_missing_observation_leaves_the_prior():
    """q = p and F = 0 exactly, at every iteration, and the latent is drawn from the prior."""
    model = deep_markov()
    filter = vf.VariationalFilter(vf.GradientDescent(num_iterations=3))
    _, filtered = vf.run(filter, model, np.full((3, 4), np.nan), KEY)
    np.testing.assert_array_equal(filtered.bound, 0.0)
    np.testing.assert_array_equal(filtered.info.free_energies, 0.0)
    np.testing.assert_array_equal(filtered.posterior.mean, filtered.prior.mean)
    np.testing.assert_array_equal(filtered.posterior.log_var, filtered.prior.log_var)


class PlainStep(eqx.Module):
    """q - rate * gradient: the update that makes `Iterative` plain gradient descent."""

    rate: float
    needs_gradient = True

    def __call__(self, hidden, q, signal):
        return jax.tree.map(lambda value, slope: value - self.rate * slope, q, signal).stabilised()


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(linear_gaussian, id="linear", marks=pytest.mark.slow),
        pytest.param(deep_markov, id="deep"),
    ],
)
def test_iterative_with_a_plain_step_is_gradient_descent(build):
    model = build()
    x = observations(model, 1)[0]
    iterative = vf.Iterative(
        model,
        hidden_size=4,
        num_iterations=6,
        num_samples=3,
        signal=Gradients(),
        update=lambda hidden_size, parameter_size, *, key: PlainStep(0.05),
        key=KEY,
    )
    descent = vf.GradientDescent(optax.sgd(0.05), num_iterations=6, num_samples=3)
    state, observation = one_problem(model, x)

    @jax.jit
    def infer(key):
        found = [i.infer(model, state, None, observation, key) for i in (iterative, descent)]
        return [(each.posterior, each.free_energies) for each in found]

    (q, values), (other_q, other_values) = infer(KEY)
    # The same draws and sums; but what does not wait is computed ahead of the iterations of the
    # one, and XLA may round a fused product once less: some units in the last place of float32.
    np.testing.assert_allclose(values, other_values, rtol=1e-6)
    for leaf, other in zip(jax.tree.leaves(q), jax.tree.leaves(other_q), strict=True):
        np.testing.assert_allclose(leaf, other, rtol=1e-6, atol=1e-7)
    assert not np.allclose(q.mean, model.prior(state).mean)  # it went somewhere


# What an iterative update is told


def test_inference_starts_at_the_prior():
    model = deep_markov()
    xs = observations(model, 4)
    inference = vf.Iterative(model, hidden_size=8, num_iterations=3, key=KEY)
    state, observation = one_problem(model, xs[1])
    prior = model.prior(state)

    @jax.jit
    def both(key):
        found = inference.infer(model, state, None, observation, key)
        first = jax.random.fold_in(key, 0)
        return found, vf.free_energy(prior, model, state, observation.x, first, is_paired=True)

    found, at_prior = both(KEY)
    np.testing.assert_allclose(found.free_energies[0], at_prior.total, rtol=1e-6)
    assert float(at_prior.kl) == 0.0
    np.testing.assert_array_equal(found.record.q.mean[0], prior.mean)
    np.testing.assert_array_equal(found.record.q.log_var[0], prior.log_var)
    # F at the prior, after the first and the second update, and (by the filter) after the last.
    _, filtered = vf.run(vf.VariationalFilter(inference), model, xs, KEY)
    assert filtered.info.free_energies.shape == (4, 4)
    np.testing.assert_array_equal(filtered.info.free_energies[:, -1], -filtered.bound)


def test_the_signal_is_one_examples_own_gradient():
    """The same in a batch of one or of eight, also where its size matters (`LearnedStep`)."""
    model = deep_markov()
    xs = jnp.asarray(observations(model, 8))
    inference = vf.Iterative(model, hidden_size=8, num_iterations=2, update=LearnedStep, key=KEY)
    keys = jax.random.split(KEY, 8)
    state = model.init(None)

    @jax.jit
    @jax.vmap
    def infer(x, key):
        found = inference.infer(model, state, None, observe(model, state, x), key)
        return found.posterior, found.record.signal

    together, alone = infer(xs, keys), infer(xs[2:3], keys[2:3])
    for leaf, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        # Matrix products round differently in another shape.
        np.testing.assert_allclose(leaf[2:3], other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("x", [[0.7, -1.1], [np.nan, 2.0]], ids=["complete", "missing"])
def test_precision_weighted_errors_make_up_the_gradient(x):
    """dF/dmean = -J^T e_x + e_z with J = C, for diagonal covariances."""
    model = vf.LinearGaussian(
        transition=0.9 * np.eye(3),
        process_covariance=np.diag([0.5, 1.0, 2.0]),
        loading=np.random.default_rng(0).normal(size=(2, 3)),
        noise_covariance=np.diag([0.4, 0.1]),
    )
    state, observation = one_problem(model, x)
    prior = model.prior(state)
    q = vf.Gaussian(prior.mean + jnp.array([0.3, -0.2, 0.5]), prior.factor - 0.5)
    options = {"prior": prior, "num_samples": 1, "kl_weight": 1.0}
    arguments = (q, model, state, observation.x)

    @jax.jit
    @jax.vmap
    def signals(key):
        gradient, value = Gradients()(*arguments, key, **options)
        (e_x, e_z), other = PrecisionWeightedErrors()(*arguments, key, **options)
        return gradient.mean, e_x, e_z, value, other

    gradient, e_x, e_z, value, other = (
        np.asarray(v, float) for v in signals(jax.random.split(KEY, 4000))
    )
    np.testing.assert_allclose(value, other, rtol=1e-5)  # the same F from the same draws
    # The reconstruction part holds draw by draw; what is left is the analytic KL's gradient,
    # P^-1 (mean_q - mean_p), of which e_z = P^-1 (z - mean_p) is an unbiased estimate.
    of_kl = np.array([0.3, -0.2, 0.5]) / np.array([0.5, 1.0, 2.0])
    rest = gradient + e_x @ np.asarray(model.loading)
    np.testing.assert_allclose(rest, np.broadcast_to(of_kl, rest.shape), rtol=1e-4, atol=1e-4)
    for i in range(3):
        assert abs(e_z[:, i].mean() - of_kl[i]) < 5 * standard_error(e_z[:, i])
    if np.isnan(x[0]):
        np.testing.assert_array_equal(e_x[:, 0], 0.0)


# Normalisation and updates


def test_layer_norm_has_zero_mean_and_unit_spread():
    term = jnp.array([3.0, -1.0, 4.0, 1.0, -5.0])
    normal = LayerNorm()(term)
    np.testing.assert_allclose(np.mean(normal), 0.0, atol=1e-6)
    np.testing.assert_allclose(np.std(normal, ddof=1), 1.0, rtol=1e-6)
    # Direction only: any positive scale and any shift give the same.
    np.testing.assert_allclose(LayerNorm()(1e4 * term + 50.0), normal, atol=1e-5)


@pytest.mark.parametrize("size", [1, 3, 10])
def test_layer_norm_of_a_constant_is_zero(size):
    """Not the rounding of its mean, blown up to order one; and its derivative is finite."""
    both = jax.jit(lambda term: (LayerNorm()(term), jax.jacobian(LayerNorm())(term)))
    for value in (0.0, 0.1, -1.6, 1e6, -0.6931472, 3e-30):
        normal, slope = both(jnp.full(size, value, jnp.float32))
        np.testing.assert_array_equal(normal, 0.0)
        assert np.isfinite(slope).all()


def test_signed_log_is_odd_monotone_and_tame():
    term = np.concatenate([-np.logspace(10, -10, 50), [0.0], np.logspace(-10, 10, 50)])
    value = np.asarray(SignedLog()(jnp.asarray(term, jnp.float32)), float)
    np.testing.assert_array_equal(value, -value[::-1])
    assert np.all(np.diff(value) > 0)
    np.testing.assert_allclose(value, np.sign(term) * np.log1p(np.abs(term)), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-36, 1e-12, 1.0, 1e12, 1e36])
def test_norm_and_log_has_the_direction_at_unit_size_and_the_size_as_a_log(scale):
    term = np.float32(scale) * np.array([3.0, -1.0, 4.0, 1.0, -5.0], np.float32)
    direction, log = np.split(np.asarray(NormAndLog()(jnp.asarray(term)), float), 2)
    # No float of a normal size has a square that is lost: a few roundings of 6e-8.
    np.testing.assert_allclose(np.mean(direction**2), 1.0, rtol=1e-5)
    np.testing.assert_allclose(direction / direction[0], term / term[0], rtol=1e-5)
    np.testing.assert_allclose(log, np.sign(term) * np.log1p(np.abs(term.astype(float))), rtol=1e-5)
    one = np.asarray(NormAndLog()(jnp.asarray(term[1:2])), float)
    np.testing.assert_allclose(one, [-1.0, -np.log1p(scale)], rtol=1e-5)
    np.testing.assert_array_equal(NormAndLog()(jnp.zeros(3)), 0.0)
    assert np.isfinite(NormAndLog()(jnp.array([3e38, -1e38, 1e-38]))).all()


def test_mean_normalized_posteriors_have_standard_means():
    model = linear_gaussian(latent=4)
    inference = vf.Iterative(model, hidden_size=8, update=MeanNormalized.of(Highway), key=KEY)
    _, filtered = vf.run(vf.VariationalFilter(inference), model, observations(model, 5), KEY)
    np.testing.assert_allclose(filtered.posterior.mean.mean(axis=1), 0.0, atol=1e-6)
    np.testing.assert_allclose(np.std(filtered.posterior.mean, axis=1, ddof=1), 1.0, rtol=1e-5)


def test_another_number_of_iterations_shares_the_weights():
    model = deep_markov()
    inference = vf.Iterative(model, hidden_size=8, num_iterations=2, key=KEY)
    longer = inference.with_num_iterations(5)
    assert (inference.num_iterations, longer.num_iterations) == (2, 5)
    assert longer.trunk is inference.trunk
    assert longer.update is inference.update
    state, observation = one_problem(model, observations(model, 1)[0])
    infer = eqx.filter_jit(lambda i, key: i.infer(model, state, None, observation, key))
    short, long = infer(inference, KEY), infer(longer, KEY)
    # The first iterations draw the same noise, so they are the same.
    np.testing.assert_allclose(long.free_energies[:2], short.free_energies, rtol=1e-5)
    np.testing.assert_allclose(long.record.q.mean[2], short.posterior.mean, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="`num_iterations` must be"):
        inference.with_num_iterations(0)


@pytest.mark.parametrize("update", [Shift, Highway, LearnedStep], ids=lambda u: u.__name__)
def test_a_posterior_stays_finite_under_extreme_observations(update):
    """Up to 10^12 standard deviations away: log-variances in their range, means finite."""
    model = deep_markov()
    inference = vf.Iterative(model, hidden_size=8, update=update, key=KEY)
    state = model.init(None)

    @jax.jit
    def infer(x):
        return inference.infer(model, state, None, observe(model, state, x), KEY).posterior

    for x in (0.0, 1e4, -1e8, 1e12):
        q = infer(jnp.full(4, x, jnp.float32))
        assert np.all((q.log_var >= -15.0) & (q.log_var <= 5.0))
        assert np.isfinite(q.mean).all()


@pytest.mark.parametrize("update", [Shift, Highway], ids=lambda u: u.__name__)
def test_a_spike_does_not_poison_the_steps_after_it(update):
    """What either adds to a mean is bounded by its own; the next steps are scored as usual."""
    model = deep_markov()
    xs = np.array(observations(model, 8))
    filter = vf.VariationalFilter(
        vf.Iterative(model, hidden_size=8, num_iterations=3, update=update, key=KEY)
    )
    _, calm = vf.run(filter, model, xs, KEY)
    xs[2] = 1e12
    _, spiked = vf.run(filter, model, xs, KEY)
    assert np.isfinite(spiked.bound).all()
    # Of the size of the steps without a spike, not of the spike's own 10^24.
    assert np.all(np.abs(spiked.bound[3:]) < 10 * np.abs(calm.bound).max())
