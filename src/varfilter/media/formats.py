"""Rows of named values, written by the ending of the file: JSON lines, CSV, Parquet or arrays."""

import csv
import datetime as dt
import io
import json
import math
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter._arguments import kind, require_library
from varfilter._files import written

Row = dict[str, Any]
ENDINGS = (".jsonl", ".csv", ".parquet", ".npz")
# Formats that have a column for each number, and of how many numbers a value may be there.
NARROW = (".csv", ".parquet")
MOST_ELEMENTS = 100
# Longer vectors are only counted on a terminal.
MOST_SHOWN = 16
WHOLE: tuple[type, ...] = (int, np.integer, np.bool)
DATES: tuple[type, ...] = (np.datetime64, dt.date)


class Vector(NamedTuple):
    """A value of many numbers: a list in JSON lines, an array in .npz, columns elsewhere.

    Column i of the value called `prediction` is `prediction_LABEL`; without `labels`, its number.
    """

    values: np.ndarray
    labels: tuple[str, ...] = ()


class Moment(dt.datetime):
    """A date with the text that the user wrote for it, which JSON lines and CSV have again."""

    text: str

    @classmethod
    def of(cls, time: np.datetime64, text: str) -> "Moment":
        """The moment of a time that was written as `text`."""
        made = cls.fromisoformat(str(time.astype("datetime64[us]")))
        made.text = text
        return made


def write_rows(rows: Iterable[Row], path: Path | None, *, ending: str | None = None) -> None:
    """Rows with the same names to a file; or, without `path`, to standard output.

    The format is that of the `ending` that is given, or of the path's; of standard output, JSON
    lines or, if so asked, CSV.

    - .jsonl: an object a line; null for what is missing (None, NaN) or not finite.
    - .csv: a first line of names; what is missing is empty.
    - .parquet: null for what is missing.
    - .npz: an array for each name; NaN, NaT or an empty text for what is missing.

    Dates are ISO text in the first two, without a time of the day where their unit is a day; or as
    the user wrote them (`Moment`). Single-precision numbers have as many digits as tell
    them apart (0.3, not 0.30000001192092896). JSON lines and CSV are written row by row, to
    standard output each at once; the other two when all rows are there. A file at `path` stays
    as it was until the new one is whole, and if that fails.

    On a terminal a vector of more than 16 numbers is only counted in JSON lines.
    """
    if path is None:
        if ending != ".csv" and sys.stdout.isatty():
            rows = map(_for_eyes, rows)
        lines = _csv_lines(rows) if ending == ".csv" else map(_json_line, rows)
        for line in lines:
            sys.stdout.write(line)
            sys.stdout.flush()
        return
    WRITERS[require_ending(path, ending=ending)](rows, Path(path))


def as_columns(rows: Iterable[Row]) -> dict[str, np.ndarray]:
    """Rows with the same names as an array for each name: what .npz holds."""
    return {name: _array(values) for name, values in _gathered(rows).items()}


def in_order(numbered: Iterable[tuple[int | None, Row]]) -> Iterator[Row]:
    """The rows by their numbers, each as soon as those before it are there."""
    waiting: dict[int, Row] = {}
    following = 0
    for number, row in numbered:
        if number is None:
            yield row
            continue
        waiting[number] = row
        while following in waiting:
            yield waiting.pop(following)
            following += 1


def require_ending(
    path: Path, *, num_elements: int = 1, ending: str | None = None, others: Sequence[str] = ()
) -> str:
    """The ending of `path`, or the one that is given in its place, if it is one of a table.

    It must have room for values of `num_elements` numbers. `others` are endings of the medium's
    own, which an error names too. Worth asking before the work that gives the rows.
    """
    format, ending = ending, Path(path).suffix.lower() if ending is None else ending
    if ending not in ENDINGS:
        *most, last = (*others, *ENDINGS)
        raise ValueError(f"`path` must end in {', '.join(most)} or {last}; got {str(path)!r}.")
    if num_elements > MOST_ELEMENTS and ending in NARROW:
        if format is not None:
            raise ValueError(
                f"`format` is {format[1:]!r}, but a value of {num_elements} numbers has no place in"
                f" its columns (at most {MOST_ELEMENTS}). Give jsonl or npz."
            )
        *most, last = (".jsonl", *others, ".npz")
        raise ValueError(
            f"`path` is {str(path)!r}, but a value of {num_elements} numbers has no place in the"
            f" columns of {ending} (at most {MOST_ELEMENTS}). Give a file that ends in"
            f" {', '.join(most)} or {last}."
        )
    return ending


