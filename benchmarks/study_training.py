"""A cell of the study in training, in a process of its own: its runs, and what is kept of them."""

import argparse
import gzip
import json
import shlex
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from study_data import load_set
from study_plans import Cell
from study_scores import TIGHTER, Scoring, keep_shown

# How often the files of a cell in training are written.
BETWEEN = 20.0


def tell(name: str, text: str) -> None:
    """A line of a cell, by its name."""
    print(f"{name}: {text}", flush=True)


class Training:
    """A cell in training, in this process: its runs, and what is kept of them."""

    def __init__(self, cell: Cell, given: argparse.Namespace):
        # Of a process that only starts others, JAX would hold the device.
        from varfilter.runs import Run

        self.cell, self.given, self.begin = cell, given, time.time()
        self.until = float("inf") if given.until is None else given.until
        self.dataset = load_set(cell.experiments[0].data)
        scratch = given.scratch / cell.name
        self.runs = [
            Run.begin(scratch / folder, experiment, self.dataset)
            for folder, experiment in zip(cell.folders, cell.experiments, strict=True)
        ]
        self.folder = given.out / cell.name
        self.reasons = ["time was up"] * len(self.runs)
        self.kept = 0.0
        self.chosen: int | None = None
        self.warming: threading.Thread | None = None

    def run(self) -> None:
        """Train, and score the best of each by validation."""
        from varfilter.runs import train_runs

        # Nobody goes on with these: the first and the last checkpoint are all that is written.
        training = train_runs(self.runs, self.dataset, seconds_per_checkpoint=1e9)
        with closing(training) as events:
            for each in events:
                # Before it goes on to score what takes no learning, which takes a while.
                if self.take(each) or time.time() > self.until:
                    break
        if self.warming is not None:
            self.warming.join()
        if self.cell.part is not None:
            self.choose()
        self.keep()
        tell(self.cell.name, f"trained for {time.time() - self.begin:.0f} s")
        if self.cell.part is not None:
            self.score(self.cell.part)

    def take(self, events: Sequence[Any]) -> bool:
        """Tell of validations, keep what there is now and then, and say whether all have ended."""
        from varfilter.runs.training import Stopped, Validated

        for member, event in enumerate(events):
            if isinstance(event, Stopped):
                self.reasons[member] = event.reason
                tell(self.cell.name, f"{self.cell.folders[member]}: {event.reason}")
        lines = [event.line for event in events if isinstance(event, Validated)]
        if not lines:
            return False
        best = " ".join(f"{line['best']:.3f}" for line in lines)
        seconds = time.time() - self.begin
        tell(self.cell.name, f"epoch {lines[0]['epoch']:.0f}, {seconds:.0f} s, best {best}")
        if self.warming is None and self.cell.part is not None:
            self.warming = threading.Thread(target=self.warm, daemon=True)
            self.warming.start()
        if time.time() - self.kept > BETWEEN:
            self.keep()
        last = self.cell.experiments[0].schedule.num_epochs
        if lines[0]["epoch"] < last:
            return False
        self.reasons = [f"all {last} epochs are done"] * len(self.runs)
        return True

    @property
    def scoring(self) -> Scoring:
        """What the cell is scored by."""
        cell, given = self.cell, self.given
        bounds = cell.bounds or (TIGHTER if given.bounds else ())
        return Scoring(self.dataset, cell.part or "test", bounds, cell.as_released, cell.example)

    def warm(self) -> None:
        """Compile what scores, while the cell still trains."""
        begin = time.time()
        width = len(self.cell.points) - sum(point > 0 for point in self.cell.points)
        try:
            self.scoring.warm([e.build(self.dataset) for e in self.cell.experiments[:width]])
        except Exception as error:  # what fails will fail again, and be told, when it counts
            tell(self.cell.name, f"could not compile the scores: {str(error)[:300]}")
        tell(self.cell.name, f"scores compiled in {time.time() - begin:.0f} s")

    def choose(self) -> None:
        """Choose, of a cell's points, that with the lowest mean of its members' validations."""
        points = self.cell.points
        best = [
            min((line["valid"]["nats"] for line in run.metrics()), default=float("inf"))
            for run in self.runs
        ]
        own = {p: [b for b, q in zip(best, points, strict=True) if p == q] for p in set(points)}
        self.chosen = min(own, key=lambda point: sum(own[point]))

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
            "table": self.cell.table,
            "scored": [self.cell.folders[member] for member in self.members],
            "plan": self.given.plan,
            "command": shlex.join(["python", *sys.argv[: sys.argv.index("--cell")]]),
            "revision": self.given.revision or self.runs[0].record["revision"],
            "device": self.runs[0].record["device"],
            "seconds": round(time.time() - self.begin, 1),
            "members": members,
        }
        (self.folder / "cell.json").write_text(json.dumps(record, indent=1) + "\n")

    @property
    def members(self) -> list[int]:
        """The members that are scored: all, or those of the point that was chosen."""
        return [m for m, point in enumerate(self.cell.points) if point == (self.chosen or 0)]

    def score(self, part: str) -> None:
        """Score the best checkpoints of the members, by one program, sequence by sequence."""
        scoring, members = self.scoring, self.members
        trained = [self.runs[member].trained() for member in members]
        scores, by_bound, released = scoring.all(trained)
        for number, (member, each, found) in enumerate(zip(members, trained, scores, strict=True)):
            record = found.as_json() | {
                "step": each.step,
                "valid": each.valid,
                "songs": found.numbers.tolist(),
                "steps_by_song": found.num_steps.astype(int).tolist(),
                "nats_by_song": [round(nats, 6) for nats in found.per_sequence.tolist()],
            }
            if released is not None:
                record["released"] = released[number].as_json()
            place = self.folder / self.cell.folders[member]
            (place / f"{part}.json").write_text(json.dumps(record) + "\n")
        nats = [found.nats for found in scores]
        mean = sum(nats) / len(nats)
        tell(self.cell.name, f"{part} {mean:.4f}: {' '.join(f'{each:.3f}' for each in nats)}")
        if scoring.example is not None:
            best = min(trained, key=lambda each: each.valid)
            keep_shown(scoring.shown(best), self.folder / "example.npz")
        self.score_bounds(scoring.bounds, by_bound)

    def score_bounds(self, names: Sequence[str], by_bound: Callable[[str], list[Any]]) -> None:
        """Score the members by other bounds, one after another, and keep each as it comes."""
        found: dict[str, Any] = {}
        for name in names:
            begin = time.time()
            try:
                scores = by_bound(name)
            except Exception as error:  # one bound that fails leaves the others
                tell(self.cell.name, f"{name} failed: {str(error)[:300]}")
                continue
            found[name] = [[round(n, 5) for n in each.per_sequence.tolist()] for each in scores]
            text = " ".join(f"{each.nats:.3f}" for each in scores)
            tell(self.cell.name, f"{name} {text} ({time.time() - begin:.0f} s)")
            folders = [self.cell.folders[member] for member in self.members]
            record = {"folders": folders, "nats_by_song": found}
            (self.folder / "bounds.json").write_text(json.dumps(record) + "\n")
