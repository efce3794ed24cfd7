"""Table 3 as a study: the cells of a plan in training side by side on one device.

`VARFILTER_DATA=carry python benchmarks/study.py search-1 --out study --archive $OUT/study.tgz`
`python benchmarks/study.py choose FOLDER ... --json choices.json`
`python benchmarks/study.py keep FOLDER ...`, which copies scored cells to `results/table-3`
`python benchmarks/study.py document`, which puts the table of `results/` into the documents

The plans are in `study_plans.py`. Each cell is a process, in which its members are one program; it
has in OUT a folder with `cell.json`, and for each member `run.json`, `metrics.jsonl.gz` and
`test.json` (the test part scored once with the best by validation, with the score of every song).
The archive holds all of them, and is written anew as they come: a call that is cut short leaves
what it had. A cell trains to its end or until time is up, whichever is first, and is then scored.
With `--bounds`, the same checkpoints are scored by tighter bounds too, and with a converged E-step
started from their own inference (`bounds.json`); with `--weights DIR`, the best of the members by
validation is kept there whole.
"""

import argparse
import contextlib
import gzip
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
from contextlib import closing
from pathlib import Path
from typing import Any

from study_plans import PLANS, Cell, chosen

# What is kept back of the time, to compile and make the scores of the test part.
SCORING = 75.0
# The same with the tighter bounds, whose programs compile for a minute.
SCORING_BOUNDS = 200.0
NUM_PARTICLES = 128
# Iterations of the E-step that goes on from an inference: enough, and half of that, to see it.
DESCENTS = (100, 50)
# How often the archive is written, and the files of a cell in training.
BETWEEN = 20.0
MPS = Path("/tmp/varfilter-mps")
ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "table-3"
# With tighter bounds: the same settings and seeds, trained again.
BOUNDS = ROOT / "results" / "table-3-bounds"


