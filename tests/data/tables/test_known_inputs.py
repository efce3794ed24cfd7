"""Known inputs of tables: columns that are given, the calendar, and the time that has passed."""

import json

import numpy as np
import polars as pl
import pytest

from refusals import refuses
from varfilter.data.tables.inputs import DAY, KnownInputs, usual_periods
from varfilter.data.tables.json_lines import TableLines
from varfilter.data.tables.read import read_table
from varfilter.data.tables.schema import TableSchema

HOUR = np.timedelta64(1, "h")


def heater(num_rows=60):
    """A valve that somebody turns, and the heat that follows it."""
    rng = np.random.default_rng(0)
    return {
        "time": np.datetime64("2024-02-27T00:00:00") + np.arange(num_rows) * HOUR,
        "valve": rng.integers(0, 5, num_rows) / 4.0,
        "heat": rng.normal(20, 3, num_rows),
    }


def test_input_columns_are_standardised_by_the_training_rows_and_not_observed():
    data = heater()
    made = read_table(data, inputs=["valve"])
    assert made.columns == ("heat",)
    assert made.input_names == ("valve",)
    training = data["valve"][: len(made.train.values)]
    us = (data["valve"] - training.mean()) / training.std()
    joined = np.concatenate(
        [made.inputs[split].values[:, 0] for split in ("train", "valid", "test")]
    )
    np.testing.assert_allclose(joined, us, rtol=1e-5)  # float32
    assert any("known beforehand, not predicted: valve" in note for note in made.notes)
    # Other inputs are other data.
    other = read_table(data | {"valve": data["valve"][::-1]}, inputs=["valve"])
    assert made.sha256() != other.sha256()
    assert read_table(data).sha256() != made.sha256()


def test_a_step_without_a_row_has_the_inputs_of_the_row_before():
    data = heater()
    keep = ~np.isin(np.arange(60), [10, 11, 12])
    made = read_table({name: column[keep] for name, column in data.items()}, inputs=["valve"])
    us = made.inputs["train"][0][:, 0]
    np.testing.assert_array_equal(us[10:13], np.full(3, us[9]))
    assert np.isnan(made.train[0][10:13]).all()
    assert any("has the inputs of the row before" in note for note in made.notes)
    # A new table is read the same.
    found = made.schema.read({name: column[keep] for name, column in data.items()})
    np.testing.assert_array_equal(found.us[0][: len(us), 0], us)


def test_a_missing_input_is_an_error_that_names_the_row():
    data = heater()
    valve = data["valve"].copy()
    valve[7] = np.nan
    broken = data | {"valve": valve}
    refuses(
        lambda: read_table(broken, inputs=["valve"]), ValueError, "'valve'", "row 7", "`inputs`"
    )
    made = read_table(data, inputs=["valve"])
    refuses(lambda: made.schema.read(broken), ValueError, "'valve'", "row 7")
    without = {name: column for name, column in data.items() if name != "valve"}
    refuses(lambda: made.schema.read(without), ValueError, "'valve'", "lacks")
    refuses(lambda: read_table(data, inputs=["vavle"]), ValueError, "`inputs`", "'vavle'", "valve")
    refuses(lambda: read_table(data, inputs="valve"), TypeError, "`inputs`", "['valve']")
    refuses(lambda: read_table(data, inputs=["time"], time="time"), ValueError, "`inputs`", "times")
    refuses(
        lambda: read_table(data, inputs=["valve"], columns=["valve", "heat"]),
        ValueError, "`columns`", "`inputs`", "'valve'",
    )  # fmt: skip
    named = data | {"mode": np.array(["on", "off"] * 30)}
    refuses(lambda: read_table(named, inputs=["mode"]), ValueError, "'mode'", "`inputs`")


