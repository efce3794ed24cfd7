"""How training sequences begin: kept in the folder of a run, for those that it makes up.

The first step of a sequence is conditioned on and never scored, so that a model has not learned how
one begins; it is drawn from the beginnings that it was trained with.
"""

import contextlib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from varfilter import _saved
from varfilter._files import reworded
from varfilter.data.dataset import Dataset

if TYPE_CHECKING:
    from varfilter.runs.run import Run

STARTS = "starts.safetensors"
KIND = _saved.Kind("starts")
# Beginnings that are kept, and what they may take; of large frames there are fewer.
MOST, FEWEST = 64, 8
MOST_BYTES = 1 << 20
# Of fewer sequences, steps in their midst count as beginnings too.
FEW = 4


def training_starts(dataset: Dataset) -> np.ndarray:
    """Rows (starts, rows_per_step, *row) of the first steps of training sequences, as stored.

    Of many sequences some at even distances; of very few, steps in their midst too, for a window
    of training may begin at any. Those with the fewest missing elements come before others.
    """
    train, size = dataset.train, dataset.rows_per_step
    num_steps = np.asarray(train.lengths) // size
    firsts = [(i, 0) for i in np.flatnonzero(num_steps)]
    if not firsts:
        return np.zeros((0, size, *train.values.shape[1:]), train.values.dtype)
    row_bytes = max(1, train.values[:1].nbytes)
    most = int(np.clip(MOST_BYTES // (row_bytes * size), FEWEST, MOST))
    if len(firsts) < FEW:
        firsts += [(i, t) for i in np.flatnonzero(num_steps) for t in range(1, num_steps[i])]
    # Several for each that is kept, where some may have gaps.
    spread = _evenly(firsts, 4 * most if dataset.has_gaps("train") else most)
    rows = np.stack([np.asarray(train[i][t * size : (t + 1) * size]) for i, t in spread])
    if rows.dtype.kind == "f":
        missing = np.isnan(rows).reshape(len(rows), -1).sum(axis=1)
        rows = rows[missing == missing.min()]
    return rows[_evenly(list(range(len(rows))), most)]


def keep_starts(folder: Path, dataset: Dataset) -> None:
    """Write the beginnings of the training sequences to the folder of a run."""
    try:
        _saved.write(folder / STARTS, KIND, {"rows": training_starts(dataset)}, {})
    except OSError as error:
        reason = error.strerror or str(error)
        raise reworded(error, f"Cannot write {str(folder / STARTS)!r} ({reason}).") from None


def are_starts(path: Path) -> bool:
    """Whether a file holds beginnings, and is whole."""
    try:
        return "rows" in _saved.read(path, KIND)[1]
    except (ValueError, OSError):
        return False


def starts_of(run: "Run") -> np.ndarray | None:
    """The beginnings (starts, *event) of a run's training sequences, in the model's units.

    Those of a run of before they were kept are read from its data, and kept; None, with a warning,
    where these are not at hand.
    """
    path = run.folder / STARTS
    if path.exists():
        try:
            rows = _saved.read(path, KIND)[1]["rows"]
        except ValueError as error:
            raise ValueError(
                f"{error} Or remove it, by `{run.command('repair')}`: the starts are then read from"
                " the run's data again."
            ) from None
    else:
        try:
            dataset = run.dataset
        except (ValueError, OSError) as error:
            reason = str(error).partition(". ")[0].rstrip(".")
            warnings.warn(
                f"{str(run.folder)!r} has no {STARTS}, as runs of earlier versions have none, and"
                f" its data cannot be read: {reason}. So the first step is drawn from the model,"
                " which has never learned how a sequence begins.",
                stacklevel=3,
            )
            return None
        rows = training_starts(dataset)
        with contextlib.suppress(OSError):  # a folder that may only be read serves as well
            keep_starts(run.folder, dataset)
    if not len(rows):
        return None
    return np.concatenate([run.template.observations(each) for each in rows])


def _evenly(items: list[Any], most: int) -> list[Any]:
    """At most `most` of the items, at even distances."""
    if len(items) <= most:
        return items
    return [items[i] for i in np.linspace(0, len(items) - 1, most).round().astype(int)]
