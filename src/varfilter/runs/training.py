"""Training a run: epochs, validation, checkpoints, early stopping; a generator of what happened."""

import math
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from varfilter._arguments import require_positive
from varfilter.data.dataset import Dataset
from varfilter.devices import is_first_process, of_first_process
from varfilter.experiments.experiment import as_json
from varfilter.filters import AbstractFilter
from varfilter.learning import LearnerState, Metrics
from varfilter.model import AbstractModel
from varfilter.runs.run import Run, Trained
from varfilter.training.checkpoints import Checkpoint, keep_checkpoint, newest_checkpoint
from varfilter.training.evaluation import HeldOut
from varfilter.training.updates import fit


class Averages:
    """Running averages of the metrics of updates; `saved` are the sums of earlier ones."""

    def __init__(self, saved: dict[str, Any] | None = None):
        self._count: int = saved["count"] if saved else 0
        self._sums: dict[str, Any] = saved["sums"] if saved else {}
        # Fetched from the device only when asked for: training does not wait for them.
        self._parts: list[Metrics] = []

    def add(self, metrics: Metrics) -> None:
        """Add the metrics of some updates, stacked."""
        self._parts.append(metrics)

    def saved(self) -> dict[str, Any]:
        """The sums of all that was added, as plain JSON."""
        for part in jax.device_get(self._parts):
            named = {name: value for name, value in vars(part).items() if value is not None}
            for name, value in named.items():
                total = np.sum(np.asarray(value, np.float64), axis=0)
                self._sums[name] = (total + self._sums.get(name, 0.0)).tolist()
            self._count += len(part.free_energy)
        self._parts = []
        return {"count": self._count, "sums": dict(self._sums)}

    def means(self) -> dict[str, Any]:
        """The average of each metric, by its name."""
        found = self.saved()
        return {
            name: (np.asarray(total) / found["count"]).tolist()
            for name, total in found["sums"].items()
        }


# Bytes of training data that are kept on the device, to draw batches there.
ON_DEVICE = 2 << 30


class Progress(eqx.Module):
    """What training carries from update to update: the learner's state, and the best so far."""

    learning: LearnerState
    best_model: AbstractModel
    best_filter: AbstractFilter


@dataclass(frozen=True)
class Best:
    """The lowest validation score, and where it was."""

    valid: float = math.inf
    step: int = 0


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


Event = Updated | Validated | Resumed | Stopped


