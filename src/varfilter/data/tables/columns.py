"""One column of a table: numbers, times or text, and how it became so.

Nothing here knows of files or of time grids.
"""

import datetime as dt
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

import numpy as np

from varfilter._arguments import nearest
from varfilter.data.tables.dates import described, uncertain, written_dates
from varfilter.data.tables.zones import zone_of, zone_of_offsets

COMMA_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][+-]?\d+)?")
# With a comma before each three digits, a point before the rest: 1,234.5 can be nothing else.
GROUPED = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?")
# As pandas and Python write them.
DURATION = re.compile(r"(-?\d+) days?(?:,? \+?(\d{1,2}):(\d{2}):(\d{2}(?:\.\d+)?))?")
# 1,234 may be a thousand and more; 0,125 and 12,5 may not.
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


def comma_numbers(texts: list[str]) -> list[float] | None:
    """The numbers of texts with decimal commas; None if they are none, or have thousands."""
    if not all(COMMA_NUMBER.fullmatch(text) for text in texts):
        return None
    with_comma = [text for text in texts if "," in text]
    if not with_comma or all(THOUSANDS.fullmatch(text) for text in with_comma):
        return None
    # 1.5 beside 1,5: one of the two is not what it seems.
    if any("." in text and "," not in text for text in texts):
        return None
    return [float(text.replace(".", "").replace(",", ".")) for text in texts]


def grouped_numbers(texts: list[str]) -> list[float] | None:
    """The numbers of texts with commas between thousands; None if they are none, or may be others.

    One of them must have a decimal point too: 1,234 by itself may be little more than one.
    """
    if not all(GROUPED.fullmatch(text) for text in texts):
        return None
    if not any("," in text and "." in text for text in texts):
        return None
    return [float(text.replace(",", "")) for text in texts]


def has_comma_number(text: str) -> bool:
    """Whether a number with one comma stands there."""
    return "," in text and COMMA_NUMBER.fullmatch(text) is not None


MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-")
# What is said of a column of these.
DURATIONS = "holds durations, read as seconds"
# All whole numbers up to here are 32-bit numbers.
WHOLE = 2**24


@dataclass(frozen=True)
class Column:
    """A column whose values all have one form.

    `number` (float64, NaN if missing), `bool` (the same, 0 and 1), `time` (datetime64[us], in
    UTC where offsets are given, NaT if missing), `text` (str or None), `level` (float64, the number
    of each text in a list of them, NaN if missing), or `other`. `notes`: what had to be guessed to
    read it. `texts`: times as they were written, where they were text, and `style` how, where that
    is not ISO's (`dates.py`). `zone`: that of times that have one (`zones.py`). `is_whole`: numbers
    that came as whole ones, and not as whole values of others. `levels`: the names of those that
    the type of the column has, in its order, where it is a categorical one.
    """

    values: np.ndarray
    form: Literal["number", "bool", "time", "text", "level", "other"]
    notes: tuple[str, ...] = ()
    texts: np.ndarray | None = None
    style: str = ""
    is_whole: bool = False
    levels: tuple[str, ...] = ()
    zone: str = ""

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, which: np.ndarray) -> "Column":
        """The column with some of its rows, in another order."""
        texts = None if self.texts is None else self.texts[which]
        return replace(self, values=self.values[which], texts=texts)

    @property
    def cells(self) -> np.ndarray:
        """The values as they came: whole numbers, truths and texts as such, None if missing."""
        is_missing = np.zeros(len(self), bool)
        if self.form in ("number", "bool"):
            is_missing = np.isnan(self.values)
        kind = bool if self.form == "bool" else np.int64 if self.is_whole else None
        if kind is None:
            return self.values
        if not is_missing.any():
            return self.values.astype(kind)
        cells = np.where(is_missing, 0, self.values).astype(kind).astype(object)
        cells[is_missing] = None
        return cells


def column_of(values: Iterable[Any]) -> Column:
    """The column of Python objects: strings that all read as numbers are numbers, dates times."""
    values = list(values)
    items = [_plain(value) for value in values]
    present = [item for item in items if item is not None]
    if any(not isinstance(item, str | float | bool | dt.datetime) for item in present):
        return Column(np.array([None] * len(items), object), "other")
    if present and _is_date(present[0]):
        times = [_time(item) for item in items]
        if all((time is None) == (item is None) for time, item in zip(times, items, strict=True)):
            stamps = np.array([time and _utc(time) for time in times], "datetime64[us]")
            zone, notes = _zone([time for time in times if time is not None])
            return Column(stamps, "time", notes, _texts(items), zone=zone)
    numbers = [math.nan if item is None else number_of(item) for item in items]
    if not any(number is None for number in numbers):
        form = "bool" if present and all(_is_bool(item) for item in present) else "number"
        return Column(np.array(numbers, np.float64), form, is_whole=_are_whole(values))
    if all(isinstance(item, str) for item in present):
        column = _as_written(items, present)
        if column is not None:
            return column
    texts = np.empty(len(items), object)
    texts[:] = [None if item is None else str(item) for item in items]
    return Column(texts, "text")


