"""Tables as their users have them: one step ahead, beside what an engineer would use instead.

    python benchmarks/tables.py --out FILE [--tables NAME ...] [--variants auto level] [--seeds 0]
    python benchmarks/tables.py --out FILE --report

Of each table the first 80% are for fitting, a tenth of all rows among them for validation, and the
last 20% are scored once: of a table of three sequences or more these are whole sequences. `auto` is
`varfilter train` as it is; `level` has every column told as it is, which was so before motions were
chosen. A line of JSON is added to FILE as each training ends; what is there is not done again.

By column: `rmse` of the mean predicted one step ahead, in the column's own units; `last` that of
the value before; `within` the share of values inside of the 90% band. Of a row: `nats`, minus the
log-density of the observations in standardised units (lower is better), and `last_nats` that of
the last value with the spread of its changes in the training part.
"""

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from public_tables import LEVELS, TABLES, Table

from varfilter.data.dataset import Dataset
from varfilter.data.tables.read import read_table
from varfilter.experiments.paper import own_experiment
from varfilter.media.formats import as_columns
from varfilter.media.reference import last_value_reference
from varfilter.media.table import TableSource
from varfilter.runs.applied import filter_data
from varfilter.runs.run import IN_MEMORY, Run
from varfilter.runs.training import train_run

FRACTIONS = (0.7, 0.1, 0.2)
BAND = (0.05, 0.95)
EVERY = LEVELS | TABLES


def main() -> None:
    """Train and score what is asked for, or show what was."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tables", nargs="+", choices=EVERY, default=[*LEVELS, "sensors"])
    parser.add_argument("--variants", nargs="+", choices=("auto", "level"), default=["auto"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    known = list(_lines(arguments.out))
    if arguments.report:
        _report(known)
        return
    done = {(line["table"], line["variant"], line["seed"], line["epochs"]) for line in known}
    for name in arguments.tables:
        table = EVERY[name]()
        for variant in arguments.variants:
            for seed in arguments.seeds:
                job = (name, variant, seed, arguments.epochs)
                if job in done:
                    continue
                line = dict(zip(("table", "variant", "seed", "epochs"), job, strict=True))
                line |= fitted(table, variant, seed, arguments.epochs)
                with arguments.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                _report([line])


def fitted(table: Table, variant: str, seed: int, epochs: int | None) -> dict[str, Any]:
    """Train the table's own experiment on the first part, and score it on the last."""
    kinds = None
    if variant == "level":
        kinds = dict.fromkeys(read_table(table, fractions=FRACTIONS).columns, "level")
    dataset = read_table(table, fractions=FRACTIONS, kinds=kinds)
    experiment = dataclasses.replace(
        own_experiment(TableSource(IN_MEMORY)), name="table", seed=seed
    )
    if epochs is not None:
        schedule = dataclasses.replace(experiment.schedule, num_epochs=epochs)
        experiment = dataclasses.replace(experiment, schedule=schedule)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.begin(folder, experiment, dataset)
        begin = time.perf_counter()
        for _ in train_run(run, dataset):
            pass
        seconds = time.perf_counter() - begin
        rows = as_columns(filter_data(run, table, levels=BAND, seed=seed))
    return {"seconds": seconds, "motions": dataset.schema.motions, **scored(dataset, rows)}


def scored(dataset: Dataset, rows: dict[str, np.ndarray]) -> dict[str, Any]:
    """The scores of filtered rows that are of the test part, and those of the last value."""
    is_test, starts = _tested(dataset, rows)
    columns = {}
    for name, family in dataset.column_families:
        values = np.asarray(rows[name], np.float64)
        last = _last_seen(values, starts)
        seen = is_test & ~np.isnan(values) & ~np.isnan(last) & ~np.isnan(rows[f"{name}_mean"])
        low, high = rows[f"{name}_q05"], rows[f"{name}_q95"]
        columns[name] = {
            "rmse": _rms(rows[f"{name}_mean"][seen] - values[seen]),
            "last": _rms(last[seen] - values[seen]),
            "within": None
            if family.is_binary
            else float(np.mean((low[seen] <= values[seen]) & (values[seen] <= high[seen]))),
        }
    surprise = rows["surprise"][is_test]
    return {
        "columns": columns,
        "nats": float(np.nanmean(surprise)),
        "last_nats": last_value_reference(dataset, "test").nats,
        "num_rows": int(np.sum(~np.isnan(surprise))),
    }


def _tested(dataset: Dataset, rows: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are of the test part, but for the first of it; and where sequences begin."""
    schema = dataset.schema
    names = np.asarray(rows[schema.sequence or "sequence"]).astype(str)
    starts = np.concatenate([[True], names[1:] != names[:-1]])
    tested = set(dataset.names.get("test", ())) - set(dataset.names.get("train", ()))
    if tested:  # whole sequences; otherwise each has a last part for the test
        return np.isin(names, list(tested)) & ~starts, starts
    times = np.asarray(rows[schema.time or "time"])
    first = np.asarray(dataset.times["test"][0])[0]
    return times > first, starts


def _last_seen(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The value before each row that was observed, of its own sequence."""
    last, found = np.nan, []
    for value, begins in zip(values, starts, strict=True):
        last = np.nan if begins else last
        found.append(last)
        last = last if np.isnan(value) else value
    return np.array(found)


def _rms(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for text in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(text)


def _report(lines: list[dict[str, Any]]) -> None:
    """Print a table: RMSE beside that of the last value, bands, and nats."""
    for line in lines:
        print(
            f"{line['table']} {line['variant']} seed {line['seed']}: {line['nats']:.3f} nats"
            f" (last value {line['last_nats']:.3f}), {line['seconds']:.0f} s"
        )
        for name, column in line["columns"].items():
            within = "" if column["within"] is None else f", 90% band {column['within']:.3f}"
            print(
                f"  {name} ({line['motions'].get(name, 'level')}): rmse {column['rmse']:.4g},"
                f" last value {column['last']:.4g}, ratio"
                f" {column['rmse'] / max(column['last'], 1e-30):.3f}{within}",
                flush=True,
            )


if __name__ == "__main__":
    main()
