"""Pickles of plain values, read without running anything that they ask for.

A pickle is a program: it names functions, which the usual reader imports and calls. This one
imports nothing. The three names that a file with NumPy numbers needs stand for small functions
of this file, which take bytes apart and no more; any other name is refused.
"""

import contextlib
import functools
import gc
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_NUMBERS = frozenset(["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])


def read_plain_pickle(path: str | Path) -> Any:
    """Lists, tuples, dictionaries, numbers and strings; NumPy's numbers become Python's.

    Files of Python 2 and 3 and of every protocol; Python 2's strings are read as Latin-1.
    """
    try:
        with open(path, "rb") as file, _no_collection():
            return _Plain(file).load()
    except FileNotFoundError:
        raise FileNotFoundError(f"`path` is {str(path)!r}: there is no such file.") from None
    except _Refused as refused:
        raise ValueError(
            f"`path` {str(path)!r} asks for {refused}, which no plain data need: it was not"
            " run, and nothing of the file is used. Get the file from a source you trust."
        ) from None
    except Exception as error:
        # Which error a damaged pickle gives depends on the byte at which it breaks.
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise ValueError(
            f"`path` {str(path)!r} is not a whole pickle of plain values ({reason})."
            " Get the file again."
        ) from None


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """A million new tuples hold no cycles; looking for some takes most of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Refused(Exception):
    """What a pickle asked for and is not given."""


class _Plain(pickle.Unpickler):
    """The standard reader, for which the world has three functions."""

    def __init__(self, file: Any):
        super().__init__(file, encoding="latin1")
        # Anew for each file: a pickle can set attributes of what it was given. Cached, since a
        # set has a million notes and few different ones.
        scalar = functools.lru_cache(4096)(_scalar)
        self._functions: dict[tuple[str, str], Callable[..., Any]] = {
            ("numpy.core.multiarray", "scalar"): scalar,
            ("numpy._core.multiarray", "scalar"): scalar,
            ("numpy", "dtype"): lambda code, *_: _dtype(code),
            # How Python 3 writes bytes in Python 2's protocols.
            ("_codecs", "encode"): functools.lru_cache(4096)(_latin1_bytes),
        }

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """The stand-in for a name; an error for any that has none."""
        if (module_name, global_name) not in self._functions:
            raise _Refused(f"the global `{module_name}.{global_name}`")
        return self._functions[module_name, global_name]


class _Dtype:
    """Stands for a NumPy dtype: the code of a number type and its byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: str):
        self.code = code
        self.order = "<"

    def __setstate__(self, state: Any) -> None:
        """The part of NumPy's state that says the byte order; fields are refused."""
        order, parts = state[1], state[2:5]
        if order not in ("<", ">", "|") or any(part is not None for part in parts):
            raise _Refused("a global `numpy.dtype` that is no plain number")
        self.order = order


def _dtype(code: Any) -> _Dtype:
    if not isinstance(code, str) or code not in _NUMBERS:
        raise _Refused(f"the global `numpy.dtype` of {str(code)[:40]!r}")
    return _Dtype(code)


def _scalar(dtype: Any, data: Any) -> int | float | bool:
    if not isinstance(dtype, _Dtype) or not isinstance(data, str | bytes):
        raise _Refused("the global `numpy.core.multiarray.scalar` of something else than a number")
    raw = data.encode("latin1") if isinstance(data, str) else data
    (number,) = np.frombuffer(raw, dtype.order + dtype.code)
    return number.item()


def _latin1_bytes(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise _Refused(f"the global `_codecs.encode` with the encoding {str(encoding)[:40]!r}")
    return text.encode("latin1")
