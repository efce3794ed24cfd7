"""What a table's columns are and how its rows lie in time: all that reads another table like it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.dataset import SPLITS
from varfilter.data.ragged import Ragged
from varfilter.data.tables.columns import unfit
from varfilter.data.tables.files import SEQUENCE_AXIS, Columns, read_columns
from varfilter.data.tables.grid import Clock, on_grid, overwritten, places, require_dense
from varfilter.data.tables.layout import (
    Layout,
    Part,
    Rows,
    arranged,
    chosen,
    sequences_of,
    widened,
)

# Rows of a new table, gaps included, that are never too many.
LONGEST_NEW = 1_000_000
# A few rows at times that others have are usual; more tell of a step that is not the table's.
MOST_MERGED = 0.01


class Readings(NamedTuple):
    """Sequences of a new table in the user's units, the times of their rows, and their names."""

    rows: Ragged
    times: Ragged
    names: tuple[str, ...]


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table and its layout in time.

    - `kinds`: numeric, binary or count, by column, in the order of the observations.
    - `layout`: which columns hold the time and the sequences.
    - `step`: the distance of two rows in time, in seconds between dates; None: rows are steps.
    - `left_out`: why a column of the first table is no observation, by column.
    - `num_merged`: rows of the first table that lost a value to a later one at the same step.
    """

    kinds: dict[str, str]
    layout: Layout
    step: float | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    num_merged: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are observed, in order."""
        return tuple(self.kinds)

    @property
    def time(self) -> str | None:
        """The name of the column of times; None: rows are steps."""
        return self.layout.clock.column

    @property
    def sequence(self) -> str | None:
        """The name of the column that tells sequences apart; None if the user has none."""
        return None if self.layout.sequence == SEQUENCE_AXIS else self.layout.sequence

    def read(self, source: Any) -> Readings:
        """A new table with the same columns, kinds and step, to be filtered.

        The columns may stand in another order, and others beside them.
        """
        names = (self.layout.sequence or "", *(self.layout.long or ())[:1])
        columns = read_columns(source, as_text=names)
        layout = self.layout.for_array(columns)
        absent = [name for name in layout.reserved if name not in columns]
        columns = columns if absent else widened(columns, layout)
        absent += [name for name in self.columns if name not in columns]
        if absent:
            listed = ", ".join(repr(name) for name in absent)
            raise ValueError(
                f"`source` lacks the columns {listed}, which the first table had. Give them all;"
                " values that are missing may be left empty."
            )
        values, _ = chosen(columns, layout, self.columns)
        rows = arranged(columns, layout, values)
        for (name, kind), column in zip(self.kinds.items(), rows.values.T, strict=True):
            require_kind(name, kind, column, rows, given=True)
        step = 1 if self.step is None else layout.clock.distance(self.step)
        parts = {"all": sequences_of(rows)}
        # The step is known to be right: a few rows may well lie far apart.
        found, times = gridded(rows, layout, step, parts, at_least=LONGEST_NEW)[0]["all"]
        return Readings(found, times, rows.names)

    def as_json(self) -> dict[str, Any]:
        """The schema as plain JSON, for the record of a run."""
        return {
            "kinds": self.kinds,
            "time": self.layout.clock.column,
            "is_date": self.layout.clock.is_date,
            "sequence": self.layout.sequence,
            "long": self.layout.long and list(self.layout.long),
            "step": self.step,
        }

    @staticmethod
    def from_json(known: dict[str, Any]) -> "TableSchema":
        """What `as_json` made, as a schema again."""
        long = known["long"] and (known["long"][0], known["long"][1])
        clock = Clock(known["time"], known["is_date"])
        return TableSchema(known["kinds"], Layout(clock, known["sequence"], long), known["step"])


def require_kind(name: str, kind: str, column: np.ndarray, rows: Rows, *, given: bool) -> None:
    """Refuse a value that a column of this kind cannot have, with the row it stands in."""
    bad = unfit(kind, column)
    if bad.size:
        what = "0 and 1" if kind == "binary" else "whole numbers from 0 to 16777216"
        fix = "Correct it" if given else f"Give `kinds={{{name!r}: 'numeric'}}`"
        raise ValueError(
            f"Column `{name}` is a {kind} one, of {what}{'' if given else ' (as trained on)'},"
            f" but has {column[bad[0]]:g}{rows.at(int(bad[0]))}. {fix}."
        )


