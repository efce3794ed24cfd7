"""What an update of each experiment takes on this machine: where `varfilter list` has it from.

    python benchmarks/experiments.py [--json FILE] [--batch N] [--preset small] [EXPERIMENT ...]

Each experiment is trained at its own sizes, batch and schedule, in a process of its own, on
random data of its shape: time does not depend on what is in the data. It prints the seconds of
an update after the first, on the clock and of all cores together, of the first, which compiles, and
the peak memory. On a machine that is busy with other things the seconds of cores are what counts:
two idle cores need at most so long, and at least half of it. A smaller batch is for what does not
fit; its time is then to be multiplied.
"""

import argparse
import dataclasses
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from varfilter.data import Dataset, Ragged
from varfilter.data.sets.registry import CATALOGUE
from varfilter.experiments import EXPERIMENTS, Experiment, experiment_named
from varfilter.experiments.presets import with_preset
from varfilter.training.fitting import fit

NUM_TIMED = 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help="default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--batch", type=int, metavar="N", help="sequences, not the experiment's")
    parser.add_argument("--preset", choices=("small", "paper"), default="paper")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = arguments.experiments or different()
    if arguments.one:
        experiment = with_preset(experiment_named(names[0]), arguments.preset)
        print(json.dumps(measure(with_batch(experiment, arguments.batch))))
        return

    console, rows = Console(), []
    for name in names:
        options = [
            name,
            "--one",
            "--preset",
            arguments.preset,
            *(["--batch", str(arguments.batch)] if arguments.batch else []),
        ]
        with console.status(f"measuring {name} ..."):
            done = subprocess.run(
                [sys.executable, __file__, *options], capture_output=True, text=True, check=False
            )
        if done.returncode != 0:
            # The rest may well fit.
            console.print(f"{name} failed: {(done.stderr.splitlines() or [done.returncode])[-1]}")
            continue
        row = json.loads(done.stdout)
        rows.append(row)
        console.print(
            f"{name}: {row['seconds']:.4g} s an update of {row['batch']} sequences,"
            f" {row['core_seconds']:.4g} s of cores, {row['first_seconds']:.3g} s the first"
            f" ({row['first_core_seconds']:.3g} s of cores), {row['peak_gib']:.2g} GiB,"
            f" on {row['device']}",
            soft_wrap=True,
        )
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def different() -> list[str]:
    """One name of each kind of update: other data of the same shape take the same time."""
    found: dict[Any, str] = {}
    for name, experiment in EXPERIMENTS.items():
        if (entry := CATALOGUE.get(experiment.data.source)) is not None:
            sizes = type(experiment.model).__name__, entry.observation, experiment.filter
            found.setdefault(str((*sizes, experiment.schedule.batch_size)), name)
    return list(found.values())


def with_batch(experiment: Experiment, batch: int | None) -> Experiment:
    """The same with so many sequences in a batch."""
    if batch is None:
        return experiment
    schedule = dataclasses.replace(experiment.schedule, batch_size=batch)
    return dataclasses.replace(experiment, schedule=schedule)


def measure(experiment: Experiment) -> dict[str, Any]:
    """Of updates made one at a time, the median after the first."""
    dataset, schedule = stand_in(experiment), experiment.schedule
    model, filter, learner = experiment.build(dataset)
    updates = fit(
        learner,
        learner.init(model, filter),
        experiment.windows(dataset),
        jax.random.key(0),
        num_updates=1 + NUM_TIMED,
        updates_per_dispatch=1,
        kl_weight=schedule.annealing(1),
    )
    seconds, cores, before = [], [], (time.perf_counter(), time.process_time())
    for fitted in updates:
        jax.block_until_ready((fitted.state, fitted.metrics))
        seconds.append(time.perf_counter() - before[0])
        cores.append(time.process_time() - before[1])
        if int(fitted.state.num_skipped):
            sys.exit("an update had no finite gradient")
        before = time.perf_counter(), time.process_time()
    return {
        "experiment": experiment.name,
        "batch": schedule.batch_size,
        "seconds": float(np.median(seconds[1:])),
        "core_seconds": float(np.median(cores[1:])),
        "first_seconds": seconds[0],
        "first_core_seconds": cores[0],
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "device": jax.devices()[0].device_kind,
    }


def stand_in(experiment: Experiment) -> Dataset:
    """One batch of random sequences of the experiment's shape."""
    entry = CATALOGUE[experiment.data.source]
    shape, family = entry.observation, entry.family
    schedule = experiment.schedule
    num_rows = schedule.batch_size * schedule.num_steps
    values = np.random.default_rng(0).uniform(size=(num_rows, *shape)).astype(np.float32)
    values = values.round() if family.width is None else values
    family = dataclasses.replace(family, width=family.width and 1 / 256)
    part = Ragged(values, np.full(schedule.batch_size, schedule.num_steps))
    return Dataset("stand-in", part, part, part, family)


if __name__ == "__main__":
    main()
