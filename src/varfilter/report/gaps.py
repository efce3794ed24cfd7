"""What inference costs: the free energy of a method beside tighter bounds of the same models.

And the same for models that have learned by a bound of many trajectories.

Of models that `benchmarks/study.py --bounds` scored: the free energy of their own inference; that
of a converged E-step which starts from it, so that the difference is what amortization loses; and
the bound of many trajectories (FIVO), so that what is left is mostly what one sampled past loses.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from varfilter.report.study import METHODS, PROTOCOLS, Cell, read_cells, standard_error

HEAD = ("data", "method", "seeds", "free energy", "E-step from there", "IWAE-128", "FIVO-128",
        "amortization", "one past")  # fmt: skip
BOUNDS = ("descent-100", "iwae-128", "fivo-128")
ABOUT = (
    "Test part, nats per scored step with equal weight per song, lower is better: means over seeds"
    " of the same checkpoints, with their standard errors over seeds. *Amortization* is the free"
    " energy less that of the E-step, *one past* is that less FIVO-128, by which no more is meant"
    " than how far one sampled trajectory is from 128 weighted ones; their errors are of paired"
    " differences."
)


LEARNED_HEAD = ("data", "proposals", "learned by", "seeds", "free energy", "IWAE-128", "FIVO-128")
ABOUT_LEARNED = (
    "Test part, nats per scored step with equal weight per song, lower is better: means over seeds,"
    " with their standard errors over seeds. FIVO learns with 16 particles, each of which proposes"
    " by its own inference. Models of the free energy are those of the table of the inference gap."
)


@dataclass(frozen=True)
class Gap:
    """The bounds of one cell by name, nats (seeds, songs); `free energy` among them."""

    cell: Cell
    bounds: dict[str, np.ndarray]


def read_gaps(folder: str | Path) -> list[Gap]:
    """Read the cells of a folder that have tighter bounds beside their free energy."""
    found = []
    for cell in read_cells(folder):
        path = Path(folder) / f"srnn-{cell.data}-{cell.method}-{cell.protocol}" / "bounds.json"
        if path.exists():
            bounds = json.loads(path.read_text(encoding="utf-8"))["nats_by_song"]
            nats = {name: np.asarray(values, np.float64) for name, values in bounds.items()}
            found.append(Gap(cell, {"free energy": cell.nats} | nats))
    return found


def gaps_markdown(gaps: list[Gap]) -> str:
    """The table as Markdown, with what is to be said of it below."""
    rows = [HEAD, ["---"] * 2 + ["---:"] * (len(HEAD) - 2), *map(_row, gaps)]
    return "\n".join([*("| " + " | ".join(row) + " |" for row in rows), "", ABOUT]) + "\n"


def learned_markdown(by_free_energy: list[Gap], by_fivo: list[Gap]) -> str:
    """The table of models that have learned by either bound, scored by three, as Markdown."""
    rows = [LEARNED_HEAD, ["---"] * 3 + ["---:"] * (len(LEARNED_HEAD) - 3)]
    methods = {gap.cell.method for gap in by_fivo}
    for gap in (*by_free_energy, *by_fivo):
        if gap.cell.method not in methods:
            continue
        is_fivo = gap.cell.protocol == "fivo"
        nats = gap.bounds["elbo" if is_fivo else "free energy"]
        method = METHODS[gap.cell.method].partition(") ")[2]
        learned = PROTOCOLS["fivo"].removeprefix("learned by ") if is_fivo else "free energy"
        star = "*" * (is_fivo and gap.cell.was_cut)
        columns = [nats, gap.bounds["iwae-128"], gap.bounds["fivo-128"]]
        cells = [gap.cell.data, method, learned + star, str(len(nats))]
        rows.append(cells + [_with_error(values.mean(axis=1)) for values in columns])
    about = ABOUT_LEARNED
    if any(gap.cell.was_cut for gap in by_fivo):
        about += " Where a star stands, time was up before the last epoch."
    return "\n".join([*("| " + " | ".join(row) + " |" for row in rows), "", about]) + "\n"


def _row(gap: Gap) -> list[str]:
    nats = gap.bounds
    step = nats["descent-100"]
    columns = [nats["free energy"], *(nats[name] for name in BOUNDS)]
    columns += [nats["free energy"] - step, step - nats["fivo-128"]]
    cells = [gap.cell.data, METHODS[gap.cell.method], str(len(step))]
    return cells + [_with_error(values.mean(axis=1)) for values in columns]


def _with_error(by_seed: np.ndarray) -> str:
    error = standard_error(by_seed)
    return f"{np.mean(by_seed):.3f}" + ("" if error is None else f" ({error:.3f})")
