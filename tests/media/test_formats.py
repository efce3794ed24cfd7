"""Rows of named values written to files and read back: JSON lines, CSV, Parquet and arrays."""

import csv
import datetime as dt
import json
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from disks import full_disk
from refusals import refuses
from varfilter.media.formats import ENDINGS, Vector, require_ending, write_rows

ROWS = [
    {"name": "a,b", "when": np.datetime64("2024-01-31T12:30"), "x": np.float32(0.3), "n": 1},
    {"name": None, "when": np.datetime64("NaT", "us"), "x": np.float32("nan"), "n": None},
    {"name": "ü\n", "when": np.datetime64("2024-02-01T00:00:00.5"), "x": np.float32(-2e9), "n": 3},
]


def read_json(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_csv(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_json_lines_and_csv_hold_what_was_given(tmp_path):
    write_rows(iter(ROWS), tmp_path / "a.jsonl")
    assert read_json(tmp_path / "a.jsonl") == [
        {"name": "a,b", "when": "2024-01-31T12:30:00", "x": 0.3, "n": 1},
        {"name": None, "when": None, "x": None, "n": None},
        {"name": "ü\n", "when": "2024-02-01T00:00:00.500000", "x": -2e9, "n": 3},
    ]
    write_rows(iter(ROWS), tmp_path / "a.CSV")
    assert read_csv(tmp_path / "a.CSV") == [
        {"name": "a,b", "when": "2024-01-31T12:30:00", "x": "0.3", "n": "1"},
        {"name": "", "when": "", "x": "", "n": ""},
        {"name": "ü\n", "when": "2024-02-01T00:00:00.500000", "x": "-2000000000.0", "n": "3"},
    ]


def test_parquet_and_npz_keep_the_types(tmp_path):
    write_rows(iter(ROWS), tmp_path / "a.parquet")
    frame = pl.read_parquet(tmp_path / "a.parquet")
    assert dict(frame.schema) == {
        "name": pl.String, "when": pl.Datetime("us"), "x": pl.Float32, "n": pl.Int64,
    }  # fmt: skip
    assert frame["name"].to_list() == ["a,b", None, "ü\n"]
    assert frame["when"].to_list() == [
        dt.datetime(2024, 1, 31, 12, 30), None, dt.datetime(2024, 2, 1, 0, 0, 0, 500000),
    ]  # fmt: skip
    assert frame["x"].to_list() == [np.float32(0.3), None, -2e9]
    assert frame["n"].to_list() == [1.0, None, 3.0]
    # A column may be called like an argument of `numpy.savez`.
    write_rows(({"file": i} | row for i, row in enumerate(ROWS)), tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        assert sorted(arrays) == ["file", "n", "name", "when", "x"]
        assert arrays["file"].dtype.kind == "i"
        assert arrays["name"].tolist() == ["a,b", "", "ü\n"]
        np.testing.assert_array_equal(arrays["when"], [row["when"] for row in ROWS])
        np.testing.assert_array_equal(arrays["x"], np.float32([0.3, np.nan, -2e9]))
        np.testing.assert_array_equal(arrays["n"], [1.0, np.nan, 3.0])


def test_vectors_are_lists_arrays_or_columns(tmp_path):
    first = np.float32([[0.1, np.nan], [2.0, np.inf]])
    rows = [{"p": Vector(first)}, {"p": Vector(np.full_like(first, np.nan))}]
    for ending in ENDINGS:
        write_rows(rows, tmp_path / f"a{ending}")
    assert read_json(tmp_path / "a.jsonl") == [{"p": [[0.1, None], [2.0, None]]}, {"p": None}]
    with np.load(tmp_path / "a.npz") as arrays:
        np.testing.assert_array_equal(arrays["p"], [row["p"].values for row in rows])
    assert read_csv(tmp_path / "a.csv") == [
        {"p_0": "0.1", "p_1": "", "p_2": "2.0", "p_3": "inf"}, dict.fromkeys(
            ["p_0", "p_1", "p_2", "p_3"], ""),
    ]  # fmt: skip
    assert pl.read_parquet(tmp_path / "a.parquet").rows() == [
        (np.float32(0.1), None, 2.0, np.inf), (None,) * 4,
    ]  # fmt: skip


def test_no_rows_are_an_empty_table(tmp_path):
    for ending in ENDINGS:
        write_rows([], tmp_path / f"a{ending}")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "a.csv").read_bytes() == b""
    assert pl.read_parquet(tmp_path / "a.parquet").shape == (0, 0)
    with np.load(tmp_path / "a.npz") as arrays:
        assert not list(arrays)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_stays_until_the_new_one_is_whole(tmp_path, ending):
    path = tmp_path / f"a{ending}"

    def breaks():
        yield ROWS[0]
        assert path.read_bytes() == b"old"
        raise OSError("the rows themselves")

    path.write_bytes(b"old")
    with pytest.raises(OSError, match=r"^the rows themselves$"):
        write_rows(breaks(), path)
    assert path.read_bytes() == b"old"
    with full_disk():
        refuses(
            lambda: write_rows(ROWS, path),
            OSError,
            "`path`: cannot write", str(path), "No space left", "unchanged",
        )  # fmt: skip
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]
    # A link stays one.
    (tmp_path / f"link{ending}").symlink_to(path.name)
    write_rows(ROWS, tmp_path / f"link{ending}")
    assert (tmp_path / f"link{ending}").is_symlink()
    assert path.read_bytes() != b"old"


def test_rows_are_written_one_by_one(tmp_path):
    """No row waits for the last; to standard output, none waits for the next."""
    for name in ("a.csv", "a.jsonl"):

        def rows(partial=f"{name}.*.partial"):
            yield from ({"n": i} for i in range(9_999))
            assert [path.stat().st_size > 10_000 for path in tmp_path.glob(partial)] == [True]
            yield {"n": 9_999}

        write_rows(rows(), tmp_path / name)
    numbers = list(range(10_000))
    assert [int(row["n"]) for row in read_csv(tmp_path / "a.csv")] == numbers
    assert [row["n"] for row in read_json(tmp_path / "a.jsonl")] == numbers
    program = """
import sys
from varfilter.media.formats import write_rows
write_rows(({"line": line.strip()} for line in sys.stdin), None)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for word in ("one", "zwei"):
            process.stdin.write(word + "\n")
            process.stdin.flush()
            # Without a flush in the program, this would wait for ever.
            assert json.loads(process.stdout.readline()) == {"line": word}
        process.stdin.close()
        assert process.wait() == 0


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    path = tmp_path / "live.jsonl"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_rows([{"n": 1}], path)
    assert os.read(reader, 100) == b'{"n": 1}\n'
    os.close(reader)
    assert path.is_fifo()


def test_bad_tables_are_refused(tmp_path):
    for path in (tmp_path / "a.txt", tmp_path / "a"):
        refuses(lambda path=path: write_rows(ROWS, path), ValueError, str(path), *ENDINGS)
    missing = tmp_path / "none" / "a.csv"
    refuses(lambda: write_rows(ROWS, missing), FileNotFoundError, str(missing), "no folder")
    (tmp_path / "f.csv").mkdir()
    refuses(lambda: write_rows(ROWS, tmp_path / "f.csv"), IsADirectoryError, "is a folder")
    for ending in (".csv", ".parquet", ".npz"):
        uneven = [{"a": 1, "b": 2}, {"a": 1}]
        refuses(
            lambda ending=ending, rows=uneven: write_rows(rows, tmp_path / f"a{ending}"),
            ValueError, "`rows`", "row 1", "b.",
        )  # fmt: skip
    wide = [{"p": Vector(np.zeros(101))}]
    for ending in (".csv", ".parquet"):
        words = ("101 numbers", ending, ".jsonl or .npz")
        path = tmp_path / f"a{ending}"
        refuses(lambda path=path: write_rows(wide, path), ValueError, *words)
        refuses(lambda path=path: require_ending(path, num_elements=101), ValueError, *words)
        # Where the format was asked for, another ending would change nothing.
        format = {"ending": ending, "num_elements": 101}
        words = (f"`format` is {ending[1:]!r}", "101 numbers", "Give jsonl or npz.")
        refuses(lambda o=format: require_ending(tmp_path / "a.txt", **o), ValueError, *words)
    odd = [{"a": 1j}]
    refuses(lambda: write_rows(odd, tmp_path / "a.npz"), TypeError, "numbers, dates and text")
    assert os.listdir(tmp_path) == ["f.csv"]
