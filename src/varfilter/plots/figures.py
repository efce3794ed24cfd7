"""Figures of runs: how they learned, how well their bands hold, and sequences that were filtered.

Of a sequence: the data, what was predicted, what was inferred, the surprise.
"""

from collections.abc import Iterable, Mapping, Sequence
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
    NARROW,
    PALETTE,
    SMALL_PRINT,
    blank,
    legend,
    legend_height,
    legible,
    panels,
    plain,
    title,
    value_range,
    x_label,
    y_label,
)

Lines = Sequence[dict[str, Any]]
# What is plotted, by the path of it in a line of the metrics.
PANELS = (
    ("free energy", ("valid", "nats")),
    ("reconstruction, training", ("train", "reconstruction")),
    ("KL(q || p), training", ("train", "kl")),
    ("norm of the gradient, model", ("train", "theta_gradient_norm")),
    ("norm of the gradient, inference", ("train", "phi_gradient_norm")),
    ("weight of the KL", ("kl_weight",)),
)
MOST_COLUMNS = 8


def learning_curves(runs: Mapping[str, Lines], width: float) -> Figure:
    """Draw free energies, their parts, gradients and the KL's weight by epoch, of all runs."""
    shown = [panel for panel in PANELS if _has_changed(runs, panel[1])] or [PANELS[0]]
    figure, axes = panels(width, len(shown), 2.1, header=legend_height(width, len(runs) + 2))
    for axis, (name, path) in zip(axes, shown, strict=True):
        for (_, lines), colour in zip(runs.items(), _colours(len(runs)), strict=True):
            epochs, values = _series(lines, path)
            axis.plot(epochs, values, _dotted(values), color=colour, lw=1.4, ms=3)
            if name == "free energy":
                trained = _series(lines, ("train", "free_energy"))
                axis.plot(*trained, color=colour, lw=1.0, ls="--")
                if values.size:
                    best = int(np.argmin(values))
                    axis.plot(epochs[best], values[best], "*", ms=9, color=colour)
        if name == "free energy":
            _end_of_the_curves(axis)
        elif path == ("kl_weight",):
            axis.set_ylim(-0.05, 1.1)
        else:
            _logarithmic(axis)
        title(axis, name)
        y_label(
            axis, "" if path == ("kl_weight",) else "norm" if "norm" in name else "nats per step"
        )
        x_label(axis, "epoch")
        _epochs(axis)
    names = [*_short(runs, width), "free energy: validation, best starred", "free energy: training"]
    styles: list[dict[str, Any]] = [{"color": c, "lw": 2} for c in _colours(len(runs))]
    styles += [{"color": INK, "lw": 1.4}, {"color": INK, "lw": 1.0, "ls": "--"}]
    legend(figure, names, styles)
    return figure


def iterations(runs: Mapping[str, Sequence[float]], width: float) -> Figure:
    """Draw the free energy at the prior and after each inference iteration, of all runs."""
    figure, (axis,) = panels(width, 1, 2.9, header=legend_height(width, len(runs)))
    for values, colour in zip(runs.values(), _colours(len(runs)), strict=True):
        axis.plot(np.arange(len(values)), values, "-o", ms=4, lw=1.5, color=colour)
    most = max(map(len, runs.values())) - 1
    ticks = sorted({0, *np.unique(np.linspace(1, most, min(most, 8)).round().astype(int))})
    axis.set_xticks(ticks, ["prior", *map(str, ticks[1:])])
    axis.ticklabel_format(axis="y", useOffset=False)
    x_label(axis, "inference iteration")
    y_label(axis, "nats per step")
    legend(figure, _short(runs, width), [{"color": c, "lw": 2} for c in _colours(len(runs))])
    return figure


def calibration_curves(parts: Sequence[dict[str, Any]], width: float) -> Figure:
    """Draw coverage against its level and frequency against probability; right is diagonal."""
    kinds = [k for k in ("numeric", "binary") if any(_has(part, k) for part in parts)]
    drawn = {k: [p for p in parts if _has(p, k)][:MOST_COLUMNS] for k in kinds}
    named = list(dict.fromkeys(p["column"] for k in kinds for p in drawn[k] if p["column"]))
    header = legend_height(width, len(named)) if named else 0.0
    size = min(width, 3.9)
    figure, axes = panels(width, max(1, len(kinds)), size, header=header)
    colours = dict(zip(named, _colours(len(named)), strict=True))
    for axis, kind in zip(axes, kinds, strict=False):
        axis.plot([0, 1], [0, 1], color=SMALL_PRINT, lw=1.0, ls="--")
        for part in drawn[kind]:
            xs = part["nominal" if kind == "numeric" else "predicted"]
            colour = colours.get(part["column"], PALETTE[0])
            axis.plot(xs, part["observed"], "-o", ms=4, lw=1.4, color=colour)
        axis.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        axis.set_box_aspect(1)
        if kind == "numeric":
            title(axis, "intervals")
            x_label(axis, "nominal level of the interval")
            y_label(axis, "values inside it")
        else:
            title(axis, "probabilities")
            x_label(axis, "predicted probability of a 1")
            y_label(axis, "frequency of a 1")
    if named:
        legend(figure, _short(named, width), [{"color": colours[n], "lw": 2} for n in named])
    return figure