def train_run(
    run: Run,
    dataset: Dataset,
    *,
    max_updates: int | None = None,
    seconds_per_checkpoint: float = 30.0,
    updates_per_dispatch: int = 50,
    devices: Mesh | None = None,
) -> Generator[Event, None, None]:
    """Train a run from where it stands to its end, or until `max_updates` were made in all.

    Every `seconds_per_checkpoint`, and when it ends or is left, the state is saved; after a
    crash it goes on from there, and ends with the bits of a run that was never interrupted.
    `devices` as in `fit`: of several processes the first alone reads and writes the folder.
    """
    experiment, schedule = run.experiment, run.experiment.schedule
    windows = experiment.windows(dataset, on_device=dataset.train.values.nbytes <= ON_DEVICE)
    per_epoch = schedule.updates_per_epoch(windows.num_batches)
    model, filter, learner = experiment.build(dataset, per_epoch)
    held_out = HeldOut(dataset, split="valid", batch_size=4 * schedule.batch_size, growth=2)
    keys = experiment.keys()
    num_updates = schedule.num_epochs * per_epoch
    last = num_updates if max_updates is None else require_positive("max_updates", max_updates)

    standing = _newest(run, Progress(learner.init(model, filter), model, filter))
    state, best, validated = standing.state, standing.best, standing.validated
    if step := int(state.learning.num_updates):
        yield Resumed(step, standing.refused)
    averages = Averages(standing.averages)
    keeper = _Keeper(run, seconds_per_checkpoint, standing.kept_best)

    epochs = fit(
        learner,
        state.learning,
        windows,
        keys.train,
        num_updates=min(last, num_updates),
        updates_per_dispatch=min(updates_per_dispatch, per_epoch),
        updates_per_epoch=per_epoch,
        kl_weight=schedule.annealing(per_epoch),
        thinning=schedule.thinning(),
        devices=devices,
    )
    begin = time.perf_counter()
    try:
        while True:
            is_due = step % (per_epoch * schedule.epochs_per_validation) == 0
            # Also first of all, where training was left between an epoch and its validation.
            if validated < step and (is_due or step in (num_updates, last)):
                scores = held_out.evaluate(state.learning.filter, state.learning.model, keys.valid)
                is_best = scores.nats < best.valid
                if is_best:
                    learning = state.learning
                    # In one assignment, here and below: no signal comes between its halves.
                    state, best = (
                        Progress(learning, learning.model, learning.filter),
                        Best(scores.nats, step),
                    )
                line = {
                    "step": step,
                    "epoch": step / per_epoch,
                    "seconds": round(time.perf_counter() - begin, 3),
                    "kl_weight": float(schedule.annealing(per_epoch)(jnp.asarray(step - 1))),
                    "train": averages.means(),
                    "valid": scores.as_json(),
                    "best": best.valid,
                    "num_skipped": int(state.learning.num_skipped),
                }
                if is_first_process():
                    run.append_metrics(line)
                validated, averages = step, Averages()
                keeper.keep_now_and_then(state, step, best, validated, averages)
                yield Validated(line, is_best)
            if step >= num_updates:
                reason = f"all {schedule.num_epochs} epochs are done"
                break
            if step >= last:
                reason = f"{step} updates were made, the most allowed"
                break
            if validated == step and _is_stale(schedule, best, step // per_epoch, per_epoch):
                reason = f"validation has not improved for {schedule.patience_epochs} epochs"
                break
            fitted = next(epochs)
            state, step = (
                Progress(fitted.state, state.best_model, state.best_filter),
                fitted.num_updates,
            )
            averages.add(fitted.metrics)
            yield Updated(
                step, num_updates, -(-step // per_epoch), schedule.num_epochs, fitted.metrics,
                int(state.learning.num_skipped), time.perf_counter() - begin,
            )  # fmt: skip
    finally:
        keeper.keep(state, step, best, validated, averages)
    yield Stopped(reason, step, best)


@dataclass(frozen=True)
class _Standing:
    """Where training stands as it begins or goes on."""

    state: Progress
    best: Best
    kept_best: int
    """The step of the best that is on disk."""
    validated: int
    """The last step that was validated."""
    averages: dict[str, Any] | None
    """The sums of the metrics of the updates since that validation."""
    refused: tuple[str, ...]
    """Why newer checkpoints could not be used."""


def _newest(run: Run, state: Progress) -> _Standing:
    """The standing of the newest good checkpoint, or of the start if there is none at all.

    Where no checkpoint is good, training does not start over: that would overwrite what can be
    repaired.
    """
    best, kept_best, validated, averages, refused = Best(), 0, 0, None, []
    if is_first_process():
        found, refused = newest_checkpoint(run.checkpoints, state)
        if found is None and refused:
            raise ValueError(
                f"No checkpoint in {str(run.checkpoints)!r} can be resumed from, so nothing was"
                f" changed. {refused[0]} Or start over with another `--out`."
            )
        if found is None and run.has_learned:
            raise ValueError(
                f"{str(run.folder)!r} has a best model, but no checkpoint to resume from in"
                f" {str(run.checkpoints)!r}, so nothing was changed. Put one back, or start over"
                " with another `--out`."
            )
        if found is not None:
            state, best = found.state, Best(**found.manifest["best"])
            # A checkpoint of before these were kept was mostly made after a validation.
            validated = found.manifest.get("validated", found.step)
            averages = found.manifest.get("averages")
            kept_best = best.step
            if best.step and (reason := run.why_best_is_bad()):
                refused.append(f"{reason} It is written again.")
                kept_best = 0
        run.cut_metrics(validated)
    # float64 would be cut on its way: the score goes as its bits.
    bits = np.asarray([best.valid], np.float64).view(np.uint32)
    steps = np.asarray([best.step, validated])
    state, bits, steps = of_first_process((state, bits, steps))
    best = Best(float(np.asarray(bits, np.uint32).view(np.float64)[0]), int(steps[0]))
    return _Standing(state, best, kept_best, int(steps[1]), averages, tuple(refused))


def _is_stale(schedule: Any, best: Best, epoch: int, per_epoch: int) -> bool:
    if schedule.patience_epochs is None:
        return False
    # Until the KL has its full weight validation may well get worse for a while.
    since = max(best.step // per_epoch, schedule.annealing_epochs)
    return epoch - since >= schedule.patience_epochs


class _Keeper:
    """Saves the state of training, no more often than it is worth."""

    def __init__(self, run: Run, seconds: float, best_step: int):
        self.run, self.seconds = run, seconds
        self.kept_best, self.kept_step = best_step, -1
        self.last = time.perf_counter()

    def keep_now_and_then(self, state: Progress, step: int, *rest: Any) -> None:
        if time.perf_counter() - self.last >= self.seconds:
            self.keep(state, step, *rest)

    def keep(
        self, state: Progress, step: int, best: Best, validated: int, averages: Averages
    ) -> None:
        if step == self.kept_step or step == 0 or not is_first_process():
            return
        run = self.run
        # The best first: a checkpoint never speaks of a better one than is there.
        if best.step > self.kept_best:
            run.keep_best(Trained(state.best_model, state.best_filter, best.step, best.valid))
        manifest = {
            "experiment": as_json(run.experiment),
            "revision": run.record["revision"],
            "data_sha256": run.record["data"]["sha256"],
            "seed": run.experiment.seed,
            "best": vars(best),
            "validated": validated,
            "averages": averages.saved(),
        }
        keep_checkpoint(run.checkpoints, Checkpoint(state, step, manifest))
        self.kept_best, self.kept_step = best.step, step
        self.last = time.perf_counter()
