"""What each column of a table is: its levels, its kind, its motion and its family.

As the user says, or by what the training rows show; later rows decide nothing, and must agree.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from varfilter.data.dataset import Family, Scaling
from varfilter.data.ragged import Ragged
from varfilter.data.tables.columns import unknown
from varfilter.data.tables.kinds import (
    GROUNDS,
    KINDS,
    MOTIONS_OF,
    Kind,
    family_of,
    infer_kind,
    refined_kind,
)
from varfilter.data.tables.layout import Rows
from varfilter.data.tables.levels import Levels, levels_of, recoded, unseen_note
from varfilter.data.tables.motion import (
    MOTIONS,
    Motion,
    is_motion,
    transform_of,
    usual_motion,
)
from varfilter.data.tables.positive import positive_motion
from varfilter.data.tables.season import seasonal_motion
from varfilter.data.tables.steps import Steps


def with_levels(
    rows: Rows,
    names: tuple[str, ...],
    texts: dict[str, tuple[str, ...]],
    training: np.ndarray,
    categorical: Sequence[str],
    *,
    named: bool,
) -> tuple[Rows, tuple[str, ...], dict[str, Levels], list[str]]:
    """The rows with the levels of the training rows alone; those levels; what is said of them.

    Columns of text that have none to predict are no longer among them.
    """
    levels: dict[str, Levels] = {}
    notes: list[str] = []
    values = rows.values.copy() if texts else rows.values
    for i, name in enumerate(names):
        if name not in texts:
            continue
        codes, given = values[:, i].copy(), name in categorical
        levels[name] = levels_of(codes[training], texts[name], is_given=given)
        runs = [codes[begin:end] for begin, end in itertools.pairwise(rows.starts)]
        if levels[name].names and not given and len(runs) > 1 and not any(map(_changes, runs)):
            why = f"text, such as {levels[name].names[0]!r}, the same throughout each sequence"
            levels[name] = Levels(refused=why)
        if levels[name].refused and (named or given):
            raise ValueError(
                f"Column {name!r} holds {levels[name].refused}. "
                + ("Leave it out of `kinds`." if given else "Leave it out of `columns`, or give")
                + ("" if given else f" `kinds={{{name!r}: 'categorical'}}`.")
            )
        values[:, i] = recoded(codes, texts[name], levels[name].names)
        lost = codes[np.isnan(values[:, i]) & ~np.isnan(codes)].astype(np.int64)
        if lost.size and not levels[name].refused:
            unseen = [texts[name][code] for code in np.unique(lost)]
            notes.append(unseen_note(name, unseen, lost.size))
    kept = [i for i, name in enumerate(names) if not levels.get(name, Levels()).refused]
    if not kept:
        reasons = "; ".join(f"{name}: {each.refused}" for name, each in list(levels.items())[:6])
        raise ValueError(f"`source` has no column of numbers to observe ({reasons}).")
    forms = tuple(rows.forms[i] for i in kept)
    rows = replace(rows, values=values[:, kept], forms=forms)
    return rows, tuple(names[i] for i in kept), levels, notes


def given_words(
    given: dict[str, str], names: tuple[str, ...], left_out: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The kinds and the motions that were given, by column."""
    kinds: dict[str, str] = {}
    motions: dict[str, str] = {}
    for name, text in given.items():
        if name in left_out:
            raise ValueError(f"`kinds` names {name!r}, which is left out: {left_out[name]}.")
        if name not in names:
            raise unknown("kinds", name, names)
        words = text.split() if isinstance(text, str) else [text]
        for word in words:
            found = kinds if word in KINDS else motions
            if not (word in KINDS or is_motion(word)) or name in found:
                raise ValueError(
                    f"`kinds[{name!r}]` must be one of {', '.join(KINDS)}, or one of"
                    f" {', '.join(MOTIONS)}, or one of each; got {text!r}."
                )
            found[name] = word
    return kinds, motions


def kinds_of(
    rows: Rows,
    names: tuple[str, ...],
    training: np.ndarray,
    given: dict[str, str],
    motions: dict[str, str],
) -> dict[str, str]:
    """The kind of each column: as given, or from the training rows."""
    kinds: dict[str, str] = {}
    for name, form, column in zip(names, rows.forms, rows.values.T, strict=True):
        if form == "level" and given.get(name) not in (None, "categorical"):
            raise ValueError(
                f"`kinds[{name!r}]` is {given[name]!r}, but the column holds text. Give"
                " 'categorical', or leave it out."
            )
        kinds[name] = given.get(name) or infer_kind(column[training], form)
        if motions.get(name, "").startswith("log") and name not in given and form == "number":
            kinds[name] = "numeric"  # whole numbers have logarithms too
    return kinds