def validation_curves(runs: Mapping[str, Lines], width: float) -> Figure:
    """Draw the validation free energy per step by epoch (figure 4a of the paper)."""
    figure, (axis,) = panels(width, 1, 3.1, header=legend_height(width, len(runs)))
    for lines, colour in zip(runs.values(), _colours(len(runs)), strict=True):
        epochs, values = _series(lines, ("valid", "nats"))
        axis.plot(epochs, values, _dotted(values), color=colour, lw=1.5, ms=3)
    _end_of_the_curves(axis)
    x_label(axis, "epoch")
    _epochs(axis)
    y_label(axis, "validation, nats per step")
    legend(figure, _short(runs, width), [{"color": c, "lw": 2} for c in _colours(len(runs))])
    return figure


def relative_improvement(by_iteration: Sequence[float], width: float) -> Figure:
    """Draw 100 (F at the prior - F after k iterations) / |F at the prior| (figure 4b)."""
    figure, (axis,) = panels(width, 1, 2.8)
    values = improvement(by_iteration)
    axis.plot(np.arange(len(values)), values, "-o", ms=4, lw=1.5, color=PALETTE[0])
    axis.set_xticks(range(len(values)), ["prior", *map(str, range(1, len(values)))])
    x_label(axis, "inference iteration")
    y_label(axis, "improvement on the prior, %")
    return figure


def improvement(by_iteration: Sequence[float]) -> list[float]:
    """How far each iteration is below the prior, in percent of the free energy there."""
    first = by_iteration[0]
    return [100.0 * (first - value) / abs(first) for value in by_iteration]


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


def _has_changed(runs: Mapping[str, Lines], path: tuple[str, ...]) -> bool:
    """Whether there is anything to see: a constant, such as a weight that is always 1, is not.

    The single value of a run that was validated once is shown.
    """
    values = [_series(lines, path)[1] for lines in runs.values()]
    is_once = max(map(len, values), default=0) == 1 and path != ("kl_weight",)
    return is_once or any(np.ptp(each) > 0 for each in values if each.size)


def _series(lines: Lines, path: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(epochs, values) of the lines that have such a value."""
    pairs = []
    for line in lines:
        value: Any = line
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, int | float) and np.isfinite(value):
            pairs.append((line["epoch"], value))
    found = np.asarray(pairs, np.float64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _dotted(values: np.ndarray) -> str:
    """The style of a curve: with dots if it is short, since one value alone makes no line."""
    return "-o" if len(values) <= 12 else "-"


def _end_of_the_curves(axis: Axes) -> None:
    """Scale to the end of the curves: the first epochs are far off the scale of the rest."""
    values = [np.asarray(line.get_ydata(), np.float64) for line in axis.lines]
    values = [v for v in values if v.size > 1]
    if sum(map(len, values)) < 12 or not values:
        return
    low, high = min(v.min() for v in values), max(np.quantile(v, 0.9) for v in values)
    if high > low:
        axis.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))


def _epochs(axis: Axes) -> None:
    """Mark whole epochs, or parts of one where there are few."""
    is_long = axis.dataLim.x1 >= 4
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=is_long, min_n_ticks=1))


def _logarithmic(axis: Axes) -> None:
    """Scale logarithmically where the values span more than an order of magnitude."""
    values = np.concatenate([np.asarray(line.get_ydata(), np.float64) for line in axis.lines])
    if values.size and values.min() > 0 and values.max() > 30 * values.min():
        axis.set_yscale("log")


def _has(part: dict[str, Any], kind: str) -> bool:
    return part["kind"] == kind and part["num_values"] > 0


def _colours(count: int) -> list[str]:
    return [PALETTE[i % len(PALETTE)] for i in range(count)]


def _short(names: Iterable[str], width: float) -> list[str]:
    most = 44 if width == NARROW else 58
    return [legible(name, most) for name in names]
