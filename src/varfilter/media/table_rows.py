"""The rows that a table's filtering, forecasts and samples are written as, in the user's names."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from varfilter.data.dataset import Dataset
from varfilter.data.tables.grid import Clock
from varfilter.data.tables.parts import split_time
from varfilter.data.tables.times import UNNAMED
from varfilter.media.cells import cells_of
from varfilter.media.formats import Moment, Row
from varfilter.media.rows import (
    Filtering,
    free_names,
    latent_names,
    latent_row,
    restored,
    times_from,
)

# The time of the first row that a model makes up: as readable as those of dated training data,
# and plainly none of theirs.
FIRST_DATE = np.datetime64("2000-01-01T00:00:00")
# How rare a step is among healthy ones, whether that is an alarm, and what caused it.
ALARM_COLUMNS = ("p_value", "alarm", "alarm_cause")


def step_rows(dataset: Dataset, filtering: Filtering) -> Iterator[Row]:
    """A row for each step, as `TableMedium.step_rows` says."""
    parts, cells = filtering.parts, cells_of(dataset)
    surprises, alarms = filtering.columns, filtering.alarms
    wanted = ["surprise"]
    if alarms is not None or filtering.is_uncalibrated:
        wanted += ALARM_COLUMNS
    wanted += [name for cell in cells for name in cell.predicted_names(parts)]
    wanted += [f"{cell.name}_surprise" for cell in cells if surprises is not None]
    names = names_of(dataset, [*wanted, *latent_names(filtering)])
    clock = _clock_of(dataset)
    texts = [time.text for time in filtering.times if isinstance(time, Moment)]
    if 0 < len(texts) < len(filtering.times):
        clock = clock.like(texts)  # those of gaps, too
    for t, time in enumerate(filtering.times):
        row: Row = {names["sequence"]: filtering.sequence, **_time_cells(clock, names, time)}
        for cell in cells:
            row[cell.name] = (
                filtering.cells[cell.name][t]
                if cell.name in filtering.cells
                else cell.value(filtering.rows[t])
            )
            row |= {names[name]: v for name, v in cell.predicted(parts, t).items()}
            if surprises is not None:
                own = cell.surprise(surprises.nats[t], filtering.rows[t])
                row[names[f"{cell.name}_surprise"]] = own
        row |= {name: filtering.cells[name][t] for name in filtering.cells if name not in row}
        row[names["surprise"]] = filtering.surprise[t]
        if alarms is not None:
            row[names["p_value"]] = alarms.p_values[t]
            row[names["alarm"]] = int(alarms.flags[t])
            row[names["alarm_cause"]] = str(alarms.causes[t])
        elif filtering.is_uncalibrated:
            row |= {names["p_value"]: None, names["alarm"]: None, names["alarm_cause"]: ""}
        yield row | {names[name]: v for name, v in latent_row(filtering, t).items()}


def forecast_rows(
    dataset: Dataset, times: np.ndarray, parts: dict[str, np.ndarray], sequence: str | int
) -> Iterator[Row]:
    """A row for each step to come, as `TableMedium.forecast_rows` says."""
    cells = cells_of(dataset)
    wanted = [name for cell in cells for name in cell.predicted_names(parts)]
    # No column is written by its own name here, but `step` beside a column of that name
    # misleads.
    names, clock = names_of(dataset, ["step", *wanted]), _clock_of(dataset)
    for i, time in enumerate(times):
        row: Row = {names["sequence"]: sequence, **_time_cells(clock, names, time)}
        row[names["step"]] = i + 1
        for cell in cells:
            row |= {names[name]: v for name, v in cell.predicted(parts, i).items()}
        yield row


def names_of(dataset: Dataset, wanted: Sequence[str] = ()) -> dict[str, str]:
    """Names for our own columns; the user's for those of time and sequence, where there are."""
    schema = dataset.schema
    users = {"sequence": (schema and schema.sequence) or "sequence"}
    clock = _clock_of(dataset)
    if clock.parts:
        users |= {name: name for name in clock.columns}
    else:
        users["time"] = "time" if clock.column in (None, *UNNAMED) else clock.column
    others = () if schema is None else (*schema.constants, *schema.inputs.columns)
    taken = (*dataset.columns, *others)
    return free_names(taken, users | {name: name for name in wanted})


def _clock_of(dataset: Dataset) -> Clock:
    return Clock(None) if dataset.schema is None else dataset.schema.layout.clock


def _time_cells(clock: Clock, names: dict[str, str], time: Any) -> Row:
    """A time as the table has it: in one column, or in those of its parts."""
    if clock.parts and isinstance(time, np.datetime64):
        cells = split_time(time, clock.parts)
        return {names[name]: value for name, value in cells.items()}
    text = clock.text(time)
    return {names["time"]: clock.written(time) if text is None else Moment.of(time, text)}


def sample_rows(
    dataset: Dataset, xs: np.ndarray, times: np.ndarray | None, sequence: str | int | None
) -> Iterator[Row]:
    """Rows that a model made up: the columns in their units, at `times`, or from 2000 or 0 on."""
    times = times_from(dataset, first_time(dataset), len(xs)) if times is None else times
    are_whole = [family.has_levels for _, family in dataset.column_families]
    cells, names = cells_of(dataset), names_of(dataset)
    clock = _clock_of(dataset)
    begin = {} if sequence is None else {names["sequence"]: sequence}
    known = {} if dataset.schema is None else dataset.schema.constants
    constants = {name: int(v) if v.is_integer() else v for name, v in known.items()}
    for time, values in zip(times, restored(dataset, xs), strict=True):
        row: Row = begin | _time_cells(clock, names, time)
        for cell in cells:
            value = cell.value(values)
            is_whole = are_whole[cell.first] and not cell.levels and np.isfinite(value)
            row[cell.name] = int(np.rint(value)) if is_whole else value
        yield row | constants


def first_time(dataset: Dataset) -> Any:
    """The time of the first row that is made up."""
    is_dated = dataset.schema is not None and dataset.schema.layout.clock.is_date
    return FIRST_DATE if is_dated else 0
