"""Figures of tables, a panel for each column: what was filtered, what is forecast, and fits."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from varfilter.data.dataset import Dataset
from varfilter.data.tables.marginals import Marginal
from varfilter.plots.datasets import MOST_PANELS
from varfilter.plots.figures import InspectedSequence, stack, surprise
from varfilter.plots.style import (
    ALARM,
    COLOURS,
    FRAME,
    INK,
    MISSING,
    SMALL_PRINT,
    WIDE,
    blank,
    legend,
    legend_height,
    legible,
    panels,
    plain,
    title,
    x_label,
)

# The quantiles of a fan: its wide band, its narrow one, and the line in the middle.
FAN_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
# How the lines of a fit are drawn, and of how many columns.
FAMILY, GAUSSIAN = (
    {"color": COLOURS[1], "lw": 1.6},
    {"color": SMALL_PRINT, "lw": 1.1, "ls": "--"},
)
MOST_FITS = 24


class Fan(NamedTuple):
    """A forecast from the middle of a sequence, and what came, in the model's units.

    `xs` are the values before it and those that it is of, (steps, columns); the forecast is of the
    last of them, `quantiles` (levels, horizon, columns) at `FAN_LEVELS`. `first` is the number of
    the first of these steps in the sequence, and `times` are theirs, where the data have any.
    """

    name: str
    first: int
    xs: np.ndarray
    quantiles: np.ndarray
    times: np.ndarray | None

    @property
    def horizon(self) -> int:
        """How many steps are forecast."""
        return self.quantiles.shape[1]

    def shares(self) -> tuple[float | None, float | None]:
        """The shares of what came inside of the narrow band and of the wide one."""
        came = self.xs[-self.horizon :]
        seen = ~np.isnan(came)
        if not seen.any():
            return None, None
        low, lower, _, upper, high = self.quantiles
        within = (lower <= came) & (came <= upper), (low <= came) & (came <= high)
        return float(within[0][seen].mean()), float(within[1][seen].mean())


class Band(NamedTuple):
    """What is expected of each column at some times: (steps, columns), in the user's units."""

    times: np.ndarray
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray


class ColumnFit(NamedTuple):
    """A column, what its kind is, what the values are called, and how they fit."""

    name: str
    kind: str
    what: str
    fit: Marginal
    levels: tuple[str, ...] = ()


def draw_columns(dataset: Dataset, sequence: InspectedSequence, width: float) -> Figure:
    """Draw a panel for each column: its values, their prediction, and the band of it."""
    xs, mean, low, high = (
        restored(dataset, part)
        for part in (sequence.xs, sequence.mean, sequence.low, sequence.high)
    )
    at = sequence.first + np.arange(len(xs)) if sequence.times is None else sequence.times
    shown = drawn_columns(xs)
    figure, axes, below = stack(width, len(shown), 1.3)
    for i, axis in zip(shown, axes, strict=True):
        name, family = dataset.column_families[i]
        if not family.is_binary:
            axis.fill_between(at, low[:, i], high[:, i], color=COLOURS[0], alpha=0.18, lw=0)
        axis.plot(at, mean[:, i], color=COLOURS[0], lw=1.0)
        _values(axis, at, xs[:, i])
        title(axis, legible(name, 70 if width == WIDE else 34))
    surprise(below, sequence, axes)
    time_axis(below, dataset, sequence.times)
    return figure


