"""Columns that never change in training: left out, watched, and given back as they came."""

import json

import numpy as np
import pytest

from refusals import refuses
from varfilter.data.tables.json_lines import TableLines
from varfilter.data.tables.read import read_table
from varfilter.data.tables.schema import TableSchema
from varfilter.media.table import TableMedium


def table(n: int = 60) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "warm": rng.normal(size=n),
        "model": np.full(n, 7),
        "is_on": np.ones(n, bool),
        # A sum that should be 0.3 is so but for rounding.
        "sum": np.where(np.arange(n) % 2, 0.1 + 0.2, 0.3),
    }


def test_constants_are_left_out_unless_asked_for():
    made = read_table(table())
    assert made.columns == ("warm",)
    assert made.schema.constants == {"model": 7.0, "is_on": 1.0, "sum": 0.3}
    note = next(note for note in made.notes if "'model'" in note)
    assert "7 in all training rows" in note
    assert "model=numeric" in note
    assert read_table(table(), kinds={"model": "numeric"}).columns == ("warm", "model")
    assert read_table(table(), columns=["warm", "is_on"]).columns == ("warm", "is_on")
    # Too few values say nothing, and later ones decide nothing.
    assert read_table(table(20)).columns == tuple(table())
    later = table() | {"model": np.r_[np.full(55, 7), np.full(5, 8)]}
    made = read_table(later)
    assert made.columns == ("warm",)
    assert any("another in 5 later rows" in note for note in made.notes)
    # What all other things equal would be learned is the same with and without them.
    alone = read_table({"warm": later["warm"]})
    assert alone.sha256() == made.sha256()
    constant = {"a": np.full(60, 1.5), "b": np.full(60, 2.5)}
    refuses(lambda: read_table(constant), ValueError, "'a' is 1.5", "`columns`")


def test_a_new_table_keeps_them_and_is_told_of_others():
    schema = TableSchema.from_json(json.loads(json.dumps(read_table(table()).schema.as_json())))
    given = schema.read(table()).given[0]
    assert given.cells["model"].dtype == np.int64
    assert given.cells["is_on"].dtype == bool
    np.testing.assert_array_equal(given.cells["sum"], table()["sum"])
    changed = table() | {"model": np.r_[np.full(57, 7), 8, 9, 7]}
    with pytest.warns(UserWarning, match="'model' is 8 in row 57 .* 2 rows in all; it was 7"):
        assert schema.read(changed).given[0].cells["model"][57] == 8
    # They need not be there.
    schema.read({"warm": table()["warm"]})


def test_lines_keep_them_and_tell_of_others_once():
    reader = TableLines(read_table(table()).schema)
    step = reader.read('{"warm": 1, "model": 7, "is_on": true}')[-1]
    assert step.cells == {"warm": 1, "model": 7, "is_on": True, "sum": None}
    assert not reader.notes
    for _ in range(2):
        reader.read('{"warm": 1, "model": 8}')
    assert len(reader.notes) == 1
    assert "'model' is '8'" in reader.notes[0]
    assert reader.read('{"model": 7}')[-1].cells["model"] == 7
    refuses(lambda: reader.read('{"other": 7}'), ValueError, "none of the columns")


def test_made_up_rows_have_them(tmp_path):
    made = read_table(table())
    made_up = [np.zeros((2, 1), np.float32)]
    [path] = TableMedium().write_samples(tmp_path / "s.csv", made, made_up, [None], [None])
    header, first, _ = path.read_text().splitlines()
    assert header == "time,warm,model,is_on,sum"
    assert first.endswith(",7,1,0.3")
