"""A picture of how well the families of columns fit: their histograms, and what was expected."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from varfilter.data.tables.marginals import Marginal
from varfilter.plots.style import (
    COLOURS,
    FRAME,
    SMALL_PRINT,
    WIDE,
    legend,
    legend_height,
    legible,
    panels,
    title,
    x_label,
)

MOST_PANELS = 24
FAMILY, GAUSSIAN = (
    {"color": COLOURS[1], "lw": 1.6},
    {"color": SMALL_PRINT, "lw": 1.1, "ls": "--"},
)


class ColumnFit(NamedTuple):
    """A column, what its kind is, what the values are called, and how they fit."""

    name: str
    kind: str
    what: str
    fit: Marginal
    levels: tuple[str, ...] = ()


def marginals(fits: Sequence[ColumnFit]) -> Figure:
    """Draw a panel for each column: bars are shares of its training values, lines are expected."""
    shown = fits[:MOST_PANELS]
    figure, axes = panels(WIDE, len(shown), 2.1, columns=3, header=legend_height(WIDE, 3))
    for axis, each in zip(axes, shown, strict=True):
        edges, fit = each.fit.edges, each.fit
        middle, width = (edges[:-1] + edges[1:]) / 2, np.diff(edges)
        axis.bar(middle, fit.shares, 0.92 * width, color=COLOURS[0], alpha=0.35, lw=0)
        for values, style in ((fit.gaussian, GAUSSIAN), (fit.expected, FAMILY)):
            if values is not None:
                axis.stairs(values, edges, baseline=None, **style)
        title(axis, legible(each.name, 24))
        title(axis, each.kind, small=True)
        x_label(axis, legible(each.what, 40))
        if each.levels:
            few = len(each.levels) <= 6
            places = range(len(each.levels)) if few else []
            axis.set_xticks(list(places), [legible(each.levels[i], 10) for i in places])
        elif fit.expected is not None and fit.gaussian is not None:
            # On a scale on which tails can be seen: from one value in ten of those there are.
            least = float(fit.shares[fit.shares > 0].min())
            axis.set_yscale("log")
            axis.set_ylim(least / 10, 2.0)
        else:
            axis.yaxis.set_major_locator(MaxNLocator(4))
        axis.spines[:].set_color(FRAME)
    bars = {"color": COLOURS[0], "alpha": 0.35, "lw": 6}
    more = f" ({len(shown)} of {len(fits)} columns)" if len(shown) < len(fits) else ""
    legend(
        figure,
        [f"share of the training values{more}", "the family that was taken", "a Gaussian"],
        [bars, FAMILY, GAUSSIAN],
    )
    return figure
