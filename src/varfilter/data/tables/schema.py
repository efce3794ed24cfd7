"""What a table's columns are and how its rows lie in time: all that reads another table like it."""

import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from varfilter._text import count
from varfilter.data.ragged import Ragged
from varfilter.data.tables.bad_cells import HALF, BadCells, without_unfit
from varfilter.data.tables.columns import Column, within_floats
from varfilter.data.tables.constants import changed_notes
from varfilter.data.tables.files import SEQUENCE_AXIS, Columns, read_columns
from varfilter.data.tables.grid import Clock
from varfilter.data.tables.inputs import KnownInputs, PlannedInputs, held
from varfilter.data.tables.kinds import REAL, unfit, what_fits
from varfilter.data.tables.layout import (
    Layout,
    Part,
    Rows,
    arranged,
    chosen,
    known_columns,
    pivoted,
    require_known,
    sequences_of,
)
from varfilter.data.tables.levels import codes_of, names_of, spread_out, unseen_note
from varfilter.data.tables.spacing import Calendar, Spacing, calendar_from_json
from varfilter.data.tables.steps import (
    Merged,
    grid_points,
    gridded,
    merged_rows,
    require_dense_grid,
)
from varfilter.data.tables.times import under_own_name
from varfilter.data.tables.zones import Local, in_zone

# Rows of a new table, gaps included, that are never too many.
LONGEST_NEW = 1_000_000


class TableRows(NamedTuple):
    """The rows of one sequence as they stood in the table, in the order of time.

    `places` are the steps on which they lie, from the first one on; `numbers` count the rows of the
    table from 0; `texts` are their times as they were written, where they were text. `cells` are
    the columns as they came, before they were made numbers of; those that never changed in training
    among them, and the known inputs.
    """

    places: np.ndarray
    numbers: np.ndarray
    values: np.ndarray
    times: np.ndarray
    texts: np.ndarray | None
    cells: dict[str, np.ndarray]


