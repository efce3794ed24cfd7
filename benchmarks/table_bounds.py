"""Which bound the table experiment is best learned by: held-out scores and bands of each.

    python benchmarks/table_bounds.py --prepare FOLDER
    python benchmarks/table_bounds.py --tables FOLDER --out FILE [--jobs N] [--minutes M]
    python benchmarks/table_bounds.py --out FILE --report

The experiment `table` is trained on each table of `public_tables.py` by each bound, with several
seeds, as `varfilter train` does it: the best checkpoint by validation is kept, by the bound that
was learned. Then all are held to one measure on the test part: the filter that a run is applied
with, of 64 trajectories. `nats` is minus its bound a step (lower is better); `band 1` and `band 10`
say how many values lay inside of the 90% bands of forecasts 1 and 10 steps ahead.

Each (table, bound, seed) is a process of its own on one core, `--jobs` of them at a time. A line
of JSON is added to FILE as each ends; what is there already is not done again, so that a run
that was stopped (by `--minutes`, say) goes on from there. Seconds are of training alone, after
compilation, on one core: their ratios count.
"""

import argparse
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from public_tables import kept, prepared

NUM_APPLIED = 64
HORIZON = 10


@dataclasses.dataclass(frozen=True)
class Job:
    """One training: which table, by which bound, with which seed."""

    table: str
    method: str
    seed: int
    epochs: int
    windows: int


# The methods by name, as fields of `FilterChoice`.
METHODS: dict[str, dict[str, Any]] = {
    "elbo": {"bound": "elbo"},
    "iwae-8": {"bound": "iwae", "num_particles": 8},
    "fivo-8": {"bound": "fivo", "num_particles": 8},
    "fivo-8-scored": {"bound": "fivo", "num_particles": 8, "gradient": "scored-ancestors"},
    "iwae-16": {"bound": "iwae", "num_particles": 16},
    "fivo-16": {"bound": "fivo", "num_particles": 16},
    "fivo-16-scored": {"bound": "fivo", "num_particles": 16, "gradient": "scored-ancestors"},
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prepare", type=Path, metavar="FOLDER", help="write the tables there")
    parser.add_argument("--tables", type=Path, metavar="FOLDER", help="where they were written")
    parser.add_argument("--out", type=Path, metavar="FILE", help="lines of JSON")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="at a time (2)")
    parser.add_argument("--minutes", type=float, metavar="M", help="stop after so many")
    parser.add_argument("--epochs", type=int, default=30, help="of training (30)")
    parser.add_argument("--windows", type=int, default=2400, help="of an epoch (2400)")
    parser.add_argument("--seeds", type=int, default=2, help="how many (2)")
    parser.add_argument("--only", nargs="+", metavar="TABLE", help="of these tables alone")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS)[:4])
    parser.add_argument("--quick", action="store_true", help="tiny: one epoch of one seed")
    parser.add_argument("--report", action="store_true", help="print the table of what is there")
    parser.add_argument("--one", metavar="JOB", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare is not None:
        for path in prepared(options.prepare):
            print(path)
    elif options.one is not None:
        job = Job(**json.loads(options.one))
        print(json.dumps(measure(job, options.tables)))
    elif options.out is None or (options.tables is None and not options.report):
        parser.error("give `--tables FOLDER --out FILE`, after `--prepare FOLDER`")
    else:
        if not options.report:
            # Seeds share most of their programs.
            with tempfile.TemporaryDirectory() as cache:
                run_jobs(options, cache)
        report(_lines(options.out))


def run_jobs(options: argparse.Namespace, cache: str) -> None:
    """Have all jobs done that are not in the file yet, a few at a time, dear ones first."""
    size = (1, 100) if options.quick else (options.epochs, options.windows)
    seeds = 1 if options.quick else options.seeds
    tables = list(kept(options.tables, options.only))
    done = {Job(*(line[f.name] for f in dataclasses.fields(Job))) for line in _lines(options.out)}
    # Seed by seed: what a run that is stopped leaves behind has all bounds of a table.
    jobs = [
        job
        for seed in range(seeds)
        for table, method in itertools.product(tables, options.methods[::-1])
        if (job := Job(table, method, seed, *size)) not in done
    ]
    begin, running = time.perf_counter(), {}
    total = len(jobs)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    free = [cores[i % len(cores)] for i in range(options.jobs)]
    late = False
    while jobs or running:
        late = options.minutes is not None and time.perf_counter() - begin > 60 * options.minutes
        if late:
            break
        while jobs and free:
            job, core = jobs.pop(0), free.pop()
            running[_started(job, options.tables, core, cache)] = job, core
        for process in [process for process in running if process.poll() is not None]:
            job, core = running.pop(process)
            free.append(core)
            out, errors = process.communicate()
            if process.returncode != 0:
                print(f"{job} failed: {(errors.splitlines() or ['?'])[-1]}", file=sys.stderr)
                continue
            with options.out.open("a", encoding="utf-8") as file:
                file.write(out.splitlines()[-1] + "\n")
            left = len(jobs) + len(running)
            print(
                f"{time.perf_counter() - begin:5.0f} s, {left} of {total} left: {job}", flush=True
            )
        time.sleep(0.2)
    for process in running:  # only where the time is over
        process.kill()
        process.wait()
    if late:
        print(f"The time is over, {len(jobs) + len(running)} jobs are left.")


def _started(job: Job, tables: Path, core: int, cache: str) -> subprocess.Popen:
    words = ["--one", json.dumps(dataclasses.asdict(job)), "--tables", str(tables)]
    one_core = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    flags = " ".join((os.environ.get("XLA_FLAGS", ""), one_core)).strip()
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1", "VARFILTER_CORE": str(core),
        "JAX_COMPILATION_CACHE_DIR": cache,
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, __file__, *words],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def measure(job: Job, folder: Path) -> dict[str, Any]:
    """Train once, and hold what was learned to the common measure."""
    if hasattr(os, "sched_setaffinity") and "VARFILTER_CORE" in os.environ:
        os.sched_setaffinity(0, {int(os.environ["VARFILTER_CORE"])})
    import jax

    from varfilter.data.tables.read import read_table
    from varfilter.filters import ParticleFilter
    from varfilter.runs.run import Run
    from varfilter.runs.training import Stopped, Updated, train_run
    from varfilter.training.evaluation import HeldOut, forecast_coverage

    # Tables are short: a fifth for the test, and as it is the last of a sequence, its own future.
    dataset = read_table(kept(folder, [job.table])[job.table], fractions=(0.7, 0.1, 0.2))
    experiment = chosen_experiment(job)
    with tempfile.TemporaryDirectory() as place:
        run = Run.begin(Path(place) / "run", experiment, dataset)
        first = last = None
        for event in train_run(run, dataset, seconds_per_checkpoint=1e9):
            if isinstance(event, Updated):
                # From the end of the first dispatch, which compiles.
                first = first or event
                last = event
            elif isinstance(event, Stopped):
                best = event.best
        trained = run.trained()
    assert first is not None
    assert last is not None
    updates = last.step - first.step
    applied = ParticleFilter(trained.filter.inference, NUM_APPLIED, resample_below=0.5)
    key = jax.random.key(100 + job.seed)
    held_out = HeldOut(dataset, split="test", batch_size=8)
    scores = held_out.evaluate(applied, trained.model, key)
    bands = forecast_coverage(applied, trained.model, dataset, key, horizon=HORIZON, every=5)
    is_numeric = np.array([kind == "numeric" for kind in dataset.schema.kinds.values()])
    covered = bands.covered[:, is_numeric].sum(1)
    count = np.maximum(bands.count[:, is_numeric].sum(1), 1)
    return dataclasses.asdict(job) | {
        "nats": scores.nats,
        "nats_by_step": scores.nats_by_step,
        "num_scored": int(scores.num_steps.sum()),
        "prediction_error": scores.prediction_error,
        "band_1": float(covered[0] / count[0]),
        "band_10": float(covered[-1] / count[-1]),
        "bands": (covered / count).tolist(),
        "num_bands": int(count[-1]),
        "best_step": best.step,
        "best_valid": best.valid,
        "num_updates": last.step,
        "num_skipped": last.num_skipped,
        "update_ms": 1e3 * (last.seconds - first.seconds) / updates if updates else None,
        "revision": run.record["revision"],
        "varfilter": run.record["varfilter"],
        "jax": jax.__version__,
    }


