"""What a run is about to do, and what that is expected to take on this device."""

import os
import sys
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import jax

from varfilter._text import count
from varfilter.data.dataset import Dataset
from varfilter.experiments.costs import Expected, Parameters, expected, num_parameters, slowness
from varfilter.experiments.experiment import Experiment
from varfilter.runs.folder import CHECKPOINTS
from varfilter.training.checkpoints import kept_checkpoints


@dataclass(frozen=True)
class Plan:
    """The work of a run, from `done` updates to `num_updates`, and where it is to be done."""

    experiment: Experiment
    parameters: Parameters
    window_steps: int
    updates_per_epoch: int
    num_updates: int
    done: int
    device: str
    platform: str
    available_gib: float | None
    expected: Expected

    @property
    def is_too_large(self) -> bool:
        """Whether it is expected to need more memory than there is."""
        gib = self.expected.gib
        return gib is not None and self.available_gib is not None and gib > self.available_gib


def plan_run(
    experiment: Experiment,
    dataset: Dataset,
    *,
    max_updates: int | None = None,
    done: int = 0,
    num_runs: int = 1,
) -> Plan:
    """Plan an experiment on its data, up to `max_updates` in all; nothing is built or compiled.

    Of several runs in one program each takes as much as one, for all that is known beforehand.
    """
    schedule = experiment.schedule
    windows = experiment.windows(dataset, on_device=False)
    per_epoch = schedule.updates_per_epoch(windows.num_batches)
    num_updates = schedule.num_epochs * per_epoch
    if max_updates is not None:
        num_updates = min(num_updates, max_updates)
    parameters = num_parameters(experiment, dataset)
    assert parameters is not None  # the data are here
    device = jax.devices()[0]
    on_cpu = device.platform == "cpu"
    guess = expected(
        experiment,
        parameters,
        windows.num_steps,
        num_updates - min(done, num_updates),
        platform=device.platform,
        slowness=slowness() if on_cpu else 1.0,
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Plan(
        experiment,
        parameters,
        windows.num_steps,
        per_epoch,
        num_updates,
        min(done, num_updates),
        f"{count(cores or 1, 'core')} of a CPU" if on_cpu else device.device_kind,
        device.platform,
        available_gib(device),
        Expected(*(None if each is None else each * num_runs for each in astuple(guess))),
    )


def updates_made(folder: Path) -> int:
    """How many updates the newest checkpoint of a run in `folder` has; 0 if there is none."""
    kept = kept_checkpoints(folder / CHECKPOINTS)
    return kept[0][0] if kept else 0


def available_gib(device: Any) -> float | None:
    """The memory that a device has to give; None where nobody says."""
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        limit = stats.get("bytes_limit")
        return None if limit is None else limit / 2**30
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            facts = dict(line.split(":") for line in file)
        return int(facts["MemAvailable"].split()[0]) / 2**20
    except (OSError, ValueError, KeyError):
        return None


def used_gib(device: Any) -> float | None:
    """The most memory that was in use so far: of the device, or of this process on a CPU."""
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        peak = stats.get("peak_bytes_in_use")
        return None if peak is None else peak / 2**30
    try:
        import resource
    except ImportError:  # Windows has none
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)
