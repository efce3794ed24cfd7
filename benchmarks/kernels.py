"""The kernels of a training update on a GPU: how many, how long each, and how long none runs.

    python benchmarks/kernels.py [--preset NAME ...] [--json FILE] [--programs FOLDER]

Each preset of `updates.py` is compiled in a process of its own, all at once. When the last is
ready, one after another is timed as by `speed.py`, and then profiled: `jax.profiler` around ten
updates, of which the events on the device's streams are added up by name. `busy` is the time in
which a kernel ran, of the time from the first to the last; the rest is waiting for the next launch.
With `--programs`, the compiled program of each preset is written there as text, in which the names
can be looked up.
"""

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

NUM_UPDATES = 10
NUM_SHOWN = 25
MARK = "PROFILE "


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", nargs="+", default=["music-one", "music-recipe", "timit-one"])
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--programs", type=Path, help="a folder for the compiled programs")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--turn", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        found = profiled(given.one, given.turn, quick=given.quick, programs=given.programs)
        print(MARK + json.dumps(found), flush=True)
        return
    with tempfile.TemporaryDirectory() as turns:
        profile_all(given, Path(turns))


def profile_all(given: argparse.Namespace, turns: Path) -> None:
    """Start a process for each preset, let them measure in turn, and report what each found."""
    words = [sys.executable, __file__, *["--quick"] * given.quick]
    words += ["--programs", str(given.programs)] if given.programs else []
    children = {
        name: subprocess.Popen(
            [*words, "--one", name, "--turn", str(turns / name)], stdout=subprocess.PIPE, text=True
        )
        for name in given.preset
    }
    while not all(
        ready_file(turns / name).exists() or child.poll() is not None
        for name, child in children.items()
    ):
        time.sleep(0.1)
    rows = []
    for name, child in children.items():
        (turns / name).touch()
        output, _ = child.communicate()
        lines = [line for line in output.splitlines() if line.startswith(MARK)]
        if child.returncode or not lines:
            print(f"{name}: failed with {child.returncode}", flush=True)
            continue
        rows.append(json.loads(lines[-1].removeprefix(MARK)))
        show(rows[-1])
        if given.json is not None:
            given.json.write_text(json.dumps(rows, indent=1) + "\n")


def ready_file(turn: Path) -> Path:
    """The file by which a process says that it has compiled, and waits for its turn."""
    return turn.with_name(turn.name + ".ready")


def profiled(name: str, turn: Path, *, quick: bool, programs: Path | None) -> dict[str, Any]:
    """Compile the preset's update, wait for the turn, and add up what its kernels do."""
    import jax
    from measure import paced
    from updates import PRESETS, whole_update

    chain, subject = whole_update(PRESETS[name], quick=quick)
    num_steps = subject.num_steps * PRESETS[name].num_seeds
    if programs is not None:
        programs.mkdir(parents=True, exist_ok=True)
        text = "\n".join(
            module.to_string() for module in chain.executable.runtime_executable().hlo_modules()
        )
        with gzip.open(programs / f"{name}.hlo.gz", "wt", encoding="utf-8") as file:
            file.write(text)
    ready_file(turn).touch()
    while not turn.exists():
        time.sleep(0.1)
    spread = paced(chain.launch, jax.block_until_ready, seconds=0.2 if quick else 2.0)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=False):
            for _ in range(NUM_UPDATES):
                chain.launch()
            jax.block_until_ready(chain.carry)
        (path,) = Path(folder).rglob("*.trace.json.gz")
        with gzip.open(path, "rt") as file:
            trace = json.load(file)
    return {
        "preset": name, "steps": num_steps, "compile_s": chain.compile_seconds,
        "ms_per_step": spread.times(1e3 / num_steps), **summed(trace["traceEvents"]),
    }  # fmt: skip


def summed(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What ran on the device's streams, by name, for each update."""
    devices = {
        event["pid"]
        for event in events
        if event.get("name") == "process_name" and "device" in event["args"]["name"].lower()
    }
    streams = {
        (event["pid"], event["tid"])
        for event in events
        if event.get("name") == "thread_name"
        and event["pid"] in devices
        and "stream" in event["args"]["name"].lower()
    }
    ran = [e for e in events if e.get("ph") == "X" and (e["pid"], e["tid"]) in streams]
    if not ran:
        return {"kernels": 0, "busy_ms": 0.0, "span_ms": 0.0, "by_name": {}}
    spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in ran)
    busy, end = 0.0, spans[0][0]
    for begin, finish in spans:
        busy += max(finish - max(begin, end), 0.0)
        end = max(end, finish)
    by_name: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in ran:
        by_name[event["name"]][0] += 1 / NUM_UPDATES
        by_name[event["name"]][1] += event["dur"] / 1e3 / NUM_UPDATES
    return {
        "kernels": len(ran) / NUM_UPDATES,
        "busy_ms": busy / 1e3 / NUM_UPDATES,
        "span_ms": (end - spans[0][0]) / 1e3 / NUM_UPDATES,
        "by_name": dict(sorted(by_name.items(), key=lambda item: -item[1][1])),
    }


def show(row: dict[str, Any]) -> None:
    """Print the figures of one preset for each update: the longest kernels first."""
    print(
        f"{row['preset']}: {row['ms_per_step']['median']:.4f} ms a step, compiled in"
        f" {row['compile_s']:.0f} s; {row['kernels']:.0f} kernels an update of {row['steps']}"
        f" steps, busy {row['busy_ms']:.3f} of {row['span_ms']:.3f} ms"
    )
    for name, (number, ms) in list(row["by_name"].items())[:NUM_SHOWN]:
        print(f"  {number:8.1f} x {1e3 * ms / number:7.2f} us = {ms:7.3f} ms  {name[:90]}")
    print(flush=True)


if __name__ == "__main__":
    main()
