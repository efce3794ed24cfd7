"""Figures of a study: curves by the number of iterations, and sequences as a model saw them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from varfilter.plots.style import (
    COLOURS,
    INK,
    PALETTE,
    SMALL_PRINT,
    blank,
    legend,
    legend_height,
    panels,
    plain,
    title,
    x_label,
    y_label,
)

# Rows of figure 3, in the paper's order.
SHOWN = ("data", "prediction", "reconstruction")
# Frames of a film that are side by side.
NUM_FRAMES = 10


def iteration_curves(cells: Sequence[Any], width: float) -> Figure:
    """Draw validation and training by epoch for each number of iterations (figure 4a).

    `cells` have `label`, `epochs`, and `valid` and `train` with a row for each seed: the mean is
    drawn, and on validation the standard error over seeds is shaded.
    """
    figure, (axis,) = panels(width, 1, 3.1, header=legend_height(width, len(cells) + 2))
    ends = []
    for cell, colour in zip(cells, PALETTE, strict=False):
        middle = np.mean(cell.valid, axis=0)
        axis.plot(cell.epochs, middle, color=colour, lw=1.5)
        if len(cell.valid) > 1:
            error = np.std(cell.valid, axis=0, ddof=1) / len(cell.valid) ** 0.5
            axis.fill_between(cell.epochs, middle - error, middle + error, color=colour, alpha=0.2)
        train = np.mean(cell.train, axis=0)
        axis.plot(cell.epochs, train, color=colour, lw=1.0, ls="--")
        ends += [middle.min(), train.min(), np.quantile(middle, 0.85)]
    # The first epochs are far off the scale of what is compared.
    room = 0.05 * (max(ends) - min(ends))
    axis.set_ylim(min(ends) - room, max(ends) + room)
    x_label(axis, "epoch")
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    y_label(axis, "nats per step")
    styles: list[dict[str, Any]] = [{"color": c, "lw": 2} for c in PALETTE[: len(cells)]]
    styles += [{"color": INK, "lw": 1.5}, {"color": INK, "lw": 1.0, "ls": "--"}]
    legend(figure, [*(cell.label for cell in cells), "validation", "training"], styles)
    return figure


def iteration_gains(cells: Sequence[Any], width: float) -> Figure:
    """Draw how far each iteration is below the prior, in percent (figure 4b).

    `cells` have `label` and `improvements`, a row for each seed; bars are standard errors over
    them.
    """
    figure, (axis,) = panels(width, 1, 2.8, header=legend_height(width, len(cells)))
    for cell, colour in zip(cells, PALETTE, strict=False):
        values = np.mean(cell.improvements, axis=0)
        places = np.arange(len(values))
        axis.plot(places, values, "-o", ms=4, lw=1.5, color=colour)
        if len(cell.improvements) > 1:
            error = np.std(cell.improvements, axis=0, ddof=1) / len(cell.improvements) ** 0.5
            axis.errorbar(places, values, error, fmt="none", ecolor=colour, capsize=2.5)
    most = max(cell.improvements.shape[1] for cell in cells)
    axis.set_xticks(range(most), ["prior", *map(str, range(1, most))])
    x_label(axis, "inference iteration")
    y_label(axis, "improvement on the prior, %")
    legend(
        figure,
        [cell.label for cell in cells],
        [{"color": c, "lw": 2} for c in PALETTE[: len(cells)]],
    )
    return figure


def wave_rows(example: Mapping[str, np.ndarray], width: float) -> Figure:
    """Draw the data, the predictions and the reconstructions of a sound (figure 3).

    The arrays have a row for each step, of samples in the recording's levels; all three are drawn
    on one scale.
    """
    waves = {name: np.ravel(example[name]).astype(np.float64) for name in SHOWN}
    rate = float(example["rate"]) or 1.0
    figure = blank(width, 3.3)
    axes = figure.subplots(len(SHOWN), 1, sharex=True, sharey=True)
    for axis, (name, wave), colour in zip(
        axes, waves.items(), (INK, COLOURS[1], COLOURS[0]), strict=True
    ):
        plain(axis)
        axis.plot(np.arange(len(wave)) / rate, wave, lw=0.5, color=colour)
        title(axis, name)
    x_label(axes[-1], "seconds")
    return figure


def film_rows(example: Mapping[str, np.ndarray], width: float) -> Figure:
    """Draw frames of the data, the predictions and the reconstructions of a film (figure 3)."""
    count = min(NUM_FRAMES, len(example["data"]))
    chosen = np.linspace(0, len(example["data"]) - 1, count).round().astype(int)
    figure = blank(width, 0.25 + 3 * (width - 0.2) / count * 1.12)
    axes = figure.subplots(len(SHOWN), count, squeeze=False)
    for row, name in zip(axes, SHOWN, strict=True):
        for axis, frame in zip(row, np.asarray(example[name])[chosen], strict=True):
            axis.imshow(np.squeeze(frame), cmap="gray", vmin=0, vmax=255)
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
        title(row[0], name)
    for axis, number in zip(axes[-1], chosen, strict=True):
        axis.set_xlabel(str(number + 1), fontsize=7, color=SMALL_PRINT)
    return figure
