"""How long one waits for the first update and the first answer: a first start, and a second one.

    python benchmarks/start.py [--music FILE.npz] [--levels] [--repeats 3] [--json FILE]

Each start is a process of its own, as a command is; what commands keep of their compiled programs
goes to a new folder (cold), then is found there (warm). Seconds are from the start of the process
to the first update of training, and to the first filtered row of `filter`; beside them the time of
the processor, which other programs on the machine do not lengthen. `--music` is a file of rolls
(jsb_chorales.npz), for the experiment that a user's own music is trained by.

`--levels` compares how hard LLVM tries instead (`cli/compiled.py`): the time to the first update of
the sensors without any kept program, and what an update takes after it.
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
from varfilter.cli.compiled import compile_quickly, keep_compiled
compile_quickly()
keep_compiled()
started, source, folder = float(sys.argv[1]), sys.argv[2], sys.argv[3]

def say():
    print(time.time() - started, time.process_time())
"""
LOAD = """
from varfilter.experiments.paper import own_experiment
from varfilter.media import load, source_of
from varfilter.runs.run import Run
from varfilter.runs.training import Updated, train_run

experiment = own_experiment(source_of(source))
dataset = load(experiment.data)
run = Run.begin(folder, experiment, dataset)
"""
TRAIN = f"""{LOAD}
for event in train_run(run, dataset, max_updates=1000):
    if isinstance(event, Updated):
        say()
        break
"""
# Fewer updates than an epoch has, so that none of the time goes into a validation.
PACE = f"""{LOAD}
updates = [
    (time.time(), event.step)
    for event in train_run(run, dataset, max_updates=45)
    if isinstance(event, Updated)
]
(begin, first), (end, last) = updates[0], updates[-1]
print(begin - started, (end - begin) / (last - first))
"""
FILTER = """
from varfilter.runs.predictions import filter_data
from varfilter.runs.run import Run

rows = filter_data(Run.load(folder), source)
next(rows), next(rows)  # the first is given, and needs no filter
say()
"""


def measured(
    program: str, source: Path, folder: Path, compiled: Path, flags: str | None = None
) -> tuple[float, float]:
    """The two numbers that a new process prints at its end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX")}
    if flags is not None:
        environment["XLA_FLAGS"] = flags
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


def levels(repeats: int) -> list[dict[str, Any]]:
    """Of each level of LLVM: seconds to the first update, and of an update; the levels in turns."""
    found: dict[int, list[tuple[float, float]]] = {3: [], 2: [], 1: []}
    for _ in range(repeats):
        for level, times in found.items():
            with tempfile.TemporaryDirectory() as temporary:
                folder, compiled = Path(temporary) / "run", Path(temporary) / "compiled"
                flags = f"--xla_backend_optimization_level={level}"
                times.append(measured(PACE, SENSORS, folder, compiled, flags))
    return [
        {
            "level": level,
            "first_update_seconds": statistics.median(first for first, _ in times),
            "update_ms": 1e3 * statistics.median(pace for _, pace in times),
            "repeats": repeats,
        }
        for level, times in found.items()
    ]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--music", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--levels", action="store_true")
    options = parser.parse_args()
    if options.levels:
        found = levels(options.repeats)
        table = Table("level", "seconds to the first update", "ms an update")
        for row in found:
            numbers = (f"{row['first_update_seconds']:.1f}", f"{row['update_ms']:.1f}")
            table.add_row(str(row["level"]), *numbers)
    else:
        found, table = starts(options)
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


def starts(options: argparse.Namespace) -> tuple[list[dict[str, Any]], Table]:
    """Cold and warm starts of each kind of data, and their table."""
    found = compare("sensors", SENSORS, options.repeats, also_filter=True)
    if options.music is not None:
        found += compare("music", options.music, options.repeats, also_filter=False)
    table = Table(*("data", "until the", "start", "seconds", "of the processor"))
    for row in found:
        numbers = (f"{row['seconds']:.1f}", f"{row['processor_seconds']:.1f}")
        table.add_row(row["data"], row["what"], row["start"], *numbers)
    return found, table


if __name__ == "__main__":
    main()
