"""Where training stands, and how that is saved: in the background, now and then; read back."""

import math
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from varfilter.devices import is_first_process, of_first_process
from varfilter.learning import Metrics
from varfilter.runs.folder import FolderLock
from varfilter.runs.run import Progress, Run, Trained
from varfilter.training.checkpoints import (
    Checkpoint,
    keep_checkpoint,
    newest_checkpoint,
    on_host,
)

# Parts of averages that are left on the device, at most, until they are summed.
MOST_PARTS = 64


@dataclass(frozen=True)
class Averages:
    """Averages of the metrics of updates, which do not depend on how those were dispatched.

    `sums` are of `count` updates, in float64, one after the other; `parts` are still to be added.
    They are fetched from the device only when asked for: training does not wait for them.
    """

    count: int = 0
    sums: dict[str, Any] = field(default_factory=dict)
    parts: tuple[Metrics, ...] = ()

    def with_updates(self, metrics: Metrics) -> "Averages":
        """The averages with the metrics of some more updates, stacked."""
        found = replace(self, parts=(*self.parts, metrics))
        return found.summed() if len(found.parts) >= MOST_PARTS else found

    def summed(self) -> "Averages":
        """The averages with all metrics added to the sums."""
        count, sums = self.count, dict(self.sums)
        for part in jax.device_get(self.parts):
            for name, value in vars(part).items():
                if value is not None:
                    values = np.asarray(value, np.float64)
                    before = np.broadcast_to(sums.get(name, 0.0), values[:1].shape)
                    # `accumulate` adds one by one; `sum` in an order that depends on the number.
                    total = np.add.accumulate(np.concatenate([before, values]))[-1]
                    sums[name] = total.tolist()
            count += len(part.free_energy)
        return Averages(count, sums)

    def as_json(self) -> dict[str, Any]:
        """The count and the sums."""
        found = self.summed()
        return {"count": found.count, "sums": found.sums}

    def means(self) -> dict[str, Any]:
        """The average of each metric, by its name."""
        found = self.summed()
        return {
            name: (np.asarray(total) / found.count).tolist() for name, total in found.sums.items()
        }


@dataclass(frozen=True)
class Best:
    """The lowest validation score, and where it was.

    `full` is its score on all sequences, where `valid` is of a subset, once that was found out.
    """

    valid: float = math.inf
    step: int = 0
    full: float | None = None


@dataclass(frozen=True)
class Standing:
    """Where training stands: all that it needs to go on, as a checkpoint holds it.

    `validated` is the last step that was validated, `averages` are of the updates since.
    """

    state: Progress
    step: int = 0
    best: Best = Best()
    validated: int = 0
    averages: Averages = Averages()

    @property
    def mark(self) -> tuple[int, int]:
        """What tells two standings of one run apart."""
        return self.step, self.validated


class Checkpointing:
    """Saves where training stands, so that a crash costs at most `seconds` of it.

    A checkpoint is written by another thread from a copy, while training goes on; one at a time.
    0 seconds saves whenever there is something new, and waits until it is on the disk. An error of
    that thread is raised in the next call. `save` may be called from any thread.
    """

    def __init__(
        self, run: Run, lock: FolderLock | None, seconds: float, standing: Standing, kept_best: int
    ):
        self.run, self.lock, self.seconds = run, lock, seconds
        self.standing = standing
        self._kept_best = kept_best
        # A best that is to be written again is something to save.
        self._saved = standing.mark if kept_best == standing.best.step else None
        self._saving = threading.Lock()
        self._writer: threading.Thread | None = None
        self._error: BaseException | None = None
        # When the newest copy was taken, and how long the one before took to be on the disk.
        self._copied, self._took = time.perf_counter(), 0.0

    def reached(self, standing: Standing, ahead: float) -> None:
        """Training stands there now, and will be asked again after `ahead` seconds or so."""
        self.standing = standing
        self.raise_error()
        # Training never waits, and never runs ahead of the disk by more than one.
        if self.is_due(standing, ahead) and not self.is_writing:
            self.begin(standing)

    def is_due(self, standing: Standing, ahead: float) -> bool:
        """Whether to save it now, since the next time would be too late."""
        if self.lock is None or standing.mark == self._saved:
            return False
        elapsed = time.perf_counter() - self._copied
        return elapsed + self._took + ahead >= self.seconds

    @property
    def is_writing(self) -> bool:
        """Whether the thread is at work."""
        return self._writer is not None and self._writer.is_alive()

    def begin(self, standing: Standing) -> None:
        """Copy it, and have the thread write that."""
        copy = replace(standing, state=on_host(standing.state), averages=standing.averages.summed())
        self._copied = time.perf_counter()
        self._writer = threading.Thread(target=self._write_behind, args=(copy,))
        self._writer.start()
        if self.seconds == 0.0:
            self._writer.join()
            self.raise_error()

    def save(self) -> None:
        """Save where training stands, unless that is on the disk already; from any thread."""
        if self._writer is not None:
            self._writer.join()
        self._write(self.standing)

    def leave(self) -> None:
        """Save where training stands, for a process that ends without coming back to it."""
        self.save()
        if self.lock is not None:
            self.lock.remove()

    def _write_behind(self, standing: Standing) -> None:
        begin = time.perf_counter()
        try:
            self._write(standing)
        except BaseException as error:
            self._error = error
        self._took = time.perf_counter() - begin

    def _write(self, standing: Standing) -> None:
        with self._saving:
            # Nothing is saved of a run that learned nothing.
            if self.lock is None or standing.step == 0 or standing.mark == self._saved:
                return
            self.lock.require_in_place()
            run, best = self.run, standing.best
            # The best first: a checkpoint never speaks of a better one than is there.
            if best.step > self._kept_best:
                state = standing.state
                run.keep_best(Trained(state.best_model, state.best_filter, best.step, best.valid))
            manifest = {
                "record": run.record,
                "best": vars(best),
                "validated": standing.validated,
                "averages": standing.averages.as_json(),
            }
            keep_checkpoint(run.checkpoints, Checkpoint(standing.state, standing.step, manifest))
            self._saved, self._kept_best = standing.mark, best.step

    def raise_error(self) -> None:
        """Raise what went wrong in the thread."""
        error, self._error = self._error, None
        if error is not None:
            raise error


