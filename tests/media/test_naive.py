"""The naive predictors of each column: seasons that are there, and numbers counted by hand."""

import json

import numpy as np
import pytest
from scipy import integrate, stats

from varfilter.data.continued import Continued, continued
from varfilter.data.dataset import Dataset, Family
from varfilter.data.ragged import Ragged
from varfilter.data.tables.read import read_table
from varfilter.distributions import (
    Bernoulli,
    Categorical,
    DiscretizedNormal,
    Normal,
    Rectified,
    ZeroInflated,
)
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


def naive_of(values, horizons=(1,), season=None, families=None):
    """The naive predictor of training rows (steps, columns)."""
    values = np.asarray(values, np.float32).reshape(len(values), -1)
    families = families or (Family(Normal),) * values.shape[1]
    part = Ragged.of([values])
    names = tuple("abcdef"[: len(families)])
    return Naive.of(Dataset("made", part, part, part, families, columns=names), horizons, season)


def test_the_spread_goes_on_as_it_grew():
    """That of a walk as the root of time, beyond all training rows; that of noise not at all."""
    noise = np.random.default_rng(0).normal(size=(2, 4000))
    naive = naive_of(np.stack([np.cumsum(noise[0]), noise[1]], axis=1), (1, 2, 4))
    sequence = Continued("one", np.zeros((5, 2), np.float32), None, None, 5)
    spread = naive(sequence, np.array([5]), 3000).spread[0]
    # 4,000 steps have but 8 changes over 512 that do not overlap: a third of their spread.
    np.testing.assert_allclose(spread[[15, 63], 0], [4.0, 8.0], rtol=0.25)
    assert 1.3 < spread[2999, 0] / spread[749, 0] < 4.1  # 2 of a walk, at most in proportion
    assert spread[2999, 0] > 25
    np.testing.assert_allclose(spread[[0, 63, 2999], 1], 2**0.5, rtol=0.1)
    again = Naive.from_json(json.loads(json.dumps(naive.as_json())))
    np.testing.assert_array_equal(again(sequence, np.array([5]), 3000).spread[0], spread)
    # Of one horizon alone, as of a short table, it is that of a walk; of a season, by whole ones.
    short = naive_of(np.arange(6.0) % 4 * np.array([1.0, -1.0, 2.0, 1.0, 3.0, 2.0]))
    spread = short(Continued("one", np.zeros((5, 1), np.float32), None, None, 5), np.array([5]), 9)
    assert spread.spread[0, 8, 0] == pytest.approx(3.0 * spread.spread[0, 0, 0])
    seasons = naive_of(np.cumsum(noise[0][:60]), (1,), season=20)
    own = Continued("one", np.zeros((60, 1), np.float32), None, None, 60)
    spread = seasons(own, np.array([60]), 80).spread[0, :, 0]
    np.testing.assert_allclose(spread[[0, 19]], spread[0])
    np.testing.assert_allclose(spread[[20, 79]], spread[0] * np.array([2**0.5, 2.0]))


def test_what_was_last_seen_long_ago_has_gone_further():
    walk = np.cumsum(np.random.default_rng(0).normal(size=(2000, 1)), axis=0)
    naive = naive_of(walk, (1, 16))
    xs = np.zeros((40, 1), np.float32)
    whole = naive(Continued("one", xs, None, None, 40), np.array([40]), 20).spread[0, :, 0]
    xs[-15:] = np.nan
    gap = naive(Continued("one", xs, None, None, 40), np.array([40]), 5).spread[0, :, 0]
    np.testing.assert_allclose(gap, whole[15:])
    # What was never seen is as far from the mean as values are.
    xs[:] = np.nan
    never = naive(Continued("one", xs, None, None, 40), np.array([40]), 5)
    np.testing.assert_allclose(never.spread[0, :, 0], walk.std(), rtol=1e-5)
    # In training, too: a column that is seen each fifth step has no change of one step.
    walk[np.arange(2000) % 5 > 0] = np.nan
    sparse = naive_of(walk, (1, 16))
    xs[:] = 0.0
    spread = sparse(Continued("one", xs, None, None, 40), np.array([40]), 10).spread[0, :, 0]
    assert spread[9] == pytest.approx(10**0.5, rel=0.2)


