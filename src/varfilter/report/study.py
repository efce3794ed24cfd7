"""A study of several seeds and methods: what its kept scores say, with errors that are honest.

A cell is one method on one data set by one protocol: a folder with `cell.json`, and one for each
seed with the scores of every song of the test part (`benchmarks/study.py` writes them). A mean over
seeds has two errors, and neither holds the other: over seeds, what another training would give;
over songs, what other songs would. Methods are compared on the same songs, whose difficulty then
drops out of the difference.
"""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from varfilter.experiments.paper import MUSIC

SETS = (*MUSIC, "timit-sample", "emodb", "weizmann")
MODELS = ("vrnn", "srnn", "svg")
METHODS = {
    "baseline": "(a) baseline",
    "residual": "(b) baseline of Fraccaro et al.",
    "avf": "(c) AVF, K=1",
    "avf-5": "(d) AVF, K=5",
    "descent": "(e) gradient descent",
    # Of other tables.
    "routed": "baseline, gradients as released",
    "avf-2": "AVF, K=2",
}
PROTOCOLS = {
    "paper": "the paper's",
    "released": "as released",
    "best": "our best",
    "fivo": "learned by FIVO-16",
}
# The paper's text has it for K=5 on JSB; printed 6.77, and this of the steps that were scored.
FIVE = {"jsb": 6.90}
HEAD = ("data", "protocol", "method", "seeds", "test", "over seeds", "over songs",
        "minus (a)", "over seeds", "over songs", "paper, corrected")  # fmt: skip
ABOUT = (
    "Test part, nats per scored step with equal weight per song, lower is better: the mean over"
    " seeds, and its standard errors over seeds and over songs. The difference from (a) by the same"
    " protocol is of the same songs, and its error over songs is that of the paired differences."
)


@dataclass(frozen=True)
class Cell:
    """The scores of one method on one data set: nats per step, a row for each seed.

    `epochs` are those of each seed's best by validation, and `stopped` says why each ended.
    `by_iteration` is the mean over songs at the prior and after each iteration, a row for each
    seed; `released` are nats per step by the likelihood of the released code, of each seed, where
    they were scored.
    """

    data: str
    method: str
    protocol: str
    songs: tuple[int, ...]
    nats: np.ndarray
    epochs: tuple[float, ...]
    stopped: tuple[str, ...]
    model: str = "srnn"
    by_iteration: np.ndarray | None = None
    released: np.ndarray | None = None

    @property
    def was_cut(self) -> bool:
        """Whether time was up for a seed before its last epoch."""
        return any(reason == "time was up" for reason in self.stopped)

    @property
    def mean(self) -> float:
        """The mean over seeds and songs."""
        return float(np.mean(self.nats))

    @property
    def seed_error(self) -> float | None:
        """The standard error of the mean over seeds; None for a single one."""
        return standard_error(np.mean(self.nats, axis=1))

    @property
    def song_error(self) -> float | None:
        """The standard error of the mean over songs."""
        return standard_error(np.mean(self.nats, axis=0))


@dataclass(frozen=True)
class Difference:
    """How much higher one cell is than another on the same songs, with its errors."""

    mean: float
    seed_error: float | None
    song_error: float | None


def difference(cell: Cell, other: Cell) -> Difference:
    """`cell` minus `other`, paired by song; seeds are independent, whatever their numbers."""
    if cell.songs != other.songs:
        raise ValueError(
            f"The cells {cell.method!r} and {other.method!r} of {cell.data!r} have scores of"
            " different songs, so that they cannot be compared song by song. Score both anew."
        )
    by_song = np.mean(cell.nats, axis=0) - np.mean(other.nats, axis=0)
    errors = cell.seed_error, other.seed_error
    # Var[mean a - mean b] = Var[mean a] + Var[mean b]
    seed_error = None if None in errors else float(np.hypot(*np.asarray(errors, float)))
    return Difference(float(np.mean(by_song)), seed_error, standard_error(by_song))


