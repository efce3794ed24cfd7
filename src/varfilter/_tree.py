"""Small tools on pytrees: arrays beside functions and static fields, shapes alone, many as one."""

import functools
from collections.abc import Callable, Sequence
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


def at_place(tree: T, place: Any) -> T:
    """The tree at one place of those that `stacked` made one, which may be an array itself."""
    return jax.tree.map(lambda leaf: leaf[place] if eqx.is_array(leaf) else leaf, tree)


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


def as_array(value: Any) -> Any:
    """A Python number as an array; all else as it is."""
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
    arrays = [as_array(leaf) for leaf in row]
    if all(eqx.is_array(leaf) for leaf in arrays):
        dtype = jnp.result_type(*(leaf.dtype for leaf in arrays))
        return [leaf.astype(dtype) for leaf in arrays]
    other = next(leaf for leaf in row if leaf != row[0])
    raise ValueError(
        f"`trees` may differ in arrays and numbers; `{name}` is {row[0]!r} in the first and"
        f" {other!r} in another, which is another program. Optimizers that differ in numbers"
        " are made by `numbered(optax.adam, 1e-3)`."
    )


@jax.jit
def _stack(rows: list[list[Any]]) -> list[Any]:
    return [jnp.stack(row) for row in rows]


@functools.partial(jax.jit, static_argnums=1)
def _unstack(arrays: list[Any], count: int) -> list[list[Any]]:
    return [[array[place] for array in arrays] for place in range(count)]
