"""Strips of frames, one below another, at the same steps."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from varfilter.plots.style import NARROW, blank, coloured, plain, title

# Frames side by side, by the width of the figure.
NUM_FRAMES_WIDE, NUM_FRAMES_NARROW = 10, 5


def named_strips(rows: Mapping[str, np.ndarray], width: float, *, first: int = 0) -> Figure:
    """Draw frames (time, channels, height, width), from 0 to 1; `first` is the number of one."""
    height = strip_height(next(iter(rows.values())), width)
    figure = blank(width, len(rows) * (height + 0.32) + 0.2)
    axes = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    draw_strips(list(axes), rows, width, lambda t: f"+{first + t}")
    return figure


def strip_height(frames: np.ndarray, width: float) -> float:
    """How many inches a strip of such frames is high."""
    height, breadth = frames.shape[-2:]
    return 0.93 * width * height / (_most(width) * _pitch(breadth))


def draw_strips(
    axes: Sequence[Axes],
    rows: Mapping[str, np.ndarray],
    width: float,
    label: Callable[[int], str],
) -> None:
    """Draw each row of frames on its panel; the last says which steps these are."""
    num_steps, height, breadth = (next(iter(rows.values())).shape[i] for i in (0, -2, -1))
    most, pitch = _most(width), _pitch(breadth)
    steps = np.unique(np.linspace(0, num_steps - 1, min(most, num_steps)).round().astype(int))
    for axis, (name, frames) in zip(axes, rows.items(), strict=True):
        strip = np.ones((height, most * pitch, 3), np.float32)
        for place, t in enumerate(steps):
            left = place * pitch
            strip[:, left : left + breadth] = coloured(frames[t])
        axis.imshow(strip, interpolation="nearest")
        plain(axis)
        axis.spines[:].set_visible(False)
        axis.set_yticks([])
        centres = np.arange(len(steps)) * pitch + (breadth - 1) / 2
        axis.set_xticks(centres, [label(int(t)) for t in steps])
        axis.tick_params(length=0, labelsize=8, labelbottom=name == list(rows)[-1])
        axis.set_anchor("W")
        title(axis, name)


def _most(width: float) -> int:
    return NUM_FRAMES_NARROW if width == NARROW else NUM_FRAMES_WIDE


def _pitch(breadth: int) -> int:
    return breadth + max(1, breadth // 24)
