"""Several runs in training at once, as one program: other seeds of an experiment, other numbers.

Each run has its own folder, and in it what it would have had alone: its settings, metrics, best
checkpoint, and checkpoints to go on from, alone or together. What it learns is what it learns
alone, to rounding. A run that stops, since validation no longer improves or its epochs are done, is
left as it is while the others go on.
"""

import itertools
import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import jax
import jax.numpy as jnp

from varfilter._tree import stacked, unstacked
from varfilter.data.dataset import Dataset
from varfilter.experiments.experiment import Experiment, differences
from varfilter.runs.checkpointing import Checkpointing, Found, Standing, newest_standing
from varfilter.runs.metrics import remember_reference
from varfilter.runs.run import Progress, Run
from varfilter.runs.training import (
    SECONDS_PER_DISPATCH,
    Event,
    Resumed,
    Stopped,
    Validating,
    Work,
)
from varfilter.training.augmentation import Transposition
from varfilter.training.checkpoints import kept_checkpoints
from varfilter.training.fitting import Fitted, fit_stacked

# The numbers in which runs of one program may differ, as they are called on the command line.
ADAM = ("learning_rate", "decay", "epsilon", "clip_norm", "weight_decay")
NUMBERS = (
    "seed",
    *(f"optimizer.{which}.{name}" for which in ("theta", "phi") for name in ADAM),
    "optimizer.dropout",
    "optimizer.dropout_epochs",
    "schedule.num_epochs",
    "schedule.patience_epochs",
    "schedule.annealing_epochs",
    "schedule.annealing_power",
    "schedule.semitones",
    "schedule.hidden_elements",
    "schedule.hidden_gaps",
)
# What says nothing of what is computed.
NAMES = ("name", "published", "preset")

Events = tuple[Event | None, ...]


def require_one_program(experiments: Sequence[Experiment]) -> None:
    """Refuse experiments that differ in more than numbers, or not at all."""
    for number, experiment in enumerate(experiments[1:], 1):
        found = differences(experiments[0], experiment)
        for name, (first, other) in found.items():
            if not name.startswith((*NUMBERS, *NAMES)):
                raise ValueError(
                    "Runs of one program may differ in their seeds and in the numbers of"
                    f" optimizers, annealing, patience, transposition and thinning; `{name}` is"
                    f" {first!r} in the first and {other!r} in number {number}. Train that one by"
                    " itself."
                )
        if _parts(experiment) != _parts(experiments[0]):
            raise ValueError(
                f"Run number {number} differs from the first in what is done, not in numbers: one"
                " of the two clips gradients, decays or drops weights, or hides observations, and"
                " the other does not. Train that one by itself, or give both a number."
            )


def train_runs(
    runs: Sequence[Run],
    dataset: Dataset,
    *,
    max_updates: int | None = None,
    seconds_per_checkpoint: float = 30.0,
    updates_per_dispatch: int = 50,
    seconds_per_dispatch: float | None = SECONDS_PER_DISPATCH,
) -> "Sweep":
    """Train several runs on the same data, from where they stand to the end of each.

    As `train_run` for each of them; the arguments mean what they mean there. They may differ in
    `NUMBERS`. All must stand at the same step, or have a checkpoint of one step; those that have
    ended are left as they are.
    """
    if not runs:
        raise ValueError("`runs` must have at least one run to train; got none.")
    folders = [run.folder.resolve() for run in runs]
    if len(set(folders)) < len(folders):
        raise ValueError("`runs` must have a folder each; two of them have the same.")
    require_one_program([run.experiment for run in runs])
    if jax.process_count() > 1:
        raise ValueError(
            "`runs` of one program are trained by one process; here are"
            f" {jax.process_count()}. Train each by itself, `train_run`, with its batches shared."
        )
    options = {
        "updates_per_dispatch": updates_per_dispatch,
        "seconds_per_dispatch": seconds_per_dispatch,
    }
    return Sweep(runs, dataset, max_updates, seconds_per_checkpoint, options)


