"""Learning, number by number: each gradient, each step of phi, and the weight of the KL."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
from varfilter.inference import Exact, MLPPosterior
from varfilter.learning import time_parallel
from varfilter.learning.state import Sequences
from worlds import (
    KEY,
    PlainNormal,
    assert_same_bits,
    deep_markov,
    linear_gaussian,
    observations,
    relative_distance,
    vector,
    with_gaps,
)

# An optimizer that stands still and keeps the gradient as its state: `theta_state` and
# `phi_state` then are what the learner differentiated.
KEEP = optax.GradientTransformation(
    lambda parameters: jax.tree.map(jnp.zeros_like, parameters),
    lambda gradient, state, parameters=None: (jax.tree.map(jnp.zeros_like, gradient), gradient),
)
# The same, adding the gradients up.
ADD = optax.GradientTransformation(
    KEEP.init,
    lambda gradient, state, parameters=None: (
        jax.tree.map(jnp.zeros_like, gradient),
        jax.tree.map(jnp.add, state, gradient),
    ),
)


def batch_of_two(model, num_steps=5):
    """(xs, mask): two sequences with missing elements, the second two steps shorter."""
    xs = np.stack([with_gaps(observations(model, num_steps, seed)) for seed in (1, 2)])
    return xs, np.stack([np.ones(num_steps, bool), np.arange(num_steps) < num_steps - 2])


# End to end


@pytest.mark.parametrize("bound", ["amortized", pytest.param("iwae", marks=pytest.mark.slow)])
def test_end_to_end_gradient_is_the_derivative_of_the_summed_bound(bound):
    """By central differences of the bound written out here, with common random numbers."""
    with jax.enable_x64(True):
        model = deep_markov(size=3)
        inference = vf.Amortized(
            MLPPosterior(model, hidden_size=4, num_layers=1, key=jax.random.key(3))
        )
        if bound == "amortized":
            filter = vf.VariationalFilter(inference, num_samples=2)
        else:
            # Without resampling: the gradient of FIVO leaves out the choice of ancestors.
            filter = vf.ParticleFilter(inference, 3, resample_below=0.0)
        xs, mask = batch_of_two(model)
        learner = vf.EndToEnd(theta=KEEP, phi=KEEP)
        learning, metrics = learner.update(learner.init(model, filter), xs, KEY, mask=mask)

        @eqx.filter_jit
        def negative_bound(model, filter):
            total = jnp.zeros(())
            for index, key in enumerate(jax.random.split(KEY, 2)):
                length = int(mask[index].sum())
                total -= vf.run(filter, model, xs[index, :length], key)[1].bound.sum()
            return total / float(mask.sum())

        value = float(negative_bound(model, filter))
        np.testing.assert_allclose(metrics.free_energy, value, rtol=1e-12)
        for turn, gradient in enumerate((learning.theta_state, learning.phi_state)):
            modules = [model, filter]
            parameters, static = eqx.partition(modules[turn], eqx.is_inexact_array)
            direction = jax.tree.map(
                lambda leaf: jnp.asarray(np.random.default_rng(leaf.size).normal(size=leaf.shape)),
                parameters,
            )
            ends = []
            for step in (-1e-6, 1e-6):
                moved = jax.tree.map(lambda p, d, s=step: p + s * d, parameters, direction)
                modules[turn] = eqx.combine(moved, static)
                ends.append(float(negative_bound(*modules)))
            slope = vector(gradient) @ vector(direction)
            # h^2 = 1e-12 of curvature, and 1e-15 / h = 1e-9 of rounding, on slopes of order one.
            np.testing.assert_allclose((ends[1] - ends[0]) / 2e-6, slope, rtol=1e-6, atol=1e-7)


# Time-parallel


@pytest.fixture(scope="module")
def avf():
    """(model, filter, xs): four complete sequences of three steps."""
    model = deep_markov(size=3)
    inference = vf.Iterative(model, hidden_size=4, num_layers=1, num_iterations=2, key=KEY)
    xs = np.stack([observations(model, 3, seed) for seed in range(4)])
    return model, vf.VariationalFilter(inference), xs


def test_slices_of_phi_use_every_problem_once(avf):
    """While phi stands still, the gradients of the slices average to that of all problems."""
    model, filter, xs = avf
    whole = vf.TimeParallel(theta=None, phi=KEEP, num_phi_steps=1)
    sliced = vf.TimeParallel(theta=None, phi=ADD, num_phi_steps=4)
    want, _ = whole.update(whole.init(model, filter), xs, KEY)
    got, metrics = sliced.update(sliced.init(model, filter), xs, KEY)
    mean = jax.tree.map(lambda leaf: leaf / 4, got.phi_state)
    # The same terms in another order: a dozen roundings of 6e-8.
    assert relative_distance(mean, want.phi_state) < 1e-5
    assert float(metrics.phi_gradient_norm) > 0


def test_several_phi_steps_are_as_many_steps_by_hand(avf):
    """Each on its own slice, from where the step before it left phi and its optimizer."""
    model, filter, xs = avf
    adam = optax.adam(1e-2)
    learner = vf.TimeParallel(theta=None, phi=adam, num_phi_steps=3)
    learning, _ = learner.update(learner.init(model, filter), xs, KEY)

    key_filter, key_slices = jax.random.split(KEY)
    batch = Sequences(jnp.asarray(xs), jnp.ones(xs.shape[:2], bool), None)
    one = jnp.ones(())

    @eqx.filter_jit
    def slices():
        problems, _, _ = time_parallel.record_problems(
            model, filter, batch, key_filter, one, complete=False
        )
        _, scored = time_parallel.theta_gradients(model, filter, None, problems, one)
        return time_parallel._random_slices((problems, scored), 3, key_slices)

    gradients = eqx.filter_jit(time_parallel.phi_gradients)
    pieces, state = slices(), adam.init(eqx.filter(filter, eqx.is_inexact_array))
    for index in range(3):
        problems, scored = jax.tree.map(lambda leaf, i=index: leaf[i], pieces)
        gradient = gradients(filter, model, problems, scored, one)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            step, state = adam.update(gradient, state)
        filter = eqx.apply_updates(filter, step)
    # Adam divides by the root of a square, so a gradient near zero passes its roundings on; the
    # steps are 0.01, and ten roundings of parameters of order one are 1e-6.
    np.testing.assert_allclose(vector(learning.filter), vector(filter), atol=2e-5)


class PlainHead(eqx.Module):
    """A head whose log-probability overflows, as those of the library do not."""

    mean: eqx.nn.Linear

    def __init__(self, in_size, shape, *, key):
        self.mean = eqx.nn.Linear(in_size, shape[0], key=key)

    def __call__(self, hidden):
        return PlainNormal(self.mean(hidden))


def test_only_the_slices_with_a_non_finite_gradient_are_skipped(avf):
    """One bad observation: theta's one step and one step of phi out of twelve are lost.

    For theta the gradient overflows; for phi it is finite, but its square, which Adam would
    keep for ever, is not.
    """
    _, _, xs = avf
    model = vf.DeepMarkov(3, 2, hidden_size=8, num_layers=1, head=PlainHead, key=KEY)
    inference = vf.Iterative(model, hidden_size=4, num_layers=1, num_iterations=2, key=KEY)
    adam = optax.adam(1e-2)
    learner = vf.TimeParallel(theta=adam, phi=adam, num_phi_steps=12)
    before = learner.init(model, vf.VariationalFilter(inference))
    bad = xs.copy()
    bad[1, 2, 0] = 1e30  # the last step of its sequence, so no other problem depends on it
    after, metrics = learner.update(before, bad, KEY)
    assert int(metrics.num_skipped) == int(after.num_skipped) == 2
    assert int(after.last_skipped) == 0
    assert_same_bits(after.model, before.model)
    assert_same_bits(after.theta_state, before.theta_state)
    assert np.isfinite(vector((after.filter, after.phi_state))).all()
    assert relative_distance(after.filter, before.filter) > 0
    again, metrics = learner.update(after, xs, KEY)
    assert int(metrics.num_skipped) == 0
    assert (int(again.num_updates), int(again.num_skipped), int(again.last_skipped)) == (2, 2, 0)
    assert relative_distance(again.model, before.model) > 0


# The weight of the KL


def test_the_kl_weight_weighs_the_kl_and_nothing_else():
    """F = reconstruction + weight * KL, at a q that does not depend on the weight."""
    model = linear_gaussian()
    xs = with_gaps(observations(model, 5))
    filter = vf.VariationalFilter(Exact())
    runs = {w: vf.run(filter, model, xs, KEY, kl_weight=w)[1] for w in (0.0, 0.3, 1.0)}
    full = runs[1.0].info
    for weight, filtered in runs.items():
        expected = full.reconstruction + weight * full.kl
        np.testing.assert_allclose(-filtered.bound, expected, rtol=1e-5, atol=1e-5)


def test_the_kl_weight_reaches_gradients_and_metrics(avf):
    """The gradient is linear in the weight where q is held fixed: here q = p, so it vanishes."""
    model, _, xs = avf
    learner = vf.TimeParallel(theta=KEEP, phi=KEEP, num_phi_steps=1)
    iterative = vf.VariationalFilter(vf.Iterative(model, hidden_size=4, num_layers=1, key=KEY))
    results = {}
    for weight in (0.0, 1.0):
        learning, metrics = learner.update(
            learner.init(model, iterative), xs, KEY, kl_weight=weight
        )
        parts = metrics.reconstruction + weight * metrics.kl
        np.testing.assert_allclose(metrics.free_energy, parts, rtol=1e-5)
        results[weight] = learning
    # Without a KL nothing pulls the log-variances of the transition towards q.
    without, with_kl = (results[w].theta_state.transition.log_var.weight for w in (0.0, 1.0))
    np.testing.assert_array_equal(without, 0.0)
    assert np.abs(with_kl).max() > 0
    assert relative_distance(results[0.0].phi_state, results[1.0].phi_state) > 0.01
