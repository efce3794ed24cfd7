"""Tables that cannot be read, in words that name the file, the column, the row and the fix."""

import datetime as dt
import io

import numpy as np
import pandas as pd
import pytest

from plants import HOURS, everything, lines, plant, write
from refusals import refuses
from varfilter.data.tables.read import read_table

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def test_refusals_of_sources(tmp_path):
    refuses(lambda: read_table(tmp_path / "no.csv"), FileNotFoundError, "no.csv", "does not exist")
    refuses(lambda: read_table(tmp_path), ValueError, "is a folder")
    refuses(lambda: read_table(write(tmp_path, "x", "a.xlsx")), ValueError, "a.xlsx", ".parquet")
    for name in ("e.csv", "e.parquet", "e.npy", "e.npz"):
        refuses(
            lambda name=name: read_table(write(tmp_path, "", name)), ValueError, name, "is empty"
        )
    refuses(lambda: read_table(write(tmp_path, "\n\n", "n.csv")), ValueError, "n.csv")
    refuses(lambda: read_table(lines(tmp_path, "a,b")), ValueError, "table.csv", "no rows")
    refuses(
        lambda: read_table(lines(tmp_path, "a,b", "1,2,3")), ValueError, "table.csv", "more fields"
    )
    path = lines(tmp_path, "# made today", "a,b", "1,2")
    refuses(lambda: read_table(path), ValueError, "table.csv", "line 2", "comments")
    for header in ("a,a", "a, a", '"a",a'):
        path = lines(tmp_path, header, "1,2")
        refuses(lambda path=path: read_table(path), ValueError, "two columns 'a'")
    refuses(lambda: read_table(lines(tmp_path, "1.5,2", "3,4")), ValueError, "begins with numbers")
    for name in ("j.parquet", "j.npy", "j.npz", "j.csv.gz"):
        refuses(lambda name=name: read_table(write(tmp_path, "junk" * 30, name)), ValueError, name)
    (tmp_path / "b.csv").write_bytes(bytes(range(256)) * 10)
    refuses(lambda: read_table(tmp_path / "b.csv"), ValueError, "b.csv", "is not text")
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    refuses(lambda: read_table(tmp_path / "o.npy"), ValueError, "o.npy")
    for wrong in (7, None, [1, 2], lambda: 0, io.StringIO("a")):
        refuses(lambda wrong=wrong: read_table(wrong), TypeError, "`source`", "DataFrame")
    refuses(lambda: read_table(np.zeros((2, 2, 2, 2))), ValueError, "(steps, columns)")
    refuses(lambda: read_table(np.zeros((0, 2))), ValueError, "no rows")
    refuses(lambda: read_table({}), ValueError, "no rows")
    refuses(
        lambda: read_table({"a": [1.0, 2], "b": [1.0]}),
        ValueError,
        "different lengths",
        "a: 2, b: 1",
    )
    refuses(lambda: read_table({"a": np.zeros((2, 2, 2))}), ValueError, "'a'")
    refuses(
        lambda: read_table(pd.DataFrame([[1, 2]], columns=["a", "a"])), ValueError, "two columns"
    )
    refuses(lambda: read_table({"a": [1.0, 2.0]}), ValueError, "2 rows", "valid")


