"""Tables of runs that began before zones and months in digits were known, read as they were.

`before_zones.json` is what commit 34368a9 made of these tables: the record of each schema, the hash
of its data, and its times. `python tests/data/tables/test_before_zones.py` writes it, with the
`src` of that commit in PYTHONPATH.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from varfilter.data.tables.json_lines import TableLines
from varfilter.data.tables.read import read_table
from varfilter.data.tables.schema import TableSchema
from varfilter.media.table import TableMedium, TableSource

RECORDS = Path(__file__).parent / "before_zones.json"
HOURS = pd.date_range("2024-03-20", periods=480, freq="h", tz="Europe/Berlin")
DAYS = pd.date_range("2010-01-01", periods=400, freq="D")
MONTHS = pd.date_range("2010-01-01", periods=144, freq="MS")
GRADES = ["low", "high", "a"]
COHORTS = [f"2010 M0{1 + i // 10 % 3}" for i in range(400)]


def times_of(index):
    return [time.isoformat() for time in index]


# Each has one column more, x: eighths of whole numbers, whose sums are exact.
TABLES = {
    "hours of a zone": {"time": times_of(HOURS)},
    "days of a zone": {
        "time": times_of(pd.date_range("2023-12-30", periods=400, tz="America/New_York"))
    },
    "business days of a zone": {
        "time": times_of(pd.date_range("2023-12-29", periods=400, freq="B", tz="Europe/Berlin"))
    },
    "last business days": {
        "date": pd.date_range("2010-01-01", periods=144, freq="BME").strftime("%Y-%m-%d")
    },
    "twice a month": {
        "date": pd.date_range("2010-01-01", periods=144, freq="SMS").strftime("%Y-%m-%d")
    },
    "months alone": {"month": MONTHS.strftime("%Y%m").astype(int)},
    "months as the time": {"time": MONTHS.strftime("%Y%m").astype(int)},
    "months beside dates": {
        "date": DAYS.strftime("%Y-%m-%d"),
        "month": DAYS.strftime("%Y%m").astype(int),
    },
    "months in words": {"date": DAYS.strftime("%Y-%m-%d"), "cohort": COHORTS},
    "an ordered type": {
        "date": DAYS.strftime("%Y-%m-%d"),
        "grade": pl.Series([GRADES[i * i % 7 % 3] for i in range(400)], dtype=pl.Enum(GRADES)),
    },
}


def written(name, folder):
    columns = {key: pl.Series(key, values) for key, values in TABLES[name].items()}
    numbers = np.arange(len(next(iter(columns.values()))))
    frame = pl.DataFrame(columns | {"x": (numbers * 37 % 101) / 8})
    if name == "an ordered type":  # which only this file can tell
        frame.write_parquet(folder / "a.parquet")
        return folder / "a.parquet"
    frame.write_csv(folder / "a.csv")
    return folder / "a.csv"


def times(schema, path):
    return [str(time) for time in schema.read(path).times[0]]


@pytest.mark.parametrize("name", TABLES)
def test_a_run_reads_the_table_that_it_began_with(name, tmp_path):
    known, path = json.loads(RECORDS.read_text(encoding="utf-8"))[name], written(name, tmp_path)
    assert "zone" not in known["schema"]
    schema = TableMedium().schema(known["schema"])
    source = TableMedium().as_recorded(TableSource(str(path)), schema)
    made = read_table(path, **source.options())
    assert made.sha256() == known["sha256"]
    for each in (schema, made.schema):
        found = times(each, path)
        assert [len(found), *found[1:][:3], found[-1]] == known["times"]
    # The next reader of this run finds the same steps and inputs.
    again = TableSchema.from_json(made.schema.as_json())
    assert again.spacing == schema.spacing
    assert again.inputs == schema.inputs


def test_levels_that_look_like_months_stay_levels(tmp_path):
    path = written("months in words", tmp_path)
    known = json.loads(RECORDS.read_text(encoding="utf-8"))["months in words"]
    schema = TableMedium().schema(known["schema"])
    assert schema.levels["cohort"] == ("2010 M01", "2010 M02", "2010 M03")
    np.testing.assert_array_equal(schema.read(path).rows[0][:20, 0], np.arange(20) < 10)
    [step] = TableLines(schema).read('{"date": "2010-02-01", "cohort": "2010 M02", "x": 1}')
    np.testing.assert_array_equal(step.row[:3], [0.0, 1.0, 0.0])
    # So do those that somebody says are such today.
    made = read_table(path, kinds={"cohort": "categorical"})
    assert made.schema.levels == schema.levels


def records():
    found = {}
    for name in TABLES:
        with tempfile.TemporaryDirectory() as folder:
            path = written(name, Path(folder))
            made = read_table(path)
            when = times(made.schema, path)
            found[name] = {
                "sha256": made.sha256(),
                "times": [len(when), *when[1:][:3], when[-1]],
                "schema": made.schema.as_json(),
            }
    return found


if __name__ == "__main__":
    found = records()
    assert all("zone" not in record["schema"] for record in found.values()), sys.path
    RECORDS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