def motions_of(
    kinds: dict[str, str],
    training: Steps,
    given: dict[str, str],
    lengths: Sequence[int] = (),
    *,
    goes_on: bool,
) -> dict[str, Motion]:
    """Choose how each column is transformed for a model: as given, or by the training rows.

    `lengths` are those of the seasons of the calendar, in steps.
    """
    found: dict[str, Motion] = {}
    for i, (name, kind) in enumerate(kinds.items()):
        word = given.get(name)
        form = None if word is None else re.sub(r"-\d+$", "-N", word)
        if form not in (None, "level", *MOTIONS_OF.get(kind, ())):
            others = [other for other in ("numeric", "heavy") if form in MOTIONS_OF[other]]
            raise ValueError(
                f"`kinds[{name!r}]` is {word!r}, but the column is {kind}, {KINDS[kind]}, which has"
                f" none. Leave it out, or give '{others[0]} {word}'."
            )
        if word is None and kind not in MOTIONS_OF:
            found[name] = Motion("level")
        elif word is None:
            sequences = [rows[:, i] for rows in training.rows]
            us = list(training.us)
            usual = usual_motion(kind, sequences, us, goes_on=goes_on)
            chosen = seasonal_motion(usual, kind, sequences, us, lengths)
            found[name] = positive_motion(chosen, kind, sequences, name)
        else:
            found[name] = Motion(word)
    return found


def without_logarithms(
    rows: Rows, names: tuple[str, ...], motions: dict[str, Motion], given: dict[str, str]
) -> dict[str, Motion]:
    """The motions of columns that can have them: a value of 0 or below has no logarithm.

    Where the training rows alone asked for one, a later such value says that the column is not of
    the kind that has them, and it is told without; where it was given, the value is refused.
    """
    found = dict(motions)
    for name, column in zip(names, rows.values.T, strict=True):
        word = motions[name].word
        bad = np.flatnonzero(column <= 0) if word.startswith("log") else np.zeros(0, np.int64)
        if not bad.size:
            continue
        # Of a season the logarithm alone is in the way.
        other = "level" if word == "log" else word.removeprefix("log-")
        value = f"{column[bad[0]]:g}{rows.at(int(bad[0]))}"
        if name in given:
            other = "change" if word == "log" else other
            raise ValueError(
                f"Column `{name}` is predicted by its logarithm, but has {value}. Correct it, or"
                f" give `kinds={{{name!r}: '{other}'}}`."
            )
        why = "it would be by its logarithm, but has"
        found[name] = Motion(other, f"{why} {value}")
    return found


def refined_kinds(
    kinds: dict[str, str], words: dict[str, str], training: Ragged, given: dict[str, str]
) -> dict[str, Kind]:
    """The kind of each column by the family that the training rows show, unless it was given."""
    found: dict[str, Kind] = {}
    for i, (name, kind) in enumerate(kinds.items()):
        found[name] = Kind(kind)
        if name not in given:
            sequences = [rows[:, i] for rows in training]
            found[name] = refined_kind(kind, words.get(name, "level"), sequences, name)
            if not found[name].reason:
                found[name] = Kind(found[name].word, GROUNDS[found[name].word])
    return found


def families_of(
    kinds: dict[str, str], words: dict[str, str], scaling: Scaling, training: Ragged
) -> tuple[Family, ...]:
    """The family of each column, with the transform that a model sees it by."""
    offsets, scales = np.asarray(scaling.offset), np.asarray(scaling.scale)
    found = []
    for i, (name, kind) in enumerate(kinds.items()):
        offset, scale = float(offsets[i]), float(scales[i])
        sequences = [np.asarray(rows[:, i], np.float64) for rows in training]
        family = family_of(name, kind, words.get(name, "level"), offset, scale, sequences)
        if name in words:
            sequences = [(values - offset) / scale for values in sequences]
            largest = max(float(np.nanmax(np.abs(training.values[:, i]))), abs(offset))
            finest = float(np.spacing(np.float32(largest))) / scale
            family = replace(family, transform=transform_of(words[name], sequences, finest))
        found.append(family)
    return tuple(found)


def _changes(codes: np.ndarray) -> bool:
    """Whether a sequence has more than one level."""
    return np.unique(codes[~np.isnan(codes)]).size > 1
