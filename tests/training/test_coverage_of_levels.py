"""Bands of what has levels, or is often 0: right predictions hold what they say, and no more."""

import numpy as np
import pytest
from scipy import stats

from varfilter.data.dataset import Dataset, Family
from varfilter.data.ragged import Ragged
from varfilter.distributions import NegativeBinomial, Normal, Rectified, ZeroInflated
from varfilter.media.gaussians import Gaussians
from varfilter.training.predictive_draws import AS_IT_IS, WIDTHS, Drawn
from varfilter.training.predictive_scores import column_scores

RNG = np.random.default_rng(0)
NUM = 4000
# Three standard errors of a share of 0.9 of so many values.
NEAR = 3 * np.sqrt(0.09 / NUM)
FAMILIES = (
    Family(NegativeBinomial, width=1.0, low=0.0), Family(ZeroInflated), Family(Normal),
    Family(Rectified, low=0.0),
)  # fmt: skip
NAMES = ("visits", "rain", "level", "open")
PART = Ragged.of([np.zeros((3, 4), np.float32)])
MADE = Dataset("made", PART, PART, PART, FAMILIES, columns=NAMES)


def values(*shape):
    """Visits are mostly 0, rain is 0 in three of four, a level is Gaussian, a valve often shut."""
    rain = np.where(RNG.random(shape) < 0.75, 0.0, np.exp(RNG.normal(size=shape)))
    valve = np.maximum(RNG.normal(0.3, 1.0, shape), 0.0)
    parts = (RNG.poisson(0.4, shape), rain, RNG.normal(size=shape), valve)
    return np.stack(parts, axis=-1).astype(np.float64)


def test_draws_of_the_truth_hold_nine_in_ten():
    """The plain share inside of the edges would be 0.99 of the visits, and 0.95 of the rain."""
    xs, draws = values(NUM), values(NUM, 400)
    nats = np.zeros((NUM, len(WIDTHS), 4))
    found = Drawn(xs, draws.mean(axis=1), nats, draws.astype(np.float32)).scored()
    scores = column_scores(MADE, found)
    for name in NAMES:
        assert scores[name]["within_90"] == pytest.approx(0.9, abs=NEAR + 0.003)  # of 400 draws
        assert scores[name]["within_50"] == pytest.approx(0.5, abs=2 * NEAR)
    plain = column_scores(MADE, found._replace(chances=None))
    assert plain["visits"]["within_90"] > 0.98
    assert plain["level"] == scores["level"]
    # Who is sure of a 0, and right, is inside as often as a band of such a size says.
    sure = Drawn(0 * xs, 0 * xs[..., :], nats, np.zeros((NUM, 9, 4), np.float32)).scored()
    assert column_scores(MADE, sure)["rain"]["within_90"] == pytest.approx(0.9)
    assert nats.shape[1] > AS_IT_IS


def test_gaussians_have_the_chances_of_their_levels_and_bounds():
    centre = np.tile([0.4, 0.5, 1.0, 0.3], (NUM, 1))
    spread = np.tile([0.8, 1.0, 2.0, 1.0], (NUM, 1))
    gaussians = Gaussians.of(centre, spread)
    y = RNG.normal(centre, spread)
    xs = np.stack([np.maximum(np.rint(y[:, 0]), 0), np.maximum(y[:, 1], 0), y[:, 2],
                   np.maximum(y[:, 3], 0)], axis=1)  # fmt: skip
    below, own = gaussians.chances(MADE, xs)
    is_zero = xs[:, 0] == 0
    np.testing.assert_allclose(below[is_zero, 0], 0.0)
    np.testing.assert_allclose(own[is_zero, 0], stats.norm(0.4, 0.8).cdf(0.5))
    up_to = stats.norm(0.4, 0.8).cdf(xs[~is_zero, 0] + 0.5)
    np.testing.assert_allclose((below + own)[~is_zero, 0], up_to)
    np.testing.assert_allclose(own[xs[:, 1] == 0, 1], stats.norm(0.5, 1.0).cdf(0.0))
    np.testing.assert_allclose(below[:, 2], stats.norm(1.0, 2.0).cdf(xs[:, 2]))
    assert not own[:, 2].any()
    scores = column_scores(MADE, gaussians.scored(MADE, xs))
    for name in NAMES:
        assert scores[name]["within_90"] == pytest.approx(0.9, abs=NEAR)
    missing = np.full((1, 4), np.nan)
    assert np.isnan(gaussians.part(slice(1)).chances(MADE, missing)).all()
