"""A trained run that goes on with new rows of its table, from the parameters that it has."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from varfilter.data.dataset import SPLITS, Dataset
from varfilter.data.ragged import Ragged
from varfilter.runs.run import IN_MEMORY, Run
from varfilter.runs.training import train_run
from varfilter.training.evaluation import HeldOut

# The last part of each new sequence is for validation.
VALIDATED = 0.2
# Shorter ones are for training alone.
SHORTEST = 10
# Of the epochs of the first training: parameters that are nearly right need fewer.
PART_OF_EPOCHS = 1 / 3


def update_run(
    run: Run, folder: Path, data: Any, old: Dataset | None, *, num_epochs: int | None = None
) -> tuple[Run, Dataset]:
    """A new run, in `folder`, that begins with the parameters of `run`; and the data it is of.

    It goes on with `old`, the rows that `run` was trained on, and the new ones of `data` together:
    of the new ones alone it would forget what they do not show. Where the old ones are not at hand
    (None), the new ones are all it has. Units and kinds of columns stay as they were. The last
    fifth of each new sequence joins the validation; where nothing that was learned is better there
    than what was known, that is kept. A third of the epochs of `run` are made, or `num_epochs`.
    """
    dataset = _joined(old, _as_dataset(run, data))
    if not len(dataset.valid):
        raise ValueError(
            f"`data` has no sequence of {SHORTEST} rows or more, of whose end it could be judged"
            " what was learned. Give longer ones."
        )
    source = replace(run.experiment.data, source=IN_MEMORY)
    schedule = run.experiment.schedule
    if num_epochs is None:
        num_epochs = max(1, round(PART_OF_EPOCHS * schedule.num_epochs))
    schedule = replace(schedule, num_epochs=num_epochs, annealing_epochs=0)
    experiment = replace(run.experiment, data=source, schedule=schedule)
    learned = run.trained()
    updated = Run.begin(folder, experiment, dataset)
    for _ in train_run(updated, dataset, learned=learned):
        pass
    held_out = HeldOut(dataset, split="valid")
    key = jax.random.key(experiment.seed)
    both = (learned, updated.trained())
    known, now = (held_out.evaluate(each.filter, each.model, key).nats for each in both)
    if known <= now:
        updated.keep_best(learned._replace(valid=known))
        warnings.warn(
            f"The new rows have taught nothing that validation shows: {now:.4f} nats per step,"
            f" where {known:.4f} was known before. The parameters stay as they were.",
            stacklevel=3,
        )
    return updated, dataset


def _as_dataset(run: Run, data: Any) -> Dataset:
    """New rows as data of the run: the beginning of each sequence to train, its end to validate."""
    template = run.template
    readings = template.schema.read(data)
    parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {split: [] for split in SPLITS}
    for number, rows in enumerate(readings.rows):
        rows, us = np.asarray(rows), np.asarray(readings.us[number])
        cut = len(rows) if len(rows) < SHORTEST else round((1.0 - VALIDATED) * len(rows))
        parts["train"].append((rows[:cut], us[:cut]))
        if cut < len(rows):
            parts["valid"].append((rows[cut:], us[cut:]))
    rows = {
        split: Ragged.of([each for each, _ in found], like=template.train.values)
        for split, found in parts.items()
    }
    inputs = {
        split: Ragged.of([each for _, each in found], like=template.inputs[split].values)
        for split, found in parts.items()
        if template.input_names
    }
    return replace(template, **rows, inputs=inputs)


def _joined(old: Dataset | None, new: Dataset) -> Dataset:
    """The sequences of both, by split; those that are tested stay those of the old one."""
    if old is None:
        return new

    def both(first: Ragged, second: Ragged) -> Ragged:
        each = [*map(np.asarray, first), *map(np.asarray, second)]
        return Ragged.of(each, like=first.values)

    rows = {split: both(old.split(split), new.split(split)) for split in SPLITS}
    inputs = {
        split: both(old.inputs[split], new.inputs[split]) for split in SPLITS if new.input_names
    }
    return replace(new, **rows, inputs=inputs, notes=old.notes)
