"""Splits are whole, disjoint and never empty, and a seed gives one for ever."""

import numpy as np
import pytest

from refusals import refuses
from varfilter.data.dataset import SPLITS
from varfilter.data.splits import split_by_sequence

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def test_splits_are_whole_disjoint_and_never_empty():
    for num in (3, 4, 5, 9, 10, 17, 100, 1234):
        for seed in range(3):
            parts = split_by_sequence(num, seed=seed)
            assert list(parts) == list(SPLITS)
            assert sorted(np.concatenate(list(parts.values()))) == list(range(num))
            assert all(len(part) >= 1 and (np.diff(part) > 0).all() for part in parts.values())
            if num >= 10:
                sizes = [len(part) for part in parts.values()]
                assert np.abs(np.array(sizes) - num * np.array([0.8, 0.1, 0.1])).max() < 1
    assert [len(p) for p in split_by_sequence(3, (0.98, 0.01, 0.01)).values()] == [1, 1, 1]
    assert [len(p) for p in split_by_sequence(20, (0.5, 0.3, 0.2)).values()] == [10, 6, 4]


def test_a_seed_gives_one_split_for_ever():
    parts = split_by_sequence(10, seed=1)
    # Pinned: another machine, or another version of NumPy, must not move songs about.
    assert {split: part.tolist() for split, part in parts.items()} == {
        "train": [0, 1, 3, 4, 5, 6, 7, 9],
        "valid": [8],
        "test": [2],
    }
    for split, part in split_by_sequence(10, seed=1).items():
        np.testing.assert_array_equal(part, parts[split])
    tests = {tuple(split_by_sequence(50, seed=seed)["test"]) for seed in range(20)}
    assert len(tests) == 20


def test_bad_splits_are_refused():
    for num in (1, 2):
        refuses(lambda num=num: split_by_sequence(num), ValueError, f"`num` is {num}", "own split")
    refuses(lambda: split_by_sequence(0), ValueError, "`num`")
    for fractions in [(0.5, 0.5), (0.5, 0.5, 0.5), (1.0, 0.0, 0.0), (1.2, -0.1, -0.1), "abc"]:
        refuses(lambda f=fractions: split_by_sequence(9, f), ValueError, "`fractions`", "sum to 1")
    refuses(lambda: split_by_sequence(9, seed=0.5), ValueError, "`seed`", "0.5")
