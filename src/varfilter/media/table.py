"""Tables: columns of numbers in time, each with a name, a unit and a family of its own."""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from varfilter.data.dataset import Dataset
from varfilter.data.tables.kinds import KINDS
from varfilter.data.tables.motion import in_words, is_motion
from varfilter.data.tables.spacing import BY_ROWS
from varfilter.media import table_rows
from varfilter.media.base import AbstractMedium, Figure
from varfilter.media.cells import cells_of
from varfilter.media.exhibits import Gallery, Inspection
from varfilter.media.formats import ENDINGS, Moment, Row, write_rows
from varfilter.media.reference import Reference, last_value_reference
from varfilter.media.rows import (
    Filtering,
    GivenRows,
    objects,
    times_from,
)
from varfilter.media.sequences import Ahead, NewSequence, Source

# Steps of a sequence that a report draws.
MOST_DRAWN = 300


@dataclass(frozen=True)
class TableSource(Source):
    """Which table, and how it is read; what is not given, its columns decide."""

    medium: ClassVar[str] = "table"

    sequence: str | None = field(default=None, metadata={"metavar": "COLUMN|none"})
    """The column that tells sequences apart (one named run, ...); none: all rows are one."""
    time: str | None = field(default=None, metadata={"metavar": "COLUMN|none"})
    """The column of times, or several, as year,month (those that look like it); none: rows are
    steps."""
    step: float | str | None = field(
        default=None, metadata={"metavar": "X|month|half-month|quarter|year|business-day|rows"}
    )
    """The time between two rows, in the unit of the times; seconds for dates; or a step of the
    calendar (the usual one). rows: each row is a step, and the time since the row before is a known
    input."""
    date_order: Literal["day-first", "month-first"] | None = None
    """How dates such as 02/01/2024 are written (as days above 12 tell)."""
    columns: tuple[str, ...] | None = field(default=None, metadata={"metavar": "COLUMN ..."})
    """The columns to observe, in this order (all that hold numbers, or text of a few levels, and
    change in the training rows)."""
    inputs: tuple[str, ...] | None = field(default=None, metadata={"metavar": "COLUMN ..."})
    """Columns that are known beforehand, such as controls and plans: not predicted, not scored."""
    calendar: tuple[str, ...] | None = field(
        default=None, metadata={"metavar": "day|week|year|none ..."}
    )
    """The periods whose time is a known input (those that the training rows go through twice)."""
    kinds: tuple[str, ...] | None = field(default=None, metadata={"metavar": "COLUMN=KIND ..."})
    """COLUMN=KIND, with spaces or commas between: numeric, heavy (tails), zeros (or positive),
    bounded, binary, count, events (counts with a long tail) or categorical (by what the training
    rows hold); or how it is predicted: level, change, log or log-change (by how they move), or
    change-N or log-change-N, beyond the change of N steps before (by their season)."""
    long: tuple[str, str] | None = field(default=None, metadata={"metavar": "VARIABLE VALUE"})
    """For tables of one reading a row: the columns that name it and hold it."""
    split_by: Literal["auto", "sequence", "time"] | None = None
    """Split whole sequences, or each by time (auto: whole ones from three on)."""

    def options(self) -> dict[str, Any]:
        """The options that were given, as `read_table` calls them."""
        given = super().options()
        if "split_by" in given:
            given["split"] = given.pop("split_by")
        if "kinds" in given:
            given["kinds"] = _kinds(given["kinds"])
        for name in ("time", "sequence"):
            if given.get(name) == "none":
                given[name] = False
        if given.get("calendar") == ("none",):
            given["calendar"] = False
        return given


@dataclass(frozen=True)
class _RecordedTable(TableSource):
    """A table that a run has read before, with the schema that it made of it."""

    recorded: Any = None


