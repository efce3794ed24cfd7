"""How a table was read, in sentences for the user; and the rows that its grid would lose."""

from collections.abc import Iterable, Mapping

import numpy as np

from varfilter.data.dataset import SPLITS
from varfilter.data.ragged import Ragged
from varfilter.data.tables.files import SEQUENCE_AXIS, Columns
from varfilter.data.tables.grid import Clock
from varfilter.data.tables.layout import Layout

# A few rows at times that others have are usual; more tell of a step that is not the table's.
MOST_MERGED = 0.01


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
    layout: Layout,
    step: float | None,
    *,
    inferred: bool,
    by_sequence: bool,
    kinds: Mapping[str, str],
    left_out: Mapping[str, str],
    num_merged: int,
    gridded: Mapping[str, Ragged],
) -> tuple[str, ...]:
    """What a user may want to know, and could have wanted otherwise."""
    notes = [_time_note(layout.clock, step, inferred=inferred)]
    values = [split.values for split in gridded.values()]
    num_empty = sum(int(np.all(np.isnan(v), axis=1).sum()) for v in values)
    if step is not None and num_empty:
        notes.append(f"{num_empty} of {sum(map(len, values))} steps have no value: gaps.")
    if num_merged:
        notes.append(
            f"{num_merged} rows lost a value to a later row at the same step: the last one counts."
        )
    notes.append(_sequence_note(layout.sequence))
    sizes = ", ".join(
        f"{len(gridded[s])} sequences ({len(gridded[s].values)} steps) for {s}" for s in SPLITS
    )
    notes.append(
        f"Split {'by whole sequences' if by_sequence else 'by time, each sequence'}: {sizes}."
    )
    for kind in dict.fromkeys(kinds.values()):
        notes.append(f"Columns taken as {kind}: {_listed(n for n in kinds if kinds[n] == kind)}.")
    notes += [f"Column {_quoted(name)} is left out: {why}." for name, why in left_out.items()]
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
