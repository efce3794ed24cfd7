"""Decisions for a whole batch stay decisions under vmap, jit and grad."""

import jax
import jax.numpy as jnp
import numpy as np

from varfilter._batch import all_of_batch, any_of_batch, if_any


def test_any_and_all_are_over_every_vmapped_axis():
    flags = jnp.array([[False, False], [True, False]])
    for vmapped in (jax.vmap(jax.vmap(any_of_batch)), jax.jit(jax.vmap(jax.vmap(any_of_batch)))):
        np.testing.assert_array_equal(vmapped(flags), np.ones((2, 2), bool))
        np.testing.assert_array_equal(vmapped(jnp.zeros((2, 2), bool)), np.zeros((2, 2), bool))
    np.testing.assert_array_equal(jax.vmap(all_of_batch)(jnp.array([True, False])), [False] * 2)
    np.testing.assert_array_equal(jax.vmap(all_of_batch)(jnp.array([True, True])), [True] * 2)
    assert bool(any_of_batch(jnp.array(True)))
    assert not bool(all_of_batch(jnp.array(False)))


def test_one_side_is_computed_for_the_whole_batch():
    """The sides differ here on purpose, to see which was taken; and the gradient is its own."""

    def root(x):
        return if_any(x < 0, lambda: 0.0 * x, lambda: jnp.sqrt(x))

    both = jax.jit(jax.vmap(jax.value_and_grad(root)))
    values, slopes = both(jnp.array([1.0, 4.0]))
    np.testing.assert_allclose(values, [1.0, 2.0])
    np.testing.assert_allclose(slopes, [0.5, 0.25])
    values, slopes = both(jnp.array([-1.0, 4.0]))
    np.testing.assert_array_equal(values, [0.0, 0.0])
    np.testing.assert_array_equal(slopes, [0.0, 0.0])
    slope = jax.grad(lambda scale: jnp.sum(jax.vmap(root)(scale * jnp.array([1.0, 4.0]))))(1.0)
    np.testing.assert_allclose(slope, 1.5)
