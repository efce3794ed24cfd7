"""Tables from files, data frames and arrays: each becomes columns by name.

Polars makes room for what the header of a Parquet page says, and where memory is out it ends the
process instead of raising an error. So what pages announce is added up here first. Headers are in
Thrift's compact protocol: https://parquet.apache.org/docs/file-format/metadata/.
"""

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter._arguments import kind, require_library
from varfilter.data.arrays import read_array, read_arrays
from varfilter.data.limits import require_size
from varfilter.data.tables.columns import DURATIONS, Column, column_of
from varfilter.data.tables.levels import names_of, natural
from varfilter.data.tables.text import PER_COLUMN, read_text, require_different
from varfilter.data.tables.zones import zone_of

Columns = dict[str, Column]
MAGIC = b"PAR1"
# Bytes in memory for each value: in a frame, and as a number or the place of a text.
PER_VALUE = 32
# Headers of pages are short; a statistic in one may hold a text.
LONGEST_HEADER = 1 << 16
DEEPEST = 16


class FileColumns(NamedTuple):
    """Columns by name, and sentences on the file in which they stand."""

    columns: Columns
    notes: tuple[str, ...] = ()


# A three-dimensional array holds sequences; no user's column can have this name.
SEQUENCE_AXIS = "\0sequence"


def read_columns(source: Any, *, as_text: tuple[str, ...] = ()) -> FileColumns:
    """All columns of a file, frame, array or dictionary of arrays, of equal lengths.

    `as_text` names those that hold names: "007" in a text file is not the number 7. The sentences
    that come with them are on what a file lacks.
    """
    label = f"`source` {str(source)!r}" if isinstance(source, str | Path) else "`source`"
    notes: tuple[str, ...] = ()
    if isinstance(source, str | Path):
        columns, notes = _from_file(Path(source), label, as_text)
    elif _is_from("polars", source) or _is_from("pandas", source):
        columns = _from_frame(source, label)
    elif isinstance(source, Mapping):
        columns = _from_arrays({str(name): v for name, v in source.items()}, label)
    elif hasattr(source, "__array__") and hasattr(source, "shape"):
        columns = _from_array(source, label)
    else:
        raise TypeError(
            "`source` must be the path of a table (.csv, .csv.gz, .tsv, .parquet, .npy, .npz), a"
            f" pandas or polars DataFrame, an array or a dict of arrays; got {kind(source)}."
            " Sequences of several lengths are one table with a column that tells them apart, or"
            " a `Dataset` of `Ragged.of(sequences)`."
        )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name}: {length}" for name, length in list(lengths.items())[:6])
        raise ValueError(f"{label} has columns of different lengths ({shown}): not one table.")
    if not any(lengths.values()):
        raise ValueError(f"{label} has no rows. Give at least one row of numbers.")
    return FileColumns(columns, notes)


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


def _from_file(path: Path, label: str, as_text: tuple[str, ...]) -> FileColumns:
    readers: dict[str, Callable[[Path, str, tuple[str, ...]], FileColumns]] = {
        ".csv": _from_text,
        ".tsv": _from_text,
        ".txt": _from_text,
        ".parquet": _from_parquet,
        ".pq": _from_parquet,
        ".npy": _from_numpy,
        ".npz": _from_numpy,
    }
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        error = ValueError if path.is_dir() else FileNotFoundError
        raise error(f"{label} {what}. Give the path of a table: {', '.join(readers)} or .csv.gz.")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    zipped = suffixes[-1:] == [".gz"]
    reader = readers.get("".join(suffixes[-2:-1] if zipped else suffixes[-1:]))
    if reader is None or (zipped and reader is not _from_text):
        raise ValueError(
            f"{label} is not a table that can be read here: its name must end in"
            f" {', '.join(readers)} or .csv.gz."
        )
    if path.stat().st_size == 0:
        raise ValueError(f"{label} is empty. Give a table with at least one row of numbers.")
    try:
        return reader(path, label, as_text)
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith(label):
            raise
        first_line = (str(error).splitlines() or [type(error).__name__])[0].rstrip(" .")
        raise ValueError(f"{label} cannot be read as {path.suffix}: {first_line}.") from error