def test_a_forecast_knows_as_much_as_a_long_season_has():
    rows = np.tile(np.random.default_rng(0).normal(size=900), 6)
    dataset = read_table({"x": rows}, fractions=(0.8, 0.1, 0.1))
    season = season_of(dataset)
    assert season.length == 900
    (sequence,) = continued(dataset, "test")
    naive = Naive.of(dataset, (1,), season.length)
    found = naive(sequence, np.array([sequence.begin]), 500).centre[0, :, 0]
    xs = sequence.xs[sequence.begin : sequence.begin + 500, 0]
    np.testing.assert_allclose(found, xs, atol=1e-6)


def test_nothing_is_said_of_what_cannot_be():
    """Rain below 0, more than all of a share, half a count; levels are one of them."""
    families = (
        Family(ZeroInflated), Family(Rectified, low=-1.0, high=1.5),
        Family(DiscretizedNormal, 0.5, -1.0),
        *(Family(Categorical, group="state"),) * 3,
    )  # fmt: skip
    part = Ragged.of([np.zeros((3, 6), np.float32)])
    dataset = Dataset("made", part, part, part, families, columns=tuple("abcdef"))
    centre = np.array([[0.1, 1.4, -0.9, 0.6, 0.9, 0.3], [-2.0, -0.5, 0.4, 0.1, 0.1, 0.1]])
    spread = np.array([1.0, 2.0, 0.7, 1.0, 1.0, 1.0])
    found = Gaussians.of(centre, spread).summing_to_one(((3, 4, 5),))
    levels = tuple((np.arange(999) + 0.5) / 999)
    quantiles, mean = found.quantiles(dataset, levels), found.mean(dataset)
    assert (quantiles[..., 0] >= 0).all()
    assert ((quantiles[..., 1] >= -1.0) & (quantiles[..., 1] <= 1.5)).all()
    # The mean is that of all of them, up to what 999 quantiles leave of a tail, and to half a level
    # of 0.5 at a bound, which a sixtieth of the values are nearest to from within.
    np.testing.assert_allclose(mean, quantiles.mean(axis=0), atol=8e-3)
    np.testing.assert_allclose(mean[:, 3:].sum(axis=1), 1.0)
    np.testing.assert_array_equal(quantiles[..., 3:].sum(axis=-1), 1.0)
    # The score of a Gaussian that is held at its bounds, as an integral between them.
    xs = np.array([[0.4, 1.0, 0.1, 1, 0, 0], [0.0, -1.0, 0.1, 0, 0, 1]])
    crps = found.scored(dataset, xs).crps
    for row, column, low, high in ((0, 0, 0, 9), (1, 0, 0, 9), (0, 1, -1, 1.5), (1, 1, -1, 1.5)):
        cdf, x = stats.norm(centre[row, column], spread[column]).cdf, xs[row, column]
        below = integrate.quad(lambda y, cdf=cdf: cdf(y) ** 2, low, x)[0]
        above = integrate.quad(lambda y, cdf=cdf: (1 - cdf(y)) ** 2, x, high)[0]
        assert crps[row, column] == pytest.approx(below + above, rel=1e-6)


def test_levels_that_were_last_seen_have_probabilities_of_one_in_all():
    state = np.random.default_rng(0).choice(3, 200, p=[0.6, 0.3, 0.1])
    families = (Family(Categorical, group="state"),) * 3
    naive = naive_of(np.eye(3)[state], (1, 4), families=families)
    for xs in (np.eye(3)[state[:5]], np.full((5, 3), np.nan)):
        own = Continued("one", xs.astype(np.float32), None, None, 5)
        found = naive(own, np.array([3, 5]), 6).centre
        np.testing.assert_allclose(found.sum(axis=-1), 1.0)


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
