"""Streams that go on for long: whether a push takes more time, or memory, than at the beginning.

    python benchmarks/endless.py [--pushes 1000000] [--only NAME ...] [--quick] [--json FILE]

A row for every tenth of the pushes: how long each of them took (median), the same as a multiple of
what a new stream takes in the same seconds, by turns, and the memory gained since the first
tenth: of the process, of jax's arrays, and of Python's objects. Pushes compute where they are
called, unless `--async`.
"""

import argparse
import copy
import gc
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dispatch  # noqa: F401  (before anything is computed)
import numpy as np
import subjects
from core import machine
from measure import Race, live_bytes, resident_bytes
from rich.console import Console
from textbook import StochasticVolatility

import varfilter as vf

NUM_PARTS = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pushes", type=int, default=1_000_000, help="of each stream")
    parser.add_argument("--only", nargs="+", choices=tuple(STREAMS), default=tuple(STREAMS))
    parser.add_argument("--quick", action="store_true", help="500 pushes: does it run at all?")
    parser.add_argument("--async", action="store_true", help="jax's own way to dispatch a push")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to FILE")
    arguments = parser.parse_args()
    console, rows = Console(), []
    console.print(" | ".join(f"{name}: {value}" for name, value in machine().items()))
    for name in arguments.only:
        for row in parts(name, 500 if arguments.quick else arguments.pushes):
            rows.append(row)
            console.print(
                f"{name}, {row['pushes']:,} pushes: {row['push_us']:.1f} us, {row['times_new']:.2f}"
                f" times a new one; {row['resident_mb_gained']:+.2f} MB of the process,"
                f" {row['array_bytes_gained']:+} B of arrays, {row['objects_gained']:+} objects"
            )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")


def parts(name: str, num_pushes: int) -> Iterator[dict[str, Any]]:
    """A row for each tenth of the pushes; the first says what the others are compared with."""
    old, xs = STREAMS[name]()
    new = copy.copy(old)  # its own belief; the compiled step is shared
    endless = itertools.cycle(xs)
    before: tuple[float, int, int] | None = None
    for part in range(1, NUM_PARTS + 1):
        seconds = [_seconds(old, next(endless)) for _ in range(num_pushes // NUM_PARTS)]
        race = Race(
            {"new": lambda: _push(new, xs[0]), "old": lambda: _push(old, xs[0])},
            num_rounds=51, num_calls=5,
        )  # fmt: skip
        push_us = 1e6 * statistics.median(seconds)
        del seconds
        held = resident_bytes(), live_bytes(), len(gc.get_objects())
        before = held if before is None else before
        resident, arrays, objects = (b - a for a, b in zip(before, held, strict=True))
        yield {
            "stream": name, "pushes": part * (num_pushes // NUM_PARTS), "push_us": push_us,
            "times_new": race.ratio("old", to="new"), "resident_mb_gained": resident / 1e6,
            "array_bytes_gained": int(arrays), "objects_gained": int(objects),
        }  # fmt: skip


def _push(stream: vf.Stream, x: np.ndarray) -> None:
    stream.push(x).bound.block_until_ready()


def _seconds(stream: vf.Stream, x: np.ndarray) -> float:
    begin = time.perf_counter()
    _push(stream, x)
    return time.perf_counter() - begin


def _kalman() -> tuple[vf.Stream, np.ndarray]:
    return vf.Stream(vf.KalmanFilter(), subjects.small()), subjects.observations(64)


def _particles() -> tuple[vf.Stream, np.ndarray]:
    model = StochasticVolatility(0.95, np.float32(np.log(0.35)), 0.0)
    xs = np.asarray(vf.generate(model, 64, subjects.KEY)[0])
    return vf.Stream(vf.ParticleFilter(vf.Prior(), 100), model, subjects.KEY), xs


def _avf() -> tuple[vf.Stream, np.ndarray]:
    """With gaps, so that every part of the step is taken."""
    model = vf.DeepMarkov(8, 8, hidden_size=64, num_layers=1, key=subjects.KEY)
    filter = vf.VariationalFilter(vf.Iterative(model, hidden_size=64, key=subjects.KEY))
    random = np.random.default_rng(0)
    xs = random.normal(size=(64, 8)).astype(np.float32)
    return vf.Stream(filter, model, subjects.KEY), np.where(
        random.random((64, 8)) < 0.1, np.nan, xs
    )


STREAMS: dict[str, Callable[[], tuple[vf.Stream, np.ndarray]]] = {
    "Kalman": _kalman,
    "particles": _particles,
    "AVF": _avf,
}


if __name__ == "__main__":
    main()
