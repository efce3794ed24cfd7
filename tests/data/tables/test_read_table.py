"""The user's own tables: files, frames and arrays, times and gaps, kinds, splits, new tables."""

import datetime as dt
import gzip
import subprocess
import sys
from decimal import Decimal

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest

from plants import HOURS, everything, lines, plant
from varfilter.data import RandomWindows
from varfilter.data.tables.read import read_table
from varfilter.distributions import Bernoulli, DiscretizedNormal, Normal

# Sources


def test_every_source_gives_the_same_numbers(tmp_path):
    data = plant()
    frame, other = pl.DataFrame(data), pd.DataFrame(data)
    frame.write_csv(tmp_path / "a.csv")
    frame.write_csv(tmp_path / "a.tsv", separator="\t")
    other.to_csv(tmp_path / "b.csv", index=False)
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    frame.write_parquet(tmp_path / "a.parquet")
    other.to_csv(tmp_path / "d.csv", index=False, sep=";", na_rep="NA")
    numbers = {k: v for k, v in data.items() if k != "remark"}
    np.savez(tmp_path / "a.npz", **numbers)
    sources = [
        *(tmp_path / n for n in ("a.csv", "a.tsv", "b.csv", "c.csv.gz", "d.csv", "a.parquet")),
        str(tmp_path / "a.csv"), frame, frame.lazy(), other, other.set_index("time"), data,
        other.convert_dtypes(), tmp_path / "a.npz", numbers,
    ]  # fmt: skip
    made = [read_table(source) for source in sources]
    assert {m.sha256() for m in made} == {made[0].sha256()}
    first = made[0]
    assert first.columns == ("warm", "flow", "valve", "faults")
    assert all(m.columns == first.columns for m in made)
    assert all(m.family == first.family for m in made)
    assert all(m.schema.step == 3600.0 for m in made)
    free = "text, such as 'ok': 17 different ones in 32 training rows"
    assert first.schema.left_out == {"remark": free}
    assert made[-1].schema.left_out == {}
    values = everything(first)
    assert values.dtype == np.float32
    expected = np.stack([data[k] for k in first.columns], 1).astype(np.float32)
    np.testing.assert_array_equal(values, expected)
    assert first.name == "a"
    assert [len(first.split(s).values) for s in ("train", "valid", "test")] == [48, 6, 6]


def test_arrays_and_their_files(tmp_path):
    xs = np.random.default_rng(0).normal(size=(50, 3))
    np.save(tmp_path / "a.npy", xs)
    np.savez(tmp_path / "a.npz", xs)
    named = {f"x{i}": xs[:, i] for i in range(3)}
    made = [read_table(s) for s in (xs, tmp_path / "a.npy", tmp_path / "a.npz", named)]
    assert {m.sha256() for m in made} == {made[0].sha256()}
    assert made[0].columns == ("x0", "x1", "x2")
    assert made[0].schema.step is None
    np.testing.assert_array_equal(made[0].times["valid"][0], np.arange(40, 45))
    np.testing.assert_array_equal(read_table(xs[:, 0]).train.values, made[0].train.values[:, :1])
    masked = np.ma.masked_array(xs, np.arange(150).reshape(50, 3) == 4)
    assert np.isnan(read_table(masked).train.values[1, 1])
    assert read_table({"a": xs[:, :2], "b": xs[:, 2]}).columns == ("a_0", "a_1", "b")


def test_an_array_of_sequences():
    xs = np.random.default_rng(0).normal(size=(10, 7, 2))
    made = read_table(xs)
    assert [len(made.split(s)) for s in ("train", "valid", "test")] == [8, 1, 1]
    for split in ("train", "valid", "test"):
        for name, rows in zip(made.names[split], made.split(split), strict=True):
            np.testing.assert_array_equal(rows, xs[int(name)].astype(np.float32))
    assert made.columns == ("x0", "x1")
    assert len(made.schema.read(xs[:4]).rows) == 4
    assert made.schema.read(xs[0]).rows.lengths.tolist() == [7]


