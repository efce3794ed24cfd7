"""The sensors table in two revisions by turns: an update of training, and `filter`.

    git worktree add --detach OTHER REVISION
    python benchmarks/revisions.py OTHER [--rounds 9] [--quick] [--json FILE]

Both revisions take the settings that they give the table by themselves, but one member. A round is
10 updates in each, one dispatch, and a chunk of 16 steps as `filter`
takes them, each predicted with two quantiles: one trajectory in the other revision, 64 in this one
(64 in both, too). What each returns is thrown away; parameters are as they were drawn.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from core import machine

HERE = Path(__file__).parent.parent
NUM_UPDATES = 10

# What runs in either revision: each line of its input asks for something to be timed.
WORKER = f"""
import dataclasses, sys, time
import jax
import applied_cost
from varfilter.runs.applied import applied_filter
from varfilter.training import fit

subject = applied_cost.table()
experiment = subject.experiment
if hasattr(experiment, "num_members"):
    experiment = dataclasses.replace(experiment, num_members=1)
model, trained, _ = experiment.build(subject.dataset)
calls = {{}}

def chunk(count):
    if count not in calls:
        filter = applied_filter(trained, count)
        xs, num_samples = subject.xs[:17], subject.medium.num_samples
        calls[count] = applied_cost._chunk(filter, model, xs, num_samples)
        calls[count]()
    begin = time.perf_counter()
    calls[count]()
    return time.perf_counter() - begin

updates = None

def update():
    global updates
    if updates is None:
        learner = experiment.build(subject.dataset)[2]
        updates = iter(fit(
            learner, learner.init(model, trained), experiment.windows(subject.dataset),
            jax.random.key(0), num_updates=100_000, updates_per_dispatch={NUM_UPDATES},
            kl_weight=experiment.schedule.annealing(1),
        ))
        jax.block_until_ready(next(updates).state)
    begin = time.perf_counter()
    jax.block_until_ready(next(updates).state)
    return (time.perf_counter() - begin) / {NUM_UPDATES}

out = sys.stdout
sys.stdout = sys.stderr
for line in sys.stdin:
    word, *rest = line.split()
    seconds = update() if word == "update" else chunk(int(rest[0]))
    print(seconds, file=out, flush=True)
"""


class Worker:
    """A process in a checkout, which times what it is asked to."""

    def __init__(self, checkout: Path):
        paths = [str(checkout / "src"), str(checkout / "benchmarks")]
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER], cwd=checkout, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )  # fmt: skip

    def seconds(self, question: str) -> float:
        """How long it took; the first time it is compiled before."""
        process: Any = self._process
        process.stdin.write(question + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"`{question}` failed: {process.stderr.read()[-2000:]}")
        return float(line)

    def end(self) -> None:
        """Let it go."""
        self._process.kill()
        self._process.wait()


CONTESTS = {  # what is asked of this revision, and of the other
    "an update": ("update", "update"),
    "16 steps, 64 trajectories over one": ("filter 64", "filter 1"),
    "16 steps, 64 trajectories": ("filter 64", "filter 64"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="a checkout of the other revision")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="one round: does it run at all?")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    arguments = parser.parse_args()
    print(" | ".join(f"{name}: {value}" for name, value in machine().items()))
    workers = Worker(HERE), Worker(arguments.other.resolve())
    rows = []
    try:
        for name, questions in CONTESTS.items():
            pairs = [
                tuple(w.seconds(q) for w, q in zip(workers, questions, strict=True))
                for _ in range(1 if arguments.quick else arguments.rounds)
            ]
            ours, others = (list(each) for each in zip(*pairs, strict=True))
            rows.append({
                "what": name, "ours_ms": 1e3 * statistics.median(ours),
                "other_ms": 1e3 * statistics.median(others),
                "ratio": statistics.median(a / b for a, b in pairs),
                "ratio_of_minima": min(ours) / min(others),
            })  # fmt: skip
            print("{what}: {ours_ms:.1f} ms, the other {other_ms:.1f}: {ratio:.2f} of it, by the"
                  " shortest {ratio_of_minima:.2f}".format(**rows[-1]), flush=True)  # fmt: skip
    finally:
        for worker in workers:
            worker.end()
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
