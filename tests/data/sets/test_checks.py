"""Checks: the numbers of a data set, and the judgement on a named one."""

import shutil

import numpy as np
import pytest

from real_data import DATA, needs_data
from varfilter.data import Dataset, Family, Ragged
from varfilter.data.sets.checks import describe, judge, without_steps
from varfilter.data.sets.registry import CATALOGUE, read_set
from varfilter.distributions import Bernoulli, Normal

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def dataset(values, lengths, **options):
    parts = [Ragged(np.asarray(values), lengths) for _ in range(3)]
    return Dataset("own", *parts, **({"family": Family(Normal)} | options))


def test_numbers_of_a_data_set():
    gaps = np.array([[1.0, 5.0], [np.nan, 5.0], [3.0, 5.0], [np.nan, np.nan]], np.float32)
    shown = describe(dataset(gaps, [1, 3], columns=("a", "b"), family=(Family(Normal),) * 2))
    assert shown["family"] == ["Normal", "Normal"]
    assert shown["splits"]["test"] == {
        "sequences": 2, "steps": 4, "length": {"shortest": 1, "mean": 2.0, "longest": 3},
        "lowest": 1.0, "highest": 5.0, "mean": 3.8, "missing": 0.375,
    }  # fmt: skip
    assert shown["columns"]["b"]["missing"] == 0.25
    assert without_steps(dataset(gaps, [4], rows_per_step=5)) == [
        f"`{split}` has no whole step: of 1 sequence none has the 5 rows that make one."
        for split in ("train", "valid", "test")
    ]


def test_the_medium_adds_its_own_numbers():
    rolls = np.zeros((4, 88), np.uint8)
    rolls[1, 10] = rolls[2, [20, 40]] = 1
    music = dataset(rolls, [4], family=Family(Bernoulli))

    def keys(ragged):
        return {"keys": np.flatnonzero(ragged.values.any(axis=0)).tolist()}

    shown = describe(music, keys)["splits"]
    assert [numbers.pop("keys") for numbers in shown.values()] == [[10, 20, 40]] * 3
    assert shown == describe(music)["splits"]
    assert shown["train"]["ones_per_step"] == 0.75


@needs_data
@pytest.mark.parametrize("name", ["kth-sample", "weizmann"])
def test_the_files_prove_a_set_that_is_decoded_differently(name, tmp_path):
    entry, path = CATALOGUE[name], DATA / CATALOGUE[name].places[0]
    read = read_set(entry, at=path)
    values = np.array(read.train.values)
    values[0, 0, 0, 0] ^= 1
    other = Dataset(name, Ragged(values, read.train.lengths), read.valid, read.test, read.family)
    assert judge(entry, other, path)[:2] == (True, True)
    shutil.copytree(path, tmp_path / "copy")
    video = min((tmp_path / "copy").glob("*.avi"))
    video.write_bytes(video.read_bytes() + b"x")
    # The content of Weizmann is not binding: copies in other encodings are as right.
    assert judge(entry, other, tmp_path / "copy")[:2] == (name == "weizmann", False)
    assert judge(entry, other, path, plain=False)[:2] == (True, False)