def test_a_csv_with_all_that_happens(tmp_path):
    path = lines(
        tmp_path,
        "when, T ,on,site",
        "2024-01-01T00:00:00Z, 1.5,true,north",
        "2024-01-01T00:30:00Z, NA,,north",
        "2024-01-01T02:00:00+01:00, 2.5,False,north",
        "2024-01-01T01:30:00Z, ?,true,",
        "2024-01-01T02:00:00Z, 4,false,north",
        "",
    )
    made = read_table(path)
    # `T` may be a temperature, and is; dates are found by their values, and are UTC.
    assert made.columns == ("T", "on")
    assert made.schema.kinds == {"T": "numeric", "on": "binary"}
    assert made.schema.layout.clock.column == "when"
    assert made.schema.step == 1800.0
    expected = [[1.5, 1], [np.nan, np.nan], [2.5, 0], [np.nan, 1], [4, 0]]
    np.testing.assert_array_equal(everything(made), np.array(expected, np.float32))
    assert made.schema.left_out == {"site": "text, 'north' throughout"}
    assert made.times["train"][0][0] == np.datetime64("2024-01-01T00:00:00")


def test_missing_forms(tmp_path):
    marks = ["", "NA", "N/A", "nan", "NaN", "null", "NULL", "None", "?", "-", "na"]
    path = lines(tmp_path, "a,b", "1.5,0", *(f"{m},{i}" for i, m in enumerate(marks)), "2.5,9")
    values = everything(read_table(path))
    np.testing.assert_array_equal(values[:, 0], np.array([1.5] + [np.nan] * 11 + [2.5], np.float32))
    assert not np.isnan(values[:, 1]).any()
    # The same marks as Python's strings, which polars does not read.
    data = {"a": ["1.5", *marks, " 2.5 "], "b": np.arange(13)}
    np.testing.assert_array_equal(everything(read_table(data))[:, 0], values[:, 0])


# Times


def test_irregular_unsorted_times_become_gaps(tmp_path):
    # Points 0 to 9 of a grid with the step 10; 3 and 6 are missing, all jitter, none in order.
    stamps = {0: 0.0, 1: 10.4, 2: 19.8, 4: 40.3, 5: 49.6, 7: 70.2, 8: 79.9, 9: 90.1}
    order = [4, 0, 9, 1, 8, 2, 7, 5]
    path = lines(tmp_path, "t,x", *(f"{stamps[i]},{i + 0.25}" for i in order))
    made = read_table(path, step=10, fractions=(0.5, 0.25, 0.25))
    train, valid, test = (made.split(s)[0][:, 0] for s in ("train", "valid", "test"))
    nan = np.nan
    # Half of the eight rows are for training; a gap between two splits belongs to neither.
    np.testing.assert_array_equal(train, np.array([0.25, 1.25, 2.25, nan, 4.25], np.float32))
    np.testing.assert_array_equal(valid, np.array([5.25, nan, 7.25], np.float32))
    np.testing.assert_array_equal(test, np.array([8.25, 9.25], np.float32))
    np.testing.assert_allclose(made.times["valid"][0], [50, 60, 70], atol=1e-9)
    assert made.schema.step == 10.0


