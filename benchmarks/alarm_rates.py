"""How the rates of alarms scatter about those asked for, over many calibrations.

    python benchmarks/alarm_rates.py RUN [--healthy N] [--calibrations N]

RUN is the folder of a run on the sensors (`varfilter train examples/data/sensors.csv`). Of healthy
runs that are simulated, as many as were validated are drawn at random, so many times; alarms are
calibrated on these, with and without the training runs beside them, and judged on the others.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import gaps
import jax
import numpy as np
from alarms import ASKED
from rich.console import Console
from rich.table import Table as Shown

from varfilter.media import NewSequence, new_sequences
from varfilter.media.rows import ColumnSurprises, Filtering
from varfilter.runs import Run, apply_run
from varfilter.runs.alarms import MOST_LEARNED, held_sequences
from varfilter.runs.calibration import Calibration, Settings


def surprises_of(run: Run, sequences: Iterable[NewSequence]) -> list[ColumnSurprises]:
    """How surprising the columns of each sequence were to the filter that is applied."""
    applied = replace(apply_run(run), key=jax.random.key(0), alarms=None)
    found = []
    for sequence in sequences:
        parts = [each.columns for each in applied.filterings(sequence)]
        each = [[getattr(part, f.name) for part in parts] for f in fields(ColumnSurprises)]
        found.append(ColumnSurprises(*map(np.concatenate, each)))
    return found


def calibrated_rates(
    names: Sequence[str],
    learned: list[ColumnSurprises],
    healthy: list[ColumnSurprises],
    num_validated: int,
    num_calibrations: int,
) -> dict[str, np.ndarray]:
    """The rates of alarms over those asked for, (calibrations, rates), with and without `learned`.

    Each time so many of the healthy sequences are drawn for those validated.
    """

    def filterings(some: Iterable[ColumnSurprises]) -> list[Filtering]:
        nothing = np.zeros(0)
        return [Filtering("", nothing, nothing, {}, nothing, columns=each) for each in some]

    found: dict[str, list[list[float]]] = {
        "validated and training steps": [],
        "validated steps": [],
    }
    rng = np.random.default_rng(0)
    for _ in range(num_calibrations):
        order = rng.permutation(len(healthy))
        own, others = ([healthy[i] for i in some] for some in np.split(order, [num_validated]))
        for ratios, more in zip(found.values(), (learned, []), strict=True):
            known = Calibration.of(Settings(0, 0, 1.0), 0, names, filterings(own), filterings(more))
            assert known is not None
            p_values = np.concatenate([known.judged(each)[0] for each in others])
            p_values = p_values[np.isfinite(p_values)]
            ratios.append([float(np.mean(p_values <= rate) / rate) for rate in ASKED])
    return {label: np.array(ratios) for label, ratios in found.items()}


def print_calibrations(run: Run, num_healthy: int, num_calibrations: int) -> None:
    """Print how the rates of many calibrations lie about those that were asked for."""
    dataset, schema = run.dataset, run.template.schema
    simulated = gaps.simulated(num_healthy)
    table: dict[str, Any] = {schema.sequence: [n for n, rows in simulated.items() for _ in rows]}
    steps = np.concatenate([np.arange(len(rows)) for rows in simulated.values()])
    first = np.datetime64("2000-01-01T00:00:00")
    table[schema.time] = first + (steps * schema.step * 1e3).astype("timedelta64[ms]")
    stacked = np.concatenate(list(simulated.values()))
    table |= {name: stacked[:, i] for i, name in enumerate(schema.columns)}
    healthy = surprises_of(run, new_sequences(run.template, run.experiment.data, table))
    learned = surprises_of(run, held_sequences(dataset, "train", MOST_LEARNED, latest=True))
    num_validated = len(dataset.valid)
    found = calibrated_rates(dataset.columns, learned, healthy, num_validated, num_calibrations)
    print(f"{num_calibrations} calibrations on {num_validated} of {num_healthy} healthy runs")
    shown = Shown("calibrated on", "rate", "mean", "median", "10% to 90%", "within a factor of 2")
    for label, ratios in found.items():
        for rate, each in zip(ASKED, ratios.T, strict=True):
            low, high = np.quantile(each, (0.1, 0.9))
            cells = f"{each.mean():.2f}", f"{np.median(each):.2f}", f"{low:.2f} to {high:.2f}"
            near = np.mean((each >= 0.5) & (each <= 2.0))
            shown.add_row(label, f"{rate:g}", *cells, f"{near:.0%}")
    Console(width=130).print(shown)


def main() -> None:
    """Simulate, calibrate, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--healthy", type=int, default=160, metavar="N")
    parser.add_argument("--calibrations", type=int, default=40, metavar="N")
    options = parser.parse_args()
    print_calibrations(Run.load(options.run), options.healthy, options.calibrations)


if __name__ == "__main__":
    main()
