"""NumPy's .npy and .npz files: the shapes that they announce must fit the bytes that are there."""

import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from varfilter.data.limits import require_expansion, require_size

HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


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
