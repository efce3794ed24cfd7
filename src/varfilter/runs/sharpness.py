"""How much sharper than its parts say a pool of forecasts is: G(x) = I_a(F(x)).

A mixture of predictions that are right is too wide: it holds what any of them expects. I_a is the
distribution function of the symmetric beta distribution with a, by which the ranks F(x) of what
came are spread evenly (a beta-transformed linear pool: Ranjan and Gneiting 2010). With a = 1 the
mixture is as it is; with more its bands are narrower. It is found by the ranks of the validated
values, one step ahead, and at all further horizons together; few of them leave it near 1.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from varfilter.training.predictive_scores import Weighted

# The spread of log a before anything was validated, and how far a may be from 1.
SPREAD, MOST = 0.15, 3.0
# Draws tell of no smaller ranks; and what has less probability has a density.
SMALLEST_RANK, SMALLEST_MASS = 1e-3, 1e-3


def nats_of_sharpness(chances: np.ndarray, sharpness: np.ndarray | float) -> np.ndarray:
    """By how much -log p(x) changes where a mixture had P(X < x) and P(X = x), (2, ...)."""
    from scipy.special import betainc, betaln

    a = np.asarray(sharpness, np.float64)
    below, own = chances
    up_to = np.clip(below + own, 0.0, 1.0)
    rank = np.clip(below + 0.5 * own, SMALLEST_RANK, 1.0 - SMALLEST_RANK)
    of_density = (a - 1.0) * (np.log(rank) + np.log1p(-rank)) - betaln(a, a)
    mass = betainc(a, a, up_to) - betainc(a, a, np.clip(below, 0.0, 1.0))
    has_mass = own > SMALLEST_MASS
    of_mass = np.log(np.maximum(mass, 1e-12) / np.where(has_mass, own, 1.0))
    return np.where(a == 1.0, 0.0, -np.where(has_mass, of_mass, of_density))


def fitted_sharpness(
    chances: Sequence[np.ndarray], counts: Sequence[float], spread: float = SPREAD
) -> float:
    """The likeliest a of a column, by its values (2, values) at each horizon.

    Each of a horizon counts for so many independent ones.
    """
    from scipy.optimize import minimize_scalar

    pairs = list(zip(chances, counts, strict=True))

    def loss(log_a: float) -> float:
        nats = [c * np.nansum(nats_of_sharpness(each, np.exp(log_a))) for each, c in pairs]
        return float(np.sum(nats) + 0.5 * (log_a / spread) ** 2)

    most = float(np.log(MOST))
    found: Any = minimize_scalar(loss, bounds=(-most, most), method="bounded")
    return float(np.exp(found.x))


def sharpened(mixture: Weighted, sharpness: np.ndarray) -> Weighted:
    """The mixture (values, ..., columns) with the sharpness of each column."""
    from scipy.special import betainc

    if np.all(sharpness == 1.0):
        return mixture
    ends = np.clip(np.cumsum(mixture.weights, axis=0), 0.0, 1.0)
    moved = np.where(sharpness == 1.0, ends, betainc(sharpness, sharpness, ends))
    weights = np.diff(moved, axis=0, prepend=0.0)
    heavier = weights / np.where(mixture.weights > 0, mixture.weights, 1.0)
    random = mixture.random * heavier
    # The pairs that were made of one draw weigh as much more as draws do on the whole.
    before, after = np.sum(mixture.random, axis=0), np.sum(random, axis=0)
    more = np.where(before > 0, after / np.where(before > 0, before, 1.0), 1.0) ** 2
    return Weighted(mixture.values, weights, random, mixture.repeats * more, mixture.own * more)
