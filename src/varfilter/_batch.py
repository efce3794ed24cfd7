"""One decision for a whole batch: `vmap` would compute both sides of a condition for each of it."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

T = TypeVar("T")


@jax.custom_batching.custom_vmap
def any_of_batch(flag: Bool[Array, "*shape"]) -> Bool[Array, "*shape"]:
    """Whether `flag` holds for anything that is computed beside it, under any number of vmaps."""
    return flag


@any_of_batch.def_vmap
def _any_of_batch(
    axis_size: int, in_batched: list[bool], flag: Bool[Array, "batch *shape"]
) -> tuple[Bool[Array, "*shape"], bool]:
    return any_of_batch(jnp.any(flag, axis=0)), False


def all_of_batch(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether `flag` holds for everything that is computed beside it."""
    return ~any_of_batch(~flag)


def if_any(flag: Bool[Array, ""], careful: Callable[[], T], quick: Callable[[], T]) -> T:
    """Compute `careful()` if `flag` holds anywhere in the batch, and `quick()` if nowhere.

    Where `flag` does not hold, both must give the same.
    """
    return jax.lax.cond(any_of_batch(flag), careful, quick)
