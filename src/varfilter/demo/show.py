"""Run both worlds, print the tables, write the page."""

import json
import time
from dataclasses import asdict
from pathlib import Path

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from varfilter.demo import page
from varfilter.demo.pendulum import PendulumResult, swing
from varfilter.demo.tracker import TrackerResult, track


def run_demo(out: Path, seed: int, *, effort: float = 1.0) -> Path:
    """Train, filter, forecast and find the fault; returns the path of the page that was written.

    Beside the page it writes `results.json` with every figure that the page shows. `effort` is
    the share of the updates that are made: with less than 1 the figures are worse.
    """
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    # A folder that cannot be written to is found now, not at the end.
    (out / "results.json").touch()
    begin = time.perf_counter()
    key_tracker, key_pendulum = jax.random.split(jax.random.key(seed))
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as progress:
        tracker = track(key_tracker, progress, effort)
        pendulum = swing(key_pendulum, progress, effort)
    seconds = time.perf_counter() - begin
    _print_tables(console, tracker, pendulum)

    path = out / "index.html"
    (out / "results.json").write_text(_as_json(tracker, pendulum, seed, seconds), encoding="utf-8")
    path.write_text(page.render(tracker, pendulum, seed=seed, seconds=seconds), encoding="utf-8")
    console.print(f"\n{seconds:.0f} s. The page with tables and pictures:")
    console.print(str(path.resolve()), soft_wrap=True)
    return path


def _print_tables(console: Console, tracker: TrackerResult, pendulum: PendulumResult) -> None:
    table = Table(title="Tracker: nats per step on held-out sequences (lower is better)")
    for name in ("method", "free energy", "above exact"):
        table.add_column(name, justify="left" if name == "method" else "right")
    exact = tracker.scores["kalman"].free_energy
    for short, score in tracker.scores.items():
        gap = f"{score.free_energy - exact:+.3f}"
        style = "bold" if short == "particles" else None
        table.add_row(score.name, f"{score.free_energy:.3f}", gap, style=style)
    console.print(table)

    table = Table(title="Pendulum: nats per frame on held-out videos (lower is better)")
    for name in ("method", "free energy", "prediction error"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for short, score in pendulum.scores.items():
        style = "bold" if short == "particles" else None
        error = f"{score.prediction_error:.4f}"
        table.add_row(score.name, f"{score.free_energy:.2f}", error, style=style)
    console.print(table)
    watched = pendulum.watched
    verdict = "found" if watched.is_fault_found else "NOT found"
    console.print(f"Fault {verdict}: steps flagged by their surprise: {watched.alarms}.")
    skipped = sum(t.num_skipped for r in (tracker, pendulum) for t in r.trained.values())
    if skipped:
        console.print(f"{skipped} optimizer steps had a non-finite gradient and were skipped.")


def _as_json(tracker: TrackerResult, pendulum: PendulumResult, seed: int, seconds: float) -> str:
    watched = pendulum.watched
    results = {
        "seed": seed,
        "seconds": seconds,
        "units": "nats per step, mean over held-out sequences",
        "tracker": {short: asdict(score) for short, score in tracker.scores.items()},
        "tracker_gap": tracker.gap,
        "pendulum": {short: asdict(score) for short, score in pendulum.scores.items()},
        "alarms": watched.alarms,
        "alarm_level": watched.alarm_level,
        "surprise": watched.surprise.tolist(),
        "is_fault_found": watched.is_fault_found,
    }
    return json.dumps(results, indent=1)
