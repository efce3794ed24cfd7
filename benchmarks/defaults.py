"""Which settings of `Iterative` serve any model: candidates beside the converged gradient E-step.

    python benchmarks/defaults.py --prepare [--music DIR]
    python benchmarks/defaults.py --results FILE [--jobs N] [--minutes M] [--quick]
    python benchmarks/defaults.py --results FILE --table

On each of six models (`six_models.py`) with their parameters held fixed, only the inference
network is learned, from the same data in the same number of updates; then the free energy of
held-out sequences is taken, in nats per step, as the mean of several runs with fresh draws:
without inference (q = prior), with each candidate, and with gradient descent on q at each step, at
two lengths, to see that it has converged. The costs of one iteration and of the descent are timed
side by side.

`--prepare` reads the table and the music (a folder with jsb_chorales.npz; else $VARFILTER_DATA)
and learns their models. Each job is a process on a core of its own, which adds a line to FILE;
what is in FILE is not run again. `--table` prints what FILE holds.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / ".data"
NAMES = ("volatility", "pendulum", "lorenz", "tracker", "table", "jsb")
# By the length of the descent: iterations, draws, and Adam's first rate, which falls to zero.
DESCENTS = {"descent, longer": (300, 16, 0.2), "descent": (150, 8, 0.2)}
REFERENCES = (*DESCENTS, "cost", "prior")


@dataclass(frozen=True)
class Candidate:
    """Settings of `Iterative`, as plain words and numbers; None is the default of the class."""

    normalize: str = "layer"
    update: str = "highway"
    num_iterations: int = 1
    num_samples: int = 1
    hidden_size: int | None = None
    signal: str = "gradients"
    num_phi_steps: int = 8
    is_model_learned: bool = False

    def __str__(self) -> str:
        parts = [self.normalize, self.update, f"K={self.num_iterations}", f"S={self.num_samples}"]
        parts += [] if self.hidden_size is None else [f"{self.hidden_size} units"]
        parts += [] if self.signal == "gradients" else [self.signal]
        parts += [] if self.num_phi_steps == 8 else [f"{self.num_phi_steps} steps of phi"]
        parts += ["model learned too"] if self.is_model_learned else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Job:
    """One process: a model, what is held against it, and the seed of its network and data order."""

    model: str
    what: str
    seed: int
    candidate: Candidate | None = None

    @property
    def name(self) -> str:
        return f"{self.model}: {self.what}, seed {self.seed}"


def jobs(models: list[str], seeds: list[int]) -> list[Job]:
    """All jobs: the references, those that learn the model too, then each comparison."""
    found = [Job(model, what, 0) for what in REFERENCES for model in models]
    both = [model for model in models if model in ("table", "jsb")]
    for seed in seeds:
        for candidate in learned_together():
            found += [Job(model, str(candidate), seed, candidate) for model in both]
        if seed == 0:
            for candidate in compared():
                found += [Job(model, str(candidate), seed, candidate) for model in models]
    return found


def compared() -> list[Candidate]:
    """The normalisation; what is done to q; the gradient and its draws; iterations; the size."""
    shift: dict[str, Any] = {"update": "shift", "signal": "pairs"}
    return [
        Candidate("layer"),
        Candidate("log", **shift),
        Candidate("norm+log", **shift),
        Candidate("layer+log", **shift),
        Candidate("log", "gated", signal="pairs"),
        Candidate("log", **shift, num_iterations=2),
        Candidate("norm+log", **shift, num_iterations=2),
        Candidate("log"),
        Candidate("log", "shift"),
        Candidate("log", signal="pairs"),
        Candidate("log", **shift, num_samples=4),
        Candidate("log", **shift, num_iterations=4),
        Candidate("layer", hidden_size=1024),
        Candidate("layer+scale", **shift),
        Candidate("log", **shift, hidden_size=256),
        Candidate("log", "scaled", signal="pairs"),
        Candidate("log", "learned-step"),
    ]


def learned_together() -> list[Candidate]:
    """The same questions of a model that is learned with the network; and how much phi learns."""
    shift: dict[str, Any] = {"update": "shift", "signal": "pairs", "is_model_learned": True}
    mixed: dict[str, Any] = {"update": "highway", "is_model_learned": True}
    return [
        Candidate("layer", **mixed),
        Candidate("log", **mixed),
        Candidate("log", **shift),
        Candidate("norm+log", **shift),
        Candidate("log", **shift | {"update": "gated"}),
        Candidate("layer+log", **shift),
        Candidate("log", **mixed, signal="pairs"),
        Candidate("norm+log", **mixed, signal="pairs"),
        Candidate("norm+log", **shift, num_phi_steps=1),
        Candidate("norm+log", **shift, num_phi_steps=24),
    ]


def measure(job: Job, *, quick: bool) -> dict[str, Any]:
    """Do one job, in this process."""
    import jax
    import numpy as np
    import optax
    import six_models

    import varfilter as vf
    from varfilter.training import HeldOut

    begin = time.perf_counter()
    world = six_models.world(job.model, FOLDER, quick=quick)
    model, dataset = world.model, world.dataset
    held_out = HeldOut(dataset, split="test", batch_size=len(dataset.test))
    num_steps = int(held_out.num_steps.sum()) - len(dataset.test)

    # Free energies of few sequences are noisy: the fewer there are, the more often.
    many = 1 if quick else max(8, 24_000 // num_steps)

    def scored(inference: Any, num_repeats: int) -> dict[str, Any]:
        filter = vf.VariationalFilter(inference)
        keys = [jax.random.fold_in(jax.random.key(7), i) for i in range(num_repeats)]
        found = [held_out.evaluate(filter, model, key) for key in keys]
        each = np.array([evaluation.nats for evaluation in found])
        by_iteration = np.mean([evaluation.nats_by_iteration for evaluation in found], axis=0)
        return {
            "nats": float(each.mean()),
            # Of the draws: the sequences are the same for all.
            "error": float(each.std(ddof=1) / len(each) ** 0.5) if len(each) > 1 else None,
            "by_iteration": by_iteration.tolist(),
        }

    def descent(what: str) -> Any:
        count, draws, rate = (4, 2, 0.2) if quick else DESCENTS[what]
        adam = optax.adam(optax.cosine_decay_schedule(rate, count))
        return vf.GradientDescent(adam, num_iterations=count, num_samples=draws)

    if job.candidate is not None:
        learned = learn(job.candidate, world, job.seed, quick=quick)
        model = learned.pop("model")
        row = scored(learned.pop("inference"), many) | learned
    elif job.what == "prior":
        row = scored(vf.Prior(), many)
    elif job.what == "cost":
        key = jax.random.key(0)
        inferences = {f"K={k}": vf.Iterative(model, num_iterations=k, key=key) for k in (1, 2, 4)}
        row = {"prior_seconds": _seconds(held_out, model, vf.Prior())}
        for name, inference in (inferences | {"descent": descent("descent")}).items():
            row[f"{name}_seconds"] = _seconds(held_out, model, inference)
    else:
        row = scored(descent(job.what), -(-many // 4))
    seconds = time.perf_counter() - begin
    return asdict(job) | row | {"num_steps": num_steps, "seconds": seconds, "quick": quick}


def learn(candidate: Candidate, world: Any, seed: int, *, quick: bool) -> dict[str, Any]:
    """Learn the network of a candidate for a model that stays as it is."""
    import jax
    import numpy as np

    import varfilter as vf
    from varfilter.data import RandomWindows

    num_updates = 4 if quick else 1200 if candidate.is_model_learned else 600
    key_net, key_model, key_fit = jax.random.split(jax.random.key(seed), 3)
    model, theta = world.model, None
    if candidate.is_model_learned:
        model, theta = world.untrained(key_model), _adam(2e-3, num_updates)
    inference = built(candidate, model, key_net)
    phi = _adam(2e-3, num_updates * candidate.num_phi_steps)
    learner = vf.TimeParallel(theta=theta, phi=phi, num_phi_steps=candidate.num_phi_steps)
    state = learner.init(model, vf.VariationalFilter(inference))
    windows = RandomWindows(world.dataset, world.num_steps, 4 if quick else 32)
    begin = time.perf_counter()
    curve = []
    for fitted in vf.fit(
        learner, state, windows, key_fit, num_updates=num_updates,
        updates_per_dispatch=max(1, num_updates // 10),
    ):  # fmt: skip
        state = fitted.state
        curve.append(float(np.mean(fitted.metrics.free_energy)))
    return {
        "inference": state.filter.inference,
        "model": state.model,
        "learning_seconds": time.perf_counter() - begin,
        "curve": curve,
        "hidden_size": inference.trunk.carry.out_features,
        "num_skipped": int(state.num_skipped),
    }


def _adam(rate: float, num_steps: int) -> Any:
    import optax

    schedule = optax.cosine_decay_schedule(rate, num_steps)
    return optax.chain(optax.clip_by_global_norm(10.0), optax.adam(schedule))


def built(candidate: Candidate, model: Any, key: Any) -> Any:
    """The untrained network of a candidate."""
    import tried

    import varfilter as vf

    options = {} if candidate.hidden_size is None else {"hidden_size": candidate.hidden_size}
    return vf.Iterative(
        model,
        normalize=tried.NORMALIZATIONS[candidate.normalize],
        update=tried.UPDATES[candidate.update],
        num_iterations=candidate.num_iterations,
        num_samples=candidate.num_samples,
        signal=tried.SIGNALS[candidate.signal],
        key=key,
        **options,
    )


def _seconds(held_out: Any, model: Any, inference: Any) -> float:
    """Seconds to filter all held-out sequences side by side, after compiling: the least of 3."""
    import jax

    import varfilter as vf

    filter = vf.VariationalFilter(inference)
    held_out.evaluate(filter, model, jax.random.key(0))
    found = []
    for _ in range(3):
        begin = time.perf_counter()
        held_out.evaluate(filter, model, jax.random.key(0))
        found.append(time.perf_counter() - begin)
    return min(found)


def run_all(todo: list[Job], options: argparse.Namespace) -> None:
    """Run the jobs, each in a process of its own that stays on one core."""
    cores: queue.Queue[int] = queue.Queue()
    for core in sorted(os.sched_getaffinity(0))[: options.jobs]:
        cores.put(core)
    end = time.monotonic() + 60.0 * options.minutes
    variables = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    }

    def one(job: Job) -> str | None:
        core = cores.get()
        try:
            if time.monotonic() > end:
                return None
            command = [sys.executable, __file__, "--one", json.dumps(asdict(job))]
            command += ["--core", str(core), *(["--quick"] if options.quick else [])]
            done = subprocess.run(
                command, env=variables, text=True,
                capture_output=True, check=False, timeout=end - time.monotonic(),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
        finally:
            cores.put(core)
        if done.returncode:
            return f"{job.name}: failed\n{done.stderr[-2000:]}"
        line = done.stdout.splitlines()[-1]
        with open(options.results, "a", encoding="utf-8") as file:
            file.write(line + "\n")
        row = json.loads(line)
        return f"{job.name}: {row.get('nats', float('nan')):.3f} nats, {row['seconds']:.0f} s"

    with ThreadPoolExecutor(options.jobs) as pool:
        for said in pool.map(one, todo):
            if said:
                print(said, flush=True)


def known(path: Path, *, quick: bool) -> list[dict[str, Any]]:
    """The lines of the results that were made at this size."""
    if not path.is_file():
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["quick"] == quick]


def table(rows: list[dict[str, Any]]) -> str:
    """The results as tables: nats per step, the gap to the descent, and the costs."""
    models = [m for m in NAMES if any(row["model"] == m for row in rows)]
    nats: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if "nats" in row:
            nats.setdefault(row["what"], {}).setdefault(row["model"], []).append(row["nats"])
    best = {m: _mean(nats.get("descent, longer", {}).get(m)) for m in models}
    none = {m: _mean(nats.get("prior", {}).get(m)) for m in models}

    def line(what: str, cell: Callable[[str, float], str]) -> str:
        cells = [cell(m, _mean(nats[what].get(m))) for m in models]
        return f"| {what} | {' | '.join(cells)} |"

    head = f"| | {' | '.join(models)} |\n|---|{'---|' * len(models)}"
    found = ["nats per step", "", head]
    found += [line(what, lambda m, v: f"{v:.3f}") for what in nats]
    found += ["", "gap to the longer descent, % of it (% of what inference gains)", "", head]

    def gap(m: str, v: float) -> str:
        of_gain = (v - best[m]) / (none[m] - best[m])
        return f"{100 * (v - best[m]) / abs(best[m]):.1f} ({100 * of_gain:.1f})"

    found += [line(what, gap) for what in nats if what != "descent, longer"]
    costs = {row["model"]: row for row in rows if row["what"] == "cost"}
    if costs:
        found += ["", "microseconds a step and sequence, and times those of K=1", "", head]
        for name in ("prior", "K=1", "K=2", "K=4", "descent"):
            cells = []
            for m in models:
                row = costs.get(m)
                if row is None:
                    cells.append("")
                    continue
                own, one = row[f"{name}_seconds"], row["K=1_seconds"]
                cells.append(f"{1e6 * own / row['num_steps']:.1f} ({own / one:.1f})")
            found.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(found)


def _mean(values: list[float] | None) -> float:
    return sum(values) / len(values) if values else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--results", type=Path, metavar="FILE", help="JSON lines, added to")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time, one a core")
    parser.add_argument("--minutes", type=float, default=600.0, help="when to stop")
    parser.add_argument("--seeds", type=int, default=1, help="of those that learn the model, too")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all?")
    parser.add_argument("--table", action="store_true", help="print what FILE holds, run nothing")
    parser.add_argument("--prepare", action="store_true", help="learn the models of real data")
    parser.add_argument("--music", type=Path, help="the folder that has jsb_chorales.npz")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.models) - set(NAMES):
        parser.error(f"unknown MODEL {', '.join(sorted(unknown))}; choose of {', '.join(NAMES)}")
    if options.one:
        os.sched_setaffinity(0, {options.core})  # before JAX counts the cores
        given = json.loads(options.one)
        candidate = given.pop("candidate")
        job = Job(**given, candidate=Candidate(**candidate) if candidate else None)
        print(json.dumps(measure(job, quick=options.quick)))
        return
    if options.prepare:
        import six_models

        music = options.music or Path(os.environ.get("VARFILTER_DATA", "."))
        six_models.prepare(FOLDER, music, 40 if options.quick else 1500)
        return
    if options.results is None:
        parser.error("--results is missing: the file that the figures go to")
    rows = known(options.results, quick=options.quick)
    if not options.table:
        done = {(row["model"], row["what"], row["seed"]) for row in rows}
        todo = jobs(options.models or list(NAMES), list(range(options.seeds)))
        run_all([j for j in todo if (j.model, j.what, j.seed) not in done], options)
        rows = known(options.results, quick=options.quick)
    print(table(rows))


if __name__ == "__main__":
    main()
