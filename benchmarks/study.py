"""The paper's tables as a study: the cells of a plan in training side by side on one device.

`VARFILTER_DATA=carry python benchmarks/study.py search-1 --out study --archive $OUT/study.tgz`
`python benchmarks/study.py choose FOLDER ... --json choices.json`
`python benchmarks/study.py keep FOLDER ...`, which copies scored cells to `results/TABLE`
`python benchmarks/study.py document`, which puts the tables of `results/` into the documents

The plans are in `study_plans.py` and `study_media.py`; `--quick` makes them tiny. Each cell is a
process, in which its members are one program; it has in OUT a folder with `cell.json`, and for each
member `run.json`, `metrics.jsonl.gz` and `test.json` (the test part scored once with the best by
validation, with the score of every song).
The archive holds all of them, and is written anew as they come: a call that is cut short leaves
what it had. A cell trains to its end or until time is up, whichever is first, and is then scored.
With `--bounds`, the same checkpoints are scored by tighter bounds too, and with a converged E-step
started from their own inference (`bounds.json`); with `--weights FILE`, the run with the lowest
validation of all cells of `--weigh` is packed there whole, in parts of 15 MiB.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from study_media import MEDIA_PLANS, small
from study_plans import PLANS, Cell, chosen
from study_training import BETWEEN, Training, tell

ALL_PLANS = PLANS | MEDIA_PLANS
# What is kept back of the time for the tighter bounds, whose programs compile for a minute.
SCORING_BOUNDS = 200.0
MPS = Path("/tmp/varfilter-mps")
# The whole run that is handed on is packed in parts: what a file may have where it comes back.
PART = 15 << 20
ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"


def main() -> None:
    """Run a plan, or one cell of it, or choose by a search."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", choices=(*ALL_PLANS, "choose", "keep", "document"))
    parser.add_argument("folders", type=Path, nargs="*", help="choose, keep: cells")
    parser.add_argument("--results", type=Path, help="keep: instead of results/TABLE")
    parser.add_argument("--json", type=Path, help="choose: where to write what was chosen")
    parser.add_argument("--choices", type=Path, help="what `choose` wrote, for the plans after it")
    parser.add_argument("--out", type=Path, default=Path("study"))
    parser.add_argument("--archive", type=Path, help="one file with all that is in --out")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/varfilter-study"))
    parser.add_argument("--seconds", type=float, default=570.0, help="for all of the plan")
    parser.add_argument("--only", nargs="*", help="names of cells; all of them")
    parser.add_argument("--parallel", type=int, default=8, help="how many cells at once")
    parser.add_argument("--bounds", action="store_true", help="score by tighter bounds as well")
    parser.add_argument("--weights", type=Path, help="a file for the best run, in parts")
    parser.add_argument("--weigh", nargs="*", default=[], help="cells that may have the best run")
    parser.add_argument("--quick", action="store_true", help="tiny networks and two epochs")
    parser.add_argument("--revision", help="of the sources, where they are a copy of a checkout")
    parser.add_argument("--cell", help="train this one, here; the others are not looked at")
    parser.add_argument("--until", type=float, help="with --cell: when training must end")
    given = parser.parse_args()
    if given.plan == "choose":
        choose(given.folders, given.json)
        return
    if given.plan == "keep":
        for folder in given.folders:
            keep(folder, given.results)
        return
    if given.plan == "document":
        document()
        return
    choices = json.loads(given.choices.read_text()) if given.choices else {}
    cells = ALL_PLANS[given.plan](choices)
    cells = small(cells) if given.quick else cells
    if given.cell is not None:
        cell = next(cell for cell in cells if cell.name == given.cell)
        Training(cell, given).run()
        return
    run_plan([c for c in cells if not given.only or c.name in given.only], given)


def choose(folders: Sequence[Path], out: Path | None) -> None:
    """Print how each point of the searches did, and write the best of each method."""
    choices = chosen(folders)
    for method, found in choices.items():
        print(f"{method}: {found['valid']:.4f} by {found['changes']}")
        for point in sorted(found["points"], key=lambda each: each["valid"]):
            settings = ", ".join(f"{name} {value:g}" for name, value in point["changes"].items())
            last = point["curve"][-1]
            print(
                f"{method:9} {point['valid']:.4f} at epoch {point['epoch']:<4.4g}"
                f" (last {last[1]:.4f} at {last[0]:.4g}) {settings}"
            )
    if out is not None:
        # A curve is one line.
        text = json.dumps(choices, indent=1)
        text = re.sub(r"\[\s+([\d.]+),\s+([\d.]+)\s+\](,?)\s+", r"[\1, \2]\3 ", text)
        out.write_text(text + "\n")


def keep(folder: Path, results: Path | None) -> None:
    """Copy a cell that was scored to the results, with the revision that its command was given.

    Where a copy of the sources lies in another checkout, the record has the revision of that.
    """
    from varfilter.runs.folder import RECORD, read_record, write_record

    record = json.loads((folder / "cell.json").read_text())
    words = shlex.split(record["command"])
    kept = (results or RESULTS / record.get("table", "table-3")) / record["name"]
    shutil.rmtree(kept, ignore_errors=True)
    # Its data may not be passed on, but for EmoDB's, which are free (CC0).
    others = () if "-emodb-" in record["name"] else ("example.npz",)
    shutil.copytree(folder, kept, ignore=shutil.ignore_patterns(*others))
    if "--revision" in words:
        revision = {"revision": words[words.index("--revision") + 1]}
        (kept / "cell.json").write_text(json.dumps(record | revision, indent=1) + "\n")
        for path in kept.glob(f"*/{RECORD}"):
            write_record(path.parent, read_record(path.parent) | revision)
    print(kept)


