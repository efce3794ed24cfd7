"""Rows come back as a table of the user's kind, with its index, its times and its names."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest

from varfilter.data.tables.json_lines import TableLines
from varfilter.data.tables.read import read_table
from varfilter.data.tables.times import UNNAMED
from varfilter.media import forecast_rows
from varfilter.media.formats import as_columns, write_rows
from varfilter.media.frames import frame_like
from varfilter.media.rows import Alarms, ColumnSurprises, Filtering
from varfilter.media.sequences import NewSequence
from varfilter.media.table import TableMedium, TableSource
from varfilter.simulation import Forecast

MEDIUM = TableMedium()


def filtered(made, data, *, fill_gaps=False):
    """The rows of a filter that predicts nothing; the surprise of a step is its number."""
    numbered = []
    for sequence in MEDIUM.sequences(made, TableSource("x"), data):
        assert isinstance(sequence, NewSequence)
        count = len(sequence.xs)
        said = Filtering(sequence.name, sequence.rows, sequence.times, {}, np.arange(count) * 1.0)
        given = said.as_given(sequence.given, fill_gaps=fill_gaps)
        numbers = sequence.given.numbers if not fill_gaps else range(len(numbered), 9999)
        numbered += zip(numbers, MEDIUM.step_rows(made, given), strict=False)
    return [row for _, row in sorted(numbered, key=lambda pair: pair[0])]


def ahead(made, data, horizon=2):
    for sequence in MEDIUM.sequences(made, TableSource("x"), data):
        _, steps = MEDIUM.ahead(made, sequence, horizon, None)
        parts = {"mean": np.zeros((horizon, len(made.columns)))}
        yield from MEDIUM.forecast_rows(made, steps.times, parts, sequence.name)


def read(data, **options):
    return read_table(data, calendar=False, **options)


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_datetime_index_comes_back_as_one(zone):
    index = pd.date_range("2024-04-01", periods=30, freq="D", tz=zone)
    frame = pd.DataFrame({"x": np.arange(30.0)}, index=index)
    made = read(frame)
    mixed = frame.iloc[np.random.default_rng(0).permutation(30)]
    found = frame_like(mixed, filtered(made, mixed), made.schema, is_aligned=True)
    pd.testing.assert_index_equal(found.index, mixed.index)
    assert list(found.columns) == ["sequence", "x", "surprise"]
    np.testing.assert_array_equal(found["x"], mixed["x"])
    joined = frame.join(found["surprise"])
    np.testing.assert_array_equal(joined["surprise"].sort_index(), np.arange(30))
    future = frame_like(frame, ahead(made, frame), made.schema)
    assert isinstance(future.index, pd.DatetimeIndex)
    assert list(future.index) == [index[-1] + pd.Timedelta(days=i) for i in (1, 2)]
    assert future.index.tz == index.tz
    # Gaps that are asked for have their place in it.
    kept = frame.drop(frame.index[[3, 4]])
    filled = frame_like(kept, filtered(made, kept, fill_gaps=True), made.schema)
    assert len(filled) == 30
    assert filled.index.tz == index.tz
    assert filled["x"].isna().sum() == 2


def test_days_of_a_zone_stay_days_there():
    """Midnight of Berlin is another hour of UTC in summer; months begin with it all the same."""
    index = pd.date_range("2020-01-01", periods=38, freq="MS", tz="Europe/Berlin")
    frame = pd.DataFrame({"x": np.arange(35.0)}, index=index[:35])
    made = read(frame)
    assert made.schema.calendar.word == "month"
    future = frame_like(frame, ahead(made, frame, 3), made.schema)
    assert list(future.index) == list(index[35:])
    summer = frame.iloc[:28]
    future = frame_like(summer, ahead(made, summer, 9), made.schema)
    assert list(future.index) == list(index[28:37])
    other = pl.from_pandas(summer.reset_index(names="when"))
    made = read(other)
    future = frame_like(other, ahead(made, other, 9), made.schema)
    assert future["when"].to_list() == [day.to_pydatetime() for day in index[28:37]]


def test_every_index_is_kept():
    frame = pd.DataFrame(
        {"run": np.repeat([10, 9], 20), "t": np.tile(np.arange(20.0), 2), "x": np.arange(40.0)},
        index=pd.Index([f"row {i}" for i in range(40)], name="label"),
    )
    made = read(frame, sequence="run", split="time")
    found = frame_like(frame, filtered(made, frame), made.schema, is_aligned=True)
    pd.testing.assert_index_equal(found.index, frame.index)
    pd.testing.assert_series_equal(found["run"], frame["run"])  # numbers, in the table's order
    pd.testing.assert_series_equal(found["t"], frame["t"])
    both = frame.reset_index(drop=True).set_index(["run", "t"])
    made = read(both, sequence="run", split="time")
    found = frame_like(both, filtered(made, both), made.schema, is_aligned=True)
    pd.testing.assert_index_equal(found.index, both.index)
    future = frame_like(both, ahead(made, both), made.schema)
    assert future.index.names == ["run", "t"]
    assert list(future.index) == [(9, 20.0), (9, 21.0), (10, 20.0), (10, 21.0)]


def test_polars_frames_keep_their_types():
    frame = pl.DataFrame(
        {
            "month": pl.date_range(pl.date(2020, 1, 1), pl.date(2022, 6, 1), "1mo", eager=True),
            "x": np.arange(30.0),
        }
    )
    made = read(frame)
    assert made.schema.calendar.word == "month"
    found = frame_like(frame.lazy(), filtered(made, frame), made.schema, is_aligned=True)
    assert found["month"].equals(frame["month"])
    future = frame_like(frame, ahead(made, frame), made.schema)
    assert future.schema["month"] == pl.Date
    assert future["month"].cast(str).to_list() == ["2022-07-01", "2022-08-01"]
    zoned = frame.with_columns(pl.col("month").cast(pl.Datetime("us", "Asia/Tokyo")))
    with pytest.warns(UserWarning, match="holds times of Asia/Tokyo, where those of training"):
        future = frame_like(zoned, ahead(made, zoned), made.schema)
    assert future.schema["month"] == pl.Datetime("us", "Asia/Tokyo")


def test_dates_are_written_as_they_were(tmp_path):
    def written(texts, name="out.csv", rows=filtered):
        data = tmp_path / "in.csv"
        data.write_text("when,x\n" + "".join(f"{t},{i}.5\n" for i, t in enumerate(texts)))
        made = read(data)
        write_rows(rows(made, data), tmp_path / name)
        return made, (tmp_path / name).read_text().splitlines()

    months = [f"{2008 + i // 12}-{i % 12 + 1:02}-01" for i in range(24)]
    _, out = written(months)
    assert [line.split(",")[1] for line in out[1:]] == months
    _, out = written(months, rows=ahead)
    assert [line.split(",")[1] for line in out[1:]] == ["2010-01-01", "2010-02-01"]
    _, out = written([month[:7] for month in months], "out.jsonl", rows=ahead)
    assert '"when": "2010-01"' in out[0]
    for day in ("{:02}.01.2024", "2024-01-{:02} 06:00", "2024-01-{:02}T06:00:00+02:00"):
        texts = [day.format(i) for i in range(1, 25)]
        made, out = written(texts)
        assert [line.split(",")[1] for line in out[1:]] == texts
        rows = filtered(made, tmp_path / "in.csv")
        assert as_columns(rows)["when"].dtype.kind == "M"
        assert rows[0]["when"] == made.times["train"][0][0].item()
    # An array of days has no time of the day either.
    data = {"when": np.array(months, "datetime64[D]"), "x": np.arange(24.0)}
    made = read(data)
    assert as_columns(ahead(made, data))["when"].dtype == "datetime64[D]"
    assert as_columns(filtered(made, data))["when"].dtype == "datetime64[D]"


def test_cells_come_back_as_they_came(tmp_path):
    """Whole numbers, truths and texts as such, in files and frames; what is missing is missing."""
    path = tmp_path / "in.csv"
    hours = [f"2024-01-01T{hour:02d}:00" for hour in range(24)]
    cells = [(f"{0.1 * i:.1f}", i, ["true", "false"][i % 3 == 0], 7) for i in range(24)]
    cells[5] = ("0.5", "", "", 7)
    lines = ["time,x,n,is_on,model"]
    lines += [f"{time},{','.join(map(str, row))}" for time, row in zip(hours, cells, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    made = read(path, fractions=(0.9, 0.05, 0.05))
    assert made.schema.constants == {"model": 7.0}
    rows = filtered(made, path)
    for ending in (".csv", ".jsonl", ".parquet"):
        write_rows(iter(rows), tmp_path / f"out{ending}")
    first, sixth = (tmp_path / "out.csv").read_text().splitlines()[2:7:4]
    assert first == "0,2024-01-01T01:00,0.1,1,True,7,1.0"
    assert sixth == "0,2024-01-01T05:00,0.5,,,7,5.0"
    assert '"n": 1, "is_on": true, "model": 7,' in (tmp_path / "out.jsonl").read_text()
    kept = pl.read_parquet(tmp_path / "out.parquet")
    assert kept.schema["n"] == pl.Int64
    assert kept.schema["is_on"] == pl.Boolean
    assert kept["n"].null_count() == kept["is_on"].null_count() == 1
    frame = pd.read_csv(path).astype({"n": "Int64", "x": "float32"})
    given = frame_like(frame, filtered(made, frame), made.schema, is_aligned=True)
    pd.testing.assert_frame_equal(given[list(frame)], frame)


def test_a_row_that_lost_its_value_has_no_surprise():
    """Of two rows on a step, each is told what was said of its own values."""
    step = {"time": np.arange(30.0), "x": np.arange(30.0), "y": np.arange(30.0)}
    made = read(step)
    two = {
        "time": np.array([0.0, 1.0, 1.1, 2.0, 2.1, 3.0]),
        "x": np.array([0.0, 1.0, np.nan, 2.0, 9.0, 3.0]),
        "y": np.array([0.0, np.nan, 1.0, 2.0, np.nan, 3.0]),
    }
    with pytest.warns(UserWarning, match="1 row lost a value to a later row"):
        [sequence] = MEDIUM.sequences(made, TableSource("x"), two)
    nats = 10.0 * np.arange(8.0).reshape(4, 2)
    columns = ColumnSurprises(nats, nats, nats, nats, nats)
    alarms = Alarms(np.full(4, 0.5), np.ones(4, bool), np.full(4, "why"), np.ones((4, 2), bool))
    said = Filtering(
        0, sequence.rows, sequence.times, {}, np.arange(4.0), columns=columns, alarms=alarms
    ).as_given(sequence.given, fill_gaps=False)
    np.testing.assert_array_equal(said.surprise, [0, 1, 1, np.nan, 2, 3])
    expected = [[0, 10], [20, np.nan], [np.nan, 30], [np.nan, 50], [40, np.nan], [60, 70]]
    np.testing.assert_array_equal(said.columns.nats, expected)
    assert said.alarms.flags.tolist() == [True, True, True, False, True, True]
    assert said.alarms.causes.tolist() == ["why", "why", "why", "", "why", "why"]
    assert np.isnan(said.alarms.p_values[3])


def test_quantiles_of_counts_are_whole_and_bands_no_narrower_than_they_say():
    rng = np.random.default_rng(0)
    made = read({"k": rng.integers(200, 240, 200), "x": rng.normal(size=200)})
    assert made.schema.kinds == {"k": "count", "x": "numeric"}
    offset, scale = np.asarray(made.scaling.offset), np.asarray(made.scaling.scale)
    told = np.array([[218.902, 0.25], [219.4, 0.5], [220.1, 0.75], [221.00001, 1.0]])
    quantiles = jnp.asarray((told - offset) / scale, jnp.float32)[:, None, :]
    forecast = Forecast(quantiles, quantiles[0], quantiles, (0.05, 0.5, 0.95, 0.975))
    (row,) = forecast_rows(made, forecast)
    names = ["q05", "q50", "q95", "q97.5"]
    assert [row[f"k_{name}"] for name in names] == [218, 219, 221, 221]
    np.testing.assert_allclose([row[f"x_{name}"] for name in names], told[:, 1], rtol=1e-5)
    assert row["k_mean"] == pytest.approx(218.902, rel=1e-5)  # a mean need not be whole


def test_known_inputs_come_back_as_they_came(tmp_path):
    text = ["t,valve,surprise,x", *(f"{t},{t % 2},0.5,{t}.25" for t in range(30))]
    path = tmp_path / "in.csv"
    path.write_text("\n".join(text) + "\n")
    made = read(path, inputs=["valve", "surprise"])
    rows = filtered(made, path)
    # Ours makes way for the user's, as beside a column that is observed.
    assert list(rows[3]) == ["sequence", "t", "x", "valve", "surprise", "surprise_"]
    assert [row["valve"] for row in rows[:3]] == [0, 1, 0]
    assert (rows[3]["surprise"], rows[3]["surprise_"]) == (0.5, 3.0)
    frame = pl.read_csv(path).with_columns(pl.col("valve").cast(pl.Int8))
    found = frame_like(frame, filtered(made, frame), made.schema, is_aligned=True)
    assert found["valve"].equals(frame["valve"])
    # A step without a row has none; a live line has its own.
    fewer = frame.filter(pl.col("t") != 3)
    assert filtered(made, fewer, fill_gaps=True)[3]["valve"] is None
    (step,) = TableLines(made.schema).read('{"t": 0, "valve": 1, "surprise": 2, "x": 1.5}')
    assert step.cells == {"x": 1.5, "valve": 1, "surprise": 2}


def test_a_column_that_is_called_index_keeps_its_name(tmp_path):
    """Although the run was trained on a file whose index has none."""
    days = pd.date_range("2024-04-01", periods=30, freq="D")
    path = tmp_path / "in.csv"
    pd.DataFrame({"x": np.arange(30.0)}, index=days).to_csv(path)
    made = read(path)
    assert made.schema.time in UNNAMED
    frame = pd.DataFrame({"index": days, "x": np.arange(30.0)})
    for new in (frame, pl.from_pandas(frame), {n: frame[n].to_numpy() for n in frame}):
        found = frame_like(new, filtered(made, new), made.schema, is_aligned=True)
        assert list(getattr(found, "columns", found)) == ["sequence", "index", "x", "surprise"]
        assert list(found["index"]) == list(new["index"])
        future = frame_like(new, ahead(made, new), made.schema)
        assert "index" in future
        assert "time" not in future
        assert str(future["index"][0])[:10] == "2024-05-01"
    # An index without a name is the index again.
    unnamed = frame.set_index("index").rename_axis(None)
    found = frame_like(unnamed, filtered(made, unnamed), made.schema, is_aligned=True)
    pd.testing.assert_index_equal(found.index, unnamed.index)
