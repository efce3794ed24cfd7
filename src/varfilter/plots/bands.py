"""Columns of a filtered table in their own units, over time: bands, alarms, a fan."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from varfilter.data.dataset import Dataset
from varfilter.plots.datasets import MOST_PANELS
from varfilter.plots.style import (
    ALARM,
    COLOURS,
    FRAME,
    INK,
    MISSING,
    WIDE,
    blank,
    legible,
    plain,
    title,
    x_label,
)


class Band(NamedTuple):
    """What is expected of each column at some times: (steps, columns), in the user's units."""

    times: np.ndarray
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray


def draw_bands(
    dataset: Dataset,
    values: np.ndarray,
    band: Band,
    *,
    alarms: np.ndarray | None = None,
    fan: Band | None = None,
    time: str = "",
    width: float = WIDE,
) -> Figure:
    """Draw a panel for each column, the last of them with the time below.

    Dots are what was seen, the band is what was expected before, and `fan` is what may follow.
    `alarms` says which columns caused one: a circle there, and a line through all panels. Columns
    that never change are left out while there are others.
    """
    shown = _changing(values)[:MOST_PANELS]
    figure = blank(width, 1.5 * len(shown) + 0.6)
    axes = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    families = [family for _, family in dataset.column_families]
    alarms = np.zeros(values.shape, bool) if alarms is None else alarms
    for axis, k in zip(axes, shown, strict=True):
        plain(axis, grid=False)
        for each, colour in ((band, COLOURS[0]), (fan, COLOURS[1])):
            if each is None:
                continue
            if not families[k].is_binary:
                axis.fill_between(
                    each.times, each.low[:, k], each.high[:, k], color=colour, alpha=0.2, lw=0
                )
            axis.plot(each.times, each.middle[:, k], color=colour, lw=1.0)
        axis.plot(band.times, values[:, k], ".", color=INK, ms=3.2)
        circled = alarms[:, k]
        axis.plot(
            band.times[circled], values[circled, k], "o", ms=7, mfc="none", mec=ALARM, mew=1.3
        )
        for moment in band.times[alarms.any(axis=1)]:
            axis.axvline(moment, color=ALARM, lw=0.9, alpha=0.4)
        missing = band.times[np.isnan(values[:, k])]
        where = axis.get_xaxis_transform()
        axis.plot(missing, np.full(len(missing), 0.02), "|", color=MISSING, ms=5, transform=where)
        axis.yaxis.set_major_locator(MaxNLocator(4))
        title(axis, legible(dataset.column_families[k][0], 70 if width == WIDE else 34))
        axis.tick_params(labelcolor=INK, color=FRAME)
    _time_axis(axes[-1], band.times, time)
    return figure


def _changing(values: np.ndarray) -> list[int]:
    """The columns with more than one value; all of them if there is none."""
    spans = [column[np.isfinite(column)] for column in np.asarray(values, np.float64).T]
    found = [k for k, seen in enumerate(spans) if seen.size and seen.min() < seen.max()]
    return found or list(range(values.shape[1]))


def _time_axis(axis: Any, times: np.ndarray, name: str) -> None:
    if times.dtype.kind == "M":
        locator = AutoDateLocator(minticks=3, maxticks=8)
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    x_label(axis, name or "time")