def gridded(
    rows: Rows,
    layout: Layout,
    step: float | int,
    parts: Mapping[str, list[Part]],
    *,
    at_least: int = 0,
) -> tuple[dict[str, tuple[Ragged, Ragged]], int]:
    """Rows and their times on the grid, by split, and how many rows lost a value to another.

    A grid begins where its sequence does.
    """
    points = {
        part: places(rows.stamps[part[1] : part[2]], rows.stamps[rows.starts[part[0]]].item(), step)
        for some in parts.values()
        for part in some
    }
    runs = [rows.stamps[begin:end] for _, begin, end in points]
    require_dense(layout.clock, runs, points.values(), at_least=at_least)
    found: dict[str, tuple[Ragged, Ragged]] = {}
    for name, some in parts.items():
        values = [on_grid(rows.values[part[1] : part[2]], points[part]) for part in some]
        stamps = [
            rows.stamps[rows.starts[part[0]]] + (points[part][0] + np.arange(len(v))) * step
            for part, v in zip(some, values, strict=True)
        ]
        times = [layout.clock.times(each) for each in stamps]
        found[name] = Ragged.of(values), Ragged.of(times)
    lost = [len(overwritten(rows.values[a:b], at)) for (_, a, b), at in points.items()]
    return found, sum(lost)


def require_few_merged(clock: Clock, step: float | int, num_merged: int, num_rows: int) -> None:
    """An error if an inferred step loses more than one row, and more than one in a hundred."""
    if num_merged > max(1.0, MOST_MERGED * num_rows):
        raise ValueError(
            f"`step` is not given, and with the one found, {clock.seconds(step):.6g}, {num_merged}"
            f" of {num_rows} rows would be lost to others at the same point of the grid: the times"
            f" in column `{clock.column}` are too irregular. Give `step` (a shorter one keeps more"
            " rows, the last value at a point counts), or `time=False` to take rows as steps."
        )


def notes_of(
    columns: Columns,
    schema: TableSchema,
    rows: Mapping[str, Ragged],
    *,
    inferred: bool,
    by_sequence: bool,
) -> tuple[str, ...]:
    """Sentences on how a table was read: what a user may have wanted otherwise."""
    step, kinds = schema.step, schema.kinds
    notes = [_time_note(schema.layout.clock, step, inferred=inferred)]
    values = [split.values for split in rows.values()]
    num_empty = sum(int(np.all(np.isnan(v), axis=1).sum()) for v in values)
    if step is not None and num_empty:
        notes.append(f"{num_empty} of {sum(map(len, values))} steps have no value: gaps.")
    if schema.num_merged:
        notes.append(
            f"{schema.num_merged} rows lost a value to a later row at the same step: the last one"
            " counts."
        )
    notes.append(_sequence_note(schema.layout.sequence))
    sizes = ", ".join(
        f"{len(rows[s])} sequences ({len(rows[s].values)} steps) for {s}" for s in SPLITS
    )
    notes.append(
        f"Split {'by whole sequences' if by_sequence else 'by time, each sequence'}: {sizes}."
    )
    for kind in dict.fromkeys(kinds.values()):
        notes.append(f"Columns taken as {kind}: {_listed(n for n in kinds if kinds[n] == kind)}.")
    notes += [
        f"Column {_quoted(name)} is left out: {why}." for name, why in schema.left_out.items()
    ]
    for name, column in columns.items():
        notes += [f"Column {_quoted(name)} {note}." for note in column.notes]
    return tuple(notes)


def _time_note(clock: Clock, step: float | None, *, inferred: bool) -> str:
    if step is None:
        return "No column is the time: rows are steps, in their order."
    unit = " s" if clock.is_date else ""
    how = "found from the training rows" if inferred else "as given"
    return f"The time is column {_quoted(clock.column or '')}; a step is {step:.10g}{unit} ({how})."


def _sequence_note(sequence: str | None) -> str:
    if sequence is None:
        return "All rows are one sequence."
    if sequence == SEQUENCE_AXIS:
        return "The first axis of the array are the sequences."
    return f"Column {_quoted(sequence)} tells sequences apart."


def _quoted(name: str) -> str:
    return f"'{name}'" if name else "1 (without a name)"


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
