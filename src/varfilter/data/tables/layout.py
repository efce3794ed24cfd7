"""Which columns of a table are its time, its sequences and its values, and the rows in order."""

import itertools
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from varfilter._arguments import kind
from varfilter._text import count
from varfilter.data.dataset import SPLITS
from varfilter.data.splits import require_fractions, split_by_sequence
from varfilter.data.tables.columns import Column, groups, numbers, unknown
from varfilter.data.tables.files import SEQUENCE_AXIS, Columns
from varfilter.data.tables.grid import Clock
from varfilter.data.tables.times import WITHOUT_NAME, clock_named, find_clock, under_own_name

SEQUENCE_NAMES = ("sequence", "series", "run", "episode", "trial", "session")
# Columns that are looked through for an error to say which of them tell rows apart.
MOST_TRIED = 12


@dataclass(frozen=True)
class Layout:
    """The columns of the time and the sequences; `long` are those of variable and value."""

    clock: Clock
    sequence: str | None = None
    long: tuple[str, str] | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The columns of a table that are no observations."""
        names = (*self.clock.columns, self.sequence, *(self.long or ()))
        return tuple(name for name in names if name is not None)

    @property
    def reserved(self) -> tuple[str, ...]:
        """The columns of `given`, after the time column that is made of several, if one is."""
        return self.given if self.clock.column is None else (self.clock.column, *self.given)

    def for_array(self, columns: Columns) -> "Layout":
        """The layout for a new table; an array may come with or without an axis of sequences."""
        if SEQUENCE_AXIS in columns:
            return replace(self, sequence=SEQUENCE_AXIS)
        return replace(self, sequence=None) if self.sequence == SEQUENCE_AXIS else self


@dataclass(frozen=True)
class Rows:
    """Rows by sequence and time; sequence i is `starts[i]` to `starts[i + 1]`.

    `values` has the chosen columns, `forms` their forms; `origin` is the row of the table that
    each came from, or None if it was put together from several. `texts` are the times as they were
    written, where they were text.
    """

    values: np.ndarray
    forms: tuple[str, ...]
    stamps: np.ndarray
    starts: np.ndarray
    names: tuple[str, ...]
    origin: np.ndarray | None
    texts: np.ndarray | None = None

    def taking(self, columns: slice) -> "Rows":
        """The rows with some of their columns."""
        return replace(self, values=self.values[:, columns], forms=self.forms[columns])

    def at(self, row: int) -> str:
        """Where a row stood, for an error message."""
        return "" if self.origin is None else f" in row {self.origin[row]} (counted from 0)"


def find_layout(
    columns: Columns,
    time: Any,
    sequence: Any,
    long: tuple[str, str] | None,
    observed: Sequence[str] = (),
) -> Layout:
    """Find the columns of time and sequence: as the user names them, or by what they hold."""
    if long is not None and (isinstance(long, str) or len(long) != 2):
        raise ValueError(
            f"`long` must be two names, of the column of variables and that of values; got {long}."
        )
    is_named = sequence is not None and sequence is not False
    if is_named and SEQUENCE_AXIS in columns:
        raise ValueError(
            f"`sequence` is {sequence!r}, but `source` is an array whose first axis are the"
            " sequences. Leave `sequence` out."
        )
    named = [("sequence", sequence if is_named else None), *(("long", name) for name in long or ())]
    time = under_own_name(time, columns)
    clock = None if time is None else clock_named(columns, time)
    named += [("time", None if time is False else time)] if clock is None else []
    for argument, name in named:
        if name is None:
            continue
        if not isinstance(name, str):
            raise TypeError(f"`{argument}` must be the name of a column; got {kind(name)}.")
        if name not in columns:
            raise unknown(argument, name, _shown(columns))
    used = [name for _, name in named if name is not None]
    used += [] if clock is None else clock.columns
    twice = [name for name in used if used.count(name) > 1]
    if twice:
        raise ValueError(f"Column {twice[0]!r} is named twice; time, sequence and long differ.")
    if SEQUENCE_AXIS in columns:
        sequence = SEQUENCE_AXIS
    elif sequence is None:
        sequence = _obvious_sequence(columns, (*used, *observed))
    elif sequence is False:
        sequence = None
    used += [] if sequence in (None, *used) else [sequence]
    if clock is None:
        free = [name for name in columns if name not in (*used, *observed, SEQUENCE_AXIS)]
        clock = find_clock(columns, free, sequence)
    if clock.column is None and long is not None:
        raise ValueError("`long` needs a column of times to put rows together. Name it in `time`.")
    return Layout(clock, sequence, None if long is None else (long[0], long[1]))


def pivoted(columns: Columns, layout: Layout) -> Columns:
    """A long table with a column for each variable, by name: a row for each time of a sequence.

    Of two values of a variable at the same time the last counts.
    """
    if layout.long is None or layout.clock.column is None:
        return columns
    variable, value = layout.long
    found = numbers(value, columns[value])
    if isinstance(found, str):
        raise ValueError(f"`long` names {value!r} as the column of values; it holds {found}.")
    which, names = groups("long", variable, columns[variable])
    taken = [name for name in names if name in (layout.clock.column, layout.sequence)]
    if taken:
        raise ValueError(
            f"`long` names {variable!r} as the column of variables; one of them is {taken[0]!r},"
            " which is also the column of times or sequences. Rename one."
        )
    codes, stamps = _keys(columns, layout)
    order = np.lexsort((stamps, codes))
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(codes[order]) != 0) | (np.diff(stamps[order]) != 0)
    row = np.empty(len(order), np.int64)
    row[order] = np.cumsum(new) - 1
    table = np.full((int(new.sum()), len(names)), np.nan)
    seen = np.flatnonzero(~np.isnan(found))
    table[row[seen], which[seen]] = found[seen]
    wide = {
        name: columns[name].rows(order[new])
        for name in (layout.clock.column, layout.sequence)
        if name is not None
    }
    like = columns[value]
    return wide | {
        name: Column(table[:, i], like.form, is_whole=like.is_whole) for i, name in enumerate(names)
    }


def chosen(
    columns: Columns, layout: Layout, wanted: Sequence[str] | None, inputs: Sequence[str] = ()
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The columns of observations as numbers, and why each of the others is none.

    Those wanted, which must be numbers; or all that are, but for known inputs.
    """
    values: dict[str, np.ndarray] = {}
    left_out: dict[str, str] = {}
    candidates = [name for name in columns if name not in (*layout.reserved, *inputs)]
    for name in wanted if wanted is not None else candidates:
        if name in layout.reserved:
            raise ValueError(
                f"`columns` names {name!r}, a column of times, sequences or variables."
            )
        if name in inputs:
            raise ValueError(
                f"Column {name!r} is named in `columns` and in `inputs`: it is either observed or"
                " known beforehand."
            )
        if name not in columns:
            raise unknown("columns", name, candidates)
        if wanted is None and _is_row_number(name, columns):
            left_out[name] = "row numbers"
            continue
        if wanted is None and name in WITHOUT_NAME and name == next(iter(columns)):
            left_out[name] = "an index without a name; give it one, or name it in `time`"
            continue
        found = numbers(name, columns[name])
        if not isinstance(found, str):
            values[name] = found
        elif wanted is not None:
            raise ValueError(
                f"Column {name!r} holds {found}. Correct it, or leave it out of `columns`."
            )
        else:
            left_out[name] = found
    if wanted is not None:
        left_out = {n: "not named in `columns`" for n in candidates if n not in values}
    if not values and inputs and not candidates:
        raise ValueError(
            "`inputs` names all columns of numbers, and leaves none to observe:"
            f" {', '.join(map(repr, inputs))}. Leave out of it what is to be predicted."
        )
    if not values:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:6])
        raise ValueError(
            f"`source` has no column of numbers to observe ({reasons or 'no column'})."
        )
    return values, left_out


