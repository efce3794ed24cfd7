"""An index without a name: the same from a file, from a frame read from it, and as an index."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest

from varfilter.data.tables.json_lines import TableLines
from varfilter.data.tables.read import read_table
from varfilter.media.frames import frame_like
from varfilter.media.table import TableMedium, TableSource

MEDIUM = TableMedium()


def test_an_index_without_a_name_is_the_same_from_everywhere(tmp_path):
    frame = pd.DataFrame(
        {"x": np.arange(40.0) ** 1.5}, index=pd.date_range("2009-01-01", periods=40, freq="MS")
    )
    path = tmp_path / "table.csv"
    frame.to_csv(path)
    again = pd.read_csv(path)
    assert again.columns[0] == "Unnamed: 0"
    other = pl.read_csv(path)
    sources = [path, frame, again, other]
    made = [read_table(source) for source in sources]
    for name, source in (("", path), ("Unnamed: 0", path), ("index", path), ("", again)):
        made.append(read_table(source, time=name))
    assert {each.sha256() for each in made} == {made[0].sha256()}
    assert all(each.columns == ("x",) for each in made)
    # A run of one reads all the others; lines may call it as rows do.
    for each in made[:4]:
        for source in sources:
            found = each.schema.read(source)
            np.testing.assert_array_equal(found.times[0], frame.index.to_numpy())
        reader = TableLines(each.schema)
        (step,) = reader.read('{"time": "2009-02-01", "x": 1}')
        assert step.time == np.datetime64("2009-02-01")
        (row,) = TableMedium().forecast_rows(each, step.time[None], {"mean": np.zeros((1, 1))}, 0)
        assert list(row)[:2] == ["sequence", "time"]


DAYS = pd.date_range("2009-01-31", periods=48, freq="D")
INDICES = {
    "dates": pd.Index([day.date() for day in DAYS]),
    "texts": pd.Index(DAYS.strftime("%Y-%m-%d")),
    "texts by day": pd.Index(DAYS.strftime("%d/%m/%Y")),
    "floats": pd.Index(np.arange(48) * 0.25),
    "uneven floats": pd.Index(np.cumsum(np.r_[0.5, np.tile([1.0, 1.0, 2.5], 15), 1.0, 1.0])),
    "tens": pd.Index(np.arange(48) * 10.0),
    "durations": pd.timedelta_range(0, periods=48, freq="90s"),
    "seconds": pd.timedelta_range(0, periods=48, freq="s"),
    "days": pd.timedelta_range(0, periods=48, freq="D"),
}


def ahead(made, data, horizon):
    for sequence in MEDIUM.sequences(made, TableSource("x"), data):
        _, steps = MEDIUM.ahead(made, sequence, horizon, None)
        parts = {"mean": np.zeros((horizon, len(made.columns)))}
        yield from MEDIUM.forecast_rows(made, steps.times, parts, sequence.name)


@pytest.mark.parametrize("name", INDICES)
def test_every_index_that_is_a_time_is_found(name, tmp_path):
    index = INDICES[name]
    frame = pd.DataFrame({"x": np.arange(48.0) ** 1.5}, index=index)
    known, path = frame.iloc[:45], tmp_path / "in.csv"
    known.to_csv(path)
    made = [read_table(source, calendar=False) for source in (known, path, pd.read_csv(path))]
    for each in made:
        assert each.columns == ("x",)
        assert each.schema.time in ("", "index", "Unnamed: 0")
        assert each.sha256() == made[0].sha256()
        assert each.schema.step == made[0].schema.step
        for source in (known, path):
            assert each.schema.read(source).times[0][-1] == made[0].times["test"][0][-1]
    future = frame_like(known, ahead(made[0], known, 3), made[0].schema)
    if "uneven" not in name:
        assert list(future.index) == list(index[45:])
    assert future.index.dtype.kind == index.dtype.kind


def test_numbers_that_count_rows_are_no_time(tmp_path):
    x = np.arange(40.0) ** 1.5
    for index in (np.arange(40.0), np.delete(np.arange(42.0), [3, 7]), np.arange(40) * 7):
        frame = pd.DataFrame({"x": x}, index=index)
        path = tmp_path / "in.csv"
        frame.to_csv(path)
        for source in (frame, path):
            made = read_table(source)
            assert made.columns == ("x",)
            assert made.schema.time is None
    # One that goes to and fro is no time, and is not predicted either.
    frame = pd.DataFrame({"x": x}, index=np.random.default_rng(0).normal(size=40))
    frame.to_csv(path)
    for source in (frame, path):
        made = read_table(source)
        assert made.columns == ("x",)
        assert made.schema.time is None
        assert any("1 (without a name) is left out: an index" in note for note in made.notes)
        assert read_table(source, columns=["", "x"]).columns == ("", "x")
    assert dt.date(2009, 1, 31) == INDICES["dates"][0]
