"""Tables 1 and 2 of a study: speech and film, with what the latents of each model are used for.

The data are free ones in the place of the paper's, so that its numbers have no column here. Scores
are in nats of our likelihood, the probability of the level's own bin; those by the likelihood of
the released code have a table of their own, since no number of one compares with one of the other.
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from varfilter.report.study import METHODS, Cell, difference, read_cells, standard_error

HEAD = ("data", "model", "method", "seeds", "test", "over seeds", "over sequences",
        "minus baseline", "over seeds", "over sequences", "KL", "gain over the prior")  # fmt: skip
RELEASED_HEAD = ("data", "model", "method", "seeds", "test, as released", "over seeds")
ABOUT = (
    "Test part, nats per scored step with equal weight per sequence, lower is better: the mean over"
    " seeds, and its standard errors over seeds and over sequences. The difference from the"
    " baseline of the same model is of the same sequences. *KL* is that of q and the prior at the"
    " best epoch, in training; *gain over the prior* how far the iterations of AVF come from where"
    " they begin: where both are near 0, the latents are not used."
)
ABOUT_RELEASED = (
    "The same models by the likelihood of the released code, which adds 1e-6 to every probability:"
    " another unit, in which nothing above is. They have not learned by it."
)
CUT = " Where a star stands, time was up before the last epoch."
# With less than this part of a nat the latents are not used.
UNUSED = 0.1


@dataclass(frozen=True)
class MediaRow:
    """A cell beside the baseline of the same model and data; `kl` is of each seed, in training."""

    cell: Cell
    baseline: Cell | None
    kl: np.ndarray

    @property
    def gain(self) -> float | None:
        """How much lower the free energy is than at the prior; None where nothing iterates."""
        found = self.cell.by_iteration
        if found is None or found.shape[1] < 2:
            return None
        return float(np.mean(found[:, 0] - found[:, -1]))

    @property
    def is_unused(self) -> bool:
        """Whether nearly nothing is said by the latents."""
        return float(np.mean(self.kl)) < UNUSED


def read_media(folder: str | Path) -> list[MediaRow]:
    """Read the cells of a table of speech or film, in its order."""
    cells = read_cells(folder)
    baselines = {(c.data, c.model): c for c in cells if c.method == "baseline"}
    rows = []
    for cell in cells:
        baseline = baselines.get((cell.data, cell.model))
        baseline = None if baseline is cell else baseline
        rows.append(MediaRow(cell, baseline, _kl(Path(folder), cell)))
    return rows


def media_numbers(rows: Sequence[MediaRow]) -> list[dict[str, Any]]:
    """The tables as plain JSON, a dictionary for each cell."""
    found = []
    for row in rows:
        cell, gap = row.cell, row.baseline and difference(row.cell, row.baseline)
        found.append(
            {
                "data": cell.data,
                "model": cell.model,
                "method": cell.method,
                "num_seeds": len(cell.nats),
                "num_sequences": len(cell.songs),
                "nats": cell.mean,
                "seed_error": cell.seed_error,
                "sequence_error": cell.song_error,
                "difference": None if gap is None else vars(gap),
                "kl": float(np.mean(row.kl)),
                "gain": row.gain,
                "uses_latents": not row.is_unused,
                "released": None if cell.released is None else float(np.mean(cell.released)),
                "best_epochs": list(cell.epochs),
                "was_cut": cell.was_cut,
            }
        )
    return found


def media_markdown(rows: Sequence[MediaRow]) -> str:
    """Both tables as Markdown, with what is to be said of them below each."""
    lines = [*_table(HEAD, [_row(row) for row in rows], 3), ""]
    lines.append(ABOUT + (CUT if any(row.cell.was_cut for row in rows) else ""))
    released = [row for row in rows if row.cell.released is not None]
    if released:
        lines += ["", *_table(RELEASED_HEAD, [_released(row) for row in released], 3), ""]
        lines.append(ABOUT_RELEASED)
    if unused := [row.cell for row in rows if row.is_unused]:
        names = ", ".join(f"{_model(c)} with {_method(c)} on {c.data}" for c in unused)
        lines += ["", f"Latents that are not used (a KL below {UNUSED} nats): {names}."]
    return "\n".join(lines) + "\n"


def media_lines(rows: Sequence[MediaRow]) -> list[str]:
    """The first table in lines of at most 80 columns."""
    head = ("data", "model", "method", "seeds", "test", "minus baseline", "KL")
    cells: list[tuple[str, ...]] = [head]
    for row in rows:
        gap = row.baseline and difference(row.cell, row.baseline)
        cells.append(
            (
                row.cell.data,
                _model(row.cell),
                row.cell.method,
                str(len(row.cell.nats)),
                _with_error(row.cell.mean, row.cell.seed_error) + "*" * row.cell.was_cut,
                "" if gap is None else _with_error(gap.mean, gap.seed_error, signed=True),
                _number(float(np.mean(row.kl))),
            )
        )
    widths = [max(len(each[i]) for each in cells) for i in range(len(head))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(each, widths, strict=True)).rstrip()
        for each in cells
    ]


def _kl(folder: Path, cell: Cell) -> np.ndarray:
    """The KL of each seed at its best epoch, as training has it."""
    name = f"{cell.model}-{cell.data}-{cell.method}-{cell.protocol}"
    record = json.loads((folder / name / "cell.json").read_text(encoding="utf-8"))
    scored = record.get("scored") or [member["folder"] for member in record["members"]]
    found = []
    for member in record["members"]:
        if member["folder"] in scored:
            packed = (folder / name / member["folder"] / "metrics.jsonl.gz").read_bytes()
            lines = [json.loads(line) for line in gzip.decompress(packed).splitlines()]
            best = next(line for line in lines if line["epoch"] == member["epoch"])
            found.append(best["train"]["kl"])
    return np.asarray(found, np.float64)


def _row(row: MediaRow) -> list[str]:
    cell, gap = row.cell, row.baseline and difference(row.cell, row.baseline)
    compared = [None, None, None] if gap is None else [gap.mean, gap.seed_error, gap.song_error]
    return [
        cell.data,
        _model(cell),
        _method(cell),
        str(len(cell.nats)),
        _number(cell.mean) + "*" * cell.was_cut,
        _number(cell.seed_error),
        _number(cell.song_error),
        _number(compared[0], signed=True),
        *map(_number, compared[1:]),
        _number(float(np.mean(row.kl))),
        _number(row.gain),
    ]


def _released(row: MediaRow) -> list[str]:
    assert row.cell.released is not None
    mean, error = float(np.mean(row.cell.released)), standard_error(row.cell.released)
    star = "*" * row.cell.was_cut
    names = [row.cell.data, _model(row.cell), _method(row.cell), str(len(row.cell.released))]
    return [*names, _number(mean) + star, _number(error)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], num_words: int) -> list[str]:
    rule = ["---"] * num_words + ["---:"] * (len(head) - num_words)
    return ["| " + " | ".join(each) + " |" for each in (head, rule, *rows)]


def _model(cell: Cell) -> str:
    return cell.model.upper()


def _method(cell: Cell) -> str:
    """The method without the letter that it has in table 3."""
    return METHODS[cell.method].removeprefix("(a) ").removeprefix("(c) ")


def _with_error(value: float, error: float | None, *, signed: bool = False) -> str:
    return _number(value, signed=signed) + ("" if error is None else f" ({_number(error)})")


def _number(value: float | None, *, signed: bool = False) -> str:
    """A number of one decimal from a hundred on: speech and film have thousands of nats a step."""
    if value is None:
        return ""
    digits = 1 if abs(value) >= 100.0 else 3
    return f"{value:{'+' if signed else ''},.{digits}f}"
