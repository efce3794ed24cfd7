"""Figure 4 of a study: what more iterations of AVF are worth, in training and in inference.

Of cells that differ in K alone, all with what the search chose for K=1: the free energies of the
validation and the training part by epoch, with the error over seeds (figure 4a), and how far each
iteration of a trained model is below its prior, on the test part (figure 4b).
"""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from varfilter.report.study import read_cells, standard_error

# Where cells of AVF on JSB by one recipe lie, and how K and fewer draws are in their names.
FOLDERS = ("table-3", "figure-4")
NAME = re.compile(r"srnn-jsb-avf(?:-(?P<count>\d+)|-s(?P<draws>\d+))?-best")
DRAWS = 64
HEAD = ("K", "draws", "seeds", "epochs", "best validation", "test", "over seeds",
        "below the prior after each iteration, %")  # fmt: skip
ABOUT = (
    "SRNN with AVF on JSB by our best recipe, which was searched for with K=1: the mean over seeds"
    " of the best validation and of the test part (nats per scored step), and by how much of the"
    " free energy at the prior each iteration lowers it, on the test part."
)


@dataclass(frozen=True)
class Iterated:
    """A model of K iterations and so many draws: rows are seeds, columns epochs or iterations."""

    num_iterations: int
    num_draws: int
    epochs: np.ndarray
    valid: np.ndarray
    train: np.ndarray
    test: np.ndarray
    by_iteration: np.ndarray
    was_cut: bool

    @property
    def label(self) -> str:
        """What it is called in a figure."""
        draws = "" if self.num_draws == DRAWS else f", draws = {self.num_draws}"
        return f"K = {self.num_iterations}{draws}"

    @property
    def improvements(self) -> np.ndarray:
        """100 (F at the prior - F after k iterations) / |F at the prior|, of each seed."""
        first = self.by_iteration[:, :1]
        return 100.0 * (first - self.by_iteration) / np.abs(first)


def read_iterations(results: str | Path) -> list[Iterated]:
    """Read the cells of figure 4 that are in `results/`, by K and then by draws."""
    found = []
    for folder in (Path(results) / name for name in FOLDERS):
        if not any(folder.glob("srnn-jsb-avf*/cell.json")):
            continue
        for cell in read_cells(folder):
            name = f"{cell.model}-{cell.data}-{cell.method}-{cell.protocol}"
            match = NAME.fullmatch(name)
            if match is not None and cell.by_iteration is not None:
                epochs, valid, train = _curves(folder / name)
                found.append(
                    Iterated(
                        int(match["count"] or 1), int(match["draws"] or DRAWS),
                        epochs, valid, train,
                        np.mean(cell.nats, axis=1), cell.by_iteration, cell.was_cut,
                    )
                )  # fmt: skip
    if not found:
        raise ValueError(
            f"{str(results)!r} has no cell of AVF on JSB: folders {' and '.join(FOLDERS)} with"
            " what `benchmarks/study.py` made. Give the folder `results`."
        )
    return sorted(found, key=lambda each: (each.num_iterations, -each.num_draws))


def iteration_numbers(cells: Sequence[Iterated]) -> list[dict[str, Any]]:
    """The figure as plain JSON: curves and improvements, means with their errors over seeds."""
    return [
        {
            "num_iterations": each.num_iterations,
            "num_draws": each.num_draws,
            "num_seeds": len(each.test),
            "epochs": each.epochs.tolist(),
            "valid": np.mean(each.valid, axis=0).tolist(),
            "train": np.mean(each.train, axis=0).tolist(),
            "best_valid": float(np.mean(np.min(each.valid, axis=1))),
            "test": float(np.mean(each.test)),
            "test_error": standard_error(each.test),
            "improvement": np.mean(each.improvements, axis=0).tolist(),
            "improvement_error": [standard_error(own) for own in each.improvements.T],
            "was_cut": each.was_cut,
        }
        for each in cells
    ]


def iterations_markdown(cells: Sequence[Iterated]) -> str:
    """The numbers of the figure as a table."""
    rows: list[Sequence[str]] = [HEAD, ["---:"] * (len(HEAD) - 1) + ["---"]]
    for row in iteration_numbers(cells):
        error = row["test_error"]
        rows.append(
            (
                str(row["num_iterations"]),
                str(row["num_draws"]),
                str(row["num_seeds"]),
                f"{row['epochs'][-1]:.0f}" + "*" * row["was_cut"],
                f"{row['best_valid']:.3f}",
                f"{row['test']:.3f}",
                "" if error is None else f"{error:.3f}",
                ", ".join(f"{value:.2f}" for value in row["improvement"][1:]),
            )
        )
    about = ABOUT
    if any(each.was_cut for each in cells):
        about += " Where a star stands, time was up before the last epoch."
    return "\n".join([*("| " + " | ".join(row) + " |" for row in rows), "", about]) + "\n"


def _curves(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The epochs of a cell, and the validation and training free energies of its seeds there."""
    record = json.loads((folder / "cell.json").read_text(encoding="utf-8"))
    lines = [
        [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        for member in record["members"]
        for path in [folder / member["folder"] / "metrics.jsonl.gz"]
    ]
    # Of one program, so that all were validated together; one that stopped early ends the curve.
    count = min(map(len, lines))
    epochs = np.asarray([line["epoch"] for line in lines[0][:count]])
    valid = [[line["valid"]["nats"] for line in own[:count]] for own in lines]
    train = [[line["train"]["free_energy"] for line in own[:count]] for own in lines]
    return epochs, np.asarray(valid, np.float64), np.asarray(train, np.float64)
