"""How likely the values of a column are under families with longer tails than a Gaussian's.

Plain fits of the distribution of all values together: they choose a family, and where its learning
starts. What is known of a value from those before it, a model learns later.
"""

import math
from typing import NamedTuple

import numpy as np

# Degrees of freedom that are tried; with more it is a Gaussian for any purpose.
FREEDOMS = (2.6, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 11.0, 15.0, 22.0, 30.0)
# Steps of the fit of each, which converges by a factor of two or more a step.
NUM_STEPS = 25
# The sizes r of a negative binomial that are tried.
SIZES = np.exp(np.linspace(-4.0, 7.0, 45))
# More values tell no more of a tail, and take time.
MOST_VALUES = 20_000


class StudentFit(NamedTuple):
    """Degrees of freedom, and nats in all by which Student's t is likelier than a Gaussian.

    They are of `num_values` values, with their centre and scale.
    """

    freedom: float
    gain: float
    num_values: int
    centre: float
    scale: float


def student_fit(values: np.ndarray, *, finest: float = 0.0) -> StudentFit:
    """The likeliest Student's t, by expectation and maximisation for each degree of freedom.

    Its scale, and the Gaussian's, is at least `finest`.
    """
    count = values.size
    values = _thinned(values)
    mean, spread = (float(values.mean()), float(values.std())) if count else (0.0, 0.0)
    if not spread > finest:
        return StudentFit(FREEDOMS[-1], 0.0, count, mean, max(spread, finest) or 1.0)
    least = max((finest / spread) ** 2, 1e-12)
    z = (values - mean) / spread
    # With centre and spread fitted, a Gaussian has 1 nat of energy for two values.
    gaussian = -0.5 * math.log(2 * math.pi) - 0.5
    best = StudentFit(FREEDOMS[-1], -math.inf, count, mean, spread)
    for nu in FREEDOMS:
        centre, square = 0.0, 0.5
        for _ in range(NUM_STEPS):
            weights = (nu + 1.0) / (nu + (z - centre) ** 2 / square)
            centre = float(np.sum(weights * z) / np.sum(weights))
            square = max(float(np.mean(weights * (z - centre) ** 2)), least)
        constant = math.lgamma(0.5 * (nu + 1)) - math.lgamma(0.5 * nu)
        constant -= 0.5 * math.log(math.pi * nu * square)
        nats = constant - 0.5 * (nu + 1) * np.mean(np.log1p((z - centre) ** 2 / (nu * square)))
        gain = count * (float(nats) - gaussian)
        if gain > best.gain:
            scale = spread * math.sqrt(square)
            best = StudentFit(nu, gain, count, mean + spread * centre, scale)
    return best


class EventsFit(NamedTuple):
    """The size r of a negative binomial, and nats in all by which it is likelier than a count."""

    size: float
    gain: float


def events_fit(values: np.ndarray) -> EventsFit:
    """The likeliest negative binomial, beside whole numbers of a Gaussian."""
    levels, counts = np.unique(values, return_counts=True)
    mean = float(values.mean())
    gaussian = float(np.sum(counts * _log_masses(levels, mean, float(values.std()))))
    nats = [float(np.sum(counts * log_negative_binomial(levels, mean, r))) for r in SIZES]
    best = int(np.argmax(nats))
    return EventsFit(float(SIZES[best]), nats[best] - gaussian)


def log_negative_binomial(n: np.ndarray, mean: float, size: float) -> np.ndarray:
    """log P(n) of a negative binomial, by its mean and its size r."""
    log_gamma = np.vectorize(math.lgamma, otypes=[float])
    choices = log_gamma(n + size) - log_gamma(n + 1.0) - math.lgamma(size)
    rest = size * math.log(size / (size + mean)) if mean > 0 else 0.0
    return choices + rest + n * math.log(max(mean / (size + mean), 1e-300))


def _log_masses(n: np.ndarray, mean: float, spread: float) -> np.ndarray:
    """log P(n) of whole numbers of a Gaussian, of which all below 0 count as 0."""
    spread = max(spread, 0.25)
    above = np.vectorize(math.erfc, otypes=[float])
    # Of the tail that n lies in, so that nothing cancels.
    sign = np.where(n > mean, 1.0, -1.0)
    near, far = ((sign * (n - mean) + shift) / (spread * math.sqrt(2.0)) for shift in (-0.5, 0.5))
    masses = 0.5 * (above(near) - above(far))
    lowest = 0.5 * above((mean - n - 0.5) / (spread * math.sqrt(2.0)))
    return np.log(np.maximum(np.where(n < 0.5, lowest, masses), 1e-300))


def _thinned(values: np.ndarray) -> np.ndarray:
    return values[:: -(-values.size // MOST_VALUES)] if values.size > MOST_VALUES else values