def known_columns(columns: Columns, layout: Layout, inputs: Sequence[str]) -> dict[str, np.ndarray]:
    """The columns of known inputs as numbers."""
    values: dict[str, np.ndarray] = {}
    for name in inputs:
        if name in layout.reserved:
            raise ValueError(f"`inputs` names {name!r}, a column of times, sequences or variables.")
        if name not in columns:
            names = [each for each in _shown(columns) if each not in layout.reserved]
            raise unknown("inputs", name, names)
        found = numbers(name, columns[name])
        if isinstance(found, str):
            raise ValueError(
                f"Column {name!r} holds {found}. Correct it, or leave it out of `inputs`."
            )
        values[name] = found
    return values


def require_known(rows: Rows, names: Sequence[str], clock: Clock) -> None:
    """Refuse inputs of which one is missing: they are known beforehand, at every row."""
    missing = np.argwhere(np.isnan(rows.values))
    if missing.size:
        row, column = map(int, missing[0])
        where = rows.at(row) or f" at {clock.shown(rows.stamps[row])}"
        raise ValueError(
            f"Column {names[column]!r} is a known input, but has no value{where}. Fill it, or leave"
            " it out of `inputs` to have it predicted."
        )


def arranged(columns: Columns, layout: Layout, values: dict[str, np.ndarray]) -> Rows:
    """Rows sorted by sequence and time; without a time they stay in their order."""
    names = ()
    if layout.sequence is not None:
        names = groups("sequence", layout.sequence, columns[layout.sequence])[1]
    codes, stamps = _keys(columns, layout)
    order = np.lexsort((stamps, codes))
    starts = np.searchsorted(codes[order], np.arange(max(len(names), 1) + 1))
    stamps = stamps[order]
    if layout.clock.column is None:
        stamps = np.arange(len(order)) - np.repeat(starts[:-1], np.diff(starts))
    matrix = np.zeros((len(order), 0))
    if values:
        matrix = np.stack([column[order] for column in values.values()], axis=1)
    forms = tuple(columns[name].form for name in values)
    texts = None if layout.clock.column is None else columns[layout.clock.column].texts
    texts = None if texts is None else texts[order]
    return Rows(matrix, forms, stamps, starts, names, None if layout.long else order, texts)


