"""Dates in other ways than ISO's: read, remembered for a few new rows, and written again."""

import json

import numpy as np
import pandas as pd
import pytest

from refusals import refuses
from varfilter.data.tables.columns import column_of
from varfilter.data.tables.json_lines import TableLines
from varfilter.data.tables.periods import period_style
from varfilter.data.tables.read import read_table
from varfilter.data.tables.schema import TableSchema
from varfilter.data.tables.spacing import named_calendar
from varfilter.data.tables.times import in_order
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


MONTHS = (
    "%YM%m", "%Y-M%m", "%m/%Y", "%m-%Y", "%Y/%m", "%b-%y", "%b %Y", "%B %Y", "%b-%Y", "%b '%y",
    "%Y %b", "%G-W%V", "%GW%V", "%Y-%m", "%Y%m",
)  # fmt: skip


@pytest.mark.parametrize("name", ["month", "date", "when"])
@pytest.mark.parametrize("form", MONTHS)
def test_months_and_weeks(form, name):
    """As they are written in public tables: each is read, remembered, and written again."""
    freq = "W-MON" if "W" in form else "MS"
    index = pd.date_range("1999-01-01", periods=46, freq=freq)
    texts = index.strftime(form).to_numpy(object)
    given = texts.astype(np.int64) if form == "%Y%m" else texts
    table = {name: given[:42], "x": np.arange(42) * 1.5}
    if form == "%Y%m" and name == "when":
        assert read_table(table).schema.time is None  # a number like others
    made = read_table(table, time=name)
    assert made.sha256() == read_table(table, time=None if name != "when" else name).sha256()
    schema = known(made.schema)
    assert schema.calendar == (None if "W" in form else named_calendar("month"))
    assert schema.step == (7 * 86400 if "W" in form else schema.step)
    medium = TableMedium()
    [sequence] = medium.sequences(made, TableSource("x"), table)
    np.testing.assert_array_equal(sequence.times, index[:42].to_numpy())
    _, ahead = medium.ahead(made, sequence, 4, None)
    rows = medium.forecast_rows(made, ahead.times, {"mean": np.zeros((4, 1))}, 0)
    assert [str(row[name]) for row in rows] == texts[42:].tolist()
    told = given[43] if isinstance(given[43], str) else int(given[43])
    lines = TableLines(schema)
    assert lines.read(json.dumps({name: told, "x": 1}))[-1].time == index[43].to_datetime64()
    assert not lines.notes


def test_what_may_be_a_day_is_no_month():
    assert column_of(["Jan-01", "Jan-02", "Jan-03", "Jan-04"]).form == "text"
    assert column_of(["Jan-01", "Feb-01", "Mar-01", "Apr-01"]).style == "{Jan}-{yy:02}"
    assert column_of(["May 2000", "JUN 2000"]).style in ("{JAN} {year}", "{Jan} {year}")
    assert column_of(["13/2000"]).form == column_of(["2020-W54"]).form == "text"
    assert column_of(["ABC-12", "Jan-12"]).form == column_of(["Mary 2000"]).form == "text"
    assert column_of(["1/2000", "12/2000"]).style == "{month}/{year}"


@pytest.mark.parametrize(
    "form",
    [
        "%I:%M %p %d %b %Y", "%I:%M:%S %p, %d/%m/%Y", "%H:%M %d.%m.%Y",
        "%m/%d/%Y %I:%M:%S %p", "%Y-%m-%d %I:%M %p", "%b %d, %Y %I:%M %p",
    ],
)  # fmt: skip
def test_clocks_of_twelve_hours_and_before_the_date(form):
    index = pd.date_range("2024-01-01", periods=60, freq="6h")
    texts = index.strftime(form).to_numpy(object)
    made = read_table({"when": texts, "x": np.arange(60) * 1.5})
    assert made.schema.step == 6 * 3600
    assert made.times["train"][0][0] == np.datetime64("2024-01-01T00:00")  # 12 AM
    clock = known(made.schema).layout.clock
    assert [clock.written_as_text(time) for time in index.to_numpy()] == texts.tolist()
    lines = TableLines(known(made.schema))
    step = lines.read(json.dumps({"when": texts[6], "x": 1}))[-1]
    assert step.time == np.datetime64("2024-01-02T12:00")
    assert not lines.notes


def test_what_cannot_be_told_is_said():
    hours = pd.date_range("2024-01-02", periods=40, freq="h").strftime("%d/%m/%Y %I:%M:%S %p")
    table = {"time": hours.to_numpy(object), "x": np.arange(40) * 1.5}
    words = "day and month cannot be told apart", "'02/01/2024 12:00:00 AM'", "31-Jan-2024"
    refuses(lambda: read_table(table), ValueError, "`time`", *words)
    made = read_table({"when": table["time"], "x": table["x"]})
    assert all(word in made.schema.left_out["when"] for word in words[:2])
    both = {"time": ["13/01/2024", "01/14/2024"] * 20, "x": table["x"]}
    refuses(lambda: read_table(both), ValueError, "no order fits", "13/01/2024", "01/14/2024")


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


