"""Which rows of a table are for training, for validation and for test."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from varfilter.data.dataset import SPLITS
from varfilter.data.splits import require_fractions, split_by_sequence
from varfilter.data.table_rows import Rows

# (sequence, first row, row past the last) in `Rows`.
Part = tuple[int, int, int]


def require_split(split: str, fractions: Any) -> None:
    """`split` is one of its words, and `fractions` are three that sum to 1."""
    if split not in ("auto", "sequence", "time"):
        raise ValueError(f"`split` must be 'auto', 'sequence' or 'time'; got {split!r}.")
    require_fractions(fractions)


def sequences_of(rows: Rows) -> list[Part]:
    """All rows, a part for each sequence."""
    return [(i, int(a), int(b)) for i, (a, b) in enumerate(itertools.pairwise(rows.starts))]


def splits_sequences(rows: Rows, split: str) -> bool:
    """Whether whole sequences are drawn, and not the rows of each divided by time."""
    return split == "sequence" or (split == "auto" and len(rows.starts) > len(SPLITS))


def parts_of(
    rows: Rows, split: str, fractions: Sequence[float], seed: int
) -> dict[str, list[Part]]:
    """Which rows are for training, validation and test."""
    runs = sequences_of(rows)
    if splits_sequences(rows, split):
        if len(runs) < len(SPLITS):
            raise ValueError(
                f"`split` is by sequence, but there are {len(runs)}: train, valid and test need one"
                " each. Give `split='time'`, or name the column of sequences in `sequence`."
            )
        numbers = split_by_sequence(len(runs), fractions, seed)
        return {name: [runs[i] for i in numbers[name]] for name in SPLITS}
    parts: dict[str, list[Part]] = {name: [] for name in SPLITS}
    for i, begin, end in runs:
        cuts = [begin, *_cuts(rows.stamps[begin:end], begin, fractions), end]
        for name, (first, last) in zip(SPLITS, itertools.pairwise(cuts), strict=True):
            if first < last:
                parts[name].append((i, first, last))
    for name in SPLITS:
        if not parts[name]:
            raise ValueError(
                f"`source` has {len(rows.stamps)} rows in {len(runs)} sequences: too few to leave"
                f" any for {name}. Give a longer table."
            )
    return parts


def _cuts(stamps: np.ndarray, begin: int, fractions: Sequence[float]) -> list[int]:
    """Where the rows for validation begin, and those for test; equal times stay together."""
    distinct = np.unique(stamps)
    size = len(distinct)
    if size < len(SPLITS):
        return [begin + len(stamps)] * 2
    first = min(max(math.floor(fractions[0] * size + 0.5), 1), size - 2)
    second = math.floor((fractions[0] + fractions[1]) * size + 0.5)
    second = min(max(second, first + 1), size - 1)
    return [begin + int(np.searchsorted(stamps, distinct[i])) for i in (first, second)]
