"""Pictures of data sets: what some of the sequences look like, by what a row of them is."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from varfilter.data.dataset import Dataset
from varfilter.plots.parts import (
    black_and_white,
    coloured,
    ink,
    is_binary,
    outline,
    value_range,
)
from varfilter.plots.style import (
    COLOURS,
    FRAME,
    GRID,
    INK,
    LABEL,
    MISSING,
    OUTSIDE,
    SMALL_PRINT,
    WIDTH,
    count,
    headed_page,
    legible,
    plain,
    title,
)

NUM_KEYS, LOWEST_KEY = 88, 21
MOST_PANELS = MOST_FRAMES = 8
DECIBELS, SILENCE = 70.0, -120.0


class Shown(NamedTuple):
    """The first rows of a sequence, its name, and how many rows it has in all."""

    name: str
    rows: np.ndarray
    num_rows: int


# A painter asks for its page, by the height in inches and more of what is shown, and fills it.
Page = Callable[..., tuple[Figure, SubFigure]]


class Kind(NamedTuple):
    """How a kind of data is painted, and at most how many sequences and rows of each."""

    paint: Callable[[Page, Dataset, list[Shown]], Figure]
    num_sequences: int
    num_rows: int
    missing: str = "missing values are grey-blue"


def picture(dataset: Dataset, *, split: str = "train", seed: int = 0) -> Figure:
    """Some sequences of a split, drawn with `seed`, in the recording's units, 1280 pixels wide.

    Rolls of 88 keys are shown as scores, sound as waves and spectra, images as filmstrips,
    tables and a few numbers as lines, all else as heat maps. Save it with `savefig`.
    """
    ragged = dataset.split(split)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"`seed` must be a whole number, at least 0; got {seed!r}.")
    whole = np.flatnonzero(ragged.lengths >= dataset.rows_per_step)
    if not whole.size:
        raise ValueError(
            f"`split` {split!r} of {dataset.name!r} has no sequence of a step or more: there is"
            " nothing to show. Give another split."
        )
    kind = _kind(dataset)
    num_shown = min(kind.num_sequences, whole.size)
    chosen = np.sort(np.random.default_rng(seed).choice(whole, num_shown, replace=False))
    names = dataset.names.get(split) or [f"sequence {i}" for i in range(len(ragged))]
    shown = [
        Shown(legible(names[i], 60), np.asarray(ragged[i][: kind.num_rows]), len(ragged[i]))
        for i in chosen
    ]
    notes = [f"Shown: {num_shown:,} of {count(len(ragged), 'sequence')} (seed {seed})"]
    if any(np.isnan(sequence.rows).any() for sequence in shown):
        notes.append(kind.missing)
    return kind.paint(partial(headed_page, dataset, split, notes), dataset, shown)


def _kind(dataset: Dataset) -> Kind:
    """By a row of the recording: steps may hold many of them."""
    row = dataset.train.values.shape[1:]
    if row == () and dataset.rate is not None:
        return Kind(_sounds, 4, 1 << 17)
    is_film = len(row) == 2 or (len(row) == 3 and row[0] in (1, 3))
    if is_film and min(row[-2:]) >= 8 and max(row[-2:]) <= 4 * min(row[-2:]):
        return Kind(_films, 4, 200)
    if row == (NUM_KEYS,) and not dataset.columns and is_binary(dataset.family):
        return Kind(_rolls, 4, 200)
    if dataset.columns or math.prod(row) <= MOST_PANELS:
        return Kind(_lines, 3, 1000, missing="marks at the bottom are missing values")
    return Kind(_heat_maps, 4, 500)


def _rolls(page: Page, dataset: Dataset, shown: list[Shown]) -> Figure:
    """Pitch against time; only the pitches round those that sound."""
    figure, body = page(1.5 * len(shown) + 0.3)
    sounding = np.flatnonzero((np.concatenate([song.rows for song in shown]) > 0).any(axis=0))
    keys = LOWEST_KEY + (sounding if sounding.size else np.arange(NUM_KEYS))
    cs = range(24, LOWEST_KEY + NUM_KEYS, 12)  # MIDI note 60 is the middle C, C4
    for axis in _images(body, dataset, shown, LOWEST_KEY, ink(COLOURS[0]), (0.0, 1.0)):
        axis.set_yticks(cs, [f"C{note // 12 - 1}" for note in cs])
        axis.set_ylim(keys[0] - 2.5, keys[-1] + 2.5)
        for note in cs:  # between B and C: through C it would strike the notes out
            axis.axhline(note - 0.5, color=GRID, lw=0.6)
    body.supylabel("pitch", **LABEL)
    return figure


def _heat_maps(page: Page, dataset: Dataset, shown: list[Shown]) -> Figure:
    """All elements of a row against time, on one scale."""
    figure, body = page(1.35 * len(shown) + 0.3)
    colours = matplotlib.colormaps["magma"].with_extremes(bad=MISSING)
    limits = value_range([sequence.rows for sequence in shown])
    axes = _images(body, dataset, shown, 0, colours, limits)
    axes[0].yaxis.set_major_locator(MaxNLocator(4, integer=True))
    bar = body.colorbar(axes[0].images[0], ax=axes, aspect=40, pad=0.01)
    bar.ax.tick_params(labelsize=8, color=FRAME, labelcolor=INK)
    bar.ax.spines[:].set_visible(False)
    body.supylabel("element", **LABEL)
    return figure


def _images(
    body: SubFigure,
    dataset: Dataset,
    shown: list[Shown],
    first: int,
    colours: Colormap,
    limits: tuple[float, float],
) -> list[Axes]:
    """The sequences one below another, each an image: elements, from `first`, against time."""
    axes = body.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axis, sequence in zip(axes, shown, strict=True):
        plain(axis)
        axis.set_facecolor(OUTSIDE)
        image = sequence.rows.reshape(len(sequence.rows), -1).T
        extent = (-0.5, image.shape[1] - 0.5, first - 0.5, first + len(image) - 0.5)
        axis.imshow(
            image, cmap=colours, vmin=limits[0], vmax=limits[1], origin="lower", aspect="auto",
            extent=extent, interpolation="nearest" if len(image) <= NUM_KEYS else "auto",
        )  # fmt: skip
        title(axis, f"{sequence.name}, {_extent(sequence, dataset)}")
    _time(axes[-1], shown)
    axes[-1].set_xlabel(_unit(dataset), **LABEL)
    return list(axes)


def _sounds(page: Page, dataset: Dataset, shown: list[Shown]) -> Figure:
    """Wave and spectrum of each, on common axes of seconds."""
    figure, body = page(1.4 * len(shown) + 0.3)
    rate = float(dataset.rate or 1.0)
    seconds = max(len(sound.rows) for sound in shown) / rate
    spectra = [_spectrum(sound.rows, rate) for sound in shown]
    loudest = max(value_range(spectra)[1], DECIBELS + SILENCE)
    unit, divisor = ("kHz", 1000.0) if rate >= 4000 else ("Hz", 1.0)
    axes = body.subplots(len(shown), 2, sharex=True, sharey="col", squeeze=False)
    for (wave, spectrum), sound, levels in zip(axes, shown, spectra, strict=True):
        end = len(sound.rows) / rate
        plain(wave, grid=True)
        wave.plot(*outline(np.arange(len(sound.rows)) / rate, sound.rows), color=COLOURS[0], lw=0.6)
        wave.axvspan(end, seconds, color=OUTSIDE, zorder=0.6)
        wave.set_ylabel("amplitude", **LABEL)
        title(wave, f"{sound.name}, {_extent(sound, dataset)}")
        plain(spectrum)
        spectrum.set_facecolor(OUTSIDE)
        spectrum.imshow(
            levels, cmap=ink("black"), vmin=loudest - DECIBELS, vmax=loudest, origin="lower",
            aspect="auto", extent=(0.0, end, 0.0, rate / 2 / divisor),
        )  # fmt: skip
        spectrum.set_ylabel(unit, **LABEL)
    axes[0, 0].set_xlim(0.0, seconds)
    title(axes[0, 1], f"spectrum, {DECIBELS:.0f} dB from black to white", small=True)
    for axis in axes[-1]:
        axis.set_xlabel("seconds", **LABEL)
    return figure


def _films(page: Page, dataset: Dataset, shown: list[Shown]) -> Figure:
    """Frames at even distances, side by side; in colour if there are three channels."""
    height, width = dataset.train.values.shape[-2:]
    pitch = width + max(1, width // 24)
    num_pixels = (MOST_FRAMES - 1) * pitch + width
    strip_height = 0.96 * WIDTH * height / num_pixels
    figure, body = page((strip_height + 0.45) * len(shown))
    low, high = black_and_white(dataset, [film.rows for film in shown])
    axes = body.subplots(len(shown), 1, squeeze=False)[:, 0]
    for axis, film in zip(axes, shown, strict=True):
        steps = np.unique(np.linspace(0, len(film.rows) - 1, MOST_FRAMES).round().astype(int))
        strip = np.ones((height, num_pixels, 3), np.float32)
        frames = dataset.scaling(film.rows[steps].astype(np.float32))
        for left, frame in zip(range(0, num_pixels, pitch), frames, strict=False):
            strip[:, left : left + width] = coloured((frame - low) / (high - low))
        axis.imshow(strip)
        plain(axis)
        axis.spines[:].set_visible(False)
        axis.set_yticks([])
        axis.set_xticks(np.arange(len(steps)) * pitch + (width - 1) / 2, [f"t={t}" for t in steps])
        axis.tick_params(length=0, labelsize=7.5, labelcolor=SMALL_PRINT, pad=1)
        title(axis, f"{film.name}, {_extent(film, dataset)}")
    return figure


def _lines(page: Page, dataset: Dataset, shown: list[Shown]) -> Figure:
    """A panel for each column, the sequences in one colour each; what is missing is a gap."""
    tables = [s.rows.reshape(len(s.rows), -1).astype(np.float64) for s in shown]
    names = dataset.columns or [f"element {i}" for i in range(tables[0].shape[1])]
    num_panels = min(len(names), MOST_PANELS)
    num_wide = 1 if num_panels <= 3 else 2
    num_high = -(-num_panels // num_wide)
    more = "" if num_panels == len(names) else f", {num_panels} of {len(names):,} columns"
    figure, body = page(1.55 * num_high + 0.5, more)
    axes = body.subplots(num_high, num_wide, sharex=True, squeeze=False).ravel()
    for axis in axes[num_panels:]:
        axis.set_visible(False)
    for i, axis in enumerate(axes[:num_panels]):
        family = dataset.family[i] if isinstance(dataset.family, tuple) else dataset.family
        columns = [table[:, i] for table in tables]
        plain(axis, grid=True)
        axis.tick_params(labelbottom=True)
        _draw(axis, columns, is_binary=is_binary(family))
        missing = np.isnan(np.concatenate(columns)).mean()
        title(axis, legible(names[i], 70 if num_wide == 1 else 28))
        small = family.distribution.__name__ + (f", {missing:.0%} missing" if missing else "")
        title(axis, small, small=True)
    _time(axes[0], shown)
    body.supxlabel(_unit(dataset), **LABEL)
    legend = body.legend(
        axes[0].lines[: len(shown)],
        [f"{legible(s.name, 24)}, {_extent(s, dataset)}" for s in shown],
        loc="outside upper left", ncols=3, fontsize=8, frameon=False, labelcolor=INK,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _draw(axis: Axes, columns: Sequence[np.ndarray], *, is_binary: bool) -> None:
    """The sequences of one column, and below them, for each, marks where a value is missing."""
    num = len(columns)
    # Noughts and ones would hide each other: each sequence has a level of its own.
    levels = [1.5 * (num - 1 - i) if is_binary else 0.0 for i in range(num)]
    drawn = [values + up for values, up in zip(columns, levels, strict=True)]
    style = "steps-mid" if is_binary else "default"
    for values, colour in zip(drawn, COLOURS, strict=False):
        axis.plot(np.arange(len(values)), values, color=colour, lw=1.0, drawstyle=style)
    for values, colour in zip(drawn, COLOURS, strict=False):
        present = np.pad(np.isfinite(values), 1)
        alone = np.flatnonzero(present[1:-1] & ~present[:-2] & ~present[2:])
        axis.plot(alone, values[alone], "o", color=colour, ms=2.0)  # a line needs two points
    finite = np.concatenate(drawn)
    finite = finite[np.isfinite(finite)]
    if not finite.size:
        axis.set_yticks([])
    elif is_binary:
        axis.set_yticks([up + value for up in levels for value in (0, 1)], ["0", "1"] * num)
        axis.set_ylim(-0.25, max(levels) + 1.25)
    else:
        whole = bool((finite == np.round(finite)).all())
        axis.yaxis.set_major_locator(MaxNLocator(4, integer=whole))
    marks = [np.flatnonzero(np.isnan(values)) for values in columns]
    if any(len(steps) for steps in marks):
        low, high = axis.get_ylim()
        axis.set_ylim(low - (0.05 + 0.07 * num) * (high - low), high)
    for i, (steps, colour) in enumerate(zip(marks, COLOURS, strict=False)):
        height = np.full(len(steps), 0.04 + 0.06 * (num - 1 - i))
        where = axis.get_xaxis_transform()
        axis.plot(steps, height, "|", color=colour, alpha=0.5, ms=4, mew=0.8, transform=where)


def _time(axis: Axes, shown: list[Shown]) -> None:
    axis.set_xlim(-0.5, max(len(sequence.rows) for sequence in shown) - 0.5)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _unit(dataset: Dataset) -> str:
    return "step" if dataset.rows_per_step == 1 else "row"


def _extent(shown: Shown, dataset: Dataset) -> str:
    """How long a sequence is, and how much of it is shown."""
    shown_steps, steps = (n // dataset.rows_per_step for n in (len(shown.rows), shown.num_rows))
    part = f"the first {shown_steps:,} of " if shown_steps < steps else ""
    seconds = f" ({shown.num_rows / dataset.rate:,.2f} s)" if dataset.rate else ""
    return part + count(steps, "step") + seconds


def _spectrum(samples: np.ndarray, rate: float) -> np.ndarray:
    """Decibels (frequency, time), from pieces of 25 ms, four times overlapping."""
    size = max(round(0.025 * rate), 16)
    padded = np.pad(samples.astype(np.float32), (size // 2, size))
    pieces = np.lib.stride_tricks.sliding_window_view(padded, size)[: len(samples) : size // 4]
    levels = np.abs(np.fft.rfft(pieces * np.hanning(size).astype(np.float32))).T
    return 20.0 * np.log10(np.maximum(levels, 10.0 ** (SILENCE / 20.0)))
