"""Linear prediction finds the filter that made a sound, and scores what a model is scored on."""

import numpy as np
import pytest
from scipy.stats import norm

from varfilter.data import Dataset, Family, Ragged, Scaling
from varfilter.distributions import DiscretizedNormal
from varfilter.media.linear_prediction import (
    LinearPrediction,
    fit_linear_prediction,
    linear_prediction_reference,
)

COEFFICIENTS, SPREAD = np.array([1.6, -0.8]), 0.3


def resonance(size, seed):
    """White noise through a resonant filter of order two, around 0.5."""
    noise = SPREAD * np.random.default_rng(seed).normal(size=size)
    samples = np.zeros(size)
    for n in range(size):
        samples[n] = noise[n] + sum(
            a * samples[n - k] for k, a in enumerate(COEFFICIENTS, 1) if n >= k
        )
    return samples + 0.5


def test_the_filter_that_made_a_sound_is_found():
    sounds = [resonance(20_000, seed) for seed in range(3)]
    fitted = fit_linear_prediction(iter([*sounds, np.zeros(2)]), 2)
    # The standard error of a coefficient is sqrt((1 - a_2^2) / n) = 0.0025; four of them.
    np.testing.assert_allclose(fitted.coefficients, COEFFICIENTS, atol=0.01)
    assert fitted.constant == pytest.approx(0.5 * (1 - COEFFICIENTS.sum()), abs=0.01)
    # That of a spread is SPREAD / sqrt(2 n) = 0.0009.
    assert fitted.spread == pytest.approx(SPREAD, abs=0.004)


def test_least_squares_is_that_of_a_direct_solution():
    samples = resonance(300, 0)
    fitted = fit_linear_prediction(iter([samples]), 4)
    rows = np.stack([samples[n - 4 : n][::-1] for n in range(4, 300)])
    design = np.concatenate([np.ones((len(rows), 1)), rows], axis=1)
    direct, square, *_ = np.linalg.lstsq(design, samples[4:], rcond=None)
    np.testing.assert_allclose([fitted.constant, *fitted.coefficients], direct, rtol=1e-6)
    assert fitted.spread == pytest.approx(float(np.sqrt(square[0] / len(rows))), rel=1e-6)


def test_silence_is_foretold():
    fitted = fit_linear_prediction(iter([np.zeros(100)]), 8)
    assert isinstance(fitted, LinearPrediction)
    assert fitted.spread == 0.0
    assert np.isfinite(fitted.means(np.zeros(20))).all()


def test_the_scored_samples_are_those_of_a_model():
    scale, step = 1000.0, 20
    sounds = [np.rint(scale * resonance(900 + 7 * i, i)).astype(np.int16) for i in range(5)]
    family = Family(DiscretizedNormal, width=1 / scale)
    dataset = Dataset(
        "tones", Ragged.of(sounds[:3]), Ragged.of(sounds[3:4]), Ragged.of(sounds[4:]), family,
        Scaling(0.0, scale), rows_per_step=step, rate=8000, medium="sound",
    )  # fmt: skip
    found = linear_prediction_reference(dataset, "test")
    assert found.what == "each sample from the 20 before it, linearly"
    # By hand: a Gaussian's probability of each level, in the order of the samples.
    xs = [np.asarray(s[: len(s) // step * step], float) / scale for s in sounds]
    fitted = fit_linear_prediction(iter(xs[:3]), step)
    held_out, nats = xs[4], 0.0
    for n in range(step, len(held_out)):
        mean = fitted.constant + fitted.coefficients @ held_out[n - step : n][::-1]
        edges = (held_out[n] + np.array([0.5, -0.5]) / scale - mean) / fitted.spread
        nats -= np.log(norm.cdf(edges[0]) - norm.cdf(edges[1]))
    assert found.nats == pytest.approx(nats / (len(held_out) // step - 1), rel=1e-4)