class Readings(NamedTuple):
    """Sequences of a new table, their names, and the rows of the table of which they were made."""

    rows: Ragged
    times: Ragged
    us: Ragged
    names: tuple[str, ...]
    given: tuple[TableRows, ...]


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table and its layout in time.

    - `kinds`: numeric, binary, count, ..., by column, in the order of the observations.
    - `layout`: which columns hold the time and the sequences.
    - `step`: the distance of two rows in time, in seconds between dates; None: rows are steps.
    - `calendar`: the steps of the calendar, where they are such; `step` is then their average.
    - `inputs`: what is known of each step before it comes.
    - `left_out`: why a column of the first table is no observation, by column.
    - `motions`: change, log or log-change, of the columns that a model is not told as they are.
    - `merged`: what became of rows of the first table that others lie at the same step with.
    - `levels`: of the categorical columns. Each level is an element of the observations, which is
      1 where the column has it; any other text is missing.
    - `reasons`: what in the training rows a kind was chosen for, by column.
    - `constants`: the value of each column that is left out for having no other in training.
    """

    kinds: dict[str, str]
    layout: Layout
    step: float | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    merged: Merged = field(default_factory=Merged)
    inputs: KnownInputs = field(default_factory=KnownInputs)
    motions: dict[str, str] = field(default_factory=dict)
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    calendar: Calendar | None = None
    constants: dict[str, float] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are observed, in order."""
        return tuple(self.kinds)

    @property
    def num_elements(self) -> list[int]:
        """How many elements of an observation each column has: one, or one for each level."""
        return [len(self.levels[name]) if name in self.levels else 1 for name in self.kinds]

    @property
    def elements(self) -> tuple[str, ...]:
        """The names of the elements of an observation: of a column, or COLUMN=LEVEL."""
        return tuple(
            element
            for name in self.kinds
            for element in (
                [f"{name}={level}" for level in self.levels[name]]
                if name in self.levels
                else [name]
            )
        )

    def spread_out(self, rows: Ragged) -> Ragged:
        """Rows with a number for each column, as rows of elements."""
        return Ragged(self._elements(rows.values), rows.lengths) if self.levels else rows

    def _elements(self, values: np.ndarray) -> np.ndarray:
        counts = [len(self.levels.get(name, ())) for name in self.kinds]
        return spread_out(values, counts) if self.levels else values

    @property
    def time(self) -> str | None:
        """The name of the column of times, or those of several; None: rows are steps."""
        return self.layout.clock.column

    @property
    def sequence(self) -> str | None:
        """The name of the column that tells sequences apart; None if the user has none."""
        return None if self.layout.sequence == SEQUENCE_AXIS else self.layout.sequence

    @property
    def _sequence_name(self) -> tuple[str, ...]:
        return () if self.layout.sequence is None else (self.layout.sequence,)

    def read(self, source: Any) -> Readings:
        """A new table with the same columns, kinds and step, to be filtered.

        The columns may stand in another order, and others beside them.
        """
        columns = self._read(source, (*self._sequence_name, *(self.layout.long or ())[:1]))
        layout = self.layout.for_array(columns)
        absent = [name for name in layout.given if name not in columns]
        bad = BadCells(HALF)
        if layout.long is not None and not absent:
            columns = pivoted(bad.numbers(columns, [layout.long[1]]), layout)
            bad.has_rows = False
        absent += [name for name in (*self.columns, *self.inputs.columns) if name not in columns]
        if absent:
            listed = ", ".join(repr(name) for name in absent)
            raise ValueError(
                f"`source` lacks the columns {listed}, which the first table had. Give them all;"
                " values that are missing may be left empty."
            )
        for note in changed_notes(self.constants, columns):
            warnings.warn(note, stacklevel=3)
        own = [name for name in (*self.columns, *self.constants) if name in columns]
        numbers = bad.numbers(columns, [name for name in own if name not in self.levels])
        # A bad number comes back as it came; text among numbers would make text of all of them.
        were_text = [n for n in own if columns[n].form == "text" and numbers[n].form == "number"]
        cells = {name: (numbers if name in were_text else columns)[name].cells for name in own}
        cells |= {name: columns[name].cells for name in self.inputs.columns}
        columns = without_unfit(numbers, self.kinds, bad)
        if (note := bad.note()) is not None:
            warnings.warn(note, stacklevel=3)
        real = [name for name, kind in self.kinds.items() if kind in REAL]
        columns = columns | {name: within_floats(columns[name]) for name in real}
        columns = columns | {name: self._coded(name, columns[name]) for name in self.levels}
        values, _ = chosen(columns, layout, self.columns)
        known = known_columns(columns, layout, tuple(self.inputs.columns))
        both = arranged(columns, layout, values | known)
        rows, known_rows = both.taking(slice(len(values))), both.taking(slice(len(values), None))
        for (name, kind), column in zip(self.kinds.items(), rows.values.T, strict=True):
            if kind not in REAL:  # an absurd number is the filter's to judge
                require_kind(name, kind, column, rows, given=True)
        require_known(known_rows, tuple(known), layout.clock)
        parts = {"all": sequences_of(rows)}
        points = grid_points(rows, self.spacing, parts, is_by_rows=self.inputs.is_by_rows)
        if not self.inputs.is_by_rows:
            # The step is known to be right: a few rows may well lie far apart.
            require_dense_grid(rows, layout.clock, points, at_least=LONGEST_NEW)
        for note in merged_rows(rows, points, known_rows.values).notes():
            # Their cells come back as they are, but what is said of the step is of the later row.
            warnings.warn(note, stacklevel=3)
        found = gridded(rows, known_rows.values, layout.clock, self.spacing, points, self.inputs)
        given = (
            _table_rows(rows, self._elements(rows.values), layout.clock, part, at, cells)
            for part, at in points["all"].items()
        )
        steps = found["all"]
        return Readings(
            self.spread_out(steps.rows), steps.times, steps.us, rows.names, tuple(given)
        )

    def _coded(self, name: str, column: Column) -> Column:
        """A column of text as the numbers of its levels; others are missing, which is a warning."""
        codes, unseen = codes_of(names_of(column), self.levels[name])
        if unseen:
            warnings.warn(unseen_note(name, unseen), stacklevel=4)
        return Column(codes, "level", column.notes)

    @property
    def distance(self) -> float | int:
        """The distance of two rows as a number of stamps; of rows that are counted, 1."""
        return 1 if self.step is None else self.layout.clock.distance(self.step)

    @property
    def spacing(self) -> Spacing | Local:
        """How the steps lie in time."""
        clock = self.layout.clock
        steps = clock.even(self.distance) if self.calendar is None else self.calendar
        return in_zone(steps, clock.zone)

    def read_plan(self, source: Any) -> dict[str | None, PlannedInputs]:
        """The input columns of steps to come, by sequence; that of None is for every sequence.

        Times may be left out: the rows are then the next steps.
        """
        names = tuple(self.inputs.columns)
        columns = self._read(source, self._sequence_name)
        absent = [name for name in names if name not in columns]
        if absent or not self.inputs.names:
            listed = ", ".join(repr(name) for name in names) or "no columns: the run has none"
            raise ValueError(f"`inputs` must have the columns of known inputs, {listed}.")
        own = self.layout.clock
        clock = own if own.column in columns else Clock(None)
        sequence = self.layout.sequence if self.layout.sequence in columns else None
        layout = Layout(clock, sequence)
        rows = arranged(columns, layout, known_columns(columns, layout, names))
        require_known(rows, names, clock)
        scaled = self.inputs.scaled(rows.values)
        return {
            rows.names[i] if rows.names else None: PlannedInputs(
                None if clock.column is None else rows.stamps[begin:end], scaled[begin:end]
            )
            for i, begin, end in sequences_of(rows)
        }

    def plan_of(self, times: np.ndarray, us: np.ndarray) -> PlannedInputs:
        """The input columns of steps whose inputs are known already, as a plan."""
        return PlannedInputs(self._stamps(times), us[:, : len(self.inputs.columns)])

    def ahead(
        self, last: Any, known: np.ndarray, horizon: int, plan: PlannedInputs | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The times and the inputs of the `horizon` steps after the one at time `last`.

        `known` are the input columns of that step, scaled; a point of the grid that `plan` has no
        row for goes on with those of the row before.
        """
        clock, inputs = self.layout.clock, self.inputs
        if plan is None and inputs.columns:
            raise ValueError(
                f"A forecast of {count(horizon, 'step')} needs the known inputs"
                f" {', '.join(inputs.columns)} there. Give them as `inputs`, a table with these"
                " columns, or as rows at the end of the data whose other cells are empty."
            )
        stamp = self._stamps(np.asarray(last)).item()
        at = self.spacing.stamps(stamp, np.arange(1, horizon + 1))
        if plan is not None:
            places_of, numbers = np.arange(1, len(plan.known) + 1), plan.known
            if plan.stamps is not None:
                later = plan.stamps > stamp
                stamps, numbers = plan.stamps[later], plan.known[later]
                places_of = self.spacing.places(stamps, stamp)
                if inputs.is_by_rows:
                    places_of, at = np.arange(1, len(stamps) + 1), stamps[:horizon]
            num_given = int(max(places_of, default=0))
            if num_given < horizon:
                raise ValueError(
                    f"`inputs` are known of {count(num_given, 'step')} after"
                    f" {clock.shown(stamp)}, but of {horizon} they are needed. Give more, or a"
                    " shorter `horizon`."
                )
            joined = np.concatenate([known[None], numbers])
            known_ahead = held(joined, np.concatenate([[0], places_of]))[1 : horizon + 1]
        else:
            known_ahead = np.zeros((horizon, 0))
        return clock.times(at), inputs.us(known_ahead, at, before=stamp)

    def _stamps(self, times: np.ndarray) -> np.ndarray:
        """Times as the user knows them, as stamps again."""
        return (
            times.astype("datetime64[us]").astype(np.int64) if self.layout.clock.is_date else times
        )

    def as_json(self) -> dict[str, Any]:
        """The schema as plain JSON, for the record of a run."""
        return {
            "kinds": self.kinds,
            "motions": self.motions,
            "levels": {name: list(levels) for name, levels in self.levels.items()},
            "time": self.layout.clock.column,
            "is_date": self.layout.clock.is_date,
            "unit": self.layout.clock.unit,
            "style": self.layout.clock.style,
            "zone": self.layout.clock.zone,
            "form": self.layout.clock.form,
            "parts": [list(part) for part in self.layout.clock.parts],
            "sequence": self.layout.sequence,
            "long": self.layout.long and list(self.layout.long),
            "step": self.step,
            "calendar": self.calendar and self.calendar.as_json(),
            "inputs": self.inputs.as_json(),
            "constants": self.constants,
        }

    @staticmethod
    def from_json(known: dict[str, Any]) -> "TableSchema":
        """What `as_json` made, as a schema again."""
        long = known["long"] and (known["long"][0], known["long"][1])
        # Records of before there were units, parts, styles and calendars have dates with the time
        # of the day, in one column, in a style that the rows tell, and even steps.
        parts = tuple((name, word, how) for name, word, how in known.get("parts", ()))
        style = known.get("style", "")
        # Records of before zones were kept may be of times in one: those go on in UTC.
        zone = known.get("zone")
        unit, form = known.get("unit", "us"), known.get("form", "")
        clock = Clock(known["time"], known["is_date"], unit, parts, style, zone, form)
        layout = Layout(clock, known["sequence"], long)
        inputs = KnownInputs.from_json(known.get("inputs"), zone)
        calendar = calendar_from_json(known.get("calendar"))
        # Records of before there were motions have every column as it is.
        motions = known.get("motions", {})
        levels = {name: tuple(found) for name, found in known.get("levels", {}).items()}
        return TableSchema(
            known["kinds"],
            layout,
            known["step"],
            inputs=inputs,
            motions=motions,
            levels=levels,
            calendar=calendar,
            # Records of before constants were left out have them among their columns.
            constants=known.get("constants", {}),
        )

    def _read(self, source: Any, as_text: tuple[str, ...]) -> Columns:
        """The columns of a new table, the time as one; what is wrong with its file is a warning."""
        columns, notes = read_columns(source, as_text=as_text)
        for note in notes:
            warnings.warn(f"{source}: {note}", stacklevel=4)
        time = self.layout.clock.column
        here = under_own_name(time, columns)
        columns = {
            name if time is None or name != here else time: column
            for name, column in columns.items()
        }
        clock = self.layout.clock
        if time is not None and time in columns:
            columns[time] = clock.in_own_style(columns[time])
            columns[time], note = clock.in_own_zone(columns[time])
            for sentence in (clock.style_note(columns[time]), note):
                if sentence is not None:
                    shown = f"'{time}'" if time else "1 (without a name)"
                    warnings.warn(f"Column {shown} {sentence}.", stacklevel=4)
        return clock.joined(columns)


def _table_rows(
    rows: Rows,
    elements: np.ndarray,
    clock: Clock,
    part: Part,
    at: np.ndarray,
    cells: dict[str, np.ndarray],
) -> TableRows:
    """The rows of a part as they stood in the table; `at` are their points of the grid."""
    _, begin, end = part
    numbers = np.arange(len(rows.stamps)) if rows.origin is None else rows.origin
    numbers = numbers[begin:end]
    return TableRows(
        (at - at[0]).astype(np.int64),
        numbers,
        elements[begin:end].astype(np.float32),
        clock.times(rows.stamps[begin:end]),
        None if rows.texts is None else rows.texts[begin:end],
        {name: values[numbers] for name, values in cells.items()},
    )


def require_kind(name: str, kind: str, column: np.ndarray, rows: Rows, *, given: bool) -> None:
    """Refuse a value that a column of this kind cannot have, with the row it stands in."""
    bad = unfit(kind, column)
    if bad.size:
        fix = "Correct it" if given else f"Give `kinds={{{name!r}: 'numeric'}}`"
        raise ValueError(
            f"Column `{name}` is of the kind {kind}{'' if given else ' (as trained on)'}, with"
            f" {what_fits(kind)}, but has {column[bad[0]]:g}{rows.at(int(bad[0]))}. {fix}."
        )
