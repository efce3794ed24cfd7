"""Which sequences are for training, for validation and for test, where the files do not say."""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from varfilter._arguments import require_positive
from varfilter.data.dataset import SPLITS


def split_by_sequence(
    num: int, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0
) -> dict[str, np.ndarray]:
    """The numbers, in rising order, of the `num` sequences that go to train, valid and test.

    `fractions` are of the sequences, not of their steps. Whole sequences only: two windows of
    one recording never lie on both sides. No split is empty. The same seed gives the same
    split on every machine.
    """
    require_positive("num", num)
    require_fractions(fractions)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ValueError(f"`seed` must be a whole number; got {seed!r}.")
    if num < len(SPLITS):
        raise ValueError(
            f"`num` is {num}: train, valid and test need a sequence each. Give at least"
            " 3 files or sequences, or your own split."
        )
    # Ordered by a hash: NumPy may change its generators from one version to the next.
    order = np.array(sorted(range(num), key=lambda number: _hash(int(seed), number)), np.int64)
    ends = np.cumsum(_sizes(num, fractions))
    return {
        split: np.sort(order[begin:end])
        for split, begin, end in zip(SPLITS, (0, *ends[:-1]), ends, strict=True)
    }


def require_fractions(fractions: Any) -> None:
    """Three positive numbers that sum to 1."""
    fits = isinstance(fractions, Sequence | np.ndarray) and len(fractions) == len(SPLITS)
    fits = fits and all(isinstance(part, float | int | np.number) for part in fractions)
    fits = fits and all(part > 0.0 for part in fractions) and math.isclose(sum(fractions), 1.0)
    if not fits:
        raise ValueError(
            "`fractions` must be three positive numbers that sum to 1, for train, valid and"
            f" test; got {fractions!r}."
        )


def _sizes(num: int, fractions: Sequence[float]) -> np.ndarray:
    """Whole numbers nearest to the fractions that sum to `num`, each at least 1."""
    exact = num * np.asarray(fractions, np.float64)
    sizes = np.floor(exact + 1e-9).astype(np.int64)
    largest_remainders = np.argsort(sizes - exact, kind="stable")
    sizes[largest_remainders[: num - sizes.sum()]] += 1
    for empty in np.flatnonzero(sizes == 0):
        sizes[np.argmax(sizes)] -= 1
        sizes[empty] += 1
    return sizes


def _hash(seed: int, number: int) -> bytes:
    return hashlib.sha256(f"{seed} {number}".encode()).digest()
