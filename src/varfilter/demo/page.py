"""The demo: both worlds run, their tables printed, and one HTML page with its pictures inside."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import jax
import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from varfilter.demo.pendulum import (
    FAULT,
    FAULT_STEPS,
    HORIZON,
    MIDDLE,
    NUM_PARTICLES,
    PendulumResult,
    Watched,
    swing,
)
from varfilter.demo.worlds import Score, TrackerResult, track
from varfilter.plots.page import cards, document, illustration, table
from varfilter.plots.style import (
    ALARM,
    COLOURS,
    INK,
    MISSING,
    OUTSIDE,
    WIDE,
    blank,
    legend,
    legend_height,
    panels,
    plain,
    title,
    x_label,
    y_label,
)

T = TypeVar("T")

AVF, AMORTIZED, GRADIENT = COLOURS
# Black and white of the images, which have noise about the spot of height 1.
LIMITS: dict[str, Any] = {"vmin": -0.2, "vmax": 1.1}
OPTIMUM: dict[str, Any] = {"color": INK, "ls": "--", "lw": 1.0}


def run_demo(out: Path, seed: int, *, effort: float = 1.0) -> Path:
    """Train, filter, forecast and find the fault; returns the path of the page that was written.

    Beside the page it writes `results.json` with every figure that the page shows. `effort` is
    the share of the updates that are made: with less than 1 the figures are worse.
    """
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    # A folder that cannot be written to is found now, not at the end.
    (out / "results.json").touch()
    begin = time.perf_counter()
    key_tracker, key_pendulum = jax.random.split(jax.random.key(seed))
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
    ) as progress:
        # Side by side: most of the time goes into compiling, which leaves a core idle now and then.
        tracked = _beside(lambda: track(key_tracker, progress, effort))
        pendulum = swing(key_pendulum, progress, effort)
        tracker = tracked.result()
    seconds = time.perf_counter() - begin
    _print_tables(console, tracker, pendulum)

    path = out / "index.html"
    (out / "results.json").write_text(_as_json(tracker, pendulum, seed, seconds), encoding="utf-8")
    path.write_text(render(tracker, pendulum, seed=seed, seconds=seconds), encoding="utf-8")
    console.print(f"\n{seconds:.0f} s. The page with tables and pictures:")
    console.print(str(path.resolve()), soft_wrap=True)
    return path


def _beside(function: Callable[[], T]) -> "Future[T]":
    """Begin it in a thread of its own, which a process that is interrupted does not wait for."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # it is raised again where the result is asked for
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def render(tracker: TrackerResult, pendulum: PendulumResult, *, seed: int, seconds: float) -> str:
    """The HTML of the whole page."""
    watched = pendulum.watched
    found = "found" if watched.is_fault_found else "not found"
    many, blind = pendulum.scores["particles"], pendulum.scores["prior"]
    shown = [
        (f"{tracker.gap:.3f} nats", "from the exact answer, per step: what the learned filter loses"
         " where the best possible one is known (1)"),
        (f"{many.prediction_error:.3f}", f"off, on a scale of 0 to 1, is each pixel of the next"
         f" frame of a pendulum ({blind.prediction_error:.3f} without inference) (2)"),
        (found, f"the fault at steps {FAULT} to {FAULT + FAULT_STEPS - 1}, by its surprise"),
    ]  # fmt: skip
    body = f"""<h1>varfilter demo</h1>
<p class="lead">Two simulated worlds, learned and filtered on this machine in {seconds:.0f} s
(seed {seed}). Free energy is an upper bound on &minus;log p(data), in nats; lower is better.</p>
{cards(shown)}

<h2>1. A tracker, where the best answer is known</h2>
<p>A particle on a spring, seen through noise. The model is the true one, and only the inference
is learned, so every method can be held against the exact answer. Held-out sequences.</p>
{_tracker_table(tracker)}
<p class="note">The Kalman filter carries a distribution; many weighted trajectories come close to
it, one sampled trajectory (which is what training uses) does not. Among the methods with one
trajectory none must beat the exact posterior of each step, but one may: that posterior is best for
its own step, not for those that start from its sample. The amortized baseline is trained through
time and AVF step by step, for the same number of updates on the same sequences. The first step of
a sequence is conditioned on, and not scored.</p>

<h2>2. A pendulum in noisy images with missing pixels</h2>
<p>16&times;16 pixels, one in five of them missing in every frame, none of the physics known: an
SRNN (a stochastic recurrent network) and its inference are learned from the images alone.
Held-out videos. Below, the video is filtered with {NUM_PARTICLES} trajectories.</p>
{_pendulum_table(pendulum)}

<h2>Training</h2>
{
        illustration(
            lambda width: _training_curves(tracker, pendulum, width),
            "Free energy of the training batches (running median of 15).",
        )
    }

<h2>What inference does</h2>
{
        illustration(
            lambda width: _iterations(tracker, pendulum, width),
            "Free energy after each inference iteration, from the prior on, held-out data. AVF has"
            " learned to take in two steps what gradient descent needs many for.",
        )
    }

<h2>Filtering and forecasting a held-out video</h2>
{
        illustration(
            lambda width: _frames(watched, width),
            "Grey-blue pixels are missing. The prediction is made before the frame is seen. The"
            " forecast is made once, in the middle, and looks ten steps ahead: its mean blurs as"
            " the future becomes uncertain, a single possible future does not.",
        )
    }

<h2>A fault shows as surprise</h2>
{
        illustration(
            lambda width: _surprise(watched, width),
            f"For two frames (t={FAULT}, {FAULT + FAULT_STEPS - 1}) the bob is shown elsewhere."
            f" Flagged steps: {', '.join(map(str, watched.alarms)) or 'none'}. The alarm level was"
            " set on undisturbed videos; the first steps of a video are not judged.",
        )
    }
"""
    return document("varfilter demo", body)


