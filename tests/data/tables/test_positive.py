"""Positive columns with a long tail are told by their logarithms, and stay positive."""

import numpy as np
import pytest

from refusals import refuses
from varfilter.data.tables.motion import Motion
from varfilter.data.tables.positive import positive_motion
from varfilter.data.tables.read import read_table

LEVEL = Motion("level")


def lingering(seed: int, count: int = 400) -> np.ndarray:
    """A Gaussian autoregression with mean 0 and spread 1."""
    random = np.random.default_rng(seed)
    found = np.zeros(count)
    for t in range(1, count):
        found[t] = 0.8 * found[t - 1] + 0.6 * random.normal()
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_long_tail_is_told_by_its_logarithm_and_nothing_else_is(seed):
    random, z = np.random.default_rng(seed), lingering(seed)
    assert positive_motion(LEVEL, "numeric", [np.exp(z)]).word == "log"
    walk = np.exp(0.1 * np.cumsum(random.normal(size=400)))
    if walk.mean() < 3 * walk.std():
        assert positive_motion(Motion("change"), "heavy", [walk]).word == "log-change"
    others = {
        "far from 0": 5.0 + z,
        "has a 0": np.append(np.exp(z), 0.0),
        "has values below": z,
        "0 is the next of its digits": np.maximum(np.round(np.exp(z), 1), 0.1),
        "a Gaussian as it is": np.abs(4.0 + 1.4 * random.normal(size=400)) + 0.05,
    }
    found = {why: positive_motion(LEVEL, "numeric", [each]).word for why, each in others.items()}
    assert found == dict.fromkeys(others, "level")
    # What was chosen for another reason, and other kinds, stay.
    for motion, kind in ((Motion("change-12"), "numeric"), (LEVEL, "count")):
        assert positive_motion(motion, kind, [np.exp(z)]) is motion
    part = np.exp(z) / np.exp(z).max()
    assert positive_motion(LEVEL, "numeric", [part], "share of rain") is LEVEL
    assert positive_motion(LEVEL, "numeric", [part], "rain").word == "log"


def test_densities_are_those_of_the_values():
    """In other units of the values the same is chosen, by as many nats."""
    values = np.exp(lingering(0))
    reasons = {positive_motion(LEVEL, "numeric", [c * values]).reason for c in (1e-6, 1.0, 1e6)}
    assert len(reasons) == 1


def test_a_table_says_so_can_be_told_otherwise_and_does_without_where_there_is_none():
    values = np.exp(lingering(1))
    dataset = read_table({"load": values})
    assert dataset.schema.motions == {"load": "log"}
    assert any("positive with a long tail" in note for note in dataset.notes)
    assert dataset.families[0].transform.log_scale is not None
    assert read_table({"load": values}, kinds={"load": "level"}).schema.motions == {}
    values[-1] = 0.0  # of the test part, which decides nothing
    told = read_table({"load": values}, split="time")
    assert told.schema.motions == {}
    assert any("'load' is predicted by its value: it would be by its log" in n for n in told.notes)
    by_log = {"load": "log"}
    refuses(
        lambda: read_table({"load": values}, kinds=by_log), ValueError, "`load`", "has 0 in row"
    )
