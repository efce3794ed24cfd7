"""Whether the bands of a trained run hold what they say inside a gap, by number of trajectories.

    python benchmarks/gaps.py RUN [--without NAME ...] [--spread X] [--fresh N] [--json FILE]

RUN is the folder of a run on a table, e.g. of `varfilter train examples/data/sensors.csv`. Out of
each held-out sequence (the validation and the test part) 20 steps are cut, at nine places, one at
a time; the rest is filtered as `varfilter filter` does it. Of each numeric column: how many of the
values that were cut out lie inside the band that should hold nine in ten, and how many of those of
sequences without a gap. And the surprise of the first step after the gap beside that of the same
step without it. The standard errors are over sequences, whose gaps overlap.

`--without` leaves out sequences by name: no band should hold a broken sensor (run 24 of the
sensors). `--spread` is as for `varfilter filter`. `--fresh`, for a run on the sensors: in the place
of what was held out, so many runs that nobody has seen are simulated, and beside the model stands
the simulator itself, told its state at the beginning of each gap: what the truth would hold.
"""

import argparse
import copy
import datetime
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from varfilter.runs import Run, filter_data

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import make_sensors

LENGTH, NUM_PLACES, FIRST = 20, 9, 8
# How many futures the simulator has from the beginning of a gap.
NUM_FUTURES = 200
LEVELS = (0.05, 0.95)
COUNTS = (1, 8, 64, 256)


def measure(
    run: Run,
    sequences: dict[str, np.ndarray],
    num_particles: int | None = None,
    spread: float | None = None,
) -> dict[str, Any]:
    """Coverage inside of gaps and without any, and what the first step after a gap costs."""
    schema = run.template.schema
    numeric = [name for name in schema.columns if schema.kinds[name] == "numeric"]
    options = {"num_particles": num_particles, "spread": spread, "alarm_rate": 0.0}
    whole = filtered(run, sequences, options)
    cut = {
        (name, begin): _cut(rows, begin)
        for name, rows in sequences.items()
        for begin in _places(len(rows))
    }
    found = filtered(run, {f"{n} from {b}": rows for (n, b), rows in cut.items()}, options)

    inside: dict[str, dict[str, list[float]]] = {column: {} for column in numeric}
    outside: dict[str, dict[str, list[float]]] = {column: {} for column in numeric}
    costs: dict[str, list[float]] = {}
    after, usual = [], []
    for name, begin in cut:
        rows = found[f"{name} from {begin}"]
        end = begin + LENGTH
        for column in numeric:
            hits = _hits(rows[begin:end], column, sequences[name][begin:end], schema.columns)
            inside[column].setdefault(name, []).extend(hits)
        after.append(rows[end]["surprise"])
        usual.append(whole[name][end]["surprise"])
        costs.setdefault(name, []).append(after[-1] - usual[-1])
    for name, rows in whole.items():
        for column in numeric:
            outside[column][name] = _hits(rows, column, sequences[name], schema.columns)
    surprises = [[row["surprise"] for row in rows] for rows in whole.values()]
    return {
        "inside": {column: _mean(by_name) for column, by_name in inside.items()},
        "whole": {column: _mean(by_name) for column, by_name in outside.items()},
        "surprise_after": float(np.nanmean(after)),
        "surprise_without": float(np.nanmean(usual)),
        "cost": _mean(costs),
        "mean_surprise": float(np.nanmean(np.concatenate(surprises))),
        "num_sequences": len(sequences),
        "num_gaps": len(cut),
    }


