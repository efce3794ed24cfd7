"""Numbers that are drawn without loops are those that JAX draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from varfilter._threefry import is_threefry, written_out
from varfilter.filters.particle import particle_keys
from worlds import KEY, assert_same_bits


def data(keys):
    return jax.random.key_data(keys)


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: data(jax.random.fold_in(key, 7)),
        lambda key: data(jax.random.fold_in(key, 2**32 - 1)),
        lambda key: data(jax.random.split(key)),
        lambda key: data(jax.random.split(key, (2, 3))),
        lambda key: jax.random.bits(key, (5,), "uint8"),
        lambda key: jax.random.bits(key, (), "uint16"),
        lambda key: jax.random.bits(key, (2, 3), "uint32"),
        lambda key: jax.random.normal(key, (0,)),
        lambda key: jax.random.normal(key, (3, 5)),
        lambda key: jax.vmap(lambda k: jax.random.uniform(k, (4,)))(jax.random.split(key, 3)),
        lambda key: data(particle_keys(key, 5)),
        lambda key: jax.random.categorical(key, jnp.zeros(3), shape=(9,)),
    ],
    ids=[
        "fold in", "the largest", "split", "split to a shape", "8 bits", "16 bits", "32 bits",
        "nothing", "normal", "a key each", "particles", "categorical",
    ],
)  # fmt: skip
def test_the_numbers_are_those_of_jax(draw):
    for key in (KEY, jax.random.key(2**31 - 5)):
        assert_same_bits(jax.jit(draw)(written_out(key)), jax.jit(draw)(key))


def test_double_precision():
    with jax.enable_x64(True):
        for shape in ((), (3, 2)):
            ours = jax.random.normal(written_out(KEY), shape, "float64")
            assert_same_bits(ours, jax.random.normal(KEY, shape, "float64"))
            assert ours.dtype == np.float64


def test_other_keys_stay_as_they_are():
    other = jax.random.key(0, impl="rbg")
    assert written_out(other) is other
    assert not is_threefry(other)
    assert is_threefry(KEY)
    assert is_threefry(written_out(KEY))
    assert_same_bits(data(written_out(written_out(KEY))), data(KEY))
    with jax.threefry_partitionable(False):
        assert written_out(KEY) is KEY