def test_the_step_is_the_usual_difference_and_does_not_drift():
    rng = np.random.default_rng(3)
    months = np.arange("2010-01", "2020-01", dtype="datetime64[M]").astype("datetime64[D]")
    made = read_table({"date": months.astype("datetime64[us]"), "x": rng.normal(size=120)})
    # A median of 31 days would be a month ahead after four years.
    assert not np.isnan(everything(made)).any()
    assert len(everything(made)) == 120
    assert made.schema.step == pytest.approx(30.4375 * 86400, rel=2e-3)
    # Every 0.01 s since 1970: such stamps are multiples of 2 ** -22 s, and so are differences.
    seconds = 1.7e9 + 0.01 * np.arange(20_000)
    made = read_table({"time": seconds, "x": rng.normal(size=20_000)})
    assert len(everything(made)) == 20_000
    assert not np.isnan(everything(made)).any()
    # One day in ten is missing.
    kept = np.flatnonzero(rng.random(300) < 0.9)
    days = (np.datetime64("2024-01-01") + kept).astype("datetime64[us]")
    made = read_table({"date": days, "x": kept + 0.5}, fractions=(0.98, 0.01, 0.01))
    train = made.train[0][:, 0]
    assert made.schema.step == 86400.0
    where = np.arange(len(train)) + kept[0]
    np.testing.assert_array_equal(train, np.where(np.isin(where, kept), where + 0.5, np.nan))


def test_a_grid_that_jitters_loses_no_row():
    n = 20_000
    stamps = np.sort(np.arange(n) + np.random.default_rng(0).normal(0, 0.1, n))
    made = read_table({"time": stamps, "x": np.arange(n) * 1.0})
    assert made.schema.step == 1.0
    np.testing.assert_array_equal(everything(made)[:, 0], np.arange(n))
    # Polled each 1.5 s and stamped in whole seconds.
    polled = np.cumsum(np.full(5000, 1.5)).astype(int)
    made = read_table({"time": polled, "x": np.arange(5000.0)})
    assert made.schema.step == 1.5
    np.testing.assert_array_equal(everything(made)[:, 0], np.arange(5000))
    assert made.schema.merged.lost == 0
    # Few regular rows leave nothing to round: 86400 s and not 86000 s.
    days = np.datetime64("2024-01-01") + np.arange(20)
    assert (
        read_table({"date": days.astype("datetime64[us]"), "x": np.arange(20.0)}).schema.step
        == 86400.0
    )


def test_merged_rows_are_counted_and_noted():
    stamps = np.cumsum(np.random.default_rng(0).exponential(1, 400))
    made = read_table({"time": stamps, "x": np.arange(400.0)}, step=0.5)
    kept = int(np.isfinite(everything(made)).sum())
    assert made.schema.merged.lost == 400 - kept > 0
    assert any(f"{made.schema.merged.lost} rows lost a value" in note for note in made.notes)


def test_the_same_row_twice_loses_nothing():
    table = {"time": np.arange(40.0), "x": np.arange(40.0), "y": np.arange(40.0)}
    twice = {name: np.r_[values, values[[3, 4, 5]]] for name, values in table.items()}
    made = read_table(twice)
    assert made.schema.merged == (0, 3, 0)
    assert made.schema.step == 1.0  # and not each row a step, although 3 in 43 have another there
    assert made.sha256() == read_table(table).sha256()
    note = next(note for note in made.notes if "3 rows" in note)
    assert note == (
        "3 rows have their values once more in later rows at the same steps: the same rows twice,"
        " of which nothing is lost."
    )
    new = {"time": [0, 1, 1.0, 2, 2], "x": [0, 1, 1, 2, 3.0], "y": [0, 1, 1, np.nan, 3]}
    with pytest.warns(UserWarning, match="at the same step") as told:
        made.schema.read(new)
    assert [str(each.message) for each in told] == [
        "1 row lost a value to a later row at the same step: the last one counts.",
        "1 row has its values once more in a later row at the same step: the same row twice, of"
        " which nothing is lost.",
    ]


