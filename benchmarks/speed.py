"""Training, filtering and streaming: time per model time step, memory, compile time, growth.

    python benchmarks/speed.py [--json FILE] [--peer torch] [--minutes M] [--quick]
                               [--preset NAME ...] [--only KIND ...]
    python benchmarks/speed.py --table FILE.json [FILE.json ...]

It measures, most important first, each in a process of its own, and prints a line when it is
known; FILE is written anew after each, so that a run that is cut off keeps what it has:

- `update`: a whole training update of each preset, one program whose state goes from call to
  call; the time from the start of the process to the end of the first update; what compiling it
  takes; the peak memory (of the device where it counts, else of the process); then its phases as
  programs of their own (filtering, theta, phi, optimizer; end to end: filtering, gradient,
  optimizer);
- `torch` (with `--peer torch`): the same update in PyTorch (`peers/torch_srnn.py`), after a check
  that it has the same free energy with the same weights and noise; eager and, on CUDA, in one
  graph; by one tape through the loop, and in parallel over time as ours;
- `tape`: ours by one tape through the scan (`varfilter.learning.step_by_step`);
- `evaluation`: whole songs; `stream`: latency of `Stream.push`, and many streams by `vmap`, on the
  accelerator and on the CPU; `growth`: with T, B, K, the draws S and the particles N.

Times are of a model's time step: an update's time, divided by the scored steps of its windows
(T - 1) and by the seeds in the program. Each is a median over rounds, with quartiles.
"""

import time

BEGAN = time.perf_counter()  # before the imports: the first update waits for them

import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import platform  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from speed_table import markdown, said  # noqa: E402

Row = dict[str, Any]
Item = tuple[str, str | None]
PRESETS = (
    "music-one", "timit-one", "music-recipe", "timit-recipe", "music-seeds", "timit-baseline",
    "vrnn-recipe", "svg-one", "music-baseline",
)  # fmt: skip
KINDS = ("update", "torch", "tape", "evaluation", "stream", "growth")
# What the table of the aims needs comes first.
ORDER: tuple[Item, ...] = (
    ("update", "music-one"),
    ("torch", "music-one"),
    ("update", "timit-one"),
    ("torch", "timit-one"),
    ("update", "music-recipe"),
    ("update", "timit-recipe"),
    ("update", "music-seeds"),
    ("update", "timit-baseline"),
    ("update", "vrnn-recipe"),
    ("update", "svg-one"),
    ("evaluation", None),
    ("stream", None),
    ("update", "music-baseline"),
    ("tape", "music-one"),
    ("tape", "timit-one"),
    ("growth", None),
    ("torch", "music-recipe"),
    ("torch", "timit-recipe"),
)
MARK = "ROW "


def main() -> None:
    arguments = parsed()
    if arguments.table is not None:
        print(markdown([json.loads(path.read_text()) for path in arguments.table]))
        return
    if arguments.one is not None:
        kind, _, preset = arguments.one.partition(":")
        for row in measured(kind, preset, quick=arguments.quick, phases=not arguments.no_phases):
            print(MARK + json.dumps(row), flush=True)
        return

    report: Row = {
        "command": " ".join(sys.argv), "revision": revision(), "quick": arguments.quick,
        "machine": machine(), "rows": [],
    }  # fmt: skip
    failed = False
    for item in chosen(arguments):
        minutes = (time.perf_counter() - BEGAN) / 60
        if arguments.minutes is not None and minutes > arguments.minutes:
            print(f"{minutes:.1f} minutes are over: {named(item)} and what follows is left out.")
            break
        failed |= not measure(item, arguments, report)
    sys.exit(1 if failed else 0)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    parser.add_argument("--preset", nargs="+", choices=PRESETS, metavar="NAME",
                        help=f"of what has presets, only these: {', '.join(PRESETS)}")  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=KINDS, metavar="KIND",
                        help=f"measure only these: {', '.join(KINDS)}")  # fmt: skip
    parser.add_argument("--peer", choices=("torch",), help="measure PyTorch beside it")
    parser.add_argument("--minutes", type=float, metavar="M", help="begin nothing new after M")
    parser.add_argument("--no-phases", action="store_true", help="whole updates alone")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--table", nargs="+", type=Path, metavar="FILE.json",
                        help="print reports as the Markdown tables of RESULTS.md")  # fmt: skip
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


