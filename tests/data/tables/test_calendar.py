"""Steps of the calendar, times that stand in several columns, and an index without a name."""

import dataclasses
import datetime as dt

import numpy as np
import pandas as pd
import pytest

from plants import everything, lines
from refusals import refuses
from varfilter.data.tables.json_lines import TableLines
from varfilter.data.tables.read import read_table
from varfilter.data.tables.schema import TableSchema
from varfilter.data.tables.spacing import (
    DAY,
    BusinessDays,
    Even,
    HalfMonths,
    Months,
    calendar_from_json,
    named_calendar,
    usual_calendar,
)
from varfilter.media.table import TableMedium, TableSource


def stamps(dates):
    return np.array(dates, "datetime64[us]").astype(np.int64)


def dates(found):
    return [str(day) for day in np.asarray(found).astype("datetime64[us]").astype("datetime64[D]")]


def of_pandas(freq, periods=40, start="2009-01-01"):
    """Dates by pandas, which knows the calendar from elsewhere."""
    return pd.date_range(start, periods=periods, freq=freq)


FREQUENCIES = {
    "MS": "month", "ME": "month", "QS": "quarter", "QE": "quarter", "QS-FEB": "quarter",
    "YS": "year", "YE": "year", "YE-JUN": "year", "2MS": "2-month", "6ME": "6-month",
    "B": "business-day", "BME": "month", "BMS": "month", "BQE": "quarter", "BQS": "quarter",
    "BYE": "year", "2BME": "2-month", "WOM-3FRI": "month",
    "SMS": "half-month", "SME": "half-month", "SMS-12": "half-month",
}  # fmt: skip
# Months whose days have another rule than these: a day of the month stands for it.
ANYWHERE = ("WOM-3FRI",)


@pytest.mark.parametrize(("freq", "word"), FREQUENCIES.items())
def test_steps_are_found_and_the_grid_is_that_of_pandas(freq, word):
    index = of_pandas(freq)
    given = stamps(index[:30].to_numpy())
    found = usual_calendar([given])
    assert found is not None
    assert found.word == word
    np.testing.assert_array_equal(found.places(given, given[0].item()), np.arange(30))
    # From anywhere, the points ahead are those of pandas.
    for row in () if freq in ANYWHERE else (0, 1, 29):
        ahead = found.stamps(given[row].item(), np.arange(1, 11))
        assert dates(ahead) == dates(index[row + 1 : row + 11])
    # A row that is lost is a gap, and no more than that.
    kept = np.delete(given, 7)
    assert usual_calendar([kept]) == (None if freq in ANYWHERE else found)
    assert np.diff(found.places(kept, kept[0].item())).tolist() == [1] * 6 + [2] + [1] * 21
    assert calendar_from_json(found.as_json()) == found
    assert found.length == pytest.approx(np.diff(given).mean(), rel=0.05)


def test_what_is_no_calendar_is_left_to_even_steps():
    day = np.arange(60) * DAY
    for given in (
        day, 7 * day, day // 24, 30 * day,
        day[[0, 31]],  # a month or 31 days: who knows
        day[4:9],  # a week without a weekend
        np.sort(np.random.default_rng(0).integers(0, 900, 40)) * DAY,
    ):  # fmt: skip
        assert usual_calendar([given]) is None
    # Two sequences must agree.
    months, weeks = stamps(of_pandas("MS").to_numpy()), 7 * day
    assert usual_calendar([months, months[5:]]) == Months(1, 1)
    assert usual_calendar([months, weeks]) is None


