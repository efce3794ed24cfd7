"""Which columns of a table tell its time: by their names, and by what they hold."""

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from varfilter.data.tables.columns import DURATIONS, Column, groups
from varfilter.data.tables.dates import DIGITS, ORDERS, are_numbered, dates_in, dates_of_digits
from varfilter.data.tables.files import Columns, only_counts
from varfilter.data.tables.grid import Clock, clock_of
from varfilter.data.tables.parts import Part, find_parts, join_parts

TIME_NAMES = ("time", "timestamp", "date", "datetime")
# Of columns that may hold months as numbers, such as 202401.
PERIOD_NAMES = ("month", "period", "yearmonth", "year_month", "yyyymm", "ym", "calendar_month")
# What an index without a name is called: in files, by pandas when it reads one, and in frames.
UNNAMED = ("", "Unnamed: 0", "index")
# Of these, what no column of a user's own is called.
WITHOUT_NAME = UNNAMED[:2]


def under_own_name(name: Any, names: Container[str]) -> Any:
    """The name of a column; of an index without one, what it is called among these."""
    if name not in UNNAMED or name in names:
        return name
    return next((other for other in UNNAMED if other in names), name)


def with_dates(columns: Columns, time: Any, *, has_months: bool = True) -> Columns:
    """The columns, in which numbers such as 20240131 or 202401 are dates if their name is a time's.

    A number or two in six digits may be anything; so may all without `has_months`, as may what is
    called a month.
    """
    names = (*TIME_NAMES, *PERIOD_NAMES) if has_months else TIME_NAMES
    found = dict(columns)
    for name, column in columns.items():
        is_named = name == time or name.lower() in names
        if column.form != "number" or not is_named or not len(column):
            continue
        dates = dates_of_digits(column.values)
        if dates is None:
            continue
        if dates[2] == DIGITS or (has_months and len(np.unique(dates[0])) > 2):
            notes = (f"holds dates, read as {dates[2]}",)
            found[name] = Column(dates[0], "time", notes, dates[1], dates[2])
    return found


def in_order(columns: Columns, order: str | None) -> Columns:
    """The columns, in which dates such as 02/01/2024 are read in the order that was asked for."""
    if order is None:
        return columns
    if order not in ORDERS:
        raise ValueError(f"`date_order` must be {' or '.join(map(repr, ORDERS))}; got {order!r}.")
    found, style = dict(columns), ORDERS[order]
    for name, column in columns.items():
        texts = column.values if column.form == "text" else column.texts
        present = [] if texts is None else [text for text in texts if text is not None]
        if texts is None or not are_numbered(present):
            continue
        dates = dates_in(style, present)
        if dates is None:
            bad = next(text for text in present if dates_in(style, [text]) is None)
            raise ValueError(
                f"`date_order` is {order!r}, but column `{name}` has {bad!r}, which is no date so."
                " Correct it, or leave `date_order` out: the rows tell the order."
            )
        each = iter(dates)
        stamps = [None if text is None else next(each) for text in texts]
        notes = (f"holds dates, read as {style}, as asked for",)
        found[name] = Column(np.array(stamps, "datetime64[us]"), "time", notes, texts, style)
    if all(found[name] is column for name, column in columns.items()):
        raise ValueError(
            f"`date_order` is {order!r}, but no column has dates such as 02/01/2024. Leave it out."
        )
    return found


def clock_named(columns: Columns, time: Any) -> Clock | None:
    """The clock of a column, or of several with commas between them; None if they are not there.

    `time` is False where rows are steps.
    """
    if time is False:
        return Clock(None)
    if not isinstance(time, str):
        return None
    if time in columns:
        return clock_of(time, columns[time])
    names = [name.strip() for name in time.split(",")]
    if len(names) < 2 or any(name not in columns for name in names):
        return None
    parts = find_parts(columns, names)
    if len(parts) < len(names):
        raise ValueError(
            f"`time` names the columns {', '.join(names)}, which do not tell a time together. Give"
            " year and quarter, or year, month, day, hour and minute as far as they go, in whole"
            " numbers."
        )
    return _clock_of_parts(parts)


