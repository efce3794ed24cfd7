"""Columns that sound like a time and are none: a month without a year, or beside a date.

What they were taken for is said, with how to say otherwise.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from varfilter.data.tables.columns import Column
from varfilter.data.tables.files import Columns
from varfilter.data.tables.layout import Layout
from varfilter.data.tables.parts import PARTS, RANGES, part_numbers, word_of
from varfilter.data.tables.zones import on_wall

# Columns that come round again, and that people give without the year.
CYCLES = ("month", "quarter")
# A panel has at least so many rows of each of those that it is of.
FEWEST_EACH = 3


def told_by_time(columns: Columns, layout: Layout, names: Iterable[str]) -> dict[str, str]:
    """Which of the columns are the month, the year or so of the time beside them, and why."""
    clock = layout.clock
    if clock.column is None or not clock.is_date or clock.parts or layout.long is not None:
        return {}
    stamps = on_wall(clock.stamps(columns[clock.column]), clock.zone)
    found: dict[str, str] = {}
    for name in names:
        word = word_of(name)
        if word not in PARTS or columns[name].form not in ("number", "text"):
            continue
        values = part_numbers(columns[name], word)
        told = PARTS[word](stamps.astype("datetime64[us]"))
        seen = ~np.isnan(values)
        if seen.any() and np.array_equal(values[seen], told[seen]):
            found[name] = (
                f"the {word} of the time in column {clock.column!r}, which is known beforehand;"
                f" name it in `kinds`, as {name}=numeric, or in `columns` to have it predicted"
            )
    return found


def cycle_notes(columns: Columns, layout: Layout, observed: Mapping[str, bool]) -> list[str]:
    """Sentences on columns that sound like a time, where none is; and whether each is observed."""
    if layout.clock.column is not None:
        return []
    notes: list[str] = []
    for name, is_observed in observed.items():
        word = word_of(name)
        if name not in columns:
            continue
        done = "predicted like the others" if is_observed else "left out"
        if word in CYCLES and _is_part(columns[name], word):
            notes.append(
                f"Column {name!r} has the {word}s of no year: it is no time, and is {done}."
                f" Name it in `inputs` if it is known beforehand, or give a column"
                " named year beside it."
            )
        if word == "year" and _is_part(columns[name], word) and _repeats(columns[name]):
            told = _told_apart(columns, name, layout)
            apart = f", perhaps {told!r}," if told else ""
            notes.append(
                f"Column {name!r} has most years several times: it is no time, and is {done}."
                f" If it is the time of several sequences, name the column{apart}"
                " that tells them apart in `sequence`."
            )
    return notes


def _repeats(years: Column) -> bool:
    """Whether years come twice in the mean, as they do where there are several sequences."""
    values = part_numbers(years, "year")
    present = values[~np.isnan(values)]
    return len(present) >= 2 * len(np.unique(present))


def _is_part(column: Column, word: str) -> bool:
    if column.form not in ("number", "text"):
        return False
    low, high = RANGES[word]
    values = part_numbers(column, word)
    present = values[~np.isnan(values)] if column.form == "number" else values
    is_one = (present >= low) & (present <= high) & (present == np.round(present))
    least = max(low, 1500) if word == "year" else low
    return bool(present.size and np.all(is_one) and np.all(present >= least))


def _told_apart(columns: Columns, year: str, layout: Layout) -> str | None:
    """The column of which each has a year once at most, with several rows of each."""
    years = columns[year].values
    for name, column in columns.items():
        if name == year or column.form not in ("text", "number") or name == layout.sequence:
            continue
        cells = column.values.astype(str)
        num_names = len(np.unique(cells))
        pairs = np.unique(np.stack([cells, years.astype(str)]), axis=1)
        if num_names > 1 and FEWEST_EACH * num_names <= len(years) == pairs.shape[1]:
            return name
    return None
