"""Longer sequences: the time of `run`, and the time and memory of a stream that goes on."""

import copy
from typing import Any

import subjects
from measure import Race, compiled, growth_exponent, live_bytes, resident_bytes

import varfilter as vf

TITLES = {
    "run": "2a. `run` over T steps (linear: exponent 1)",
    "stream": "2b. `Stream` after many pushes (flat: nothing grows)",
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
        ("times a new one", "times_new", "{:.2f}"),
        ("array bytes gained", "array_bytes_gained", "{}"),
        ("MB gained", "resident_mb_gained", "{:.2f}"),
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
        both["stream"].append(_stream_row(name, each, model, quick=quick))
    return both


def _run_rows(
    name: str, filter: vf.AbstractFilter, model: vf.AbstractModel, *, quick: bool
) -> list[dict[str, Any]]:
    lengths = [4, 16] if quick else [64, 256, 1024]
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


def _stream_row(
    name: str, filter: vf.AbstractFilter, model: vf.AbstractModel, *, quick: bool
) -> dict[str, Any]:
    num_pushes = 200 if quick else 10_000
    old = vf.Stream(filter, model, subjects.KEY)
    new = copy.copy(old)  # its own belief; the compiled step is shared
    xs = subjects.observations(64)

    def push_many(count: int) -> None:
        for index in range(count):
            old.push(xs[index % len(xs)]).bound.block_until_ready()

    push_many(num_pushes // 10)  # what is done for the first time takes memory for good
    arrays, resident = live_bytes(), resident_bytes()
    push_many(num_pushes)
    arrays, resident = live_bytes() - arrays, resident_bytes() - resident

    race = Race(
        {
            "new": lambda: new.push(xs[0]).bound.block_until_ready(),
            "old": lambda: old.push(xs[0]).bound.block_until_ready(),
        },
        num_rounds=5 if quick else 101,
        num_calls=5 if quick else 20,
    )
    return {
        "filter": name,
        "num_pushes": num_pushes,
        "push_us": 1e6 * race.seconds("old"),
        "times_new": race.ratio("old", to="new"),
        "array_bytes_gained": arrays,
        "resident_mb_gained": resident / 1e6,
    }
