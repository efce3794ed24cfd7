"""Which sequences are for training, for validation and for test, where the files do not say."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from varfilter._arguments import require_positive
from varfilter.data.dataset import SPLITS


def split_by_sequence(
    num: int, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0
) -> dict[str, np.ndarray]:
    """Deal `num` sequences to train, valid and test; the numbers of each, in rising order.

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


def split_by_file(
    folder: Path,
    places: Mapping[Path, Sequence[Path]],
    fractions: Sequence[float],
    seed: int,
    group: Callable[[Path], Hashable] | None = None,
    *,
    kind: str = "files",
) -> dict[Path, str]:
    """Deal the recordings of a folder to the splits; `places` has the files of each recording.

    Recordings of one `group` go to the same split, and so do exact copies, and with them
    their groups. `kind` is what an error calls the recordings.
    """
    links = [("place", place) if group is None else ("group", group(place)) for place in places]
    numbers = _joined(links, _copies(list(places.values())))
    num = len(set(numbers))
    if num < len(SPLITS):
        wanted = kind if group is None else "groups (`group` makes them)"
        found = f"{num}"
        if num < len(places):
            found += f" (of {len(places)} {kind}, exact copies counted once)"
        raise ValueError(
            f"`folder` must hold at least 3 {wanted}, one each for train, valid and test;"
            f" {str(folder)!r} has {found}. Add some, or cut long ones into several."
        )
    chosen = split_by_sequence(num, fractions, seed)
    split_of = {int(number): split for split in SPLITS for number in chosen[split]}
    return {place: split_of[number] for place, number in zip(places, numbers, strict=True)}


def require_fractions(fractions: Any) -> None:
    """Raise an error unless `fractions` are three positive numbers that sum to 1."""
    fits = isinstance(fractions, Sequence | np.ndarray) and len(fractions) == len(SPLITS)
    fits = fits and all(isinstance(part, float | int | np.number) for part in fractions)
    fits = fits and all(part > 0.0 for part in fractions) and math.isclose(sum(fractions), 1.0)
    if not fits:
        raise ValueError(
            "`fractions` must be three positive numbers that sum to 1, for train, valid and"
            f" test; got {fractions!r}."
        )


def _sizes(num: int, fractions: Sequence[float]) -> np.ndarray:
    """The whole numbers nearest to the fractions that sum to `num`, each at least 1."""
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


def _copies(recordings: Sequence[Sequence[Path]]) -> list[Hashable]:
    """A label for each recording, the same for those whose files are the same byte by byte."""
    sizes = [tuple(file.stat().st_size for file in files) for files in recordings]
    counts = Counter(sizes)
    # Few files of a folder have the same size: the others need not be read.
    return [
        ("alone", number) if counts[size] == 1 else ("sha256", _sha256(recordings[number]))
        for number, size in enumerate(sizes)
    ]


def _sha256(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()


def _joined(*labels: Sequence[Hashable]) -> list[int]:
    """The number of each item's class: those that share a label, by one or more steps, are one."""
    leader: dict[Hashable, Hashable] = {}

    def leader_of(label: Hashable) -> Hashable:
        while leader.setdefault(label, label) != label:
            label = leader[label]
        return label

    for first, *others in zip(*labels, strict=True):
        for other in others:
            leader[leader_of(other)] = leader_of(first)
    leaders = [leader_of(first) for first, *_ in zip(*labels, strict=True)]
    numbers = {label: number for number, label in enumerate(dict.fromkeys(leaders))}
    return [numbers[label] for label in leaders]