def without_wide(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows without values of more numbers than there is room for in columns."""
    for row in rows:
        yield {name: value for name, value in row.items() if not _is_wide(value)}


def _write_json_lines(rows: Iterable[Row], path: Path) -> None:
    with written(path) as write:
        for row in rows:
            write(_json_line(row).encode())


def _write_csv(rows: Iterable[Row], path: Path) -> None:
    with written(path) as write:
        for line in _csv_lines(rows):
            write(line.encode())


def _write_parquet(rows: Iterable[Row], path: Path) -> None:
    polars = require_library("polars", extra="tables")
    with written(path) as write:
        columns = _gathered(_spread(row, ".parquet") for row in rows)
        series = []
        for name, values in columns.items():
            array = _array(values)
            if array.dtype.kind == "U":
                array = [_text(value) for value in values]
            elif array.dtype.kind == "f" and _are_whole(values):
                array = [_plain(value) for value in values]
            column = polars.Series(name, array)
            series.append(column.fill_nan(None) if column.dtype.is_float() else column)
        content = io.BytesIO()
        polars.DataFrame(series).write_parquet(content)
        write(content.getvalue())


def _write_npz(rows: Iterable[Row], path: Path) -> None:
    with written(path) as write:
        columns = as_columns(rows)
        content = io.BytesIO()
        # Not `numpy.savez`: it takes names for arguments, and a column may be called `file`.
        with zipfile.ZipFile(content, "w") as archive:
            for name, values in columns.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, values, allow_pickle=False)
        write(content.getvalue())


WRITERS: dict[str, Callable[[Iterable[Row], Path], None]] = dict(
    zip(ENDINGS, (_write_json_lines, _write_csv, _write_parquet, _write_npz), strict=True)
)


def _for_eyes(row: Row) -> Row:
    """The row with a count in place of each long vector, such as the 4,096 pixels of a frame."""
    return {name: _counted(value) for name, value in row.items()}


def _counted(value: Any) -> Any:
    array = value.values if isinstance(value, Vector) else value
    if not isinstance(array, np.ndarray) or array.size <= MOST_SHOWN or _plain(value) is None:
        return value
    return f"{array.size:,} numbers, which --out FILE or a pipe has"


def _json_line(row: Row) -> str:
    plain = {name: _plain(value) for name, value in row.items()}
    line = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    if not line.isprintable():
        # Names may hold codes that move the cursor of a terminal; in JSON each has an escape.
        line = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)
    return line + "\n"


def _csv_lines(rows: Iterable[Row]) -> Iterator[str]:
    for number, row in enumerate(_alike(_spread(row, ".csv") for row in rows)):
        if number == 0:
            yield _csv_line(row)
        yield _csv_line(_endless(value) for value in row.values())


def _csv_line(values: Iterable[Any]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()


def _plain(value: Any) -> Any:
    """Format a value for JSON; a vector of which all is missing is missing."""
    if isinstance(value, Vector | np.ndarray):
        array = value.values if isinstance(value, Vector) else value
        if array.dtype.kind == "f" and np.isnan(array).all():
            return None
        return _nested(array)
    if _is_missing(value):
        return None
    if isinstance(value, np.floating):
        value = float(str(value))  # with the digits of its own precision
    if isinstance(value, DATES):
        return _text(value)
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _nested(array: np.ndarray) -> list[Any]:
    if array.ndim == 1:
        return [_plain(number) for number in array]
    return [_nested(part) for part in array]


def _is_wide(value: Any) -> bool:
    array = value.values if isinstance(value, Vector) else value
    return isinstance(array, np.ndarray) and array.size > MOST_ELEMENTS


def _spread(row: Row, ending: str) -> Row:
    """A column for each number of a vector."""
    spread: Row = {}
    for name, value in row.items():
        if not isinstance(value, Vector | np.ndarray):
            spread[name] = value
            continue
        vector = value if isinstance(value, Vector) else Vector(value)
        if _is_wide(vector):
            raise ValueError(
                f"`rows` have a value of {vector.values.size} numbers, {name!r}, which has no place"
                f" in the columns of {ending} (at most {MOST_ELEMENTS}). Give a file that ends in"
                " .jsonl or .npz."
            )
        labels = vector.labels or tuple(map(str, range(vector.values.size)))
        for label, number in zip(labels, vector.values.ravel(), strict=True):
            spread[f"{name}_{label}"] = number
    return spread


def _alike(rows: Iterable[Row]) -> Iterator[Row]:
    """Pass rows on, and refuse one whose names are not those of the first."""
    names: list[str] | None = None
    for number, row in enumerate(rows):
        names = list(row) if names is None else names
        if list(row) != names:
            odd = sorted(set(row) ^ set(names)) or list(row)
            raise ValueError(
                f"`rows` must have the same names in the same order; row {number} (counted from 0)"
                f" differs from the first in {', '.join(odd[:6])}. Give None where a value is"
                " missing."
            )
        yield row


def _gathered(rows: Iterable[Row]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for row in _alike(rows):
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return columns


def _array(values: list[Any]) -> np.ndarray:
    """Values of one name as an array without objects."""
    values = [value.values if isinstance(value, Vector) else value for value in values]
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    if arrays:
        empty = np.full_like(arrays[0], np.nan, np.result_type(arrays[0], np.float16))
        return np.stack([empty if value is None else value for value in values])
    present = [value for value in values if not _is_missing(value)]
    if any(isinstance(value, str) for value in present):
        return np.array(["" if _is_missing(value) else _text(value) for value in values], np.str_)
    if present and all(isinstance(value, DATES) for value in present):
        unit = "D" if all(_is_day(value) for value in present) else "us"
        values = ["NaT" if _is_missing(value) else value for value in values]
        return np.array(values, f"datetime64[{unit}]")
    if len(present) < len(values) or any(
        isinstance(value, float | np.floating) for value in present
    ):
        is_single = bool(present) and all(type(value) is np.float32 for value in present)
        values = [math.nan if _is_missing(value) else value for value in values]
        return np.array(values, np.float32 if is_single else np.float64)
    array = np.array(present, np.float64 if not present else None)
    if array.dtype.kind not in "bui" and present:
        raise TypeError(f"`rows` must hold numbers, dates and text; got {kind(present[0])}.")
    return array


def _are_whole(values: list[Any]) -> bool:
    """Whether all that is there are whole numbers or truths, and something is."""
    present = [value for value in values if not _is_missing(value)]
    return bool(present) and all(isinstance(value, WHOLE) for value in present)


def _text(value: Any) -> str | None:
    """ISO for dates, without what their unit leaves out."""
    if _is_missing(value):
        return None
    if isinstance(value, Moment):
        return value.text
    if isinstance(value, np.datetime64):
        if _is_day(value):
            return str(value)
        value = value.astype("datetime64[us]").item()
    return value.isoformat() if isinstance(value, dt.date) else str(value)


def _is_day(value: Any) -> bool:
    """Whether it is a day or a month, without a time of the day."""
    return isinstance(value, np.datetime64) and np.datetime_data(value)[0] in ("D", "M")


def _endless(value: Any) -> Any:
    """Format a value for CSV: as for JSON, but infinities have a name."""
    if isinstance(value, float | np.floating) and math.isinf(value):
        return str(float(value))
    return _plain(value)


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and math.isnan(value)
