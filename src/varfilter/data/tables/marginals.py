"""How well a family fits a column: the shares of its training values in bins, and those expected.

All values together, whatever came before them: a picture of the family, not of a model.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from varfilter.data.tables.kinds import binding_bounds, model_values
from varfilter.data.tables.tails import events_fit, log_negative_binomial, student_fit

# Bins of a histogram, and the share of the values at either end that is put into the last ones.
NUM_BINS, BEYOND = 40, 0.002
# Steps of the fit of a Gaussian that is held at bounds.
NUM_STEPS = 100
# P(value <= x)
Law = Callable[[np.ndarray], np.ndarray]


class Marginal(NamedTuple):
    """The shares of a column's training values, and what its family and a Gaussian expect.

    Of a column of levels, `edges` are around their numbers, and nothing is expected but the shares.
    """

    edges: np.ndarray
    shares: np.ndarray
    expected: np.ndarray | None = None
    gaussian: np.ndarray | None = None


def marginal_of(kind: str, motion: str, sequences: Sequence[np.ndarray]) -> Marginal:
    """The shares of what a model is told of a column, and those that its family expects."""
    values = np.concatenate([each[~np.isnan(each)] for each in model_values(motion, sequences)])
    if kind in ("binary", "categorical"):
        edges = np.arange(values.max() + 2.0) - 0.5
        return Marginal(edges, _shares(values, edges))
    is_whole = kind in ("count", "events")
    edges = _edges(values, is_whole=is_whole)
    mean, spread = float(values.mean()), max(float(values.std()), 1e-9)
    gaussian = _expected(lambda x: _ndtr((x - mean) / spread), edges)
    law = _law(kind, values)
    expected = gaussian if law is None else _expected(law, edges)
    return Marginal(edges, _shares(values, edges), expected, None if law is None else gaussian)


def _law(kind: str, values: np.ndarray) -> Law | None:
    """The distribution function of a family, fitted to the values; None for a Gaussian."""
    if kind == "heavy":
        from scipy.special import stdtr

        fit = student_fit(values)
        return lambda x: stdtr(fit.freedom, (x - fit.centre) / fit.scale)
    if kind == "zeros":
        logs = np.log(values[values > 0])
        if logs.size < 2:
            return None
        share, centre = logs.size / values.size, float(logs.mean())
        spread = max(float(logs.std()), 1e-9)
        return lambda x: np.where(
            x < 0,
            0.0,
            1.0 - share + share * _ndtr((np.log(np.maximum(x, 1e-300)) - centre) / spread),
        )
    if kind == "bounded":
        low, high = binding_bounds(values)
        centre, spread = _held_gaussian(values, low, high)
        return lambda x: np.where(
            x >= (math.inf if high is None else high),
            1.0,
            np.where(x < (-math.inf if low is None else low), 0.0, _ndtr((x - centre) / spread)),
        )
    if kind == "events":
        counts = np.arange(int(values.max()) + 1.0)
        masses = np.exp(log_negative_binomial(counts, values.mean(), events_fit(values).size))
        whole = np.cumsum(masses)
        return lambda x: np.where(
            x < 0, 0.0, whole[np.clip(np.floor(x), 0, len(whole) - 1).astype(np.int64)]
        )
    return None


def _held_gaussian(
    values: np.ndarray, low: float | None, high: float | None
) -> tuple[float, float]:
    """The Gaussian that is likeliest behind values held at bounds, by expectation and maximisation.

    What lies at a bound is beyond it, by as much as the Gaussian of the step before expects.
    """
    at_low = values == low if low is not None else np.zeros(values.shape, bool)
    at_high = values == high if high is not None else np.zeros(values.shape, bool)
    centre, spread = float(values.mean()), max(float(values.std()), 1e-9)
    for _ in range(NUM_STEPS):
        first, second = values.copy(), np.zeros_like(values)
        for is_at, bound, sign in ((at_low, low, -1.0), (at_high, high, 1.0)):
            if bound is None:
                continue
            a = sign * (bound - centre) / spread
            beyond = max(0.5 * math.erfc(a / math.sqrt(2.0)), 1e-300)
            ratio = math.exp(-0.5 * min(a * a, 1400.0)) / math.sqrt(2 * math.pi) / beyond
            first[is_at] = centre + sign * spread * ratio
            second[is_at] = spread**2 * max(1.0 + a * ratio - ratio**2, 0.0)
        centre = float(first.mean())
        spread = max(math.sqrt(float(np.mean((first - centre) ** 2 + second))), 1e-9)
    return centre, spread


def _edges(values: np.ndarray, *, is_whole: bool) -> np.ndarray:
    """The edges of bins; of whole numbers between them, a few in each where they are many."""
    low, high = np.quantile(values, [BEYOND, 1.0 - BEYOND])
    if is_whole:
        step = max(1, math.ceil((high - low + 1) / NUM_BINS))
        return np.arange(math.floor(low), high + step + 1, step) - 0.5
    high = high if high > low else low + 1.0
    # A bound, or a zero, lies inside of its bin and not at the edge of one.
    margin = (high - low) / (2 * NUM_BINS)
    return np.linspace(low - margin, high + margin, NUM_BINS + 1)


def _shares(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The share of the values in each bin; those beyond are in the last ones."""
    held = np.clip(values, (edges[0] + edges[1]) / 2, (edges[-2] + edges[-1]) / 2)
    return np.histogram(np.where((values < edges[0]) | (values > edges[-1]), held, values), edges)[
        0
    ] / max(values.size, 1)


def _expected(law: Law, edges: np.ndarray) -> np.ndarray:
    """What a distribution function expects in each bin; all beyond is in the last ones."""
    below = law(edges)
    below[0], below[-1] = 0.0, 1.0
    return np.diff(below)


def _ndtr(x: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return ndtr(x)