def test_a_month_has_the_day_of_its_sequence():
    ends = Months(1, 31)
    assert dates(ends.stamps(stamps(["2024-01-31"])[0].item(), np.arange(3))) == [
        "2024-01-31", "2024-02-29", "2024-03-31",
    ]  # fmt: skip
    # February 29 lies at the end of its month; the 10th keeps to the 10th, and the hour stays.
    assert dates(ends.stamps(stamps(["2024-02-29"])[0].item(), np.array([1]))) == ["2024-03-31"]
    tenth = stamps(["2024-02-10T06:30"])[0].item()
    assert ends.stamps(tenth, np.array([1]))[0] == stamps(["2024-03-10T06:30"])[0]
    # What comes at a weekend lies on its Friday.
    weekend = stamps(["2024-01-05", "2024-01-06", "2024-01-07", "2024-01-08"])
    assert BusinessDays().places(weekend, weekend[0].item()).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("freq", ["ME", "QS", "B", "SME"])
def test_a_table_of_the_calendar_has_no_gaps_and_forecasts_on_it(freq, tmp_path):
    index = of_pandas(freq, 60)
    path = lines(tmp_path, "date,x", *(f"{day:%Y-%m-%d},{i}.5" for i, day in enumerate(index[:50])))
    made = read_table(path, calendar=False)
    word = FREQUENCIES[freq]
    assert any(f"a step is a {word} of the calendar (found from" in note for note in made.notes)
    values = everything(made)
    assert len(values) == 50
    assert not np.isnan(values).any()
    schema = TableSchema.from_json(made.schema.as_json())
    assert schema.spacing == made.schema.spacing
    read = schema.read(path)
    assert dates(read.times[0]) == dates(index[:50])
    ahead, _ = schema.ahead(read.times[0][-1], np.zeros(0), 10, None)
    assert dates(ahead) == dates(index[50:])
    # Lines lie on it too.
    reader = TableLines(schema)
    for i in (0, 1, 4):
        steps = reader.read(f'{{"date": "{index[i]:%Y-%m-%d}", "x": {i}}}')
    assert dates([step.time for step in steps]) == dates(index[2:5])
    assert [step.own is None for step in steps] == [True, True, False]


def test_half_months_are_two_days_of_each_month():
    """What lies between them is on the one before; two days that are close together are no half."""
    steps = HalfMonths(15, 31)
    given = stamps(["2024-01-15", "2024-01-31", "2024-02-10", "2024-02-15", "2024-02-29"])
    assert steps.places(given, given[0].item()).tolist() == [0, 1, 1, 2, 3]
    assert dates(steps.stamps(given[2].item(), np.arange(3))) == [
        "2024-01-31", "2024-02-15", "2024-02-29",
    ]  # fmt: skip
    months = np.arange("2020-01", "2023-01", dtype="datetime64[M]").astype("datetime64[D]")
    for first, second in ((1, 3), (3, 27)):
        both = np.sort(np.concatenate([months + (first - 1), months + (second - 1)]))
        assert usual_calendar([stamps(both)]) is None
    assert named_calendar("half-month") == HalfMonths(1, 15)
    assert named_calendar("half-month", [given[[0, 1, 3]]]) == steps


def test_one_row_in_every_month_is_enough():
    """Whatever its day, of months, quarters and years; dates ahead have the usual one."""
    rng = np.random.default_rng(0)
    for num_months, word in ((1, "month"), (3, "quarter"), (12, "year")):
        months = np.datetime64("2001-01") + num_months * np.arange(40)
        days = rng.integers(0, 28, 40)
        days[::2] = 16
        given = stamps(months.astype("datetime64[D]") + days)
        found = usual_calendar([given])
        assert found.word == word
        np.testing.assert_array_equal(found.places(given, given[0].item()), np.arange(40))
        ahead = dates(found.stamps(given[-1].item(), np.arange(1, 3)))
        assert ahead == [f"{months[-1] + num_months * i}-17" for i in (1, 2)]
        # Where one is lost it may be any step.
        assert usual_calendar([np.delete(given, 7)]) is None
    # A holiday at the end of a year: still the last business day of a month.
    ends = of_pandas("BME", 36).to_numpy().copy()
    ends[11] -= np.timedelta64(1, "D")
    assert usual_calendar([stamps(ends)]).rule == "last-business-day"