def test_refusals_of_columns(tmp_path):
    data = plant()
    refuses(
        lambda: read_table({"remark": ["a", "b", "c"]}),
        ValueError,
        "no column of numbers",
        "remark",
    )
    refuses(
        lambda: read_table(data, columns=["wram"]), ValueError, "`columns`", "Did you mean 'warm'?"
    )
    refuses(lambda: read_table(data, columns=["Warm"]), ValueError, "Did you mean 'warm'?")
    refuses(lambda: read_table(data, columns="warm"), TypeError, "`columns`", "['warm']")
    refuses(lambda: read_table(data, columns=["remark"]), ValueError, "'remark'", "'ok'")
    refuses(
        lambda: read_table(data, columns=["time"], time="time"), ValueError, "`columns`", "'time'"
    )
    refuses(lambda: read_table(data, time="tiem"), ValueError, "`time`", "Did you mean 'time'?")
    refuses(lambda: read_table(data, sequence="valv"), ValueError, "`sequence`", "'valve'")
    refuses(lambda: read_table(data, kinds={"flw": "count"}), ValueError, "`kinds`", "'flow'")
    refuses(
        lambda: read_table(data, kinds={"flow": "bool"}),
        ValueError,
        "numeric, heavy, zeros",
        "'bool'",
    )
    refuses(
        lambda: read_table(data, kinds={"remark": "count"}),
        ValueError,
        "`kinds`",
        "left out",
        "text",
    )
    refuses(
        lambda: read_table(data, kinds={"faults": "binary"}),
        ValueError,
        "`faults`",
        "binary",
        "in row",
    )
    refuses(
        lambda: read_table(data, kinds={"warm": "count"}), ValueError, "`warm`", "count", "row 0"
    )
    refuses(
        lambda: read_table(data, sequence="remark"),
        ValueError,
        "`sequence`",
        "row 2 (counted from 0)",
    )
    path = lines(tmp_path, "a,b", "1,2", "2,inf", "3,4")
    refuses(lambda: read_table(path), ValueError, "`b`", "infinite", "row 1 (counted from 0)")
    path = lines(tmp_path, "a,b", "1,2", "2,5", "3,1e300")
    refuses(lambda: read_table(path), ValueError, "`b`", "1e+300", "row 2", "32-bit")
    path = lines(tmp_path, "a,b", "1,2", "2,error", "3,4")
    refuses(lambda: read_table(path), ValueError, "`b`", "'error'", "row 1 (counted from 0)")
    huge = np.array([1.5, 10**400, 2.5], object)
    refuses(lambda: read_table(huge), ValueError, "`x0`", "infinite", "row 1")
    drift = {"f": 5e7 + np.random.default_rng(0).normal(size=50)}
    refuses(lambda: read_table(drift), ValueError, "`f`", "Subtract 49999999.94 ", "4 apart")
    faint = {"f": 1e-300 * np.random.default_rng(0).normal(size=50)}
    refuses(lambda: read_table(faint), ValueError, "`f`", "too small for 32-bit", "smaller unit")
    refuses(
        lambda: read_table({"a": np.arange(50.0), "b": np.arange(50.0)}, inputs=["a", "b"]),
        ValueError, "`inputs`", "'a', 'b'", "Leave out",
    )  # fmt: skip
    large = {"c": np.full(60, 123456789.0), "x": np.arange(60.0)}
    refuses(
        lambda: read_table(large, columns=["c", "x"]),
        ValueError, "`c`", "123456789", "123456792", "`columns`",
    )  # fmt: skip
    assert read_table(large).columns == ("x",)
    refuses(
        lambda: read_table({**large, "c": 1.7e15 + np.arange(60)}), ValueError, "`c`", "Subtract"
    )
    path = lines(tmp_path, "a;b", *["1,234;2"] * 20)
    refuses(lambda: read_table(path), ValueError, "`a`", "'1,234'", "decimal comma")
    held = {"x": np.r_[np.arange(80) % 2, 0.5, np.zeros(19)]}
    refuses(lambda: read_table(held), ValueError, "`x`", "0.5 in row 80", "kinds={'x': 'numeric'}")
    assert read_table(held, kinds={"x": "numeric"}).schema.kinds == {"x": "numeric"}
    gone = {"x": np.r_[np.full(80, np.nan), np.ones(20)]}
    refuses(lambda: read_table(gone), ValueError, "training rows", "'x'")
    refuses(
        lambda: read_table({**gone, "y": np.arange(100.0)}, columns=["x"]),
        ValueError,
        "'x'",
        "training",
    )


def test_refusals_of_times(tmp_path):
    path = lines(tmp_path, "time,x", "2024-01-01,1", "2024-13-02,2", "2024-01-03,3")
    refuses(
        lambda: read_table(path), ValueError, "`time`", "row 1", "'2024-13-02'", "ISO", "time=False"
    )
    assert len(everything(read_table(path, time=False))) == 3
    path = lines(tmp_path, "time,x", "noon,1", "2,2", "3,3")
    refuses(lambda: read_table(path), ValueError, "row 0", "'noon'")
    path = lines(tmp_path, "time,x", "2024-01-01,1", ",2", "2024-01-03,3")
    refuses(lambda: read_table(path), ValueError, "no time in row 1")
    numbers = np.arange(6.0)
    both = {"time": numbers, "t": numbers, "x": numbers}
    refuses(lambda: read_table(both), ValueError, "'time', 't'", "`time=False`")
    far = {"t": np.r_[numbers, 1e9 + numbers], "x": np.arange(12.0)}
    refuses(lambda: read_table(far, fractions=(0.9, 0.05, 0.05)), ValueError,
            "longest gap", "from 5 to 1e+09", "`sequence`", "`step`")  # fmt: skip
    runs = {**far, "run": [0] * 6 + [1] * 6}
    assert len(everything(read_table(runs, sequence="run"))) == 12
    stamps = [*HOURS[:9], np.datetime64("9999-12-31")]
    years = {"when": np.array(stamps, "datetime64[us]"), "x": np.arange(10.0)}
    refuses(
        lambda: read_table(years, fractions=(0.4, 0.2, 0.4)),
        ValueError,
        "2024-03-01T08:00:00",
        "9999-12-31",
    )
    panel = {"t": np.repeat(numbers, 3), "x": np.arange(18.0)}
    refuses(lambda: read_table(panel), ValueError, "3 times", "`sequence`", "`long`", "`step`")
    assert len(everything(read_table(panel, step=1))) == 6
    data = plant()
    refuses(lambda: read_table(data, time=3), TypeError, "`time`", "3")
    refuses(lambda: read_table(data, step="1h"), ValueError, "`step`", "'1h'", "business-day")
    refuses(lambda: read_table(data, step=[1]), TypeError, "`step`", "`list`")
    refuses(lambda: read_table(far, step="month"), ValueError, "`step`", "no calendar", "`time`")
    refuses(lambda: read_table(data, step=-1), ValueError, "`step`", "-1")
    refuses(lambda: read_table(far, step=dt.timedelta(1)), TypeError, "`step`")
    refuses(lambda: read_table(far, step=np.timedelta64(1, "s")), TypeError, "`step`")
    refuses(lambda: read_table(numbers, step=1), ValueError, "`step`", "`time`")
    single = {"t": numbers, "run": numbers, "x": numbers}
    refuses(lambda: read_table(single, sequence="run"), ValueError, "`step`", "two times")


