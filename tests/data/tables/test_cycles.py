"""Months, quarters and years that are not the time: what they were taken for is said."""

import numpy as np
import pandas as pd
import pytest

from varfilter.data.tables.read import read_table

INDEX = pd.date_range("2000-01-01", periods=48, freq="MS")
X = np.arange(48) ** 1.5


def notes_on(made, name):
    return [note for note in made.notes if note.startswith(f"Column {name!r}")]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("month", INDEX.month.to_numpy()), ("Month", INDEX.strftime("%b").to_numpy(object)),
        ("quarter", INDEX.quarter.to_numpy()), ("qtr", [f"Q{i}" for i in INDEX.quarter]),
    ],
)  # fmt: skip
def test_a_month_without_a_year_is_no_time(name, values):
    made = read_table({name: values, "x": X})
    assert made.schema.time is None
    assert "rows are steps" in made.notes[0]
    done = "predicted like" if name in made.schema.columns else "left out"
    assert f"no time, and is {done}" in notes_on(made, name)[0]
    assert "`inputs`" in notes_on(made, name)[0]
    if np.asarray(values).dtype.kind == "i":  # as an input it needs no sentence
        assert not notes_on(read_table({name: values, "x": X}, inputs=[name]), name)
    assert not notes_on(read_table({name: np.arange(48) + 5.5, "x": X}), name)[1:]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_month_beside_a_date_is_known_from_it(zone):
    data = pd.DataFrame({"date": INDEX.tz_localize(zone), "x": X})
    data["month"], data["Year"] = INDEX.month, INDEX.year
    data["quarter"], data["day"] = [f"Q{i}" for i in INDEX.quarter], np.arange(48) % 31 + 1
    made = read_table(data)
    assert made.schema.time == "date"
    assert made.schema.columns == ("x", "day")
    assert "known beforehand" in made.schema.left_out["month"]
    assert any("left out: the month of the time in column 'date'" in n for n in made.notes)
    # Asked for, they are predicted; or known.
    assert "month" in read_table(data, kinds={"month": "numeric"}).schema.columns
    assert read_table(data, columns=["x", "month"]).schema.columns == ("x", "month")
    assert read_table(data, inputs=["month"]).input_names[0] == "month"
    # New rows need no such column.
    assert len(made.schema.read(data.drop(columns=["month", "Year"])).rows[0]) == 48
    # Where there is nothing else, they are what is there.
    assert read_table(data[["date", "month"]]).schema.columns == ("month",)


def test_months_with_their_year_are_a_time():
    made = read_table({"month": INDEX.strftime("%b %Y").to_numpy(object), "x": X})
    assert (made.schema.time, made.schema.calendar.word) == ("month", "month")
    quarters = {"year": 1990 + np.arange(48) // 4, "qtr": np.arange(48) % 4 + 1, "x": X}
    made = read_table(quarters)
    assert made.schema.layout.clock.columns == ("year", "qtr")
    assert made.schema.calendar.word == "quarter"


def test_the_years_of_a_panel_ask_for_its_sequences():
    panel = {
        "year": np.tile(1990 + np.arange(20), 4),
        "gdp": np.arange(80.0) ** 1.5,
        "country": np.repeat(["at", "be", "ch", "dk"], 20),
    }
    made = read_table(panel)
    [note] = [note for note in notes_on(made, "year") if "no time" in note]
    assert "perhaps 'country'," in note
    assert "`sequence`" in note
    assert read_table(panel, sequence="country").schema.time == "year"
    cars = {"year": 1970 + np.arange(40) // 8, "x": np.arange(40.0) ** 1.5}
    assert "name the column that" in notes_on(read_table(cars), "year")[0]
    # Of years that come once nothing of the kind is so.
    once = {"year": 1600 + np.arange(400), "x": np.random.default_rng(0).normal(size=400)}
    assert not any("no time" in note for note in notes_on(read_table(once, time=False), "year"))
