"""What a data set holds, in numbers; and whether a named one holds what it should."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from varfilter._text import count
from varfilter.data.dataset import SPLITS, Dataset
from varfilter.data.ragged import Ragged
from varfilter.data.sets.entry import Entry, Judgement
from varfilter.data.sets.transfer import file_digest
from varfilter.distributions import Bernoulli


def judge(entry: Entry, dataset: Dataset, path: Path | None, *, plain: bool = True) -> Judgement:
    """Compare a set, as read from `path`, with what is expected of it.

    Counts must agree. The content is compared if it was read `plain`, without options. A set
    that has a check of its own is judged by that alone.
    """
    if (check := entry.check) is not None:
        return check(dataset)
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
    elif _has_same_files(entry, path):
        lines.append("ok  the files are the expected (sha256), though decoded a little differently")
        is_same = True
    elif not expected.is_binding:
        lines.append("    the content differs from the copy known here: NOT VERIFIED")
    else:
        lines.append(f"BAD content: its sha256 is {sha256}, expected {expected.sha256}")
        is_good = False
    return Judgement(is_good, is_good and is_same, tuple(lines))


def describe(
    dataset: Dataset, by_split: Callable[[Ragged], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Counts, lengths, ranges and densities of a data set, for people and for programs.

    `by_split` gives further numbers of the sequences of one split, which only the medium of the
    data knows, such as the pitches of music; it is not asked about a split without sequences.
    """
    shown: dict[str, Any] = {
        "name": dataset.name,
        "observation": list(dataset.observation_shape),
        "family": _families(dataset),
        "rate": dataset.rate,
        "rows_per_step": dataset.rows_per_step,
        "splits": {
            split: _numbers(dataset, dataset.split(split), by_split or _nothing) for split in SPLITS
        },
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


def without_steps(dataset: Dataset) -> list[str]:
    """A sentence for each split in which no sequence is as long as one step."""
    size = dataset.rows_per_step
    return [
        f"`{split}` has no whole step: of {count(len(ragged), 'sequence')} none has the {size} rows"
        " that make one."
        if len(ragged)
        else f"`{split}` has no sequence."
        for split in SPLITS
        if not ((ragged := dataset.split(split)).lengths >= size).any()
    ]


def _families(dataset: Dataset) -> list[str]:
    families = dataset.family if isinstance(dataset.family, tuple) else (dataset.family,)
    return [family.distribution.__name__ for family in families]


def _nothing(_: Ragged) -> dict[str, Any]:
    return {}


def _numbers(
    dataset: Dataset, ragged: Ragged, more: Callable[[Ragged], dict[str, Any]]
) -> dict[str, Any]:
    """The numbers of one split."""
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
    return shown | more(ragged)


def _range(values: np.ndarray) -> dict[str, Any]:
    """Lowest, highest and mean value in the recording's units, and the part that is missing."""
    absent = np.isnan(values).mean() if values.dtype.kind == "f" else 0.0
    if absent == 1.0:
        return {"lowest": None, "highest": None, "mean": None, "missing": 1.0}
    num_values = values.size * (1.0 - absent)
    return {
        "lowest": np.nanmin(values).item(),
        "highest": np.nanmax(values).item(),
        "mean": float(np.nansum(values, dtype=np.float64) / num_values),
        "missing": round(float(absent), 6),
    }


def _compared(what: str, got: tuple[int, ...], expected: tuple[int, ...]) -> str:
    if got == expected:
        return f"ok  {what} (train, valid, test): {got}"
    return f"BAD {what} (train, valid, test): {got}, expected {expected}"


def _has_same_files(entry: Entry, path: Path | None) -> bool:
    expected = entry.expected
    if path is None or not expected.files_sha256 or not path.is_dir():
        return False
    lines = [
        f"{file_digest(file, 'sha256')}  {file.name}\n"
        for file in sorted(path.glob(expected.files))
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest() == expected.files_sha256
