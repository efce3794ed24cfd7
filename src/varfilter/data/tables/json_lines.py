"""A table as it comes: a line of JSON for each step, several sequences beside each other."""

import json
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.tables.columns import MISSING, column_of
from varfilter.data.tables.grid import places
from varfilter.data.tables.kinds import REAL, unfit, what_fits
from varfilter.data.tables.levels import codes_of, names_of, spread_out, unseen_note
from varfilter.data.tables.schema import LONGEST_NEW, TableSchema

LARGEST = float(np.finfo(np.float32).max)


@dataclass
class LineSequence:
    """The steps of a sequence so far.

    `origin` is the stamp of its first step; None: its steps are counted. `place` is the number
    of its last step, `stamp` the stamp of that, and `known` its input columns, scaled.
    """

    name: str | int
    origin: float | int | None = None
    place: int = -1
    stamp: float | int | None = None
    known: np.ndarray = field(default_factory=lambda: np.zeros(0))


class Step(NamedTuple):
    """One step of a sequence: its row, all NaN where no line came; when it was; its known inputs.

    `u` is None where the table has no inputs.
    """

    sequence: str | int
    row: np.ndarray
    time: Any
    u: np.ndarray | None = None


class Line(NamedTuple):
    """What a line says: its sequence, its place there, its stamp, its row and its inputs."""

    sequence: LineSequence
    place: int
    stamp: float | int
    row: np.ndarray
    known: np.ndarray


