"""Figures of data sets: some sequences on a page with a heading, as images, lines or strips."""

import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from varfilter._text import count
from varfilter.data.dataset import Dataset
from varfilter.plots.style import (
    COLOURS,
    FRAME,
    INK,
    LABEL,
    MISSING,
    OUTSIDE,
    PALETTE,
    SMALL_PRINT,
    coloured,
    legible,
    plain,
    title,
    value_range,
)

WIDTH, DPI, HEADER = 10.0, 128, 1.15  # 1280 pixels
MOST_PANELS = MOST_FRAMES = 8
# An image of more elements than this is smoothed where it is drawn smaller.
MOST_SHARP = 88


class ShownSequence(NamedTuple):
    """The first rows of a sequence, its name, and how many rows it has in all."""

    name: str
    rows: np.ndarray
    num_rows: int


# A painter asks for its page, by the height in inches and more of what is shown, and fills it.
Page = Callable[..., tuple[Figure, SubFigure]]


def headed_page(
    dataset: Dataset, split: str, notes: list[str], height: float, more: str = ""
) -> tuple[Figure, SubFigure]:
    """A figure with its heading, and the part of it, `height` inches high, to draw on."""
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
        f" {dataset.observation_shape}, {_families(dataset)}"
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


def heat_maps(page: Page, dataset: Dataset, shown: list[ShownSequence]) -> Figure:
    """Draw all elements of a row against time, on one scale."""
    figure, body = page(1.35 * len(shown) + 0.3)
    colours = matplotlib.colormaps["magma"].with_extremes(bad=MISSING)
    limits = value_range([sequence.rows for sequence in shown])
    axes = images(body, dataset, shown, 0, colours, limits)
    axes[0].yaxis.set_major_locator(MaxNLocator(4, integer=True))
    bar = body.colorbar(axes[0].images[0], ax=axes, aspect=40, pad=0.01)
    bar.ax.tick_params(labelsize=8, color=FRAME, labelcolor=INK)
    bar.ax.spines[:].set_visible(False)
    body.supylabel("element", **LABEL)
    return figure


