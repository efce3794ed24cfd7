"""Figures of filtered sequences: the data, what was predicted, what was inferred, the surprise."""

from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from varfilter.data.dataset import Dataset
from varfilter.plots.datasets import MOST_SHARP
from varfilter.plots.style import (
    ALARM,
    COLOURS,
    FRAME,
    INK,
    MISSING,
    blank,
    plain,
    title,
    value_range,
    x_label,
    y_label,
)


class InspectedSequence(NamedTuple):
    """The scored steps of a sequence, in the model's units; time is the first axis of each.

    - `mean`, `low`, `high`: of the prediction p(x_t | x_<t, z_<t), the 5% and the 95% quantile.
    - `ranks`: of x_t among draws of its prediction, from 0 to 1, with ties broken at random:
      uniform if the predictions are right (the randomised probability integral transform).
      NaN where x_t is missing.
    - `reconstruction`: the mean of p(x_t | z_t) for the z_t ~ q_t that is passed on, over all
      trajectories by their weight after x_t; None for filters that draw no z_t.
    - `surprise`: minus the bound, in nats.

    `first` is the number of the first of these steps (0 is conditioned on, not scored), and
    `num_steps` of the last that the whole sequence has. `times` are those of the steps, where the
    data have any.
    """

    name: str
    first: int
    num_steps: int
    xs: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    ranks: np.ndarray
    reconstruction: np.ndarray | None
    surprise: np.ndarray
    times: np.ndarray | None = None

    def part(self, begin: int, end: int) -> "InspectedSequence":
        """Some of its steps, counted from the first of them."""
        cut = {
            name: value[begin:end]
            for name, value in self._asdict().items()
            if isinstance(value, np.ndarray)
        }
        return self._replace(first=self.first + begin, **cut)


def most_surprising(sequence: InspectedSequence, count: int = 3) -> list[dict[str, Any]]:
    """The numbers of the steps with the highest surprise, in their order, and their surprise."""
    steps = np.sort(np.argsort(-sequence.surprise, kind="stable")[:count])
    return [
        {"step": sequence.first + int(t), "surprise": float(sequence.surprise[t])} for t in steps
    ]


def caption(sequence: InspectedSequence, text: str) -> str:
    """What a figure of a sequence shows; `text` is what such figures show in that medium."""
    first, last = sequence.first, sequence.first + len(sequence.xs) - 1
    if sequence.reconstruction is None:
        text += " This filter has no reconstruction."
    marked = ", ".join(str(each["step"]) for each in most_surprising(sequence))
    return (
        f"{sequence.name}: steps {first} to {last} of {sequence.num_steps}. {text} Marked: the most"
        f" surprising steps, {marked}."
    )


def drawn_rows(sequence: InspectedSequence) -> dict[str, np.ndarray]:
    """The data and what the filter made of them, by the title of the panel."""
    rows = {"data": sequence.xs, "prediction": sequence.mean}
    if sequence.reconstruction is not None:
        rows["reconstruction"] = sequence.reconstruction
    return rows


def images(
    dataset: Dataset,
    sequence: InspectedSequence,
    width: float,
    *,
    colours: Colormap | None = None,
    limits: tuple[float, float] | None = None,
    first: int = 0,
    label: str = "element",
) -> tuple[Figure, list[Axes]]:
    """Draw elements, numbered from `first`, against steps; (figure, panels).

    Without `limits` the values are in the user's units, on the scale of the data.
    """
    rows = {name: v.reshape(len(v), -1).T for name, v in drawn_rows(sequence).items()}
    if limits is None:
        rows = {name: dataset.scaling.restore(values.T).T for name, values in rows.items()}
        limits = value_range([rows["data"]])
    colours = colours or matplotlib.colormaps["magma"].with_extremes(bad=MISSING)
    figure, axes, below = stack(width, len(rows), 1.35)
    for axis, (name, values) in zip(axes, rows.items(), strict=True):
        extent = (
            sequence.first - 0.5, sequence.first + values.shape[1] - 0.5,
            first - 0.5, first + len(values) - 0.5,
        )  # fmt: skip
        axis.imshow(
            values, cmap=colours, vmin=limits[0], vmax=limits[1], origin="lower", aspect="auto",
            extent=extent, interpolation="nearest" if len(values) <= MOST_SHARP else "auto",
        )  # fmt: skip
        title(axis, name)
        y_label(axis, label)
        axis.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    surprise(below, sequence, axes)
    return figure, axes


def stack(width: float, count: int, height: float) -> tuple[Figure, list[Axes], Axes]:
    """(figure, panels, a last panel for the surprise), one below another, on one time axis."""
    figure = blank(width, count * (height + 0.2) + 1.6)
    *axes, below = figure.subplots(
        count + 1, 1, sharex=True, height_ratios=[height] * count + [1.05]
    )
    for axis in (*axes, below):
        plain(axis, grid=axis is below)
    return figure, axes, below


def surprise(
    axis: Axes,
    sequence: InspectedSequence,
    above: list[Axes],
    *,
    start: float | None = None,
    per_step: float = 1.0,
) -> None:
    """Draw the surprise of each step; the most surprising ones are marked, here and above."""
    begin = float(sequence.first) if start is None else start
    # Of sound, a step is as long as its samples: it is drawn over all of them.
    shift = 0.0 if start is None else per_step / 2
    times: Any = begin + shift + per_step * np.arange(len(sequence.surprise))
    margin: Any = per_step / 2
    if sequence.times is not None:
        times = sequence.times
        margin = np.median(np.diff(times)) / 2 if len(times) > 1 else None
    axis.plot(times, sequence.surprise, color=COLOURS[0], lw=1.1)
    for each in most_surprising(sequence):
        t = each["step"] - sequence.first
        axis.plot(times[t], sequence.surprise[t], "o", ms=8, mfc="none", mec=ALARM, mew=1.4)
        for other in above:
            other.axvline(times[t], color=ALARM, lw=0.9, alpha=0.55)
    axis.margins(y=0.2)  # room for the marks
    if margin is not None:
        axis.set_xlim(times[0] - margin, times[-1] + margin)
    if start is None:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.yaxis.set_major_locator(MaxNLocator(3))
    axis.tick_params(labelcolor=INK, color=FRAME)
    title(axis, "surprise")
    x_label(axis, "step")
    y_label(axis, "nats")