class Sweep(Iterator[Events]):
    """Runs in training: an iterator of what happens to each of them; None is nothing.

    Closed at any moment, all are saved, at the same step.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        dataset: Dataset,
        max_updates: int | None,
        seconds_per_checkpoint: float,
        options: dict[str, Any],
    ):
        self.runs, self.dataset = list(runs), dataset
        self.max_updates, self.seconds_per_checkpoint = max_updates, seconds_per_checkpoint
        self._options = options
        self._saving: _Saving | None = None
        self._events = self._train()

    def __next__(self) -> Events:
        return next(self._events)

    def close(self) -> None:
        """Leave all here, saved."""
        self._events.close()

    def leave(self) -> None:
        """Save where they stand, from any thread, for a process that ends in the middle of it."""
        if self._saving is not None:
            self._saving.leave()

    def _train(self) -> Generator[Events, None, None]:
        with ExitStack() as stack:
            locks = [stack.enter_context(run.held()) for run in self.runs]
            group = _Group(self.runs, self.dataset, self.max_updates)
            found = group.found()
            if any(each.standing.step for each in found):
                yield tuple(Resumed(each.standing.step, each.refused) for each in found)
            saving = self._saving = _Saving(
                [
                    Checkpointing(
                        run, lock, self.seconds_per_checkpoint, each.standing, each.kept_best
                    )
                    for run, lock, each in zip(self.runs, locks, found, strict=True)
                ]
            )
            standings = {member: each.standing for member, each in enumerate(found)}
            # As in the training of one run, which says why.
            validating, updating = math.inf, 0.0
            updates = _Updates(group, self._options)
            group.begin()
            try:
                while standings:
                    if (seconds := group.epoch_seconds(standings)) is not None:
                        saving.reached(standings, validating)
                        yield group.events(
                            {m: group.validating(m, standings[m]) for m in standings}
                        )
                        group.settle_validation(standings, seconds)
                    if due := group.to_validate(standings):
                        saving.reached(standings, validating)
                        yield group.events({m: group.validating(m, standings[m]) for m in due})
                        begin = time.perf_counter()
                        standings, events = group.validate(standings, due)
                        validating = time.perf_counter() - begin
                        saving.reached(standings, updating)
                        yield group.events(events)
                    for member, reason in group.reasons_to_stop(standings).items():
                        standing = standings.pop(member)
                        saving.save(member)
                        remember_reference(self.runs[member], self.dataset)
                        yield group.events({member: Stopped(reason, standing.step, standing.best)})
                    if not standings:
                        break
                    begin = time.perf_counter()
                    standings, events = updates.made(standings)
                    updating = time.perf_counter() - begin
                    group.time(standings, updating)
                    saving.reached(standings, updating)
                    yield group.events(events)
            finally:
                saving.save_all()


class _Group:
    """The work of several runs, of which that of one validation is one program."""

    def __init__(self, runs: list[Run], dataset: Dataset, max_updates: int | None):
        first = Work(runs[0], dataset, max_updates, is_stacked=True)
        others = [
            Work(run, dataset, max_updates, is_stacked=True, with_another=first) for run in runs[1:]
        ]
        self.runs, self.works = runs, [first, *others]
        self.held_out = first.held_out
        # How many are scored at once: where one has ended, another takes its place, in vain, since
        # fewer would be another program.
        self.width = len(runs)

    def events(self, by_member: Mapping[int, Event]) -> Events:
        """What happened to each run, None to those that are not mentioned."""
        return tuple(by_member.get(member) for member in range(len(self.runs)))

    def begin(self) -> None:
        """Count seconds from now on."""
        for work in self.works:
            work.begin = time.perf_counter()

    def found(self) -> list[Found]:
        """Where each run goes on from: those that have not ended, from the same step."""
        found = [newest_standing(w.run, w.start) for w in self.works]
        open_members = [m for m, each in enumerate(found) if not self._has_ended(m, each)]
        steps = {m: found[m].standing.step for m in open_members}
        if len(set(steps.values())) > 1:
            common = self._common_step(open_members)
            if common is None:
                raise ValueError(self._why_not_together(steps))
            for m in open_members:
                if steps[m] != common:
                    work = self.works[m]
                    found[m] = newest_standing(work.run, work.start, at_most=common)
        settled = {self.works[m].validation for m in open_members}
        if len(settled) > 1:
            raise ValueError(
                "The runs have on record that they are validated at different steps, or on"
                f" different sequences, so that they cannot go on in one program. {self._alone()}"
            )
        return found

    def epoch_seconds(self, standings: Mapping[int, Standing]) -> float | None:
        """How long an epoch of all takes; None where validation needs no settling now."""
        lead = min(standings)
        return self.works[lead].epoch_seconds(standings[lead])

    def settle_validation(self, standings: Mapping[int, Standing], epoch_seconds: float) -> None:
        """Measure a validation, and settle how often and on how much, for all of them alike."""
        num_epochs = max(self.works[m].schedule.num_epochs for m in standings)
        learning, keys = self._stack(standings, lambda state: state.learning)
        settled = self.held_out.settled(learning, keys, num_epochs, epoch=epoch_seconds)
        for m in standings:
            self.works[m].settle(settled)

    def to_validate(self, standings: Mapping[int, Standing]) -> list[int]:
        """The runs of which a validation is due."""
        return [m for m, each in standings.items() if self.works[m].is_to_validate(each)]

    def validating(self, member: int, standing: Standing) -> Validating:
        """What a validation of a run will score."""
        return self.works[member].validating(standing)

    def validate(
        self, standings: Mapping[int, Standing], due: list[int]
    ) -> tuple[dict[int, Standing], dict[int, Event]]:
        """Score those that are due; the others are scored too, in vain: it is one program."""
        part = self.held_out.part(self.works[due[0]].validation)
        learning, keys = self._stack(standings, lambda state: state.learning)
        scores = part.evaluate_stacked(learning.filter, learning.model, keys)
        by_member = dict(zip(standings, scores, strict=False))
        after = dict(standings)
        for m in due:
            after[m] = self.works[m].with_best(after[m], by_member[m])
        full: dict[int, Any] = {}
        if any(self.works[m].is_full_due(after[m]) for m in due):
            best, keys = self._stack(after, lambda state: (state.best_filter, state.best_model))
            scores = self.held_out.full.evaluate_stacked(best[0], best[1], keys)
            full = dict(zip(after, scores, strict=False))
        events: dict[int, Event] = {}
        for m in due:
            of_all = full.get(m) if self.works[m].is_full_due(after[m]) else None
            after[m], events[m] = self.works[m].recorded(after[m], by_member[m], of_all)
        return after, events

    def reasons_to_stop(self, standings: Mapping[int, Standing]) -> dict[int, str]:
        """Why runs end here, of those that do."""
        reasons = {m: self.works[m].reason_to_stop(each) for m, each in standings.items()}
        return {m: reason for m, reason in reasons.items() if reason is not None}

    def time(self, standings: Mapping[int, Standing], seconds: float) -> None:
        """Updates up to where they stand took so long."""
        for m, standing in standings.items():
            self.works[m].time(standing.step, seconds)

    def _stack(
        self, standings: Mapping[int, Standing], part: Callable[[Progress], Any]
    ) -> tuple[Any, Any]:
        """A part of each run's state, and its key of validation, stacked; `width` of them."""
        members = list(itertools.islice(itertools.cycle(standings), self.width))
        keys = jnp.stack([self.works[m].keys.valid for m in members])
        return stacked([part(standings[m].state) for m in members]), keys

    def _has_ended(self, member: int, found: Found) -> bool:
        work, standing = self.works[member], found.standing
        return not work.is_to_validate(standing) and work.reason_to_stop(standing) is not None

    def _common_step(self, members: list[int]) -> int | None:
        """The newest step of which all of these have a checkpoint; None if there is none.

        A crash while the first ones were written may have left some runs without any: then it is
        the start, and what is lost is what one run would have lost.
        """
        kept = [[step for step, _ in kept_checkpoints(self.runs[m].checkpoints)] for m in members]
        common = set(kept[0]).intersection(*kept[1:])
        if common:
            return max(common)
        return 0 if max(map(len, kept)) == 1 and min(map(len, kept)) == 0 else None

    def _why_not_together(self, steps: Mapping[int, int]) -> str:
        named = ", ".join(f"{self.runs[m].folder.name} at {step}" for m, step in steps.items())
        last = max(steps.values())
        return (
            f"The runs stand at different steps ({named}), and have no checkpoint of one step, so"
            f" that they cannot go on in one program; nothing was changed. {self._alone()} Or bring"
            f" those behind to the step of the first of them, with `--max-updates {last}`, and then"
            " go on together."
        )

    def _alone(self) -> str:
        return f"Go on with each alone: `{self.runs[0].command('train')}`, and so on."


