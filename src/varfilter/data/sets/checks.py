"""What a data set holds, in numbers; and whether a named one holds what it should."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.dataset import SPLITS, Dataset
from varfilter.data.ragged import Ragged
from varfilter.data.rolls import LOWEST, NUM_KEYS
from varfilter.data.sets.registry import Entry
from varfilter.data.sets.timit import check_timit
from varfilter.data.sets.transfer import file_digest
from varfilter.data.video import VIDEOS
from varfilter.distributions import Bernoulli


class Judgement(NamedTuple):
    """Whether a named set is what it should be: not wrong, and proven right; line by line."""

    is_good: bool
    is_verified: bool
    lines: tuple[str, ...]


def judge(entry: Entry, dataset: Dataset, path: Path | None, *, plain: bool = True) -> Judgement:
    """Hold a set, as read from `path`, against what is expected of it.

    Counts must agree. The content is compared if it was read `plain`, without options.
    """
    if entry.name == "timit":
        verdict = check_timit(dataset)
        return Judgement(verdict.is_good, verdict.is_good, tuple(verdict.text.splitlines()))
    expected = entry.expected
    sequences = tuple(len(dataset.split(split)) for split in SPLITS)
    rows = tuple(len(dataset.split(split).values) for split in SPLITS)
    if not plain:
        return Judgement(
            True, False, ("    read with options: not compared with what is expected",)
        )
    lines = [_compared("sequences", sequences, expected.sequences)]
    is_good = sequences == expected.sequences
    if expected.rows:
        lines.append(_compared("rows", rows, expected.rows))
        is_good = is_good and rows == expected.rows
    if not expected.sha256:
        lines.append("    the content has no known sha256 to be compared with")
        return Judgement(is_good, False, tuple(lines))
    sha256 = dataset.sha256()
    is_same = sha256 == expected.sha256
    if is_same:
        lines.append("ok  the content is the expected, bit by bit (sha256)")
    elif _has_same_films(entry, path):
        lines.append("ok  the files are the expected (sha256), though decoded a little differently")
        is_same = True
    elif not expected.is_binding:
        lines.append("    the content differs from the copy known here: NOT VERIFIED")
    else:
        lines.append(f"BAD content: its sha256 is {sha256}, expected {expected.sha256}")
        is_good = False
    return Judgement(is_good, is_good and is_same, tuple(lines))


def describe(dataset: Dataset) -> dict[str, Any]:
    """Counts, lengths, ranges and densities, for people and for programs."""
    shown: dict[str, Any] = {
        "name": dataset.name,
        "observation": list(dataset.observation_shape),
        "family": _families(dataset),
        "rate": dataset.rate,
        "rows_per_step": dataset.rows_per_step,
        "splits": {split: _numbers(dataset, dataset.split(split)) for split in SPLITS},
        "sha256": dataset.sha256(),
    }
    if dataset.columns:
        shown["columns"] = {
            name: {"family": family, **_range(dataset.train.values[:, i])}
            for i, (name, family) in enumerate(
                zip(dataset.columns, _families(dataset), strict=True)
            )
        }
    return shown


def is_music(dataset: Dataset) -> bool:
    """Whether its observations are the keys of a piano."""
    families = _families(dataset)
    return dataset.observation_shape == (NUM_KEYS,) and families == [Bernoulli.__name__]


def without_steps(dataset: Dataset) -> list[str]:
    """A sentence for each split in which no sequence is as long as one step."""
    size = dataset.rows_per_step
    return [
        f"`{split}` has no whole step: its {len(ragged)} sequences have fewer than {size} rows"
        f" each, which make one."
        if len(ragged)
        else f"`{split}` has no sequence."
        for split in SPLITS
        if not ((ragged := dataset.split(split)).lengths >= size).any()
    ]


def _families(dataset: Dataset) -> list[str]:
    families = dataset.family if isinstance(dataset.family, tuple) else (dataset.family,)
    return [family.distribution.__name__ for family in families]


def _numbers(dataset: Dataset, ragged: Ragged) -> dict[str, Any]:
    steps = ragged.lengths // dataset.rows_per_step
    shown: dict[str, Any] = {"sequences": len(ragged), "steps": int(steps.sum())}
    if not len(ragged):
        return shown
    shown["length"] = {
        "shortest": int(steps.min()),
        "mean": round(float(steps.mean()), 2),
        "longest": int(steps.max()),
    }
    shown |= _range(ragged.values)
    if _families(dataset) == [Bernoulli.__name__]:
        shown["ones_per_step"] = round(shown["mean"] * dataset.num_elements, 4)
        if is_music(dataset) and shown["highest"]:
            keys = np.flatnonzero(ragged.values.any(axis=0)) + LOWEST
            shown["pitches"] = [int(keys[0]), int(keys[-1])]
    return shown


def _range(values: np.ndarray) -> dict[str, Any]:
    """Lowest, highest, mean, and the part that is missing; in the recording's units."""
    absent = np.isnan(values).mean() if values.dtype.kind == "f" else 0.0
    if absent == 1.0:
        return {"lowest": None, "highest": None, "mean": None, "missing": 1.0}
    count = values.size * (1.0 - absent)
    return {
        "lowest": np.nanmin(values).item(),
        "highest": np.nanmax(values).item(),
        "mean": float(np.nansum(values, dtype=np.float64) / count),
        "missing": round(float(absent), 6),
    }


def _compared(what: str, got: tuple[int, ...], expected: tuple[int, ...]) -> str:
    if got == expected:
        return f"ok  {what} (train, valid, test): {got}"
    return f"BAD {what} (train, valid, test): {got}, expected {expected}"


def _has_same_films(entry: Entry, path: Path | None) -> bool:
    if path is None or not entry.expected.files_sha256 or not path.is_dir():
        return False
    lines = [
        f"{file_digest(file, 'sha256')}  {file.name}\n"
        for file in sorted(path.iterdir())
        if file.suffix.lower() in VIDEOS
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest() == entry.expected.files_sha256
