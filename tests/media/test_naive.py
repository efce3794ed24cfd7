"""The naive predictors of each column: seasons that are there, and numbers counted by hand."""

import numpy as np
import pytest
from scipy import integrate, stats

from varfilter.data.continued import Continued, continued
from varfilter.data.dataset import Dataset, Family
from varfilter.data.ragged import Ragged
from varfilter.data.tables.read import read_table
from varfilter.distributions import Bernoulli, DiscretizedNormal, Normal
from varfilter.media.gaussians import Gaussians, reference_gaussians
from varfilter.media.naive import Naive, season_of
from varfilter.training.predictive_draws import origins
from varfilter.training.predictive_scores import column_scores


def days(count):
    return np.datetime64("2020-01-01") + np.arange(count)


def test_a_season_that_the_rows_have_is_found():
    t = np.arange(300)
    noise = np.random.default_rng(0).normal(size=(2, 300))
    rows = {"wave": np.sin(2 * np.pi * t / 12) + 0.2 * noise[0], "walk": np.cumsum(noise[1])}
    assert season_of(read_table(rows)).length == 12
    # With a trend, by the calendar, with gaps: a week of days.
    weekly = np.tile([0.0, 1.0, 2.0, 3.0, 2.0, 8.0, 9.0], 60) + 0.05 * np.arange(420)
    weekly[50:80] = np.nan
    found = season_of(read_table({"time": days(420), "visits": weekly}))
    assert (found.length, "week" in found.what) == (7, True)


@pytest.mark.parametrize("seed", range(4))
def test_what_wanders_has_no_season(seed):
    noise = np.random.default_rng(seed).normal(size=(2, 400))
    rows = {"walk": np.cumsum(noise[0]), "noise": noise[1]}
    assert season_of(read_table(rows)) is None
    assert season_of(read_table({"time": days(400), **rows})) is None


def test_the_last_value_and_that_of_a_season_before():
    train = np.array([0.0, 2.0, 1.0, 4.0, 0.0, 2.5, 1.0, np.nan])[:, None]
    own = np.array([5.0, np.nan, 6.0, 9.0, 5.5, 7.0])[:, None]
    part = Ragged.of([train])
    dataset = Dataset("made", part, part, part, (Family(Normal),), columns=("x",))
    sequence = Continued("one", own.astype(np.float32), None, None, 1)

    def scored(naive, horizon, every):
        found = reference_gaussians(naive, [sequence], (horizon,), every)[horizon]
        places = origins(sequence, horizon, every) + horizon - 1
        return found.scored(dataset, sequence.xs[places].astype(np.float64))

    last = scored(Naive.of(dataset, (1, 3)), 1, 1)
    np.testing.assert_allclose(last.mean[:, 0], [5.0, 5.0, 6.0, 9.0, 5.5])
    changes = np.array([2.0, -1.0, 3.0, -4.0, 2.5, -1.5])
    spread = np.sqrt(np.mean(changes**2))
    nats = -stats.norm(9.0, spread).logpdf(5.5)
    assert last.nats[3, 0] == pytest.approx(nats, rel=1e-6)
    ahead = scored(Naive.of(dataset, (1, 3)), 3, 2)
    np.testing.assert_allclose(ahead.xs[:, 0], [9.0, 7.0])
    np.testing.assert_allclose(ahead.mean[:, 0], [5.0, 6.0])
    # Of a season of four steps; what was not observed then is the last value.
    season = scored(Naive.of(dataset, (1,), season=4), 1, 1)
    np.testing.assert_allclose(season.mean[:, 0], [5.0, 5.0, 6.0, 5.0, 5.5])


def test_gaussians_have_the_scores_that_they_should():
    part = Ragged.of([np.zeros((3, 3), np.float32)])
    families = (Family(Normal), Family(DiscretizedNormal, 0.5, 0.0), Family(Bernoulli))
    dataset = Dataset("made", part, part, part, families, columns=("a", "b", "c"))
    xs, centre = np.array([[0.7, 1.0, 1.0]]), np.array([[0.2, 1.1, 0.8]])
    found = Gaussians.of(centre, np.array([1.5, 0.4, 1.0])).scored(dataset, xs)
    oracle = stats.norm(0.2, 1.5)
    below = integrate.quad(lambda y: oracle.cdf(y) ** 2, -np.inf, 0.7)[0]
    above = integrate.quad(lambda y: oracle.sf(y) ** 2, 0.7, np.inf)[0]
    assert found.crps[0, 0] == pytest.approx(below + above, rel=1e-6)
    np.testing.assert_allclose(found.quantiles[:, 0, 0], oracle.ppf([0.05, 0.25, 0.75, 0.95]))
    # The quantiles of levels are levels, and none is below the lowest.
    assert set(found.quantiles[:, 0, 1]) <= {0.5, 1.0, 1.5, 2.0}
    scores = column_scores(dataset, found)
    assert scores["c"]["crps"] == pytest.approx(0.04)
    assert scores["c"]["nats"] == pytest.approx(-np.log(0.8))
    assert scores["c"]["within_50"] is None
    assert scores["b"]["within_90"] == 1.0


def test_held_out_rows_come_after_those_before_them():
    """A table that is cut in time goes on; whole sequences and rows after a gap do not."""
    values = np.arange(100.0)
    dataset = read_table({"x": values}, fractions=(0.7, 0.1, 0.2))
    (found,) = continued(dataset, "test")
    assert (len(found), found.begin) == (100, 80)
    np.testing.assert_allclose(dataset.scaling.restore(found.xs)[:, 0], values, rtol=1e-5)
    (short,) = continued(dataset, "test", most_before=5, most_steps=8)
    assert (len(short), short.begin) == (13, 5)
    (valid,) = continued(dataset, "valid")
    assert (len(valid), valid.begin) == (80, 70)
    dated = {"time": np.concatenate([days(80), days(40)[20:] + 100]), "x": values}
    (gapped,) = continued(read_table(dated, fractions=(0.7, 0.1, 0.2)), "test")
    assert (len(gapped), gapped.begin) == (20, 1)
    several = {"run": np.repeat(np.arange(10), 10), "x": values}
    whole = read_table(several)
    found = continued(whole, "test")
    assert [(len(each), each.begin) for each in found] == [(10, 1)] * len(whole.test)
