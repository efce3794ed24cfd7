"""The columns of a table as cells of a row: a number, or one of several levels.

A categorical column has an element of the observation for each level; in a row it is one cell
again, with the name of its level.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.dataset import Dataset
from varfilter.media.formats import Row

# Columns of more levels have no column for the probability of each.
FEW_LEVELS = 8


class Cell(NamedTuple):
    """A column of the user's: its name, its elements of an observation, and its levels, if any."""

    name: str
    first: int
    levels: tuple[str, ...] = ()

    @property
    def elements(self) -> slice:
        """The places of the cell's elements in a row."""
        return slice(self.first, self.first + max(len(self.levels), 1))

    def value(self, elements: np.ndarray) -> Any:
        """What the column has in a row of elements: a number or a level; None if it is missing."""
        if not self.levels:
            return elements[self.first]
        own = elements[self.elements]
        return None if np.isnan(own).any() else self.levels[int(np.argmax(own))]

    def numbers(self, rows: np.ndarray) -> np.ndarray:
        """The column of many rows of elements, a level as its number, NaN where it is missing."""
        own = np.asarray(rows[:, self.elements], np.float64)
        if not self.levels:
            return own[:, 0]
        return np.where(np.isnan(own).any(axis=1), np.nan, np.argmax(own, axis=1))

    def surprise(self, nats: np.ndarray, elements: np.ndarray) -> Any:
        """The surprise of the column, of those of its elements: that of the level that came."""
        if not self.levels:
            return nats[self.first]
        own = elements[self.elements]
        return np.nan if np.isnan(own).any() else nats[self.elements][int(np.argmax(own))]

    def predicted_names(self, parts: Mapping[str, np.ndarray]) -> list[str]:
        """What is said of a prediction, each with the column's name in front.

        Of a level: the most probable one, its probability, and that of each if they are few.
        """
        if not self.levels:
            return [f"{self.name}_{part}" for part in parts]
        each = self.levels if len(self.levels) <= FEW_LEVELS else ()
        return [f"{self.name}_{what}" for what in ("level", "p", *(f"p_{name}" for name in each))]

    def predicted(self, parts: Mapping[str, np.ndarray], t: int) -> Row:
        """What is said of the prediction of a step, by these names."""
        names = self.predicted_names(parts)
        if not self.levels:
            each = (values[t, self.first] for values in parts.values())
            return dict(zip(names, each, strict=True))
        probabilities = parts["mean"][t, self.elements]
        is_there = not np.isnan(probabilities).any()
        best = int(np.argmax(probabilities)) if is_there else 0
        cells = [self.levels[best] if is_there else None, probabilities[best], *probabilities]
        return dict(zip(names, cells, strict=False))


def cells_of(dataset: Dataset) -> list[Cell]:
    """The columns of a table in the order of the user's."""
    levels = {} if dataset.schema is None else dataset.schema.levels
    names = dataset.columns if dataset.schema is None else dataset.schema.columns
    cells, first = [], 0
    for name in names:
        cells.append(Cell(name, first, levels.get(name, ())))
        first = cells[-1].elements.stop
    return cells


def whole_quantiles(dataset: Dataset, level: float, values: np.ndarray) -> np.ndarray:
    """Quantiles (..., columns) in the user's units, of whole numbers whole ones.

    They are rounded away from the median, so that a band holds no less than it says.
    """
    if not isinstance(dataset.family, tuple):
        return values
    is_whole = np.array([family.has_levels for family in dataset.family])
    rounded = np.rint if level == 0.5 else np.floor if level < 0.5 else np.ceil
    return np.where(is_whole, rounded(values) + 0.0, values).astype(values.dtype)  # -0 is 0
