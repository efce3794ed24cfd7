"""The music of the paper's table 3, by every seed that is on record.

    python docs/pictures/results.py

makes `results.png` of the files in `results/table-3`. A dot is a seed, a bar their mean, and a
cross the paper's number, corrected for the first step, which is not scored.
"""

import numpy as np
from drawing import HERE, canvas, parser, save_both

from varfilter.plots.style import COLOURS, INK, NARROW, SMALL_PRINT, plain, title, x_label
from varfilter.report.study import METHODS, read_cells, study_numbers

RESULTS = HERE.parent.parent / "results" / "table-3"
SHOWN = {"baseline": SMALL_PRINT, "residual": COLOURS[2], "avf": COLOURS[0], "avf-5": COLOURS[1]}
TITLES = {
    "piano": "Piano-midi.de",
    "musedata": "MuseData",
    "jsb": "JSB",
    "nottingham": "Nottingham",
}


def main():
    given = parser(__doc__).parse_args()
    cells = [cell for cell in read_cells(RESULTS) if cell.protocol == "best"]
    save_both(lambda width: picture(cells, width), given.out, "results.png")


def picture(cells, width):
    """A panel for each set, side by side, or on a phone one below the other."""
    published = [row["published"] for row in study_numbers(cells)]
    is_narrow = width == NARROW
    figure = canvas(width, 6.4 if is_narrow else 2.6)
    shape = (len(TITLES), 1) if is_narrow else (1, len(TITLES))
    axes = figure.subplots(*shape, sharey=True)
    order = list(SHOWN)[::-1]
    for axis, (data, name) in zip(axes, TITLES.items(), strict=True):
        plain(axis, grid=True)
        title(axis, name)
        for cell, paper in zip(cells, published, strict=True):
            if cell.data != data or cell.method not in SHOWN:
                continue
            row, scores = order.index(cell.method), np.mean(cell.nats, axis=1)
            colour = SHOWN[cell.method]
            rows = np.full(len(scores), row)
            axis.plot(scores, rows, "o", ms=4, color=colour, alpha=0.45, mew=0)
            if paper is not None:
                axis.plot(paper, row, "x", ms=6, mew=1.4, color=INK)
            axis.plot(cell.mean, row, "|", ms=14, mew=2.2, color=colour)
    for axis in axes[-1:] if is_narrow else axes:
        x_label(axis, "nats per step")
    names = [METHODS[method] for method in order]
    names = [name.replace(" of ", " of\n") for name in names] if is_narrow else names
    axes[0].set_yticks(range(len(order)), names, color=INK)
    axes[0].set_ylim(-0.6, len(order) - 0.4)
    return figure


if __name__ == "__main__":
    main()
