"""A cell that has no place in its column is missing, and said; many tell of another column."""

import warnings

import numpy as np
import pytest

from plants import lines, write
from refusals import refuses
from varfilter.data.tables.read import read_table

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def table(num_rows=200):
    """A number, a count and a column of 0 and 1."""
    rng = np.random.default_rng(0)
    return {
        "warm": np.round(rng.normal(size=num_rows), 3),
        "k": rng.integers(0, 9, num_rows).astype(float),
        "is_on": rng.integers(0, 2, num_rows).astype(float),
    }


def test_a_new_table_with_bad_cells_is_read_and_they_are_missing(tmp_path):
    schema = read_table(table()).schema
    assert schema.kinds == {"warm": "numeric", "k": "count", "is_on": "binary"}
    path = lines(tmp_path, "warm,k,is_on", "1.5,3,1", "err,-1,0", "inf,2.5,1", "2.5,4,7", "3,4,0")
    with pytest.warns(UserWarning, match="5 cells have no place") as told:
        read = schema.read(path)
    assert [str(each.message) for each in told] == [
        "5 cells have no place in their columns, and are taken as missing: 2 in 'warm' ('err' in"
        " row 1, counted from 0), 2 in 'k' (-1 in row 1, counted from 0), 1 in 'is_on' (7 in row 3,"
        " counted from 0)."
    ]
    nan = np.nan
    expected = [[1.5, 3, 1], [nan, nan, 0], [nan, nan, 1], [2.5, 4, nan], [3, 4, 0]]
    np.testing.assert_array_equal(read.rows[0], np.array(expected, np.float32))
    # Numbers come back as they came; a text would make texts of all.
    cells = read.given[0].cells
    np.testing.assert_array_equal(cells["warm"], [1.5, nan, nan, 2.5, 3])
    np.testing.assert_array_equal(cells["k"], [3, -1, 2.5, 4, 4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schema.read(table(5))


def test_a_column_of_another_kind_is_still_refused():
    schema = read_table(table()).schema
    new = table(6)
    new["k"][:3] += 0.5
    refuses(lambda: schema.read(new), ValueError, "`k`", "count", "in row 0")
    refuses(
        lambda: schema.read({**table(4), "warm": ["a", "b", "1", "2"]}), ValueError, "'a' in row 0"
    )
    refuses(lambda: schema.read({**table(2), "warm": [np.inf, 1.0]}), ValueError, "infinite")
    # Numbers with a comma are rather numbers that are written otherwise.
    new = {**table(4), "warm": ["1.5", "2", "1,5", "2"]}
    refuses(lambda: schema.read(new), ValueError, "decimal comma")
    known = read_table(table(), inputs=["warm"]).schema
    new = table(9)
    new["warm"][3] = np.inf
    refuses(lambda: known.read(new), ValueError, "`warm`", "infinite in row 3")


def test_training_rows_may_have_a_few(tmp_path):
    data = table(300)
    clean = read_table(data)
    texts = [f"{warm},{k:g},{on:g}" for warm, k, on in zip(*data.values(), strict=True)]
    texts[5] = "err,3,1"
    texts[7] = "-inf,3,1"
    texts[280] = "0.5,-1,1"
    made = read_table(write(tmp_path, "\n".join(["warm,k,is_on", *texts]), "t.csv"))
    assert made.schema.kinds == clean.schema.kinds
    assert made.notes[-1] == (
        "3 cells have no place in their columns, and are taken as missing: 2 in 'warm' ('err' in"
        " row 5, counted from 0), 1 in 'k' (-1 in row 280, counted from 0)."
    )
    assert np.flatnonzero(np.isnan(made.train.values[:, 0])).tolist() == [5, 7]
    assert np.isnan(made.test.values[:, 1]).sum() == 1
    # A given kind says of the training rows too what is bad; one in a hundred is too many.
    data["k"][[3, 4]] = 2.5
    made = read_table(data, kinds={"k": "count"})
    assert np.flatnonzero(np.isnan(made.train.values[:, 1])).tolist() == [3, 4]
    data["k"][5] = 2.5
    refuses(lambda: read_table(data, kinds={"k": "count"}), ValueError, "`k`", "2.5 in row 3")


def test_long_tables_have_bad_cells_too():
    names = np.tile(["warm", "k"], 200)
    rng = np.random.default_rng(0)
    value = np.stack([rng.normal(size=200), rng.integers(0, 9, 200)], axis=1).ravel()
    data = {"t": np.repeat(np.arange(200.0), 2), "what": names, "value": value}
    schema = read_table(data, long=("what", "value")).schema
    assert schema.kinds == {"k": "count", "warm": "numeric"}
    new = {name: column[:20] for name, column in data.items()} | {"value": value[:20].copy()}
    new["value"][4], new["value"][7] = np.inf, -1.0
    with pytest.warns(UserWarning, match=r"1 in 'value' \(inf in row 4.*, 1 in 'k' \(-1\)\."):
        read = schema.read(new)
    assert np.argwhere(np.isnan(read.rows[0])).tolist() == [[2, 1], [3, 0]]


def test_truths_may_have_a_bad_cell():
    """Which are numbers of a kind, and no text that `float` reads."""
    told = np.where(np.random.default_rng(0).random(400) < 0.5, "true", "false").astype(object)
    told[5] = "err"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = read_table({"on": told, "x": np.random.default_rng(1).normal(size=400)})
    assert made.schema.kinds["on"] == "binary"
    on = np.concatenate([made.split(part).values for part in ("train", "valid", "test")])[:, 0]
    assert np.isnan(on[5])
    np.testing.assert_array_equal(np.delete(on, 5), np.delete(told, 5) == "true")