def chosen(arguments: argparse.Namespace) -> list[Item]:
    """What is to be measured, in order."""
    kinds = set(arguments.only or KINDS)
    if arguments.peer is None:
        kinds -= {"torch"}
    presets = None if arguments.preset is None else set(arguments.preset)
    return [
        (kind, preset)
        for kind, preset in ORDER
        if kind in kinds and (presets is None or (arguments.only and preset is None)
                              or preset in presets)
    ]  # fmt: skip


def measure(item: Item, arguments: argparse.Namespace, report: Row) -> bool:
    """Measure in a process of its own and report each row; False if it failed."""
    has_accelerator = False
    for row in rows_of_child(item, arguments, {}):
        has_accelerator |= row.get("device", "cpu") != "cpu"
        keep(row, report, arguments.json)
        if "error" in row:
            return False
    if item[0] == "stream" and has_accelerator:  # small models may be quicker beside it
        for row in rows_of_child(item, arguments, {"JAX_PLATFORMS": "cpu"}):
            keep(row, report, arguments.json)
    return True


def rows_of_child(
    item: Item, arguments: argparse.Namespace, variables: dict[str, str]
) -> Iterator[Row]:
    words = [sys.executable, __file__, "--one", named(item)]
    words += ["--quick"] * arguments.quick + ["--no-phases"] * arguments.no_phases
    if item[0] == "torch":  # jax has the weights and the check alone to do
        variables = {"JAX_PLATFORMS": "cpu"}
    begin = time.perf_counter()
    # What it says goes to a file: a pipe that nobody reads would fill up, and hold it.
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            words, env=os.environ | variables, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith(MARK):
                yield json.loads(line.removeprefix(MARK)) | {"at_s": time.perf_counter() - begin}
        if child.wait() != 0:
            errors.seek(0)
            lines = [line.rstrip() for line in errors if line.strip()]
            yield {"kind": "failure", "item": named(item), "error": "\n".join(lines[-12:])}


def keep(row: Row, report: Row, path: Path | None) -> None:
    """Print the row and write the report anew, whole or not at all."""
    report["rows"].append(row)
    print(said(row), flush=True)
    if path is not None:
        partial = path.with_name(path.name + ".part")
        partial.write_text(json.dumps(report, indent=1) + "\n")
        partial.replace(path)


def measured(kind: str, preset: str, *, quick: bool, phases: bool) -> Iterator[Row]:
    """The rows of one item, in this process."""
    import jax

    # A compile time that was read from a cache says nothing.
    jax.config.update("jax_enable_compilation_cache", False)
    for row in _rows(kind, preset, quick=quick, phases=phases):
        if "device" not in row:
            device = jax.devices()[0]
            row["device"] = "cpu" if device.platform == "cpu" else device.device_kind
        yield row | {"jax": jax.__version__}


def _rows(kind: str, preset: str, *, quick: bool, phases: bool) -> Iterator[Row]:
    match kind:
        case "update":
            from updates import measure_update

            return measure_update(preset, quick=quick, phases=phases, began=BEGAN)
        case "tape":
            from updates import measure_tape

            return measure_tape(preset, quick=quick)
        case "torch":
            from peers.torch_updates import measure_torch

            return measure_torch(preset, quick=quick)
        case "evaluation":
            from online import measure_evaluation

            return measure_evaluation(quick=quick)
        case "stream":
            from online import measure_streams

            return measure_streams(quick=quick)
    from scaling import measure_growth

    return measure_growth(quick=quick)


def named(item: Item) -> str:
    kind, preset = item
    return kind if preset is None else f"{kind}:{preset}"


def machine() -> Row:
    """Where the figures come from; the devices are in the rows."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def revision() -> str | None:
    """The commit of the checkout, where there is one; `VARFILTER_REVISION` says it elsewhere."""
    if given := os.environ.get("VARFILTER_REVISION"):
        return given
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None


if __name__ == "__main__":
    main()
