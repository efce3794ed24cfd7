"""Rows on the points of their grid: where each lies, which are lost to others, and what is between.

A grid begins where its sequence does.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from varfilter._text import count
from varfilter.data.ragged import Ragged
from varfilter.data.tables.grid import Clock, on_grid, overwritten, require_dense
from varfilter.data.tables.inputs import KnownInputs, held
from varfilter.data.tables.layout import Part, Rows
from varfilter.data.tables.spacing import Spacing
from varfilter.data.tables.zones import Local

# A few rows at times that others have are usual; more tell of a step that is not the table's.
MOST_MERGED = 0.01


class Steps(NamedTuple):
    """Sequences on their grid: rows in the user's units, their times, and their known inputs."""

    rows: Ragged
    times: Ragged
    us: Ragged


# Where each row of a part lies on the grid of its sequence, by split and part.
Points = Mapping[str, Mapping[Part, np.ndarray]]


def grid_points(
    rows: Rows, spacing: Spacing | Local, parts: Mapping[str, list[Part]], *, is_by_rows: bool
) -> Points:
    """Where the rows of each part lie: a grid begins where its sequence does."""

    def lie(part: Part) -> np.ndarray:
        number, begin, end = part
        if is_by_rows:
            return np.arange(end - begin)
        return spacing.places(rows.stamps[begin:end], rows.stamps[rows.starts[number]].item())

    return {name: {part: lie(part) for part in some} for name, some in parts.items()}


def require_dense_grid(rows: Rows, clock: Clock, points: Points, *, at_least: int = 0) -> None:
    """An error if the grid is nearly all gaps."""
    pairs = [pair for some in points.values() for pair in some.items()]
    runs = [rows.stamps[begin:end] for (_, begin, end), _ in pairs]
    require_dense(clock, runs, [at for _, at in pairs], at_least=at_least)


class Merged(NamedTuple):
    """How many rows lie at a point of the grid with others, by what became of them.

    `lost` have lost a value to another one, `repeated` have none that does not come again later, at
    the same time, and `told_otherwise` have other known inputs than the next.
    """

    lost: int = 0
    repeated: int = 0
    told_otherwise: int = 0

    def notes(self) -> list[str]:
        """Sentences on rows of which not all was used."""
        found = []
        if self.lost:
            found.append(
                f"{count(self.lost, 'row')} lost a value to a later row at the same step: the last"
                " one counts."
            )
        if self.repeated:
            one = "has its values once more in a later row at the same step: the same row twice"
            many = "have their values once more in later rows at the same steps: the same rows"
            many += " twice"
            what = one if self.repeated == 1 else many
            found.append(f"{count(self.repeated, 'row')} {what}, of which nothing is lost.")
        if self.told_otherwise:
            have = "has" if self.told_otherwise == 1 else "have"
            found.append(
                f"{count(self.told_otherwise, 'row')} {have} other known inputs than a later row at"
                " the same step: the last ones count."
            )
        return found


def merged_rows(rows: Rows, points: Points, known: np.ndarray | None = None) -> Merged:
    """What becomes of rows at points of the grid that others have too.

    `known` are the input columns of each row.
    """
    found = np.zeros(3, int)
    for (_, begin, end), at in (pair for some in points.values() for pair in some.items()):
        values, stamps = rows.values[begin:end], rows.stamps[begin:end]
        found[:2] += [len(each) for each in overwritten(values, at, stamps)]
        if known is not None:
            differs = np.any(np.diff(known[begin:end], axis=0) != 0, axis=1)
            found[2] += np.sum(differs & (np.diff(at) == 0))
    return Merged(*map(int, found))


def gridded(
    rows: Rows,
    known: np.ndarray,
    clock: Clock,
    spacing: Spacing | Local,
    points: Points,
    inputs: KnownInputs,
) -> dict[str, Steps]:
    """Rows, their times and their known inputs on the grid, by split.

    `known` are the input columns of each row, in the user's units.
    """
    scaled = inputs.scaled(known)
    found: dict[str, Steps] = {}
    for name, some in points.items():
        values, times, us = [], [], []
        for (number, begin, end), at in some.items():
            values.append(on_grid(rows.values[begin:end], at))
            stamps = rows.stamps[begin:end]
            if not inputs.is_by_rows:
                origin = rows.stamps[rows.starts[number]].item()
                stamps = spacing.stamps(origin, at[0] + np.arange(len(values[-1])))
            times.append(clock.times(stamps))
            us.append(inputs.us(held(scaled[begin:end], at), stamps))
        found[name] = Steps(Ragged.of(values), Ragged.of(times), Ragged.of(us))
    return found


def loses_many(num_merged: int, num_rows: int) -> bool:
    """Whether a step loses more than one row, and more than one in a hundred, to others."""
    return num_merged > max(1.0, MOST_MERGED * num_rows)
