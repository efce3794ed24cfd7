"""One covariance recursion for all complete sequences gives the numbers of the filter's steps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
import worlds
from varfilter.filtering import filter_steps
from varfilter.filters.riccati import sweep
from worlds import KEY, relative_distance, with_gaps

# Covariances of a dozen steps with condition numbers near 10, in float64: three digits left.
TIGHT = 1e-10
WORLDS = {
    "plain": worlds.linear_gaussian,
    "inputs": worlds.driven_gaussian,
    "large": lambda: worlds.linear_gaussian(latent=20, size=6),  # LAPACK's factorisation
    "feedback": lambda: vf.LinearGaussian(
        **worlds.linear_gaussian_parameters(), feedback=0.3 * np.ones((3, 2))
    ),
}


@eqx.filter_jit
def by_steps(model, xs, us=None, mask=None, belief=None):
    """The numbers of the square-root steps, one after another."""
    belief = vf.start(vf.KalmanFilter(), model) if belief is None else belief
    mask = jnp.ones(len(xs), bool) if mask is None else mask
    last, (filtered, _) = filter_steps(vf.KalmanFilter(), model, belief, xs, us, mask, KEY)
    return last, filtered


def first_steps(tree, count):
    return jax.tree.map(lambda leaf: leaf[:count], tree)


@eqx.filter_jit
def holds(model, xs, us, mask):
    """Whether the recursion is used at all, and not the steps."""
    return sweep(model, model.init(), xs, us, mask).holds


@pytest.mark.parametrize(
    "name",
    [
        # The batches below are of it.
        pytest.param("plain", marks=pytest.mark.slow),
        pytest.param("inputs", marks=pytest.mark.slow),
        pytest.param("large", marks=pytest.mark.slow),
        "feedback",
    ],
)
def test_a_complete_sequence_with_padding(name):
    with jax.enable_x64(True):
        model = WORLDS[name]()
        xs, us = worlds.observations(model, 12), worlds.known_inputs(model, 12)
        mask = np.arange(12) < 10
        padded = np.where(mask[:, None], xs, np.nan)
        found = vf.run(vf.KalmanFilter(), model, padded, us=us, mask=mask, ahead=True)
        steps = by_steps(model, jnp.asarray(xs), us, jnp.asarray(mask))
        known = None if us is None else jnp.asarray(us)
        # Or the first would be the second.
        assert holds(model, jnp.asarray(xs), known, jnp.asarray(mask))
        assert relative_distance(found[0], steps[0]) < TIGHT
        assert int(found[0].t) == 10
        ours, theirs = first_steps(found[1], 10), first_steps(steps[1], 10)
        assert relative_distance(ours, theirs) < TIGHT
        np.testing.assert_array_equal(found[1].bound[10:], 0.0)


def test_two_chunks_are_one():
    with jax.enable_x64(True):
        model = worlds.driven_gaussian()
        xs, us = worlds.observations(model, 12), worlds.known_inputs(model, 12)
        whole = vf.run(vf.KalmanFilter(), model, xs, us=us, ahead=True)
        half, _ = vf.run(vf.KalmanFilter(), model, xs[:5], us=us[:5], ahead=True)
        last, rest = vf.run(vf.KalmanFilter(), model, xs[5:], us=us[5:], belief=half, ahead=True)
        assert relative_distance(last, whole[0]) < TIGHT
        np.testing.assert_allclose(rest.bound, whole[1].bound[5:], rtol=TIGHT)


@pytest.mark.parametrize("spoiled", ["nothing", "gap", "outlier", "hole"])
def test_each_sequence_of_a_batch_is_filtered_as_on_its_own(spoiled):
    """The whole batch takes the careful way where one of it needs it, with the same numbers."""
    with jax.enable_x64(True):
        model = worlds.linear_gaussian()
        batch = np.stack([worlds.observations(model, 10, seed) for seed in (3, 4, 5)])
        mask = np.ones((3, 10), bool)
        if spoiled == "gap":
            batch[1] = with_gaps(batch[1])
        if spoiled == "outlier":
            batch[1, 4, 0] = 1e30
        if spoiled == "hole":
            mask[1, 4] = False

        def one(xs, mask):
            return vf.run(vf.KalmanFilter(), model, xs, mask=mask, ahead=True)

        found = eqx.filter_jit(jax.vmap(one))(jnp.asarray(batch), jnp.asarray(mask))
        for k in range(3):
            alone = by_steps(model, jnp.asarray(batch[k]), mask=jnp.asarray(mask[k]))
            assert relative_distance(jax.tree.map(lambda leaf, k=k: leaf[k], found), alone) < TIGHT


def test_no_covariance_depends_on_what_is_observed():
    """`out_axes=None` refuses whatever differs between the sequences of a batch."""
    model = worlds.linear_gaussian()
    batch = jnp.asarray(np.stack([worlds.observations(model, 6, seed) for seed in (3, 4)]))

    def roots(xs):
        swept = sweep(model, model.init(), xs, None, jnp.ones(6, bool))
        return swept.priors.factor, swept.posteriors.factor, swept.predictions.factor

    def means(xs):
        return sweep(model, model.init(), xs, None, jnp.ones(6, bool)).priors.mean

    # Seen while it is traced: nothing is compiled for it.
    jax.eval_shape(jax.vmap(roots, out_axes=None), batch)
    with pytest.raises(ValueError, match="out_axes"):
        jax.eval_shape(jax.vmap(means, out_axes=None), batch)


@pytest.mark.parametrize("name", ["plain", pytest.param("large", marks=pytest.mark.slow)])
def test_gradients_are_those_of_the_steps(name):
    with jax.enable_x64(True):
        model = WORLDS[name]()
        xs = jnp.asarray(worlds.observations(model, 8))

        def ours(model):
            return jnp.sum(vf.run(vf.KalmanFilter(), model, xs, ahead=True)[1].bound)

        gradient = eqx.filter_jit(eqx.filter_grad(ours))(model)
        step_by_step = eqx.filter_grad(lambda model: jnp.sum(by_steps(model, xs)[1].bound))
        steps = eqx.filter_jit(step_by_step)(model)
        assert relative_distance(gradient, steps) < 1e-9


def test_a_wide_first_covariance_is_left_to_square_roots():
    """P_1 / R = 10^8: a covariance in float32 would keep no digit of the first posterior."""
    parameters = {
        "transition": np.eye(2) + 0.01 * np.eye(2, k=1),
        "process_covariance": 1e-6 * np.eye(2),
        "loading": np.ones((1, 2)),
        "noise_covariance": [[1e-4]],
        "initial_covariance": 1e4 * np.eye(2),
    }
    xs = 3.0 + np.cumsum(0.01 * np.random.default_rng(0).normal(size=(200, 1)), axis=0)
    spreads = []
    for precise in (False, True):
        with jax.enable_x64(precise):
            model = vf.LinearGaussian(**parameters)
            posterior = vf.run(vf.KalmanFilter(), model, xs, ahead=True)[1].posterior
            spreads.append(np.sqrt(jax.vmap(lambda q: q.variance)(posterior)))
    # The root has a condition of 10^4: some 10^4 roundings of 6e-8 at first, and few later on.
    np.testing.assert_allclose(spreads[0], spreads[1], rtol=5e-3)
    np.testing.assert_allclose(spreads[0][100:], spreads[1][100:], rtol=1e-3)