@pytest.mark.parametrize(
    "form", ["%d-%b-%Y", "%d-%b-%y", "%b %d, %Y", "%a, %d %B %Y", "%B %d %Y 12:30", "%Y%m%d"]
)
def test_names_of_months_and_eight_digits(form):
    table = days(form, count=60)
    if form == "%Y%m%d":
        table["date"] = table.pop("when").astype(np.int64)
    made = read_table(table)
    name = made.schema.time
    begin = np.datetime64("2024-01-01T12:30" if ":" in form else "2024-01-01", "us")
    np.testing.assert_array_equal(made.times["train"][0][:2], begin + np.arange(2) * 86_400_000_000)
    assert made.schema.step == 86400.0
    told = table[name][-1]
    told = told if isinstance(told, str) else int(told)
    reader = TableLines(known(made.schema))
    assert reader.read(json.dumps({name: told, "x": 1}))[-1].time == begin + np.timedelta64(59, "D")
    again = known(made.schema).read(table)
    np.testing.assert_array_equal(again.times[0][-1], begin + np.timedelta64(59, "D"))


def test_numbers_that_are_no_dates_stay_numbers():
    table = {"date": np.arange(20240101, 20240161), "x": np.arange(60) * 1.5}
    assert not read_table(table).schema.layout.clock.is_date  # there is no 32nd of January
    assert column_of(["1,234.5", "12", None, "-3,000"]).values[[0, 1, 3]].tolist() == [
        1234.5, 12.0, -3000.0,
    ]  # fmt: skip
    assert column_of(["1,234.5", "12,5"]).form == "text"


def test_times_with_and_without_a_zone_are_told_of():
    mixed = column_of(["2024-01-01T00:00:00+01:00", "2024-01-01T01:00:00"])
    assert mixed.values.tolist()[1] == mixed.values.tolist()[0] + np.timedelta64(2, "h")
    assert "taken for UTC" in mixed.notes[0]
    several = column_of(["2024-01-01T00:00:00Z", "2024-01-01T01:00:00-0500"])
    assert several.values[1] - several.values[0] == np.timedelta64(6, "h")
    assert "offsets from UTC change" in several.notes[0]
    assert not column_of(["2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z"]).notes
    assert not column_of(["2024-01-01", "2024-01-02"]).notes


@pytest.mark.parametrize(
    ("texts", "style"),
    [
        (["Jan 2015", "May 2015", "Sept 2015"], "{Jan} {year}"),
        (["Sept 2015", "Oct 2015"], "{Jan} {year}"),
        (["January 2015", "Sept 2015"], "{January} {year}"),
        (["June 2015", "July 2015"], "{January} {year}"),
        (["May 2015", "May 2016"], "{Jan} {year}"),
    ],
)
def test_names_are_short_where_one_is_that_is_not_may(texts, style):
    assert period_style(texts) == style


@pytest.mark.parametrize("order", ["day-first", "month-first"])
def test_days_up_to_12_are_read_in_the_order_that_is_asked_for_and_so_is_what_comes_later(order):
    days = [day for month in range(1, 11) for day in (f"2024-{month:02}-01", f"2024-{month:02}-02")]
    form = "%d/%m/%Y" if order == "day-first" else "%m/%d/%Y"
    texts = pd.DatetimeIndex(days).strftime(form).to_numpy(object)
    table = {"date": texts, "x": np.arange(20) * 1.5}
    refuses(lambda: read_table(table), ValueError, "`date_order` (day-first or month-first)")
    made = read_table(table, date_order=order, step="rows")
    assert made.times["train"][0][:3].astype("datetime64[D]").astype(str).tolist() == days[:3]
    assert any("as asked for" in note for note in made.notes)
    lines = TableLines(known(made.schema))
    told = json.dumps({"date": "03/12/2024", "x": 1})
    expected = "2024-12-03" if order == "day-first" else "2024-03-12"
    assert str(lines.read(told)[-1].time)[:10] == expected
    wrong = {"date": ["13/01/2024", "01/14/2024"] * 10, "x": table["x"]}
    refuses(lambda: read_table(wrong, date_order=order), ValueError, f"is {order!r}", "no date so")
    plain = {"x": table["x"]}
    refuses(lambda: read_table(plain, date_order=order), ValueError, "no column has dates")
    refuses(lambda: in_order({}, "dmy"), ValueError, "'day-first'", "'dmy'")
