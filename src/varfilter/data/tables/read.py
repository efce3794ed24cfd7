"""The user's own tables: any columns of numbers, in time, as a data set; and new ones like it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from varfilter.data.dataset import SPLITS, Dataset, Scaling
from varfilter.data.tables.bad_cells import RARE, BadCells
from varfilter.data.tables.choice import (
    families_of,
    given_words,
    kinds_of,
    motions_of,
    refined_kinds,
    with_levels,
    without_logarithms,
)
from varfilter.data.tables.columns import require_resolved
from varfilter.data.tables.constants import without_constants
from varfilter.data.tables.cycles import told_by_time
from varfilter.data.tables.files import Columns, read_columns
from varfilter.data.tables.grid import Clock, usual_step
from varfilter.data.tables.inputs import PERIODS, KnownInputs, require_calendar, usual_periods
from varfilter.data.tables.kinds import kind_notes, scaling_of
from varfilter.data.tables.layout import (
    Layout,
    Part,
    Rows,
    arranged,
    chosen,
    find_layout,
    known_columns,
    parts_of,
    pivoted,
    require_distinct,
    require_known,
    require_split,
    splits_sequences,
)
from varfilter.data.tables.levels import coded, typed_notes
from varfilter.data.tables.motion import motion_notes
from varfilter.data.tables.notes import notes_of
from varfilter.data.tables.schema import TableSchema, require_kind
from varfilter.data.tables.season import season_lengths
from varfilter.data.tables.spacing import (
    BY_ROWS,
    DAY,
    WORDS,
    Calendar,
    Even,
    Spacing,
    named_calendar,
    usual_calendar,
)
from varfilter.data.tables.steps import (
    Points,
    grid_points,
    gridded,
    loses_many,
    merged_rows,
    require_dense_grid,
)
from varfilter.data.tables.times import in_order, with_dates
from varfilter.data.tables.zones import Local, in_zone, on_wall


def read_table(
    source: Any,
    *,
    time: str | Literal[False] | None = None,
    sequence: str | Literal[False] | None = None,
    columns: Sequence[str] | None = None,
    inputs: Sequence[str] = (),
    calendar: Sequence[str] | Literal[False] | None = None,
    long: tuple[str, str] | None = None,
    kinds: Mapping[str, str] | None = None,
    step: Any = None,
    date_order: Literal["day-first", "month-first"] | None = None,
    split: Literal["auto", "sequence", "time"] = "auto",
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    recorded: TableSchema | None = None,
) -> Dataset:
    """A table of sensors, from a file, a data frame or arrays, as a data set.

    `source` is a path (.csv, .csv.gz, .tsv, .parquet, .npy, .npz), a pandas or polars frame, an
    array (steps, columns) or (sequences, steps, columns), or a dictionary of arrays. Empty
    places, NaN, null, None, NA, N/A, ? and - are missing values, and stay so.

    - `time`: the column of times: numbers or dates; or several, as "year,month". None: the only
      column of dates, or the only one named time, timestamp, date, datetime or t; or those named
      year and quarter, or year, month, day, hour and minute as far as they go; False, or none: rows
      are steps.
      Rows are sorted by time and put on a regular grid, at the nearest point; a point without
      a row is missing, and of two values of a column at a point the last counts.
    - `step`: between the points of the grid, in the unit of the times; a `timedelta` or seconds
      for dates; or "month", "half-month", "quarter", "year" or "business-day", as the calendar has
      them. None:
      the one that fits the times of the training rows. "rows": there is no grid,
      each row is a step, and the time since the row before is a known input; so it is too where
      with the step found more than one row in a hundred were lost to another at the same point.
    - `date_order`: "day-first" or "month-first", of dates such as 02/01/2024. None: days above 12
      tell it, or such dates are refused.
    - `sequence`: the column that tells sequences apart. None: the only one named sequence,
      series, run, episode, trial or session, or so with `_id`; False, or none: all rows are one.
    - `columns`: to observe, in this order. None: all that hold numbers, or text of a few levels,
      but for those with at least 20 training values that are all the same, unless `kinds` has
      them; `schema.left_out` says why each of the others is not observed.
    - `inputs`: columns that are known beforehand, such as controls and plans: conditioned on, not
      observed, and never missing. A step of the grid without a row has those of the row before.
    - `calendar`: of day, week and year, those whose time is a known input. None: those that a
      training sequence goes through twice, in four steps or more; False: none.
    - `long`: the columns of (variable, value), if each row is one reading; variables are sorted.
    - `kinds`, by column: `numeric`, a Gaussian; `heavy`, Student's t; `zeros`, zero or positive;
      `bounded`, a Gaussian that is held at its bounds; `binary`; `count`, whole numbers of a
      Gaussian; `events`, whole numbers of a negative binomial; `categorical`, one of several levels
      of text. Not given: booleans, or at least 20 zeros and ones and both, are binary; at least
      20 whole numbers from 0 to 1000, three or more of them different, are counts; text of up to 32
      levels, with five training rows for each, is categorical, and so is any column of a frame
      whose type says so (`category`, `Categorical`, `Enum`); all other numbers are numeric; and
      where the training rows show it, a count is one of events, and a numeric column has another
      family (`data/tables/kinds.py` has the rule).
      A level that no training row has is missing. So is a cell that has no place in its column
      (text among numbers, an infinity, a number that the kind cannot have) where less than one in a
      hundred of its values are such; else it is an error.
      Or how a column is told to the model: `level`, as it is; `change`, by its change since the
      step before; `log` and `log-change`, by its logarithm, or by the change of that; `change-N`
      and `log-change-N`, by its change beyond that of N steps before, a season. Not given: a
      column that does not come back to a mean is told by its change, and by the change of its
      logarithm if it grows by proportion (`data/tables/motion.py` has the rule); all else as it
      is. Both may be given, as "count change".
    - `split`: whole sequences (drawn with `seed`) if there are three or more, else each
      sequence's first rows for training, then those for validation, then for test;
      `sequence` or `time` says which. `fractions` are of sequences, or of rows.
    - `recorded`: the schema of a run that reads its table again, for what no other option says.

    Kinds, scales and steps come from the training rows alone; a later row that contradicts
    them is an error, never a reason to choose otherwise. Only whether a column holds numbers
    at all, or text, and whether it can have a logarithm, is decided by all rows.
    """
    require_split(split, fractions)
    if isinstance(columns, str):
        raise TypeError(f"`columns` must be a list of names; got {columns!r}. Give [{columns!r}].")
    if kinds is not None and not isinstance(kinds, Mapping):
        raise TypeError(
            f"`kinds` must be a dictionary such as {{'pressure': 'numeric'}}; got {kinds!r}."
        )
    if isinstance(inputs, str):
        raise TypeError(f"`inputs` must be a list of names; got {inputs!r}. Give [{inputs!r}].")
    found, notes = read_columns(
        source, as_text=(*([sequence] if sequence else []), *(long or ())[:1])
    )
    is_before_zones = recorded is not None and recorded.layout.clock.zone is None
    if is_before_zones:  # levels were sorted then, whatever the type of their column says
        found = {name: replace(column, levels=()) for name, column in found.items()}
    found = in_order(found, date_order)
    found = with_dates(found, time, has_months=not is_before_zones)
    inputs = _one_by_one(inputs, found)
    layout = find_layout(found, time, sequence, long, (*(columns or ()), *inputs))
    if is_before_zones:
        layout = replace(layout, clock=replace(layout.clock, zone=None))
    clock = layout.clock
    found = clock.joined(found)
    if step is not None and clock.column is None:
        raise ValueError(f"`step` is {step!r}, but no column is the time. Name it in `time`.")
    periods = require_calendar(calendar, is_date=clock.is_date)
    require_step(step, clock)
    if clock.column is not None and step is None:
        require_distinct(found, layout)
    categorical = [n for n, words in (kinds or {}).items() if "categorical" in str(words).split()]
    bad, observed = BadCells(RARE), found if columns is None else columns
    others = {*layout.reserved, *inputs, *categorical}
    free = [name for name in observed if name not in others]
    wide = pivoted(bad.numbers(found, layout.long[1:] if layout.long else free), layout)
    others = [name for name, words in (kinds or {}).items() if words != "level"]
    wide, texts = coded(wide, categorical, (*layout.reserved, *inputs), others)
    known = known_columns(wide, layout, inputs)
    values, left_out = chosen(wide, layout, columns, inputs)
    left_out |= dict.fromkeys(_beside(found, layout), "not part of the long table")
    if columns is None:
        known_by_time = told_by_time(found, layout, [n for n in values if n not in (kinds or {})])
        if len(known_by_time) < len(values):
            left_out |= known_by_time
            values = {name: each for name, each in values.items() if name not in known_by_time}
    both = arranged(wide, layout, values | known)
    rows, known_rows = both.taking(slice(len(values))), both.taking(slice(len(values), None))
    require_known(known_rows, inputs, clock)
    parts = parts_of(rows, split, fractions, seed)
    training = np.concatenate([np.arange(begin, end) for _, begin, end in parts["train"]])

    rows, names, empty = _observed(rows, tuple(values), training, named=columns is not None)
    left_out |= empty
    rows, names, levels, told = with_levels(
        rows, names, texts, training, categorical, named=columns is not None
    )
    left_out |= {name: each.refused for name, each in levels.items() if each.refused}
    levels = {name: each.names for name, each in levels.items() if each.names}
    told += typed_notes(found, levels)
    wanted = columns if columns is not None else tuple(kinds or ())
    rows, names, constants, reasons = without_constants(rows, names, training, wanted)
    left_out |= reasons
    given_kinds, given_motions = given_words(dict(kinds or {}), names, left_out)
    kinds_by_name = kinds_of(rows, names, training, given_kinds, given_motions)
    rows = _fitting(rows, kinds_by_name, given_kinds, bad)
    for name, column in zip(names, rows.values.T, strict=True):
        require_resolved(name, kinds_by_name[name], column[training])

    runs = [rows.stamps[begin:end] for _, begin, end in parts["train"]]
    if recorded is not None and recorded.calendar is not None:
        step = recorded.calendar  # its word does not say on which days the points lie
    spacing, points, is_by_rows = _on_time(rows, layout, parts, runs, step)
    steps_of = spacing.steps if isinstance(spacing, Local) else spacing
    merged = merged_rows(rows, points, known_rows.values)
    if periods is None:
        periods = usual_periods(runs, spacing.length) if clock.is_date else ()
    known_inputs = KnownInputs.fitted(
        inputs,
        known_rows.values[training],
        periods,
        spacing.length if is_by_rows else None,
        clock.zone,
    )
    steps = gridded(rows, known_rows.values, clock, spacing, points, known_inputs)
    split_rows = {name: steps[name].rows for name in SPLITS}
    goes_on = not splits_sequences(rows, split)
    lengths = season_lengths(list(PERIODS.values()), spacing.length) if clock.is_date else []
    motions = motions_of(
        kinds_by_name,
        steps["train"],
        given_motions,
        [] if is_by_rows or calendar is False else lengths,
        goes_on=goes_on,
    )
    motions = without_logarithms(rows, names, motions, given_motions)
    words = {name: motion.word for name, motion in motions.items() if motion.word != "level"}
    refined = refined_kinds(kinds_by_name, words, split_rows["train"], given_kinds)
    kinds_by_name = {name: kind.word for name, kind in refined.items()}
    for name, column in zip(names, rows.values.T, strict=True):
        require_kind(name, kinds_by_name[name], column, rows, given=name in given_kinds)
    schema = TableSchema(
        kinds_by_name,
        layout,
        clock.seconds(spacing.length),
        left_out,
        merged,
        known_inputs,
        words,
        levels,
        {name: kind.reason for name, kind in refined.items() if kind.reason},
        calendar=None if isinstance(steps_of, Even) else steps_of,
        constants=constants,
    )
    scaling = scaling_of(kinds_by_name, split_rows["train"].values, words)
    families = families_of(kinds_by_name, words, scaling, split_rows["train"])
    counts = schema.num_elements
    families = tuple(
        family for family, count in zip(families, counts, strict=True) for _ in range(count)
    )
    scaling = Scaling(np.repeat(scaling.offset, counts), np.repeat(scaling.scale, counts))
    split_rows = {name: schema.spread_out(each) for name, each in split_rows.items()}
    return Dataset(
        name=Path(source).name.split(".")[0] if isinstance(source, str | Path) else "table",
        train=split_rows["train"],
        valid=split_rows["valid"],
        test=split_rows["test"],
        family=families,
        scaling=scaling,
        names={s: tuple(rows.names[i] for i, _, _ in parts[s]) for s in SPLITS if rows.names},
        columns=schema.elements,
        medium="table",
        schema=schema,
        times={name: steps[name].times for name in SPLITS},
        notes=notes
        + notes_of(
            found,
            schema,
            split_rows,
            inferred=step is None,
            by_sequence=splits_sequences(rows, split),
            chosen_calendar=calendar is not None,
        )
        + (*motion_notes(motions), *kind_notes(refined), *told, *filter(None, [bad.note()])),
        input_names=known_inputs.names,
        inputs={name: steps[name].us for name in SPLITS} if known_inputs.names else {},
    )


def _one_by_one(names: Sequence[str], columns: Columns) -> tuple[str, ...]:
    """The names, of which several may come as one, with commas between them."""
    parts = ([name] if name in columns else name.split(",") for name in names)
    return tuple(dict.fromkeys(part for some in parts for part in some if part))


def require_step(step: Any, clock: Clock) -> None:
    """Refuse a step that is neither a time nor one of the words for one."""
    if not isinstance(step, str):
        if step is not None:
            clock.distance(step)
        return
    if step == BY_ROWS:
        return
    if named_calendar(step) is None:
        raise ValueError(
            f"`step` must be a number, in the unit of the times (seconds between dates), or one of"
            f" {', '.join((*WORDS, BY_ROWS))}; got {step!r}."
        )
    if not clock.is_date:
        raise ValueError(
            f"`step` is {step!r}, but the times in column `{clock.column}` are numbers, which have"
            " no calendar. Give a number, or a column of dates in `time`."
        )


def _on_time(
    rows: Rows, layout: Layout, parts: dict[str, list[Part]], runs: list[np.ndarray], step: Any
) -> tuple[Spacing | Local, Points, bool]:
    """How steps lie, where each row does, and whether rows are steps instead of points of a grid.

    A grid that loses rows is not taken unless its step was given.
    """
    if step != BY_ROWS:
        spacing = (
            _usual_spacing(runs, layout) if step is None else _given_spacing(step, runs, layout)
        )
        points = grid_points(rows, spacing, parts, is_by_rows=False)
        if step is not None or not loses_many(merged_rows(rows, points).lost, len(rows.values)):
            require_dense_grid(rows, layout.clock, points)
            return spacing, points, False
    usual = float(np.median(np.concatenate([np.diff(run) for run in runs])))
    usual = round(usual) if layout.clock.is_date else usual
    if not usual > 0:
        raise ValueError(
            f"`step` cannot be found: most rows of column `{layout.clock.column}` have the time of"
            " the row before. Name the column that tells sequences apart in `sequence`, or give"
            " `step`."
        )
    spacing = Even(usual)
    return spacing, grid_points(rows, spacing, parts, is_by_rows=True), True


def _observed(
    rows: Rows, names: tuple[str, ...], training: np.ndarray, *, named: bool
) -> tuple[Rows, tuple[str, ...], dict[str, str]]:
    """The rows without the columns that have no value in training, and why those are left out."""
    seen = np.any(~np.isnan(rows.values[training]), axis=0)
    empty = [name for name, has in zip(names, seen, strict=True) if not has]
    if empty and named:
        raise ValueError(
            f"`columns` names {empty[0]!r}, which has no value in the training rows. Leave it out."
        )
    if len(empty) == len(names):
        raise ValueError(
            f"`source` has no value at all in the training rows of {', '.join(map(repr, empty))}."
        )
    forms = tuple(form for form, has in zip(rows.forms, seen, strict=True) if has)
    kept = tuple(name for name in names if name not in empty)
    reasons = dict.fromkeys(empty, "no value in the training rows")
    return replace(rows, values=rows.values[:, seen], forms=forms), kept, reasons


def _fitting(rows: Rows, kinds: Mapping[str, str], given: Mapping[str, str], bad: BadCells) -> Rows:
    """The rows where what a column of its kind cannot have is missing, if it is rare."""
    values, bad.has_rows = rows.values.copy(), rows.origin is not None
    for i, (name, kind) in enumerate(kinds.items()):
        values[:, i] = bad.fitting(values[:, i], name, kind, rows.origin)
        require_kind(name, kind, values[:, i], rows, given=name in given)
    return replace(rows, values=values)


def _given_spacing(step: Any, runs: list[np.ndarray], layout: Layout) -> Spacing | Local:
    zone = layout.clock.zone
    if isinstance(step, Calendar):
        return in_zone(step, zone)
    walls = [on_wall(run, zone) for run in runs]
    calendar = named_calendar(step, walls) if isinstance(step, str) else None
    if calendar is not None:
        return in_zone(calendar, zone)
    return in_zone(layout.clock.even(layout.clock.distance(step)), zone)


def _usual_spacing(runs: list[np.ndarray], layout: Layout) -> Spacing | Local:
    if layout.clock.column is None:
        return Even(1)
    is_date, zone = layout.clock.is_date, layout.clock.zone
    walls = [on_wall(run, zone) for run in runs]
    calendar = usual_calendar(walls) if is_date else None
    if calendar is not None:
        return in_zone(calendar, zone)
    step = usual_step(walls, unit=1e6 if is_date else 1.0)
    if zone and step is not None and step % DAY and not layout.clock.even(step).of_days:
        # What is shorter than a day passes as it does, whatever is done to the clocks.
        step = usual_step(runs, unit=1e6)
    if step is None:
        raise ValueError(
            f"`step` cannot be found: no sequence has two times in column `{layout.clock.column}`"
            " for training. Give `step`."
        )
    return in_zone(layout.clock.even(step), zone)


def _beside(columns: Columns, layout: Layout) -> list[str]:
    return [name for name in columns if layout.long and name not in layout.reserved]