@dataclass(frozen=True)
class Found:
    """Where training goes on from: the standing of a checkpoint, or of the start.

    `kept_best` is the step of the best that is on the disk; `refused` says why newer checkpoints
    could not be used.
    """

    standing: Standing
    kept_best: int
    refused: tuple[str, ...]


def newest_standing(run: Run, state: Progress, at_most: int | None = None) -> Found:
    """The standing of the newest good checkpoint, or of the start if there is none at all.

    Newer ones than of step `at_most` are left where they are, and 0 is the start.
    Where no checkpoint is good, or the newest is another run's, training does not start over:
    that would overwrite what can be repaired. Of several processes the first alone reads.
    """
    found = Found(Standing(state), 0, ())
    if is_first_process():
        found = _read(run, state, at_most) if at_most != 0 else found
        run.cut_metrics(found.standing.validated)
    standing = found.standing
    # float64 would be cut on its way: the score goes as its bits.
    full = math.nan if standing.best.full is None else standing.best.full
    bits = np.asarray([standing.best.valid, full], np.float64).view(np.uint32)
    steps = np.asarray([standing.best.step, standing.validated])
    state, bits, steps = of_first_process((standing.state, bits, steps))
    valid, full = np.asarray(bits, np.uint32).view(np.float64).tolist()
    best = Best(valid, int(steps[0]), None if math.isnan(full) else full)
    step = int(state.learning.num_updates)
    standing = Standing(state, step, best, int(steps[1]), standing.averages)
    return replace(found, standing=standing)


def _read(run: Run, state: Progress, at_most: int | None) -> Found:
    checkpoint, refused = newest_checkpoint(run.checkpoints, state, at_most=at_most)
    if checkpoint is None and refused:
        raise ValueError(
            f"No checkpoint in {str(run.checkpoints)!r} can be resumed from, so nothing was"
            f" changed. {refused[0]} Or start over with another `--out`."
        )
    if checkpoint is None and run.has_learned:
        raise ValueError(
            f"{str(run.folder)!r} has a best model, but no checkpoint to resume from in"
            f" {str(run.checkpoints)!r}, so nothing was changed. Put one back, or start over"
            " with another `--out`."
        )
    if checkpoint is None:
        return Found(Standing(state), 0, ())
    manifest = checkpoint.manifest
    run.require_own(_path(run, checkpoint), manifest)
    best, averages = Best(**manifest["best"]), manifest.get("averages") or {}
    kept_best = best.step
    reason = run.why_best_is_bad()
    if best.step and reason is not None:
        refused.append(f"{reason} It is written again.")
        kept_best = 0
    standing = Standing(
        checkpoint.state,
        checkpoint.step,
        best,
        # A checkpoint of before these were kept was mostly made after a validation.
        manifest.get("validated", checkpoint.step),
        Averages(**averages),
    )
    return Found(standing, kept_best, tuple(refused))


def _path(run: Run, checkpoint: Checkpoint) -> Path:
    return run.checkpoints / f"step-{checkpoint.step:09}.safetensors"