def document() -> None:
    """Write the tables of `results/` between their marks in `docs/paper.md`."""
    from varfilter.report.kept import blocks_of

    page = ROOT / "docs" / "paper.md"
    text = page.read_text(encoding="utf-8")
    for name, table in blocks_of(RESULTS).items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        if begin not in text:
            raise ValueError(
                f"{page} has no place for {name!r}: write {begin.strip()} and {end.strip()}"
                " where it belongs, in a section that says what it shows."
            )
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"
    page.write_text(text, encoding="utf-8")


def run_plan(cells: Sequence[Cell], given: argparse.Namespace) -> None:
    """Start a process for each cell, so many at once, and archive what they leave."""
    begin = time.time()
    end = begin + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    environment = os.environ | shared_device() | {
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "JAX_COMPILATION_CACHE_DIR": os.environ.get(
            "JAX_COMPILATION_CACHE_DIR", "/tmp/varfilter-compiled"
        ),
    }  # fmt: skip
    print(f"{len(cells)} cells, {given.seconds:.0f} s: {', '.join(c.name for c in cells)}")
    waiting, running = list(cells), dict[str, subprocess.Popen[bytes]]()
    archived = begin
    while waiting or running:
        while waiting and len(running) < given.parallel:
            cell = waiting.pop(0)
            scoring = SCORING_BOUNDS if given.bounds else cell.kept_back
            kept_back = scoring if cell.part is not None else BETWEEN
            options = ["--cell", cell.name, "--until", f"{end - kept_back:.3f}"]
            command = [sys.executable, *sys.argv, *options]
            running[cell.name] = subprocess.Popen(command, env=environment)
        time.sleep(0.5)
        for name, process in list(running.items()):
            if process.poll() is not None:
                del running[name]
                tell(name, f"left with {process.returncode} after {time.time() - begin:.0f} s")
                archive(given)
        if time.time() - archived > BETWEEN:
            archived = time.time()
            archive(given)
        if time.time() > end:
            for process in running.values():
                process.kill()
            waiting.clear()
    archive(given)
    if given.weights is not None:
        pack_best(cells, given)


def shared_device() -> dict[str, str]:
    """What lets processes share a GPU in space, not in turns, where that service can be started."""
    paths = {"CUDA_MPS_PIPE_DIRECTORY": str(MPS), "CUDA_MPS_LOG_DIRECTORY": str(MPS)}
    MPS.mkdir(exist_ok=True)
    control = ["nvidia-cuda-mps-control"]
    environment = os.environ | paths | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    probe = [sys.executable, "-c", "import jax; print(jax.numpy.ones(2).sum(), jax.devices())"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        options: dict[str, Any] = {"env": environment, "timeout": 60}
        # Where another plan has started it, this says so and leaves.
        subprocess.run([*control, "-d"], check=False, **options)
        done = subprocess.run(probe, capture_output=True, text=True, check=True, **options)
        if "cpu" not in done.stdout.lower():
            print("The device is shared by MPS.", flush=True)
            return paths
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(control, input=b"quit", env=environment, timeout=20, check=False)
    print("The device is shared in turns: there is no MPS.", flush=True)
    return {}


def archive(given: argparse.Namespace) -> None:
    """Pack the folders of all cells into one file, in the place of the one before."""
    if given.archive is None:
        return
    # Beside it, and hidden: where files are counted there is one.
    packed = given.archive.with_name(f".{given.archive.name}")
    with tarfile.open(packed, "w:gz") as file:
        for folder in sorted(path.parent for path in given.out.glob("*/cell.json")):
            file.add(folder, folder.name)
    packed.replace(given.archive)


def pack_best(cells: Sequence[Cell], given: argparse.Namespace) -> None:
    """Pack the whole run with the lowest validation into files of 15 MiB at most.

    Only scores of one data set by one bound compare: the cells are those that `--weigh` names.
    """
    runs: dict[Path, float] = {}
    for cell in cells:
        path = given.out / cell.name / "cell.json"
        if cell.name in given.weigh and path.exists():
            for member in json.loads(path.read_text())["members"]:
                if member["valid"] is not None:
                    runs[given.scratch / cell.name / member["folder"]] = member["valid"]
    if not runs:
        print(f"No cell of {given.weigh} was validated: there is nothing to pack.")
        return
    best = min(runs, key=lambda folder: runs[folder])
    whole = given.scratch / "best.tar"
    # What only goes on with training is large, and left out.
    unwanted = ("/checkpoints", "/lock")
    with tarfile.open(whole, "w") as file:
        file.add(best, best.parent.name, filter=lambda m: None if m.name.endswith(unwanted) else m)
    data = whole.read_bytes()
    for number, begin in enumerate(range(0, len(data), PART)):
        part = given.weights.with_name(f"{given.weights.name}.part-{number}")
        part.write_bytes(data[begin : begin + PART])
    print(f"Packed {best} ({len(data)} bytes, validation {runs[best]:.4f}).")


if __name__ == "__main__":
    main()