class TableMedium(AbstractMedium):
    """Tables: a row is a step, a column is a sensor."""

    name = "table"
    plural = "a table"
    source = TableSource
    experiment = "table"
    endings = (".csv", *(ending for ending in ENDINGS if ending != ".csv"))
    # A row costs little, and bands are what a table is filtered for: with 64 trajectories they held
    # one or two in a hundred fewer inside of gaps (`benchmarks/gaps.py`).
    num_particles = 256
    # What makes the bands inside gaps hold what they say (`benchmarks/README.md`).
    spread = 1.1
    has_alarms = True
    has_column_references = True
    score_units = (
        "nats per step; lower is better; densities are of standardised columns, less their mean in"
        " training and divided by their spread there"
    )
    inputs = "a table (.csv, .tsv, .parquet, .npy, .npz), or - for JSON lines on standard input"
    gallery = Gallery(3, 1000, "marks at the bottom are missing values")
    inspection = Inspection(num_drawn=1, num_steps=1000, has_worst=True)
    has_forecast = True
    has_reconstructions = False
    caption = (
        "Each column as it was read (dots), the mean of its prediction before it was read (line)"
        " with the band that should hold nine in ten values; of a column of 0 and 1, the"
        " probability of a 1. Below, the surprise."
    )

    def holds(self, dataset: Dataset) -> bool:
        """Whether the columns have names."""
        return bool(dataset.columns) and dataset.rows_per_step == 1

    def reads(self, path: Path) -> bool:
        """Any file that no other medium reads: what is wrong with it, the reader says."""
        return True

    def reader(self, path: Path) -> Callable[..., Dataset]:
        """Return the reader of a file of columns."""
        from varfilter.data.tables.read import read_table

        return read_table

    def sequences(self, dataset: Dataset, source: Source, data: Any) -> Iterator[NewSequence]:
        """New sequences from a file, a data frame or a dictionary of arrays."""
        readings = dataset.schema.read(data)
        for i, rows in enumerate(readings.rows):
            name = readings.names[i] if readings.names else 0
            us = np.asarray(readings.us[i]) if dataset.input_size else None
            places, numbers, values, times, texts, cells = readings.given[i]
            if texts is not None:
                times = objects(itertools.starmap(Moment.of, zip(times, texts, strict=True)))
            given = GivenRows(places, numbers, values, times, cells)
            yield NewSequence(name, rows, dataset.observations(rows), readings.times[i], us, given)

    def plan(self, dataset: Dataset, data: Any) -> Any:
        """Read the input columns of steps to come from a file, a data frame or arrays."""
        return None if data is None else dataset.schema.read_plan(data)

    def ahead(
        self, dataset: Dataset, sequence: NewSequence, horizon: int, plan: Any
    ) -> tuple[NewSequence, Ahead]:
        """What is known of the next steps, from `plan` or from rows at the end.

        Rows at the end of a sequence of which nothing but the inputs is there are the plan where no
        other was given.
        """
        us = sequence.us
        if us is None:
            return super().ahead(dataset, sequence, horizon, plan)
        schema = dataset.schema
        num_columns = len(schema.inputs.columns)
        own = None
        if plan is not None:
            own = _of_sequence(plan, sequence.name)
        elif num_columns:
            seen = np.flatnonzero(~np.isnan(sequence.xs).all(axis=1))
            num_seen = int(seen[-1]) + 1 if seen.size else len(sequence.xs)
            if num_seen < len(sequence.xs):
                own = schema.plan_of(sequence.times[num_seen:], us[num_seen:])
                sequence, us = sequence.steps(0, num_seen), us[:num_seen]
        known = us[-1, :num_columns]
        return sequence, Ahead(*schema.ahead(sequence.times[-1], known, horizon, own))

    def inputs_of_samples(
        self, dataset: Dataset, num_steps: int, num_sequences: int, plan: Any
    ) -> list[np.ndarray | None]:
        """The inputs of made-up rows: those of a plan, in turn for each sequence that it has."""
        if not dataset.input_size:
            return super().inputs_of_samples(dataset, num_steps, num_sequences, plan)
        schema = dataset.schema
        before = times_from(dataset, table_rows.first_time(dataset), 1, begin=-1)[0]
        known = np.zeros(len(schema.inputs.columns))
        plans = [None] if plan is None else [each._replace(stamps=None) for each in plan.values()]
        found = [schema.ahead(before, known, num_steps, each)[1] for each in plans]
        return [found[number % len(found)] for number in range(num_sequences)]

    def lines(self, dataset: Dataset, *, longest_gap: int | None = None) -> Any:
        """What reads lines of JSON with the names of the columns, one row each."""
        from varfilter.data.tables.json_lines import LONGEST_GAP, TableLines

        longest_gap = LONGEST_GAP if longest_gap is None else longest_gap
        return TableLines(dataset.schema, longest_gap=longest_gap)

    def schema_json(self, dataset: Dataset) -> Any:
        """The kinds and the layout of the columns."""
        return None if dataset.schema is None else dataset.schema.as_json()

    def schema(self, known: Any) -> Any:
        """The `TableSchema` of a record."""
        from varfilter.data.tables.schema import TableSchema

        return TableSchema.from_json(known)

    def as_recorded(self, source: Source, schema: Any) -> Source:
        """The source with the time, the columns, and the kind and the motion of each, as it began.

        A record of before there were motions has levels alone, one of before there were other kinds
        has neither those nor text, and without a calendar, steps are even. What no option says, as
        whether the run began before zones were known, its schema tells the reader.
        """
        if schema is None or not isinstance(source, TableSource):
            return source
        step = schema.step if schema.calendar is None else schema.calendar.word
        step = BY_ROWS if schema.inputs.is_by_rows else step
        time = "none" if schema.time is None else schema.time
        # Columns that tell it together are found by their names again; a year alone that is named
        # is a number.
        time = source.time if schema.layout.clock.parts else time
        words = [
            f"{name}={kind} {schema.motions.get(name, 'level')}"
            for name, kind in schema.kinds.items()
        ]
        known = {"time": time, "step": step, "columns": schema.columns, "kinds": tuple(words)}
        return _RecordedTable(**vars(source) | known, recorded=schema)

    def column_kinds(self, dataset: Dataset) -> dict[str, dict[str, str]]:
        """The kind of each column and its motion, and why, by the names of its elements."""
        schema = dataset.schema
        if schema is None:
            return {}
        return {
            element: {
                "kind": f"{schema.kinds[cell.name]} {schema.motions.get(cell.name, '')}".strip(),
                "why": schema.reasons.get(cell.name, ""),
            }
            for cell in cells_of(dataset)
            for element in dataset.columns[cell.elements]
        }

    def reference(self, dataset: Dataset, split: str) -> Reference:
        """Score the prediction that each column stays as it was last read."""
        return last_value_reference(dataset, split)

    def column_references(self, dataset: Dataset, kept: Path, horizons: Sequence[int]) -> Any:
        """The last value, that of a season before, and a linear state-space model."""
        # Here, since most commands on tables hold nothing against a reference.
        from varfilter.media.naive import column_references

        return column_references(dataset, kept, horizons)

    def cell_size(self, dataset: Dataset) -> int:
        """Return 1, since each column has a value of its own in a row."""
        return 1

    def step_rows(self, dataset: Dataset, filtering: Filtering) -> Iterator[Row]:
        """Rows with each column as it came, `COLUMN_mean`, `COLUMN_std` and quantiles.

        A column that is left out for never changing in training comes back as it came too, and so
        do known inputs.
        Of a categorical column, `COLUMN_level`, the most probable one, `COLUMN_p`, how probable it
        is, and `COLUMN_p_LEVEL`, ... if there are at most eight. Then the surprise of each column
        by itself, `COLUMN_surprise`, and of all, `surprise`, in nats; and, where it is known what
        healthy steps are like, `p_value`, `alarm` and `alarm_cause`. A name that a column of the
        user's has already gets an underscore; the user's own columns of time and sequence keep
        their names.
        """
        return table_rows.step_rows(dataset, filtering)

    def forecast_rows(
        self,
        dataset: Dataset,
        times: np.ndarray,
        parts: dict[str, np.ndarray],
        sequence: str | int,
    ) -> Iterator[Row]:
        """Rows with `COLUMN_mean`, and `COLUMN_q05`, ... for each level, of each column.

        The mean of a binary column is the probability of a 1; categorical columns have what
        `step_rows` says of them.
        """
        return table_rows.forecast_rows(dataset, times, parts, sequence)

    def write_samples(
        self,
        path: Path,
        dataset: Dataset,
        sequences: Sequence[np.ndarray],
        times: Sequence[np.ndarray | None],
        names: Sequence[str | int | None],
        schemas: Sequence[Any] = (),
    ) -> list[Path]:
        """Write one file: `time`, from 2000 or 0 on, and each column in the user's units.

        Counts and binary columns are whole numbers, categorical ones their levels. Several
        sequences have a column that tells them apart.
        """
        has_many = len(sequences) > 1
        parts = enumerate(zip(sequences, times, names, strict=True), start=1)
        rows = (
            row
            for number, (xs, moments, name) in parts
            for row in table_rows.sample_rows(
                dataset, xs, moments, number if has_many and name in (None, "") else name
            )
        )
        write_rows(rows, path)
        return [path]

    def draw_dataset(self, page: Any, dataset: Dataset, shown: list[Any]) -> Figure:
        """Draw a panel for each column."""
        from varfilter.plots.datasets import lines

        return lines(page, dataset, shown)

    def draw_fit(self, dataset: Dataset) -> Figure:
        """Draw a panel for each column: a histogram of its training part, and its family."""
        from varfilter.data.tables.marginals import marginal_of
        from varfilter.plots.tables import ColumnFit, draw_fits

        schema, found = dataset.schema, []
        if schema is None:
            return super().draw_fit(dataset)
        for cell in cells_of(dataset):
            kind, motion = schema.kinds[cell.name], schema.motions.get(cell.name, "level")
            fit = marginal_of(kind, motion, [cell.numbers(rows) for rows in dataset.train])
            levels = ("0", "1") if kind == "binary" else cell.levels
            found.append(
                ColumnFit(cell.name, kind, in_words(motion).removeprefix("its "), fit, levels)
            )
        return draw_fits(found)

    def draw_filtering(
        self, dataset: Dataset, filtering: Filtering, fan: Any = None, *, width: float
    ) -> Figure:
        """Draw a panel for each column in its own unit: values, bands, alarms, and a fan.

        `filtering` has the quantiles at 0.05 and 0.95; `fan` is (times, low, middle, high).
        """
        from varfilter.plots.tables import Band, draw_bands

        parts, alarms = filtering.parts, filtering.alarms
        band = Band(filtering.times, parts["mean"], parts["q05"], parts["q95"])
        return draw_bands(
            dataset,
            filtering.rows,
            band,
            alarms=None if alarms is None else alarms.columns,
            fan=None if fan is None else Band(*fan),
            time=table_rows.names_of(dataset)["time"],
            width=width,
        )

    def draw_sequence(self, dataset: Dataset, sequence: Any, width: float) -> Figure:
        """Draw a panel for each column: its values, their prediction, and the band of it."""
        from varfilter.plots.tables import draw_columns

        return draw_columns(dataset, sequence, width)

    def inspected(self, sequence: Any) -> Any:
        """The part of a long sequence that was the most surprising."""
        spare = len(sequence.surprise) - MOST_DRAWN
        if spare <= 0:
            return sequence
        total = np.concatenate([[0.0], np.cumsum(sequence.surprise, dtype=np.float64)])
        begin = int(np.argmax(total[MOST_DRAWN:] - total[: spare + 1]))
        return sequence.part(begin, begin + MOST_DRAWN)

    def draw_forecast(self, dataset: Dataset, fan: Any, width: float) -> Figure:
        """Draw a panel for each column: what came before, the bands ahead, and what came."""
        from varfilter.plots.tables import draw_fan

        return draw_fan(dataset, fan, width)


def _of_sequence(plan: dict[Any, Any], name: str | int) -> Any:
    """The part of a plan that is for a sequence."""
    if None in plan:
        return plan[None]
    if str(name) in plan:
        return plan[str(name)]
    raise ValueError(
        f"`inputs` has no rows of the sequence {str(name)!r}; it has {', '.join(list(plan)[:6])}."
    )


def _kinds(texts: Sequence[str]) -> dict[str, str]:
    """The kinds by column; a column that is given twice has both, and so has one of two words."""
    found: dict[str, str] = {}
    column = ""
    for text in texts:
        if column and (text in KINDS or is_motion(text)):  # price=heavy log-change
            found[column] += f" {text}"
            continue
        # A comma between two of them, and not one in the name of a column.
        for part in re.split(r",(?=[^=]+=)", text):
            column, equals, kind = part.rpartition("=")
            if not (column and equals):
                raise ValueError(f"`kinds` must be like COLUMN=count; got {part!r}.")
            found[column] = f"{found[column]} {kind}" if column in found else kind
    return found
