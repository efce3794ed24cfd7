"""What a user is told of how a table was read, a sentence each."""

from collections.abc import Iterable, Mapping

import numpy as np

from varfilter._text import count
from varfilter.data.ragged import Ragged
from varfilter.data.tables.cycles import cycle_notes
from varfilter.data.tables.files import SEQUENCE_AXIS, Columns
from varfilter.data.tables.kinds import GROUNDS
from varfilter.data.tables.schema import TableSchema
from varfilter.data.tables.spacing import BusinessDays, at_weekends
from varfilter.data.tables.zones import on_wall


def notes_of(
    columns: Columns,
    schema: TableSchema,
    rows: Mapping[str, Ragged],
    *,
    inferred: bool,
    by_sequence: bool,
    chosen_calendar: bool,
) -> tuple[str, ...]:
    """Sentences on how a table was read: what a user may have wanted otherwise."""
    step, kinds, inputs = schema.step, schema.kinds, schema.inputs
    notes = [_time_note(schema, inferred=inferred)]
    observed = dict.fromkeys(schema.columns, True) | dict.fromkeys(schema.left_out, False)
    notes += cycle_notes(columns, schema.layout, observed)
    values = [split.values for split in rows.values()]
    num_empty = sum(int(np.all(np.isnan(v), axis=1).sum()) for v in values)
    notes += inputs.notes(has_gaps=num_empty > 0, chosen_calendar=chosen_calendar)
    if step is not None and num_empty:
        num_steps = sum(map(len, values))
        notes.append(f"Gaps: {num_empty:,} of {count(num_steps, 'step')} without any value.")
    if isinstance(schema.calendar, BusinessDays):
        notes += _weekend_notes(columns, schema)
    notes += schema.merged.notes()
    notes.append(_sequence_note(schema.layout.sequence))
    notes.append(f"Split by {'whole sequences' if by_sequence else 'time, each sequence'}.")
    for kind in dict.fromkeys(kinds.values()):
        names = [name for name in kinds if kinds[name] == kind]
        # Of an unusual family each column has a sentence of its own, with its numbers.
        is_seen = any(schema.reasons.get(name) == GROUNDS.get(kind) for name in names)
        why = f" ({GROUNDS[kind]})" if kind in GROUNDS and is_seen else ""
        notes.append(f"Columns taken as {kind}{why}: {_listed(names)}.")
    notes += [
        f"Column {_quoted(name)} has {count(len(levels), 'level')}: {_listed(levels)}. Any other"
        " is missing."
        for name, levels in schema.levels.items()
    ]
    notes += [
        f"Column {_quoted(name)} is left out: {why}." for name, why in schema.left_out.items()
    ]
    for name, column in columns.items():
        notes += [f"Column {_quoted(name)} {note}." for note in column.notes]
    return tuple(notes)


def _time_note(schema: TableSchema, *, inferred: bool) -> str:
    clock, step = schema.layout.clock, schema.step
    if step is None:
        return "No column is the time: rows are steps, in their order."
    what = "columns" if len(clock.columns) > 1 else "column"
    begin = f"The time is {what} {', '.join(_quoted(name) for name in clock.columns)}"
    unit = " s" if clock.is_date else ""
    if schema.inputs.is_by_rows:
        why = ": no grid fits, rows would be lost to others" if inferred else ", as asked for"
        return f"{begin}, at unequal distances, usually of {step:.10g}{unit}{why}."
    how = "found from the training rows" if inferred else "as given"
    if schema.calendar is not None:
        rule = getattr(schema.calendar, "rule", "").replace("-", " ")
        on = f", forecast on its {rule}" if rule else ""
        return f"{begin}; a step is a {schema.calendar.word} of the calendar{on} ({how})."
    return f"{begin}; a step is {step:.10g}{unit} ({how})."


def _weekend_notes(columns: Columns, schema: TableSchema) -> list[str]:
    clock = schema.layout.clock
    stamps = on_wall(clock.stamps(columns[clock.column or ""]), clock.zone)
    number = int(at_weekends(stamps).sum())
    lie = "lies" if number == 1 else "lie"
    return [f"{count(number, 'row')} at a weekend {lie} on the Friday before."] if number else []


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
