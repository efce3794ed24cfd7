"""A table as it comes: a line of JSON for each step, several sequences beside each other."""

import json
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.tables.columns import MISSING, column_of, unfit
from varfilter.data.tables.grid import places
from varfilter.data.tables.schema import LONGEST_NEW, TableSchema

LARGEST = float(np.finfo(np.float32).max)


@dataclass
class LineSequence:
    """The steps of a sequence so far.

    `origin` is the stamp of its first step; None: its steps are counted. `place` is the number
    of its last step.
    """

    name: str | int
    origin: float | int | None = None
    place: int = -1


class Step(NamedTuple):
    """One step of a sequence: its row, all NaN where no line came; and when it was."""

    sequence: str | int
    row: np.ndarray
    time: Any


class TableLines:
    """Reads lines such as {"time": 12.5, "warm": 20.1, "is_on": null} one by one.

    - A column that is absent or null is missing. Other names are ignored, but a line that has
      only such is bad.
    - The column of times, where the table has one, may be left out: the line is then the next
      step. A line that comes later than the next step is preceded by steps without values; one
      that is no step after the line before it is bad.
    - The column that names the sequence, or `sequence` where the table has none, tells streams
      apart; without it all lines are one.
    """

    def __init__(self, schema: TableSchema):
        self.schema = schema
        self.sequences: dict[str | int, LineSequence] = {}
        clock = schema.layout.clock
        self._step = 1 if schema.step is None else clock.distance(schema.step)
        self._sequence = schema.sequence or "sequence"

    def read(self, line: str | bytes) -> list[Step]:
        """The steps up to and with that of a line; a `ValueError`, and no change, if it is bad."""
        sequence, place, row = self._parsed(line)
        steps = []
        while sequence.place < place:
            sequence.place += 1
            values = np.full_like(row, np.nan) if sequence.place < place else row
            steps.append(Step(sequence.name, values, self._time(sequence)))
        return steps

    def _parsed(self, line: str | bytes) -> tuple[LineSequence, int, np.ndarray]:
        """The sequence of a line, its place there, and its row."""
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is not JSON ({str(error).rstrip('.')}): {_shown(line)}.") from None
        if not isinstance(found, dict):
            raise ValueError(f"must be an object with the names of columns; got {_shown(line)}.")
        columns = self.schema.columns
        reserved = (self._sequence, self.schema.time)
        others = [name for name in found if name not in (*columns, *reserved)]
        if others and not any(name in columns for name in found):
            raise ValueError(
                f"has none of the columns {', '.join(columns[:6])}; it has"
                f" {', '.join(map(repr, others[:6]))}."
            )
        row = [_number(name, kind, found.get(name)) for name, kind in self.schema.kinds.items()]
        sequence = self._sequence_of(found)
        place = self._place(sequence, found)
        self.sequences.setdefault(sequence.name, sequence)
        return sequence, place, np.array(row, np.float32)

    def _sequence_of(self, found: dict[str, Any]) -> LineSequence:
        if self._sequence not in found or self._sequence in self.schema.columns:
            return self.sequences.get(0) or LineSequence(0)
        name = found[self._sequence]
        if name is None or isinstance(name, list | dict | bool):
            raise ValueError(f"has {json.dumps(name)} as the name of its sequence.")
        name = str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)
        return self.sequences.get(name) or LineSequence(name)

    def _place(self, sequence: LineSequence, found: dict[str, Any]) -> int:
        """The step on the grid of its sequence; times that were not given go on by a step."""
        clock = self.schema.layout.clock
        time = None if clock.column is None else found.get(clock.column)
        if time is None:
            return sequence.place + 1
        column = column_of([time])
        if column.form != ("time" if clock.is_date else "number"):
            what = "a date such as 2024-01-31T12:30:00" if clock.is_date else "a number"
            raise ValueError(f"has {json.dumps(time)} as `{clock.column}`, which must be {what}.")
        stamps = clock.stamps(column)
        if sequence.place < 0:
            sequence.origin = stamps[0].item()
            return 0
        if sequence.origin is None:
            raise ValueError(
                f"has a `{clock.column}`, but the first line of its sequence has none. Give it to"
                " all, or to none."
            )
        place = int(places(stamps, sequence.origin, self._step)[0])
        if place <= sequence.place:
            raise ValueError(
                f"has the `{clock.column}` {json.dumps(time)}, which is no step after the line"
                " before. Give lines in the order of time."
            )
        if place - sequence.place > LONGEST_NEW:
            raise ValueError(
                f"has the `{clock.column}` {json.dumps(time)}, {place - sequence.place} steps after"
                f" the line before; the most is {LONGEST_NEW}."
            )
        return place

    def _time(self, sequence: LineSequence) -> Any:
        if sequence.origin is None:
            return sequence.place
        stamp = np.array([sequence.origin + sequence.place * self._step])
        return self.schema.layout.clock.times(stamp)[0]


def _number(name: str, kind: str, value: Any) -> float:
    """The number of a cell, NaN where it is missing; an error if it has no place in the column."""
    if value is None or (isinstance(value, str) and value.strip().lower() in MISSING):
        return math.nan
    try:
        number = math.nan if isinstance(value, list | dict) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if isinstance(value, list | dict) or not (math.isnan(number) or abs(number) <= LARGEST):
        raise ValueError(
            f"has {_shown(json.dumps(value))} in column `{name}`, where a number or null must be."
        )
    if unfit(kind, np.array([number])).size:
        what = "0 and 1" if kind == "binary" else "whole numbers from 0 on"
        raise ValueError(f"has {number:g} in column `{name}`, a {kind} one, of {what}.")
    return number


def _shown(line: str | bytes) -> str:
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    text = text.strip()
    return repr(text if len(text) <= 60 else text[:57] + "...")