def _print_tables(console: Console, tracker: TrackerResult, pendulum: PendulumResult) -> None:
    table = Table(title="Tracker: nats per step on held-out sequences (lower is better)")
    for name in ("method", "free energy", "above exact"):
        table.add_column(name, justify="left" if name == "method" else "right")
    exact = tracker.scores["kalman"].free_energy
    for short, score in tracker.scores.items():
        gap = f"{score.free_energy - exact:+.3f}"
        style = "bold" if short == "particles" else None
        table.add_row(score.name, f"{score.free_energy:.3f}", gap, style=style)
    console.print(table)

    table = Table(title="Pendulum: nats per frame on held-out videos (lower is better)")
    for name in ("method", "free energy", "prediction error"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for short, score in pendulum.scores.items():
        style = "bold" if short == "particles" else None
        error = f"{score.prediction_error:.4f}"
        table.add_row(score.name, f"{score.free_energy:.2f}", error, style=style)
    console.print(table)
    watched = pendulum.watched
    verdict = "found" if watched.is_fault_found else "NOT found"
    console.print(f"Fault {verdict}: steps flagged by their surprise: {watched.alarms}.")
    skipped = sum(t.num_skipped for r in (tracker, pendulum) for t in r.trained.values())
    if skipped:
        console.print(f"{skipped} optimizer steps had a non-finite gradient and were skipped.")


def _as_json(tracker: TrackerResult, pendulum: PendulumResult, seed: int, seconds: float) -> str:
    watched = pendulum.watched
    results = {
        "seed": seed,
        "seconds": seconds,
        "units": "nats per step, mean over held-out sequences",
        "tracker": {short: asdict(score) for short, score in tracker.scores.items()},
        "tracker_gap": tracker.gap,
        "pendulum": {short: asdict(score) for short, score in pendulum.scores.items()},
        "alarms": watched.alarms,
        "alarm_level": watched.alarm_level,
        "surprise": watched.surprise.tolist(),
        "is_fault_found": watched.is_fault_found,
    }
    return json.dumps(results, indent=1)


def _tracker_table(result: TrackerResult) -> str:
    exact = result.scores["kalman"].free_energy
    rows = [
        [
            score.name,
            f"{score.free_energy:.3f}",
            f"{score.free_energy - exact:+.3f}",
            f"{score.prediction_error:.3f}",
            _seconds(score),
        ]
        for score in result.scores.values()
    ]  # fmt: skip
    head = ["method", "free energy, nats per step", "above the exact answer",
            "prediction error (RMS)", "training"]  # fmt: skip
    return table(head, rows, highlighted=[list(result.scores).index("particles")])


def _pendulum_table(result: PendulumResult) -> str:
    rows = [
        [
            score.name,
            f"{score.free_energy:.2f}",
            f"{score.free_energies[0]:.2f}" if len(score.free_energies) > 1 else "",
            f"{score.prediction_error:.4f}",
            _seconds(score),
        ]
        for score in result.scores.values()
    ]  # fmt: skip
    head = ["method", "free energy, nats per frame", "at the prior, before inference",
            "prediction error to the clean image (RMS)", "training"]  # fmt: skip
    return table(head, rows, highlighted=[list(result.scores).index("particles")])


def _seconds(score: Score) -> str:
    return "" if score.train_seconds is None else f"{score.train_seconds:.0f} s"


def _training_curves(tracker: TrackerResult, pendulum: PendulumResult, width: float) -> Figure:
    """Draw the free energy of the training batches in both worlds."""
    figure, axes = panels(width, 2, 2.9, header=legend_height(width, 3))
    for axis, result, name in zip(axes, (tracker, pendulum), ("tracker", "pendulum"), strict=True):
        ends = []
        for short, colour in (("avf", AVF), ("amortized", AMORTIZED)):
            curve = _smooth(result.trained[short].curve)
            axis.plot(curve, color=colour, lw=1.5)
            ends += [np.min(curve), np.quantile(curve, 0.9)]
        if isinstance(result, TrackerResult):
            axis.axhline(tracker.scores["exact"].free_energy, **OPTIMUM)
        # The first updates are far off the scale of the rest; the curve's end is the story.
        margin = 0.08 * (max(ends) - min(ends))
        axis.set_ylim(min(ends) - margin, max(ends) + margin)
        title(axis, name)
        x_label(axis, "update")
        y_label(axis, "nats per step")
    styles = [{"color": AVF, "lw": 2}, {"color": AMORTIZED, "lw": 2}, OPTIMUM]
    legend(figure, ["AVF", "amortized baseline", "exact step (tracker)"], styles)
    return figure


def _iterations(tracker: TrackerResult, pendulum: PendulumResult, width: float) -> Figure:
    """Draw the free energy after each inference iteration, on held-out data of both worlds."""
    figure, axes = panels(width, 2, 2.9, header=legend_height(width, 3))
    names = ("tracker", "pendulum (both with AVF's model)")
    for axis, result, name in zip(axes, (tracker, pendulum), names, strict=True):
        for short, colour in (("gradient", GRADIENT), ("avf", AVF)):
            values = result.scores[short].free_energies
            axis.plot(np.arange(len(values)), values, "-o", ms=3.5, lw=1.5, color=colour)
        if isinstance(result, TrackerResult):
            axis.axhline(tracker.scores["exact"].free_energy, **OPTIMUM)
        axis.set_xscale("symlog", linthresh=1)
        ticks = [0, 1, 2, 5, 10, 20, 50, 100]
        axis.set_xticks(ticks, ["prior", *map(str, ticks[1:])])
        axis.set_xlim(-0.1, len(result.scores["gradient"].free_energies) * 1.1)
        axis.minorticks_off()
        title(axis, name)
        x_label(axis, "inference iteration")
        y_label(axis, "nats per step")
    styles = [{"color": GRADIENT, "lw": 2}, {"color": AVF, "lw": 2}, OPTIMUM]
    legend(figure, ["gradient descent", "AVF", "exact step (tracker)"], styles)
    return figure


def _frames(watched: Watched, width: float) -> Figure:
    """Draw data, prediction, update, forecast and what really came, from the middle on."""
    is_wide = width == WIDE
    steps = range(MIDDLE - 2, MIDDLE + HORIZON, 1 if is_wide else 2)
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
    figure = blank(width, 0.55 * width if is_wide else 1.05 * width)
    axes = figure.subplots(
        len(rows), len(steps), squeeze=False, gridspec_kw={"wspace": 0.03, "hspace": 0.03}
    )
    colours = matplotlib.colormaps["magma"].with_extremes(bad=MISSING)
    for row, (name, images) in zip(axes, rows.items(), strict=True):
        for axis, image, t in zip(row, images, steps, strict=True):
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
            if np.isnan(image).all():
                axis.set_facecolor(OUTSIDE)
            else:
                axis.imshow(image, cmap=colours, interpolation="nearest", **LIMITS)
            if name == "data":
                axis.set_title(f"t={t}", fontsize=8.5, color=INK)
        row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8.5, color=INK)
    return figure


