"""The paper's tables and figures from the files that are kept of a study: nothing is trained."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter.plots.studies import film_rows, iteration_curves, iteration_gains, wave_rows
from varfilter.plots.style import WIDE, Painter, png
from varfilter.report.gaps import gaps_markdown, learned_markdown, read_gaps
from varfilter.report.iteration_study import (
    iteration_numbers,
    iterations_markdown,
    read_iterations,
)
from varfilter.report.media_tables import media_lines, media_markdown, media_numbers, read_media
from varfilter.report.study import read_cells, study_lines, study_markdown, study_numbers
from varfilter.runs.folder import write_whole

EXAMPLE = "example.npz"


class Kept(NamedTuple):
    """Lines for a terminal, and the files that were written."""

    lines: list[str]
    paths: list[Path]


class Example(NamedTuple):
    """A test sequence as a model of a cell saw it: its data, predictions and reconstructions."""

    cell: str
    arrays: dict[str, np.ndarray]

    def paint(self, width: float) -> Any:
        """Draw it, as a film if its steps are frames."""
        draw = film_rows if self.arrays["data"].ndim > 2 else wave_rows
        return draw(self.arrays, width)


def kept_results(what: str, folder: Path, out: Path) -> Kept:
    """Write OUT/WHAT-study.md and .json, and of a figure its pictures, from the cells in a folder.

    That is the folder of a table's cells; of a figure the folder of all tables, for it takes from
    several.
    """
    folder, out = Path(folder).expanduser(), Path(out).expanduser()
    makers = {
        "table-1": _media,
        "table-2": _media,
        "table-3": _music,
        "figure-3": _examples,
        "figure-4": _iterations,
    }
    if what not in makers:
        raise ValueError(f"`what` must be one of {', '.join(makers)}; got {what!r}.")
    lines, table, numbers, painters = makers[what](folder)
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"{what}-study.md", out / f"{what}-study.json"]
    write_whole(paths[0], table)
    write_whole(paths[1], json.dumps(numbers, indent=1) + "\n")
    for name, paint in painters.items():
        paths.append(out / f"{what}{name}.png")
        paths[-1].write_bytes(png(paint(WIDE)))
    return Kept(lines, paths)


def blocks_of(results: Path) -> dict[str, str]:
    """The tables of all cells that `results/` has, as Markdown, by their names in the documents."""
    bounds, fivo = results / "table-3-bounds", results / "fivo"
    makers: dict[str, Callable[[], str]] = {
        "table 1": lambda: media_markdown(read_media(results / "table-1")),
        "table 2": lambda: media_markdown(read_media(results / "table-2")),
        "table 3": lambda: study_markdown(read_cells(results / "table-3")),
        "inference gap": lambda: gaps_markdown(read_gaps(bounds)),
        "learned by FIVO": lambda: learned_markdown(read_gaps(bounds), read_gaps(fivo)),
        "figure 4": lambda: iterations_markdown(read_iterations(results)),
    }
    folders = {
        "table 1": results / "table-1", "table 2": results / "table-2",
        "table 3": results / "table-3", "inference gap": bounds,
        "learned by FIVO": fivo, "figure 4": results / "table-3",
    }  # fmt: skip
    return {name: make() for name, make in makers.items() if any(folders[name].glob("*/cell.json"))}


def read_examples(results: str | Path) -> list[Example]:
    """Read the test sequences that are kept with the cells of tables 1 and 2, in their order."""
    found = []
    for path in sorted(Path(results).glob(f"table-[12]/*/{EXAMPLE}")):
        with np.load(path) as file:
            found.append(Example(path.parent.name, {name: file[name] for name in file.files}))
    if not found:
        raise ValueError(
            f"{str(results)!r} has no sequence that a model saw: {EXAMPLE} in the cells of table-1"
            " and table-2, where `benchmarks/study.py` leaves it. Give the folder `results`."
        )
    return found


def _music(folder: Path) -> tuple[list[str], str, Any, dict[str, Painter]]:
    cells = read_cells(folder)
    return study_lines(cells), study_markdown(cells), study_numbers(cells), {}


def _media(folder: Path) -> tuple[list[str], str, Any, dict[str, Painter]]:
    rows = read_media(folder)
    return media_lines(rows), media_markdown(rows), media_numbers(rows), {}


def _iterations(folder: Path) -> tuple[list[str], str, Any, dict[str, Painter]]:
    cells = read_iterations(folder)
    painters: dict[str, Painter] = {
        "a": lambda width: iteration_curves(cells, width),
        "b": lambda width: iteration_gains(cells, width),
    }
    lines = [
        f"{each['num_iterations']} iterations, {each['num_draws']} draws:"
        f" best validation {each['best_valid']:.3f}, test {each['test']:.3f}"
        for each in iteration_numbers(cells)
    ]
    return lines, iterations_markdown(cells), iteration_numbers(cells), painters


def _examples(folder: Path) -> tuple[list[str], str, Any, dict[str, Painter]]:
    examples = read_examples(folder)
    painters: dict[str, Painter] = {f"-{each.cell}": each.paint for each in examples}
    numbers = [
        {"cell": each.cell, "sequence": str(each.arrays["name"])} | _errors(each)
        for each in examples
    ]
    lines = [
        f"{row['cell']}, {row['sequence']}: off by {row['prediction']:.4g} predicted,"
        f" {row['reconstruction']:.4g} reconstructed (root mean square, in levels)"
        for row in numbers
    ]
    return lines, "\n".join(f"- {line}" for line in lines) + "\n", numbers, painters


def _errors(example: Example) -> dict[str, float]:
    """How far predictions and reconstructions are from the data, in its levels."""
    data = example.arrays["data"].astype(np.float64)
    return {
        name: float(np.sqrt(np.mean((example.arrays[name].astype(np.float64) - data) ** 2)))
        for name in ("prediction", "reconstruction")
    }
