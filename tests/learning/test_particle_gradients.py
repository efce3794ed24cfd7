"""What θ and φ learn from a particle bound, with each of the gradients through resampling."""

import importlib
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
from varfilter._tree import detach
from varfilter.filters import ScoredSystematic, Systematic
from varfilter.inference import MLPPosterior
from worlds import KEY, deep_markov, observations, relative_distance, vector

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def textbook(monkeypatch):
    """The small models of the benchmarks, whose likelihood is known."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("textbook")


def amortized(model):
    return vf.Amortized(MLPPosterior(model, hidden_size=4, num_layers=1, key=jax.random.key(3)))


def gradient_of(function):
    return eqx.filter_jit(eqx.filter_grad(function))


def summed_bound(modules, xs, key):
    model, filter = modules
    return jnp.sum(vf.run(filter, model, xs, key)[1].bound)


# The gradient of the model


def factor_gradients(model, xs, num_particles, resampling, num_keys=32):
    """d/d(factor) a step of the bootstrap filter's bound, for each key."""
    filter = vf.ParticleFilter(vf.Prior(), num_particles, resample_below=1.0, resampling=resampling)

    @eqx.filter_jit
    @eqx.filter_vmap(in_axes=(None, 0))
    @eqx.filter_grad
    def gradients(model, key):
        return summed_bound((model, filter), xs, key)

    return np.asarray(gradients(model, jax.random.split(KEY, num_keys)).factor) / len(xs)


def test_the_scored_gradient_goes_to_the_score_and_the_cheap_one_does_not(textbook):
    """AR(1) with noise at the truth: the exact score is that of the Kalman filter."""
    model, _ = textbook.MODELS["AR(1) with noise"]
    xs = textbook.simulated(model, (1, 1, 40), jax.random.key(2))[0, 0]
    score = float(gradient_of(lambda m: m.log_likelihood(xs))(model).factor) / len(xs)
    errors = {}
    for name, num_particles, resampling in [
        ("scored", 512, ScoredSystematic()),
        ("cheap, few", 32, Systematic()),
        ("cheap", 512, Systematic()),
    ]:
        found = factor_gradients(model, xs, num_particles, resampling)
        errors[name] = found.mean() - score, found.std(ddof=1) / np.sqrt(found.size)
    # Four standard errors, and the bias of a ratio of means over N particles, 1 / N for each of
    # 40 steps in a mean over 40 steps.
    error, standard_error = errors["scored"]
    assert standard_error < 0.01
    assert abs(error) < 4.0 * standard_error + 1.0 / 512
    # What the cheap one leaves out does not shrink: it is the same with 16 times the particles.
    error, standard_error = errors["cheap"]
    assert abs(error) > 0.05 + 4.0 * standard_error
    assert abs(error) > 0.5 * abs(errors["cheap, few"][0]) - 4.0 * errors["cheap, few"][1]


def test_with_one_particle_the_scored_gradient_is_that_of_the_joint():
    """d/dθ log p(x, z) at the trajectory that was drawn: Fisher's identity without an average."""
    with jax.enable_x64(True):
        model = deep_markov(size=3)
        xs = observations(model, 3)
        filter = vf.ParticleFilter(
            amortized(model), 1, resample_below=1.0, resampling=ScoredSystematic()
        )
        gradient = gradient_of(lambda m: summed_bound((m, filter), xs, KEY))(model)
        zs = vf.run(filter, model, xs, KEY)[1].posterior.values[:, 0]

        @gradient_of
        def joint(model):
            state, total = model.init(), jnp.zeros(())
            for x, z in zip(jnp.asarray(xs), zs, strict=True):
                total += model.prior(state).log_prob(z) + model.emission(state, z).log_prob(x)
                state = model.advance(state, z, model.embed(x))
            return total

        # Sums of some ten terms in another order: roundings of 1e-16.
        assert relative_distance(gradient, joint(model)) < 1e-12


# The gradient of proposals


def test_scored_proposals_learn_from_the_bound_of_their_own_step():
    """The same φ-gradient as of each step with all that came before cut from it."""
    with jax.enable_x64(True):
        model = deep_markov(size=3)
        xs = jnp.asarray(observations(model, 3))
        scored, plain = (
            vf.ParticleFilter(amortized(model), 3, resample_below=1.0, resampling=resampling)
            for resampling in (ScoredSystematic(), Systematic())
        )
        values, gradients = {}, {}

        @eqx.filter_jit
        @eqx.filter_value_and_grad
        def own_steps(filter):
            belief, total = vf.start(filter, model), jnp.zeros(())
            for x in xs:
                belief = eqx.tree_at(lambda b: b.carry, belief, detach(belief.carry))
                belief, filtered = vf.step(filter, model, belief, x, KEY)
                total += filtered.bound
            return total

        values["steps"], gradients["steps"] = own_steps(plain)
        for name, filter in (("scored", scored), ("plain", plain)):
            function = eqx.filter_value_and_grad(lambda f: summed_bound((model, f), xs, KEY))
            values[name], gradients[name] = eqx.filter_jit(function)(filter)
        # The same numbers forward, to rounding; and so the gradients of one step.
        np.testing.assert_allclose(values["scored"], values["plain"], rtol=1e-12)
        np.testing.assert_allclose(
            vector(gradients["scored"]), vector(gradients["steps"]), rtol=1e-9, atol=1e-12
        )
        # Through fixed ancestors a proposal learns from later steps, too.
        assert relative_distance(gradients["plain"], gradients["steps"]) > 1e-2


# What is learned


@pytest.mark.slow
def test_fivo_recovers_the_parameter_that_the_one_path_bound_misses(textbook):
    """AR(1) with noise, by `benchmarks/recovery.py`: held against the exact maximum likelihood.

    What is left is the noise of 300 stochastic updates, averaged over the last 60 of them.
    """
    recovery = importlib.import_module("recovery")
    truth, start = textbook.MODELS["AR(1) with noise"]
    xs = textbook.simulated(truth, (4, 8, 100), jax.random.key(1))
    model = type(truth)(*start)
    exact = recovery.most_likely(model, xs, 400).factor

    def off(method, proposal):
        return float(jnp.mean(recovery.learn(model, method, proposal, xs, 300, 64).factor - exact))

    assert off("one path", "AVF") < -0.05
    assert abs(off("FIVO, scored ancestors", "AVF")) < 0.02
