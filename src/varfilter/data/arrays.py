"""Files of arrays, NumPy's and MATLAB's: what they announce must fit the bytes that are there.

SciPy makes an array of as many cells as a .mat file announces, and follows cells in cells however
deep they lie: a file of some hundred bytes can exhaust the memory, or the stack. So it is looked
through before SciPy reads it.
"""

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.limits import require_expansion, require_size

HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
MATRIX, COMPRESSED = 14, 15
CELL = 1
# Full arrays: text, and numbers of any size. Sparse ones, structures and objects are no rolls.
FULL = frozenset(range(4, 16)) - {5}
# A cell array holds matrices; a few levels more do no harm.
DEEPEST = 8
CHUNK = 1 << 20


def read_array(path: Path, label: str) -> np.ndarray:
    """The array of a .npy file; `label` is what an error calls the file."""
    with path.open("rb") as file:
        return _array(file, path.stat().st_size, label)


def read_arrays(
    path: Path, label: str, names: Collection[str] | None = None
) -> dict[str, np.ndarray | None]:
    """The arrays of an .npz file by name; with `names`, None for those that are not among them."""
    with zipfile.ZipFile(path) as archive:
        members = {
            info.filename.removesuffix(".npy"): info
            for info in archive.infolist()
            if not info.is_dir()
        }
        wanted = {name: info for name, info in members.items() if names is None or name in names}
        size = sum(info.file_size for info in wanted.values())
        require_expansion(f"{label} unpacks to {size} bytes", size, path.stat().st_size)
        arrays: dict[str, np.ndarray | None] = dict.fromkeys(members)
        for name, info in wanted.items():
            with archive.open(info) as file:
                arrays[name] = _array(file, info.file_size, label)
        return arrays


def read_mat(path: Path, names: Collection[str]) -> dict[str, Any]:
    """The variables of these names in a .mat file of MATLAB 5 to 7, as SciPy reads them.

    The names of the others are there too, with None.
    """
    from scipy.io import loadmat

    content = path.read_bytes()
    # The version of the format, and by the letters after it the order of bytes.
    order = {b"\0\x01IM": "<", b"\x01\0MI": ">"}.get(content[124:128], "")
    if not content.startswith(b"MATLAB") or not order:
        raise ValueError("it does not begin as such a file")
    found: list[str] = []
    unpacked = 0
    place = 128
    while place + 8 <= len(content):
        tag = _tag(content, place, order)
        body = memoryview(content)[tag.begin : tag.end]
        if tag.kind == COMPRESSED:
            body = memoryview(_decompressed(path, body, unpacked, len(content)))
            unpacked += len(body)
            inner = _tag(body, 0, order)
            tag, body = inner._replace(next=tag.next), body[inner.begin : inner.end]
        if tag.kind != MATRIX:
            raise ValueError("it holds something else than variables")
        found.append(_checked(body, order, 0, names))
        place = tag.next
    require_size(f"`path` {str(path)!r} unpacks to {unpacked} bytes", 4 * unpacked)
    read = loadmat(io.BytesIO(content), variable_names=[n for n in found if n in names])
    return dict.fromkeys(found) | {name: read[name] for name in found if name in names}


class _Tag(NamedTuple):
    """What stands before an element: its kind, where it begins and ends, and the next one."""

    kind: int
    begin: int
    end: int
    next: int


def _array(file: Any, size: int, label: str) -> np.ndarray:
    """The array in `file`, which has `size` bytes, after a look at what its header announces."""
    header = HEADERS.get(np.lib.format.read_magic(file))
    if header is not None:
        shape, _, dtype = header(file)
        there = size - file.tell()
        # A type of no bytes would let a file announce any number of elements.
        needed = math.prod(shape) * max(dtype.itemsize, 1)
        if not dtype.hasobject and needed > there:
            raise ValueError(
                f"{label} is cut off: it announces an array of the shape {shape}, {needed} bytes,"
                f" of which {there} are there. Copy it again."
            )
        # As it is, and as numbers of eight bytes.
        announced = f"{label} announces an array of the shape {shape}"
        require_size(announced, needed + 8 * math.prod(shape))
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def _tag(content: bytes | memoryview, place: int, order: str) -> _Tag:
    if place + 8 > len(content):
        raise ValueError("it breaks off")
    kind, size = struct.unpack_from(f"{order}II", content, place)
    begin = place + 8
    if kind >> 16:  # Four bytes or less stand in the tag itself.
        kind, size, begin = kind & 0xFFFF, kind >> 16, place + 4
        if size > 4:
            raise ValueError("it has a damaged element")
    if begin + size > len(content):
        raise ValueError(f"it announces {size} bytes, of which {len(content) - begin} are there")
    last = begin + size
    after = place + 8 if begin == place + 4 else last + (0 if kind == COMPRESSED else -last % 8)
    return _Tag(kind, begin, last, after)


def _decompressed(path: Path, body: memoryview, before: int, packed: int) -> bytes:
    """What is in a packed element; counted as it comes."""
    unpacker, parts, size = zlib.decompressobj(), [], before
    waiting = bytes(body)
    while waiting and not unpacker.eof:
        parts.append(unpacker.decompress(waiting, CHUNK))
        waiting = unpacker.unconsumed_tail
        size += len(parts[-1])
        require_expansion(f"`path` {str(path)!r} unpacks to {size} bytes or more", size, packed)
    return b"".join(parts)


def _checked(body: memoryview, order: str, depth: int, names: Collection[str]) -> str:
    """The name of a variable, after a look at all that is in it if it is one of `names`."""
    if depth > DEEPEST:
        raise ValueError(f"it has cells in cells, more than {DEEPEST} deep")
    flags = _tag(body, 0, order)
    shape = _tag(body, flags.next, order)
    name = _tag(body, shape.next, order)
    if flags.end - flags.begin < 8:
        raise ValueError("it has a damaged variable")
    (bits,) = struct.unpack_from(f"{order}I", body, flags.begin)
    kind = bits & 0xFF
    sizes = struct.unpack_from(f"{order}{(shape.end - shape.begin) // 4}i", body, shape.begin)
    text = bytes(body[name.begin : name.end]).decode("latin-1")
    if depth == 0 and text not in names:
        return text
    if min(sizes, default=-1) < 0 or (kind != CELL and kind not in FULL):
        raise ValueError(f"its variable {text[:40]!r} is no cell array or matrix")
    if kind != CELL:
        return text
    count, place = math.prod(sizes), name.next
    if count > (len(body) - place) // 8:
        raise ValueError(f"its variable {text[:40]!r} announces {count} cells, which are not there")
    for _ in range(count):
        cell = _tag(body, place, order)
        if cell.kind != MATRIX:
            raise ValueError(f"its variable {text[:40]!r} has a cell without a matrix")
        if cell.end > cell.begin:
            _checked(body[cell.begin : cell.end], order, depth + 1, names)
        place = cell.next
    return text