class _Updates:
    """The updates of all runs that go on, as one program, of which those that ended drop out.

    When half of them have ended the others are stacked anew: one more program is compiled, and half
    the work is left.
    """

    def __init__(self, group: _Group, options: dict[str, Any]):
        self.group, self.options = group, options
        self.members: list[int] = []
        self.updates: Iterator[Fitted] = iter(())

    def made(
        self, standings: Mapping[int, Standing]
    ) -> tuple[dict[int, Standing], dict[int, Event]]:
        """Where they stand after some updates, and what is to be told of these."""
        if 2 * len(standings) <= len(self.members) or not self.members:
            self.members = list(standings)
            self.group.width = len(self.members)
            self.updates = self._updates_from(standings)
        fitted = next(self.updates)
        each = unstacked((fitted.state, fitted.metrics), len(self.members))
        after: dict[int, Standing] = {}
        events: dict[int, Event] = {}
        for m, (state, metrics) in zip(self.members, each, strict=True):
            if m in standings:
                work = self.group.works[m]
                after[m], events[m] = work.update(standings[m], Fitted(state, metrics))
        return after, events

    def _updates_from(self, standings: Mapping[int, Standing]) -> Iterator[Fitted]:
        works = [self.group.works[m] for m in standings]
        first, options = works[0], dict(self.options)
        per_dispatch = min(options.pop("updates_per_dispatch"), first.per_epoch)
        return fit_stacked(
            stacked([work.learner for work in works]),
            stacked([each.state.learning for each in standings.values()]),
            first.windows,
            jnp.stack([work.keys.train for work in works]),
            num_updates=max(work.last for work in works),
            updates_per_dispatch=per_dispatch,
            updates_per_epoch=first.per_epoch,
            kl_weight=stacked([work.schedule.annealing(work.per_epoch) for work in works]),
            transposition=_transposition([work.schedule.semitones for work in works]),
            thinning=stacked([work.thinning for work in works]),
            **options,
        )


