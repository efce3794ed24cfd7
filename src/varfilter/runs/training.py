"""Training a run: epochs, validation, checkpoints, early stopping; a generator of what happened."""

import math
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jax.sharding import Mesh

from varfilter.data.dataset import Dataset
from varfilter.devices import is_first_process
from varfilter.learning import Metrics
from varfilter.runs.checkpointing import (
    Averages,
    Best,
    Checkpointing,
    Standing,
    newest_standing,
)
from varfilter.runs.metrics import remember_reference
from varfilter.runs.run import Progress, Run, Trained
from varfilter.runs.validation import StoppingRule, Validation, ValidationPart, known_validation
from varfilter.training.evaluation import Evaluation
from varfilter.training.fitting import Fitted, fit

# Bytes of training data that are kept on the device, to draw batches there.
ON_DEVICE = 2 << 30
# About how long a dispatch of updates takes: nothing is saved, shown or asked before it ends.
SECONDS_PER_DISPATCH = 1.0


@dataclass(frozen=True)
class Updated:
    """Some updates were made; `metrics` has an entry for each, `step` counts all so far."""

    step: int
    num_updates: int
    epoch: int
    num_epochs: int
    metrics: Metrics
    num_skipped: int
    seconds: float


@dataclass(frozen=True)
class Validating:
    """A validation begins, of so many sequences of those that there are; it may take a while.

    The first one may be made to measure it alone, before it is settled when to validate: then no
    `Validated` follows.
    """

    step: int
    num_sequences: int
    of: int


@dataclass(frozen=True)
class Validated:
    """An epoch's end: the line that was added to the metrics, and whether it is the best."""

    line: dict[str, Any]
    is_best: bool


@dataclass(frozen=True)
class Resumed:
    """Training goes on from a checkpoint; `refused` says why newer ones could not be used."""

    step: int
    refused: tuple[str, ...]


@dataclass(frozen=True)
class Stopped:
    """The end, and why; the best score by validation and its step."""

    reason: str
    step: int
    best: Best


Event = Updated | Validating | Validated | Resumed | Stopped


def train_run(
    run: Run,
    dataset: Dataset,
    *,
    max_updates: int | None = None,
    seconds_per_checkpoint: float = 30.0,
    updates_per_dispatch: int = 50,
    seconds_per_dispatch: float | None = SECONDS_PER_DISPATCH,
    devices: Mesh | None = None,
    learned: Trained | None = None,
) -> "Training":
    """Train a run from where it stands to its end, or until `max_updates` were made in all.

    Every `seconds_per_checkpoint`, and when it ends or is left, the state is saved; after a
    crash it goes on from there, and ends with the bits of a run that was never interrupted. The
    folder is held for this process meanwhile. `updates_per_dispatch`, `seconds_per_dispatch` and
    `devices` as in `fit`: of several processes the first alone reads and writes the folder.
    A new run begins with the parameters of `learned`, if there are any, in the place of drawn ones.
    """
    options = {
        "updates_per_dispatch": updates_per_dispatch,
        "seconds_per_dispatch": seconds_per_dispatch,
        "devices": devices,
    }
    return Training(run, dataset, max_updates, seconds_per_checkpoint, options, learned)


