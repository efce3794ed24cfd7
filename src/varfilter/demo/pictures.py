"""The demo's pictures, as PNG bytes."""

import io
from typing import Any

import matplotlib

matplotlib.use("Agg")  # before pyplot: no screen is needed
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from varfilter.demo.pendulum import (
    FAULT,
    FAULT_STEPS,
    HORIZON,
    MIDDLE,
    PendulumResult,
    Watched,
)
from varfilter.demo.tracker import TrackerResult

COLOURS = {
    "avf": "#1f5fbf",
    "amortized": "#d9731a",
    "gradient": "#2b8a57",
    "exact": "#333333",
    "prior": "#999999",
}
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def training_curves(tracker: TrackerResult, pendulum: PendulumResult) -> bytes:
    """Free energy of the training batches, both worlds."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
        for axis, result, title in (
            (axes[0], tracker, "tracker"),
            (axes[1], pendulum, "pendulum"),
        ):
            ends = []
            for short, name in (("avf", "AVF"), ("amortized", "amortized baseline")):
                curve = _smooth(result.trained[short].curve)
                axis.plot(curve, color=COLOURS[short], label=name, lw=1.5)
                ends += [np.min(curve), np.quantile(curve, 0.9)]
            if title == "tracker":
                axis.axhline(
                    tracker.scores["exact"].free_energy,
                    color=COLOURS["exact"], ls="--", lw=1, label="exact optimum",
                )  # fmt: skip
            # The first updates are far off the scale of the rest; the curve's end is the story.
            margin = 0.08 * (max(ends) - min(ends))
            axis.set_ylim(min(ends) - margin, max(ends) + margin)
            axis.set(title=title, xlabel="update", ylabel="free energy, nats per step")
            axis.legend()
        return _png(figure)


def iterations(tracker: TrackerResult, pendulum: PendulumResult) -> bytes:
    """Free energy against inference iteration on held-out data, both worlds."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
        for axis, result, title in (
            (axes[0], tracker, "tracker"),
            (axes[1], pendulum, "pendulum (both with AVF's model)"),
        ):
            for short, name in (("gradient", "gradient descent"), ("avf", "AVF")):
                values = result.scores[short].free_energies
                axis.plot(
                    np.arange(len(values)), values,
                    "-o", ms=3.5, lw=1.5, color=COLOURS[short], label=name,
                )  # fmt: skip
            if title == "tracker":
                axis.axhline(
                    tracker.scores["exact"].free_energy,
                    color=COLOURS["exact"], ls="--", lw=1, label="exact optimum",
                )  # fmt: skip
            axis.set_xscale("symlog", linthresh=1)
            axis.set_xticks(
                [0, 1, 2, 5, 10, 20, 50, 100], ["prior", *["1", "2", "5", "10", "20", "50", "100"]]
            )
            axis.set_xlim(-0.1, len(result.scores["gradient"].free_energies) * 1.1)
            axis.minorticks_off()
            axis.set(title=title, xlabel="inference iteration", ylabel="free energy, nats per step")
            axis.legend()
        return _png(figure)


def frames(watched: Watched) -> bytes:
    """Data, prediction, after update, forecast, and what really came: a strip from the middle."""
    steps = range(MIDDLE - 2, MIDDLE + HORIZON)
    nothing = np.full_like(watched.frames[0], np.nan)

    def ahead(images: np.ndarray) -> list[np.ndarray]:
        return [images[t - MIDDLE] if t >= MIDDLE else nothing for t in steps]

    rows = {
        "data": [watched.frames[t] for t in steps],
        "prediction": [watched.predictions[t] for t in steps],
        "after update": [watched.updates[t] for t in steps],
        f"forecast\nfrom t={MIDDLE}": ahead(watched.forecast_mean),
        "one possible\nfuture": ahead(watched.forecast_sample),
        "what came\n(no noise)": ahead(watched.future),
    }
    with plt.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = plt.subplots(
            len(rows), len(steps), figsize=(10, 5.2), layout="constrained",
            gridspec_kw={"wspace": 0.03, "hspace": 0.03},
        )  # fmt: skip
        colours = plt.get_cmap("magma").copy()
        colours.set_bad("#9db4c0")
        for row, (name, images) in zip(axes, rows.items(), strict=True):
            for axis, image, t in zip(row, images, steps, strict=True):
                axis.set(xticks=[], yticks=[])
                axis.spines[:].set_visible(False)
                if not np.isnan(image).all():
                    axis.imshow(image, cmap=colours, vmin=-0.2, vmax=1.1, interpolation="nearest")
                else:
                    axis.set_facecolor("#f4f4f4")
                if name == "data":
                    axis.set_title(f"t={t}", fontsize=9)
            row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
        return _png(figure)


def surprise(watched: Watched) -> bytes:
    """The surprise of each frame, the alarm level, and the fault."""
    with plt.rc_context(STYLE):
        figure, (top, below) = plt.subplots(
            2, 1, figsize=(9, 4.2), layout="constrained", height_ratios=[1, 2.4]
        )
        _strip(top, watched)
        below.axvspan(
            FAULT - 0.5, FAULT + FAULT_STEPS - 0.5, color="#c62828", alpha=0.12, label="fault"
        )
        below.plot(watched.surprise, "-o", ms=3, lw=1.3, color=COLOURS["avf"], label="surprise")
        below.axhline(
            watched.alarm_level, color="#c62828", ls="--", lw=1, label="alarm level (1 in 1,000)"
        )
        below.plot(
            watched.alarms, watched.surprise[watched.alarms],
            "o", ms=9, mfc="none", mec="#c62828", mew=1.5, label="flagged",
        )  # fmt: skip
        below.set(xlabel="step", ylabel="surprise, nats", xlim=(-0.5, len(watched.surprise) - 0.5))
        below.legend(loc="upper left", ncols=2)
        return _png(figure)


def _strip(axis: Axes, watched: Watched) -> None:
    """The frames round the fault, side by side."""
    steps = list(range(FAULT - 4, FAULT + FAULT_STEPS + 4))
    size = watched.frames.shape[1]
    gap = np.full((size, 1), np.nan)
    pieces = [piece for t in steps for piece in (watched.frames[t], gap)]
    colours = plt.get_cmap("magma").copy()
    colours.set_bad("white")
    axis.imshow(np.concatenate(pieces, axis=1), cmap=colours, vmin=-0.2, vmax=1.1, aspect="equal")
    axis.set(yticks=[])
    axis.set_xticks([(i + 0.5) * (size + 1) - 0.5 for i in range(len(steps))])
    labels = axis.set_xticklabels([f"t={t}" for t in steps], fontsize=8)
    for t, label in zip(steps, labels, strict=True):
        label.set_color("#c62828" if FAULT <= t < FAULT + FAULT_STEPS else "black")
    axis.spines[:].set_visible(False)
    axis.grid(False)
    axis.tick_params(length=0)


def _smooth(curve: np.ndarray, width: int = 15) -> np.ndarray:
    """A running median: one odd batch does not hide the trend."""
    padded = np.pad(curve, width // 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=-1)


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    plt.close(figure)
    return buffer.getvalue()
