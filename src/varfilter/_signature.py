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
    """Modules with their arrays replaced by shapes: all that a check by shape depends on.

    Hashable (unless a module holds something that is not), so that modules of one signature
    are checked once, however often their parameters change.
    """

    def __init__(self, modules: Any):
        leaves, self.treedef = jax.tree.flatten(modules)
        self.leaves = tuple(_shape(leaf) if eqx.is_array(leaf) else leaf for leaf in leaves)
        self.types = tuple(type(leaf) for leaf in self.leaves)  # 1, 1.0 and True are equal
        self.dtype = jnp.result_type(float)  # x64 or not

    @property
    def modules(self) -> Any:
        """The modules again, as shapes."""
        return self.treedef.unflatten(self.leaves)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Signature) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple:
        return self.treedef, self.leaves, self.types, self.dtype


def once_per_signature(check: Callable[..., T]) -> Callable[..., T]:
    """`check(*modules)`, remembered for modules of the same structure, shapes and settings."""

    @functools.lru_cache(maxsize=256)
    def by_signature(signature: Signature) -> T:
        return check(*signature.modules)

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
