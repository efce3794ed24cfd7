"""Rows as a table of the user's kind: a pandas or polars frame, or arrays by name.

What the user knows a row by, its index, its time and its sequence, comes back as it went in.
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from varfilter.data.tables.files import is_time_index
from varfilter.data.tables.schema import TableSchema
from varfilter.data.tables.times import UNNAMED, under_own_name
from varfilter.data.tables.zones import on_wall
from varfilter.media.formats import Row, as_columns


def frame_like(
    frame: Any, rows: Iterable[Row], schema: TableSchema, *, is_aligned: bool = False
) -> Any:
    """The rows as a polars or pandas frame if `frame` is one, else as arrays by name.

    With `is_aligned` they are those of `frame`, in its order: its columns of time and sequence and
    those that were observed are taken over, and the index of a pandas frame. Else a time, and an
    index of times, have the type, the zone and the name that they have there.
    """
    columns: dict[str, Any] = as_columns(rows)
    library = type(frame).__module__.split(".")[0]
    if library in ("polars", "pandas"):  # in which a level may be missing; in an array it is empty
        for name in (each for own in schema.levels for each in (own, f"{own}_level")):
            if name in columns:
                columns[name] = [None if text == "" else text for text in columns[name].tolist()]
    is_aligned = is_aligned and schema.layout.long is None
    if library == "polars":
        return _polars(frame, columns, schema, is_aligned=is_aligned)
    if library == "pandas":
        return _pandas(frame, columns, schema, is_aligned=is_aligned)
    if isinstance(frame, Mapping):
        for name, column in _own(schema, frame, with_values=is_aligned).items():
            if is_aligned:
                columns[column] = np.asarray(frame[name])
            elif _is_text(frame[name]) and columns[column].dtype.kind == "M":
                columns[column] = np.array(_as_texts(columns[column], schema), object)
        names = _own_names(schema, frame)
        columns = {names.get(name, name): values for name, values in columns.items()}
    return columns


def _is_text(values: Any) -> bool:
    """Whether what is there is text, and something is."""
    present = [value for value in values if value is not None and value == value]
    return bool(present) and all(isinstance(value, str) for value in present)


def _as_texts(times: np.ndarray, schema: TableSchema) -> list[str]:
    """Times as the table that was learned from has them."""
    return [schema.layout.clock.written_as_text(time) for time in times]


def _own(schema: TableSchema, names: Iterable[str], *, with_values: bool) -> dict[str, str]:
    """Which of the names are the user's own columns, and what they are called in rows.

    Those of time and sequence; and `with_values`, those that were observed, never change, or are
    known inputs.
    """
    names = set(names)
    found: dict[str, str] = {}
    for name in schema.layout.clock.columns:
        here = under_own_name(name, names)
        found[here] = "time" if name in UNNAMED else name
    if schema.sequence is not None:
        found[schema.sequence] = schema.sequence
    if with_values:
        own = (*schema.columns, *schema.constants, *schema.inputs.columns)
        found |= {name: name for name in own}
    return {name: column for name, column in found.items() if name in names}


def _own_names(schema: TableSchema, names: Iterable[str]) -> dict[str, str]:
    """What the time is called in a frame that calls it `index`: its name is left out in files."""
    own = _own(schema, names, with_values=False)
    return {column: name for name, column in own.items() if name == "index" and column != name}


def _polars(frame: Any, columns: dict[str, Any], schema: TableSchema, *, is_aligned: bool) -> Any:
    import polars

    frame = frame.collect() if hasattr(frame, "collect") else frame
    frame = frame if hasattr(frame, "get_column") else frame.to_frame()
    made = polars.DataFrame(columns)
    for name, column in _own(schema, frame.columns, with_values=is_aligned).items():
        given = frame.get_column(name)
        if is_aligned:
            made = made.with_columns(given.alias(column))
            continue
        series, zone = made.get_column(column), getattr(given.dtype, "time_zone", None)
        own, is_time = schema.layout.clock.zone, made.schema[column].is_temporal()
        if is_time and given.dtype == polars.String:
            series = polars.Series(column, _as_texts(series.to_numpy(), schema))
        elif is_time and zone is None and own:
            walls = on_wall(series.to_numpy().astype("datetime64[us]").astype(np.int64), own)
            series = polars.Series(column, walls.astype("datetime64[us]"))
        elif is_time and zone is not None and own == "":  # what clocks show, nobody said where
            series = series.cast(polars.Datetime("us"))
            series = series.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        elif is_time and zone is not None:
            series = series.cast(polars.Datetime("us", "UTC")).dt.convert_time_zone(zone)
            if own is None and (given.dt.time() == dt.time()).all():
                # Days there, whatever their hour is in UTC, in which such runs count.
                series = series.dt.replace_time_zone(None).dt.round("1d")
                series = series.dt.replace_time_zone(zone, ambiguous="earliest")
        if (
            given.dtype == polars.Date
            or given.dtype.is_integer()
            or (zone is None and given.dtype == polars.Datetime)
        ):
            series = series.cast(given.dtype)
        made = made.with_columns(series)
    return made.rename(_own_names(schema, frame.columns))


def _pandas(frame: Any, columns: dict[str, Any], schema: TableSchema, *, is_aligned: bool) -> Any:
    import pandas

    made = pandas.DataFrame(columns)
    given = {str(name): frame[name] for name in getattr(frame, "columns", ())}
    index = frame.index
    levels = {
        _level_name(index, i): index.get_level_values(i).to_series()
        for i in range(index.nlevels)
        if index.names[i] is not None or is_time_index(index.get_level_values(i))
    }
    own = _own(schema, [*given, *levels], with_values=is_aligned)
    if is_aligned:
        for name, column in own.items():
            if name in given:
                made[column] = given[name].array
        of_index = list(_own(schema, levels, with_values=False).values())
        made = made.drop(columns=of_index).rename(columns=_own_names(schema, given))
        return made.set_index(index)
    for name, column in own.items():
        there = (given | levels)[name]
        if made[column].dtype.kind == "M" and there.dtype.kind not in "Mm" and _is_text(there):
            made[column] = _as_texts(made[column].to_numpy(), schema)
        made[column] = _typed(made[column], there, schema.layout.clock.zone)
    if not levels or any(name not in own for name in levels) or len(levels) < index.nlevels:
        return made.rename(columns=_own_names(schema, given))
    return made.set_index([own[name] for name in levels]).rename_axis(list(index.names))


def _level_name(index: Any, level: int) -> str:
    """What a level of an index is called as a column, as pandas does when it makes it one."""
    if index.names[level] is not None:
        return str(index.names[level])
    return "index" if index.nlevels == 1 else f"level_{level}"


def _typed(series: Any, given: Any, own: str | None) -> Any:
    """A column of times or names with the type that it had in the user's frame.

    `own` is the zone of the table that was learned from; None: it was not asked for.
    """
    import pandas

    if given.dtype.kind == "m" and series.dtype.kind == "f":
        return pandas.to_timedelta(series, unit="s").astype(given.dtype)
    is_time = series.dtype.kind == "M"
    if is_time and given.dtype.kind == "O" and all(type(day) is dt.date for day in given):
        return series.dt.date
    zone = getattr(given.dt, "tz", None) if given.dtype.kind == "M" else None
    if is_time and zone is not None and own == "":  # what clocks show, of which nobody said where
        first = np.ones(len(series), bool)
        return series.dt.tz_localize(zone, ambiguous=first, nonexistent="shift_forward")
    if is_time and zone is None and own:
        walls = on_wall(series.to_numpy().astype("datetime64[us]").astype(np.int64), own)
        series = type(series)(walls.astype("datetime64[us]"), series.index)
    elif is_time and zone is not None:
        series = series.dt.tz_localize("UTC").dt.tz_convert(zone)
        if own is None and (given == given.dt.normalize()).all():
            # Days there, whatever their hour is in UTC, in which such runs count.
            days = series.dt.tz_localize(None).dt.round("D")
            series = days.dt.tz_localize(zone, ambiguous=np.ones(len(days), bool))
    if str(given.dtype).startswith("period"):
        return series.dt.to_period(given.dtype.freq)
    return series.astype(given.dtype) if given.dtype.kind in "iu" else series