def find_clock(columns: Columns, free: Sequence[str], sequence: str | None) -> Clock:
    """The clock of the `free` columns, by what they are called and what they hold.

    A column of dates or one with a name such as `time`; else columns named year, month and so on.
    """
    time = _obvious_time(columns, free)
    if time is None:
        clock = _obvious_parts(columns, free, sequence)
        if clock is not None:
            return clock
        time = _decimal_years(columns, free)
        time = _unnamed_index(columns, free, sequence) if time is None else time
    return Clock(None) if time is None else clock_of(time, columns[time])


def _obvious_time(columns: Columns, free: Sequence[str]) -> str | None:
    """The only column that holds dates or has such a name, or that does both; or none.

    `T` may be a temperature: of the short names only the small letter counts.
    """
    named = [name for name in free if name == "t" or name.lower() in TIME_NAMES]
    readable = [name for name in named if columns[name].form in ("number", "time")]
    dates = [name for name in free if columns[name].form == "time"]
    # One that cannot be read is reported, unless another takes its place.
    found = list(dict.fromkeys(readable + dates)) or named
    if len(found) > 1:
        both = [name for name in readable if name in dates]
        found = both if len(both) == 1 else found
    if len(found) > 1:
        listed = ", ".join(repr(name) for name in found)
        raise ValueError(
            f"`time` is not given, and the columns {listed} may all be it. Name one, or give"
            " `time=False` if rows are steps."
        )
    return found[0] if found else None


def _clock_of_parts(parts: tuple[Part, ...]) -> Clock:
    has_hours = any(word == "hour" for _, word, _ in parts)
    return Clock(", ".join(name for name, _, _ in parts), True, "us" if has_hours else "D", parts)


def _obvious_parts(columns: Columns, free: Sequence[str], sequence: str | None) -> Clock | None:
    """The clock of columns named year, month and so on, if they tell the time.

    A year alone that most rows share with others is one of their properties.
    """
    parts = find_parts(columns, free)
    if not parts:
        return None
    if len(parts) == 1:
        years = join_parts(columns, parts).values.astype(np.int64)
        codes = np.zeros(len(years), np.int64)
        if sequence is not None:
            codes = groups("sequence", sequence, columns[sequence])[0]
        num_distinct = len(np.unique(np.stack([codes, years]), axis=1).T)
        if len(years) >= 2 * num_distinct:
            return None
    return _clock_of_parts(parts)


def _unnamed_index(columns: Columns, free: Sequence[str], sequence: str | None) -> str | None:
    """The first column if it has no name and rises from row to row, and does not count rows."""
    name = next(iter(columns))
    column = columns[name]
    if name not in WITHOUT_NAME or name not in free or column.form != "number":
        return None
    counts = only_counts(column.values) and DURATIONS not in column.notes  # seconds are a time
    if column.is_whole or counts or not np.isfinite(column.values).all():
        return None
    codes = np.zeros(len(column), np.int64)
    if sequence is not None:
        codes = groups("sequence", sequence, columns[sequence])[0]
    order = np.argsort(codes, kind="stable")
    rises = (np.diff(column.values[order]) > 0) | (np.diff(codes[order]) != 0)
    return name if rises.all() else None


def _decimal_years(columns: Columns, free: Sequence[str]) -> str | None:
    """The column named year that holds numbers such as 1958.25, each once."""
    found = [name for name in free if name.lower() == "year" and columns[name].form == "number"]
    if len(found) != 1:
        return None
    values = columns[found[0]].values
    is_time = np.isfinite(values).all() and len(np.unique(values)) == len(values)
    return found[0] if is_time and np.any(values != np.round(values)) else None
