"""Whether the bands of a trained run hold what they say inside a gap, by number of trajectories.

    python benchmarks/gaps.py RUN [--json FILE]

RUN is the folder of a run on a table, e.g. of `varfilter train examples/data/sensors.csv`. Out of
each held-out sequence (the validation and the test part) 20 steps are cut, at three places, one at
a time; the rest is filtered as `varfilter filter` does it. Of each numeric column: how many of the
values that were cut out lie inside the band that should hold nine in ten, and how many of those of
sequences without a gap. And the surprise of the first step after the gap beside that of the same
step without it.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from varfilter.runs import Run, filter_data

LENGTH = 20
BEGINS = (15, 30, 45)
LEVELS = (0.05, 0.95)
COUNTS = (1, 8, 64)


def measure(run: Run, num_particles: int | None) -> dict[str, Any]:
    """Coverage inside and outside of the gaps, and what the first step after them costs."""
    dataset, schema = run.dataset, run.template.schema
    numeric = [name for name in schema.columns if schema.kinds[name] == "numeric"]
    sequences = {
        f"{split} {number}": part[number]
        for split, part in (("valid", dataset.valid), ("test", dataset.test))
        for number in range(len(part))
    }
    whole = _filtered(run, sequences, num_particles)
    cut = {}
    for name, rows in sequences.items():
        for begin in BEGINS:
            if len(rows) < begin + LENGTH + 2:
                continue
            copy = np.array(rows, np.float64)
            copy[begin : begin + LENGTH] = np.nan
            cut[f"{name} from {begin}"] = copy
    found = _filtered(run, cut, num_particles)

    covered: dict[str, dict[str, list]] = {
        where: {column: [] for column in numeric} for where in ("inside", "outside", "whole")
    }
    after, usual = [], []
    for label, rows in found.items():
        name, begin = label.split(" from ")
        first = int(begin)
        end = first + LENGTH
        truth = sequences[name]
        for i, column in enumerate(schema.columns):
            if column not in numeric:
                continue
            for t, row in enumerate(rows):
                where = "inside" if first <= t < end else "outside"
                covered[where][column].append(_covers(row, column, truth[t, i]))
        after.append(rows[end]["surprise"])
        usual.append(whole[name][end]["surprise"])
    for name, rows in whole.items():
        for i, column in enumerate(schema.columns):
            if column in numeric:
                truth = sequences[name]
                hits = [_covers(row, column, truth[t, i]) for t, row in enumerate(rows)]
                covered["whole"][column] += hits
    surprises = [row["surprise"] for rows in whole.values() for row in rows]
    return {
        "coverage": {
            where: {column: float(np.nanmean(hits)) for column, hits in columns.items()}
            for where, columns in covered.items()
        },
        "num_values": sum(np.isfinite(hits).sum() for hits in covered["inside"].values()).item(),
        "surprise_after": float(np.nanmean(after)),
        "surprise_without": float(np.nanmean(usual)),
        "mean_surprise": float(np.nanmean(surprises)),
    }


def _covers(row: dict[str, Any], column: str, truth: float) -> float:
    low, high = row[f"{column}_q05"], row[f"{column}_q95"]
    if low is None or not np.isfinite([truth, low, high]).all():
        return np.nan
    return float(low <= truth <= high)


def _filtered(
    run: Run, sequences: dict[str, np.ndarray], num_particles: int | None
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
    rows = list(filter_data(run, table, levels=LEVELS, num_particles=num_particles))
    found: dict[str, list] = {name: [] for name in sequences}
    for row in rows:
        found[str(row[schema.sequence or "sequence"])].append(row)
    return found


def main() -> None:
    """Measure by number of trajectories, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    run = Run.load(options.run)
    found = {count: measure(run, count) for count in COUNTS}
    console = Console()
    table = Table(title=f"{options.run.name}: values inside their 90% band, of held-out sequences")
    columns = list(next(iter(found.values()))["coverage"]["inside"])
    table.add_column("trajectories", justify="right")
    for column in columns:
        table.add_column(f"{column}\nin a gap / else", justify="right")
    table.add_column("surprise after\ngap / without", justify="right")
    table.add_column("mean\nsurprise", justify="right")
    for count, each in found.items():
        inside, whole = each["coverage"]["inside"], each["coverage"]["whole"]
        table.add_row(
            str(count),
            *(f"{inside[column]:.2f} / {whole[column]:.2f}" for column in columns),
            f"{each['surprise_after']:.2f} / {each['surprise_without']:.2f}",
            f"{each['mean_surprise']:.3f}",
        )
    console.print(table)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
