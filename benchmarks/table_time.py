"""How long it takes from a table to a trained model and its report, and where the time goes.

    python benchmarks/table_time.py [--rows 5000] [--columns 8] [--parts] [--json FILE]
                                    [--keep DIR] [--train-options "..."]

The table is made up: readings every ten minutes, of correlated first-order processes with a daily
season and noise, a gap of some hours and single values that are missing. `varfilter train` and
`varfilter report` are run as commands, each a process of its own, once with a new folder for
compiled programs (cold) and once with what the first left there (warm). Beside the seconds on the
clock stand those of the processor, of all its cores, which other programs do not lengthen: half of
them is what two idle cores would need at best.

`--parts` prints what the stages of each command took, by cumulated profile of its main thread.
"""

import argparse
import json
import os
import pstats
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

# The functions that are the stages of a command, and what they do.
STAGES = {
    "train": {
        "settle_validation": "first validation, measured",
        "backend_compile_and_load": "compiling",
        "_fitted": "updates, with their compiling",
        "validate": "validations",
        "calibrate_run": "alarms calibrated",
        "kept_linear": "linear model learned",
        "filter_predictions": "predictions that are compared",
        "remember_comparison": "comparison with references, all",
    },
    "report": {
        "backend_compile_and_load": "compiling",
        "compare_run": "comparison with references",
        "filter_predictions": "predictions that are compared",
        "inspect_run": "sequences looked at closely",
        "draw": "pictures",
    },
}


def made_up(num_rows: int, num_columns: int, seed: int = 0) -> dict[str, list[Any]]:
    """Columns by name: time, and readings that move together, by the day, with gaps."""
    rng = np.random.default_rng(seed)
    mixing = np.eye(num_columns) + 0.4 * rng.normal(size=(num_columns, num_columns))
    shocks = rng.normal(size=(num_rows, num_columns)) @ mixing.T
    memory = rng.uniform(0.6, 0.97, num_columns)
    state, states = np.zeros(num_columns), []
    for shock in shocks:
        state = memory * state + np.sqrt(1 - memory**2) * shock
        states.append(state)
    day = 2 * np.pi * np.arange(num_rows)[:, None] / 144
    season = rng.uniform(0.5, 2, num_columns) * np.sin(day + rng.uniform(0, 6, num_columns))
    values = np.array(states) + season + 0.2 * rng.normal(size=(num_rows, num_columns))
    values = rng.uniform(5, 500, num_columns) + rng.uniform(0.5, 20, num_columns) * values
    values[rng.random(values.shape) < 0.01] = np.nan
    kept = np.ones(num_rows, bool)
    kept[num_rows // 3 : num_rows // 3 + 30] = False
    times = np.datetime64("2024-01-01T00:00") + 10 * np.arange(num_rows)
    names = [f"sensor_{i}" for i in range(num_columns)]
    columns = {"time": [str(moment) for moment in times[kept]]}
    return columns | {name: values[kept, i].tolist() for i, name in enumerate(names)}


def write_table(path: Path, num_rows: int, num_columns: int) -> None:
    columns = made_up(num_rows, num_columns)
    lines = [",".join(columns)]
    for cells in zip(*columns.values(), strict=True):
        lines.append(",".join("" if cell != cell else f"{cell:.6g}" if isinstance(cell, float)
                              else str(cell) for cell in cells))  # fmt: skip
    path.write_text("\n".join(lines) + "\n")


def timed(words: list[str], compiled: Path, profile: Path | None) -> dict[str, Any]:
    """One command in a new process: seconds on the clock, and of all cores."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX")}
    profiling = [] if profile is None else ["-m", "cProfile", "-o", str(profile)]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *profiling, "-m", "varfilter", *words],
        env=environment | {"VARFILTER_COMPILED": str(compiled)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(done.stderr)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"command": words[0], "seconds": seconds, "processor_seconds": used, "out": done.stdout}


def stages(profile: Path, command: str) -> list[tuple[str, float]]:
    """What the stages of a command took, in seconds on the clock with all that they called."""
    found: dict[str, float] = {}
    for (_, _, name), (_, _, _, cumulated, _) in vars(pstats.Stats(str(profile)))["stats"].items():
        if name in STAGES[command]:
            found[name] = max(found.get(name, 0.0), cumulated)
    return [(STAGES[command][name], seconds) for name, seconds in found.items()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5000, metavar="N")
    parser.add_argument("--columns", type=int, default=8, metavar="N")
    parser.add_argument("--parts", action="store_true", help="where the time goes")
    parser.add_argument("--starts", nargs="+", choices=("cold", "warm"), default=["cold", "warm"])
    parser.add_argument("--train-options", default="", help="more options of `train`")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work there, and leave it")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if options.keep is None else options.keep
        folder.mkdir(parents=True, exist_ok=True)
        table = folder / "readings.csv"
        write_table(table, options.rows, options.columns)
        print(f"{options.rows:,} rows, {options.columns} columns; seconds\n")
        print(f"{'start':6}{'command':9}{'clock':>8}{'processor':>11}")
        for start in options.starts:
            run = folder / f"run-{start}"
            commands = [
                ["train", str(table), "--out", str(run), *shlex.split(options.train_options)],
                ["report", str(run), "--out", str(run / "report.html")],
            ]
            for words in commands:
                profile = folder / f"{start}-{words[0]}.prof" if options.parts else None
                line = timed(words, folder / "compiled", profile) | {"start": start}
                said, line["out"] = line["out"], len(line["out"])
                print(
                    f"{start:6}{words[0]:9}{line['seconds']:8.1f}{line['processor_seconds']:11.1f}",
                    flush=True,
                )
                if words[0] == "train":
                    line["said"] = [text for text in said.splitlines() if "valid" in text][:3]
                    print("      ", *line["said"][:1])
                if profile is not None:
                    for what, seconds in stages(profile, words[0]):
                        print(f"      {what:34}{seconds:8.1f}")
                lines.append(line)
            both = sum(line["processor_seconds"] for line in lines if line["start"] == start)
            print(f"{start:6}{'both':9}{'':8}{both:11.1f}")
    if options.json is not None:
        options.json.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
