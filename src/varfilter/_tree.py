"""Small tools on pytrees that may hold functions and static fields beside arrays."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

T = TypeVar("T")


def detach(tree: T) -> T:
    """Cut every array of `tree` from the gradient (`lax.stop_gradient` rejects functions)."""
    return jax.tree.map(
        lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, tree
    )


def select(condition: Bool[Array, ""], if_true: T, if_false: T) -> T:
    """Take `if_true` where the scalar `condition` holds, else `if_false`, leaf by leaf."""
    return jax.tree.map(
        lambda a, b: jnp.where(condition, a, b) if eqx.is_array(a) else a, if_true, if_false
    )


def strong(tree: T) -> T:
    """Give each weakly typed array of `tree` (as `jnp.full((2,), 0.1)` is) a definite type.

    A step or an update returns definite types; given weak ones it would be compiled a second
    time as soon as its own result comes back to it.
    """
    return jax.tree.map(
        lambda leaf: leaf.astype(leaf.dtype) if getattr(leaf, "weak_type", False) else leaf, tree
    )


def flat(tree: PyTree) -> Float[Array, " size"]:
    """Join all float arrays of `tree`, one after another, to one vector."""
    leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]
    return jnp.concatenate(leaves) if leaves else jnp.zeros((0,))


def flat_size(tree: PyTree) -> int:
    """The length of `flat(tree)`; `tree` may hold shapes instead of arrays."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree) if _is_float(leaf))


def _is_float(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
