"""A time that stands in several columns: the year, the quarter or the month, the day, the hour.

They are read as one column of dates, and written as they were.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from varfilter.data.tables.columns import Column
from varfilter.data.tables.files import Columns
from varfilter.data.tables.spacing import DAY

MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
# What a column may hold, and the words of those that do not hold numbers, from the first on.
WRITTEN: dict[str, dict[str, tuple[str, ...]]] = {
    "month": {"short name": tuple(name[:3] for name in MONTH_NAMES), "name": MONTH_NAMES},
    "quarter": {"word": ("Q1", "Q2", "Q3", "Q4")},
}
RANGES = {
    "year": (1, 9999), "quarter": (1, 4), "month": (1, 12), "day": (1, 31), "hour": (0, 23),
    "minute": (0, 59),
}  # fmt: skip
# The year alone will do; each of the others needs those before it.
BY_QUARTER = ("year", "quarter")
BY_MONTH = ("year", "month", "day", "hour", "minute")

# What else people call them.
OTHERWISE = {"qtr": "quarter", "yr": "year", "mon": "month", "mth": "month", "hr": "hour"}

# (the name of a column, what it holds, how that is written: "number", or one of `WRITTEN`)
Part = tuple[str, str, str]


def word_of(name: str) -> str:
    """What a column holds by its name, if it holds a part of the time: year, month and so on."""
    return OTHERWISE.get(name.lower(), name.lower())


def find_parts(columns: Columns, names: Sequence[str]) -> tuple[Part, ...]:
    """The columns among `names` that tell the time together, by their names; () if none do."""
    lower = [word_of(name) for name in names]
    found = {word: name for word, name in zip(lower, names, strict=True) if lower.count(word) == 1}
    parts: list[Part] = []
    for word in BY_QUARTER if "quarter" in found and "month" not in found else BY_MONTH:
        how = _how(columns[found[word]], word) if word in found else None
        if how is None:
            # One that is there and cannot be read makes the others doubtful.
            return () if word in found else tuple(parts)
        parts.append((found[word], word, how))
    return tuple(parts)


def join_parts(columns: Columns, parts: Sequence[Part]) -> Column:
    """The dates that the columns tell together; an error names what cannot be one."""
    numbers = {"month": np.ones(1), "day": np.ones(1), "hour": np.zeros(1), "minute": np.zeros(1)}
    for name, word, _ in parts:
        values = part_numbers(columns[name], word)
        low, high = RANGES[word]
        bad = np.flatnonzero(~((values >= low) & (values <= high) & (values == np.round(values))))
        if bad.size:
            raise ValueError(
                f"`time` is told by column `{name}`, the {word}, which is"
                f" {str(columns[name].values[bad[0]])!r} in row {bad[0]} (counted from 0). Give"
                f" whole numbers from {low} to {high}, or `time=False` if rows are steps."
            )
        numbers[word] = values
    if "quarter" in numbers:
        numbers["month"] = 3 * numbers.pop("quarter") - 2
    year, month, day, hour, minute = (
        numbers[word].astype(np.int64) for word in ("year", "month", "day", "hour", "minute")
    )
    months = (12 * (year - 1970) + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    bad = np.flatnonzero(days.astype("datetime64[M]") != months)
    if bad.size:
        raise ValueError(
            f"`time` is told by the columns {', '.join(name for name, _, _ in parts)}, and row"
            f" {bad[0]} (counted from 0) is the {day[bad[0]]} of a month that has no such day."
            " Correct it, or give `time=False` if rows are steps."
        )
    stamps = days.astype("datetime64[us]").astype(np.int64) + hour * (DAY // 24)
    return Column((stamps + minute * (DAY // 1440)).astype("datetime64[us]"), "time")


def split_time(time: np.datetime64, parts: Sequence[Part]) -> dict[str, int | str]:
    """What each of the columns holds at a time."""
    return {name: _written(int(PARTS[word](time)), word, how) for name, word, how in parts}


def _whole(time: Any, unit: str) -> Any:
    return time.astype(f"datetime64[{unit}]").astype(np.int64)


def _day(time: Any) -> Any:
    month = time.astype("datetime64[M]").astype("datetime64[D]")
    return (time.astype("datetime64[D]") - month).astype(np.int64) + 1


# What a time, or each of several, has of each part.
PARTS: dict[str, Callable[[Any], Any]] = {
    "year": lambda time: _whole(time, "Y") + 1970,
    "quarter": lambda time: _whole(time, "M") % 12 // 3 + 1,
    "month": lambda time: _whole(time, "M") % 12 + 1,
    "day": _day,
    "hour": lambda time: _whole(time, "h") % 24,
    "minute": lambda time: _whole(time, "m") % 60,
}


def _how(column: Column, word: str) -> str | None:
    """How a column is written that holds such a part of the time; None if it holds none."""
    if column.form == "number":
        low, high = RANGES[word]
        values = column.values
        fits = (values >= low) & (values <= high) & (values == np.round(values))
        return "number" if bool(np.all(fits)) else None
    if column.form != "text":
        return None
    texts = set(column.values)
    return next((how for how, words in WRITTEN.get(word, {}).items() if texts <= {*words}), None)


def part_numbers(column: Column, word: str) -> np.ndarray:
    """What the column holds, as numbers, whether they are written as such or in words."""
    if column.form == "number":
        return column.values
    known = {
        name.lower(): float(number)
        for names in WRITTEN.get(word, {}).values()
        for number, name in enumerate(names, start=1)
    }
    return np.array([_number(value, known) for value in column.values])


def _number(value: Any, known: Mapping[str, float]) -> float:
    text = str(value).strip().lower()
    return float(text) if text.isdecimal() else known.get(text, np.nan)


def _written(number: int, word: str, how: str) -> int | str:
    return number if how == "number" else WRITTEN[word][how][number - 1]
