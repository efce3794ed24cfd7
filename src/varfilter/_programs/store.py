"""Compiling a function whose traced program is kept in a folder, for later starts to find."""

import dataclasses
import functools
import json
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax import export
from jax.core import Tracer

from varfilter._files import PROGRAMS, written
from varfilter._programs.identity import Unknown, digest, settings
from varfilter._programs.structure import put_together, taken_apart

P = ParamSpec("P")
T = TypeVar("T")
# What a program of another layout than today's would be called.
LAYOUT = 1


class kept_jit(Generic[P, T]):
    """`eqx.filter_jit`, with programs that a later process finds in the folder of `PROGRAMS`.

    Without such a folder, which the commands name, it is `eqx.filter_jit`; and so it is wherever a
    program cannot be kept: inside of another, on several processes, on other devices than the
    processor, for classes and functions of a user's own, or where anything at all goes wrong with
    the file.
    """

    def __init__(self, function: Callable[P, T]):
        functools.update_wrapper(self, function)
        self._function: Callable[..., Any] = function
        self._jitted = eqx.filter_jit(function)
        self._programs: dict[Any, _Program | None] = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function, compiled."""
        folder = os.environ.get(PROGRAMS)
        arrays, others = eqx.partition((args, kwargs), eqx.is_array)
        leaves = jax.tree.leaves(arrays)
        is_inside = any(isinstance(leaf, Tracer) for leaf in leaves)
        # Only on processors was it measured, and held against the bits of what is not kept.
        is_kept = bool(folder) and jax.default_backend() == "cpu" and jax.process_count() == 1
        if is_inside or not is_kept:
            return self._jitted(*args, **kwargs)
        program = self._program(Path(str(folder)), arrays, others, leaves)
        if program is None:
            return self._jitted(*args, **kwargs)
        return program(leaves)

    def _program(self, folder: Path, arrays: Any, others: Any, leaves: list[Any]) -> Any:
        """The program for arguments like these; None if it cannot be kept."""
        static, structure = jax.tree.flatten(others)
        types = tuple(map(_type, leaves))
        kinds = tuple(map(type, static))  # 1, 1.0 and True are equal
        key = (structure, jax.tree.structure(arrays), tuple(static), kinds, types, settings())
        try:
            hash(key)
        except TypeError:
            return None
        if key not in self._programs:
            try:
                self._programs[key] = self._found(folder, arrays, others, leaves)
            # Whatever it is, the function itself can still be compiled, or says what is wrong.
            except Exception:
                self._programs[key] = None
        return self._programs[key]

    def _found(self, folder: Path, arrays: Any, others: Any, leaves: list[Any]) -> "_Program":
        types = [_type(leaf) for leaf in leaves]
        path = _path(folder, self._function, jax.tree.structure(arrays), others, types)
        try:
            return _Program(path.read_bytes(), leaves)
        except Exception:  # it is not there, or cannot be read: either way it is traced anew
            content = self._traced(arrays, others, leaves)
        program = _Program(content, leaves)
        _write(path, content)
        return program

    def _traced(self, arrays: Any, others: Any, leaves: list[Any]) -> bytes:
        """Trace and lower the function, and write its program down."""
        found: list[Any] = []

        def flat(*leaves: Any) -> list[Any]:
            given = jax.tree.unflatten(jax.tree.structure(arrays), leaves)
            args, kwargs = eqx.combine(given, others)
            structure, results = taken_apart(self._function(*args, **kwargs))
            found[:] = [structure]
            return results

        flat.__name__ = self._function.__name__
        exported = export.export(jax.jit(flat))(*map(_shape, leaves))
        if exported.ordered_effects or exported.unordered_effects:
            raise ValueError("what has effects is not kept")
        used = list(exported.module_kept_var_idx)
        header = _header(found[0], exported.out_avals, used=used)
        return zlib.compress(header + b"\n" + exported.mlir_module_serialized, 1)


class _Program:
    """A program that was written down, for arguments like `leaves`, compiled when it is called."""

    def __init__(self, content: bytes, leaves: list[Any]):
        line, _, module = zlib.decompress(content).partition(b"\n")
        header = json.loads(line)
        shapes = _shapes(header["results"])

        def like(*leaves: Any) -> list[Any]:
            return [jax.lax.full(s.shape, np.zeros((), s.dtype)) for s in shapes]

        # JAX reads what it wrote only where another library is installed. All that is not in
        # `header` depends on the types alone, and another function of these types has it too.
        other = export.export(jax.jit(like))(*map(_shape, leaves))
        exported = dataclasses.replace(
            other, mlir_module_serialized=module, module_kept_var_idx=tuple(header["used"])
        )
        # At once: a program that this JAX cannot compile is traced anew instead.
        self._call = jax.jit(exported.call).lower(*map(_shape, leaves)).compile()
        self._structure = header["structure"]

    def __call__(self, leaves: list[Any]) -> Any:
        return put_together(self._structure, self._call(*leaves))


def kept_shapes(function: Callable[..., T], *args: Any) -> T:
    """`function(*args)` with a shape for each array, as `eqx.filter_eval_shape` finds it.

    The arguments are settings, and known by their content. What was found once is kept as
    programs are.
    """
    folder = os.environ.get(PROGRAMS)
    path = None
    if folder:
        try:
            path = _path(Path(folder), function, args)
            header = json.loads(zlib.decompress(path.read_bytes()))
            return put_together(header["structure"], _shapes(header["results"]))
        except Exception:  # it is not there, or cannot be read, or cannot be kept
            pass
    found = eqx.filter_eval_shape(lambda: function(*args))
    if path is not None:
        try:
            structure, shapes = taken_apart(found)
        except Unknown:
            return found
        _write(path, zlib.compress(_header(structure, shapes), 1))
    return found


def _path(folder: Path, *parts: Any) -> Path:
    return folder / f"traced-{digest((LAYOUT, *parts))}"


def _write(path: Path, content: bytes) -> None:
    try:
        with written(path) as write:
            write(content)
    except OSError:  # no room: the next start traces it again
        pass


def _header(structure: Any, results: Iterable[Any], **others: Any) -> bytes:
    types = [(list(each.shape), str(each.dtype)) for each in results]
    return json.dumps({"structure": structure, "results": types} | others).encode()


def _shapes(types: Any) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype in types]


def _type(leaf: Any) -> tuple[Any, ...]:
    return leaf.shape, str(leaf.dtype), getattr(leaf, "weak_type", False)


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=getattr(leaf, "weak_type", False))
