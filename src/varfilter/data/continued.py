"""Held-out sequences, each with the rows before it where it goes on from a training sequence."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from varfilter.data.dataset import SPLITS, Dataset

# Rows before a held-out part that a predictor is told of: as many as the longest season has that is
# looked for (`media/naive.py`), half of the rows by which it is found.
MOST_BEFORE = 2500


@dataclass(frozen=True)
class Continued:
    """A sequence of a split, together with the rows that come before it in another split.

    `xs` are all observations (steps, *event) in the model's units, `us` the known inputs beside
    them, and `times` theirs, where the data have any. Those from `begin` on are to be predicted;
    of a sequence without a past that is all but the first, which is conditioned on.
    """

    name: str
    xs: np.ndarray
    us: np.ndarray | None
    times: np.ndarray | None
    begin: int

    def __len__(self) -> int:
        return len(self.xs)


def continued(
    dataset: Dataset,
    split: str,
    *,
    numbers: Any = None,
    most_before: int = MOST_BEFORE,
    most_steps: int | None = None,
) -> list[Continued]:
    """The sequences of a split that have a step to predict; `numbers` are those wanted, if not all.

    Of each at most `most_before` rows come before it. `most_steps` to be predicted are enough: the
    rest is left out, a last sequence cut short.
    """
    found: list[Continued] = []
    names = dataset.sequence_names(split)
    left = np.inf if most_steps is None else most_steps
    for number in range(len(dataset.split(split))) if numbers is None else map(int, numbers):
        if left <= 0:
            break
        before = _before(dataset, split, number)
        parts = [*before, (split, number)]
        rows = np.concatenate([np.asarray(dataset.split(s)[n]) for s, n in parts])
        xs = dataset.observations(rows)
        num_own = len(dataset.split(split)[number]) // dataset.rows_per_step
        first = max(len(xs) - num_own - most_before, 0)
        begin = max(len(xs) - num_own - first, 1)
        end = int(min(len(xs) - first, begin + left))
        if end <= begin:
            continue
        us = times = None
        if dataset.input_names:
            us = np.concatenate([np.asarray(dataset.inputs[s][n]) for s, n in parts])
            us = us[first : first + end]
        if dataset.times:
            times = np.concatenate([np.asarray(dataset.times[s][n]) for s, n in parts])
            times = times[first : first + end]
        found.append(Continued(names[number], xs[first : first + end], us, times, begin))
        left -= end - begin
    return found


def _before(dataset: Dataset, split: str, number: int) -> list[tuple[str, int]]:
    """(split, number) of the parts that the sequence goes on from, in order."""
    parts: list[tuple[str, int]] = []
    if dataset.rows_per_step > 1 or not dataset.times:
        return parts
    times = np.asarray(dataset.times[split][number])
    for earlier in reversed(SPLITS[: SPLITS.index(split)]):
        place = _same_sequence(dataset, split, number, earlier)
        if place is None:
            continue
        past = np.asarray(dataset.times[earlier][place])
        if not len(past) or not _goes_on(past, times):
            break
        parts.insert(0, (earlier, place))
        times = past
    return parts


def _same_sequence(dataset: Dataset, split: str, number: int, earlier: str) -> int | None:
    """The number that the sequence has in an earlier split, if it was cut in time."""
    names = dataset.names.get(earlier)
    if not names or not dataset.names.get(split):
        alone = len(dataset.split(split)) == len(dataset.split(earlier)) == 1
        return 0 if alone else None
    name = dataset.names[split][number]
    return names.index(name) if name in names else None


def _goes_on(past: np.ndarray, times: np.ndarray) -> bool:
    """Whether the first of `times` is one step after the last of `past`, give or take a half."""
    both = np.concatenate([past[-50:], times[:50]])
    steps = np.diff(both) / np.timedelta64(1, "us") if both.dtype.kind == "M" else np.diff(both)
    usual = np.median(steps)
    here = steps[len(past[-50:]) - 1]
    return bool(0 < here < 1.5 * usual)
