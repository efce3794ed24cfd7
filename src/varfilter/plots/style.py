"""The page that every picture of data stands on: heading, histogram of lengths, style."""

import textwrap
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import FontProperties, findfont, get_font

from varfilter.data.dataset import Dataset, Family

WIDTH, DPI, HEADER = 10.0, 128, 1.15  # 1280 pixels
COLOURS = ("#1f5fbf", "#d9731a", "#2b8a57")
INK, SMALL_PRINT, FRAME, GRID = "#333333", "#777777", "#bbbbbb", "#e6e6e6"
MISSING, OUTSIDE = "#9db4c0", "#f4f4f4"
LABEL: dict[str, Any] = {"fontsize": 8, "color": INK}


def headed_page(
    dataset: Dataset, split: str, notes: list[str], height: float, more: str = ""
) -> tuple[Figure, SubFigure]:
    """A figure with its heading, and the part of it, `height` inches high, for the painter."""
    figure = Figure(figsize=(WIDTH, HEADER + height), dpi=DPI)
    figure.set_layout_engine("constrained", w_pad=0.1)
    FigureCanvasAgg(figure)
    parts = figure.subfigures(2, 1, squeeze=False, height_ratios=[HEADER, height])
    header, body = parts[:, 0]
    lengths = dataset.split(split).lengths // dataset.rows_per_step
    first, last = int(lengths.min()), int(lengths.max())
    extent = count(last, "step") if first == last else f"{first:,} to {last:,} steps"
    facts = (
        f"{count(len(lengths), 'sequence')} of {extent}; an observation is"
        f" {dataset.observation_shape}, {_families(dataset.family)}"
    )
    text = partial(header.text, 0.01, va="top", color=INK, parse_math=False)
    text(0.9, f"{legible(dataset.name, 50)}, {split}", fontsize=14, weight="bold")
    lines = textwrap.wrap(facts, 112)
    lines += textwrap.wrap("; ".join([notes[0] + more, *notes[1:]]), 112)
    text(0.6, "\n".join(lines), fontsize=9, linespacing=1.5)
    axis = header.add_axes((0.79, 0.27, 0.195, 0.45))
    plain(axis)
    width = -(-(last - first + 1) // 24)
    counts, _, _ = axis.hist(
        lengths, np.arange(first, last + width + 1, width) - 0.5, color=COLOURS[0]
    )
    margin = max(0.02 * (last - first), 5.0)
    axis.set_xlim(first - margin, last + margin)
    axis.set_xticks(sorted({first, last}), [f"{steps:,}" for steps in sorted({first, last})])
    axis.set_yticks([0, int(np.max(counts))])
    title(axis, "sequences by steps", small=True)
    return figure, body


def plain(axis: Axes, *, grid: bool = False) -> None:
    """Set by hand: some of `rcParams` are asked for again when the figure is drawn."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["bottom", "left"]].set_color(FRAME)
    axis.tick_params(labelsize=8, color=FRAME, labelcolor=INK, length=3)
    axis.set_axisbelow(True)
    axis.grid(False)
    if grid:
        axis.grid(True, color=GRID, lw=0.6)


def title(axis: Axes, text: str, *, small: bool = False) -> None:
    """At the left; or, in small print, at the right."""
    if small:
        axis.set_title(text, loc="right", fontsize=7.5, color=SMALL_PRINT, parse_math=False)
    else:
        axis.set_title(text, loc="left", fontsize=9, color=INK, parse_math=False)


def count(number: int, unit: str) -> str:
    """1 step, 2 steps."""
    return f"{number:,} {unit}" + ("" if number == 1 else "s")


def legible(text: str, most: int) -> str:
    """On one line, not too long, without characters that the font lacks (they raise warnings)."""
    font = get_font(findfont(FontProperties()))
    line = " ".join(text.split())
    line = "".join(c if font.get_char_index(ord(c)) else "?" for c in line)
    return line if len(line) <= most else f"{line[: most - most // 3 - 1]}…{line[-(most // 3) :]}"


def _families(family: Family | tuple[Family, ...]) -> str:
    if isinstance(family, Family):
        return family.distribution.__name__
    counts = Counter(each.distribution.__name__ for each in family)
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