class TableLines:
    """Reads lines such as {"time": 12.5, "warm": 20.1, "is_on": null} one by one.

    - A column that is absent or null is missing. Other names are ignored, but a line that has
      only such is bad.
    - The column of times, where the table has one, may be left out: the line is then the next
      step. A line that comes later than the next step is preceded by steps without values, which
      have the known inputs of the line before; one that is no step after the line before it is
      bad. Where each row is a step, so is each line.
    - A line without one of the known inputs is bad.
    - A text that is no level of its column is missing; `notes` are of those that were met since it
      was last emptied, each text once.
    - The column that names the sequence, or `sequence` where the table has none, tells streams
      apart; without it all lines are one.
    """

    def __init__(self, schema: TableSchema):
        self.schema = schema
        self.sequences: dict[str | int, LineSequence] = {}
        self.notes: list[str] = []
        self._unseen: set[tuple[str, str]] = set()
        self._step = schema.distance
        self._sequence = schema.sequence or "sequence"

    def read(self, line: str | bytes) -> list[Step]:
        """The steps up to and with that of a line; a `ValueError`, and no change, if it is bad."""
        sequence, place, stamp, row, known = self._parsed(line)
        steps = []
        while sequence.place < place:
            sequence.place += 1
            is_here = sequence.place == place
            before, sequence.stamp = sequence.stamp, stamp - (place - sequence.place) * self._step
            sequence.known = known if is_here else sequence.known
            values = row if is_here else np.full_like(row, np.nan)
            steps.append(
                Step(sequence.name, values, self._time(sequence), self._input(sequence, before))
            )
        return steps

    def _parsed(self, line: str | bytes) -> Line:
        """What a line says, if it is a good one."""
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is not JSON ({str(error).rstrip('.')}): {_shown(line)}.") from None
        if not isinstance(found, dict):
            raise ValueError(f"must be an object with the names of columns; got {_shown(line)}.")
        columns, inputs = self.schema.columns, self.schema.inputs
        reserved = (self._sequence, self.schema.time, *inputs.columns)
        others = [name for name in found if name not in (*columns, *reserved)]
        if others and not any(name in columns for name in found):
            raise ValueError(
                f"has none of the columns {', '.join(columns[:6])}; it has"
                f" {', '.join(map(repr, others[:6]))}."
            )
        row = [
            self._level(name, found.get(name))
            if name in self.schema.levels
            else _number(name, kind, found.get(name))
            for name, kind in self.schema.kinds.items()
        ]
        known = [_number(name, None, found.get(name)) for name in inputs.columns]
        if missing := [name for name, v in zip(inputs.columns, known, strict=True) if v != v]:
            raise ValueError(f"lacks the known input {missing[0]!r}, which every line must have.")
        sequence = self._sequence_of(found)
        place, stamp = self._place(sequence, found)
        self.sequences.setdefault(sequence.name, sequence)
        scaled = inputs.scaled(np.array([known]))[0]
        counts = [len(self.schema.levels.get(name, ())) for name in columns]
        elements = spread_out(np.array([row], np.float32), counts)[0]
        return Line(sequence, place, stamp, elements, scaled)

    def _level(self, name: str, value: Any) -> float:
        """The number of a level, NaN where it is missing, or none of those of the training rows."""
        if isinstance(value, list | dict):
            raise ValueError(
                f"has {_shown(json.dumps(value))} in column `{name}`, where text or null must be."
            )
        codes, unseen = codes_of(names_of(column_of([value])), self.schema.levels[name])
        for text in unseen:
            if (name, text) not in self._unseen:
                self._unseen.add((name, text))
                self.notes.append(unseen_note(name, [text]))
        return float(codes[0])

    def _input(self, sequence: LineSequence, before: float | int | None) -> np.ndarray | None:
        """The known inputs of the last step; `before` is the stamp of the one before it."""
        inputs = self.schema.inputs
        if not inputs.names:
            return None
        return inputs.us(sequence.known[None], np.array([sequence.stamp]), before=before)[0]

    def _sequence_of(self, found: dict[str, Any]) -> LineSequence:
        if self._sequence not in found or self._sequence in self.schema.columns:
            return self.sequences.get(0) or LineSequence(0)
        name = found[self._sequence]
        if name is None or isinstance(name, list | dict | bool):
            raise ValueError(f"has {json.dumps(name)} as the name of its sequence.")
        name = str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)
        return self.sequences.get(name) or LineSequence(name)

    def _place(self, sequence: LineSequence, found: dict[str, Any]) -> tuple[int, float | int]:
        """The step on the grid of its sequence, and its stamp; without a time, the next step's."""
        clock = self.schema.layout.clock
        time = None if clock.column is None else found.get(clock.column)
        if time is None:
            if self.schema.inputs.calendar and sequence.stamp is None:
                raise ValueError(
                    f"has no `{clock.column}`, of which the {self.schema.inputs.calendar[0]} is a"
                    " known input. Give it at least in the first line of a sequence."
                )
            stamp = 0 if sequence.stamp is None else sequence.stamp + self._step
            return sequence.place + 1, stamp
        column = column_of([time])
        if column.form != ("time" if clock.is_date else "number"):
            what = "a date such as 2024-01-31T12:30:00" if clock.is_date else "a number"
            raise ValueError(f"has {json.dumps(time)} as `{clock.column}`, which must be {what}.")
        stamps = clock.stamps(column)
        stamp = stamps[0].item()
        if sequence.place < 0:
            sequence.origin = stamp
            return 0, stamp
        if sequence.origin is None:
            raise ValueError(
                f"has a `{clock.column}`, but the first line of its sequence has none. Give it to"
                " all, or to none."
            )
        place = int(places(stamps, sequence.origin, self._step)[0])
        if self.schema.inputs.is_by_rows:
            place = sequence.place + (1 if sequence.stamp is None or stamp >= sequence.stamp else 0)
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
        if self.schema.inputs.is_by_rows:
            return place, stamp
        return place, sequence.origin + place * self._step

    def _time(self, sequence: LineSequence) -> Any:
        if sequence.origin is None:
            return sequence.place
        return self.schema.layout.clock.times(np.array([sequence.stamp]))[0]


def _number(name: str, kind: str | None, value: Any) -> float:
    """The number of a cell, NaN where it is missing; an error if it has no place in the column.

    `kind` is None for a known input. An absurd reading is the filter's to judge: what is finite,
    but too large for a 32-bit number, becomes the largest one; of an input it is an error.
    """
    if value is None or (isinstance(value, str) and value.strip().lower() in MISSING):
        return math.nan
    try:
        number = math.nan if isinstance(value, list | dict) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if kind in REAL and math.isfinite(number):
        number = max(-LARGEST, min(number, LARGEST))
    if isinstance(value, list | dict) or not (math.isnan(number) or abs(number) <= LARGEST):
        raise ValueError(
            f"has {_shown(json.dumps(value))} in column `{name}`, where a number or null must be."
        )
    if kind not in (None, *REAL) and unfit(kind, np.array([number])).size:
        raise ValueError(f"has {number:g} in column `{name}`, a {kind} one, of {what_fits(kind)}.")
    return number


def _shown(line: str | bytes) -> str:
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    text = text.strip()
    return repr(text if len(text) <= 60 else text[:57] + "...")
