"""Tables as their users have them, one step ahead and further, beside what one would use instead.

    python benchmarks/tables.py --export DIR
    python benchmarks/tables.py --out FILE --peers [--from DIR] [--tables NAME ...]
    python benchmarks/tables.py --out FILE [--from DIR] [--tables NAME ...] [--seeds 0 1 2]
                                [--variants auto level] [--jobs N] [--runs DIR]
    python benchmarks/tables.py --out FILE --report

Of each table the first 80% are for fitting, a tenth of all rows among them for validation, and the
last 20% are scored once. `auto` is `varfilter train` as it is, and `level` has every column told as
it is, which was so before motions were chosen. `--peers` are the models of statsmodels in
`table_peers.py`; a machine that trains needs neither statsmodels nor the packages that the tables
come in, if they were exported before.

A line of JSON is added to FILE as each job ends; what is there is not done again, so that jobs may
be stopped at any time, and files of two machines put together. A line of ours has the run's own
`comparison` (`varfilter.runs.comparison`): the model, what `varfilter forecast` makes of it and its
references (`pooled`), last value, seasonal naive and linear model, by column; one of a peer has the
same scores of it. All are of the same rows, in the same units. With `--runs` the folders of the
trained runs are kept there, and what has been trained is only scored again.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from public_tables import DATED, PUBLIC, UNSEEN, Table, kept, prepared

from varfilter.data.continued import continued
from varfilter.data.dataset import Dataset
from varfilter.data.tables.read import read_table
from varfilter.runs.comparison import MOST_STEPS, compare_run, compared_part

FRACTIONS = (0.7, 0.1, 0.2)
# What `varfilter forecast` says; the model alone, which `varfilter filter` is surprised by.
OURS, ALONE = "varfilter", "model alone"
NAMES = {"pooled": OURS, "model": ALONE}
REFERENCES = ("last value", "seasonal naive", "linear model")
# By how much a model may be worse than the last value, and within which shares bands of 90% hold.
MARGIN, LEAST_WITHIN, MOST_WITHIN = 0.05, 0.80, 0.97
Line = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Job:
    """One training, or all peers of a table (`variant` is then peers)."""

    table: str
    variant: str
    seed: int
    epochs: int | None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--export", type=Path, metavar="DIR", help="write the tables there")
    parser.add_argument("--from", type=Path, dest="folder", metavar="DIR", help="read them there")
    parser.add_argument("--out", type=Path, metavar="FILE", help="lines of JSON")
    parser.add_argument("--tables", nargs="+", choices=PUBLIC, default=list(PUBLIC))
    parser.add_argument("--variants", nargs="+", choices=("auto", "level"), default=["auto"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, metavar="N", help="of training (the experiment's)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="trainings at a time (1)")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="keep the runs there")
    parser.add_argument("--peers", action="store_true", help="the models of statsmodels")
    parser.add_argument("--report", action="store_true", help="print the tables of what is there")
    parser.add_argument("--one", metavar="JOB", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.export is not None:
        for path in prepared(options.export, {name: table for name, (table, _) in PUBLIC.items()}):
            print(path)
    elif options.one is not None:
        print(json.dumps(measured(Job(**json.loads(options.one)), options.folder, options.runs)))
    elif options.out is None:
        parser.error("give `--out FILE`, or `--export DIR`")
    elif options.report:
        report(_lines(options.out))
    else:
        _work(options)


def _work(options: argparse.Namespace) -> None:
    """Have all jobs done that are not in the file yet, so many at a time."""
    done = {Job(*(line[f.name] for f in dataclasses.fields(Job))) for line in _lines(options.out)}
    variants = ["peers"] if options.peers else options.variants
    seeds = [0] if options.peers else options.seeds
    epochs = None if options.peers else options.epochs
    # Seed by seed: what a run that is stopped leaves behind has all tables.
    jobs = [
        job
        for seed in seeds
        for variant in variants
        for table in options.tables
        if (job := Job(table, variant, seed, epochs)) not in done
    ]
    if options.jobs == 1:
        for job in jobs:
            _append(options.out, measured(job, options.folder, options.runs))
        return
    running: dict[subprocess.Popen[str], Job] = {}
    while jobs or running:
        while jobs and len(running) < options.jobs:
            job = jobs.pop(0)
            running[_started(job, options.folder, options.runs)] = job
        for process in [each for each in running if each.poll() is not None]:
            job = running.pop(process)
            out, errors = process.communicate()
            if process.returncode:
                print(f"{job} failed: {(errors.splitlines() or ['?'])[-1]}", file=sys.stderr)
            else:
                _append(options.out, json.loads(out.splitlines()[-1]))
        time.sleep(0.2)


def _started(job: Job, folder: Path | None, runs: Path | None) -> "subprocess.Popen[str]":
    """A job in a process of its own, on one core."""
    words = ["--one", json.dumps(dataclasses.asdict(job))]
    words += [] if folder is None else ["--from", str(folder)]
    words += [] if runs is None else ["--runs", str(runs)]
    one_core = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {one_core}".strip(),
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, __file__, *words],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def measured(job: Job, folder: Path | None, runs: Path | None = None) -> Line:
    """The line of a job."""
    make, horizon = PUBLIC[job.table]
    table = make() if folder is None else kept(folder, [job.table])[job.table]
    begin = time.perf_counter()
    if job.variant == "peers":
        scored = _peers(table, job, horizon)
    elif runs is not None:
        scored = _trained(table, job, horizon, runs / f"{job.table}-{job.variant}-{job.seed}")
    else:
        with tempfile.TemporaryDirectory() as place:
            scored = _trained(table, job, horizon, Path(place))
    return dataclasses.asdict(job) | {
        "horizon": horizon,
        "num_rows": len(next(iter(table.values()))),
        "seconds": time.perf_counter() - begin,
        **scored,
    }


def _read(table: Table, variant: str) -> Dataset:
    """The table as `varfilter train` reads it, one sequence that is cut in time."""
    kinds = None
    if variant == "level":
        kinds = dict.fromkeys(read_table(table, fractions=FRACTIONS, split="time").columns, "level")
    return read_table(table, fractions=FRACTIONS, split="time", kinds=kinds)


def _trained(table: Table, job: Job, horizon: int, folder: Path) -> Line:
    """Train the table's own experiment on the first part, and compare it on the last."""
    from varfilter.experiments.paper import own_experiment
    from varfilter.media.table import TableSource
    from varfilter.runs.folder import RECORD
    from varfilter.runs.run import IN_MEMORY, Run
    from varfilter.runs.training import train_run

    dataset = _read(table, job.variant)
    experiment = own_experiment(TableSource(IN_MEMORY))
    experiment = dataclasses.replace(experiment, name="table", seed=job.seed)
    if job.epochs is not None:
        schedule = dataclasses.replace(experiment.schedule, num_epochs=job.epochs)
        experiment = dataclasses.replace(experiment, schedule=schedule)
    is_new = not (folder / RECORD).exists()
    run = Run.begin(folder, experiment, dataset) if is_new else Run.load(folder)
    begin = time.perf_counter()
    for _ in train_run(run, dataset):  # of a run that has ended there is nothing left
        pass
    seconds = time.perf_counter() - begin
    found = compare_run(run, dataset=dataset, horizon=horizon, seed=job.seed)
    revision = run.record["revision"]
    assert found is not None
    return {
        "training_seconds": seconds if is_new else None,
        "motions": dataset.schema.motions,
        "kinds": dataset.schema.kinds,
        "comparison": found,
        "revision": revision,
    }


