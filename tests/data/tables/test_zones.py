"""Times of a zone: days and hours by its clocks, what is shorter as it passes; and back in it."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

from varfilter.data.tables.columns import column_of
from varfilter.data.tables.json_lines import TableLines
from varfilter.data.tables.read import read_table
from varfilter.data.tables.schema import TableSchema
from varfilter.data.tables.spacing import DAY
from varfilter.data.tables.zones import in_utc, offset_text, on_wall, zone_of
from varfilter.media.formats import write_rows
from varfilter.media.frames import frame_like
from varfilter.media.table import TableMedium, TableSource

MEDIUM = TableMedium()
HOUR = DAY // 24


def table(index):
    return pd.DataFrame({"x": np.arange(len(index)) ** 1.5}, index=index)


def ahead(made, data, horizon=3):
    [sequence] = MEDIUM.sequences(made, TableSource("x"), data)
    _, steps = MEDIUM.ahead(made, sequence, horizon, None)
    parts = {"mean": np.zeros((horizon, len(made.columns)))}
    return list(MEDIUM.forecast_rows(made, steps.times, parts, sequence.name))


def known(made):
    return TableSchema.from_json(json.loads(json.dumps(made.schema.as_json())))


def stamps(index):
    return index.tz_convert("UTC").tz_localize(None).to_numpy().astype("datetime64[us]").astype(int)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
def test_clocks_are_those_of_pandas(zone):
    index = pd.date_range("2019-12-20", periods=50_000, freq="17min", tz=zone)
    walls = index.tz_localize(None).to_numpy().astype("datetime64[us]").astype(int)
    np.testing.assert_array_equal(on_wall(stamps(index), zone), walls)
    # Of an hour that comes twice the first is meant.
    first = index.tz_localize(None).tz_localize(zone, ambiguous=np.ones(len(index), bool))
    np.testing.assert_array_equal(in_utc(walls, zone), stamps(first))
    # Where one is left out, what is not there is counted on from before.
    gone = pd.Timestamp("2020-03-29 02:30").value // 1000
    if zone == "Europe/Berlin":
        assert on_wall(in_utc(np.array([gone]), zone), zone)[0] == gone + HOUR


def test_zones_have_names_and_offsets():
    for zone, name in (
        ("Asia/Kolkata", "Asia/Kolkata"), ("UTC", "UTC"), ("+05:45", "UTC+05:45"),
        ("-03:30", "UTC-03:30"), ("dateutil/Europe/Berlin", "Europe/Berlin"),
    ):  # fmt: skip
        time = pd.Timestamp("2024-07-01 12:00", tz=zone)
        assert zone_of(time.tz) == name
        stamp = time.value // 1000
        wall = time.tz_localize(None).value // 1000
        assert on_wall(np.array([stamp]), name)[0] == wall
        assert offset_text(stamp, name) == time.isoformat()[-6:]
    assert zone_of("Nowhere/Atlantis") == "UTC"


ZONED = [
    ("B", "Europe/Berlin", "business-day", 7 * 86400 / 5),
    ("D", "America/New_York", None, 86400.0),
    ("W", "America/New_York", None, 7 * 86400.0),
    ("MS", "Europe/Berlin", "month", 365.2425 * 7200),
    ("h", "Europe/Berlin", None, 3600.0),
]


@pytest.mark.parametrize(("freq", "zone", "word", "step"), ZONED)
def test_the_grid_is_that_of_the_clocks_there(freq, zone, word, step):
    index = pd.date_range("2023-12-30", periods=2600 if freq == "h" else 400, freq=freq, tz=zone)
    frame = table(index[:-9])
    made = read_table(frame, calendar=False)
    schema = known(made)
    for each in (made.schema, schema):
        assert each.step == pytest.approx(step, rel=1e-9)
        assert (each.calendar and each.calendar.word) == word
        assert each.layout.clock.zone == zone
        readings = each.read(frame)
        np.testing.assert_array_equal(readings.times[0], stamps(index[:-9]).astype("M8[us]"))
        assert not np.isnan(readings.rows[0]).any()
    future = frame_like(frame, ahead(made, frame, 9), made.schema)
    assert future.index.tz == index.tz
    assert future.index.equals(index[-9:])
    other = pl.from_pandas(frame.reset_index(names="when"))
    of_polars = read_table(other, calendar=False)
    assert of_polars.sha256() == made.sha256()
    future = frame_like(other, ahead(of_polars, other, 9), of_polars.schema)
    assert future["when"].to_list() == [time.to_pydatetime() for time in index[-9:]]


def test_waves_are_of_the_hour_that_clocks_show():
    """Eight in the morning is the same place of the waves in summer and in winter."""
    index = pd.date_range("2023-12-30", periods=24 * 120, freq="h", tz="Europe/Berlin")
    made = read_table(table(index), calendar=["day"])
    us = np.concatenate([made.inputs[split].values for split in ("train", "valid", "test")])
    angle = 2 * np.pi * index.hour.to_numpy() / 24
    np.testing.assert_allclose(us[:, :2], np.stack([np.sin(angle), np.cos(angle)], 1), atol=1e-5)
    schema = known(made)
    assert schema.inputs == made.schema.inputs
    lines = TableLines(schema)
    [step] = lines.read('{"time": "2024-07-01T08:00:00+02:00", "x": 1}')
    np.testing.assert_allclose(step.u[:2], us[8][:2], atol=1e-5)
    # A table from the same place without a zone has the same waves, and is warned of.
    wall = table(index.tz_localize(None).drop_duplicates())
    with pytest.warns(UserWarning, match="without a zone; they are taken for those of Europe"):
        found = schema.read(wall)
    np.testing.assert_allclose(found.us[0][-200:], us[-200:], atol=1e-5)
    naive = read_table(wall.iloc[: 24 * 80], calendar=["day"])
    with pytest.warns(UserWarning, match="holds times of Europe/Berlin, where those of training"):
        found = naive.schema.read(table(index[24 * 95 - 1 :]))
    np.testing.assert_allclose(found.us[0][:24, :2], us[:24, :2], atol=1e-5)
    # The forecast of such a run is in the zone of the frame that it goes on from.
    with pytest.warns(UserWarning, match="holds times of"):
        rows = ahead(naive, table(index), 2)
    future = frame_like(table(index), rows, naive.schema)
    assert list(future.index) == [index[-1] + pd.Timedelta(hours=i) for i in (1, 2)]
    with pytest.warns(UserWarning, match="without a zone"):
        rows = ahead(made, wall, 2)
    future = frame_like(wall, rows, made.schema)
    assert list(future.index) == [wall.index[-1] + pd.Timedelta(hours=i) for i in (1, 2)]


def test_lines_say_once_that_their_zone_is_another():
    index = pd.date_range("2024-03-28", periods=40, freq="h", tz="Europe/Berlin")
    lines = TableLines(known(read_table(table(index))))
    lines.read('{"time": "2024-05-01T08:00:00", "x": 1}')
    [note] = lines.notes
    assert note.startswith("Column `time` holds times without a zone")
    [step] = lines.read('{"time": "2024-05-01T09:00:00", "x": 1}')
    assert step.time == np.datetime64("2024-05-01T07:00")
    assert len(lines.notes) == 1


def test_texts_with_offsets_have_the_zone_that_has_them(tmp_path):
    index = pd.date_range("2024-01-01", periods=200, freq="D", tz="Europe/Berlin")
    path = tmp_path / "days.csv"
    table(index[:190]).to_csv(path)
    made = read_table(path, calendar=False)
    assert made.schema.step == 86400.0
    assert made.schema.layout.clock.zone == "Europe/Berlin"
    assert any("offsets from UTC change, as Europe/Berlin has them" in n for n in made.notes)
    rows = ahead(made, path)
    write_rows(rows, tmp_path / "out.csv")
    told = [line.split(",")[1] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert pd.to_datetime(told).tolist() == index.tz_convert("UTC+02:00")[190:193].tolist()
    assert all(text.endswith("+02:00") for text in told)
    fixed = column_of([f"2024-01-{day:02}T00:00:00+01:00" for day in (1, 2)])
    assert fixed.zone == "UTC+01:00"
    assert column_of(["2024-01-01T00:00:00Z"]).zone == "UTC"
    odd = column_of(["2024-01-01T00:00:00+01:00", "2024-01-02T00:00:00+07:00"])
    assert odd.zone == "UTC"
    assert "begin with UTC" in odd.notes[0]


def test_runs_of_before_zones_go_on_in_utc():
    index = pd.date_range("2024-01-01", periods=200, freq="D", tz="Europe/Berlin")
    record = read_table(table(index[:40]), calendar=["week"]).schema.as_json()
    del record["zone"]
    schema = TableSchema.from_json(record)
    found = schema.read(table(index))
    assert found.times[0][-1] == found.times[0][0] + 199 * np.timedelta64(1, "D")


def test_no_time_at_all_is_in_a_zone_too():
    none = np.zeros(0, np.int64)
    for zone in ("Europe/Berlin", "+02:00"):
        np.testing.assert_array_equal(on_wall(none, zone), none)
