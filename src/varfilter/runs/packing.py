"""A run made small, to be handed on: what applies it, in half the bytes, and none of its data."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from varfilter import _saved
from varfilter._arguments import require_positive
from varfilter.runs.folder import RECORD, write_record, writing
from varfilter.runs.metrics import write_lines
from varfilter.runs.run import Run
from varfilter.runs.sampling import sample_run
from varfilter.runs.starts import KIND, STARTS

# Beginnings that a packed run has, and how many steps the model makes up before each.
NUM_STARTS, NUM_STEPS = 32, 16


def pack_run(run: Run, folder: str | Path, *, num_starts: int = NUM_STARTS, seed: int = 0) -> Run:
    """Write to a new folder what filters, forecasts and makes up sequences with this run.

    Weights are in half precision, and there is nothing to go on with training from. The first steps
    of training sequences, from which a run makes up others, are data: in their place are steps that
    the model made up, `NUM_STEPS` after such a beginning.
    """
    require_positive("num_starts", num_starts)
    folder = Path(folder).expanduser()
    if folder.exists():
        raise FileExistsError(f"`folder` {str(folder)!r} is there. Give a new one.")
    trained, starts = run.trained(), _made_up(run, num_starts, seed)
    with writing(folder):
        folder.mkdir(parents=True)
    try:
        packed = Run(folder, run.experiment, run.record)
        write_record(folder, run.record)
        packed.keep_best(trained, is_half=True)
        write_lines(folder / "metrics.jsonl", run.metrics())
        _saved.write(folder / STARTS, KIND, {"rows": starts}, {})
    except BaseException:
        if (folder / RECORD).exists():  # made here, so that nobody else's is removed
            shutil.rmtree(folder)
        raise
    return packed


def _made_up(run: Run, num_starts: int, seed: int) -> np.ndarray:
    """Rows (starts, rows_per_step, *row) that the model made up, as the run's data are stored."""
    template: Any = run.template
    samples = sample_run(run, NUM_STEPS, num_starts, seed=seed)
    xs = np.stack([sample.xs[-1] for sample in samples])
    values = template.scaling.restore(xs)
    stored = template.train.values.dtype
    if stored.kind in "biu":
        limits = (0, 1) if stored.kind == "b" else (np.iinfo(stored).min, np.iinfo(stored).max)
        values = np.clip(np.rint(values), *limits)
    row = template.train.values.shape[1:]
    return np.asarray(values).reshape(num_starts, template.rows_per_step, *row).astype(stored)
