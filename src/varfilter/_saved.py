"""Files of arrays: written whole or not at all, and checked when they are read."""

import dataclasses
import functools
import hashlib
import os
import re
import types
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from varfilter import _files
from varfilter._arguments import kind as kind_of

Arrays = dict[str, np.ndarray]


class Kind(NamedTuple):
    """What a file holds, and which version of its layout this varfilter writes and reads."""

    noun: str
    version: int = 1


def write(path: Any, kind: Kind, arrays: Arrays, metadata: dict[str, str]) -> None:
    """Put the arrays at `path`; a file that is there stays until the new one is complete."""
    path = _as_path(path)
    header = {"format": f"varfilter-{kind.noun}", "version": str(kind.version), **metadata}
    # The library writes the memory of an array as it lies, whatever its strides say.
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    content = save(arrays, header | {"checksum": _checksum(arrays, metadata)})
    try:
        with _files.written(path) as put:
            put(content)
    except OSError as error:
        raise _files.reworded(
            error,
            f"`path`: cannot write {str(path)!r} ({error.strerror}). The {kind.noun} itself is not"
            " lost; make room, or give a file name in a folder that exists and may be written to.",
        ) from None


def read(path: Any, kind: Kind) -> tuple[dict[str, str], Arrays]:
    """Read (metadata, arrays) from a file that `write` wrote and nobody has touched."""
    path = _as_path(path)
    if not path.is_file():
        raise FileNotFoundError(f"`path`: there is no file {str(path)!r}.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError) as error:
        raise ValueError(
            f"{str(path)!r} is not a saved {kind.noun}, or is damaged ({error})."
            " Restore another copy."
        ) from None
    if metadata.pop("format", None) != f"varfilter-{kind.noun}":
        raise ValueError(f"{str(path)!r} is a safetensors file, but not a saved {kind.noun}.")
    if (version := metadata.pop("version", None)) != str(kind.version):
        raise ValueError(
            f"{str(path)!r} has version {version} of the {kind.noun} format; this varfilter reads"
            f" version {kind.version}. Update varfilter."
        )
    if metadata.pop("checksum", None) != _checksum(arrays, metadata):
        raise ValueError(
            f"{str(path)!r} is damaged: its contents do not match its checksum."
            " Restore another copy."
        )
    return metadata, arrays


def fingerprint(*modules: Any) -> str:
    """Hash the modules: their classes, their settings, and the value of each array.

    It is the same in every process. Functions count by name and by what they close over, so
    another learning rate inside an optimizer is another fingerprint; their code does not count.
    """
    digest = hashlib.sha256()
    for module in modules:
        _feed(digest, module, ())
    return digest.hexdigest()


def _feed(digest: Any, value: Any, above: tuple[int, ...]) -> None:
    say = functools.partial(_say, digest)
    each = functools.partial(_feed_each, digest, (*above, id(value)))
    if id(value) in above:  # a function that closes over itself
        say("cycle")
    elif isinstance(value, jax.Array | np.ndarray):
        is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        array = np.asarray(jax.random.key_data(value) if is_key else value)
        say("array", value.dtype, array.shape)
        digest.update(array.tobytes())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        say("module", _name(type(value)))
        for field in dataclasses.fields(value):
            say(field.name)
            each(getattr(value, field.name, None))
    elif isinstance(value, dict):
        say("dict", *map(repr, value))
        each(*value.values())
    elif isinstance(value, tuple | list):
        say(_name(type(value)), len(value))
        each(*value)
    elif isinstance(value, functools.partial):
        say("partial")
        each(value.func, value.args, value.keywords)
    elif isinstance(value, types.FunctionType):
        say("function", _name(value))
        each(*(_contents(cell) for cell in value.__closure__ or ()), value.__defaults__)
    elif hasattr(value, "__wrapped__"):  # a compiled function
        each(getattr(value, "__wrapped__"))  # noqa: B009
    else:
        say(_name(type(value)), re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value)))


def _say(digest: Any, *words: Any) -> None:
    digest.update("\t".join(map(str, words)).encode() + b"\n")


def _feed_each(digest: Any, above: tuple[int, ...], *values: Any) -> None:
    for inner in values:
        _feed(digest, inner, above)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet filled
        return None


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def _checksum(arrays: Arrays, metadata: dict[str, str]) -> str:
    return fingerprint(dict(sorted(arrays.items())), dict(sorted(metadata.items())))


def _as_path(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"`path` must be a file name; got {kind_of(path)}.")
    return Path(path)