def require_distinct(columns: Columns, layout: Layout) -> None:
    """An error if times repeat so often that several sequences must be mixed."""
    keys = list(_keys(columns, layout))
    if layout.long:
        keys.append(groups("long", layout.long[0], columns[layout.long[0]])[0])
    order = np.lexsort(keys)
    new = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    num_distinct = 1 + int(new.sum())
    if len(order) > 2 and len(order) >= 2 * num_distinct:
        raise ValueError(
            f"`time` is column `{layout.clock.column}`, in which the same time occurs"
            f" {len(order) / num_distinct:.3g} times on average. Name the column that tells"
            " sequences apart in `sequence`, or those of variable and value in `long`; or give"
            f" `step` to keep the last values of each time.{_telling_apart(columns, layout)}"
        )


def _telling_apart(columns: Columns, layout: Layout) -> str:
    """Which column of names, or which two, tell the rows of each time apart, in words."""
    num_rows = len(next(iter(columns.values())))
    codes = {}
    for name, column in list(columns.items())[:MOST_TRIED]:
        is_named = column.form in ("text", "level") or column.is_whole
        if name in layout.reserved or not is_named:
            continue
        with suppress(ValueError):  # a row without a name
            found, names = groups("sequence", name, column)
            # One that is another in each row, or nearly, tells everything apart.
            if 1 < len(names) <= num_rows / 2:
                codes[name] = found
    stamps = list(_keys(columns, layout))
    if layout.long:
        stamps.append(groups("long", layout.long[0], columns[layout.long[0]])[0])
    for names in (*itertools.combinations(codes, 1), *itertools.combinations(codes, 2)):
        keys = np.stack([*stamps, *(codes[name] for name in names)], axis=1)
        if len(np.unique(keys, axis=0)) == num_rows:
            together = " and ".join(map(repr, names))
            return f" With the names in {together} each time comes once."
    return ""


