"""Checks by shape, made once for all modules of one structure."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

T = TypeVar("T")


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


def _shape(leaf: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=getattr(leaf, "weak_type", False))