def _peers(table: Table, job: Job, horizon: int) -> Line:
    """Fit the models of statsmodels to the first part, and score them on the last."""
    import statsmodels
    from table_peers import peer_scores

    dataset = _read(table, "auto")
    _, horizon, every = compared_part(dataset, "test", horizon)
    # The same steps, after all rows before them.
    (sequence,) = continued(
        dataset, "test", most_before=len(dataset.train.values) * 2, most_steps=MOST_STEPS
    )
    return {
        "peers": peer_scores(dataset, sequence, horizon, every),
        "statsmodels": statsmodels.__version__,
    }


# The report.


def report(lines: list[Line]) -> None:
    """Print a table for each horizon and the demands, from the lines, in Markdown.

    Tables that nobody had looked at while it was decided how to forecast come by themselves.
    """
    peers = [each for each in lines if each["variant"] == "peers"]
    for variant in dict.fromkeys(each["variant"] for each in lines if each["variant"] != "peers"):
        ours = [each for each in lines if each["variant"] == variant]
        for title, tables in (("", DATED), (", tables not looked at before", UNSEEN)):
            names = [name for name in tables if any(each["table"] == name for each in ours)]
            if not names:
                continue
            summaries = [Summary.of(name, ours, peers) for name in names]
            print(f"\n`{variant}`{title}: means over seeds; log scores are sums over columns.\n")
            for ahead in ("1", "H"):
                _print_horizon(summaries, ahead)
            _print_demands(summaries)