def test_the_same_value_at_another_time_is_lost():
    """So a column that moves slowly goes by rows where one that moves fast does."""
    rng = np.random.default_rng(0)
    stamps = np.cumsum(rng.exponential(1.0, 600))
    status, fast = np.arange(600) // 50 % 2, rng.normal(size=600)
    for columns in ({"x": fast}, {"x": status}, {"x": status, "y": status}):
        made = read_table({"time": stamps, **columns})
        assert made.schema.inputs.is_by_rows
        assert made.schema.merged == (0, 0, 0)
        assert len(everything(made)) == 600
    # On a grid that is asked for, as many rows are lost, and none was there twice.
    slow, other = (read_table({"time": stamps, "x": x}, step=1.0) for x in (status, fast))
    assert slow.schema.merged == other.schema.merged
    assert slow.schema.merged.repeated == 0


def test_notes_tell_how_a_table_was_read(tmp_path):
    days = [f"{i + 1:02d}.01.2024;{i},25;x" for i in range(20)]
    text = "\n".join([";Datum;Temp °C;site", *(f"{i};{d}" for i, d in enumerate(days))])
    (tmp_path / "a.csv").write_bytes(text.encode("cp1252"))
    made = read_table(tmp_path / "a.csv")
    assert made.columns == ("Temp °C",)
    assert made.schema.step == 86400.0
    assert made.times["train"][0][0] == np.datetime64("2024-01-01")
    np.testing.assert_array_equal(everything(made)[:, 0], np.arange(20) + np.float32(0.25))
    assert made.schema.left_out == {"": "row numbers", "site": "text, 'x' throughout"}
    told = " ".join(made.notes)
    for part in ("column 'Datum'", "86400 s", "one sequence", "by time", "likelier): Temp °C",
                 "row numbers", "'site' is left out", "day, month, year", "cp1252",
                 "decimal commas"):  # fmt: skip
        assert part in told
    assert "rows are steps" in read_table(np.arange(9.0) ** 1.5).notes[0]
    doubtful = {"when": [f"{i % 9 + 1}/{i // 9 + 1}/2024" for i in range(30)], "x": np.arange(30.0)}
    assert "cannot be told apart" in read_table(doubtful).schema.left_out["when"]
    other = {"when": [f"1/{i + 1}/2024 3:00 PM" for i in range(30)], "x": np.arange(30.0)}
    assert read_table(other).times["train"][0][1] == np.datetime64("2024-01-02T15:00")


def test_the_last_value_of_a_column_at_a_time_counts():
    nan = np.nan
    data = {
        "t": [0, 1, 1, 1, 2, 3, 4],
        "a": [0, 1, 2, nan, 4, 5, 6],
        "b": [0, nan, nan, 7, 4, 5, 6],
    }
    made = read_table({k: np.array(v, float) for k, v in data.items()})
    np.testing.assert_array_equal(
        everything(made)[:3], np.array([[0, 0], [2, 7], [4, 4]], np.float32)
    )


def test_steps_of_dates():
    data = plant()
    for step in (7200, dt.timedelta(hours=2), np.timedelta64(2, "h")):
        made = read_table(data, step=step, columns=["flow"])
        assert made.schema.step == 7200.0
        train = made.train[0][:, 0]
        # Hours 1 and 2 are nearest to the point 2 (half is rounded up), hours 3 and 4 to 4.
        np.testing.assert_array_equal(train[:3], data["flow"][[0, 2, 4]].astype(np.float32))


def test_time_may_be_named_or_refused():
    data = {"clock": np.arange(10.0)[::-1], "t": np.arange(10.0), "x": np.arange(10.0) ** 2}
    assert read_table(data).schema.layout.clock.column == "t"
    assert read_table(data, time="clock").columns == ("t", "x")
    np.testing.assert_array_equal(read_table(data, time="clock").train[0][0], [9, 81])
    made = read_table(data, time=False)
    assert made.columns == ("clock", "t", "x")
    assert made.schema.step is None
    assert read_table(data, columns=["t", "x"]).schema.layout.clock.column is None
    # A column that holds dates and is named so comes before one that is only one of these.
    dates = {"t": np.arange(10.0), "born": HOURS[:10], "Timestamp": HOURS[20:30], "x": data["x"]}
    made = read_table(dates)
    assert made.schema.layout.clock.column == "Timestamp"
    assert made.columns == ("t", "x")
    assert made.schema.left_out == {"born": "dates, not numbers"}


