"""The structure of what a program returns, as JSON: another process puts its own arrays into it."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from varfilter._programs.identity import Unknown, name_of, value_named

PLAIN = (bool, int, float, str, type(None))


def taken_apart(tree: Any) -> tuple[Any, list[Any]]:
    """The structure of a tree of modules, tuples, lists and dictionaries, and its arrays in order.

    Keys are given as their data, for a program's results are plain numbers.
    """
    arrays: list[Any] = []

    def structure(node: Any, *, is_static: bool = False) -> Any:
        if type(node) in PLAIN:
            return {"plain": node}
        if is_static and eqx.is_array(node):
            raise Unknown("an array that is no result")
        if isinstance(node, jax.ShapeDtypeStruct):
            arrays.append(node)
            return {"numbers": None}
        if eqx.is_array(node):
            key: Any = None
            if jnp.issubdtype(node.dtype, jax.dtypes.prng_key):
                key, node = str(jax.random.key_impl(node)), jax.random.key_data(node)
            arrays.append(node)
            return {"numbers": key}
        if type(node) in (tuple, list):
            parts = [structure(each, is_static=is_static) for each in node]
            return {type(node).__name__: parts}
        if type(node) is dict and all(type(name) is str for name in node):
            return {"dict": {name: structure(each) for name, each in node.items()}}
        if (name := name_of(node)) is not None:
            return {"name": name}
        if (name := name_of(type(node))) is None:
            raise Unknown(repr(type(node)))
        if isinstance(node, tuple) and hasattr(node, "_fields"):
            return {"named tuple": name, "fields": [structure(each) for each in node]}
        if isinstance(node, eqx.Module):
            parts = {
                field.name: structure(
                    getattr(node, field.name), is_static=field.metadata.get("static", False)
                )
                for field in dataclasses.fields(node)
                if hasattr(node, field.name)
            }
            return {"module": name, "fields": parts}
        raise Unknown(repr(type(node)))

    return structure(tree), arrays


def put_together(structure: Any, arrays: list[Any]) -> Any:
    """The tree that was `taken_apart`, with other arrays."""
    rest = iter(arrays)

    def tree(node: Any) -> Any:
        match node:
            case {"plain": value}:
                return value
            case {"numbers": None}:
                return next(rest)
            case {"numbers": key}:
                return jax.random.wrap_key_data(next(rest), impl=key)
            case {"tuple": parts}:
                return tuple(tree(each) for each in parts)
            case {"list": parts}:
                return [tree(each) for each in parts]
            case {"dict": parts}:
                return {name: tree(each) for name, each in parts.items()}
            case {"name": name}:
                return value_named(name)
            case {"named tuple": name, "fields": parts}:
                return value_named(name)(*(tree(each) for each in parts))
            case {"module": name, "fields": parts}:
                # As JAX puts modules together: what they check was checked when it was traced.
                made = object.__new__(value_named(name))
                for field, each in parts.items():
                    object.__setattr__(made, field, tree(each))
                return made
        raise Unknown(repr(node))

    return tree(structure)
