"""Pictures of sequences: the data, what was predicted, what was inferred, and the surprise."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from varfilter.outputs import Medium

from varfilter.data.dataset import Dataset
from varfilter.distributions import Bernoulli
from varfilter.media.pictures import LOWEST_KEY, MOST_PANELS, NUM_KEYS
from varfilter.plots.canvas import NARROW, WIDE, blank, x_label, y_label
from varfilter.plots.parts import black_and_white, coloured, ink, outline, value_range
from varfilter.plots.style import COLOURS, FRAME, INK, MISSING, legible, plain, title
from varfilter.report.inspection import Looked, most_surprising

ALARM = "#c62828"
NUM_FRAMES = {WIDE: 10, NARROW: 5}
CAPTIONS: dict[Medium, str] = {
    "music": "Notes (dark: they sound), their predicted probabilities before each step was heard,"
    " the same after inference, and the surprise.",
    "sound": "The waveform, the prediction decoded from the prior before each step was heard, the"
    " reconstruction after inference, and the surprise of each step; of the steps that were looked"
    " at, the loudest stretch.",
    "film": "Frames at even distances, the prediction of each before it was seen, the"
    " reconstruction after inference, and the surprise of every frame.",
    "table": "Each column as it was read (dots), the mean of its prediction before it was read"
    " (line) with the band that should hold nine in ten values; of a column of noughts and ones,"
    " the probability of a one. Below, the surprise.",
    "array": "The values, the prediction before each step was seen, the reconstruction after"
    " inference, and the surprise.",
}


def sequence_picture(what: Medium, dataset: Dataset, looked: Looked, width: float) -> Figure:
    """By the kind of data; the most surprising steps are marked."""
    if what == "sound":
        return _sound(dataset, looked, width)
    if what == "film":
        return _film(dataset, looked, width)
    if what == "table" or (what == "array" and dataset.num_elements <= MOST_PANELS):
        return _columns(dataset, looked, width)
    return _images(what, dataset, looked, width)


def caption(what: Medium, looked: Looked) -> str:
    """Of a sequence's picture."""
    first, last = looked.first, looked.first + len(looked.xs) - 1
    text = CAPTIONS[what]
    if looked.reconstruction is None:
        text += " This filter has no single reconstruction."
    marked = ", ".join(str(each["step"]) for each in most_surprising(looked))
    return (
        f"{looked.name}: steps {first} to {last} of {looked.num_steps}. {text} Marked: the most"
        f" surprising steps, {marked}."
    )


def _rows(looked: Looked) -> dict[str, np.ndarray]:
    rows = {"data": looked.xs, "prediction": looked.mean}
    if looked.reconstruction is not None:
        rows["reconstruction"] = looked.reconstruction
    return rows


def _images(what: Medium, dataset: Dataset, looked: Looked, width: float) -> Figure:
    """Elements against steps: rolls of notes, or any numbers."""
    rows = {name: values.reshape(len(values), -1).T for name, values in _rows(looked).items()}
    is_music = what == "music"
    colours: Colormap = (
        ink(COLOURS[0]) if is_music else matplotlib.colormaps["magma"].with_extremes(bad=MISSING)
    )
    if not is_music:
        rows = {name: dataset.scaling.restore(values.T).T for name, values in rows.items()}
    limits = (0.0, 1.0) if is_music else value_range([rows["data"]])
    figure, axes, below = _stack(looked, width, len(rows), 1.35)
    first = LOWEST_KEY if is_music else 0
    for axis, (name, values) in zip(axes, rows.items(), strict=True):
        extent = (
            looked.first - 0.5, looked.first + values.shape[1] - 0.5,
            first - 0.5, first + len(values) - 0.5,
        )  # fmt: skip
        axis.imshow(
            values, cmap=colours, vmin=limits[0], vmax=limits[1], origin="lower", aspect="auto",
            extent=extent, interpolation="nearest" if len(values) <= NUM_KEYS else "auto",
        )  # fmt: skip
        title(axis, name)
        y_label(axis, "pitch" if is_music else "element")
        if is_music:
            _keys(axis, rows["data"])
        else:
            axis.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    _surprise(below, looked, axes)
    return figure


def _keys(axis: Axes, roll: np.ndarray) -> None:
    """Only the pitches round those that sound."""
    sounding = np.flatnonzero((np.nan_to_num(roll) > 0).any(axis=1))
    keys = LOWEST_KEY + (sounding if sounding.size else np.arange(NUM_KEYS))
    cs = range(24, LOWEST_KEY + NUM_KEYS, 12)  # MIDI note 60 is the middle C, C4
    axis.set_yticks(cs, [f"C{note // 12 - 1}" for note in cs])
    axis.set_ylim(keys[0] - 4.5, keys[-1] + 4.5)


def _sound(dataset: Dataset, looked: Looked, width: float) -> Figure:
    """Waveforms over seconds, on one scale, as in figure 3 of the paper."""
    rows = {
        name: dataset.scaling.restore(values.astype(np.float64)).ravel()
        for name, values in _rows(looked).items()
    }
    figure, axes, below = _stack(looked, width, len(rows), 1.1)
    rate = float(dataset.rate or 1.0)
    begin = looked.first * dataset.rows_per_step / rate
    loudest = 1.05 * max(float(np.nanmax(np.abs(rows["data"]))), 1e-6)
    times = begin + np.arange(len(rows["data"])) / rate
    for axis, (name, values) in zip(axes, rows.items(), strict=True):
        axis.plot(*outline(times, values), color=INK if name == "data" else COLOURS[0], lw=0.6)
        axis.set_ylim(-loudest, loudest)
        axis.yaxis.set_major_locator(MaxNLocator(3))
        title(axis, name)
        y_label(axis, "amplitude")
    _surprise(below, looked, axes, start=begin, per_step=dataset.rows_per_step / rate)
    x_label(below, "seconds")
    return figure


