"""Models whose latents cannot be reparameterised learn by particles, or not at all."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
from chains import (
    XS,
    Categorical,
    Mixed,
    Posterior,
    Together,
    TwoStates,
    forward,
    parameters,
    states,
)
from refusals import refuses
from varfilter.filters import ScoredSystematic
from worlds import KEY

SGD = optax.sgd(0.1)


def gradients(model, filter, num_keys):
    """d log p-hat(xs) / dθ for each key."""

    @eqx.filter_jit
    @eqx.filter_vmap(in_axes=(None, 0))
    @eqx.filter_grad
    def gradient(model, key):
        return jnp.sum(vf.run(filter, model, XS, key)[1].bound)

    found = gradient(model, jax.random.split(KEY, num_keys))
    return np.stack([found.first, found.stay, found.leave, found.log_var], axis=1)


SCORED = {"resample_below": 1.0, "resampling": ScoredSystematic()}


@pytest.mark.parametrize(
    ("model", "inference", "resampling"),
    [
        (TwoStates(), vf.Prior(), {"resample_below": 0.0}),
        (TwoStates(), Posterior(), {"resample_below": 0.0}),
        (states(), vf.Prior(), {"resample_below": 0.0}),
        (TwoStates(), vf.Prior(), SCORED),
    ],
    ids=["bernoulli", "bernoulli-own", "categorical", "bernoulli-resampled"],
)
def test_the_particle_bound_learns_a_discrete_model(model, inference, resampling):
    """Its gradient goes to that of the evidence, how the latent is predicted included."""
    at = parameters(model)
    # Central differences in float64: an error of 1e-10 by rounding and 1e-10 by curvature.
    exact = np.array([
        (forward(at + step, XS)[0] - forward(at - step, XS)[0]) / 2e-5
        for step in 1e-5 * np.eye(4)
    ])  # fmt: skip
    assert np.all(np.abs(exact) > 0.01)
    found = gradients(model, vf.ParticleFilter(inference, 512, **resampling), 64)
    standard_error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    # A ratio of means over 512 weighted paths is biased by the order of 1 / 512.
    np.testing.assert_array_less(np.abs(found.mean(axis=0) - exact), 4.0 * standard_error + 2e-3)


def test_mixed_latents_learn_by_particles():
    """The discrete part is held, the continuous part keeps its path, in a tree and in a `Joint`.

    The two are one model, so both estimates of one gradient must agree; and the evidence of one
    step is known: p(x) = sum over the switch of P(switch) N(x; 0, gain^2 + var).
    """
    x = 3.0

    def exact(first, stay, leave, log_var):
        variances = jnp.array([1.0, 4.0]) + jnp.exp(log_var)
        log_p = -0.5 * (jnp.log(2 * jnp.pi * variances) + x**2 / variances)
        return jax.nn.logsumexp(log_p + jax.nn.log_sigmoid(jnp.stack([-first, first])))

    @eqx.filter_jit
    @eqx.filter_vmap(in_axes=(None, 0))
    @eqx.filter_grad
    def gradient(model, key):
        filter = vf.ParticleFilter(vf.Prior(), 512, resample_below=0.0)
        return vf.run(filter, model, np.array([[x]]), key)[1].bound[0]

    for model in (Mixed(), Together()):
        want = jax.grad(exact, argnums=(0, 3))(*map(jnp.float32, parameters(model)))
        got = gradient(model, jax.random.split(KEY, 64))
        for name, value in zip(("first", "log_var"), want, strict=True):
            each = np.asarray(getattr(got, name))
            standard_error = each.std(ddof=1) / np.sqrt(each.size)
            # As above: four standard errors, and a bias of the order of 1 / 512.
            assert abs(each.mean() - float(value)) < 4.0 * standard_error + 2e-3
            assert abs(float(value)) > 0.02


def test_learners_refuse_what_they_cannot_learn():
    model, variational = TwoStates(), vf.VariationalFilter(vf.Prior())
    bootstrap = vf.ParticleFilter(vf.Prior(), 4)
    refuses(
        lambda: vf.EndToEnd(theta=SGD, phi=None).init(model, variational),
        TypeError, "`EndToEnd`", "`TwoStates`", "`Bernoulli`", "`ParticleFilter(Prior()",
    )  # fmt: skip
    refuses(
        lambda: vf.EndToEnd(theta=SGD, phi=SGD).init(model, vf.ParticleFilter(Posterior(), 4)),
        TypeError, "`phi`", "`Bernoulli`", "`phi=None`",
    )  # fmt: skip
    refuses(
        lambda: vf.EndToEnd(theta=SGD, phi=None).init(states(Categorical), bootstrap),
        TypeError, "`Categorical`", "`is_reparameterisable: ClassVar[bool] = False`",
    )  # fmt: skip
    # What is right stays: nothing to learn of the filter, a held model, q held by `TimeParallel`.
    vf.EndToEnd(theta=SGD, phi=SGD).init(model, bootstrap)
    vf.EndToEnd(theta=None, phi=SGD).init(model, variational)
    vf.EndToEnd(theta=SGD, phi=None).init(model, vf.ParticleFilter(Posterior(), 4))
    vf.TimeParallel(theta=SGD, phi=SGD).init(model, variational)


def test_the_chain_is_learned_by_particles():
    """From a latent without memory, learning finds that the states stay."""
    truth = TwoStates(stay=2.0, leave=-2.0)
    xs = np.asarray(vf.generate(truth, 100, jax.random.key(1))[0])[None]
    learner = vf.EndToEnd(theta=optax.adam(0.1), phi=None)
    learning = learner.init(TwoStates(stay=0.0, leave=0.0), vf.ParticleFilter(vf.Prior(), 64))
    for i in range(60):
        learning, _ = learner.update(learning, xs, jax.random.fold_in(KEY, i))
    # Each logit is seen by some 50 transitions, of which 12% leave: a standard error of
    # 1 / sqrt(50 * 0.88 * 0.12) = 0.44, so that three of them end at 2 - 1.3 = 0.7.
    assert float(learning.model.stay) > 0.7
    assert float(learning.model.leave) < -0.7
