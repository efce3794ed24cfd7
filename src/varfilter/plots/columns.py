"""Figures of tables, a panel for each column in its own units, on the axis of its own times."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from varfilter.data.dataset import Dataset
from varfilter.plots.datasets import MOST_PANELS
from varfilter.plots.figures import InspectedSequence, stack, surprise
from varfilter.plots.style import (
    COLOURS,
    FRAME,
    INK,
    MISSING,
    WIDE,
    blank,
    legend,
    legend_height,
    legible,
    plain,
    title,
    x_label,
)

# The quantiles of a fan: its wide band, its narrow one, and the line in the middle.
FAN_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


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


def columns(dataset: Dataset, sequence: InspectedSequence, width: float) -> Figure:
    """Draw a panel for each column: its values, their prediction, and the band of it."""
    xs, mean, low, high = (
        restored(dataset, part)
        for part in (sequence.xs, sequence.mean, sequence.low, sequence.high)
    )
    at = sequence.first + np.arange(len(xs)) if sequence.times is None else sequence.times
    shown = drawn_columns(dataset, xs)
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


def fan(dataset: Dataset, found: Fan, width: float) -> Figure:
    """Draw a panel for each column: what came before, the bands ahead, and what came."""
    xs = restored(dataset, found.xs)
    quantiles = np.stack([restored(dataset, each) for each in found.quantiles])
    at = found.first + np.arange(len(xs)) if found.times is None else found.times
    ahead = at[-found.horizon :]
    shown = drawn_columns(dataset, xs)
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


def drawn_columns(dataset: Dataset, xs: np.ndarray) -> list[int]:
    """The columns that have something to show, at most `MOST_PANELS`: constants have not."""
    changing = [i for i in range(xs.shape[1]) if np.unique(xs[~np.isnan(xs[:, i]), i]).size > 1]
    return (changing or [0])[:MOST_PANELS]


def restored(dataset: Dataset, xs: np.ndarray) -> np.ndarray:
    """Numbers of the model, (steps, columns) in the user's units."""
    return dataset.scaling.restore(np.asarray(xs, np.float64)).reshape(len(xs), -1)


def time_axis(axis: Axes, dataset: Dataset, times: np.ndarray | None) -> None:
    """Mark the times as the table has them: dates, numbers, or steps."""
    if times is None:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        x_label(axis, "step")
        return
    if times.dtype.kind == "M":
        locator = AutoDateLocator(minticks=3, maxticks=7)
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        axis.xaxis.get_offset_text().set_fontsize(8)
    name = getattr(dataset.schema, "time", None)
    x_label(axis, "step" if name is None else legible(name, 40))


def _values(axis: Axes, at: np.ndarray, values: np.ndarray) -> None:
    """Dots for what was observed, and marks at the bottom for what is missing."""
    axis.plot(at, values, ".", color=INK, ms=3.2)
    missing = at[np.isnan(values)]
    where = axis.get_xaxis_transform()
    axis.plot(missing, np.full(len(missing), 0.02), "|", color=MISSING, ms=5, transform=where)
    axis.yaxis.set_major_locator(MaxNLocator(4))
    if len(missing):
        title(axis, "marks: missing", small=True)