def _from_text(path: Path, label: str, as_text: tuple[str, ...]) -> FileColumns:
    frame, names, notes = read_text(path, label, as_text)
    columns = _from_frame(frame, label).values()
    return FileColumns(dict(zip(names, columns, strict=True)), notes)


def _from_parquet(path: Path, label: str, as_text: tuple[str, ...]) -> FileColumns:
    del as_text
    return FileColumns(_from_frame(read_parquet(path, label), label))


def _from_numpy(path: Path, label: str, as_text: tuple[str, ...]) -> FileColumns:
    del as_text
    if path.suffix.lower() == ".npy":
        return FileColumns(_from_array(read_array(path, label), label))
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{label} is not an archive of arrays as `numpy.savez` writes it.")
    arrays = read_arrays(path, label)
    if len(arrays) == 1:
        return FileColumns(_from_array(next(iter(arrays.values())), label))
    return FileColumns(_from_arrays(arrays, label))


def _from_frame(frame: Any, label: str) -> Columns:
    if _is_from("polars", frame):
        frame = frame.collect() if hasattr(frame, "collect") else frame
        if not hasattr(frame, "get_column"):
            frame = frame.to_frame()
        return {name: _from_polars(frame.get_column(name)) for name in frame.columns}
    if not hasattr(frame, "columns"):
        frame = frame.to_frame()
    levels = [frame.index.get_level_values(i) for i in range(frame.index.nlevels)]
    if any(level.name is not None or is_time_index(level) for level in levels):
        frame = frame.reset_index(allow_duplicates=True)
    names = [str(name) for name in frame.columns]
    if len(levels) == 1 and levels[0].name is None and is_time_index(levels[0]):
        # A column of numbers may well be called `index`; this one has no name.
        names[0] = "" if levels[0].dtype.kind in "fm" else names[0]
    require_different(names, label)
    return {name: _from_pandas(frame.iloc[:, i]) for i, name in enumerate(names)}


def is_time_index(level: Any) -> bool:
    """Whether a level of an index of pandas holds times, or periods of them, or may do so.

    Numbers that only count rows are none.
    """
    if level.dtype.kind in "Mm" or str(level.dtype).startswith("period"):
        return True
    if level.dtype.kind == "f":
        return not only_counts(level.to_numpy())
    return level.dtype.kind == "O" and column_of(level.tolist()).form == "time"


def only_counts(numbers: np.ndarray) -> bool:
    """Whether numbers are those of rows, of which some may be lost."""
    is_whole = bool(np.all(numbers == np.round(numbers)))
    return len(numbers) < 2 or (is_whole and bool(np.median(np.abs(np.diff(numbers))) == 1))


def _from_polars(series: Any) -> Column:
    kind_of = series.dtype.base_type().__name__
    if kind_of == "Boolean":
        return Column(_floats(series.cast(int).to_numpy()), "bool")
    if series.dtype.is_numeric():
        values = _floats(series.cast(float).to_numpy())
        return Column(values, "number", is_whole=series.dtype.is_integer() and _are_exact(values))
    if kind_of in ("Date", "Datetime"):
        # Within polars a time with a zone is kept in UTC, and leaves it so.
        zone = getattr(series.dtype, "time_zone", None)
        times = series.to_numpy().astype("datetime64[us]")
        return Column(times, "time", zone=zone_of(zone) if zone else "")
    if kind_of == "Duration":
        return _from_seconds(series.to_numpy())
    column = column_of(series.to_list())
    if kind_of == "Enum":
        return _typed(column, series.dtype.categories.to_list())
    if kind_of == "Categorical":  # whose order is that in which they were first met anywhere
        return _typed(column, sorted(series.unique().drop_nulls().to_list(), key=natural))
    return column