def test_a_few_rows_at_weekends_leave_business_days():
    """They lie on their Friday, which is said; where there are many, each day is one."""
    days = of_pandas("B", 250)
    saturday = pd.Timestamp("2009-03-07")
    free = days.drop(pd.Timestamp("2009-03-06"))
    for index, num_lost in ((days, 1), (free, 0)):
        index = index.append(pd.DatetimeIndex([saturday])).sort_values()
        data = pd.DataFrame({"x": np.arange(len(index)) ** 1.5}, index=index)
        made = read_table(data, calendar=False)
        assert made.schema.calendar == BusinessDays()
        assert made.schema.merged.lost == num_lost
        assert "1 row at a weekend lies on the Friday before." in made.notes
        np.testing.assert_array_equal(
            np.concatenate([times.values for times in made.times.values()]), days.to_numpy()
        )
        friday = days.get_loc(pd.Timestamp("2009-03-06"))
        assert everything(made)[friday, 0] == np.float32(data["x"][saturday])
    many = days.append(pd.date_range("2009-03-07", periods=9, freq="7D")).sort_values()
    assert usual_calendar([stamps(many.to_numpy())]) is None
    assert not [note for note in read_table({"date": days, "x": np.arange(250)}).notes
                if "weekend" in note]  # fmt: skip


def test_twice_a_month_is_on_the_days_of_pandas():
    index = pd.date_range("2020-01-15", periods=60, freq="SME")
    frame = pd.DataFrame({"x": np.arange(60) ** 1.5}, index=index)
    for source in (frame, frame.tz_localize("Europe/Berlin")):
        made = read_table(source, calendar=False)
        assert not np.isnan(everything(made)).any()
        schema = TableSchema.from_json(made.schema.as_json())
        assert schema.spacing == made.schema.spacing
        times = schema.read(source).times[0]
        ahead, _ = schema.ahead(times[-1], np.zeros(0), 5, None)
        walls = pd.DatetimeIndex([*times, *ahead])
        if source is not frame:
            walls = walls.tz_localize("UTC").tz_convert(source.index.tz)
        assert (walls == walls.normalize()).all()
        assert (walls[:60] == source.index).all()


def test_a_calendar_may_be_asked_for():
    days = of_pandas("D", 800)
    data = {"date": days.to_numpy(), "x": np.arange(800.0)}
    made = read_table(data, step="month", calendar=False)
    assert made.schema.calendar == named_calendar("month", [stamps(days[:640].to_numpy())])
    # Of each month the last value counts.
    monthly = pd.Series(data["x"], days).resample("MS").last()
    np.testing.assert_array_equal(made.train[0][:5, 0], monthly[:5])
    assert any("a step is a month of the calendar (as given)" in note for note in made.notes)
    assert read_table(data, step="business-day").schema.calendar == BusinessDays()
    assert read_table(data, step=86400).schema.calendar is None
    months = {"date": of_pandas("MS").to_numpy(), "x": np.arange(40.0)}
    assert read_table(months, step=30.4375 * 86400).schema.calendar is None
    assert read_table(months, step="rows").schema.calendar is None