def main() -> None:
    """Run a plan, or one cell of it, or choose by a search."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", choices=(*PLANS, "choose", "keep", "document"))
    parser.add_argument("folders", type=Path, nargs="*", help="choose, keep: cells")
    parser.add_argument("--results", type=Path, default=RESULTS, help="keep: the folder to copy to")
    parser.add_argument("--json", type=Path, help="choose: where to write what was chosen")
    parser.add_argument("--choices", type=Path, help="what `choose` wrote, for the plans after it")
    parser.add_argument("--out", type=Path, default=Path("study"))
    parser.add_argument("--archive", type=Path, help="one file with all that is in --out")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/varfilter-study"))
    parser.add_argument("--seconds", type=float, default=570.0, help="for all of the plan")
    parser.add_argument("--only", nargs="*", help="names of cells; all of them")
    parser.add_argument("--parallel", type=int, default=8, help="how many cells at once")
    parser.add_argument("--bounds", action="store_true", help="score by tighter bounds as well")
    parser.add_argument("--weights", type=Path, help="a folder for the best member of each cell")
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
    cells = PLANS[given.plan](choices)
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


def keep(folder: Path, results: Path) -> None:
    """Copy a cell that was scored to the results, with the revision that its command was given.

    Where a copy of the sources lies in another checkout, the record has the revision of that.
    """
    from varfilter.runs.folder import RECORD, read_record, write_record

    record = json.loads((folder / "cell.json").read_text())
    words = shlex.split(record["command"])
    kept = results / record["name"]
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(folder, kept)
    if "--revision" in words:
        revision = {"revision": words[words.index("--revision") + 1]}
        (kept / "cell.json").write_text(json.dumps(record | revision, indent=1) + "\n")
        for path in kept.glob(f"*/{RECORD}"):
            write_record(path.parent, read_record(path.parent) | revision)
    print(kept)


def document() -> None:
    """Write the tables of `results/` between their marks in `docs/paper.md`."""
    from varfilter.report.study import gaps_markdown, read_cells, read_gaps, study_markdown

    page = ROOT / "docs" / "paper.md"
    text = page.read_text(encoding="utf-8")
    tables = {
        "table 3": study_markdown(read_cells(RESULTS)),
        "inference gap": gaps_markdown(read_gaps(BOUNDS)),
    }
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
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
            scoring = SCORING_BOUNDS if given.bounds else SCORING
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


def tell(name: str, text: str) -> None:
    """A line of a cell, by its name."""
    print(f"{name}: {text}", flush=True)


class Training:
    """A cell in training, in this process: its runs, and what is kept of them."""

    def __init__(self, cell: Cell, given: argparse.Namespace):
        # Of a process that only starts others, JAX would hold the device.
        from varfilter.media import load
        from varfilter.runs import Run

        self.cell, self.given, self.begin = cell, given, time.time()
        self.until = float("inf") if given.until is None else given.until
        self.dataset = load(cell.experiments[0].data)
        scratch = given.scratch / cell.name
        self.runs = [
            Run.begin(scratch / folder, experiment, self.dataset)
            for folder, experiment in zip(cell.folders, cell.experiments, strict=True)
        ]
        self.folder = given.out / cell.name
        self.reasons = ["time was up"] * len(self.runs)
        self.kept = 0.0

    def run(self) -> None:
        """Train, and score the best of each by validation."""
        from varfilter.runs import train_runs

        # Nobody goes on with these: the first and the last checkpoint are all that is written.
        training = train_runs(self.runs, self.dataset, seconds_per_checkpoint=1e9)
        with closing(training) as events:
            for each in events:
                self.take(each)
                if time.time() > self.until:
                    break
        self.keep()
        tell(self.cell.name, f"trained for {time.time() - self.begin:.0f} s")
        if self.cell.part is not None:
            self.score(self.cell.part)

    def take(self, events: Sequence[Any]) -> None:
        """Tell of validations and ends, and keep what there is now and then."""
        from varfilter.runs.training import Stopped, Validated

        for member, event in enumerate(events):
            if isinstance(event, Stopped):
                self.reasons[member] = event.reason
                tell(self.cell.name, f"{self.cell.folders[member]}: {event.reason}")
        lines = [event.line for event in events if isinstance(event, Validated)]
        if lines:
            best = " ".join(f"{line['best']:.3f}" for line in lines)
            seconds = time.time() - self.begin
            tell(self.cell.name, f"epoch {lines[0]['epoch']:.0f}, {seconds:.0f} s, best {best}")
            if time.time() - self.kept > BETWEEN:
                self.keep()

    def keep(self) -> None:
        """Write what is known so far of all members, as small files."""
        from varfilter.runs.folder import write_record

        self.kept = time.time()
        members = []
        for place, run, reason in zip(self.cell.folders, self.runs, self.reasons, strict=True):
            folder = self.folder / place
            folder.mkdir(parents=True, exist_ok=True)
            record = run.record | {"revision": self.given.revision or run.record["revision"]}
            write_record(folder, record)
            lines = run.metrics()
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / "metrics.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
            best = min(lines, key=lambda line: line["valid"]["nats"], default=None)
            members.append(
                {
                    "folder": place,
                    "seed": run.experiment.seed,
                    "valid": None if best is None else best["valid"]["nats"],
                    "epoch": None if best is None else best["epoch"],
                    "num_epochs": lines[-1]["epoch"] if lines else 0,
                    "stopped": reason,
                }
            )
        record = {
            "name": self.cell.name,
            "experiment": self.runs[0].experiment.name,
            "part": self.cell.part,
            "plan": self.given.plan,
            "command": shlex.join(["python", *sys.argv[: sys.argv.index("--cell")]]),
            "revision": self.given.revision or self.runs[0].record["revision"],
            "device": self.runs[0].record["device"],
            "seconds": round(time.time() - self.begin, 1),
            "members": members,
        }
        (self.folder / "cell.json").write_text(json.dumps(record, indent=1) + "\n")

    def score(self, part: str) -> None:
        """Score the best checkpoints of all members, by one program, song by song."""
        import jax
        import jax.numpy as jnp

        from varfilter.training import HeldOut, stacked

        trained = [run.trained() for run in self.runs]
        filters = stacked([each.filter for each in trained])
        models = stacked([each.model for each in trained])
        # The key that `varfilter evaluate` has, the same for all.
        keys = jnp.stack([jax.random.key(0)] * len(trained))
        held_out = HeldOut(self.dataset, split=part)
        scores = held_out.evaluate_stacked(filters, models, keys)
        for place, each, found in zip(self.cell.folders, trained, scores, strict=True):
            record = found.as_json() | {
                "step": each.step,
                "valid": each.valid,
                "songs": found.numbers.tolist(),
                "steps_by_song": found.num_steps.astype(int).tolist(),
                "nats_by_song": [round(nats, 6) for nats in found.per_sequence.tolist()],
            }
            (self.folder / place / f"{part}.json").write_text(json.dumps(record) + "\n")
        nats = [found.nats for found in scores]
        mean = sum(nats) / len(nats)
        tell(self.cell.name, f"{part} {mean:.4f}: {' '.join(f'{each:.3f}' for each in nats)}")
        if self.given.weights is not None:
            best = min(range(len(trained)), key=lambda member: trained[member].valid)
            place = self.given.weights / self.cell.name
            # What only goes on with training is large, and left out.
            others = shutil.ignore_patterns("checkpoints", "*.lock")
            shutil.copytree(self.runs[best].folder, place, ignore=others, dirs_exist_ok=True)
        if self.given.bounds:
            self.score_bounds(held_out, filters, models, keys)

    def score_bounds(self, held_out: Any, filters: Any, models: Any, keys: Any) -> None:
        """Score all members by tighter bounds, and with an E-step that goes on from their own."""
        found: dict[str, Any] = {}
        for name, filter in tighter(filters).items():
            begin = time.time()
            try:
                scores = held_out.evaluate_stacked(filter, models, keys)
            except Exception as error:  # one bound that fails leaves the others
                tell(self.cell.name, f"{name} failed: {str(error)[:300]}")
                continue
            found[name] = [[round(n, 5) for n in each.per_sequence.tolist()] for each in scores]
            text = " ".join(f"{each.nats:.3f}" for each in scores)
            tell(self.cell.name, f"{name} {text} ({time.time() - begin:.0f} s)")
            record = {"folders": self.cell.folders, "nats_by_song": found}
            (self.folder / "bounds.json").write_text(json.dumps(record) + "\n")


def tighter(filters: Any) -> dict[str, Any]:
    """The filters of the tighter bounds, and of the descents, with the inference of these."""
    from varfilter.experiments.settings import filter_with
    from varfilter.inference import GradientDescent

    inference = filters.inference
    found: dict[str, Any] = {
        f"{bound}-{NUM_PARTICLES}": filter_with(inference, bound, NUM_PARTICLES)
        for bound in ("fivo", "iwae")
    }
    for count in DESCENTS:
        descent = GradientDescent(
            natural_descent(count), num_iterations=count, num_samples=16, start=inference
        )
        found[f"descent-{count}"] = filter_with(descent, "elbo", 1)
    return found


def natural_descent(num_iterations: int) -> Any:
    """Adam in units of q's own spread, at a rate that falls to zero.

    The latents that a model has learned differ in scale by many orders, so that one rate for all
    means would leave some where they are and throw others about. A mean moves by 0.1 of its own
    standard deviation at the most.
    """
    import jax
    import jax.numpy as jnp
    import optax

    def scaled(updates: Any, q: Any) -> Any:
        return type(q)(updates.mean * jnp.exp(0.5 * q.log_var), updates.log_var)

    def in_own_units(updates: Any, state: Any, q: Any = None) -> tuple[Any, Any]:
        is_normal = lambda each: hasattr(each, "log_var")  # noqa: E731
        return jax.tree.map(scaled, updates, q, is_leaf=is_normal), state

    # d F / d (mean / spread) = spread * d F / d mean; and back, for the step that is made.
    own_units = optax.GradientTransformation(lambda _: optax.EmptyState(), in_own_units)
    rate = optax.cosine_decay_schedule(-0.1, num_iterations)
    return optax.chain(
        own_units, optax.scale_by_adam(0.9, 0.99), own_units, optax.scale_by_schedule(rate)
    )


if __name__ == "__main__":
    main()