class Training(Iterator[Event]):
    """A run in training: an iterator of what happens; closed at any moment, it is saved."""

    def __init__(
        self,
        run: Run,
        dataset: Dataset,
        max_updates: int | None,
        seconds_per_checkpoint: float,
        options: dict[str, Any],
        learned: Trained | None = None,
    ):
        self.run, self.dataset, self.learned = run, dataset, learned
        self.max_updates, self.seconds_per_checkpoint = max_updates, seconds_per_checkpoint
        self._options = options
        self._checkpointing: Checkpointing | None = None
        self._events = self._train()

    def __next__(self) -> Event:
        return next(self._events)

    def close(self) -> None:
        """Leave it here, saved."""
        self._events.close()

    def leave(self) -> None:
        """Save where it stands, from any thread, for a process that ends in the middle of it."""
        if self._checkpointing is not None:
            self._checkpointing.leave()

    def _train(self) -> Generator[Event, None, None]:
        with self.run.held() as lock:
            work = Work(self.run, self.dataset, self.max_updates, learned=self.learned)
            found = newest_standing(self.run, work.start)
            standing = found.standing
            if standing.step:
                yield Resumed(standing.step, found.refused)
            checkpointing = self._checkpointing = Checkpointing(
                self.run, lock, self.seconds_per_checkpoint, standing, found.kept_best
            )
            try:
                updates = work.updates(standing.state, **self._options)
                # How long each took the last time: until it is over, nothing is saved.
                validating, updating = math.inf, 0.0
                while True:
                    if (seconds := work.epoch_seconds(standing)) is not None:
                        # It takes as long as a validation or two, and is shown as one.
                        checkpointing.reached(standing, validating)
                        yield work.validating(standing)
                        work.settle_validation(standing, seconds)
                    # Also first of all, where training was left between an epoch and its
                    # validation.
                    if work.is_to_validate(standing):
                        checkpointing.reached(standing, validating)
                        yield work.validating(standing)
                        begin = time.perf_counter()
                        standing, event = work.validate(standing)
                        validating = time.perf_counter() - begin
                        checkpointing.reached(standing, updating)
                        yield event
                    if (reason := work.reason_to_stop(standing)) is not None:
                        break
                    begin = time.perf_counter()
                    standing, event = work.update(standing, next(updates))
                    updating = time.perf_counter() - begin
                    work.time(standing.step, updating)
                    checkpointing.reached(standing, updating)
                    yield event
            finally:
                checkpointing.save()
            if is_first_process():
                remember_reference(self.run, self.dataset)
            yield Stopped(reason, standing.step, standing.best)


