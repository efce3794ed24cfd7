"""Alarms of a trained run: the rate on healthy data, and faults found beside two usual detectors.

    pip install 'varfilter[benchmark,digits]'
    python benchmarks/alarms.py RUN [--healthy N] [--faulty N] [--json FILE] [--quick]
    python benchmarks/alarms.py RUN --table NAME [--from DIR] [--faulty N] [--json FILE]

RUN is the folder of a run on the sensors (`varfilter train examples/data/sensors.csv`). Runs that
nobody has seen are simulated: `--healthy` of them without a fault, and `--faulty` of each of four
kinds with one, from a step between the 30th and the 50th on, in one of the numeric columns in turn:

- spike: one value is off by 2 standard deviations (of the column in training);
- drift: the column goes astray, evenly, up to 2 standard deviations in 20 steps;
- stuck: the column keeps its value for 20 steps;
- swapped: temperature and flow, whose values are alike, change places for 20 steps.

With `--table`, RUN is one of `benchmarks/tables.py --runs` on that public table, of which the last
fifth of the rows is taken for healthy. Faults are made in copies of it, one in each, that begin 120
rows before the fault; the first two numeric columns are swapped, where there are two.

First, how many healthy steps raise an alarm, by the rate that was asked for. Then all detectors at
the same rate of false alarms, by a threshold that is set for each on the healthy runs: the part of
the faults that raises an alarm while it lasts, and after how many steps in the median.

The others see the same stream: scikit-learn's `IsolationForest` of 200 trees, fitted to the
training part, of rows, and of rows with their changes; river's `HalfSpaceTrees` with the sizes of
its paper (25 trees of height 15, windows of 250), which learns the training part first, and then
each step after it was judged. A missing value is the last one for them.
"""

import argparse
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gaps
import numpy as np
from public_tables import PUBLIC, Table, kept
from rich.console import Console
from rich.table import Table as Shown

from varfilter.data.tables.kinds import REAL
from varfilter.runs import Run, calibrate_run, filter_data

KINDS = ("spike", "drift", "stuck", "swapped")
ASKED = (0.05, 0.01, 0.003, 0.001)
COMPARED = (0.01, 0.001)
LENGTH, SIZE = 20, 2.0
# Of a public table: the parts that `tables.py` trains on and holds out; the rows before a fault.
TRAINED, HELD_OUT, BEFORE = 0.7, 0.2, 120
OURS = "varfilter"


class Fault(NamedTuple):
    """What is wrong with a run: its kind, in which columns, from which step on, for how long."""

    kind: str
    columns: tuple[str, ...]
    begin: int
    length: int


