"""Piano rolls as a report draws them."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from varfilter.plots.rolls import rolls
from varfilter.plots.style import WIDE

LOWEST = 21


def test_no_line_of_the_grid_crosses_a_note():
    """A held C is one bar of one colour, on which neither its own line nor those of steps lie."""
    roll = np.zeros((40, 88))
    roll[:, [60 - LOWEST, 67 - LOWEST]] = 1
    figure = rolls({"held out": roll, "made up": roll}, WIDE, LOWEST)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())
    for axis in figure.axes:
        inside = np.stack([np.linspace(0, 39, 400), np.full(400, 60.0)], axis=1)
        x, y = axis.transData.transform(inside).round().astype(int).T
        assert len(np.unique(pixels[len(pixels) - 1 - y, x], axis=0)) == 1
        below = axis.transData.transform((5, 57))
        row = len(pixels) - 1 - int(below[1])
        assert (pixels[row, x] != pixels[len(pixels) - 1 - y[0], x[0]]).any(axis=1).all()