def numbers(name: str, column: Column) -> np.ndarray | str:
    """Float64 with NaN for missing values; or, if it holds none, the reason in words.

    A column of which at least half reads as numbers is not text but faulty: an error.
    """
    if column.form == "time":
        return "dates, not numbers"
    if column.form == "other":
        return "neither numbers nor text"
    if column.form == "text":
        present = [(row, text) for row, text in enumerate(column.values) if text is not None]
        bad = [(row, text) for row, text in present if number_of(text) is None]
        row, text = bad[0]
        commas = [(row, text) for row, text in present if has_comma_number(text)]
        if commas and 2 * (len(commas) + len(present) - len(bad)) >= len(present):
            row, text = commas[0]
            raise ValueError(
                f"Column `{name}` has {text!r} in row {row} (counted from 0): a decimal comma, or"
                " one of thousands; not all its rows tell. Write numbers with a decimal point and"
                " without thousands, or name the columns to use in `columns`."
            )
        if (reason := uncertain([text for _, text in present])) is not None:
            return reason
        if 2 * len(bad) <= len(present):
            raise ValueError(
                f"Column `{name}` has {text!r} in row {row} (counted from 0), among numbers. Leave"
                " the place empty if the value is missing, or name the columns to use in `columns`."
            )
        return f"text, such as {text!r}"
    endless = np.flatnonzero(np.isinf(column.values))
    if endless.size:
        raise ValueError(
            f"Column `{name}` is infinite in row {endless[0]} (counted from 0). Leave the place"
            " empty (or NaN) if the value is missing."
        )
    large = np.flatnonzero(np.abs(column.values) > np.finfo(np.float32).max)
    if large.size:
        raise ValueError(
            f"Column `{name}` has {column.values[large[0]]:g} in row {large[0]} (counted from 0),"
            " too large for a 32-bit number. Give it in a larger unit."
        )
    return column.values


def within_floats(column: Column) -> Column:
    """The column with what is finite, but too large for a 32-bit number, put to the largest one.

    For a new table: there an absurd reading is the filter's to judge, and no reason to stop.
    """
    if column.form != "number":
        return column
    largest = float(np.finfo(np.float32).max)
    is_finite = np.isfinite(column.values)
    values = np.where(is_finite, np.clip(column.values, -largest, largest), column.values)
    return Column(values, "number", column.notes)


