"""A table as it comes: a line of JSON for each row, several sequences beside each other."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.tables.columns import MISSING, Column, column_of
from varfilter.data.tables.constants import changed_note, differs
from varfilter.data.tables.dates import described
from varfilter.data.tables.kinds import REAL, unfit, what_fits
from varfilter.data.tables.levels import codes_of, names_of, spread_out, unseen_note
from varfilter.data.tables.parts import join_parts
from varfilter.data.tables.schema import TableSchema
from varfilter.data.tables.times import UNNAMED

LARGEST = float(np.finfo(np.float32).max)
# Steps between two lines of a sequence through which it is filtered, unless asked for otherwise.
LONGEST_GAP = 1000


@dataclass
class LineSequence:
    """The steps of a sequence so far.

    `origin` is the stamp of its first step; None: its steps are counted. `place` is the number
    of its last step, `stamp` the stamp of that, `row` its cells and `known` its input columns,
    scaled; `before` is the stamp of the step before. `shown` is the time of the last line, as it
    was written, and `far` the stamp of the last one that was refused for being far from the others.
    """

    name: str | int
    origin: float | int | None = None
    place: int = -1
    stamp: float | int | None = None
    before: float | int | None = None
    row: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    known: np.ndarray = field(default_factory=lambda: np.zeros(0))
    shown: str = ""
    far: float | int | None = None


class Step(NamedTuple):
    """One step of a sequence: its cells, when it was, and its known inputs, if the table has any.

    - `own`: the cells of the line, without those of another on the same step; None: no line came.
    - `own_time`: the time of the line, which need not lie on the grid; None: it has none.
    - `text`: that time as it was written, where it is a date.
    - `is_again`: it is the step before once more, with the cells of a second line.
    - `is_anew`: the sequence begins anew with it.
    - `cells`: what the line has in each column, as it came.
    """

    sequence: str | int
    row: np.ndarray
    time: Any
    u: np.ndarray | None = None
    own: np.ndarray | None = None
    own_time: Any = None
    text: str | None = None
    is_again: bool = False
    is_anew: bool = False
    cells: Mapping[str, Any] = MappingProxyType({})


class Line(NamedTuple):
    """What a line says: its sequence, its time there, its numbers, its inputs, and its cells."""

    sequence: LineSequence
    when: "LineTime"
    row: np.ndarray
    known: np.ndarray
    cells: dict[str, Any]


class LineTime(NamedTuple):
    """When a line was: its step, the stamp of that, its own time, and how that was written.

    `is_anew` says that the sequence begins anew there.
    """

    place: int
    stamp: float | int
    time: Any = None
    written: Any = None
    is_anew: bool = False


class TableLines:
    """Reads lines such as {"time": 12.5, "warm": 20.1, "is_on": null} one by one.

    - A column that is absent or null is missing. Other names are ignored, but a line that has
      only such, or nothing at all, is bad.
    - The column of times, where the table has one, may be left out: the line is then the next
      step. A line that comes later than the next step is preceded by steps without values, which
      have the known inputs of the line before. Where each row is a step, so is each line.
    - A line that is more than `longest_gap` steps later, or earlier, is bad: its time is more often
      wrong than right. If the next line follows it, it was right, and the sequence begins anew with
      that one.
    - A second line on the step of the one before adds its values to it, and its known inputs count;
      it is bad where both have one of the same column. So is a line of an earlier step.
    - A line without one of the known inputs is bad.
    - A text that is no level of its column is missing; `notes` are of those that were met since it
      was last emptied, each once, of new values of constants, and of inputs that changed in a step.
    - The column that names the sequence must be there; or `sequence`, where the table has none,
      may be: without it all lines are one.
    """

    def __init__(self, schema: TableSchema, *, longest_gap: int = LONGEST_GAP):
        self.schema = schema
        self.longest_gap = longest_gap
        self.sequences: dict[str | int, LineSequence] = {}
        self.notes: list[str] = []
        self._unseen: set[tuple[str, str]] = set()
        self._spacing = schema.spacing
        self._sequence = schema.sequence or "sequence"

    def read(self, line: str | bytes) -> list[Step]:
        """The steps up to and with that of a line; a `ValueError`, and no change, if it is bad."""
        sequence, when, row, known, cells = self._parsed(line)
        if when.is_anew:
            sequence.place, sequence.stamp, sequence.origin = -1, None, when.stamp
        is_again = when.place == sequence.place
        steps = []
        while sequence.place + 1 < when.place:
            gap = np.full_like(row, np.nan)
            steps.append(self._next(sequence, gap, sequence.known, self._stamp(sequence)))
        merged = np.where(np.isnan(row), sequence.row, row) if is_again else row
        if is_again:
            self._compare_inputs(sequence, known)
        if is_again:
            sequence.place, sequence.stamp = sequence.place - 1, sequence.before
        step = self._next(sequence, merged, known, when.stamp)
        sequence.shown = "" if when.time is None else json.dumps(when.written)
        is_text = isinstance(when.written, str) and self.schema.layout.clock.is_date
        step = step._replace(
            own=row,
            own_time=when.time,
            text=when.written if is_text else None,
            is_again=is_again,
            is_anew=when.is_anew,
            cells=cells,
        )
        sequence.far = None
        return [*steps, step]

    def _compare_inputs(self, sequence: LineSequence, known: np.ndarray) -> None:
        """Note which known inputs a second line on a step has otherwise than the first."""
        self.notes += [
            f"Column '{name}', a known input, is not what the line before has on the same step: the"
            " last one counts."
            for name, one, other in zip(
                self.schema.inputs.columns, sequence.known, known, strict=True
            )
            if one != other
        ]

    def _next(
        self, sequence: LineSequence, row: np.ndarray, known: np.ndarray, stamp: float | int
    ) -> Step:
        """The next step of a sequence."""
        sequence.place += 1
        sequence.before, sequence.stamp = sequence.stamp, stamp
        sequence.row, sequence.known = row, known
        inputs, u = self.schema.inputs, None
        if inputs.names:
            u = inputs.us(known[None], np.array([stamp]), before=sequence.before)[0]
        time = sequence.place
        if sequence.origin is not None:
            time = self.schema.layout.clock.times(np.array([stamp]))[0]
        return Step(sequence.name, row, time, u)

    def _parsed(self, line: str | bytes) -> Line:
        """What a line says, if it is a good one."""
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is not JSON ({str(error).rstrip('.')}): {_shown(line)}.") from None
        if not isinstance(found, dict):
            raise ValueError(f"must be an object with the names of columns; got {_shown(line)}.")
        columns, inputs = self.schema.columns, self.schema.inputs
        constants = self.schema.constants
        reserved = (self._sequence, *self._time_names(found), *inputs.columns, *constants)
        others = [name for name in found if name not in (*columns, *reserved)]
        if not any(name in (*columns, *reserved) for name in found) or (
            others and not any(name in columns for name in found)
        ):
            has = f"it has {', '.join(map(repr, others[:6]))}" if others else "it is empty"
            raise ValueError(f"has none of the columns {', '.join(columns[:6])}; {has}.")
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
        counts = [len(self.schema.levels.get(name, ())) for name in columns]
        elements = spread_out(np.array([row], np.float32), counts)[0]
        when = self._when(sequence, found, elements)
        self.sequences.setdefault(sequence.name, sequence)
        self._watch(found)
        own = (*columns, *constants, *inputs.columns)
        cells = {name: _as_came(found.get(name)) for name in own}
        return Line(sequence, when, elements, inputs.scaled(np.array([known]))[0], cells)

    def _watch(self, found: dict[str, Any]) -> None:
        """Note, once for each, which columns have a value that they never had in training."""
        for name, constant in self.schema.constants.items():
            value = found.get(name)
            if (name, "") in self._unseen or _is_missing(value):
                continue
            column = column_of([value])
            is_number = column.form in ("number", "bool")
            if not is_number or differs(column.values, constant)[0]:
                self._unseen.add((name, ""))
                self.notes.append(changed_note(name, constant, _shown(json.dumps(value))))

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

    def _sequence_of(self, found: dict[str, Any]) -> LineSequence:
        if self._sequence not in found or self._sequence in self.schema.columns:
            if self.schema.sequence is not None:
                raise ValueError(
                    f"lacks column `{self._sequence}`, the name of its sequence, which every line"
                    " must have."
                )
            return self.sequences.get(0) or LineSequence(0)
        name = found[self._sequence]
        if name is None or isinstance(name, list | dict | bool):
            raise ValueError(f"has {json.dumps(name)} as the name of its sequence.")
        name = str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)
        return self.sequences.get(name) or LineSequence(name)

    def _time_names(self, found: dict[str, Any]) -> tuple[str, ...]:
        """What the columns of the time are called in a line: one without a name may have one."""
        names = self.schema.layout.clock.columns
        if names and names[0] in UNNAMED:
            free = (name for name in (*UNNAMED, "time") if name not in self.schema.columns)
            return (next((name for name in free if name in found), names[0]),)
        return names

    def _when(self, sequence: LineSequence, found: dict[str, Any], row: np.ndarray) -> LineTime:
        """When a line was, by its time; without one, it is the next step."""
        schema = self.schema
        clock, is_by_rows = schema.layout.clock, schema.inputs.is_by_rows
        names = self._time_names(found)
        told = [None if _is_missing(found.get(name)) else found[name] for name in names]
        if all(value is None for value in told):
            if schema.inputs.calendar and sequence.stamp is None:
                raise ValueError(
                    f"has no time in {_place_of(clock.column or '')}, of which the"
                    f" {schema.inputs.calendar[0]} is a known input. Give it at least in the first"
                    " line of a sequence."
                )
            return LineTime(sequence.place + 1, self._stamp(sequence))
        stamp, time = self._time(dict(zip(names, told, strict=True)))
        written = told[0] if len(told) == 1 else told
        if sequence.place < 0:
            sequence.origin = stamp
            return LineTime(0, stamp, time, written)
        named = clock.column if len(names) > 1 else names[0]
        what = f"has {json.dumps(written)} in {_place_of(named or '')}"
        if sequence.origin is None:
            raise ValueError(
                f"{what}, but the first line of its sequence has no time. Give it to all, or to"
                " none."
            )
        last = sequence.shown or self._shown(sequence)
        if is_by_rows:
            if sequence.stamp is not None and stamp < sequence.stamp:
                raise ValueError(
                    f"{what}, which is before the {last} of the line before. Give lines in the"
                    " order of time."
                )
            return LineTime(sequence.place + 1, stamp, time, written)
        place = self._place(stamp, sequence.origin)
        jump = place - sequence.place
        if jump - 1 > self.longest_gap or -jump > self.longest_gap:
            self._require_second(sequence, stamp, f"{what}, {abs(jump):,} steps", is_late=jump > 0)
            return LineTime(0, stamp, time, written, is_anew=True)
        if jump < 0:
            raise ValueError(
                f"{what}, which is before the {last} of the line before. Give lines in the order"
                " of time."
            )
        both = np.flatnonzero(~np.isnan(row) & ~np.isnan(sequence.row))
        if jump == 0 and both.size:
            raise ValueError(
                f"{what}, which falls on the step of the line before, {last}; both have a value of"
                f" column `{schema.elements[both[0]]}`, and a step has one. Leave one of them out."
            )
        return LineTime(place, self._on_grid(place, sequence.origin), time, written)

    def _require_second(
        self, sequence: LineSequence, stamp: float | int, what: str, *, is_late: bool
    ) -> None:
        """Refuse a line that is far from the one before, unless it follows one that was as far."""
        far, sequence.far = sequence.far, stamp
        if far is not None and 0 < self._place(stamp, far) <= self.longest_gap:
            return
        fix = " To filter through such gaps, give a larger `longest_gap`." if is_late else ""
        raise ValueError(
            f"{what} {'after' if is_late else 'before'} the line before, more than"
            f" {self.longest_gap:,}. If the next line follows it, the sequence begins anew there."
            f"{fix}"
        )

    def _time(self, told: dict[str, Any]) -> tuple[float | int, Any]:
        """The stamp and the time that the cells of a line tell."""
        clock = self.schema.layout.clock
        columns = {name: column_of([value]) for name, value in told.items()}
        name, shown = next(iter(told)), json.dumps(list(told.values()))
        if clock.parts:
            try:
                column = join_parts(columns, clock.parts)
            except ValueError:
                raise ValueError(
                    f"has {shown} as {', '.join(told)}, which is no time. Give whole numbers, as in"
                    " the first table."
                ) from None
        else:
            column = self._in_own_way(name, columns[name])
        if column.form != ("time" if clock.is_date else "number"):
            what = "a date such as 2024-01-31T12:30:00" if clock.is_date else "a number"
            what = f"a date written as {described(clock.style)}" if clock.style else what
            raise ValueError(f"has {shown[1:-1]} in {_place_of(name)}, which must be {what}.")
        stamps = clock.stamps(column)
        return stamps[0].item(), clock.times(stamps)[0]

    def _in_own_way(self, name: str, column: Column) -> Column:
        """A time as those of training; another style, or another zone, is noted once."""
        clock = self.schema.layout.clock
        column, note = clock.in_own_zone(clock.in_own_style(column))
        for sentence in (clock.style_note(column), note):
            if sentence is not None and (name, sentence) not in self._unseen:
                self._unseen.add((name, sentence))
                self.notes.append(f"{_place_of(name).capitalize()} {sentence}.")
        return column

    def _place(self, stamp: float | int, origin: float | int) -> int:
        return int(self._spacing.places(np.array([stamp]), origin)[0])

    def _on_grid(self, place: int, origin: float | int) -> float | int:
        return self._spacing.stamps(origin, np.array([place]))[0].item()

    def _stamp(self, sequence: LineSequence) -> float | int:
        """The stamp of the next step, for which no line has a time."""
        if sequence.stamp is None:
            return 0
        if sequence.origin is None or self.schema.inputs.is_by_rows:
            return sequence.stamp + self.schema.distance
        return self._on_grid(sequence.place + 1, sequence.origin)

    def _shown(self, sequence: LineSequence) -> str:
        """The time of a step for which no line has one."""
        clock = self.schema.layout.clock
        return "start" if sequence.stamp is None else clock.shown(sequence.stamp)


def _place_of(name: str) -> str:
    """A column for an error message; an index need not have a name."""
    return f"column `{name}`" if name else "the column without a name"


def _number(name: str, kind: str | None, value: Any) -> float:
    """The number of a cell, NaN where it is missing; an error if it has no place in the column.

    `kind` is None for a known input. An absurd reading is the filter's to judge: what is finite,
    but too large for a 32-bit number, becomes the largest one; of an input it is an error.
    """
    if _is_missing(value):
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
        raise ValueError(
            f"has {number:g} in column `{name}`, which is of the kind {kind}, with"
            f" {what_fits(kind)}."
        )
    return number


def _as_came(value: Any) -> Any:
    return None if _is_missing(value) or isinstance(value, list | dict) else value


def _is_missing(value: Any) -> bool:
    is_mark = isinstance(value, str) and value.strip().lower() in MISSING
    return value is None or is_mark or (isinstance(value, float) and math.isnan(value))


def _shown(line: str | bytes) -> str:
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    text = text.strip()
    return repr(text if len(text) <= 60 else text[:57] + "...")
