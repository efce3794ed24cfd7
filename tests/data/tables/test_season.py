"""When a column is told by its change beyond that of a season before."""

import numpy as np
import pytest

from varfilter.data.tables.motion import Motion, MotionForm, in_words, transform_of
from varfilter.data.tables.read import read_table
from varfilter.data.tables.season import season_lengths, seasonal_motion

YEAR = 365.2425
RANDOM = np.random.default_rng(5)
T = np.arange(180)
WAVES = np.stack([np.sin(2 * np.pi * T / 12), np.cos(2 * np.pi * T / 12)], axis=1)
TURN = RANDOM.normal(size=12)


def chosen(values, usual="level", kind="numeric", inputs=WAVES):
    return seasonal_motion(Motion(usual), kind, [values], [inputs], [12]).word


def test_a_season_that_drifts_is_told_by_that_of_before():
    """Its turn is no wave, and a level moves under it."""
    level = np.cumsum(RANDOM.normal(size=180) * 0.1)
    values = 50.0 + level + 3.0 * np.tile(TURN, 15) + RANDOM.normal(size=180) * 0.1
    assert chosen(values) == chosen(values, "change") == "change-12"
    # Where it is proportional to what grows, the same of logarithms.
    assert chosen(np.exp(0.02 * T + level + np.tile(TURN, 15)), "log-change") == "log-change-12"


def test_what_the_waves_of_the_calendar_tell_needs_no_other_season():
    noise = np.zeros(180)
    for t in range(1, 180):
        noise[t] = 0.7 * noise[t - 1] + RANDOM.normal()
    assert chosen(5.0 * WAVES[:, 0] + noise) == "level"
    assert chosen(np.cumsum(RANDOM.normal(size=180)), "change") == "change"
    assert chosen(np.tile(TURN, 15), kind="count") == "level"
    # A logarithm that fits better is no season.
    assert chosen(np.exp(np.cumsum(RANDOM.normal(size=180) * 0.3)), "change") == "change"
    # Too few of them to judge by.
    few = [np.tile(TURN, 3)]
    assert seasonal_motion(Motion("level"), "numeric", few, [WAVES[:36]], [12]).word == "level"


def test_lengths_are_of_the_calendar():
    assert season_lengths([1.0, 7.0, YEAR], 1.0) == [7]
    assert season_lengths([1.0, 7.0, YEAR], YEAR / 12) == [12]
    assert season_lengths([1.0, 7.0, YEAR], 1 / 24) == [24]


def test_what_a_model_is_told():
    values = np.array([1.0, 2.0, 4.0, 3.0, 5.0, 7.0])
    # (3-4) - (2-1), (5-3) - (4-2), (7-5) - (3-4)
    np.testing.assert_allclose(MotionForm.of("change-2").values(values), [-2.0, 0.0, 3.0])
    found = transform_of("change-2", [values], 1e-9)
    assert (found.season, found.drift) == (2, pytest.approx(1 / 3))
    assert found.change_scale == pytest.approx(np.std([-2.0, 0.0, 3.0]))
    assert found.season_spread == pytest.approx(np.std(np.diff(values)))
    assert "beyond that of 2 steps before" in in_words("log-change-2")
    for word in ("change-1", "change-", "log-level", "change-x"):
        with pytest.raises(ValueError, match="got"):
            MotionForm.of(word)


def test_a_monthly_table_says_so_and_another_may_be_asked_for():
    months = np.datetime64("2000-01") + np.arange(180)
    sales = 50.0 + np.cumsum(RANDOM.normal(size=180) * 0.1) + 3.0 * np.tile(TURN, 15)
    table = {"time": months.astype("datetime64[D]").astype(str), "sales": sales}
    found = read_table(table)
    assert found.schema.motions == {"sales": "change-12"}
    assert any("beyond that of 12 steps before" in note for note in found.notes)
    asked = read_table(table, kinds={"sales": "numeric change"})
    assert asked.schema.motions == {"sales": "change"}


def test_of_a_season_of_logarithms_a_zero_leaves_the_season():
    """It was chosen for its season, and without the logarithm it has that all the same."""
    months = np.datetime64("2000-01") + np.arange(180)
    sales = np.exp(0.02 * T + np.tile(TURN, 15) + 0.02 * RANDOM.normal(size=180))
    sales[-1] = 0.0
    table = {"time": months.astype("datetime64[D]").astype(str), "sales": sales}
    found = read_table(table)
    assert found.schema.motions == {"sales": "change-12"}
    assert any("by its logarithm, but has 0" in note for note in found.notes)
    with pytest.raises(ValueError, match=r"has 0 .*'sales': 'change-12'"):
        read_table(table, kinds={"sales": "log-change-12"})