def _keys(columns: Columns, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """The number of the sequence and the stamp of each row."""
    num_rows = len(next(iter(columns.values())))
    codes = np.zeros(num_rows, np.int64)
    if layout.sequence is not None:
        codes = groups("sequence", layout.sequence, columns[layout.sequence])[0]
    time = layout.clock.column
    return codes, np.arange(num_rows) if time is None else layout.clock.stamps(columns[time])


def _obvious_sequence(columns: Columns, used: tuple[str, ...]) -> str | None:
    """The only column named like one of sequences (`run`, `run_id`), with a name in each row."""
    found = [
        name
        for name in columns
        if name not in used and name.lower().removesuffix("_id") in SEQUENCE_NAMES
    ]
    if len(found) > 1:
        listed = ", ".join(repr(name) for name in found)
        raise ValueError(
            f"`sequence` is not given, and the columns {listed} may all be it. Name one, or give"
            " `sequence=False` if all rows are one."
        )
    return found[0] if found else None


def _is_row_number(name: str, columns: Columns) -> bool:
    """Whether it is the first column and numbers the rows, as frames are written with an index."""
    column = columns[name]
    if name != next(iter(columns)) or name not in WITHOUT_NAME or column.form != "number":
        return False
    values = column.values
    # Where frames were put together, each begins again from its first.
    steps = np.diff(values) > 0
    return bool(np.all(values == np.round(values)) and np.all(steps | (values[1:] == values[0])))


def _shown(columns: Columns) -> list[str]:
    return [name for name in columns if name != SEQUENCE_AXIS]


# (sequence, first row, row past the last) in `Rows`.
Part = tuple[int, int, int]


def require_split(split: str, fractions: Any) -> None:
    """`split` is one of its words, and `fractions` are three that sum to 1."""
    if split not in ("auto", "sequence", "time"):
        raise ValueError(f"`split` must be 'auto', 'sequence' or 'time'; got {split!r}.")
    require_fractions(fractions)


def sequences_of(rows: Rows) -> list[Part]:
    """The rows of each sequence, whole."""
    return [(i, int(a), int(b)) for i, (a, b) in enumerate(itertools.pairwise(rows.starts))]


def splits_sequences(rows: Rows, split: str) -> bool:
    """Whether whole sequences are drawn, and not the rows of each divided by time."""
    return split == "sequence" or (split == "auto" and len(rows.starts) > len(SPLITS))


def parts_of(
    rows: Rows, split: str, fractions: Sequence[float], seed: int
) -> dict[str, list[Part]]:
    """Which rows are for training, validation and test."""
    runs = sequences_of(rows)
    if splits_sequences(rows, split):
        if len(runs) < len(SPLITS):
            raise ValueError(
                f"`split` is by sequence, but there are {len(runs)}: train, valid and test need one"
                " each. Give `split='time'`, or name the column of sequences in `sequence`."
            )
        numbers = split_by_sequence(len(runs), fractions, seed)
        return {name: [runs[i] for i in numbers[name]] for name in SPLITS}
    parts: dict[str, list[Part]] = {name: [] for name in SPLITS}
    for i, begin, end in runs:
        cuts = [begin, *_cuts(rows.stamps[begin:end], begin, fractions), end]
        for name, (first, last) in zip(SPLITS, itertools.pairwise(cuts), strict=True):
            if first < last:
                parts[name].append((i, first, last))
    for name in SPLITS:
        if not parts[name]:
            raise ValueError(
                f"`source` has {count(len(rows.stamps), 'row')} in"
                f" {count(len(runs), 'sequence')}: too few to leave any for {name}. Give a longer"
                " table."
            )
    return parts


def _cuts(stamps: np.ndarray, begin: int, fractions: Sequence[float]) -> list[int]:
    """Where the rows for validation begin, and those for test; equal times stay together."""
    distinct = np.unique(stamps)
    size = len(distinct)
    if size < len(SPLITS):
        return [begin + len(stamps)] * 2
    first = min(max(math.floor(fractions[0] * size + 0.5), 1), size - 2)
    second = math.floor((fractions[0] + fractions[1]) * size + 0.5)
    second = min(max(second, first + 1), size - 1)
    return [begin + int(np.searchsorted(stamps, distinct[i])) for i in (first, second)]
