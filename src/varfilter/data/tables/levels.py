"""Columns of text with a few levels: their numbers, and a vector of 0 and 1 for each value."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from varfilter.data.tables.columns import Column, name_of, numbers

# As many levels a column of text may have that nobody called categorical, with so many training
# rows for each of them in the mean; and as many as any may have, each of which is an element.
MOST_LEVELS, ROWS_PER_LEVEL, MOST_ELEMENTS = 32, 5, 256


class Levels(NamedTuple):
    """The levels of a column in the training rows, in order; or why it has none to predict."""

    names: tuple[str, ...] = ()
    refused: str = ""


def coded(
    columns: Mapping[str, Column],
    categorical: Iterable[str],
    reserved: Iterable[str],
    others: Iterable[str] = (),
) -> tuple[dict[str, Column], dict[str, tuple[str, ...]]]:
    """The columns with the number of its text in place of each text; and the texts by column.

    Those of text that is neither faulty numbers nor dates, and those that are called categorical,
    or whose type says so, unless they are named in `others`. The levels of a type keep its order.
    """
    found: dict[str, Column] = {}
    texts: dict[str, tuple[str, ...]] = {}
    for name, column in columns.items():
        is_meant = name in categorical or (column.levels and name not in others)
        is_written = column.form in ("number", "bool", "text") or _are_written_times(column)
        is_meant = is_meant and is_written
        if name in reserved or not (is_meant or _is_text(name, column)):
            found[name] = column
            continue
        written = names_of(column)
        present = sorted({text for text in written if text is not None}, key=natural)
        typed = [level for level in column.levels if level in present]
        texts[name] = (*typed, *(text for text in present if text not in column.levels))
        found[name] = Column(codes_of(written, texts[name])[0], "level", column.notes)
    return found, texts


def names_of(column: Column) -> list[str | None]:
    """Each value of a column as the name of a level; None where it is missing."""
    if column.form == "text":
        return list(column.values)
    if _are_written_times(column) and column.texts is not None:
        return list(column.texts)
    if column.form == "bool":
        return [None if v != v else "true" if v else "false" for v in column.values]
    if column.form == "number":
        return [None if v != v else name_of(v) for v in column.values]
    return [None if v is None or v != v else str(v) for v in column.values]


def codes_of(
    written: Sequence[str | None], levels: Sequence[str]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The number of each level, NaN where there is none; and the names that are no levels."""
    numbered = {level: float(i) for i, level in enumerate(levels)}
    codes = np.array([numbered.get(text or "", np.nan) for text in written], np.float64)
    unseen = dict.fromkeys(text for text in written if text is not None and text not in numbered)
    return codes, tuple(unseen)


def levels_of(codes: np.ndarray, texts: Sequence[str], *, is_given: bool) -> Levels:
    """The levels of the training rows of a column; `is_given` says that it was called categorical.

    A text that is nearly another in each row tells rows apart, or is meant for people: there is
    nothing to predict of it.
    """
    present = codes[~np.isnan(codes)].astype(np.int64)
    found, times = np.unique(present, return_counts=True)
    names = tuple(texts[int(i)] for i in found)
    count = len(names)
    such = f"text, such as {names[int(np.argmax(times))]!r}" if count else "text"
    if count < 2:
        return Levels(refused=f"text, {names[0]!r} throughout" if names else such)
    if is_given:
        too_many = f"{count} levels; {MOST_ELEMENTS} are the most"
        return Levels(names) if count <= MOST_ELEMENTS else Levels(refused=too_many)
    if count > MOST_LEVELS or present.size < ROWS_PER_LEVEL * count:
        return Levels(refused=f"{such}: {count} different ones in {present.size} training rows")
    return Levels(names)


def recoded(codes: np.ndarray, texts: Sequence[str], levels: Sequence[str]) -> np.ndarray:
    """The numbers of levels, from those in a longer list of texts; NaN where it is no level."""
    numbered = {level: float(i) for i, level in enumerate(levels)}
    place = np.array([*(numbered.get(text, np.nan) for text in texts), np.nan])
    return place[np.where(np.isnan(codes), len(texts), codes).astype(np.int64)]


def spread_out(values: np.ndarray, num_levels: Sequence[int]) -> np.ndarray:
    """Rows with an element for each level of a column, 1 for its own; a column of 0 stays one."""
    parts = []
    for column, count in zip(values.T, num_levels, strict=True):
        if not count:
            parts.append(column[:, None])
            continue
        is_level = (column[:, None] == np.arange(count)).astype(values.dtype)
        parts.append(np.where(np.isnan(column)[:, None], np.nan, is_level).astype(values.dtype))
    return np.concatenate(parts, axis=1) if parts else values


def unseen_note(name: str, unseen: Sequence[str], count: int | None = None) -> str:
    """A sentence on texts that are none of a column's levels."""
    listed = ", ".join(repr(text) for text in unseen[:4]) + (", ..." if len(unseen) > 4 else "")
    what = "no level" if len(unseen) == 1 else "no levels"
    times = "" if count is None else f" ({count:,} values)"
    return f"Column '{name}' has {listed}{times}, {what} of the training rows: taken as missing."


def _are_written_times(column: Column) -> bool:
    """Whether it holds times that were text: 2024M01 may be a month, or the name of a level."""
    return column.form == "time" and column.texts is not None


def _is_text(name: str, column: Column) -> bool:
    """Whether it is text as such; what is wrong with faulty numbers is said elsewhere."""
    if column.form != "text":
        return False
    try:
        found = numbers(name, column)
    except ValueError:
        return False
    return isinstance(found, str) and found.startswith("text")


def natural(text: str) -> tuple[float, str]:
    """What names are sorted by: 9 before 10, and numbers before words."""
    try:
        return float(text), text
    except ValueError:
        return float("inf"), text


def typed_notes(columns: Mapping[str, Column], levels: Iterable[str]) -> list[str]:
    """Sentences on the categorical columns that are such by the type of their column."""
    return [
        f"Column '{name}' is of a categorical type, and taken as categorical, with its levels in"
        " the order of the type. For another kind, give `kinds`."
        for name in levels
        if name in columns and columns[name].levels
    ]
