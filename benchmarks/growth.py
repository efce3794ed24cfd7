"""Longer sequences: the time of `run`, and the time and memory of a stream that goes on."""

import time
from typing import Any

import numpy as np
import subjects
from measure import Race, compiled, growth_exponent, live_bytes, resident_bytes

import varfilter as vf

TITLES = {
    "run": "3a. `run` over T steps (linear: exponent 1)",
    "stream": "3b. `Stream` after many pushes (flat: nothing grows)",
}
COLUMNS = {
    "run": [
        ("filter", "filter", "{}"),
        ("T", "num_steps", "{}"),
        ("ms", "run_ms", "{:.2f}"),
        ("us a step", "step_us", "{:.1f}"),
        ("exponent", "exponent", "{:.2f}"),
    ],
    "stream": [
        ("filter", "filter", "{}"),
        ("pushes", "num_pushes", "{}"),
        ("us a push", "push_us", "{:.1f}"),
        ("times first", "times_first", "{:.2f}"),
        ("array bytes", "live_bytes", "{}"),
        ("MB gained", "resident_gain_mb", "{:.2f}"),
    ],
}


def measure(*, quick: bool) -> dict[str, list[dict[str, Any]]]:
    """Rows for `run` and for `Stream`."""
    model = subjects.small()
    filters = {
        "KalmanFilter": vf.KalmanFilter(),
        "Iterative": vf.VariationalFilter(vf.Iterative(model, hidden_size=32, key=subjects.KEY)),
    }
    both: dict[str, list[dict[str, Any]]] = {"run": [], "stream": []}
    for name, each in filters.items():
        both["run"] += _run_rows(name, each, model, quick=quick)
    for name, each in filters.items():
        both["stream"] += _stream_rows(name, each, model, quick=quick)
    return both


def _run_rows(
    name: str, filter: vf.AbstractFilter, model: vf.AbstractModel, *, quick: bool
) -> list[dict[str, Any]]:
    lengths = [4, 16, 64] if quick else [64, 256, 1024]
    calls = {
        str(length): compiled(vf.run, filter, model, subjects.observations(length), subjects.KEY)[0]
        for length in lengths
    }
    race = Race(calls, num_rounds=3 if quick else 21)
    seconds = [race.seconds(str(length)) for length in lengths]
    exponent = growth_exponent(lengths, seconds)
    return [
        {
            "filter": name,
            "num_steps": length,
            "run_ms": 1e3 * each,
            "step_us": 1e6 * each / length,
            "exponent": exponent,
        }
        for length, each in zip(lengths, seconds, strict=True)
    ]


def _stream_rows(
    name: str, filter: vf.AbstractFilter, model: vf.AbstractModel, *, quick: bool
) -> list[dict[str, Any]]:
    stream = vf.Stream(filter, model, subjects.KEY)
    xs = subjects.observations(64)
    per_row = 100 if quick else 2000

    def push_many() -> float:
        times = [time.perf_counter()]
        for index in range(per_row):
            stream.push(xs[index % len(xs)]).bound.block_until_ready()
            times.append(time.perf_counter())
        return float(np.median(np.diff(times)))

    push_many()  # a process grows a little when it does something for the first time
    rows: list[dict[str, Any]] = []
    resident = resident_bytes()
    for _ in range(4):
        seconds = push_many()
        rows.append(
            {
                "filter": name,
                "num_pushes": stream.t,
                "push_us": 1e6 * seconds,
                "times_first": 1e6 * seconds / rows[0]["push_us"] if rows else 1.0,
                "live_bytes": live_bytes(),
                "resident_gain_mb": (resident_bytes() - resident) / 1e6,
            }
        )
    return rows
