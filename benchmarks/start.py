"""How long one waits for the first update and the first answer: a first start, and a second one.

    python benchmarks/start.py [--music FILE.npz] [--repeats 3] [--json FILE]

Each start is a process of its own, as a command is; what commands keep of their compiled programs
goes to a new folder (cold), then is found there (warm). Seconds are from the start of the process
to the first update of training, and to the first filtered row of `filter`; beside them the time of
the processor, which other programs on the machine do not lengthen. `--music` is a file of rolls
(jsb_chorales.npz), for the experiment that a user's own music is trained by.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

SENSORS = Path(__file__).parent.parent / "examples" / "data" / "sensors.csv"

BEGIN = """
import sys, time
from varfilter.cli.compiled import keep_compiled
keep_compiled()
started, source, folder = float(sys.argv[1]), sys.argv[2], sys.argv[3]

def say():
    print(time.time() - started, time.process_time())
"""
TRAIN = """
from varfilter.experiments.paper import own_experiment
from varfilter.media import load, source_of
from varfilter.runs.run import Run
from varfilter.runs.training import Updated, train_run

experiment = own_experiment(source_of(source))
dataset = load(experiment.data)
for event in train_run(Run.begin(folder, experiment, dataset), dataset, max_updates=1000):
    if isinstance(event, Updated):
        say()
        break
"""
FILTER = """
from varfilter.runs.applied import filter_data
from varfilter.runs.run import Run

rows = filter_data(Run.load(folder), source)
next(rows), next(rows)  # the first is given, and needs no filter
say()
"""


def measured(program: str, source: Path, folder: Path, compiled: Path) -> tuple[float, float]:
    """Seconds, and seconds of the processor, until a new process says so."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX")}
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program, str(time.time()), str(source), str(folder)],
        env=environment | {"VARFILTER_COMPILED": str(compiled)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    wall, processor = map(float, done.stdout.split()[-2:])
    return wall, processor


def compare(name: str, source: Path, repeats: int, *, also_filter: bool) -> list[dict[str, Any]]:
    """Medians of cold and warm starts."""
    programs = {"first update": TRAIN} | ({"first answer": FILTER} if also_filter else {})
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as temporary:
            for what, program in programs.items():
                for kind in ("cold", "warm"):
                    # A run for each start of training; `filter` takes the last of them.
                    folder = Path(temporary) / (kind if program is TRAIN else "warm")
                    compiled = Path(temporary) / f"compiled {what}"
                    times = measured(program, source, folder, compiled)
                    found.setdefault((what, kind), []).append(times)
    return [
        {
            "data": name,
            "what": what,
            "start": kind,
            "seconds": statistics.median(wall for wall, _ in times),
            "processor_seconds": statistics.median(processor for _, processor in times),
            "repeats": repeats,
        }
        for (what, kind), times in found.items()
    ]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--music", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = compare("sensors", SENSORS, options.repeats, also_filter=True)
    if options.music is not None:
        found += compare("music", options.music, options.repeats, also_filter=False)
    table = Table(*("data", "until the", "start", "seconds", "of the processor"))
    for row in found:
        numbers = (f"{row['seconds']:.1f}", f"{row['processor_seconds']:.1f}")
        table.add_row(row["data"], row["what"], row["start"], *numbers)
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
