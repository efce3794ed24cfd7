"""What the small presets take from start to end on this machine, and what they learn in that time.

    python benchmarks/presets.py [--json FILE] [--max-updates N] [EXPERIMENT ...]

Each is trained whole by `train_run`, in a process of its own, on the data of an experiment that has
a name, which must be in the data folder. It prints the seconds of the whole run on the clock and of
all cores together (half of those is what two idle cores would need at least), of an update after
the first, the share of validations, the peak memory, and the best score beside the naive one.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from varfilter.experiments import experiment_named
from varfilter.experiments.presets import with_preset
from varfilter.media import load, medium_of
from varfilter.runs import Run, train_run
from varfilter.runs.training import Stopped, Updated

NAMES = (
    "srnn-jsb-avf",
    "srnn-jsb-baseline",
    "vrnn-timit-sample-avf",
    "vrnn-timit-sample-baseline",
    "srnn-timit-sample-avf",
    "srnn-timit-sample-baseline",
    "svg-weizmann-avf",
    "svg-weizmann-baseline",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help="default: eight")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--max-updates", type=int, metavar="N", help="a short try")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = arguments.experiments or NAMES
    if arguments.one:
        print(json.dumps(measure(names[0], arguments.max_updates)))
        return
    console, rows = Console(), []
    for name in names:
        words = [sys.executable, __file__, name, "--one"]
        if arguments.max_updates:
            words += ["--max-updates", str(arguments.max_updates)]
        with console.status(f"training {name} ..."):
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            console.print(f"{name} failed: {(done.stderr.splitlines() or [done.returncode])[-1]}")
            continue
        row = json.loads(done.stdout)
        rows.append(row)
        console.print(
            f"{name}: {row['updates']} updates, {row['seconds']:.0f} s on the clock,"
            f" {row['core_seconds']:.0f} s of cores ({row['start_seconds']:.0f} s before the second"
            f" dispatch); an update {row['update_seconds']:.3g} s, of cores"
            f" {row['update_core_seconds']:.3g} s; validation {row['validation_share']:.0%};"
            f" {row['peak_gib']:.2g} GiB; best {row['best']:.3f} at {row['best_step']}, naive"
            f" {row['reference']:.3f}, KL {row['kl']:.3g}; {row['reason']}",
            soft_wrap=True,
        )
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def measure(name: str, max_updates: int | None) -> dict[str, Any]:
    """Train the preset once, and time what happens between its events."""
    experiment = with_preset(experiment_named(name), "small")
    dataset = load(experiment.data)
    begin, core_begin = time.perf_counter(), time.process_time()
    before, core_before = begin, core_begin
    updates, cores, others, start, step = [], [], 0.0, None, 0
    with tempfile.TemporaryDirectory() as folder:
        run = Run.begin(Path(folder) / "run", experiment, dataset)
        for event in train_run(run, dataset, max_updates=max_updates):
            now, core_now = time.perf_counter(), time.process_time()
            if isinstance(event, Updated):
                count = event.step - step
                if start is None:
                    start = now - begin
                else:
                    updates += [(now - before) / count] * count
                    cores += [(core_now - core_before) / count] * count
                step = event.step
            elif start is not None:
                others += now - before
            before, core_before = now, core_now
            if isinstance(event, Stopped):
                stopped = event
        lines = run.metrics()
    return {
        "experiment": name,
        "preset": "small",
        "updates": stopped.step,
        "seconds": before - begin,
        "core_seconds": core_before - core_begin,
        "start_seconds": start,
        "update_seconds": float(np.median(updates)),
        "update_core_seconds": float(np.mean(cores)),
        "validation_share": others / (before - begin - start),
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "best": stopped.best.valid,
        "best_step": stopped.best.step,
        "reference": medium_of(dataset).reference(dataset, "valid").nats,
        "kl": lines[-1]["train"].get("kl", float("nan")),
        "reason": stopped.reason,
        "curve": [[line["step"], round(line["valid"]["nats"], 4)] for line in lines],
        "device": jax.devices()[0].device_kind,
    }


if __name__ == "__main__":
    main()
