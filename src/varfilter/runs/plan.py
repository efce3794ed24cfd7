"""What a run is about to do, and what that is expected to take on this device."""

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import jax

from varfilter._text import count
from varfilter.data.dataset import Dataset
from varfilter.experiments.costs import Estimate, Parameters, expected, num_parameters, slowness
from varfilter.experiments.experiment import Experiment
from varfilter.runs.folder import updates_made
from varfilter.runs.run import Run
from varfilter.runs.validation import StoppingRule, Validation, known_validation


@dataclass(frozen=True)
class Reached:
    """How far the run of a folder has come.

    `step` is of its newest checkpoint; `validated` and `best` are the steps of the last validation
    and of the lowest until then, and `validation` is what was settled of them.
    """

    step: int = 0
    validated: int = 0
    best: int = 0
    validation: Validation | None = None


@dataclass(frozen=True)
class Plan:
    """The work of a run, from `done` updates to `num_updates`, and where it is to be done.

    `ended` says why there is nothing to do. `is_cut` is whether the schedule goes on beyond that.
    Of `num_runs` in one program, the time and the memory are of all of them.
    """

    experiment: Experiment
    parameters: Parameters
    window_steps: int
    updates_per_epoch: int
    num_updates: int
    done: int
    ended: str | None
    is_cut: bool
    num_runs: int
    device: str
    platform: str
    available_gib: float | None
    expected: Estimate

    @property
    def left(self) -> int:
        """How many updates there are to make."""
        return self.num_updates - self.done

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
    reached: Sequence[Reached] = (Reached(),),
) -> Plan:
    """Plan an experiment on its data, up to `max_updates` in all; nothing is built or compiled.

    `reached` says how far it has come; of several runs in one program, each of them. Those that
    have ended are left as they are, and each of the others takes as much as one, for all that is
    known beforehand.
    """
    schedule = experiment.schedule
    windows = experiment.windows(dataset, on_device=False)
    rule = StoppingRule(schedule, experiment.updates_per_epoch(windows), max_updates)
    ends = [rule.reason(each.step, **_of_validation(each)) for each in reached]
    going = [each.step for each, end in zip(reached, ends, strict=True) if end is None]
    done = min(going) if going else max(each.step for each in reached)
    parameters = num_parameters(experiment, dataset)
    assert parameters is not None  # the data are here
    device = jax.devices()[0]
    on_cpu = device.platform == "cpu"
    guess = expected(
        experiment,
        parameters,
        windows.num_steps,
        rule.last - done if going else 0,
        platform=device.platform,
        slowness=slowness() if on_cpu else 1.0,
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Plan(
        experiment,
        parameters,
        windows.num_steps,
        rule.updates_per_epoch,
        rule.last if going else done,
        done,
        None if going else ends[0],
        rule.last < rule.num_updates,
        len(going),
        f"{count(cores or 1, 'core')} of a CPU" if on_cpu else device.device_kind,
        device.platform,
        available_gib(device),
        Estimate(*(None if each is None else each * len(going) for each in astuple(guess))),
    )


def reached_in(folder: Path) -> Reached:
    """How far the run in `folder` has come, if there is one.

    The metrics say it, of which there is a line for each validation: a checkpoint knows it too, but
    may be large, and would be read twice.
    """
    step = updates_made(folder)
    if not step:
        return Reached()
    run = Run.load(folder)
    validated, best, lowest = 0, 0, math.inf
    for line in run.metrics():
        # Lines beyond the checkpoint are of updates that a crash has cost.
        if line["step"] <= step:
            validated, nats = line["step"], line["valid"]["nats"]
            if nats < lowest:
                best, lowest = validated, nats
    return Reached(step, validated, best, known_validation(run))


def _of_validation(reached: Reached) -> dict[str, Any]:
    found = dict(vars(reached))
    del found["step"]
    return found


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