def test_dates_with_zones_and_frames_with_indices():
    hours = pd.date_range("2024-03-31", periods=30, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"x": np.arange(30.0) ** 1.5}, index=hours)
    made = read_table(frame)
    utc = np.datetime64("2024-03-30T23:00", "us") + np.arange(30) * np.timedelta64(1, "h")
    # The clocks went forward that night, and time did not.
    np.testing.assert_array_equal(np.concatenate([r.values for r in made.times.values()]), utc)
    assert made.columns == ("x",)
    other = pl.from_pandas(frame.reset_index())
    text = other.write_csv().encode()
    for source in (other, pl.read_csv(text), frame["x"]):
        again = read_table(source)
        np.testing.assert_array_equal(again.times["train"].values, made.times["train"].values)
        assert again.sha256() == made.sha256()
    runs = frame.assign(run=np.arange(30) // 10).set_index("run", append=True)
    assert read_table(runs, sequence="run").train.lengths.tolist() == [10]


def test_columns_of_odd_types():
    n = 12
    data = {
        "day": [dt.date(2024, 1, 1 + i) for i in range(n)],
        "category": pd.Categorical(["a", "b", "c"] * 4),
        "decimal": [Decimal("1.5"), Decimal("2.25"), None] * 4,
        "whole": pd.array([1, None, 3] * 4, dtype="Int64"),
        "flag": pd.array([True, None, False] * 4, dtype="boolean"),
        "typed": ["1", "2", None] * 4,
        "since": pd.to_timedelta(np.arange(n), unit="m"),
        "lists": [[1, 2]] * n,
        "clock": [dt.time(1, i) for i in range(n)],
    }
    frame = pd.DataFrame(data)
    for source in (frame, pl.from_pandas(frame)):
        made = read_table(source, step=86400)
        assert made.schema.layout.clock.column == "day"
        assert made.schema.left_out == {
            "category": "text, such as 'a': 3 different ones in 10 training rows",
            "lists": "neither numbers nor text",
            "clock": "neither numbers nor text",
        }
        assert made.schema.kinds["flag"] == "binary"
        back = dict(zip(made.columns, everything(made)[:3].T, strict=True))
        np.testing.assert_array_equal(back["decimal"], np.float32([1.5, 2.25, np.nan]))
        np.testing.assert_array_equal(back["whole"], np.float32([1, np.nan, 3]))
        np.testing.assert_array_equal(back["flag"], np.float32([1, np.nan, 0]))
        np.testing.assert_array_equal(back["typed"], np.float32([1, 2, np.nan]))
    np.testing.assert_array_equal(
        everything(read_table(frame, columns=["since"]))[:3, 0], [0, 60, 120]
    )


def test_frames_do_not_need_the_other_library():
    code = (
        "import sys, numpy as np; from varfilter.data.tables.read import read_table;"
        "read_table({'x': np.arange(9.0)}); assert not {'polars', 'pandas'} & set(sys.modules);"
        "import pandas; read_table(pandas.DataFrame({'x': np.arange(9.0)}));"
        "assert 'polars' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Long tables and sequences


def test_long_is_wide(tmp_path):
    data = plant()
    wide = pl.DataFrame(data).select("time", "faults", "flow", "valve", "warm")
    wide = wide.with_columns(pl.Series("run", [f"run{i // 10}" for i in range(60)]))
    long = wide.unpivot(index=["time", "run"], on=["warm", "flow", "valve", "faults"])
    long = long.with_columns(pl.lit("a").alias("unit"))
    a = read_table(wide, sequence="run")
    # No row for a missing value, and rows in any order.
    b = read_table(
        long.drop_nulls().sample(fraction=1.0, shuffle=True, seed=1), sequence="run",
        long=("variable", "value"),
    )  # fmt: skip
    assert a.sha256() == b.sha256()
    assert a.columns == b.columns
    assert a.family == b.family
    assert b.schema.left_out == {"unit": "not part of the long table"}
    assert b.names == a.names
    new = b.schema.read(long)
    np.testing.assert_array_equal(new.rows.values, a.schema.read(wide).rows.values)


def test_sequences_by_name(tmp_path):
    rng = np.random.default_rng(0)
    names = ["007", "10", "9", "9b"]
    rows = [f"{i % 5},{names[i // 5 % 4]},{x:.4f}" for i, x in enumerate(rng.normal(size=20))]
    path = lines(tmp_path, "time,who,x", *rng.permutation(rows))
    made = read_table(path, sequence="who")
    found = {name for split in made.names.values() for name in split}
    assert found == set(names)
    assert [len(made.split(s)) for s in ("train", "valid", "test")] == [2, 1, 1]
    for split, some in made.names.items():
        for name, got in zip(some, made.split(split), strict=True):
            expected = [float(row.split(",")[2]) for row in rows if f",{name}," in row]
            np.testing.assert_array_equal(got[:, 0], np.float32(expected))
    # Natural order, whether the reader takes ids for text or for numbers.
    numbers = {"run": [10, 9, 2, 9, 10, 2], "x": rng.normal(size=6)}
    texts = {**numbers, "run": ["10", "9", "2", "9", "10", "2"]}
    assert (
        read_table(numbers, sequence="run").sha256() == read_table(texts, sequence="run").sha256()
    )
    assert read_table(numbers, sequence="run").schema.read(texts).names == ("2", "9", "10")
    two = read_table({"run": [1] * 10 + [2] * 20, "x": rng.normal(size=30)}, sequence="run")
    assert two.train.lengths.tolist() == [8, 16]
    assert two.names["test"] == ("1", "2")


# Kinds and scales


def test_kinds_have_families_and_levels():
    data = plant()
    made = read_table(data)
    assert made.schema.kinds == {
        "warm": "numeric",
        "flow": "numeric",
        "valve": "binary",
        "faults": "count",
    }
    warm, _, valve, faults = made.family
    assert [f.distribution for f in made.family] == [
        Normal, Normal, Bernoulli, DiscretizedNormal,
    ]  # fmt: skip
    assert warm.width is None
    assert valve.width is None
    offset, scale = made.scaling.offset, made.scaling.scale
    assert (offset[2], scale[2]) == (0.0, 1.0)
    train = made.train.values.astype(np.float64)
    np.testing.assert_allclose(offset[[0, 1, 3]], np.nanmean(train, 0)[[0, 1, 3]], rtol=1e-12)
    np.testing.assert_allclose(scale[[0, 1, 3]], np.nanstd(train, 0)[[0, 1, 3]], rtol=1e-12)
    assert faults.width == 1.0 / scale[3]
    assert faults.low == -offset[3] / scale[3]
    assert faults.high is None
    # The scaled counts lie on the levels low, low + width, ...
    xs = made.observations(made.train[0])
    levels = (xs[:, 3] - faults.low) / faults.width
    np.testing.assert_allclose(levels, data["faults"][:48], atol=1e-4)
    np.testing.assert_array_equal(xs[:, 2], data["valve"][:48])
    # All mass lies on the levels.
    head = DiscretizedNormal(np.zeros(()), np.zeros(()), width=faults.width, low=faults.low)
    every = np.float32(faults.low) + np.float32(faults.width) * np.arange(200, dtype=np.float32)
    assert np.exp(jax.vmap(head.log_prob)(every)).sum() == pytest.approx(1.0, abs=1e-4)


def test_rules_of_kinds():
    n = 40
    rng = np.random.default_rng(0)
    data = {
        "zeros": np.zeros(n),
        "yes": np.ones(n, bool),
        "signs": rng.choice([-1, 0, 1], n),
        "few": np.r_[rng.integers(0, 9, 19), np.full(n - 19, np.nan)],
        "high": rng.integers(0, 3000, n),
        "small": np.arange(n) % 3,
        "nothing": np.full(n, np.nan),
        "constant": np.full(n, 7.5),
    }
    made = read_table(data, columns=[name for name in data if name != "nothing"])
    assert made.schema.kinds == {
        "zeros": "numeric", "yes": "binary", "signs": "numeric", "few": "numeric",
        "high": "numeric", "small": "count", "constant": "numeric",
    }  # fmt: skip
    assert read_table(data).schema.left_out["nothing"] == "no value in the training rows"
    # Constants that are asked for are centred and not divided.
    assert made.scaling.offset[6] == 7.5
    assert made.scaling.scale[6] == 1.0
    assert np.all(made.observations(made.train[0])[:, 6] == 0.0)
    made = read_table(data, kinds={"high": "count", "small": "numeric", "zeros": "binary"})
    assert (made.schema.kinds["high"], made.schema.kinds["small"], made.schema.kinds["zeros"]) == (
        "count",
        "numeric",
        "binary",
    )


def test_restore_is_the_way_back():
    data = plant()
    made = read_table(data)
    xs = made.observations(made.train[0])
    back = made.by_column(xs)
    assert list(back) == ["warm", "flow", "valve", "faults"]
    for name, values in back.items():
        # Two roundings of 2 ** -24 of numbers below 100.
        np.testing.assert_allclose(values, data[name][:48], atol=2e-5)
    many = made.by_column(np.stack([xs, xs + 1.0]))
    assert many["warm"].shape == (2, 48)
    np.testing.assert_allclose(many["flow"][1] - many["flow"][0], made.scaling.scale[1], rtol=1e-6)
    np.testing.assert_array_equal(made.by_column(jax.numpy.asarray(xs))["flow"], back["flow"])


# Splits


def test_a_column_named_like_one_of_sequences_is_it():
    data = {"Run_ID": [f"r{i // 6}" for i in range(60)], "x": np.sin(np.arange(60.0))}
    made = read_table(data)
    assert made.schema.layout.sequence == "Run_ID"
    assert made.sha256() == read_table(data, sequence="Run_ID").sha256()
    assert read_table(data, sequence=False).schema.layout.sequence is None
    numbers = data | {"series": np.arange(60) // 6}
    with pytest.raises(ValueError, match=r"'Run_ID', 'series' may all be it.*sequence=False"):
        read_table(numbers)
    # Asked for as an observation, it is one.
    named = read_table({"run": np.arange(60.0), "x": data["x"]}, columns=["x", "run"])
    assert named.schema.layout.sequence is None


@pytest.mark.parametrize("by_sequence", [False, True])
def test_held_out_rows_change_nothing_that_is_learned_from(by_sequence):
    rng = np.random.default_rng(5)
    data = plant()
    data["run"] = [f"r{i // 6}" for i in range(60)]
    options = {"sequence": "run" if by_sequence else False}
    made = read_table(data, **options)
    learned = np.isin(data["run"], made.names["train"]) if by_sequence else np.arange(60) < 48
    assert learned.sum() == 48
    for _ in range(10):
        changed = dict(data)
        for name in ("warm", "flow"):
            fresh = rng.normal(1e3, 1e5, 60)
            fresh[rng.random(60) < 0.3] = np.nan
            changed[name] = np.where(learned, data[name], fresh)
        changed["valve"] = np.where(learned, data["valve"], rng.integers(0, 2, 60))
        changed["faults"] = np.where(learned, data["faults"], rng.integers(500, 5000, 60))
        # Later times too: the step must not come from them.
        shift = np.cumsum(rng.integers(0, 3, 60)) * np.timedelta64(17, "m")
        changed["time"] = np.where(learned, HOURS, HOURS + shift)
        other = read_table(changed, **options)
        np.testing.assert_array_equal(other.train.values, made.train.values)
        np.testing.assert_array_equal(other.times["train"].values, made.times["train"].values)
        np.testing.assert_array_equal(other.scaling.offset, made.scaling.offset)
        np.testing.assert_array_equal(other.scaling.scale, made.scaling.scale)
        assert other.family == made.family
        assert other.schema.step == made.schema.step
        assert other.sha256() != made.sha256()
    # Training rows do count.
    data["flow"] = data["flow"] + np.where(learned, 1.0, 0.0)
    assert read_table(data, **options).scaling.offset[1] > made.scaling.offset[1] + 0.5


def test_splits_by_time():
    for n in (3, 4, 5, 10, 11, 97):
        sizes = [
            len(read_table(np.arange(n) ** 1.5).split(s).values) for s in ("train", "valid", "test")
        ]
        assert sum(sizes) == n
        assert min(sizes) >= 1
        assert abs(sizes[0] - 0.8 * n) <= 1.5
    # Rows of one time stay in one split.
    made = read_table(
        {"t": [0.0, 1, 2, 3, 3, 4, 5, 6], "x": np.arange(8.0)}, fractions=(0.5, 0.25, 0.25)
    )
    np.testing.assert_array_equal(made.train[0][:, 0], [0, 1, 2, 4])
    xs = np.random.default_rng(0).normal(size=(4, 10, 1))
    assert read_table(xs, split="time").train.lengths.tolist() == [8, 8, 8, 8]
    names = {read_table(xs, seed=seed).names["test"] for seed in range(8)}
    assert len(names) > 1


def test_windows_carry_missing_values():
    data = plant()
    keep = np.arange(60) != 5
    made = read_table({k: np.asarray(v, object)[keep].tolist() for k, v in data.items()})
    assert np.isnan(made.train[0][5]).all()
    windows = RandomWindows(made, 48, 2)
    xs, mask, _ = windows.windows(0, jax.random.key(0))
    assert xs.shape == (2, 48, 4)
    assert mask.all()
    np.testing.assert_allclose(xs[0], made.observations(made.train[0]), rtol=1e-6)
    assert np.isnan(xs[0, :, 0]).nonzero()[0].tolist() == [3, 5, 7]
    assert np.isnan(xs[0, :, 1]).nonzero()[0].tolist() == [5]


# New tables


def test_a_new_table_is_read_like_the_first(tmp_path):
    data = plant()
    made = read_table(data)
    # Other order, another column more, a gap, half of the rows, as text.
    new = pl.DataFrame(data)[20:60].filter(pl.Series(range(20, 60)) != 30)
    new = new.with_columns(pl.lit(1.0).alias("extra")).select(
        "faults", "extra", "warm", "time", "valve", "flow"
    )
    new.write_csv(tmp_path / "new.csv")
    for source in (new, new.sample(fraction=1.0, shuffle=True, seed=0), tmp_path / "new.csv"):
        rows, times, _, names, _ = made.schema.read(source)
        assert names == ()
        assert rows.lengths.tolist() == [40]
        expected = everything(made)[20:].copy()
        expected[10] = np.nan
        np.testing.assert_array_equal(rows[0], expected)

        np.testing.assert_array_equal(times[0], HOURS[20:60])
    # Two rows have no usual step, and an empty column no type: both are known from before.
    two = pl.DataFrame({**data, "warm": [None] * 60})[[0, 4]]
    rows = made.schema.read(two).rows[0]
    assert rows.shape == (5, 4)
    assert np.isnan(rows[:, 0]).all()
    assert np.isnan(rows[:, 1]).tolist() == [False, True, True, True, False]
    far = pl.DataFrame(data)[:2].with_columns(time=pl.Series(HOURS[[0, 59]]))
    assert made.schema.read(far).rows.lengths.tolist() == [60]