def chosen_experiment(job: Job) -> Any:
    """The experiment `table`, learned by the bound of the job."""
    from varfilter.experiments.paper import EXPERIMENTS
    from varfilter.experiments.settings import FilterChoice
    from varfilter.runs.run import IN_MEMORY

    like = EXPERIMENTS["table"]
    schedule = dataclasses.replace(
        like.schedule, num_epochs=job.epochs, windows_per_epoch=job.windows
    )
    return dataclasses.replace(
        like,
        data=dataclasses.replace(like.data, source=IN_MEMORY),
        filter=FilterChoice(like.filter.inference, **METHODS[job.method]),
        schedule=schedule,
        seed=job.seed,
    )


def report(lines: list[dict[str, Any]]) -> None:
    """The means over seeds by table and bound, as a table in Markdown, and over all tables."""
    tables = list(dict.fromkeys(line["table"] for line in lines))
    methods = [name for name in METHODS if any(line["method"] == name for line in lines)]
    print("\n| table | bound | seeds | nats | band 1 | band 10 | update, ms | best at |")
    print("|---|---|---|---|---|---|---|---|")
    means: dict[tuple[str, str], dict[str, float]] = {}
    names = ("nats", "band_1", "band_10", "update_ms", "best_step")
    for table, method in itertools.product(tables, methods):
        own = [line for line in lines if (line["table"], line["method"]) == (table, method)]
        if not own:
            continue
        mean = {name: float(np.mean([line[name] or np.nan for line in own])) for name in names}
        means[table, method] = mean
        spread = f" ± {np.std([line['nats'] for line in own]):.3f}" if len(own) > 1 else ""
        print(
            f"| {table} | {method} | {len(own)} | {mean['nats']:.3f}{spread}"
            f" | {mean['band_1']:.2f} | {mean['band_10']:.2f} | {mean['update_ms']:.0f}"
            f" | {mean['best_step']:.0f} |"
        )
    whole = [table for table in tables if all((table, method) in means for method in methods)]
    if not whole:
        return
    print(f"\nOver {len(whole)} tables that have all of these, against `{methods[0]}`:\n")
    print("| bound | nats more | best on | off 0.9, band 1 | off 0.9, band 10 | time |")
    print("|---|---|---|---|---|---|")
    for method in methods:
        own = [means[table, method] for table in whole]
        base = [means[table, methods[0]] for table in whole]
        more = np.mean([a["nats"] - b["nats"] for a, b in zip(own, base, strict=True)])
        wins = sum(
            means[table, method]["nats"] == min(means[table, m]["nats"] for m in methods)
            for table in whole
        )
        off = [np.mean([abs(a[band] - 0.9) for a in own]) for band in ("band_1", "band_10")]
        ratio = np.mean([a["update_ms"] / b["update_ms"] for a, b in zip(own, base, strict=True)])
        print(f"| {method} | {more:+.3f} | {wins} | {off[0]:.3f} | {off[1]:.3f} | {ratio:.1f} |")


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
