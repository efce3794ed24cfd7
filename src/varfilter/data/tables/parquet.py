"""Parquet files: what they announce is added up, page by page, before polars reads them.

Polars makes room for what the header of a page says, and where memory is out it ends the process
instead of raising an error. So the headers are read here first. They are written in Thrift's
compact protocol: https://parquet.apache.org/docs/file-format/metadata/.
"""

from pathlib import Path
from typing import Any, NamedTuple

from varfilter._arguments import require_library
from varfilter.data.limits import require_size
from varfilter.data.tables.text import PER_COLUMN

MAGIC = b"PAR1"
# Bytes in memory for each value: in a frame, and as a number or the place of a text.
PER_VALUE = 32
# Headers of pages are short; a statistic in one may hold a text.
LONGEST_HEADER = 1 << 16
DEEPEST = 16


def read_parquet(path: Path, label: str) -> Any:
    """The frame of a Parquet file, after a look at what it announces."""
    polars = require_library("polars", extra="tables")
    try:
        needed, num_columns = _announced(path)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        reason = str(error) if type(error) is ValueError else "its description is damaged"
        raise ValueError(f"{label} is not a whole Parquet file: {reason}. Copy it again.") from None
    announced = f"{label} announces {num_columns} columns and {needed.num_values} values"
    require_size(
        announced, needed.num_bytes + PER_VALUE * needed.num_values + PER_COLUMN * num_columns
    )
    try:
        return polars.read_parquet(path, glob=False)
    except polars.exceptions.PanicException as error:  # no `Exception`, in Python's sense
        reason = (str(error).splitlines() or ["it is damaged"])[0]
        raise ValueError(f"{label} cannot be read as Parquet: {reason}.") from None


class _Needed(NamedTuple):
    """What pages announce: bytes when unpacked, and values."""

    num_bytes: int
    num_values: int

    def __add__(self, other: Any) -> "_Needed":
        return _Needed(self.num_bytes + other[0], self.num_values + other[1])


def _announced(path: Path) -> tuple[_Needed, int]:
    """What all pages of a file announce, and the number of its columns."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size < 12 or file.read(4) != MAGIC:
            raise ValueError("it does not begin as one")
        file.seek(size - 8)
        footer = file.read(8)
        length = int.from_bytes(footer[:4], "little")
        if footer[4:] != MAGIC or length > size - 12:
            raise ValueError("it does not end as one")
        file.seek(size - 8 - length)
        described = _Compact(file.read(length)).struct()
        needed, num_columns = _Needed(0, 0), 0
        for group in described[4]:
            num_columns = max(num_columns, len(group[1]))
            for chunk in group[1]:
                needed += _pages(file, chunk[3], group[3], size - 8 - length)
        return needed, num_columns


def _pages(file: Any, column: dict[int, Any], num_rows: int, end: int) -> _Needed:
    """What the pages of one column announce in a row group of so many rows."""
    place = min(offset for offset in (column[9], column.get(11)) if offset)
    last = place + column[7]
    if not 0 < place <= last <= end:
        raise ValueError("a column lies outside of the file")
    num_bytes = num_values = 0
    while place < last:
        file.seek(place)
        reader = _Compact(file.read(min(LONGEST_HEADER, last - place)))
        page = reader.struct()
        place += reader.place + page[3]
        counts = [page[kind][1] for kind in (5, 7, 8) if kind in page]
        if min(page[2], page[3], *counts, 0) < 0 or place > last:
            raise ValueError("a page is longer than its column")
        num_bytes, num_values = num_bytes + page[2], num_values + sum(counts)
    # The counts should agree; which of them a reader makes room for is not said.
    return _Needed(num_bytes, max(num_values, column[5], num_rows))


class _Compact:
    """A reader of Thrift's compact protocol: structures as dictionaries by field number."""

    def __init__(self, content: bytes):
        self.content, self.place = content, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """The fields of a structure."""
        if depth > DEEPEST:
            raise ValueError("its description is nested too deep")
        fields: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._signed()
            kind = header & 15
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth + 1)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2, 3):  # in lists a truth is a byte too
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._number())
        if kind in (9, 10):
            header = self._byte()
            count = header >> 4 if header >> 4 < 15 else self._number()
            if count > len(self.content) - self.place:
                raise ValueError("its description announces more than it holds")
            return [self._value(header & 15, depth) for _ in range(count)]
        if kind == 12:
            return self.struct(depth)
        raise ValueError("its description is damaged")

    def _bytes(self, count: int) -> bytes:
        self.place += count
        if self.place > len(self.content):
            raise ValueError("its description breaks off")
        return self.content[self.place - count : self.place]

    def _byte(self) -> int:
        self.place += 1
        return self.content[self.place - 1]

    def _number(self) -> int:
        """A whole number, seven bits in each byte, the lowest first."""
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number
            if shift > 63:
                raise ValueError("its description is damaged")

    def _signed(self) -> int:
        number = self._number()
        return (number >> 1) ^ -(number & 1)
