"""JAX's own random numbers, to the bit, for programs on a CPU that draw few of them at a time.

There JAX computes a Threefry hash (Salmon et al. 2011) as a loop of five turns, which compiles
sooner. Each turn is some kernels with arrays between them: for one key they take far longer than
the hash itself, which is a hundred additions and shifts. Here it is written out, so that a compiler
joins it with what is drawn by it.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl, threefry_prng_impl
from jaxtyping import Array, PRNGKeyArray

NAME = "threefry2x32"
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def written_out(key: PRNGKeyArray) -> PRNGKeyArray:
    """Return the same key, by which the same numbers are drawn without loops.

    Keys of other kinds stay as they are, and so do all if JAX was told to number its draws in its
    former way (`jax_threefry_partitionable`).
    """
    config: Any = jax.config
    if not (is_threefry(key) and config.jax_threefry_partitionable):
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=IMPLEMENTATION)


def is_threefry(key: PRNGKeyArray) -> bool:
    """Whether numbers are drawn by Threefry, in JAX's form or in this one."""
    implementation: Any = jax.random.key_impl(key)
    return implementation == IMPLEMENTATION or str(implementation) == NAME


def _hashed(key: Array, high: Array | int, low: Array) -> tuple[Array, Array]:
    """The two words that a key makes of the number that is given as two words."""
    one, two = key[0], key[1]
    schedule = one, two, one ^ two ^ np.uint32(PARITY)
    first, second = one + jnp.asarray(high, jnp.uint32), two + low
    for turn in range(5):
        for bits in ROTATIONS[turn % 2]:
            first = first + second
            second = first ^ _rotated(second, bits)
        first = first + schedule[(turn + 1) % 3]
        second = second + schedule[(turn + 2) % 3] + np.uint32(turn + 1)
    return first, second


def _rotated(word: Array, bits: int) -> Array:
    left = jax.lax.shift_left(word, jnp.asarray(bits, jnp.uint32))
    return left | jax.lax.shift_right_logical(word, jnp.asarray(32 - bits, jnp.uint32))


def _fold_in(key: Array, data: Array | int) -> Array:
    return jax.lax.optimization_barrier(jnp.stack(_hashed(key, 0, jnp.asarray(data, jnp.uint32))))


def _split(key: Array, shape: Sequence[int]) -> Array:
    return jax.lax.optimization_barrier(jnp.stack(_hashed(key, 0, _numbers(shape)), axis=-1))


def _random_bits(key: Array, bit_width: int, shape: Sequence[int]) -> Array:
    first, second = _hashed(key, 0, _numbers(shape))
    if bit_width == 64:
        wide = first.astype(jnp.uint64)
        return jax.lax.shift_left(wide, jnp.asarray(32, jnp.uint64)) | second.astype(jnp.uint64)
    return (first ^ second).astype(f"uint{bit_width}")


def _numbers(shape: Sequence[int]) -> Array:
    """0, 1, 2, ...: the low word of the number of each draw; the high one is 0."""
    size = math.prod(shape)
    if size >= 2**32:
        raise ValueError(f"{size} draws by one key are too many: at most {2**32 - 1}. Split it.")
    return jax.lax.iota(jnp.uint32, size).reshape(shape)


IMPLEMENTATION = define_prng_impl(
    key_shape=threefry_prng_impl.key_shape,
    seed=threefry_prng_impl.seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name=f"{NAME}, written out",
    tag="fry-out",
)