def lines(page: Page, dataset: Dataset, shown: list[ShownSequence]) -> Figure:
    """Draw a panel for each column, each sequence in its colour; what is missing is a gap."""
    tables = [s.rows.reshape(len(s.rows), -1).astype(np.float64) for s in shown]
    names, families = zip(*dataset.column_families, strict=True)
    num_panels = min(len(names), MOST_PANELS)
    num_wide = 1 if num_panels <= 3 else 2
    num_high = -(-num_panels // num_wide)
    more = "" if num_panels == len(names) else f", {num_panels} of {len(names):,} columns"
    figure, body = page(1.55 * num_high + 0.5, more)
    axes = body.subplots(num_high, num_wide, sharex=True, squeeze=False).ravel()
    for axis in axes[num_panels:]:
        axis.set_visible(False)
    for i, axis in enumerate(axes[:num_panels]):
        family = families[i]
        columns = [table[:, i] for table in tables]
        plain(axis, grid=True)
        axis.tick_params(labelbottom=True)
        _draw(axis, columns, is_binary=family.is_binary)
        missing = np.isnan(np.concatenate(columns)).mean()
        title(axis, legible(names[i], 70 if num_wide == 1 else 28))
        small = family.distribution.__name__ + (f", {missing:.0%} missing" if missing else "")
        title(axis, small, small=True)
    _steps(axes[0], shown)
    body.supxlabel(row_unit(dataset), **LABEL)
    legend = body.legend(
        axes[0].lines[: len(shown)],
        [f"{legible(s.name, 24)}, {extent_of(s, dataset)}" for s in shown],
        loc="outside upper left", ncols=3, fontsize=8, frameon=False, labelcolor=INK,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def strips(
    page: Page, dataset: Dataset, shown: list[ShownSequence], limits: tuple[float, float]
) -> Figure:
    """Draw frames side by side, evenly spaced; `limits` are black and white, in scaled units."""
    height, width = dataset.train.values.shape[-2:]
    pitch = width + max(1, width // 24)
    num_pixels = (MOST_FRAMES - 1) * pitch + width
    strip_height = 0.96 * WIDTH * height / num_pixels
    figure, body = page((strip_height + 0.45) * len(shown))
    low, high = limits
    axes = body.subplots(len(shown), 1, squeeze=False)[:, 0]
    for axis, video in zip(axes, shown, strict=True):
        steps = np.unique(np.linspace(0, len(video.rows) - 1, MOST_FRAMES).round().astype(int))
        strip = np.ones((height, num_pixels, 3), np.float32)
        frames = dataset.scaling(video.rows[steps].astype(np.float32))
        for left, frame in zip(range(0, num_pixels, pitch), frames, strict=False):
            strip[:, left : left + width] = coloured((frame - low) / (high - low))
        axis.imshow(strip)
        plain(axis)
        axis.spines[:].set_visible(False)
        axis.set_yticks([])
        axis.set_xticks(np.arange(len(steps)) * pitch + (width - 1) / 2, [f"t={t}" for t in steps])
        axis.tick_params(length=0, labelsize=7.5, labelcolor=SMALL_PRINT, pad=1)
        title(axis, f"{video.name}, {extent_of(video, dataset)}")
    return figure


def images(
    body: SubFigure,
    dataset: Dataset,
    shown: list[ShownSequence],
    first: int,
    colours: Colormap,
    limits: tuple[float, float],
) -> list[Axes]:
    """Draw the sequences one below another: elements, numbered from `first`, against time."""
    axes = body.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axis, sequence in zip(axes, shown, strict=True):
        plain(axis)
        axis.set_facecolor(OUTSIDE)
        image = sequence.rows.reshape(len(sequence.rows), -1).T
        extent = (-0.5, image.shape[1] - 0.5, first - 0.5, first + len(image) - 0.5)
        axis.imshow(
            image, cmap=colours, vmin=limits[0], vmax=limits[1], origin="lower", aspect="auto",
            extent=extent, interpolation="nearest" if len(image) <= MOST_SHARP else "auto",
        )  # fmt: skip
        title(axis, f"{sequence.name}, {extent_of(sequence, dataset)}")
    _steps(axes[-1], shown)
    axes[-1].set_xlabel(row_unit(dataset), **LABEL)
    return list(axes)


def extent_of(shown: ShownSequence, dataset: Dataset) -> str:
    """How long a sequence is, and how much of it is shown, in words."""
    shown_steps, steps = (n // dataset.rows_per_step for n in (len(shown.rows), shown.num_rows))
    part = f"the first {shown_steps:,} of " if shown_steps < steps else ""
    seconds = f" ({shown.num_rows / dataset.rate:,.2f} s)" if dataset.rate else ""
    return part + count(steps, "step") + seconds


def row_unit(dataset: Dataset) -> str:
    """What the axis of time counts: steps, or the rows that make them."""
    return "step" if dataset.rows_per_step == 1 else "row"


def _draw(axis: Axes, columns: Sequence[np.ndarray], *, is_binary: bool) -> None:
    """Draw the sequences of one column, and below them marks where a value is missing."""
    num = len(columns)
    # Lines between 0 and 1 would hide each other: each sequence has a level of its own.
    levels = [1.5 * (num - 1 - i) if is_binary else 0.0 for i in range(num)]
    drawn = [values + up for values, up in zip(columns, levels, strict=True)]
    style = "steps-mid" if is_binary else "default"
    for values, colour in zip(drawn, PALETTE, strict=False):
        axis.plot(np.arange(len(values)), values, color=colour, lw=1.0, drawstyle=style)
    for values, colour in zip(drawn, PALETTE, strict=False):
        present = np.pad(np.isfinite(values), 1)
        alone = np.flatnonzero(present[1:-1] & ~present[:-2] & ~present[2:])
        axis.plot(alone, values[alone], "o", color=colour, ms=2.0)  # a line needs two points
    finite = np.concatenate(drawn)
    finite = finite[np.isfinite(finite)]
    if not finite.size:
        axis.set_yticks([])
    elif is_binary:
        axis.set_yticks([up + value for up in levels for value in (0, 1)], ["0", "1"] * num)
        axis.set_ylim(-0.25, max(levels) + 1.25)
    else:
        whole = bool((finite == np.round(finite)).all())
        axis.yaxis.set_major_locator(MaxNLocator(4, integer=whole))
    marks = [np.flatnonzero(np.isnan(values)) for values in columns]
    if any(len(steps) for steps in marks):
        low, high = axis.get_ylim()
        axis.set_ylim(low - (0.05 + 0.07 * num) * (high - low), high)
    for i, (steps, colour) in enumerate(zip(marks, PALETTE, strict=False)):
        height = np.full(len(steps), 0.04 + 0.06 * (num - 1 - i))
        where = axis.get_xaxis_transform()
        axis.plot(steps, height, "|", color=colour, alpha=0.5, ms=4, mew=0.8, transform=where)


def _steps(axis: Axes, shown: list[ShownSequence]) -> None:
    axis.set_xlim(-0.5, max(len(sequence.rows) for sequence in shown) - 0.5)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _families(dataset: Dataset) -> str:
    counts = Counter(family.distribution.__name__ for family in dataset.families)
    if len(counts) == 1 and len(dataset.families) == 1:
        return next(iter(counts))
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