def _from_pandas(series: Any) -> Column:
    form = getattr(series.dtype, "kind", "O")
    if form == "b":
        return Column(series.to_numpy(dtype=np.float64, na_value=np.nan), "bool")
    if form in "iuf":
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return Column(values, "number", is_whole=form in "iu" and _are_exact(values))
    if form == "M":
        zone = getattr(series.dt, "tz", None)
        naive = series.dt.tz_convert("UTC").dt.tz_localize(None) if zone is not None else series
        times = naive.to_numpy().astype("datetime64[us]")
        return Column(times, "time", zone="" if zone is None else zone_of(zone))
    if form == "m":
        return _from_seconds(series.to_numpy())
    column = column_of(series.tolist())
    is_typed = str(series.dtype) == "category"
    return _typed(column, series.cat.categories.tolist()) if is_typed else column


def _typed(column: Column, levels: list[Any]) -> Column:
    """A column whose type has these levels; of dates they are none."""
    if column.form not in ("number", "bool", "text"):
        return column
    names = dict.fromkeys(names_of(column_of(levels)))
    return replace(column, levels=tuple(name for name in names if name is not None))


def _from_array(source: Any, label: str) -> Columns:
    """Steps; steps and columns; or sequences, steps and columns: named x0, x1, ..."""
    array = _plain_array(source)
    if array.dtype.names:
        return _from_arrays({name: array[name] for name in array.dtype.names}, label)
    if array.ndim not in (1, 2, 3):
        raise ValueError(
            f"{label} must be an array of the shape (steps,), (steps, columns) or (sequences,"
            f" steps, columns); got {kind(array)}."
        )
    table = array.reshape(-1, 1) if array.ndim == 1 else array.reshape(-1, array.shape[-1])
    require_size(f"{label} has {table.shape[1]} columns", PER_COLUMN * table.shape[1])
    columns = {f"x{i}": _from_vector(table[:, i]) for i in range(table.shape[1])}
    if array.ndim == 3:
        number = np.repeat(np.arange(array.shape[0], dtype=np.float64), array.shape[1])
        columns[SEQUENCE_AXIS] = Column(number, "number")
    return columns


def _from_arrays(arrays: Mapping[str, Any], label: str) -> Columns:
    """Vectors by name; the columns of a matrix `a` are a_0, a_1, ..."""
    columns: Columns = {}
    for name, values in arrays.items():
        array = _plain_array(values)
        if array.ndim == 1:
            columns[name] = _from_vector(array)
        elif array.ndim == 2:
            num_columns = array.shape[1]
            require_size(f"{label} has {num_columns} columns in {name!r}", PER_COLUMN * num_columns)
            parts = {f"{name}_{i}": _from_vector(array[:, i]) for i in range(array.shape[1])}
            columns |= parts
        else:
            raise ValueError(
                f"{label} must hold vectors or matrices with a row for each step; {name!r} is"
                f" {kind(array)}."
            )
    return columns


def _from_vector(array: np.ndarray) -> Column:
    if array.dtype.kind == "b":
        return Column(array.astype(np.float64), "bool")
    if array.dtype.kind in "iuf":
        values = _floats(array)
        is_whole = array.dtype.kind in "iu" and _are_exact(values)
        return Column(values, "number", is_whole=is_whole)
    if array.dtype.kind == "M":
        return Column(array.astype("datetime64[us]"), "time")
    if array.dtype.kind == "m":
        return _from_seconds(array)
    return column_of(array.tolist())


def _from_seconds(durations: np.ndarray) -> Column:
    return Column(durations / np.timedelta64(1, "s"), "number", (DURATIONS,))


def _plain_array(values: Any) -> np.ndarray:
    """The values as an array, with NaN where a masked array is masked."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(np.float64), np.nan)
    return np.asarray(values)


def _floats(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float64)


def _are_exact(values: np.ndarray) -> bool:
    """Whether whole numbers are still told apart."""
    return bool(np.all(np.abs(values[~np.isnan(values)]) < 2**53))


def _is_from(library: str, source: Any) -> bool:
    """Whether an object is a library's, by the name of its module: asking would import it."""
    return type(source).__module__.split(".")[0] == library


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
