"""Figures of numbers: how runs learned, what inference gains, and how well predictions hold.

A difference is drawn beside what it is worth: an axis spans no less than the noise of what it
shows, so that a fall of a millionth does not fill the picture.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from varfilter._text import count
from varfilter.plots.style import (
    INK,
    NARROW,
    PALETTE,
    SMALL_PRINT,
    legend,
    legend_height,
    legible,
    panels,
    title,
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
# A curve of no more values has a dot for each.
FEW = 12
# What has a natural zero is drawn from there, unless it spans orders of magnitude.
FROM_ZERO = ("kl", "theta_gradient_norm", "phi_gradient_norm")
# No axis spans less than this part of its values.
LEAST_SPAN = 1e-3


def learning_curves(runs: Mapping[str, Lines], width: float) -> Figure:
    """Draw free energies, their parts, gradients and the KL's weight by epoch, of all runs.

    The shade about a validation curve is its standard error over sequences.
    """
    shown = [panel for panel in PANELS if _has_changed(runs, panel[1])] or [PANELS[0]]
    figure, axes = panels(width, len(shown), 2.1, header=legend_height(width, len(runs) + 2))
    for axis, (name, path) in zip(axes, shown, strict=True):
        noise, ends = 0.0, []
        for (_, lines), colour in zip(runs.items(), _colours(len(runs)), strict=True):
            epochs, values = _series(lines, path)
            axis.plot(epochs, values, _dotted(values), color=colour, lw=1.4, ms=3)
            if name == "free energy":
                noise = max(noise, _shade(axis, lines, colour))
                trained = _series(lines, ("train", "free_energy"))
                dots = "o" if len(trained[1]) <= FEW else ""  # one value alone makes no line
                axis.plot(*trained, color=colour, lw=1.0, ls="--", marker=dots, ms=2.5)
                if values.size:
                    best = int(np.argmin(values))
                    axis.plot(epochs[best], values[best], "*", ms=9, color=colour)
                    ends += [values[-1] - noise, values[-1] + noise]
        if name == "free energy":
            _end_of_the_curves(axis)
            _widen(axis, noise)
            _show(axis, ends)
        elif path == ("kl_weight",):
            axis.set_ylim(-0.05, 1.1)
        elif not _logarithmic(axis):
            if path[-1] in FROM_ZERO:
                low, high = axis.get_ylim()
                # What hardly changes would lie on the upper edge: the room was for its changes.
                axis.set_ylim(min(0.0, low), max(high, 1.05 * axis.dataLim.ymax))
            _widen(axis)
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


def iterations(
    runs: Mapping[str, Sequence[float]],
    width: float,
    errors: Mapping[str, Sequence[float] | None] = MappingProxyType({}),
) -> Figure:
    """Draw the free energy at the prior and after each inference iteration, of all runs.

    `errors` are the standard errors of what was gained since the prior, where they are known.
    """
    figure, (axis,) = panels(width, 1, 2.9, header=legend_height(width, len(runs)))
    noise = 0.0
    for (name, values), colour in zip(runs.items(), _colours(len(runs)), strict=True):
        places, own = np.arange(len(values)), errors.get(name)
        axis.plot(places, values, "-o", ms=4, lw=1.5, color=colour)
        if own is not None:
            axis.errorbar(
                places, values, own, fmt="none", ecolor=colour, elinewidth=1.0, capsize=2.5
            )
            noise = max(noise, *own)
    _widen(axis, noise)
    most = max(map(len, runs.values())) - 1
    ticks = sorted({0, *np.unique(np.linspace(1, most, min(most, 8)).round().astype(int))})
    axis.set_xticks(ticks, ["prior", *map(str, ticks[1:])])
    x_label(axis, "inference iteration")
    y_label(axis, "nats per step")
    legend(figure, _short(runs, width), [{"color": c, "lw": 2} for c in _colours(len(runs))])
    return figure


def calibration_curves(parts: Sequence[dict[str, Any]], width: float) -> Figure:
    """Draw coverage against its level and frequency against probability; right is diagonal.

    Bars are standard errors over sequences, and numbers say how many values a point stands for.
    """
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
            if kind == "numeric":
                axis.plot(xs, part["observed"], "-o", ms=4, lw=1.4, color=colour)
            else:  # a point of few values is a small one
                axis.plot(xs, part["observed"], lw=1.0, color=colour, alpha=0.35)
                shares = np.sqrt(np.asarray(part["counts"]) / max(part["counts"]))
                axis.scatter(xs, part["observed"], 8 + 50 * shares, color=colour, zorder=3)
            if part.get("standard_error"):
                axis.errorbar(
                    xs, part["observed"], part["standard_error"], fmt="none", ecolor=colour,
                    elinewidth=1.0, capsize=2.5, alpha=0.7,
                )  # fmt: skip
        if len(drawn[kind]) == 1:
            _counts(axis, drawn[kind][0])
        # There is room for counts above a point at 1, and below one at 0.
        room = 0.02 if kind == "numeric" else 0.08
        axis.set(xlim=(-0.02 - room / 4, 1.02 + room / 4), ylim=(-room, 1.0 + room))
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


def by_step(measures: Sequence[dict[str, Any]], width: float) -> Figure:
    """Draw measures of predictions 1, 2, ... steps ahead, each predictor in its colour."""
    names = list(dict.fromkeys(name for each in measures for name in each["by_step"]))
    figure, axes = panels(width, len(measures), 2.6, header=legend_height(width, len(names)))
    colours = dict(zip(names, _colours(len(names)), strict=True))
    for axis, measure in zip(axes, measures, strict=True):
        for i, (name, values) in enumerate(measure["by_step"].items()):
            ahead, errors = np.arange(1, len(values) + 1), measure["errors"].get(name)
            # The first is on top, and what lies under it is wider: nothing is hidden.
            axis.plot(
                ahead, values, _dotted(np.asarray(values)), color=colours[name], lw=1.4 + 1.2 * i,
                ms=3 + 1.2 * i, zorder=2.5 - 0.1 * i,
            )  # fmt: skip
            if errors is not None:
                axis.errorbar(
                    ahead, values, errors, fmt="none", ecolor=colours[name], elinewidth=0.9,
                    capsize=2, alpha=0.7,
                )  # fmt: skip
        _widen(axis)
        title(axis, measure["name"])
        x_label(axis, "steps ahead")
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    legend(figure, _short(names, width), [{"color": colours[name], "lw": 2} for name in names])
    return figure


def validation_curves(runs: Mapping[str, Lines], width: float) -> Figure:
    """Draw the validation free energy per step by epoch (figure 4a of the paper)."""
    figure, (axis,) = panels(width, 1, 3.1, header=legend_height(width, len(runs)))
    for lines, colour in zip(runs.values(), _colours(len(runs)), strict=True):
        epochs, values = _series(lines, ("valid", "nats"))
        axis.plot(epochs, values, _dotted(values), color=colour, lw=1.5, ms=3)
    _end_of_the_curves(axis)
    _widen(axis)
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
    return "-o" if len(values) <= FEW else "-"


def _end_of_the_curves(axis: Axes) -> None:
    """Scale to the end of the curves: the first epochs are far off the scale of the rest."""
    values = [np.asarray(line.get_ydata(), np.float64) for line in axis.lines]
    values = [v for v in values if v.size > 1]
    if sum(map(len, values)) < 12 or not values:
        return
    low, high = min(v.min() for v in values), max(np.quantile(v, 0.9) for v in values)
    if high > low:
        axis.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))


def _shade(axis: Axes, lines: Lines, colour: str) -> float:
    """Shade the standard error about a validation curve; return that of the last validation."""
    kept = [line for line in lines if (line.get("valid") or {}).get("standard_error")]
    epochs, values = _series(kept, ("valid", "nats"))
    _, errors = _series(kept, ("valid", "standard_error"))
    if not len(values) or len(values) != len(errors):
        return 0.0
    axis.fill_between(epochs, values - errors, values + errors, color=colour, alpha=0.13, lw=0)
    return float(errors[-1])


def _widen(axis: Axes, noise: float = 0.0) -> None:
    """Let an axis span no less than two standard errors and a thousandth of its values."""
    axis.ticklabel_format(axis="y", useOffset=False)
    low, high = axis.get_ylim()
    least = max(2.0 * noise, LEAST_SPAN * max(abs(low), abs(high)))
    if high - low < least:
        middle = (low + high) / 2
        axis.set_ylim(middle - least / 2, middle + least / 2)


def _show(axis: Axes, values: Sequence[float]) -> None:
    """Let an axis reach these values, with a little room beyond them."""
    low, high = axis.get_ylim()
    room = 0.04 * (high - low)
    axis.set_ylim(
        min([low, *(value - room for value in values)]),
        max([high, *(value + room for value in values)]),
    )


def _counts(axis: Axes, part: dict[str, Any]) -> None:
    """Write beside each point how many values it stands for; of intervals all have the same."""
    style: dict[str, Any] = {"fontsize": 7, "color": SMALL_PRINT}
    if part["kind"] == "numeric":
        title(axis, count(part["num_values"], "value") + " at each point", small=True)
        return
    points = zip(part["predicted"], part["observed"], part["counts"], strict=True)
    for predicted, observed, number in points:
        # Below the diagonal there is room below, above it above.
        up = 7 if observed >= predicted else -11
        axis.annotate(
            _rounded(number), (predicted, observed), (0, up), textcoords="offset points",
            ha="center", **style,
        )  # fmt: skip
    title(axis, "values at each point", small=True)


def _rounded(number: int) -> str:
    """A count in few letters."""
    for divisor, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= divisor:
            return f"{number / divisor:.3g}{unit}"
    return str(number)


def _epochs(axis: Axes) -> None:
    """Mark whole epochs, or parts of one where there are few; a single one has 0 beside it."""
    first, last = axis.dataLim.x0, axis.dataLim.x1
    if first == last > 0:
        axis.set_xlim(0.0, 2.0 * last)
    is_long = last >= 4
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=is_long, min_n_ticks=1))


def _logarithmic(axis: Axes) -> bool:
    """Scale logarithmically where the values span more than an order of magnitude, and say so."""
    values = np.concatenate([np.asarray(line.get_ydata(), np.float64) for line in axis.lines])
    is_wide = bool(values.size and values.min() > 0 and values.max() > 30 * values.min())
    if is_wide:
        axis.set_yscale("log")
    return is_wide


def _has(part: dict[str, Any], kind: str) -> bool:
    return part["kind"] == kind and part["num_values"] > 0


def _colours(count: int) -> list[str]:
    return [PALETTE[i % len(PALETTE)] for i in range(count)]


def _short(names: Iterable[str], width: float) -> list[str]:
    most = 44 if width == NARROW else 58
    return [legible(name, most) for name in names]
