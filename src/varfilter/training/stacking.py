"""Several learners as one: trees of one structure stacked, so that one program learns them all.

What differs between learners that are stacked are arrays and numbers, never what is computed. A
learning rate inside an optax optimizer is out of reach; `numbered` puts it where it can be stacked.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial

from varfilter._arguments import kind

T = TypeVar("T")


def numbered(
    build: Callable[..., optax.GradientTransformation], *numbers: Any, **named: Any
) -> optax.GradientTransformation:
    """The optimizer `build(*numbers, **named)`, its numbers kept as arrays that can be stacked.

    `numbered(optax.adam, 1e-3)` learns as `optax.adam(1e-3)` does, and its state is the same.
    Learners that are stacked have the same `build`, which must not decide anything by the values;
    what it is to decide by (True, None, a function) is given as that.
    """
    arguments = jax.tree.map(_as_array, (numbers, named))
    return optax.GradientTransformation(
        Partial(_init, build, *arguments), Partial(_update, build, *arguments)
    )


def stacked(trees: Sequence[T]) -> T:
    """Trees of one structure as one, each array with a leading axis: learners, states, keys.

    Numbers that differ become arrays too. All else must be the same in all of them.
    """
    if not trees:
        raise ValueError("`trees` must have at least one tree to stack; got none.")
    first, structure = jax.tree.flatten(trees[0])
    columns = [first]
    for place, tree in enumerate(trees[1:], 1):
        leaves, other = jax.tree.flatten(tree)
        if other != structure:
            raise ValueError(
                f"`trees` must have one structure to be stacked; number {place} has another than"
                " the first: other classes, settings, or parts that are None. Train it by itself."
            )
        columns.append(leaves)
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(trees[0])]
    rows = zip(paths, zip(*columns, strict=True), strict=True)
    # All arrays of all trees at once: one dispatch, where each stack by itself would be one.
    found = [_alike(jax.tree_util.keystr(path), row) for path, row in rows]
    arrays = _stack([row for row in found if isinstance(row, list)])
    places = iter(arrays)
    return structure.unflatten([next(places) if isinstance(row, list) else row for row in found])


def unstacked(tree: T, count: int) -> list[T]:
    """The trees of which `stacked` made one, by one dispatch; `count` is how many they were."""
    leaves, structure = jax.tree.flatten(tree)
    places = [place for place, leaf in enumerate(leaves) if eqx.is_array(leaf)]
    found = []
    for arrays in _unstack([leaves[place] for place in places], count):
        own = list(leaves)
        for place, array in zip(places, arrays, strict=True):
            own[place] = array
        found.append(structure.unflatten(own))
    return found


def _init(build: Any, numbers: Any, named: Any, parameters: Any) -> Any:
    return build(*numbers, **named).init(parameters)


def _update(
    build: Any, numbers: Any, named: Any, gradient: Any, state: Any, parameters: Any = None
) -> Any:
    return build(*numbers, **named).update(gradient, state, parameters)


def _as_array(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number:
        return value
    return jnp.asarray(value, jnp.int32 if isinstance(value, int) else jnp.result_type(float))


def _alike(name: str, row: tuple[Any, ...]) -> Any:
    """What stands in the place of a leaf: a list to be stacked, or the value that all have."""
    if all(eqx.is_array(leaf) for leaf in row):
        shapes = {(leaf.shape, leaf.dtype) for leaf in row}
        if len(shapes) > 1:
            shape, dtype = next(each for each in shapes if each != (row[0].shape, row[0].dtype))
            raise ValueError(
                f"`trees` must have arrays of one shape to be stacked; `{name}` is"
                f" {row[0].dtype}{list(row[0].shape)} in the first and {dtype}{list(shape)} in"
                " another. Models of other sizes are trained by themselves."
            )
        return list(row)
    if all(type(leaf) is type(row[0]) and leaf == row[0] for leaf in row):
        return row[0]
    arrays = [_as_array(leaf) for leaf in row]
    if all(eqx.is_array(leaf) for leaf in arrays):
        dtype = jnp.result_type(*(leaf.dtype for leaf in arrays))
        return [leaf.astype(dtype) for leaf in arrays]
    other = next(leaf for leaf in row if leaf != row[0])
    raise ValueError(
        f"`trees` may differ in arrays and numbers; `{name}` is {kind(row[0])} in the first and"
        f" {kind(other)} in another, which is another program. Optimizers that differ in numbers"
        " are made by `numbered(optax.adam, 1e-3)`."
    )


@jax.jit
def _stack(rows: list[list[Any]]) -> list[Any]:
    return [jnp.stack(row) for row in rows]


@functools.partial(jax.jit, static_argnums=1)
def _unstack(arrays: list[Any], count: int) -> list[list[Any]]:
    return [[array[place] for array in arrays] for place in range(count)]