def _film(dataset: Dataset, looked: Looked, width: float) -> Figure:
    """Strips of frames, one below another, at the same steps."""
    rows = _rows(looked)
    height, breadth = looked.xs.shape[-2:]
    count = min(NUM_FRAMES[width], len(looked.xs))
    steps = np.unique(np.linspace(0, len(looked.xs) - 1, count).round().astype(int))
    pitch = breadth + max(1, breadth // 24)
    strip_height = 0.93 * width * height / (NUM_FRAMES[width] * pitch)
    figure = blank(width, len(rows) * (strip_height + 0.32) + 1.7)
    *axes, below = figure.subplots(
        len(rows) + 1, 1, height_ratios=[strip_height + 0.1] * len(rows) + [1.2]
    )
    low, high = black_and_white(dataset, [dataset.scaling.restore(looked.xs)])
    for axis, (name, frames) in zip(axes, rows.items(), strict=True):
        strip = np.ones((height, NUM_FRAMES[width] * pitch, 3), np.float32)
        for place, t in enumerate(steps):
            left = place * pitch
            strip[:, left : left + breadth] = coloured((frames[t] - low) / (high - low))
        axis.imshow(strip, interpolation="nearest")
        plain(axis)
        axis.spines[:].set_visible(False)
        axis.set_yticks([])
        centres = np.arange(len(steps)) * pitch + (breadth - 1) / 2
        axis.set_xticks(centres, [f"t={looked.first + t}" for t in steps])
        axis.tick_params(length=0, labelsize=8, labelbottom=name == list(rows)[-1])
        axis.set_anchor("W")
        title(axis, name)
    plain(below, grid=True)
    _surprise(below, looked, [])
    return figure


def _columns(dataset: Dataset, looked: Looked, width: float) -> Figure:
    """A panel for each column: values, prediction, band."""
    steps = looked.first + np.arange(len(looked.xs))
    values, mean, low, high = (
        dataset.scaling.restore(part.astype(np.float64)).reshape(len(part), -1)
        for part in (looked.xs, looked.mean, looked.low, looked.high)
    )
    names = dataset.columns or tuple(f"element {i}" for i in range(values.shape[1]))
    num_panels = min(len(names), MOST_PANELS)
    figure, axes, below = _stack(looked, width, num_panels, 1.3)
    for i, axis in enumerate(axes):
        family = dataset.family[i] if isinstance(dataset.family, tuple) else dataset.family
        if not issubclass(family.distribution, Bernoulli):
            axis.fill_between(steps, low[:, i], high[:, i], color=COLOURS[0], alpha=0.18, lw=0)
        axis.plot(steps, mean[:, i], color=COLOURS[0], lw=1.0)
        axis.plot(steps, values[:, i], ".", color=INK, ms=3.2)
        missing = steps[np.isnan(values[:, i])]
        where = axis.get_xaxis_transform()
        axis.plot(missing, np.full(len(missing), 0.02), "|", color=MISSING, ms=5, transform=where)
        axis.yaxis.set_major_locator(MaxNLocator(4))
        title(axis, legible(names[i], 70 if width == WIDE else 34))
        if len(missing):
            title(axis, "marks: missing", small=True)
    _surprise(below, looked, axes)
    return figure


def _stack(
    looked: Looked, width: float, count: int, height: float
) -> tuple[Figure, list[Axes], Axes]:
    """(figure, panels, the last panel for the surprise), one below another, on one time axis."""
    figure = blank(width, count * (height + 0.2) + 1.6)
    *axes, below = figure.subplots(
        count + 1, 1, sharex=True, height_ratios=[height] * count + [1.05]
    )
    for axis in (*axes, below):
        plain(axis, grid=axis is below)
    return figure, axes, below


def _surprise(
    axis: Axes,
    looked: Looked,
    above: list[Axes],
    *,
    start: float | None = None,
    per_step: float = 1.0,
) -> None:
    """The surprise of each step; the most surprising ones are marked, here and above."""
    begin = float(looked.first) if start is None else start
    # Of sound, a step is as long as its samples: it is drawn over all of them.
    shift = 0.0 if start is None else per_step / 2
    times = begin + shift + per_step * np.arange(len(looked.surprise))
    axis.plot(times, looked.surprise, color=COLOURS[0], lw=1.1)
    for each in most_surprising(looked):
        t = each["step"] - looked.first
        axis.plot(times[t], looked.surprise[t], "o", ms=8, mfc="none", mec=ALARM, mew=1.4)
        for other in above:
            other.axvline(float(times[t]), color=ALARM, lw=0.9, alpha=0.55)
    axis.margins(y=0.2)  # room for the marks
    margin = per_step / 2
    axis.set_xlim(times[0] - margin, times[-1] + margin)
    if start is None:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.yaxis.set_major_locator(MaxNLocator(3))
    axis.tick_params(labelcolor=INK, color=FRAME)
    title(axis, "surprise")
    x_label(axis, "step")
    y_label(axis, "nats")