def test_times_that_repeat_say_which_names_tell_them_apart():
    times = np.tile(HOURS[:20], 6)
    table = {
        "when": times,
        "machine": np.repeat(["m1", "m2", "m3"], 40),
        "sensor": np.tile(np.repeat(["warm", "flow"], 20), 3),
        "row": np.arange(120),
        "x": np.random.default_rng(0).normal(size=120),
    }
    less = {name: table[name] for name in ("when", "sensor", "row", "x")}
    long = {"long": ("sensor", "x")}
    for source, options, words in (
        (table, {}, ("6 times", "names in 'machine' and 'sensor' each time comes once.")),
        (table, {"sequence": "machine"}, ("2 times", "names in 'sensor' each time comes once.")),
        (table, long, ("3 times", "names in 'machine' each time comes once.")),
    ):
        refuses(lambda a=source, b=options: read_table(a, **b), ValueError, *words)
    with pytest.raises(ValueError, match=r"keep the last values of each time\.$"):
        read_table(less)  # of which no names do
    assert read_table(table, **long, sequence="machine").columns == ("flow", "warm")


def test_refusals_of_long_splits_and_new_tables(tmp_path):
    data, numbers = plant(), np.arange(6.0)
    refuses(lambda: read_table(data, long=("remark",)), ValueError, "`long`", "two names")
    refuses(lambda: read_table(data, long=("remark", "vale")), ValueError, "`long`", "'valve'")
    refuses(lambda: read_table(data, long=("flow", "remark")), ValueError, "`long`", "'ok'")
    refuses(lambda: read_table(data, long=("warm", "warm")), ValueError, "'warm'", "twice")
    refuses(lambda: read_table(data, long=("warm", "flow")), ValueError, "`long`", "row 3")
    no_time = {"v": ["a"] * 6, "x": numbers}
    refuses(lambda: read_table(no_time, long=("v", "x")), ValueError, "`long`", "`time`")
    clash = {"t": numbers, "v": ["a", "t"] * 3, "x": numbers}
    refuses(lambda: read_table(clash, long=("v", "x")), ValueError, "'t'", "Rename")
    refuses(lambda: read_table(data, split="random"), ValueError, "`split`", "'random'")
    refuses(lambda: read_table(data, split="sequence"), ValueError, "`split`", "there are 1")
    for wrong in ((0.8, 0.2), (0.8, 0.3, 0.1), (1.0, 0.0, 0.0), 0.8):
        refuses(lambda wrong=wrong: read_table(data, fractions=wrong), ValueError, "`fractions`")
    refuses(
        lambda: read_table(np.zeros((3, 4, 2)), sequence="x0"),
        ValueError,
        "`sequence`",
        "first axis",
    )
    made = read_table(data)
    less = {k: v for k, v in data.items() if k not in ("warm", "time")}
    refuses(lambda: made.schema.read(less), ValueError, "`source`", "'time'", "'warm'")
    refuses(lambda: made.schema.read({**data, "valve": numbers}), ValueError, "different lengths")
    refuses(
        lambda: made.schema.read({**data, "valve": np.full(60, 2)}),
        ValueError,
        "`valve`",
        "2 in row 0",
    )
    refuses(lambda: made.schema.read({**data, "warm": ["hot"] * 60}), ValueError, "'warm'", "'hot'")
    refuses(
        lambda: made.schema.read({**data, "time": np.arange(60)}), ValueError, "`time`", "dates"
    )
    late = np.r_[HOURS[:59], np.datetime64("2400-01-01", "us")]
    refuses(
        lambda: made.schema.read({**data, "time": late}), ValueError, "longest gap", "2400-01-01"
    )
    refuses(lambda: made.schema.read(tmp_path / "no.csv"), FileNotFoundError, "no.csv")
    refuses(lambda: made.by_column(np.zeros((5, 3))), ValueError, "`xs`", "warm", "[5, 3]")