def test_runs_of_before_read_their_table_as_they_did():
    months = {"date": of_pandas("MS").to_numpy(), "x": np.arange(40.0) ** 1.5}
    made = read_table(months, calendar=False, step=30.44 * 86400)
    old = made.schema.as_json()
    for name in ("unit", "parts", "calendar"):
        del old[name]
    schema = TableSchema.from_json(old)
    assert schema.spacing == Even(made.schema.spacing.length)
    assert schema.layout.clock.unit == "us"
    source = TableMedium().as_recorded(TableSource("x.csv"), schema)
    options = source.options() | {"calendar": False}
    assert read_table(months, **options).sha256() == made.sha256()
    assert read_table(months, calendar=False).sha256() == made.sha256()  # the same rows
    # One that took year and month for what it observed still does.
    parts = {
        "year": [2000.0 + i // 12 for i in range(40)],
        "month": [i % 12 + 1.0 for i in range(40)],
    }
    made = read_table(parts, time=False)
    source = TableMedium().as_recorded(TableSource("x.csv"), made.schema)
    assert read_table(parts, **source.options()).columns == ("year", "month")


@pytest.mark.parametrize("freq", ["BMS", "BME", "MS", "B"])
def test_a_run_reads_its_table_again_with_the_rule_of_its_days(freq):
    months = {"date": of_pandas(freq, 144).to_numpy(), "x": np.arange(144.0) ** 1.5}
    made = read_table(months, calendar=["year"])
    schema = TableSchema.from_json(made.schema.as_json())
    options = TableMedium().as_recorded(TableSource("x.csv"), schema).options()
    again = read_table(months, **options | {"calendar": ["year"]})
    assert again.schema.calendar == made.schema.calendar
    assert again.sha256() == made.sha256()


# Times in several columns


def in_parts(index, *names):
    return {name: getattr(index, name).to_numpy() for name in names}


@pytest.mark.parametrize(
    ("freq", "names"),
    [
        ("MS", ("year", "month")),
        ("QS", ("year", "quarter")),
        ("YS", ("year",)),
        ("D", ("year", "month", "day")),
        ("h", ("year", "month", "day", "hour")),
    ],
)
def test_columns_named_year_and_month_are_the_time(freq, names):
    index = of_pandas(freq)
    parts = in_parts(index, *names)
    data = parts | {"x": np.arange(40.0)}
    made = read_table(data)
    assert made.columns == ("x",)
    clock = made.schema.layout.clock
    assert clock.columns == names
    np.testing.assert_array_equal(
        np.concatenate([times.values for times in made.times.values()]), index.to_numpy()
    )
    listed = ", ".join(f"'{name}'" for name in names)
    assert made.notes[0].startswith(f"The time is column{'s' * (len(names) > 1)} {listed};")
    schema = TableSchema.from_json(made.schema.as_json())
    assert schema == TableSchema.from_json(schema.as_json())
    np.testing.assert_array_equal(schema.read(data).times[0], index.to_numpy())
    # They come back in their columns; so do those of forecasts.
    times, _ = schema.ahead(index.to_numpy()[-1], np.zeros(len(schema.inputs.columns)), 3, None)
    rows = list(TableMedium().forecast_rows(made, times, {"mean": np.zeros((3, 1))}, 0))
    ahead = in_parts(of_pandas(freq, 43)[40:], *names)
    for name in names:
        assert [row[name] for row in rows] == ahead[name].tolist()
    assert "time" not in rows[0]
    # A line has them, too.
    reader = TableLines(schema)
    for i in (0, 2):
        told = ", ".join(f'"{name}": {parts[name][i]}' for name in names)
        steps = reader.read(f'{{{told}, "x": 1}}')
    assert len(steps) == 2
    assert steps[-1].time == index.to_numpy()[2]
    refuses(lambda: reader.read('{"year": "now", "x": 1}'), ValueError, "year", "no time")
    without = {name: column for name, column in data.items() if name != names[-1]}
    refuses(lambda: schema.read(without), ValueError, "lacks", repr(names[-1]))
    # In forty days the year is one and the same.
    changing = tuple(name for name in names if len(set(data[name])) > 1)
    assert read_table(data, time=False).columns == (*changing, "x")
    if len(names) > 1:
        assert read_table(data, time=",".join(names)).sha256() == made.sha256()
    source = TableMedium().as_recorded(TableSource("x.csv"), schema)
    # What is named needs no reason.
    again = read_table(data, **source.options()).schema
    assert again == dataclasses.replace(made.schema, reasons={})


def test_months_and_quarters_may_be_words():
    index = of_pandas("MS")
    for words in (index.strftime("%b"), index.strftime("%B")):
        data = {"year": index.year, "month": words.tolist(), "x": np.arange(40.0)}
        made = read_table(data)
        np.testing.assert_array_equal(made.schema.read(data).times[0], index.to_numpy())
        times = index.to_numpy()[:3]
        rows = TableMedium().forecast_rows(made, times, {"mean": np.zeros((3, 1))}, 0)
        assert [row["month"] for row in rows] == words[:3].tolist()
    quarters = {"Year": np.arange(40) // 4 + 1990, "Quarter": [f"Q{i % 4 + 1}" for i in range(40)]}
    made = read_table(quarters | {"x": np.arange(40.0)})
    assert made.schema.calendar == Months(3, 1)
    assert made.times["train"][0][5] == np.datetime64("1991-04-01")


def test_columns_that_only_sound_like_a_time_are_observed():
    x = np.arange(40.0)
    cars = {"year": 1970 + np.arange(40) // 8, "x": x}
    assert read_table(cars).columns == ("year", "x")
    assert read_table({"year": 2000 + np.arange(40), "month": np.arange(40), "x": x}).columns == (
        "year", "month", "x",
    )  # fmt: skip
    assert read_table({"month": np.arange(40) % 12 + 1, "x": x}).columns == ("month", "x")
    # With a date beside them, that is the time.
    months = of_pandas("MS")
    both = in_parts(months, "year", "month") | {"date": months.to_numpy(), "x": x}
    assert read_table(both).schema.time == "date"
    # Years with a fraction are numbers.
    made = read_table({"year": 1958 + np.arange(40) / 4, "x": x})
    assert (made.schema.time, made.schema.step) == ("year", 0.25)
    # A sequence for each country: then a year is one of its own.
    panel = {"year": np.tile(1990 + np.arange(20), 4), "run": np.repeat(list("abcd"), 20)}
    made = read_table(panel | {"x": np.arange(80.0)})
    assert (made.schema.time, made.schema.step) == ("year", pytest.approx(365.2425 * 86400))
    wrong = in_parts(months, "year", "month") | {"x": x}
    wrong["month"] = np.where(np.arange(40) == 3, 13, wrong["month"])
    made = read_table(in_parts(months, "year", "month") | {"x": x})
    refuses(lambda: made.schema.read(wrong), ValueError, "`month`", "13", "row 3", "12")
    refuses(lambda: read_table(wrong, time="year,month"), ValueError, "year, month", "together")
    days = in_parts(of_pandas("D"), "year", "month", "day") | {"x": x}
    made = read_table(days)
    wrong = days | {"day": np.full(40, 31), "month": np.full(40, 2)}
    refuses(lambda: made.schema.read(wrong), ValueError, "31", "no such day")


def test_the_unit_of_dates_is_as_they_are_written(tmp_path):
    def unit(*texts):
        rows = (f"{text},{i}" for i, text in enumerate(texts))
        return read_table(lines(tmp_path, "date,x", *rows)).schema.layout.clock

    days = [f"2024-01-{day:02}" for day in range(1, 10)]
    assert unit(*days).unit == "D"
    assert unit(*(f"{day}T00:00:00" for day in days)).unit == "us"
    months = unit(*(f"2024-{month:02}" for month in range(1, 10)))
    assert months.unit == "M"
    assert str(months.written(np.datetime64("2024-03-01T00:00:00"))) == "2024-03"
    # What a unit would leave out is written all the same.
    assert months.written(np.datetime64("2024-03-02")) == np.datetime64("2024-03-02")
    for given in (
        [dt.date(2024, 1, day) for day in range(1, 10)],
        np.array(days, "datetime64[ns]"),
    ):
        assert read_table({"date": given, "x": np.arange(9.0)}).schema.layout.clock.unit == "D"
