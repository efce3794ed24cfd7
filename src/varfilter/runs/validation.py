"""When a run is validated and on how much, for a fifth of its time at most; and when it ends.

How long an epoch and a validation take is measured once, after the first updates; what follows from
it is put on record, and holds from then on. So the parameters of each step are the same wherever a
run is trained, and a run that is resumed validates at the steps of one that was never interrupted;
the schedule that says `epochs_per_validation` itself is measured by nobody.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from varfilter._arguments import require_positive
from varfilter._text import count
from varfilter.data.batches import padded_length
from varfilter.data.dataset import Dataset
from varfilter.devices import of_first_process
from varfilter.experiments.settings import Schedule
from varfilter.learning import LearnerState
from varfilter.training.evaluation import Evaluation, HeldOut

# Of the time of the updates: a fifth of all time is a quarter of the rest.
SHARE = 0.25
# What goes into scoring all sequences now and then, where most validations score a few of them.
FULL_SHARE = 0.5
# With fewer validations over a run, its best is found too coarsely; then a subset is scored.
FEWEST = 40
# Steps of whole numbers that are easy to think in.
STEPS = (1, 2, 5)
GROWTH = 2
# Where validations are further apart than an epoch, one that is no better tells nothing: as many
# count as there are epochs of patience, but no more than these.
MOST_STALE = 3


@dataclass(frozen=True)
class Validation:
    """How often the validation part is scored, and how much of it.

    - `epochs`: from one validation to the next.
    - `num_sequences`: how many are scored each time; None is all of them.
    - `epochs_per_full`: how often the best so far is scored on all, where most validations score
      fewer; None is never, since even once would take too long.
    """

    epochs: int
    num_sequences: int | None = None
    epochs_per_full: int | None = None

    @staticmethod
    def from_json(record: dict[str, Any]) -> "Validation":
        """What `vars` made, as it was."""
        return Validation(**{field.name: record[field.name] for field in fields(Validation)})


def affordable(
    num_epochs: int, num_sequences: int, *, epoch: float, full: float, sequence: float
) -> Validation:
    """The validations that a run of so many epochs can afford.

    The seconds are of the updates of an `epoch`, of a `full` validation, and of one `sequence` in
    a subset.
    """
    budget = SHARE * epoch * num_epochs
    if full * min(num_epochs, FEWEST) <= budget:
        return Validation(_round_up(full / (SHARE * epoch)))
    epochs = _round_up(num_epochs / FEWEST)
    num_full = math.floor(FULL_SHARE * budget / full)
    left = budget - num_full * full
    num_scored = math.floor(left / (num_epochs // epochs) / sequence)
    per_full = None
    if num_full:
        per_full = epochs * math.ceil(num_epochs / num_full / epochs)
    return Validation(epochs, max(1, min(num_scored, num_sequences)), per_full)


def stretched(
    validation: Validation, num_epochs: int, *, epoch: float, full: float, few: float
) -> Validation:
    """A validation that is less often, if its `few` sequences take longer than was thought."""
    budget = SHARE * epoch * num_epochs
    per_full = validation.epochs_per_full
    if per_full is not None:
        budget -= full * (num_epochs // per_full)
    epochs = max(validation.epochs, _round_up(few * num_epochs / budget))
    if per_full is not None:
        per_full = epochs * math.ceil(per_full / epochs)
    return replace(validation, epochs=epochs, epochs_per_full=per_full)


def subset(num_steps: np.ndarray) -> np.ndarray:
    """The sequences to score in place of all, in the order in which they are taken.

    They are padded to one length, that of the middle sequence, so that one more program is
    compiled and not one for each length; and the same are taken on every machine.
    """
    scored = np.flatnonzero(num_steps > 1)
    lengths = np.asarray([padded_length(int(steps), GROWTH) for steps in num_steps[scored]])
    middle = np.sort(lengths)[(len(lengths) - 1) // 2]
    return np.random.default_rng(0).permutation(scored[lengths == middle])


def known_validation(run: Any) -> Validation | None:
    """What the schedule says, or what was settled when the run began; None before that."""
    epochs = run.experiment.schedule.epochs_per_validation
    if epochs is not None:
        return Validation(epochs)
    known = run.record.get("validation")
    return None if known is None else Validation.from_json(known)


class ValidationPart:
    """The validation part of a data set: all of it, and the few of it that are scored in between.

    `full` scores all. The subset is made when it is first asked for.
    """

    def __init__(self, dataset: Dataset):
        self.full = HeldOut(dataset, split="valid")
        self._dataset = dataset
        self._subset: HeldOut | None = None

    @property
    def num_sequences(self) -> int:
        """How many there are to score."""
        return len(self.full.scored)

    def num_scored(self, validation: Validation | None) -> int:
        """How many of them a validation scores."""
        if validation is None or validation.num_sequences is None:
            return self.num_sequences
        return validation.num_sequences

    def evaluate(
        self, learning: LearnerState, key: PRNGKeyArray, validation: Validation | None
    ) -> Evaluation:
        """Score what is learned on as much as the validation says; None is all of it."""
        return self.part(validation).evaluate(learning.filter, learning.model, key)

    def part(self, validation: Validation | None) -> HeldOut:
        """The sequences that a validation scores."""
        if validation is None or validation.num_sequences is None:
            return self.full
        return self._few(validation.num_sequences)

    def settled(
        self, learning: LearnerState, key: Key[Array, "..."], num_epochs: int, *, epoch: float
    ) -> Validation:
        """Measure what validations take, and settle which of them a run can afford.

        `epoch` is the seconds of its updates. Of several processes the first decides. Of runs
        that are trained in one program, `learning` and `key` are stacked.
        """
        arguments = learning.filter, learning.model, key
        num_members = key.shape[0] if key.ndim else 1
        full, order = self.full.seconds(*arguments), subset(self.full.num_steps)
        # In a subset there are no empty places: one sequence costs its part of a full batch.
        steps = padded_length(int(self.full.num_steps[order[0]]), GROWTH) - 1
        each = full * steps / self.full.padded_steps(learning.filter, num_members)
        found = affordable(num_epochs, len(order), epoch=epoch, full=full, sequence=each)
        if found.num_sequences is not None:
            # On some devices few places cost as much as many.
            few = self._few(found.num_sequences).seconds(*arguments)
            found = stretched(found, num_epochs, epoch=epoch, full=full, few=few)
        numbers = [-1 if value is None else value for value in vars(found).values()]
        epochs, few, per_full = np.asarray(of_first_process(np.asarray(numbers))).tolist()
        return Validation(epochs, None if few < 0 else few, None if per_full < 0 else per_full)

    def _few(self, num_sequences: int) -> HeldOut:
        if self._subset is None or len(self._subset.scored) != num_sequences:
            numbers = subset(self.full.num_steps)[:num_sequences].tolist()
            self._subset = HeldOut(self._dataset, split="valid", numbers=numbers)
        return self._subset


def _round_up(number: float) -> int:
    """The next of 1, 2, 5, 10, 20, ...: noise in what was measured seldom changes it."""
    size = 1
    while True:
        for step in STEPS:
            if number <= step * size:
                return step * size
        size *= 10


@dataclass(frozen=True)
class StoppingRule:
    """Whether a run that has come to a step ends there, and why.

    `max_updates` is how many it may make in all, whatever its schedule says.
    """

    schedule: Schedule
    updates_per_epoch: int
    max_updates: int | None = None

    def __post_init__(self):
        if self.max_updates is not None:
            require_positive("max_updates", self.max_updates)

    @property
    def num_updates(self) -> int:
        """The updates of the whole schedule."""
        return self.schedule.num_epochs * self.updates_per_epoch

    @property
    def last(self) -> int:
        """The last update that may be made."""
        return min(self.num_updates, self.max_updates or self.num_updates)

    def reason(
        self, step: int, *, validated: int, best: int, validation: Validation | None
    ) -> str | None:
        """Why training ends at `step`; None if it goes on.

        `validated` and `best` are the steps of the last validation and of the lowest so far, and
        `validation` says how often there is one.
        """
        if step >= self.num_updates:
            return f"{count(self.schedule.num_epochs, 'epoch')}, as scheduled"
        if step >= self.last:
            return "the most updates allowed were made"
        if validated == step and self.is_stale(step, best, validation):
            epochs = (step - best) // self.updates_per_epoch
            text = f"validation has not improved for {count(epochs, 'epoch')}"
            if validation is None or validation.epochs == 1:
                return text
            return f"{text}, {count(epochs // validation.epochs, 'validation')}"
        return None

    def is_stale(self, step: int, best: int, validation: Validation | None) -> bool:
        """Whether validation has not improved for longer than the schedule has patience."""
        patience = self.schedule.patience_epochs
        if patience is None:
            return False
        if validation is not None:
            patience = max(patience, fewest_stale(patience) * validation.epochs)
        # Until the KL has its full weight validation may well get worse for a while.
        since = max(best // self.updates_per_epoch, self.schedule.annealing_epochs)
        return step // self.updates_per_epoch - since >= patience


def fewest_stale(patience_epochs: int) -> int:
    """How many validations in a row must be no better, however many epochs lie between them."""
    return min(patience_epochs, MOST_STALE)