class _Saving:
    """Saves where all runs stand, each in its folder, at the same steps: so that they can go on.

    A crash while they are written leaves some folders without the newest step; the one before is
    in all of them.
    """

    def __init__(self, each: list[Checkpointing]):
        self.each = each
        # Held while the standings change: a thread that saves must not see some at the next step.
        self._changing = threading.Lock()

    def reached(self, standings: Mapping[int, Standing], ahead: float) -> None:
        """Training stands there now, and will be asked again after `ahead` seconds or so."""
        with self._changing:
            for member, standing in standings.items():
                self.each[member].standing = standing
        going = [(self.each[member], standing) for member, standing in standings.items()]
        for one, _ in going:
            one.raise_error()
        is_due = any(one.is_due(standing, ahead) for one, standing in going)
        if is_due and not any(one.is_writing for one, _ in going):
            for one, standing in going:
                one.begin(standing)

    def save(self, member: int) -> None:
        """Save where one run stands, which has ended."""
        self.each[member].save()

    def save_all(self) -> None:
        """Save where they stand, unless that is on the disk already."""
        with self._changing:
            for one in self.each:
                one.save()

    def leave(self) -> None:
        """Save where they stand, for a process that ends without coming back to it."""
        with self._changing:
            for one in self.each:
                one.leave()


def _parts(experiment: Experiment) -> tuple[bool, ...]:
    """What is done at all, whatever the numbers."""
    optimizers = (experiment.optimizer.theta, experiment.optimizer.phi)
    clips = (each.clip_norm is not None for each in optimizers)
    decays = (each.weight_decay > 0.0 for each in optimizers)
    drops = experiment.optimizer.dropout > 0.0
    return (*clips, *decays, drops, experiment.schedule.thinning() is not None)


def _transposition(semitones: list[int]) -> Transposition | None:
    """How the windows of each run are moved, stacked: by 0 semitones where others are, and not."""
    return stacked([Transposition(each) for each in semitones]) if any(semitones) else None
