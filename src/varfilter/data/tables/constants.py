"""Columns that never change in training: nothing of them is learned, and a new value is told of.

Predicted, a constant would cost as much as one likes below nothing, and hide what the other columns
cost in every sum over columns.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from varfilter._text import count
from varfilter.data.tables.columns import Column, is_constant
from varfilter.data.tables.layout import Rows

# A column of fewer training values may be constant by chance.
FEWEST_VALUES = 20


def without_constants(
    rows: Rows, names: tuple[str, ...], training: np.ndarray, wanted: Collection[str]
) -> tuple[Rows, tuple[str, ...], dict[str, float], dict[str, str]]:
    """Leave out constant columns: (rows, names, the constants, why each was left out).

    A column is constant that has at least 20 training values, all the same; those `wanted` stay.
    """
    constants: dict[str, float] = {}
    reasons: dict[str, str] = {}
    for name, form, column in zip(names, rows.forms, rows.values.T, strict=True):
        present = column[training][~np.isnan(column[training])]
        if name in wanted or form == "level" or present.size < FEWEST_VALUES:
            continue
        if is_constant(present):
            constants[name] = float(present[0])
            num_others = int(np.sum(differs(column, constants[name])))
            later = f", and another in {count(num_others, 'later row')}" if num_others else ""
            reasons[name] = (
                f"it is {constants[name]:g} in all training rows{later}; to have it predicted all"
                f" the same, give `kinds`, such as {name}=numeric"
            )
    kept = [i for i, name in enumerate(names) if name not in constants]
    if not kept:
        listed = ", ".join(f"{name!r} is {value:g}" for name, value in list(constants.items())[:6])
        raise ValueError(
            f"`source` has no column that changes in the training rows: {listed}. Name them in"
            " `columns` to have them predicted all the same."
        )
    forms = tuple(rows.forms[i] for i in kept)
    rows = replace(rows, values=rows.values[:, kept], forms=forms)
    return rows, tuple(names[i] for i in kept), constants, reasons


def changed_notes(constants: Mapping[str, float], columns: Mapping[str, Column]) -> list[str]:
    """Sentences on the constants that have another value somewhere in a new table."""
    notes = []
    for name, value in constants.items():
        column = columns.get(name)
        if column is None:
            continue
        if column.form not in ("number", "bool"):
            notes.append(f"Column '{name}' holds no numbers; it was {value:g} in training.")
            continue
        others = np.flatnonzero(differs(column.values, value))
        if others.size:
            first = f"{column.values[others[0]]:g} in row {others[0]} (counted from 0)"
            notes.append(changed_note(name, value, first, others.size))
    return notes


def changed_note(name: str, value: float, first: str, times: int = 1) -> str:
    """A sentence on a value that a column never had in training."""
    more = f", and another value than that in {count(times, 'row')} in all" if times > 1 else ""
    return (
        f"Column '{name}' is {first}{more}; it was {value:g} in all training rows, so that nothing"
        " was learned of it: its values come back as they are, and no surprise or alarm tells of"
        " them."
    )


def differs(values: np.ndarray, constant: float) -> np.ndarray:
    """Which values are there, and not the constant but for rounding."""
    slack = 16 * np.spacing(abs(constant))
    with np.errstate(invalid="ignore"):
        return np.abs(values - constant) > slack
