"""Small tools on pytrees: arrays beside functions and static fields, and their shapes alone."""

import functools
from collections.abc import Callable
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


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Whether no float of `tree` is infinite or NaN."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in leaves]
    return jnp.all(jnp.stack(finite)) if finite else jnp.array(True)


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


class Signature:
    """A tree with its arrays replaced by shapes: all that a check by shape depends on.

    It can be compared and hashed (unless the tree holds something that cannot), so that modules
    of one signature are checked once, however often their parameters change, and so that a
    module may keep one as a static field.
    """

    def __init__(self, tree: Any):
        leaves, self.treedef = jax.tree.flatten(tree)
        self.leaves = tuple(_shape(leaf) if eqx.is_array(leaf) else leaf for leaf in leaves)
        self.types = tuple(type(leaf) for leaf in self.leaves)  # 1, 1.0 and True are equal
        self.dtype = jnp.result_type(float)  # x64 or not

    @property
    def shapes(self) -> Any:
        """The tree again, as shapes."""
        return self.treedef.unflatten(self.leaves)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signature) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple:
        return self.treedef, self.leaves, self.types, self.dtype


def once_per_signature(check: Callable[..., T]) -> Callable[..., T]:
    """Remember what `check` returned for modules of the same structure, shapes and settings."""

    @functools.lru_cache(maxsize=256)
    def by_signature(signature: Signature) -> T:
        return check(*signature.shapes)

    @functools.wraps(check)
    def wrapped(*modules: Any) -> T:
        signature = Signature(modules)
        try:
            hash(signature)
        except TypeError:  # say, a list in a static field
            return check(*modules)
        return by_signature(signature)

    return wrapped


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=getattr(leaf, "weak_type", False))
