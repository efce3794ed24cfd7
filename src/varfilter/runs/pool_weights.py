"""The weights of a pool of forecasts: by how probable values were, and by how far means were off.

A density is weighed by the values that it made probable, and a mean by its squared errors: a few
outliers that a density rightly allows for may put its mean where no value was. Both begin with what
was believed before, and few values leave them near that.
"""

import numpy as np

from varfilter.training.predictive_draws import AS_IT_IS, WIDTHS

# The weight of the model before anything was validated, one step ahead, which it was trained for.
# Further ahead nobody knows which of the predictors is the best, and each begins with as much.
START = 2 / 3
# How the widths of the model share its weight; in a mean, its own mean and the one that is next to
# its median (`WIDTHS` are about that) do, since of a long tail the median may be the better one.
START_OF_WIDTHS = (0.05, 0.1, 0.7, 0.1, 0.05)
START_OF_MEANS = (0.25, 0.0, 0.75, 0.0, 0.0)
# How many independent values the start counts for.
STRENGTH = 5.0
NUM_ITERATIONS = 200
# Squared errors below this part of the largest predictor's are none: of a constant all are 0.
SMALLEST_ERROR = 1e-9


def start_weights(
    horizon: int, num_references: int, references: np.ndarray | None = None
) -> np.ndarray:
    """The weights of a pool so many steps ahead before anything was validated.

    `references` are those of the references among each other; None: the same for each.
    """
    own = START if horizon == 1 else 1.0 / (1 + num_references)
    shares = np.full(num_references, 1.0 / num_references) if references is None else references
    return np.append(own * np.array(START_OF_WIDTHS), (1.0 - own) * shares)


def as_it_is(start: np.ndarray) -> np.ndarray:
    """The start of a column whose predictions have the one width that they have."""
    found = start.copy()
    found[: len(WIDTHS)] = 0.0
    found[AS_IT_IS] = start[: len(WIDTHS)].sum()
    return found


def most_probable_weights(
    nats: np.ndarray, count: float | np.ndarray, start: np.ndarray
) -> np.ndarray:
    """The weights of a mixture by which values are the most probable, by expectation-maximization.

    `nats` (values, predictors) are -log p_k(x), NaN where nothing was observed; each value counts
    for `count` independent ones. `start` is the mean of their Dirichlet prior; what is 0 there
    stays 0.
    """
    possible = start > 0
    nats, own = nats[:, possible], start[possible]
    seen = ~np.isnan(nats).any(axis=1)
    nats, counts = nats[seen], np.broadcast_to(count, seen.shape)[seen]
    likelihoods, weights = np.exp(nats.min(axis=1, keepdims=True) - nats), own
    for _ in range(NUM_ITERATIONS):
        shares = weights * likelihoods
        shares = shares / shares.sum(axis=1, keepdims=True)
        weights = counts @ shares + STRENGTH * own
        weights = weights / weights.sum()
    found = np.zeros_like(start)
    found[possible] = weights
    return found


def least_error_weights(
    means: np.ndarray, xs: np.ndarray, count: float, densities: np.ndarray
) -> np.ndarray:
    """The weights of the means by which the squared errors of values are the least.

    `means` (values, predictors) are what was expected of `xs`, NaN where nothing was observed. As
    the likeliest Gaussian of one spread about sum_k v_k m_k, with a Dirichlet prior. Its mean has
    the references as those weights have them that `densities` start with, and the model's share in
    its own mean and the one next to its median.
    """
    from scipy.optimize import minimize

    start = densities.copy()
    start[: len(WIDTHS)] = densities[: len(WIDTHS)].sum() * np.array(START_OF_MEANS)
    possible, seen = start > 0, ~np.isnan(xs) & ~np.isnan(means).any(axis=1)
    own = start[possible]
    errors = means[seen][:, possible] - xs[seen, None]
    products = errors.T @ errors / max(len(errors), 1)
    largest = float(np.max(np.diag(products), initial=0.0))
    if not (len(errors) and np.isfinite(products).all() and largest > 0):
        return start
    products, num_values = products / largest, count * len(errors)

    def loss(logits: np.ndarray) -> tuple[float, np.ndarray]:
        """-log of the posterior, and its gradient."""
        parts = np.exp(logits - logits.max())
        parts = parts / parts.sum()
        square = parts @ products @ parts + SMALLEST_ERROR
        slope = num_values * (products @ parts) / square * parts - STRENGTH * own
        value = 0.5 * num_values * np.log(square) - STRENGTH * np.sum(own * np.log(parts))
        return float(value), slope - parts * slope.sum()

    logits = minimize(loss, np.log(own), jac=True, method="L-BFGS-B").x
    found = np.zeros_like(start)
    found[possible] = np.exp(logits - logits.max())
    return found / found.sum()