def test_the_calendar_is_an_input_where_a_training_sequence_goes_through_it_twice():
    def made(days, hours, **options):
        count = days * 24 // hours
        time = np.datetime64("2024-02-27T00:00:00") + np.arange(count) * hours * HOUR
        return read_table({"time": time, "x": np.arange(float(count))}, **options)

    # Four fifths of the rows are for training: 2.4 days, and 1.6 days.
    assert made(3, 1).schema.inputs.calendar == ("day",)
    assert made(2, 1).schema.inputs.calendar == ()
    assert made(20, 1).schema.inputs.calendar == ("day", "week")
    # Steps of a day tell nothing of the hour.
    assert made(20, 24).schema.inputs.calendar == ("week",)
    assert made(3 * 366, 24).schema.inputs.calendar == ("week", "year")
    assert made(3, 1, calendar=False).input_names == ()
    assert made(2, 1, calendar=["year"]).schema.inputs.calendar == ("year",)
    names = made(3, 1).input_names
    assert names == ("day sin1", "day cos1", "day sin2", "day cos2")
    refuses(lambda: made(2, 1, calendar=["moon"]), ValueError, "`calendar`", "'moon'", "day")
    numbers = {"t": np.arange(50.0), "x": np.arange(50.0)}
    refuses(lambda: read_table(numbers, calendar=["day"]), ValueError, "`calendar`", "`time`")
    assert usual_periods([np.array([0, 3 * DAY])], DAY // 24) == ("day",)


def test_waves_come_back_after_their_period():
    inputs = KnownInputs({}, ("day", "week", "year"))

    def at(*dates):
        stamps = np.array([np.datetime64(date, "us").astype(np.int64) for date in dates])
        return inputs.us(np.zeros((len(stamps), 0)), stamps).reshape(len(stamps), 3, 4)

    # The same time of the day; the same day of the week (Mondays), midnight; New Year's Days.
    day = at("2024-02-29T06:00", "2025-07-01T06:00")[:, 0]
    np.testing.assert_allclose(day[0], day[1], atol=1e-6)
    np.testing.assert_allclose(day[0], [1, 0, 0, -1], atol=1e-6)  # a quarter of the day
    week = at("2024-01-01", "2024-02-26")[:, 1]
    np.testing.assert_allclose(week, [[0, 1, 0, 1]] * 2, atol=1e-6)
    year = at("2023-01-01", "2024-01-01", "2024-07-02")[:, 2]
    np.testing.assert_allclose(year[:2], [[0, 1, 0, 1]] * 2, atol=1e-6)
    np.testing.assert_allclose(year[2], [0, -1, 0, 1], atol=0.02)  # within a day of its middle


def test_where_no_grid_fits_rows_are_steps_and_the_time_since_the_last_is_an_input():
    times = np.cumsum(np.random.default_rng(0).exponential(1, 400))
    made = read_table({"t": times, "x": np.arange(400.0)})
    assert len(made.train.values) == 320
    assert made.input_names == ("elapsed",)
    usual = made.schema.step
    elapsed = np.diff(times)[:319]
    assert usual == pytest.approx(np.median(elapsed))
    expected = np.log1p(elapsed / usual) - np.log(2)
    np.testing.assert_allclose(made.inputs["train"].values[1:, 0], expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(made.times["train"].values, times[:320])
    assert any("the time since the row before is a known input" in note for note in made.notes)
    # Asked for, it is so for a regular table too; a step that is given makes a grid.
    regular = read_table(heater(), step="rows")
    np.testing.assert_allclose(regular.inputs["train"].values, 0.0, atol=1e-6)
    assert read_table({"t": times, "x": np.arange(400.0)}, step=0.5).input_names == ()
    refuses(lambda: read_table({"x": np.arange(9.0)}, step="rows"), ValueError, "`step`", "`time`")


def test_a_schema_with_inputs_survives_its_record():
    made = read_table(heater(), inputs=["valve"], calendar=["day"], step="rows")
    again = TableSchema.from_json(json.loads(json.dumps(made.schema.as_json())))
    assert again.inputs == made.schema.inputs
    np.testing.assert_array_equal(
        again.read(heater()).us.values, made.schema.read(heater()).us.values
    )


def test_what_is_known_of_the_steps_ahead():
    data = heater()
    schema = read_table(data, inputs=["valve"], calendar=["day"]).schema
    last, known = data["time"][-1], schema.inputs.scaled(np.array([[0.5]]))[0]
    plan = {"time": last + np.array([1, 3]) * HOUR, "valve": np.array([0.0, 1.0])}
    times, us = schema.ahead(last, known, 3, schema.read_plan(plan)[None])
    np.testing.assert_array_equal(times, last + np.arange(1, 4) * HOUR)
    # At the second hour there is no row: the valve stays as it was.
    expected = schema.inputs.scaled(np.array([[0.0], [0.0], [1.0]]))
    np.testing.assert_allclose(us[:, :1], expected, rtol=1e-6)
    # The waves are those that a table which goes on so long has.
    longer = heater(63)
    np.testing.assert_allclose(us[:, 1:], schema.read(longer).us[0][-3:, 1:], atol=1e-6)
    # Without times, rows are the next steps; what is over is not needed.
    untimed = pl.DataFrame({"valve": [1.0, 0.0, 0.0, 1.0]})
    _, us = schema.ahead(last, known, 2, schema.read_plan(untimed)[None])
    np.testing.assert_allclose(us[:, 0], schema.inputs.scaled(np.array([[1.0], [0.0]]))[:, 0])
    refuses(lambda: schema.ahead(last, known, 2, None), ValueError, "valve", "`inputs`", "2 steps")
    refuses(
        lambda: schema.ahead(last, known, 5, schema.read_plan(untimed)[None]),
        ValueError, "of 4 steps", "5",
    )  # fmt: skip
    refuses(lambda: schema.read_plan({"vavle": [1.0]}), ValueError, "`inputs`", "'valve'")
    # The past of a plan is not its future.
    early = {"time": last + np.array([-1, 0]) * HOUR, "valve": np.array([0.0, 1.0])}
    refuses(
        lambda: schema.ahead(last, known, 1, schema.read_plan(early)[None]),
        ValueError,
        "of 0 steps",
    )
    # Rows at unequal times: the steps ahead are those of the plan.
    by_rows = read_table(data, inputs=["valve"], step="rows").schema
    times, us = by_rows.ahead(last, known, 2, by_rows.read_plan(plan)[None])
    np.testing.assert_array_equal(times, plan["time"])
    np.testing.assert_allclose(us[:, 1], np.log([2, 3]) - np.log(2), atol=1e-6)


@pytest.mark.parametrize("step", [None, "rows"])
def test_lines_have_the_inputs_of_the_same_table(step):
    data = heater()
    keep = ~np.isin(np.arange(60), [10, 11])
    kept = {name: column[keep] for name, column in data.items()}
    schema = read_table(data, inputs=["valve"], calendar=["day"], step=step).schema
    readings = schema.read(kept)
    lines = TableLines(schema)
    steps = []
    for i in range(len(kept["time"])):
        line = {name: column[i] for name, column in kept.items()}
        line["time"] = str(line["time"])
        steps += lines.read(json.dumps(line))
    np.testing.assert_allclose(np.stack([s.u for s in steps]), readings.us[0], atol=1e-6)
    np.testing.assert_array_equal([s.time for s in steps], readings.times[0])
    np.testing.assert_array_equal(np.stack([s.row for s in steps]), readings.rows[0])
    before = lines.sequences[0].place
    refuses(lambda: lines.read('{"heat": 3}'), ValueError, "'valve'")
    refuses(lambda: lines.read('{"heat": 3, "valve": null}'), ValueError, "'valve'")
    assert lines.sequences[0].place == before
    # The time of the day goes on where a line has none, but the first must say it.
    assert lines.read('{"heat": 3, "valve": 1}')[0].u is not None
    refuses(lambda: TableLines(schema).read('{"heat": 3, "valve": 1}'), ValueError, "`time`", "day")
