"""Whether predictions mean what they say: intervals by their coverage, probabilities by counting.

Numeric values: the rank u of x among draws of its prediction is uniform on (0, 1) if the
predictions are right; the central interval of level c then holds x, |2u - 1| <= c, as often as c.
Noughts and ones: of the steps where p was predicted, a part p should be ones.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from varfilter.data.dataset import Dataset
from varfilter.distributions import Bernoulli
from varfilter.report.inspection import Looked

NOMINAL = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
NUM_BINS = 10


def calibration(dataset: Dataset, looked: Sequence[Looked]) -> list[dict[str, Any]]:
    """For each column of a table, else for all elements together: plain numbers."""
    if not dataset.columns:
        ranks, means, xs = (_joined(looked, name) for name in ("ranks", "mean", "xs"))
        families = dataset.family if isinstance(dataset.family, tuple) else (dataset.family,)
        is_binary = all(issubclass(f.distribution, Bernoulli) for f in families)
        return [_part(None, ranks, means, xs, is_binary=is_binary)]
    parts = []
    for i, column in enumerate(dataset.columns):
        family = dataset.family[i] if isinstance(dataset.family, tuple) else dataset.family
        ranks, means, xs = (_joined(looked, name, i) for name in ("ranks", "mean", "xs"))
        is_binary = issubclass(family.distribution, Bernoulli)
        parts.append(_part(column, ranks, means, xs, is_binary=is_binary))
    return parts


def coverage(ranks: np.ndarray) -> list[float]:
    """How many of the values lie in the central interval of each nominal level."""
    return [float(np.mean(np.abs(2 * ranks - 1) <= level)) for level in NOMINAL]


def reliability(probabilities: np.ndarray, ones: np.ndarray) -> dict[str, list[float]]:
    """Mean prediction and frequency of ones by bins of predicted probability; empty bins are not.

    `error` is the mean distance of the two, each bin weighed by what is in it.
    """
    bins = np.minimum((probabilities * NUM_BINS).astype(int), NUM_BINS - 1)
    counts = np.bincount(bins, minlength=NUM_BINS)
    filled = counts > 0
    predicted = np.bincount(bins, probabilities, NUM_BINS)[filled] / counts[filled]
    observed = np.bincount(bins, ones, NUM_BINS)[filled] / counts[filled]
    return {
        "predicted": predicted.tolist(),
        "observed": observed.tolist(),
        "counts": counts[filled].tolist(),
    }


def _part(
    column: str | None, ranks: np.ndarray, means: np.ndarray, xs: np.ndarray, *, is_binary: bool
) -> dict[str, Any]:
    seen = ~np.isnan(xs)
    head = {"column": column, "num_values": int(seen.sum())}
    if is_binary:
        found = reliability(means[seen].astype(np.float64), xs[seen].astype(np.float64))
        distance = np.abs(np.subtract(found["predicted"], found["observed"]))
        error = float(np.average(distance, weights=found["counts"])) if seen.any() else None
        return {**head, "kind": "binary", **found, "error": error}
    ranks = ranks[seen]
    observed = coverage(ranks) if seen.any() else [None] * len(NOMINAL)
    counts = np.histogram(ranks, NUM_BINS, (0.0, 1.0))[0]
    return {
        **head,
        "kind": "numeric",
        "nominal": list(NOMINAL),
        "observed": observed,
        "ranks": counts.tolist(),
    }


def _joined(looked: Sequence[Looked], name: str, column: int | None = None) -> np.ndarray:
    arrays = [getattr(each, name) for each in looked]
    return np.concatenate([(a if column is None else a[:, column]).ravel() for a in arrays])