class Work:
    """What there is to do in a run: updates, validations, and when to stop.

    A run that is trained together `with_another`, on the same data, shares what lies on the device
    with that one, and learns with a learner that can be stacked.
    """

    def __init__(
        self,
        run: Run,
        dataset: Dataset,
        max_updates: int | None,
        *,
        is_stacked: bool = False,
        with_another: "Work | None" = None,
        learned: Trained | None = None,
    ):
        experiment, schedule = run.experiment, run.experiment.schedule
        on_device = dataset.train.values.nbytes <= ON_DEVICE
        self.run, self.schedule, self.keys = run, schedule, experiment.keys()
        if with_another is None:
            self.windows = experiment.windows(dataset, on_device=on_device)
            self.held_out = ValidationPart(dataset)
        else:
            self.windows, self.held_out = with_another.windows, with_another.held_out
        self.per_epoch = experiment.updates_per_epoch(self.windows)
        built = experiment.build(dataset, self.per_epoch, can_be_stacked=is_stacked)
        model, filter, self.learner = built
        if learned is not None:
            model, filter = learned.model, learned.filter
        self.start = Progress(self.learner.init(model, filter), model, filter)
        self.thinning = schedule.thinning(dataset.families)
        self.stopping = StoppingRule(schedule, self.per_epoch, max_updates)
        self.num_updates, self.last = self.stopping.num_updates, self.stopping.last
        self.begin = time.perf_counter()
        self.validation = known_validation(run)
        # The last step that was timed, and the updates and their seconds after the first dispatch.
        self._timed: tuple[int | None, int, float] = (None, 0, 0.0)

    def updates(self, state: Progress, updates_per_dispatch: int, **options: Any) -> Any:
        """The updates from `state` on, as `fit` makes them."""
        self.begin = time.perf_counter()
        return fit(
            self.learner,
            state.learning,
            self.windows,
            self.keys.train,
            num_updates=self.last,
            updates_per_dispatch=min(updates_per_dispatch, self.per_epoch),
            updates_per_epoch=self.per_epoch,
            kl_weight=self.schedule.annealing(self.per_epoch),
            transposition=self.schedule.transposition(),
            thinning=self.thinning,
            **options,
        )

    def update(self, standing: Standing, fitted: Fitted) -> tuple[Standing, Updated]:
        """Where training stands after some updates."""
        state, step = standing.state, fitted.num_updates
        standing = replace(
            standing,
            state=Progress(fitted.state, state.best_model, state.best_filter),
            step=step,
            averages=standing.averages.with_updates(fitted.metrics),
        )
        event = Updated(
            step, self.num_updates, -(-step // self.per_epoch), self.schedule.num_epochs,
            fitted.metrics, int(fitted.state.num_skipped), time.perf_counter() - self.begin,
        )  # fmt: skip
        return standing, event

    def time(self, step: int, seconds: float) -> None:
        """Updates up to `step` took so long; those of the first dispatch were compiled first."""
        last, count, total = self._timed
        if last is not None:
            count, total = count + step - last, total + seconds
        self._timed = step, count, total

    def epoch_seconds(self, standing: Standing) -> float | None:
        """How long an epoch takes; None where it is not known, or validation was settled before."""
        _, count, seconds = self._timed
        if self.validation is not None or not count or standing.step % self.per_epoch:
            return None
        return self.per_epoch * seconds / count

    def settle_validation(self, standing: Standing, epoch_seconds: float) -> None:
        """Measure a validation, and settle how often and on how much to validate."""
        learning, key = standing.state.learning, self.keys.valid
        num_epochs = self.schedule.num_epochs
        self.settle(self.held_out.settled(learning, key, num_epochs, epoch=epoch_seconds))

    def settle(self, validation: Validation) -> None:
        """Validate so from now on, and put it on record."""
        self.validation = validation
        self.run.remember(validation=vars(validation))

    def is_to_validate(self, standing: Standing) -> bool:
        """Whether a validation is due that has not been made."""
        step = standing.step
        if standing.validated >= step:
            return False
        if step == self.last:
            return True
        if self.validation is None:
            return False
        return step % (self.per_epoch * self.validation.epochs) == 0

    def validating(self, standing: Standing) -> Validating:
        """What a validation here will score."""
        part = self.held_out
        return Validating(standing.step, part.num_scored(self.validation), part.num_sequences)

    def validate(self, standing: Standing) -> tuple[Standing, Validated]:
        """Score the state on the validation part, and add a line to the metrics."""
        learning = standing.state.learning
        scores = self.held_out.evaluate(learning, self.keys.valid, self.validation)
        standing, full = self.with_best(standing, scores), None
        if self.is_full_due(standing):
            best = standing.state
            full = self.held_out.full.evaluate(best.best_filter, best.best_model, self.keys.valid)
        return self.recorded(standing, scores, full)

    def with_best(self, standing: Standing, scores: Evaluation) -> Standing:
        """The standing with this state for its best, if these scores are lower than before."""
        if not scores.nats < standing.best.valid:
            return standing
        learning = standing.state.learning
        state = Progress(learning, learning.model, learning.filter)
        return replace(standing, state=state, best=Best(scores.nats, standing.step))

    def recorded(
        self, standing: Standing, scores: Evaluation, full: Evaluation | None
    ) -> tuple[Standing, Validated]:
        """Add a line to the metrics: these scores, and those of the best on all, if any."""
        learning, best, step = standing.state.learning, standing.best, standing.step
        line = {
            "step": step,
            "epoch": step / self.per_epoch,
            "seconds": round(time.perf_counter() - self.begin, 3),
            "kl_weight": float(self.schedule.annealing(self.per_epoch)(jnp.asarray(step - 1))),
            "train": standing.averages.means(),
            "valid": scores.as_json() | {"of": self.held_out.num_sequences},
            "best": best.valid,
            "num_skipped": int(learning.num_skipped),
        }
        if full is not None:
            standing = replace(standing, best=replace(best, full=full.nats))
            line["full"] = {"step": best.step, **full.as_json()}
        if is_first_process():
            self.run.append_metrics(line)
        event = Validated(line, best.step == step)
        return replace(standing, validated=step, averages=Averages()), event

    def reason_to_stop(self, standing: Standing) -> str | None:
        """Why training ends here; None if it does not."""
        best, validated = standing.best.step, standing.validated
        return self.stopping.reason(
            standing.step, validated=validated, best=best, validation=self.validation
        )

    def is_full_due(self, standing: Standing) -> bool:
        """Whether the best so far, which was found on a subset, is to be scored on all."""
        validation, step = self.validation, standing.step
        if validation is None or validation.epochs_per_full is None:
            return False
        is_due = step % (self.per_epoch * validation.epochs_per_full) == 0
        is_stale = self.stopping.is_stale(step, standing.best.step, validation)
        is_end = step == self.last or is_stale
        return standing.best.full is None and (is_due or is_end)