def groups(argument: str, name: str, column: Column) -> tuple[np.ndarray, tuple[str, ...]]:
    """The number of each row's group (a sequence, a variable), and their names in natural order."""
    if column.form == "other":
        raise ValueError(f"`{argument}` names column `{name}`, neither numbers nor text.")
    lost = [value is None for value in column.values]
    missing = np.flatnonzero(lost if column.form == "text" else column.values != column.values)
    if missing.size:
        raise ValueError(
            f"`{argument}` names column `{name}`, which is empty in row {missing[0]} (counted from"
            " 0). Every row needs a name there."
        )
    texts = column.values.astype(str) if column.form == "text" else column.values
    found, codes = np.unique(texts, return_inverse=True)
    names = [name_of(value) for value in found]
    # "9" before "10", whether the file's reader took them for text or for numbers.
    values = [number_of(text) for text in names]
    if any(value is None for value in values):
        return codes, tuple(names)
    order = sorted(range(len(names)), key=lambda i: (values[i], names[i]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], tuple(names[i] for i in order)


def is_constant(present: np.ndarray) -> bool:
    """Whether all values are the same; sums that should be equal differ in their last bits."""
    return bool(np.ptp(present) <= 16 * np.spacing(np.max(np.abs(present))))


def require_resolved(name: str, kind: str, training: np.ndarray) -> None:
    """An error if 32-bit numbers, as which tables are kept, are too coarse for the column."""
    present = training[~np.isnan(training)]
    spread, centre = float(np.std(present)), float(np.mean(present))
    largest = float(np.max(np.abs(present)))
    coarse = float(np.spacing(np.float32(largest)))
    constant = is_constant(present)
    if constant and largest > WHOLE and float(np.float32(present[0])) != present[0]:
        raise ValueError(
            f"Column `{name}` is {present[0]:.17g} throughout, and the nearest 32-bit number is"
            f" {float(np.float32(present[0])):.17g}. Subtract {present[0]:.17g} from it first, or"
            " leave it out by naming the others in `columns`."
        )
    if not constant and largest < float(np.finfo(np.float32).tiny):
        raise ValueError(
            f"Column `{name}` has no value beyond {largest:.3g}, too small for 32-bit numbers. Give"
            " it in a smaller unit."
        )
    if kind not in ("binary", "categorical") and not constant and coarse > 0.01 * spread:
        raise ValueError(
            f"Column `{name}` varies by only {spread:.3g} around {centre:.10g}; 32-bit numbers"
            f" there are {coarse:.3g} apart. Subtract {centre:.10g} from it first."
        )


def unknown(argument: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a column that is not there, with the nearest that is."""
    names = list(known)
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return ValueError(
        f"`{argument}` names the column {name!r}.{nearest(name, names)} The columns are: {listed}."
    )


def _plain(value: Any) -> Any:
    """None if missing; else a float, bool, str or datetime; or whatever it is."""
    if isinstance(value, str):
        text = value.strip()
        return None if text.lower() in MISSING else text
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, bool | np.bool):
        return bool(value)
    if isinstance(value, int | float | Decimal | np.integer | np.floating):
        try:
            return None if value != value else float(value)
        except OverflowError:
            return math.inf
    if type(value).__name__ == "Period" and hasattr(value, "to_timestamp"):  # of pandas
        value = value.to_timestamp()
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, dt.date):
        return dt.datetime.combine(value, dt.time())
    return value


def _as_written(items: list[Any], present: list[str]) -> Column | None:
    """Numbers with decimal commas, or dates in another order than ISO's; None if it is neither."""
    numbers = comma_numbers(present)
    if numbers is not None:
        each = iter(numbers)
        values = [math.nan if item is None else next(each) for item in items]
        return Column(np.array(values, np.float64), "number", ("has decimal commas",))
    numbers = grouped_numbers(present)
    if numbers is not None:
        each = iter(numbers)
        values = [math.nan if item is None else next(each) for item in items]
        return Column(np.array(values, np.float64), "number", ("has commas between thousands",))
    if all(DURATION.fullmatch(text) for text in present):
        values = [math.nan if item is None else _seconds(item) for item in items]
        return Column(np.array(values), "number", (DURATIONS,))
    dates = written_dates(present)
    if dates is None:
        return None
    each = iter(dates[0])
    stamps = [None if item is None else next(each) for item in items]
    notes = (f"holds dates, read as {described(dates[1])}",)
    return Column(np.array(stamps, "datetime64[us]"), "time", notes, _texts(items), dates[1])


def _seconds(text: str) -> float:
    days, hours, minutes, seconds = (float(part or 0) for part in DURATION.findall(text)[0])
    return 86400 * days + 3600 * hours + 60 * minutes + seconds


def _zone(times: list[dt.datetime]) -> tuple[str, tuple[str, ...]]:
    """The zone of times, or none; and that some of them have an offset from UTC, others none."""
    offsets = [time.utcoffset() for time in times]
    known = [offset for offset in offsets if offset is not None]
    if not known:
        return "", ()
    if len(known) < len(times):
        note = "holds times with an offset from UTC and times without, which are taken for UTC"
        return "UTC", (note,)
    zones = {zone_of(time.tzinfo) for time in times}
    if len(zones) == 1:
        return zones.pop(), ()
    zone = zone_of_offsets(map(_utc, times), known)
    taken = f"as {zone} has them" if zone != "UTC" else "and days are taken to begin with UTC's"
    return zone, (f"holds times whose offsets from UTC change, {taken}",)


def _texts(items: list[Any]) -> np.ndarray | None:
    """The texts of times; None if they are no texts."""
    has_texts = any(isinstance(item, str) for item in items)
    return np.array([item and str(item) for item in items], object) if has_texts else None


def _are_whole(values: list[Any]) -> bool:
    """Whether all that is there are whole numbers, and can be told apart as floats."""
    present = [value for value in values if _plain(value) is not None]
    return all(
        isinstance(value, int | np.integer) and not isinstance(value, bool) and abs(value) < 2**53
        for value in present
    )


def _is_bool(item: Any) -> bool:
    return isinstance(item, bool) or (isinstance(item, str) and item.lower() in ("true", "false"))


def number_of(item: Any) -> float | None:
    """The number that a cell holds, true and false as 1 and 0; None where it holds none."""
    if _is_bool(item):
        return float(str(item).lower() == "true")
    try:
        return float(item)
    except (TypeError, ValueError):
        return None


def _is_date(item: Any) -> bool:
    """Digits alone may be an ISO date, but are taken for a number."""
    if isinstance(item, str):
        return re.match(r"\d{4}-\d{2}(-\d{2}|$)", item) is not None
    return isinstance(item, dt.datetime)


def _time(item: Any) -> dt.datetime | None:
    if not _is_date(item):
        return None
    try:
        text = item + "-01" if isinstance(item, str) and len(item) == 7 else item
        return dt.datetime.fromisoformat(text) if isinstance(text, str) else text
    except ValueError:
        return None


def _utc(stamp: dt.datetime) -> dt.datetime:
    """A time with an offset becomes UTC, one without stays as it is."""
    return stamp if stamp.tzinfo is None else stamp.astimezone(dt.UTC).replace(tzinfo=None)


def name_of(value: Any) -> str:
    """A value as a name: a whole number without its point."""
    if isinstance(value, np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)