@dataclasses.dataclass(frozen=True)
class Summary:
    """The scores of a table by predictor and horizon (1 and H), means over seeds.

    `nats` are sums, `rmse` and `crps` geometric means over columns of the ratio to the last value,
    and `within` means over columns. Only columns that all have predicted count.
    """

    table: str
    num_seeds: int
    num_rows: int
    columns: tuple[str, ...]
    horizon: int
    nats: dict[str, dict[str, float]]
    spread: dict[str, float]
    rmse: dict[str, dict[str, float]]
    crps: dict[str, dict[str, float]]
    within: dict[str, dict[str, float]]

    @staticmethod
    def of(name: str, ours: list[Line], peers: list[Line]) -> "Summary":
        own = [each for each in ours if each["table"] == name]
        horizon = own[0]["horizon"]
        # By predictor, a list over seeds of {horizon: {column: scores}}.
        found: dict[str, list[Any]] = {}
        for line in own:
            for predictor, by_horizon in line["comparison"]["columns"].items():
                found.setdefault(NAMES.get(predictor, predictor), []).append(by_horizon)
        for line in peers:
            if line["table"] == name:
                for peer, scores in line["peers"].items():
                    found[peer] = [scores["columns"]]
        named = [set(each["1"]) for some in found.values() for each in some]
        columns = tuple(c for c in own[0]["comparison"]["columns"]["model"]["1"]
                        if all(c in some for some in named))  # fmt: skip
        keys = {"1": "1", "H": str(horizon)}

        def each(predictor: str, ahead: str, score: str) -> np.ndarray:
            """(seeds, columns) of a score, NaN where there is none."""
            values = [
                [by_horizon[keys[ahead]][column][score] for column in columns]
                for by_horizon in found[predictor]
            ]
            return np.array(values, np.float64)

        def ratios(score: str) -> dict[str, dict[str, float]]:
            return {
                predictor: {
                    ahead: float(
                        np.exp(
                            np.mean(
                                np.log(each(predictor, ahead, score).mean(0))
                                - np.log(each("last value", ahead, score).mean(0))
                            )
                        )
                    )
                    for ahead in keys
                }
                for predictor in found
            }

        nats = {p: {a: float(each(p, a, "nats").sum(1).mean()) for a in keys} for p in found}
        spread = {a: float(each(OURS, a, "nats").sum(1).std()) for a in keys}
        within = {p: {a: float(np.nanmean(each(p, a, "within_90"))) for a in keys} for p in found}
        return Summary(
            name, len(own), own[0]["num_rows"], columns, horizon,
            nats, spread, ratios("rmse"), ratios("crps"), within,
        )  # fmt: skip

    def best_peer(self, ahead: str) -> str | None:
        """The peer with the best log score on the rows that are scored, in hindsight."""
        peers = [name for name in self.nats if name not in (OURS, ALONE, *REFERENCES)]
        return min(peers, key=lambda name: self.nats[name][ahead]) if peers else None


def _print_horizon(summaries: list[Summary], ahead: str) -> None:
    print(f"Horizon {ahead}: log score in nats (RMSE and CRPS as ratios to the last value's)\n")
    print(
        "| table | rows, columns | last value | seasonal naive | linear model | best peer"
        f" | {ALONE} | {OURS} | within 90% |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for each in summaries:
        peer = each.best_peer(ahead)
        far = "" if ahead == "1" else f", H {each.horizon}"
        cells = [f"{each.table}{far}", f"{each.num_rows:,} x {len(each.columns)}"]
        for name in (*REFERENCES, peer, ALONE):
            text = "-" if name is None or name not in each.nats else _cell(each, name, ahead)
            cells.append(f"{name} {text}" if name == peer and name is not None else text)
        error = f" ± {each.spread[ahead]:.3f}" if each.num_seeds > 1 else ""
        cells += [f"{_cell(each, OURS, ahead)}{error}", f"{each.within[OURS][ahead]:.1%}"]
        print(f"| {' | '.join(cells)} |")
    print()


def _cell(each: Summary, name: str, ahead: str) -> str:
    score = f"{each.nats[name][ahead]:.3f}"
    if name == "last value":
        return score
    return f"{score} ({each.rmse[name][ahead]:.2f}, {each.crps[name][ahead]:.2f})"


def _print_demands(summaries: list[Summary]) -> None:
    """Which demands are met, and which tables miss them."""
    worse, bands, ahead, behind = [], [], [], []
    for each in summaries:
        for far in ("1", "H"):
            own, last = each.nats[OURS][far], each.nats["last value"][far]
            # A log score has no zero: the margin is of a row's nats, at least those of one value.
            if own > last + MARGIN * max(1.0, abs(last)) or each.rmse[OURS][far] > 1.0 + MARGIN:
                worse.append(f"{each.table} (horizon {far})")
        if not LEAST_WITHIN <= each.within[OURS]["H"] <= MOST_WITHIN:
            bands.append(f"{each.table} {each.within[OURS]['H']:.1%}")
        if (peer := each.best_peer("1")) is not None:
            is_ahead = each.nats[OURS]["1"] <= each.nats[peer]["1"]
            (ahead if is_ahead else behind).append(each.table)
    print(f"Worse than the last value by more than {MARGIN:.0%}: {', '.join(worse) or 'none'}.")
    print(f"At or ahead of the best peer in log score one step ahead: {', '.join(ahead) or 'none'};"
          f" behind: {', '.join(behind) or 'none'}.")  # fmt: skip
    print(f"Bands of 90% at H outside of {LEAST_WITHIN:.0%} to {MOST_WITHIN:.0%}:"
          f" {', '.join(bands) or 'none'}.")  # fmt: skip


def _append(path: Path, line: Line) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(f"{line['table']} {line['variant']} {line['seed']}: {line['seconds']:.0f} s", flush=True)


def _lines(path: Path) -> list[Line]:
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
