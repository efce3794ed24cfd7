"""Cells that have no place in their column: a few are missing, many tell of another column.

An `err` or an `inf` among numbers, a -1 or a 2.5 among counts.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from varfilter._text import count
from varfilter.data.tables.columns import Column, column_of, has_comma_number, number_of
from varfilter.data.tables.files import Columns
from varfilter.data.tables.kinds import REAL, unfit

# Of the values of a column, those that may be bad: when it is learned what the column is, and when
# that is known.
RARE, HALF = 0.01, 0.5
# Columns that are named in a sentence.
MOST_NAMED = 4


@dataclass
class BadCells:
    """How many cells of each column have no place in it, and the first of them, in words.

    A part `most` of a column or more is no accident: it is left for others to refuse. `has_rows`
    says whether cells stand in rows of the user's table.
    """

    most: float
    has_rows: bool = True
    found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def numbers(self, columns: Columns, names: Collection[str]) -> Columns:
        """The columns where what is no number, or no finite one, is missing in those of `names`."""
        mended = dict(columns)
        for name in names:
            if name in columns:
                mended[name] = self._number(name, columns[name])
        return mended

    def fitting(
        self, values: np.ndarray, name: str, kind: str, rows: np.ndarray | None = None
    ) -> np.ndarray:
        """The values where those are missing that a column of this kind cannot have.

        `rows` are those of the table, where it has them. Of any number none is bad: an absurd one
        is the filter's to judge.
        """
        if kind in REAL:
            return values
        return self._without(values, name, unfit(kind, values), rows)

    def note(self) -> str | None:
        """A sentence on all of them; None if there are none."""
        if not self.found:
            return None
        total = sum(number for number, _ in self.found.values())
        named = list(self.found.items())[:MOST_NAMED]
        parts = [f"{number:,} in '{name}' ({first})" for name, (number, first) in named]
        if len(self.found) > MOST_NAMED:
            parts.append(f"others in {count(len(self.found) - MOST_NAMED, 'more column')}")
        one = "has no place in its column, and is taken as missing"
        many = "have no place in their columns, and are taken as missing"
        return f"{count(total, 'cell')} {one if total == 1 else many}: {', '.join(parts)}."

    def _number(self, name: str, column: Column) -> Column:
        if column.levels:
            return column
        if column.form == "number":
            values = self._without(column.values, name, np.flatnonzero(np.isinf(column.values)))
            return column if values is column.values else Column(values, "number", column.notes)
        if column.form != "text":
            return column
        present = [row for row, text in enumerate(column.values) if text is not None]
        bad = [row for row in present if number_of(column.values[row]) is None]
        # With a comma it is rather the numbers that are written otherwise.
        if self._are_many(len(bad), len(present)) or any(
            has_comma_number(column.values[row]) for row in bad
        ):
            return column
        self._tell(name, len(bad), repr(column.values[bad[0]]), bad[0])
        texts = column.values.copy()
        texts[bad] = None
        return self._number(name, replace(column_of(texts), notes=column.notes))

    def _without(
        self, values: np.ndarray, name: str, bad: np.ndarray, rows: np.ndarray | None = None
    ) -> np.ndarray:
        if not bad.size or self._are_many(bad.size, int(np.sum(~np.isnan(values)))):
            return values
        at = bad if rows is None else rows[bad]
        first = int(np.argmin(at))
        self._tell(name, bad.size, f"{values[bad[first]]:g}", int(at[first]))
        values = values.copy()
        values[bad] = np.nan
        return values

    def _are_many(self, number: int, of: int) -> bool:
        return number >= self.most * of

    def _tell(self, name: str, number: int, what: str, row: int) -> None:
        where = f" in row {row}, counted from 0" if self.has_rows else ""
        before, first = self.found.get(name, (0, ""))
        self.found[name] = before + number, first or what + where


def without_unfit(columns: Columns, kinds: Mapping[str, str], bad: BadCells) -> Columns:
    """The columns where numbers that one of its kind cannot have are missing."""
    mended = dict(columns)
    for name, kind in kinds.items():
        column = columns[name]
        if column.form == "number" and kind != "categorical":
            values = bad.fitting(column.values, name, kind)
            if values is not column.values:
                mended[name] = Column(values, "number", column.notes)
    return mended
