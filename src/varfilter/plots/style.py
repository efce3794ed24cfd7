"""How every figure looks: its colours and letters, and the canvases that figures are drawn on.

Figures of reports are drawn twice, wide for pages and narrow for phones; an inch is about a
hundred pixels of the page in both, so that letters have one size.
"""

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D

COLOURS = ("#1f5fbf", "#d9731a", "#2b8a57")
INK, SMALL_PRINT, FRAME, GRID = "#333333", "#777777", "#bbbbbb", "#e6e6e6"
MISSING, OUTSIDE, ALARM = "#9db4c0", "#f4f4f4", "#c62828"
LABEL: dict[str, Any] = {"fontsize": 8, "color": INK}
WIDE, NARROW = 9.2, 3.6
RESOLUTION = {WIDE: 130, NARROW: 200}
# The runs of a report, in this order, and again from the first.
PALETTE = (*COLOURS, "#8e44ad", "#c62828", "#00838f", "#8a6d00", "#555555")

# A painter makes the figure at a width in inches.
Painter = Callable[[float], Figure]


def plain(axis: Axes, *, grid: bool = False) -> None:
    """Draw a panel in the page's style: two thin axes, small letters, a grid if asked for.

    It is set by hand, since some of `rcParams` are asked for again when the figure is drawn.
    """
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["bottom", "left"]].set_color(FRAME)
    axis.tick_params(labelsize=8, color=FRAME, labelcolor=INK, length=3)
    axis.set_axisbelow(True)
    axis.grid(False)
    if grid:
        axis.grid(True, color=GRID, lw=0.6)


def title(axis: Axes, text: str, *, small: bool = False) -> None:
    """Write a title above a panel, at the left; or, in small print, at the right."""
    if small:
        axis.set_title(text, loc="right", fontsize=7.5, color=SMALL_PRINT, parse_math=False)
    else:
        axis.set_title(text, loc="left", fontsize=9, color=INK, parse_math=False)


def legible(text: str, most: int) -> str:
    """A text on one line, of at most `most` letters, all of which the font has.

    matplotlib warns of letters that the font lacks; here they become question marks.
    """
    font = get_font(findfont(FontProperties()))
    line = " ".join(text.split())
    line = "".join(c if font.get_char_index(ord(c)) else "?" for c in line)
    return line if len(line) <= most else f"{line[: most - most // 3 - 1]}…{line[-(most // 3) :]}"


def coloured(frame: np.ndarray) -> np.ndarray:
    """The colours of a frame, (height, width, 3) from 0 to 1; missing pixels have their own."""
    channels = np.moveaxis(frame, 0, -1) if frame.ndim == 3 else frame[..., None]
    colour = np.broadcast_to(np.clip(channels, 0.0, 1.0), (*channels.shape[:2], 3))
    lost = np.isnan(channels).any(-1, keepdims=True)
    return np.where(lost, np.asarray(to_rgb(MISSING), colour.dtype), colour)


def outline(times: np.ndarray, values: np.ndarray, most: int = 4000) -> tuple[Any, Any]:
    """A long curve with few points that look the same: of each piece the lowest and highest."""
    size = -(-2 * len(values) // most)
    if size <= 2:
        return times, values
    begins = np.arange(0, len(values), size)
    ends = [np.fmin.reduceat(values, begins), np.fmax.reduceat(values, begins)]
    return np.repeat(times[begins], 2), np.stack(ends, 1).ravel()


def value_range(arrays: Sequence[np.ndarray]) -> tuple[float, float]:
    """The lowest and the highest finite value; they are never the same."""
    values = np.concatenate([array[np.isfinite(array)] for array in arrays])
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    return (low, high) if high > low else (low, low + max(1.0, abs(low)))


def ink(colour: str) -> Colormap:
    """A colour map from white to a colour; what is missing has a colour of its own."""
    return LinearSegmentedColormap.from_list("ink", ["white", colour]).with_extremes(bad=MISSING)


def png(figure: Figure) -> bytes:
    """The bytes of a PNG file of a figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def blank(width: float, height: float) -> Figure:
    """An empty figure, with the resolution that its width asks for."""
    figure = Figure(figsize=(width, height), dpi=RESOLUTION[width])
    figure.set_layout_engine("constrained")
    FigureCanvasAgg(figure)
    return figure


def panels(
    width: float, count: int, height: float, *, columns: int = 2, header: float = 0.0
) -> Any:
    """A figure and its `count` panels, side by side where there is room."""
    num_wide = min(columns, count) if width == WIDE else 1
    num_high = -(-count // num_wide)
    figure = blank(width, height * num_high + header)
    axes = figure.subplots(num_high, num_wide, squeeze=False).ravel()
    for axis in axes[count:]:
        axis.set_visible(False)
    for axis in axes[:count]:
        plain(axis, grid=True)
    return figure, list(axes[:count])


def legend(figure: Figure, labels: Sequence[str], styles: Sequence[dict[str, Any]]) -> None:
    """Draw a legend above all panels; its texts are taken as they are, `$` and all."""
    is_wide = figure.get_figwidth() == WIDE
    handles = [Line2D([], [], **style) for style in styles]
    shown = figure.legend(
        handles, labels, loc="outside upper left", ncols=2 if is_wide else 1, fontsize=8.5,
        frameon=False, labelcolor=INK,
    )  # fmt: skip
    for text in shown.get_texts():
        text.set_parse_math(False)


def legend_height(width: float, count: int) -> float:
    """How many inches a legend of so many entries takes."""
    return 0.1 + 0.2 * (-(-count // 2) if width == WIDE else count)


def x_label(axis: Axes, text: str) -> None:
    """Write what is plotted along the horizontal axis below a panel."""
    axis.set_xlabel(text, fontsize=8.5, color=INK)


def y_label(axis: Axes, text: str) -> None:
    """Write what is plotted along the vertical axis to the left of a panel."""
    axis.set_ylabel(text, fontsize=8.5, color=INK)