def _surprise(watched: Watched, width: float) -> Figure:
    """Draw the surprise of each frame, the alarm level, and the fault."""
    figure = blank(width, 4.2 + legend_height(width, 4))
    top, below = figure.subplots(2, 1, height_ratios=[1, 2.4 if width == WIDE else 4.0])
    _draw_fault(top, watched, num_around=4 if width == WIDE else 1)
    plain(below, grid=True)
    fault: dict[str, Any] = {"color": ALARM, "alpha": 0.12}
    below.axvspan(FAULT - 0.5, FAULT + FAULT_STEPS - 0.5, **fault)
    below.plot(watched.surprise, "-o", ms=3, lw=1.3, color=AVF)
    level: dict[str, Any] = {"color": ALARM, "ls": "--", "lw": 1.0}
    below.axhline(watched.alarm_level, **level)
    flagged: dict[str, Any] = {
        "marker": "o", "ls": "", "ms": 9, "mfc": "none", "mec": ALARM, "mew": 1.5,
    }  # fmt: skip
    below.plot(watched.alarms, watched.surprise[watched.alarms], **flagged)
    below.set_xlim(-0.5, len(watched.surprise) - 0.5)
    x_label(below, "step")
    y_label(below, "surprise, nats")
    names = ["surprise", "alarm level (1 in 1,000)", "flagged", "fault"]
    legend(figure, names, [{"color": AVF, "lw": 2}, level, flagged, {**fault, "lw": 8}])
    return figure


def _draw_fault(axis: Axes, watched: Watched, *, num_around: int) -> None:
    """Draw the frames round the fault, side by side."""
    steps = list(range(FAULT - num_around, FAULT + FAULT_STEPS + num_around))
    size = watched.frames.shape[1]
    colours = matplotlib.colormaps["magma"].with_extremes(bad=MISSING)
    low, high = LIMITS["vmin"], LIMITS["vmax"]
    images = colours(np.ma.masked_invalid((watched.frames[steps] - low) / (high - low)))
    gap = np.ones((size, 1, 4))
    axis.imshow(np.concatenate([part for image in images for part in (image, gap)], axis=1))
    axis.set_yticks([])
    axis.set_xticks([(i + 0.5) * (size + 1) - 0.5 for i in range(len(steps))])
    labels = axis.set_xticklabels([f"t={t}" for t in steps], fontsize=8)
    for t, label in zip(steps, labels, strict=True):
        label.set_color(ALARM if FAULT <= t < FAULT + FAULT_STEPS else INK)
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)


def _smooth(curve: np.ndarray, width: int = 15) -> np.ndarray:
    """The running median of a curve: one odd batch does not hide the trend."""
    padded = np.pad(curve, width // 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=-1)
