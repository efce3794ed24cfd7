"""When a run ends: its schedule is over, no more updates are allowed, or validation is stale."""

from dataclasses import dataclass

from varfilter._arguments import require_positive
from varfilter._text import count
from varfilter.experiments.settings import Schedule
from varfilter.runs.validation import Validation

# Where validations are further apart than an epoch, one that is no better tells nothing: as many
# count as there are epochs of patience, but no more than these.
MOST_STALE = 3


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
