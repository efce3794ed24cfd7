"""Dates in other ways than ISO's: read, remembered for a few new rows, and written again."""

import json

import numpy as np
import pandas as pd
import pytest

from refusals import refuses
from varfilter.data.tables.columns import column_of
from varfilter.data.tables.json_lines import TableLines
from varfilter.data.tables.read import read_table
from varfilter.data.tables.schema import TableSchema
from varfilter.media.frames import frame_like
from varfilter.media.table import TableMedium, TableSource


def known(schema):
    """The schema as the record of a run has it."""
    return TableSchema.from_json(json.loads(json.dumps(schema.as_json())))


def days(form, first="2024-01-01", count=40):
    index = pd.date_range(first, periods=count, freq="D")
    return {"when": index.strftime(form).to_numpy(object), "x": np.arange(count) * 1.5}


@pytest.mark.parametrize("form", ["%d/%m/%Y", "%m/%d/%Y", "%d.%m.%y", "%d-%m-%Y %H:%M"])
def test_the_order_is_remembered(form):
    schema = known(read_table(days(form)).schema)
    # Two days that could as well be two months.
    new = days(form, "2024-03-04", 2)
    expected = np.array(["2024-03-04", "2024-03-05"], "datetime64[us]")
    np.testing.assert_array_equal(schema.read(new).times[0], expected)
    reader = TableLines(schema)
    steps = [reader.read(json.dumps({"when": text, "x": 1}))[-1] for text in new["when"]]
    assert [step.time for step in steps] == expected.tolist()
    # One that can be in no other order is read in that, and this is said.
    other = "%m/%d/%Y" if form.startswith("%d") else "%d/%m/%Y"
    with pytest.warns(UserWarning, match="'when' holds dates, read as .*; those of training were"):
        schema.read(days(other, "2024-02-20", 3))
    # ISO dates are what they are, in every table.
    iso = schema.read(days("%Y-%m-%d", "2024-03-04", 2))
    np.testing.assert_array_equal(iso.times[0], expected)


def test_without_a_record_a_few_days_are_refused():
    few = days("%d/%m/%Y", "2024-03-04", 2)
    schema = known(read_table(days("%Y-%m-%d")).schema)
    refuses(lambda: schema.read(few), ValueError, "`when`", "04/03/2024")


@pytest.mark.parametrize("form", ["{}Q{}", "{}-Q{}", "{} Q{}", "Q{1} {0}", "q{1}/{0}"])
def test_quarters(form):
    texts = [form.format(1980 + i // 4, i % 4 + 1) for i in range(44)]
    table = {"quarter": np.array(texts[:40], object), "x": np.arange(40) * 1.5}
    made = read_table(table)
    schema = known(made.schema)
    assert schema.time == "quarter"
    assert schema.calendar.word == "quarter"
    assert any(f"quarters, as {form.format(2024, 1)}" in note for note in made.notes)
    medium = TableMedium()
    [sequence] = medium.sequences(made, TableSource("x"), table)
    assert sequence.times[5] == np.datetime64("1981-04-01")
    _, ahead = medium.ahead(made, sequence, 4, None)
    rows = medium.forecast_rows(made, ahead.times, {"mean": np.zeros((4, 1))}, 0)
    assert [row["quarter"] for row in rows] == texts[40:]
    steps = TableLines(schema).read(json.dumps({"quarter": texts[41], "x": 1}))
    assert steps[-1].time == np.datetime64("1990-04-01")
    assert column_of(["1980Q5"]).form == column_of(["0000Q1"]).form == "text"


def test_an_index_of_periods_comes_back_as_one():
    index = pd.period_range("1980Q1", periods=40, freq="Q")
    frame = pd.DataFrame({"x": np.arange(40) * 1.5}, index=index)
    made = read_table(frame)
    assert made.schema.calendar.word == "quarter"
    times = made.schema.ahead(np.datetime64("1989-10-01"), np.zeros(0), 2, None)[0]
    rows = TableMedium().forecast_rows(made, times, {"mean": np.zeros((2, 1))}, 0)
    ahead = frame_like(frame, rows, made.schema)
    assert list(ahead.index) == list(pd.period_range("1990Q1", periods=2, freq="Q"))


def test_a_line_may_name_a_month_or_number_it():
    months = pd.date_range("2020-01-01", periods=40, freq="MS")
    table = {"year": months.year.to_numpy(), "x": np.arange(40) * 1.5}
    for written in (months.month.to_numpy(), months.strftime("%b").to_numpy(object)):
        schema = known(read_table(table | {"month": written}).schema)
        for told in (3, "3", "Mar", "march"):
            line = json.dumps({"year": 2024, "month": told, "x": 1})
            assert TableLines(schema).read(line)[-1].time == np.datetime64("2024-03-01")
        bad = json.dumps({"year": 2024, "month": "Mrz", "x": 1})
        refuses(lambda: TableLines(schema).read(bad), ValueError, "Mrz", "no time")  # noqa: B023