def held_out(run: Run, without: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The sequences that were not trained on, by name, in the user's units."""
    dataset = run.dataset
    parts = {"valid": dataset.valid, "test": dataset.test}
    found = {
        dataset.names[split][number] if dataset.names else f"{split} {number}": part[number]
        for split, part in parts.items()
        for number in range(len(part))
    }
    if unknown := [name for name in without if name not in found]:
        raise SystemExit(f"--without {unknown[0]}: held out are {', '.join(found)}.")
    return {name: np.asarray(rows) for name, rows in found.items() if name not in without}


def simulated(count: int) -> dict[str, np.ndarray]:
    """So many runs of the sensors beyond those of the table, by name, with what the logger lost."""
    found = {}
    for number in range(make_sensors.NUM_RUNS + 1, make_sensors.NUM_RUNS + 1 + count):
        rows = np.full((make_sensors.NUM_STEPS, len(make_sensors.DIGITS)), np.nan)
        lines = [line.split(",") for line in make_sensors.run_of(number)[0]]
        stamps = [datetime.datetime.fromisoformat(words[2]) for words in lines]
        for stamp, (_, _, _, *values) in zip(stamps, lines, strict=True):
            step = round((stamp - stamps[0]).total_seconds() / 60 / make_sensors.MINUTES)
            rows[step] = [float(value) if value else np.nan for value in values]
        found[str(number)] = rows
    return found


def truth(sequences: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """What the 90% bands of the simulator hold, which knows its own state where a gap begins."""
    columns = list(make_sensors.DIGITS)
    inside: dict[str, dict[str, list[float]]] = {column: {} for column in columns}
    for name, rows in sequences.items():
        chance = make_sensors.Chance(1000 + int(name))
        pump, places = make_sensors.Pump(int(name), chance), set(_places(len(rows)))
        for begin in range(len(rows)):
            if begin in places:
                futures = [_future(pump, seed) for seed in range(NUM_FUTURES)]
                low, high = np.quantile(futures, LEVELS, axis=0)
                seen = rows[begin : begin + LENGTH]
                held = np.where(np.isnan(seen), np.nan, (low <= seen) & (seen <= high))
                for column, hits in zip(columns, held.T, strict=True):
                    inside[column].setdefault(name, []).extend(hits)
            pump.step()
            make_sensors.lost(chance, 0)
    return {column: _mean(by_name) for column, by_name in inside.items()}


def _future(pump: make_sensors.Pump, seed: int) -> list[list[float]]:
    copied = copy.copy(pump)
    copied.chance = make_sensors.Chance(seed)
    return [list(copied.step().values()) for _ in range(LENGTH)]


def _places(length: int) -> list[int]:
    """Where gaps begin: after some steps, and with some left to come back in."""
    last = length - LENGTH - 4
    return (
        [] if last < FIRST else np.unique(np.linspace(FIRST, last, NUM_PLACES, dtype=int)).tolist()
    )


def _cut(rows: np.ndarray, begin: int) -> np.ndarray:
    copy = np.array(rows, np.float64)
    copy[begin : begin + LENGTH] = np.nan
    return copy


def _hits(rows: list[Any], column: str, truth: np.ndarray, columns: Sequence[str]) -> list[float]:
    """1 where the band holds the value, 0 where not, NaN where there is no value or no band."""
    values = truth[:, list(columns).index(column)]
    bands = np.array([(row[f"{column}_q05"], row[f"{column}_q95"]) for row in rows], np.float64)
    known = np.isfinite(values) & np.isfinite(bands).all(axis=1)
    held = (bands[:, 0] <= values) & (values <= bands[:, 1])
    return np.where(known, held, np.nan).tolist()


def _mean(by_name: dict[str, list[float]]) -> tuple[float, float]:
    """The mean over all, and its standard error, by the means of sequences."""
    each = np.array([np.nanmean(values) for values in by_name.values()])
    every = np.concatenate(list(by_name.values()))
    return float(np.nanmean(every)), float(each.std(ddof=1) / np.sqrt(len(each)))


def filtered(
    run: Run, sequences: dict[str, np.ndarray], options: dict[str, Any]
) -> dict[str, list[dict[str, Any]]]:
    """The rows that `varfilter filter` writes of each sequence, whose steps are a grid of times."""
    schema = run.template.schema
    names = [name for name, rows in sequences.items() for _ in rows]
    table: dict[str, Any] = {schema.sequence or "sequence": names}
    if schema.time is not None:
        # Dates come as stamps of the same distance as the run's own.
        steps = [t for rows in sequences.values() for t in range(len(rows))]
        distance = schema.step or 1
        first = np.datetime64("2000-01-01T00:00:00")
        is_date = schema.layout.clock.is_date
        table[schema.time] = (
            first + (np.array(steps) * distance * 1e3).astype("timedelta64[ms]")
            if is_date
            else np.array(steps) * distance
        )
    stacked = np.concatenate([np.asarray(rows, np.float64) for rows in sequences.values()])
    for i, column in enumerate(schema.columns):
        table[column] = stacked[:, i]
    found: dict[str, list] = {name: [] for name in sequences}
    for row in filter_data(run, table, levels=LEVELS, **options):
        row["surprise"] = np.nan if row["surprise"] is None else row["surprise"]
        found[str(row[schema.sequence or "sequence"])].append(row)
    return found


def main() -> None:
    """Measure by number of trajectories, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--without", nargs="*", default=(), metavar="NAME")
    parser.add_argument("--spread", type=float, metavar="X")
    parser.add_argument("--fresh", type=int, metavar="N")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    run = Run.load(options.run)
    sequences = simulated(options.fresh) if options.fresh else held_out(run, options.without)
    counts = COUNTS[-1:] if options.fresh else COUNTS
    found = {count: measure(run, sequences, count, options.spread) for count in counts}
    one = next(iter(found.values()))
    print(
        f"{options.run.name}: {one['num_gaps']} gaps of {LENGTH} steps in {one['num_sequences']}"
        f" {'fresh' if options.fresh else 'held-out'} sequences; values inside their 90% band"
    )
    table = Table()
    table.add_column("trajectories", justify="right")
    for column in one["inside"]:
        table.add_column(f"{column}\nin a gap; else", justify="right")
    table.add_column("first step after,\nnats more", justify="right")
    table.add_column("mean\nsurprise", justify="right")
    for count, each in found.items():
        cells = [
            f"{inside:.2f} ± {error:.2f}; {whole:.2f}"
            for (inside, error), (whole, _) in zip(
                each["inside"].values(), each["whole"].values(), strict=True
            )
        ]
        cost, error = each["cost"]
        table.add_row(
            str(count), *cells, f"{cost:.2f} ± {error:.2f}", f"{each['mean_surprise']:.3f}"
        )
    if options.fresh:
        known = truth(sequences)
        table.add_row("truth", *(f"{known[c][0]:.2f} ± {known[c][1]:.2f}" for c in one["inside"]))
    Console(width=150).print(table)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
