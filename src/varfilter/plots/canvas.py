"""What the pictures of a report are drawn on: a wide one for pages, a narrow one for telephones.

An inch is about a hundred pixels of the page in both, so that letters have one size.
"""

import io
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from varfilter.plots.page import figure as html_figure
from varfilter.plots.style import COLOURS, INK, plain

WIDE, NARROW = 9.2, 3.6
DPI = {WIDE: 130, NARROW: 200}
# The runs of a report, in this order, and again from the first.
PALETTE = (*COLOURS, "#8e44ad", "#c62828", "#00838f", "#8a6d00", "#555555")

# A painter: the picture at a width in inches.
Painter = Callable[[float], Figure]


def both_widths(paint: Painter, caption: str, alt: str | None = None) -> str:
    """The HTML of a picture, in two widths, of which the browser shows one."""
    return html_figure(png(paint(WIDE)), caption, narrow=png(paint(NARROW)), alt=alt)


def png(figure: Figure) -> bytes:
    """As the bytes of a file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def blank(width: float, height: float) -> Figure:
    """An empty picture."""
    figure = Figure(figsize=(width, height), dpi=DPI[width])
    figure.set_layout_engine("constrained")
    FigureCanvasAgg(figure)
    return figure


def panels(
    width: float, count: int, height: float, *, columns: int = 2, header: float = 0.0
) -> Any:
    """(figure, axes): so many panels, side by side where there is room."""
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
    """Above all panels; texts are taken as they are."""
    is_wide = figure.get_figwidth() == WIDE
    handles = [Line2D([], [], **style) for style in styles]
    shown = figure.legend(
        handles, labels, loc="outside upper left", ncols=2 if is_wide else 1, fontsize=8.5,
        frameon=False, labelcolor=INK,
    )  # fmt: skip
    for text in shown.get_texts():
        text.set_parse_math(False)


def legend_height(width: float, count: int) -> float:
    """Inches that a legend of so many entries takes."""
    return 0.1 + 0.2 * (-(-count // 2) if width == WIDE else count)


def x_label(axis: Axes, text: str) -> None:
    """Below, in the page's ink."""
    axis.set_xlabel(text, fontsize=8.5, color=INK)


def y_label(axis: Axes, text: str) -> None:
    """At the left, in the page's ink."""
    axis.set_ylabel(text, fontsize=8.5, color=INK)