def with_fault(
    rows: np.ndarray,
    number: int,
    names: list[str],
    numeric: list[str],
    std: np.ndarray,
    *,
    kinds: Sequence[str] = KINDS,
    swapped: Sequence[str] = ("temperature", "flow"),
    begins: tuple[int, int] = (30, 50),
) -> tuple[np.ndarray, Fault]:
    """The rows with a fault; the number of the run says which, and where."""
    rng = np.random.default_rng(number)
    rows = np.array(rows, np.float64)
    kind, column = kinds[number % len(kinds)], numeric[number // len(kinds) % len(numeric)]
    k, begin = names.index(column), int(rng.integers(*begins))
    size = float(rng.choice([-1.0, 1.0])) * SIZE * std[k]
    while np.isnan(rows[begin, k]):  # a fault of what is not there is none
        begin += 1
    length = 1 if kind == "spike" else LENGTH
    part = slice(begin, begin + length)
    columns = (column,)
    if kind == "spike":
        rows[begin, k] += size
    elif kind == "drift":
        rows[part, k] += size * np.arange(1, length + 1) / length
    elif kind == "stuck":
        rows[part, k] = np.where(np.isnan(rows[part, k]), np.nan, rows[begin, k])
    else:
        columns = tuple(swapped)
        places = [names.index(name) for name in columns]
        rows[part, places] = rows[part, places[::-1]]
    return rows, Fault(kind, columns, begin, length)


def our_scores(run: Run, sequences: dict[str, np.ndarray]) -> tuple[dict, dict]:
    """(-log p of each step, the causes of alarms at 0.001) by sequence; NaN where it is unknown."""
    found = gaps.filtered(run, sequences, {})
    scores, causes = {}, {}
    for name, rows in found.items():
        p_values, causes[name] = _p_values(rows)
        scores[name] = -np.log(p_values)
    return scores, causes


def _p_values(rows: list[dict[str, Any]]) -> tuple[np.ndarray, list[str]]:
    """How rare each row is, NaN where it is unknown, and what caused its alarm, if there is one."""
    p_values = [np.nan if row["p_value"] is None else row["p_value"] for row in rows]
    return np.array(p_values, float), [row["alarm_cause"] for row in rows]


def forest_scores(
    train: list[np.ndarray], sequences: dict[str, np.ndarray], *, changes: bool
) -> dict[str, np.ndarray]:
    """How soon an isolation forest isolates each row, or each row with its changes."""
    from sklearn.ensemble import IsolationForest

    def features(rows: np.ndarray) -> np.ndarray:
        rows = _filled(rows)
        return np.hstack([rows, np.diff(rows, axis=0, prepend=rows[:1])]) if changes else rows

    forest = IsolationForest(n_estimators=200, random_state=0)
    forest.fit(np.concatenate([features(rows) for rows in train]))
    return {name: -forest.score_samples(features(rows)) for name, rows in sequences.items()}


def tree_scores(train: list[np.ndarray], sequences: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The scores of half-space trees, which go on learning from each step."""
    from river import anomaly

    whole = np.concatenate(list(map(_filled, train)))
    low, high = whole.min(axis=0), whole.max(axis=0)
    trees = anomaly.HalfSpaceTrees(n_trees=25, height=15, window_size=250, seed=0)

    def features(row: np.ndarray) -> dict[int, float]:
        return dict(enumerate(np.clip((row - low) / (high - low), 0.0, 1.0).tolist()))

    for row in whole:
        trees.learn_one(features(row))
    found = {}
    for name, rows in sequences.items():
        scores = []
        for row in map(features, _filled(rows)):
            scores.append(trees.score_one(row))
            trees.learn_one(row)
        found[name] = np.array(scores)
    return found


def found_faults(
    scores: dict[str, np.ndarray], faults: dict[str, Fault], threshold: float
) -> dict[str, dict[str, float | None]]:
    """Which part of the faults of each kind raises an alarm, and after how many steps."""
    delays: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for name, fault in faults.items():
        hits = np.flatnonzero(scores[name][fault.begin : fault.begin + fault.length] > threshold)
        delays[fault.kind].append(float(hits[0]) if hits.size else np.nan)
    return {
        kind: {
            "recall": float(np.mean(np.isfinite(each))),
            "delay": float(np.nanmedian(each)) if np.isfinite(each).any() else None,
        }
        for kind, each in delays.items()
        if each
    }


def measure(run: Run, num_healthy: int, num_faulty: int) -> dict[str, Any]:
    """All figures, as plain JSON."""
    schema, dataset = run.template.schema, run.dataset
    names = list(schema.columns)
    numeric = [name for name in names if schema.kinds[name] == "numeric"]
    train = [np.asarray(dataset.train[i], np.float64) for i in range(len(dataset.train))]
    std = np.nanstd(np.concatenate(train), axis=0)
    simulated = gaps.simulated(num_healthy + 4 * num_faulty)
    healthy = dict(list(simulated.items())[:num_healthy])
    faults, faulty = {}, {}
    for number, (name, rows) in enumerate(list(simulated.items())[num_healthy:]):
        faulty[name], faults[name] = with_fault(rows, number, names, numeric, std)

    ours, causes = our_scores(run, healthy | faulty)
    return _figures(run, train, healthy, faulty, faults, ours, causes, COMPARED)


def measure_table(run: Run, table: Table, num_faulty: int) -> dict[str, Any]:
    """The same of the last fifth of a public table, as plain JSON."""
    schema = run.template.schema
    names = [name for name in schema.columns if schema.kinds[name] in REAL]
    num_rows = len(next(iter(table.values())))
    first = round(num_rows * (1.0 - HELD_OUT))
    values = np.stack([table[name] for name in names], axis=1).astype(np.float64)
    train = [values[: round(num_rows * TRAINED)]]
    std = np.nanstd(train[0], axis=0)
    kinds = KINDS if len(names) > 1 else KINDS[:-1]
    starts = np.random.default_rng(0).integers(
        first - BEFORE, num_rows - BEFORE - LENGTH, num_faulty * len(kinds)
    )
    faulty, faults = {}, {}
    tables = {"healthy": _rows_of(table, first - BEFORE, num_rows, names, None)}
    for number, start in enumerate(starts.tolist()):
        end, name = start + BEFORE + LENGTH + 1, f"{number}"
        rows, faults[name] = with_fault(
            values[start:end], number, names, names, std,
            kinds=kinds, swapped=names[:2], begins=(BEFORE, BEFORE + 1),
        )  # fmt: skip
        faulty[name], tables[name] = rows, _rows_of(table, start, end, names, rows)
    ours, causes = {}, {}
    for name, each in tables.items():
        p_values, causes[name] = _p_values(list(filter_data(run, each)))
        # What comes before is there to be filtered, not to be judged.
        p_values[:BEFORE] = np.nan
        ours[name] = -np.log(p_values)
    healthy = {"healthy": values[first - BEFORE :]}
    return _figures(run, train, healthy, faulty, faults, ours, causes, COMPARED[:1])


def _rows_of(
    table: Table, begin: int, end: int, names: Sequence[str], rows: np.ndarray | None
) -> Table:
    """Some rows of a table, with other values of the columns that have these names."""
    found = {name: column[begin:end] for name, column in table.items()}
    return found | ({} if rows is None else dict(zip(names, rows.T, strict=True)))


def _figures(
    run: Run,
    train: list[np.ndarray],
    healthy: dict[str, np.ndarray],
    faulty: dict[str, np.ndarray],
    faults: dict[str, Fault],
    ours: dict[str, np.ndarray],
    causes: dict[str, list[str]],
    compared: Sequence[float],
) -> dict[str, Any]:
    """Hold the scores of ours against those of the other detectors on the same rows."""
    both = healthy | faulty
    scores = {
        OURS: ours,
        "IsolationForest, rows": forest_scores(train, both, changes=False),
        "IsolationForest, rows and changes": forest_scores(train, both, changes=True),
        "HalfSpaceTrees": tree_scores(train, both),
    }
    # What is not judged by ours, first steps and gaps, is not counted for the others either.
    seen = {name: np.isfinite(ours[name]) for name in both}
    usual = {
        label: np.concatenate([each[name][seen[name]] for name in healthy])
        for label, each in scores.items()
    }
    p_values = np.exp(-usual[OURS])
    calibration = calibrate_run(run)
    assert calibration is not None
    return {
        "num_calibrated": calibration.num_steps,
        "num_healthy_steps": len(p_values),
        "num_faults": len(faults),
        "rates": {rate: float(np.mean(p_values <= rate)) for rate in ASKED},
        "calibrated": {rate: found_faults(ours, faults, -np.log(rate)) for rate in compared},
        "compared": {
            rate: {
                label: found_faults(each, faults, float(np.quantile(usual[label], 1 - rate)))
                for label, each in scores.items()
            }
            for rate in compared
        },
        "named": _named(causes, faults),
    }


def _named(causes: dict[str, list[str]], faults: dict[str, Fault]) -> dict[str, Any]:
    """In which part of the alarms during a fault a column of the fault is named first."""
    right: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    for name, (kind, columns, begin, length) in faults.items():
        during = filter(None, causes[name][begin : begin + length])
        right[kind] += [text.split(":")[0] in columns for text in during]
    return {kind: {"share": float(np.mean(r)), "of": len(r)} for kind, r in right.items() if r}


def _filled(rows: np.ndarray) -> np.ndarray:
    """The rows with the last value in the place of a missing one, at first the next."""
    rows = np.array(rows, np.float64)
    for column in rows.T:
        seen = np.flatnonzero(np.isfinite(column))
        last = np.searchsorted(seen, np.arange(len(column)), side="right") - 1
        column[:] = column[seen[np.maximum(last, 0)]]
    return rows


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--healthy", type=int, default=400, metavar="N")
    parser.add_argument("--faulty", type=int, default=60, metavar="N")
    parser.add_argument("--table", choices=PUBLIC, metavar="NAME", help="a public table")
    parser.add_argument("--from", type=Path, dest="folder", metavar="DIR", help="read it there")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    sizes = (4, 2) if options.quick else (options.healthy, options.faulty)
    for name in ("sklearn", "river"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise SystemExit(
                f"`{name}` cannot be imported ({error}); this benchmark compares with it."
                " Run: pip install 'varfilter[benchmark,digits]'"
            ) from None
    run = Run.load(options.run)
    if options.table is None:
        found = measure(run, *sizes)
    else:
        make, _ = PUBLIC[options.table]
        folder, name = options.folder, options.table
        table = make() if folder is None else kept(folder, [name])[name]
        found = measure_table(run, table, sizes[1])
    console = Console(width=130)
    table = Shown("rate asked for", "healthy steps with an alarm", "ratio")
    for rate, part in found["rates"].items():
        table.add_row(f"{rate:g}", f"{part:.5f}", f"{part / rate:.2f}")
    console.print(
        f"{found['num_healthy_steps']:,} healthy steps; calibrated on {found['num_calibrated']:,}"
    )
    console.print(table)
    kinds = list(next(iter(found["calibrated"].values())))
    table = Shown("false alarms", "detector", *kinds)
    for rate in found["compared"]:
        rows = found["compared"][rate] | {f"{OURS}, as calibrated": found["calibrated"][rate]}
        for label, each in rows.items():
            cells = [
                f"{each[kind]['recall']:.2f}"
                + (f" after {each[kind]['delay']:g}" if each[kind]["delay"] is not None else "")
                for kind in kinds
            ]
            table.add_row(f"{rate:g}", label, *cells)
    console.print(f"{found['num_faults']} faults: recall, and the median delay in steps")
    console.print(table)
    for kind, each in found["named"].items():
        print(
            f"{kind}: a column of the fault is named first in {each['share']:.2f} of {each['of']}"
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