def read_cells(folder: str | Path) -> list[Cell]:
    """Read the cells of a study that were scored, in the order of the table."""
    cells = []
    for path in Path(folder).glob("*/cell.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        # Of the points of a small search one was chosen, and scored.
        scored = record.get("scored") or [member["folder"] for member in record["members"]]
        files = [path.parent / folder / "test.json" for folder in scored]
        if record["part"] == "test" and all(file.exists() for file in files):
            members = [each for each in record["members"] if each["folder"] in scored]
            scores = [json.loads(file.read_text(encoding="utf-8")) for file in files]
            cells.append(_cell(record["name"], members, scores))
    if not cells:
        raise ValueError(
            f"{str(folder)!r} has no cell of a study that was scored: folders with a cell.json and"
            " a test.json for each seed. `benchmarks/study.py` makes them."
        )
    orders = [list(each) for each in (SETS, MODELS, PROTOCOLS, METHODS)]
    return sorted(
        cells,
        key=lambda c: [
            order.index(own) if own in order else len(order)
            for order, own in zip(orders, (c.data, c.model, c.protocol, c.method), strict=True)
        ],
    )


def study_numbers(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """A row of the table for each cell, as plain JSON."""
    rows = []
    baselines = {(c.model, c.data, c.protocol): c for c in cells if c.method == "baseline"}
    for cell in cells:
        baseline = baselines.get((cell.model, cell.data, cell.protocol))
        gap = None if baseline is None or baseline is cell else difference(cell, baseline)
        rows.append(
            {
                "data": cell.data,
                "protocol": cell.protocol,
                "method": cell.method,
                "num_seeds": len(cell.nats),
                "num_songs": len(cell.songs),
                "nats": cell.mean,
                "seed_error": cell.seed_error,
                "song_error": cell.song_error,
                "difference": None if gap is None else vars(gap),
                "published": _published(cell),
                "best_epochs": list(cell.epochs),
                "was_cut": cell.was_cut,
            }
        )
    return rows


def study_markdown(cells: Sequence[Cell]) -> str:
    """The table as Markdown, with what is to be said of it below."""
    numbers = study_numbers(cells)
    rows = [HEAD, ["---"] * 3 + ["---:"] * (len(HEAD) - 3), *map(_row, numbers)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    about = ABOUT
    if any(row["was_cut"] for row in numbers):
        about += " Where a star stands, time was up before the last epoch, or before patience was."
    return "\n".join([*lines, "", about]) + "\n"


def study_lines(cells: Sequence[Cell]) -> list[str]:
    """The table in lines of at most 80 columns: each number with its error over seeds."""
    head = ("data", "protocol", "method", "seeds", "test", "minus (a)", "paper's")
    rows: list[tuple[str, ...]] = [head]
    for row in study_numbers(cells):
        gap = row["difference"] or {}
        rows.append(
            (
                row["data"],
                PROTOCOLS[row["protocol"]],
                row["method"],
                str(row["num_seeds"]),
                _with_error(row["nats"], row["seed_error"]) + ("*" if row["was_cut"] else ""),
                _with_error(gap.get("mean"), gap.get("seed_error"), signed=True),
                "" if row["published"] is None else f"{row['published']:.2f}",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    about = (
        "Nats per scored step of the test part, the mean over seeds, and in brackets its standard"
        " error over seeds; (a) is the baseline of the same protocol, on the same songs. Only the"
        " cells that were trained so far are here."
    )
    return [*lines, "", *textwrap.wrap(about, 79)]


def _with_error(value: float | None, error: float | None, *, signed: bool = False) -> str:
    return _number(value, signed=signed) + ("" if error is None else f" ({_number(error)})")


def _row(row: dict[str, Any]) -> list[str]:
    gap = row["difference"] or {}
    return [
        row["data"],
        PROTOCOLS[row["protocol"]],
        METHODS[row["method"]],
        str(row["num_seeds"]),
        _number(row["nats"]) + ("*" if row["was_cut"] else ""),
        _number(row["seed_error"]),
        _number(row["song_error"]),
        _number(gap.get("mean"), signed=True),
        _number(gap.get("seed_error")),
        _number(gap.get("song_error")),
        "" if row["published"] is None else f"{row['published']:.2f}",
    ]


def _number(value: float | None, *, signed: bool = False) -> str:
    return "" if value is None else f"{value:{'+' if signed else ''}.3f}"


def parts_of(name: str) -> tuple[str, str, str, str]:
    """The model, the data, the method and the protocol that the name of a cell says."""
    model, _, rest = name.partition("-")
    data = next((each for each in SETS if rest.startswith(f"{each}-")), None)
    if data is None:
        raise ValueError(
            f"The cell {name!r} is of no set of the study. They are {', '.join(SETS)}."
        )
    method, _, protocol = rest.removeprefix(f"{data}-").rpartition("-")
    return model, data, method, protocol


def _cell(name: str, members: list[dict[str, Any]], scores: list[dict[str, Any]]) -> Cell:
    model, data, method, protocol = parts_of(name)
    songs = {tuple(each["songs"]) for each in scores}
    if len(songs) > 1:
        raise ValueError(f"The seeds of {name!r} have scores of different songs.")
    iterations = [each.get("nats_by_iteration") for each in scores]
    released = [each["released"]["nats"] for each in scores if "released" in each]
    return Cell(
        data,
        method,
        protocol,
        songs.pop(),
        np.asarray([each["nats_by_song"] for each in scores], np.float64),
        tuple(member["epoch"] for member in members),
        tuple(member["stopped"] for member in members),
        model,
        None if None in iterations else np.asarray(iterations, np.float64),
        np.asarray(released, np.float64) if released else None,
    )


def _published(cell: Cell) -> float | None:
    """The paper's number for the cell, of the steps that were scored."""
    if cell.method == "avf-5":
        return FIVE.get(cell.data)
    if cell.data not in MUSIC or cell.protocol == "fivo":
        return None
    _, baseline, avf = MUSIC[cell.data]
    return {"baseline": baseline[1], "avf": avf[1]}.get(cell.method)


def standard_error(values: np.ndarray) -> float | None:
    """The standard error of the mean of independent values."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else None
