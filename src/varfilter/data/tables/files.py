"""Tables from files, data frames and arrays: each becomes columns by name."""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter._arguments import kind
from varfilter.data.arrays import read_array, read_arrays
from varfilter.data.limits import require_size
from varfilter.data.tables.columns import Column, column_of
from varfilter.data.tables.parquet import read_parquet
from varfilter.data.tables.text import PER_COLUMN, read_text, require_different

Columns = dict[str, Column]


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
        )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name}: {length}" for name, length in list(lengths.items())[:6])
        raise ValueError(f"{label} has columns of different lengths ({shown}): not one table.")
    if not any(lengths.values()):
        raise ValueError(f"{label} has no rows. Give at least one row of numbers.")
    return FileColumns(columns, notes)


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
    if any(level.name is not None or level.dtype.kind == "M" for level in levels):
        frame = frame.reset_index(allow_duplicates=True)
    names = [str(name) for name in frame.columns]
    require_different(names, label)
    return {name: _from_pandas(frame.iloc[:, i]) for i, name in enumerate(names)}


def _from_polars(series: Any) -> Column:
    kind_of = series.dtype.base_type().__name__
    if kind_of == "Boolean":
        return Column(_floats(series.cast(int).to_numpy()), "bool")
    if series.dtype.is_numeric():
        return Column(_floats(series.cast(float).to_numpy()), "number")
    if kind_of in ("Date", "Datetime"):
        # Within polars a time with a zone is kept in UTC, and leaves it so.
        return Column(series.to_numpy().astype("datetime64[us]"), "time")
    if kind_of == "Duration":
        return _from_seconds(series.to_numpy())
    return column_of(series.to_list())


def _from_pandas(series: Any) -> Column:
    form = getattr(series.dtype, "kind", "O")
    if form == "b":
        return Column(series.to_numpy(dtype=np.float64, na_value=np.nan), "bool")
    if form in "iuf":
        return Column(series.to_numpy(dtype=np.float64, na_value=np.nan), "number")
    if form == "M":
        zone = getattr(series.dt, "tz", None)
        naive = series.dt.tz_convert("UTC").dt.tz_localize(None) if zone is not None else series
        return Column(naive.to_numpy().astype("datetime64[us]"), "time")
    if form == "m":
        return _from_seconds(series.to_numpy())
    return column_of(series.tolist())


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
        return Column(_floats(array), "number")
    if array.dtype.kind == "M":
        return Column(array.astype("datetime64[us]"), "time")
    if array.dtype.kind == "m":
        return _from_seconds(array)
    return column_of(array.tolist())


def _from_seconds(durations: np.ndarray) -> Column:
    return Column(durations / np.timedelta64(1, "s"), "number")


def _plain_array(values: Any) -> np.ndarray:
    """The values as an array, with NaN where a masked array is masked."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(np.float64), np.nan)
    return np.asarray(values)


def _floats(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float64)


def _is_from(library: str, source: Any) -> bool:
    """Whether an object is a library's, by the name of its module: asking would import it."""
    return type(source).__module__.split(".")[0] == library
