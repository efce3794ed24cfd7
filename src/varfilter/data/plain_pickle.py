"""Pickles of plain values: nothing that a file asks for is run, and none grows without measure.

The standard reader does the work; before it, the file is looked through without being run. A
pickle can do more harm than to call functions: a number of a few bytes makes the reader's table
of remembered objects gigabytes long, and to hash tuples nested a million deep ends the process.
"""

import contextlib
import functools
import gc
import io
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from varfilter.data.limits import require_size

_NUMBERS = frozenset(["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])


def read_plain_pickle(path: str | Path) -> Any:
    """Read a pickle of lists, tuples, dictionaries, numbers and strings without running anything.

    Files of Python 2 and 3 and of every protocol; Python 2's strings are read as Latin-1, and
    NumPy's numbers become Python's. The keys of dictionaries must be numbers or strings.
    """
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"`path` is {str(path)!r}: there is no such file.") from None
    # An empty list takes one byte there and a hundred here.
    num_lists = content.count(b"]") + content.count(b"l")
    require_size(f"`path` {str(path)!r} is a pickle of {num_lists} lists or so", 100 * num_lists)
    try:
        with _without_garbage_collection():
            return _PlainUnpickler(_harmless(content)).load()
    except _Refused as refused:
        raise ValueError(
            f"`path` {str(path)!r} asks for {refused}, which no plain data need: it was not"
            " run, and nothing of the file is used. Get the file from a source you trust."
        ) from None
    except MemoryError:
        raise
    except Exception as error:
        # Which error a damaged pickle gives depends on the byte at which it breaks.
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise ValueError(
            f"`path` {str(path)!r} is not a whole pickle of plain values ({reason})."
            " Get the file again."
        ) from None


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause garbage collection: a million new tuples hold no cycles, and to search takes long."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Refused(Exception):
    """What a pickle asked for and is not given."""


# Looking through it

# After the letter of an instruction: so many bytes; a length of so many bytes, and that many
# more; or so many lines.
_WIDTHS = dict.fromkeys(b"(012NQRabelostu)]\x81\x85\x86\x87\x88\x89\x93\x94", 0)
_WIDTHS |= dict.fromkeys(b"Khq\x80\x82", 1) | dict.fromkeys(b"M\x83", 2)
_WIDTHS |= dict.fromkeys(b"Jj\x84", 4) | {ord("G"): 8}
_PREFIXES = dict.fromkeys(b"UC\x8a\x8c", 1) | dict.fromkeys(b"TXB\x8b", 4)
_PREFIXES |= dict.fromkeys(b"\x8d\x8e\x96", 8)
_LINES = dict.fromkeys(b"ILFSVgP", 1) | dict.fromkeys(b"ci", 2)
_STOP, _FRAME = b"."[0], 0x95
# What stands for an empty dictionary: a call, without arguments, of a function of ours.
_DICTIONARY = b"(ivarfilter\ndictionary\n"
# A file of music has one; each costs more here than the letter that asks for it.
_MOST_DICTIONARIES = 10_000


@functools.lru_cache(32)
def _usual(num_bytes: int, num_digits: int) -> re.Pattern[bytes]:
    """The instructions that need no closer look, as many as follow each other.

    Objects are remembered under numbers of at most so many bytes, or decimal digits.
    """
    kinds: dict[int, list[int]] = {}
    for code, width in _WIDTHS.items():
        kinds.setdefault(width, []).append(code)
    words = [_letters(codes) + b"." * width for width, codes in kinds.items()]
    short = b"|".join(re.escape(bytes([size])) + b"." * size for size in range(33))
    words.append(_letters(c for c, size in _PREFIXES.items() if size == 1) + b"(?:" + short + b")")
    words += [_letters(c for c, n in _LINES.items() if n == k) + b"[^\n]*\n" * k for k in (1, 2)]
    words.append(b"r" + b"." * num_bytes + b"\0" * (4 - num_bytes))
    words.append(b"p[0-9]{1,%d}\n" % num_digits)
    # Possessive: to remember where each of a million began would take more memory than the file.
    return re.compile(b"(?:" + b"|".join(words) + b")++", re.DOTALL)


def _letters(codes: Any) -> bytes:
    return b"[" + b"".join(re.escape(bytes([code])) for code in codes) + b"]"


def _harmless(content: bytes) -> bytes:
    """Refuse a pickle that can do harm; else return it with dictionaries that look at their keys.

    Nothing else differs, but for the frames of newer pickles, which only tell how to read ahead.
    """
    # To remember an object takes four bytes or more, beside those that make it.
    most = len(content) // 4
    usual = _usual(min(-(-most.bit_length() // 8), 4), len(str(most)))
    parts: list[bytes] = []
    begin = place = num_dictionaries = 0
    while place < len(content) and content[place] != _STOP:
        if (found := usual.match(content, place)) is not None:
            place = found.end()
            continue
        code = content[place]
        if code in _PREFIXES:
            place = _after_text(content, place)
            continue
        if code not in (*b"}d", _FRAME):
            raise _unknown(code, place, content)
        parts.append(content[begin:place])
        if code == ord("}"):
            parts.append(_DICTIONARY)
        elif code == ord("d"):
            # Python writes each dictionary empty, and fills it afterwards.
            if content[place - 1 : place] != b"(":
                raise pickle.UnpicklingError("a dictionary is made in an unusual way")
            parts.append(_DICTIONARY[1:])
        num_dictionaries += code != _FRAME
        if num_dictionaries > _MOST_DICTIONARIES:
            raise pickle.UnpicklingError(f"it has more than {_MOST_DICTIONARIES} dictionaries")
        place = begin = place + (9 if code == _FRAME else 1)
    return b"".join([*parts, content[begin:]])


def _after_text(content: bytes, place: int) -> int:
    """The place after an instruction that says how long its text is."""
    first = place + 1 + _PREFIXES[content[place]]
    last = first + int.from_bytes(content[place + 1 : first], "little")
    if last > len(content):
        raise pickle.UnpicklingError(
            f"it announces {last - first} bytes, of which {max(len(content) - first, 0)} are there"
        )
    return last


def _unknown(code: int, place: int, content: bytes) -> Exception:
    if code in b"rp":
        return pickle.UnpicklingError("it counts more objects than it has bytes")
    if code in _WIDTHS or code in _LINES:
        return pickle.UnpicklingError("it breaks off")
    return pickle.UnpicklingError(
        f"byte {place} of {len(content)} is no instruction for plain values: {bytes([code])!r}"
    )


# Reading it


class _PlainUnpickler(pickle.Unpickler):
    """The standard reader of pickles, for which the world has four functions."""

    def __init__(self, content: bytes):
        super().__init__(io.BytesIO(content), encoding="latin1")
        # Anew for each file: a pickle can set attributes of what it was given.
        scalar = _scalars()
        self._functions: dict[tuple[str, str], Callable[..., Any]] = {
            ("numpy.core.multiarray", "scalar"): scalar,
            ("numpy._core.multiarray", "scalar"): scalar,
            ("numpy", "dtype"): lambda code, *_: _dtype(code),
            # How Python 3 writes bytes in Python 2's protocols.
            ("_codecs", "encode"): _encoder(),
            ("varfilter", "dictionary"): lambda: _Dictionary(),
        }

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """The stand-in for a name; an error for any that has none."""
        if (module_name, global_name) not in self._functions:
            raise _Refused(f"the global `{module_name}.{global_name}`")
        return self._functions[module_name, global_name]


class _Dictionary(dict[Any, Any]):
    """A dictionary that looks at its keys before they are hashed."""

    __slots__ = ()

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, str | bytes | int | float | None):
            raise pickle.UnpicklingError(f"the key of a dictionary is a {type(key).__name__}")
        super().__setitem__(key, value)


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
        shown = code if isinstance(code, str) else type(code).__name__
        raise _Refused(f"the global `numpy.dtype` of {shown[:40]!r}")
    return _Dtype(code)


# Cached, since a set has a million notes and few different ones; but only what was looked at
# before, since to look something up there is to hash it.


def _scalars() -> Callable[[Any, Any], int | float | bool]:
    """A function for NumPy's of that name, from a type and the bytes of a number to the number."""

    @functools.lru_cache(4096)
    def number(dtype: _Dtype, data: str | bytes) -> int | float | bool:
        raw = data.encode("latin1") if isinstance(data, str) else data
        (found,) = np.frombuffer(raw, dtype.order + dtype.code)
        return found.item()

    def scalar(dtype: Any, data: Any) -> int | float | bool:
        if not isinstance(dtype, _Dtype) or not isinstance(data, str | bytes):
            raise _Refused(
                "the global `numpy.core.multiarray.scalar` of something else than a number"
            )
        return number(dtype, data)

    return scalar


def _encoder() -> Callable[[Any, Any], bytes]:
    """A function from text to its bytes, for Latin-1 alone."""
    encoded = functools.lru_cache(4096)(lambda text: text.encode("latin1"))

    def encode(text: Any, encoding: Any) -> bytes:
        if not isinstance(text, str) or encoding != "latin1":
            shown = encoding if isinstance(encoding, str) else type(encoding).__name__
            raise _Refused(f"the global `_codecs.encode` with the encoding {shown[:40]!r}")
        return encoded(text)

    return encode