def draw_fan(dataset: Dataset, found: Fan, width: float) -> Figure:
    """Draw a panel for each column: what came before, the bands ahead, and what came."""
    xs = restored(dataset, found.xs)
    quantiles = np.stack([restored(dataset, each) for each in found.quantiles])
    at = found.first + np.arange(len(xs)) if found.times is None else found.times
    ahead = at[-found.horizon :]
    shown = drawn_columns(xs)
    header = legend_height(width, 4)
    figure = blank(width, len(shown) * 1.5 + 0.6 + header)
    axes = np.ravel(figure.subplots(len(shown), 1, sharex=True))
    for i, axis in zip(shown, axes, strict=True):
        plain(axis)
        name, family = dataset.column_families[i]
        low, lower, middle, upper, high = quantiles[..., i]
        if not family.is_binary:
            axis.fill_between(ahead, low, high, color=COLOURS[0], alpha=0.14, lw=0)
            axis.fill_between(ahead, lower, upper, color=COLOURS[0], alpha=0.22, lw=0)
        axis.plot(ahead, middle, color=COLOURS[0], lw=1.2)
        _values(axis, at[: -found.horizon], xs[: -found.horizon, i])
        axis.plot(ahead, xs[-found.horizon :, i], ".", color=COLOURS[1], ms=4.5)
        axis.axvline(at[-found.horizon - 1], color=FRAME, lw=0.9)
        title(axis, legible(name, 70 if width == WIDE else 34))
    time_axis(axes[-1], dataset, found.times)
    names = ["before the forecast", "what came", "the middle of what was expected"]
    styles: list[dict[str, Any]] = [
        {"color": INK, "marker": ".", "lw": 0}, {"color": COLOURS[1], "marker": ".", "lw": 0},
        {"color": COLOURS[0], "lw": 1.2}, {"color": COLOURS[0], "alpha": 0.3, "lw": 7},
    ]  # fmt: skip
    legend(figure, [*names, "bands of 50% and 90%"], styles)
    return figure


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
    shown = (_changing(values) or list(range(values.shape[1])))[:MOST_PANELS]
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
        _missing(axis, band.times, values[:, k])
        title(axis, legible(dataset.column_families[k][0], 70 if width == WIDE else 34))
        axis.tick_params(labelcolor=INK, color=FRAME)
    _dates(axes[-1], band.times)
    x_label(axes[-1], time or "time")
    return figure


def draw_fits(fits: Sequence[ColumnFit]) -> Figure:
    """Draw a panel for each column: bars are shares of its training values, lines are expected."""
    shown = fits[:MOST_FITS]
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


def drawn_columns(xs: np.ndarray) -> list[int]:
    """The columns that have something to show, at most `MOST_PANELS`: constants have not."""
    return (_changing(xs) or [0])[:MOST_PANELS]


def restored(dataset: Dataset, xs: np.ndarray) -> np.ndarray:
    """Numbers of the model, (steps, columns) in the user's units."""
    return dataset.scaling.restore(np.asarray(xs, np.float64)).reshape(len(xs), -1)


def time_axis(axis: Axes, dataset: Dataset, times: np.ndarray | None) -> None:
    """Mark the times as the table has them: dates, numbers, or steps."""
    if times is None:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        x_label(axis, "step")
        return
    _dates(axis, times)
    name = getattr(dataset.schema, "time", None)
    x_label(axis, "step" if name is None else legible(name, 40))


def _dates(axis: Axes, times: np.ndarray) -> None:
    """Let dates be written shortly, where the times are dates."""
    if times.dtype.kind == "M":
        locator = AutoDateLocator(minticks=3, maxticks=7)
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        axis.xaxis.get_offset_text().set_fontsize(8)


def _changing(values: np.ndarray) -> list[int]:
    """The columns with more than one finite value."""
    spans = [column[np.isfinite(column)] for column in np.asarray(values, np.float64).T]
    return [k for k, seen in enumerate(spans) if seen.size and seen.min() < seen.max()]


def _values(axis: Axes, at: np.ndarray, values: np.ndarray) -> None:
    """Dots for what was observed, and marks at the bottom for what is missing."""
    axis.plot(at, values, ".", color=INK, ms=3.2)
    if _missing(axis, at, values):
        title(axis, "marks: missing", small=True)


def _missing(axis: Axes, at: np.ndarray, values: np.ndarray) -> bool:
    """Marks at the bottom for what is missing; returns whether anything is."""
    missing = at[np.isnan(values)]
    where = axis.get_xaxis_transform()
    axis.plot(missing, np.full(len(missing), 0.02), "|", color=MISSING, ms=5, transform=where)
    axis.yaxis.set_major_locator(MaxNLocator(4))
    return len(missing) > 0
