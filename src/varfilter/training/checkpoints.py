"""Checkpoints of training: written whole or not at all, read back to the bit, or refused."""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from varfilter import _saved
from varfilter._arguments import require_positive
from varfilter.contracts import tree_difference

CHECKPOINT = _saved.Kind("checkpoint")
# Parts of arrays' names that were called otherwise in earlier versions: (then, now).
RENAMED_PARTS = (
    (".prior_mean.", ".prior_head.mean."),
    (".prior_log_var.", ".prior_head.log_var."),
)
T = TypeVar("T")

NAME = re.compile(r"step-(\d{9,})\.safetensors")


class Checkpoint(NamedTuple):
    """A tree of arrays as it was at `step`, and what its run says of itself (plain JSON)."""

    state: Any
    step: int
    manifest: dict[str, Any]


def save_checkpoint(path: str | Path, checkpoint: Checkpoint, *, is_half: bool = False) -> None:
    """Write one file; what is at `path` stays until the new one is complete.

    Each array is stored under its name in the tree (`.model.lstm.weight`), so that it can be
    found again after classes have moved or fields changed places. What is no array is not
    stored: `load_checkpoint` takes it from a tree like this one.

    With `is_half`, arrays of single precision are stored in half: a model to be handed on.
    """
    arrays, implementations, halved = {}, {}, []
    for name, leaf in _named_arrays(checkpoint.state).items():
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            implementations[name] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
        arrays[name] = np.asarray(leaf)
        if is_half and arrays[name].dtype == np.float32:
            arrays[name] = _halved(name, arrays[name])
            halved.append(name)
    header = {
        "step": str(checkpoint.step),
        "manifest": json.dumps(checkpoint.manifest),
        "keys": json.dumps(implementations),
        **({"halved": json.dumps(halved)} if halved else {}),
    }
    _saved.write(path, CHECKPOINT, arrays, header)


def on_host(state: T) -> T:
    """Copy the arrays of a tree from the device, to be written while that goes on."""
    leaves, tree = jax.tree.flatten(state)
    places = [
        place
        for place, leaf in enumerate(leaves)
        if eqx.is_array(leaf) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    ]
    for place, leaf in zip(places, jax.device_get([leaves[p] for p in places]), strict=True):
        leaves[place] = leaf
    return tree.unflatten(leaves)


def load_checkpoint(path: str | Path, like: Any) -> Checkpoint:
    """Read what `save_checkpoint` wrote into a tree of the structure and shapes of `like`.

    It may hold shapes (`jax.ShapeDtypeStruct`) in place of its arrays.
    Checkpoints of earlier versions load too, where only names changed since (`RENAMED_PARTS`).
    """
    header, arrays = _saved.read(path, CHECKPOINT)
    leaves: dict[str, Any] = dict(arrays)
    for name in json.loads(header.get("halved", "[]")):
        leaves[name] = arrays[name].astype(np.float32)
    for name, implementation in json.loads(header["keys"]).items():
        leaves[name] = jax.random.wrap_key_data(jnp.asarray(arrays[name]), impl=implementation)
    wanted = _named_arrays(like)
    leaves = {
        name if name in wanted else _present_name(name): leaf for name, leaf in leaves.items()
    }
    if difference := tree_difference(wanted, leaves):
        raise ValueError(
            f"{str(path)!r} is of another model, filter or optimizer: {difference}."
            " Load it with the settings it was saved with, which are in its manifest."
        )
    old, tree = jax.tree.flatten(like)
    names = iter(wanted)
    # `jnp.asarray` would compile a program for each shape.
    placed = jax.device_put(leaves)
    new = [placed[next(names)] if _is_array(leaf) else leaf for leaf in old]
    return Checkpoint(tree.unflatten(new), int(header["step"]), json.loads(header["manifest"]))


def read_manifest(path: str | Path) -> dict[str, Any]:
    """Read what a checkpoint's run says of itself, without a tree to load it into."""
    return json.loads(_saved.read(path, CHECKPOINT)[0]["manifest"])


def keep_checkpoint(folder: str | Path, checkpoint: Checkpoint, *, num_kept: int = 3) -> Path:
    """Write the checkpoint of a step into `folder`, and delete all but the newest `num_kept`."""
    require_positive("num_kept", num_kept)
    path = Path(folder) / f"step-{checkpoint.step:09}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(path, checkpoint)
    for _, old in kept_checkpoints(folder)[num_kept:]:
        old.unlink(missing_ok=True)
    return path


def kept_checkpoints(folder: str | Path) -> list[tuple[int, Path]]:
    """List (step, path) of the checkpoints in `folder`, the newest first."""
    found = [(NAME.fullmatch(path.name), path) for path in Path(folder).glob("step-*.safetensors")]
    return sorted(((int(m[1]), path) for m, path in found if m), reverse=True)


def newest_checkpoint(
    folder: str | Path, like: Any, *, at_most: int | None = None
) -> tuple[Checkpoint | None, list[str]]:
    """Load the newest checkpoint that is whole (or None), and say why newer ones were refused.

    Those of steps beyond `at_most` are not looked at.
    A file that was cut short, or damaged, or is of something else costs the steps since the
    one before it, not the run.
    """
    refused = []
    for step, path in kept_checkpoints(folder):
        if at_most is not None and step > at_most:
            continue
        try:
            checkpoint = load_checkpoint(path, like)
            if checkpoint.step != step:
                raise ValueError(f"{str(path)!r} holds step {checkpoint.step}: it was renamed.")
        except (ValueError, OSError) as error:
            refused.append(str(error))
            continue
        return checkpoint, refused
    return None, refused


def _halved(name: str, array: np.ndarray) -> np.ndarray:
    """An array in half precision; an error if it has numbers beyond what that holds."""
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    if not np.array_equal(np.isfinite(half), np.isfinite(array)):
        largest = float(np.max(np.abs(array)))
        raise ValueError(
            f"{name} has a number of {largest:.4g}, but half precision ends at"
            f" {float(np.finfo(np.float16).max):.0f}. Store it in single precision."
        )
    return half


def _present_name(name: str) -> str:
    """The name that an array of an earlier version's checkpoint has today."""
    for then, now in RENAMED_PARTS:
        name = name.replace(then, now)
    return name


def _named_arrays(tree: Any) -> dict[str, Any]:
    """Name the arrays of a tree by where they are, in the tree's order."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves if _is_array(leaf)}


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)
