"""Two drawings: one step of the filter, and one update that is parallel over time.

    python docs/pictures/diagrams.py

makes `one_step.png` and `learning.png`.
"""

from drawing import canvas, parser, save
from matplotlib.patches import FancyBboxPatch

from varfilter.plots.style import COLOURS, INK, SMALL_PRINT

BLUE, ORANGE, GREEN = COLOURS


def main():
    given = parser(__doc__).parse_args()
    save(one_step(), given.out, "one_step.png")
    save(learning(), given.out, "learning.png")


def sheet(width, height, *, units):
    """A figure without axes, measured in so many units from left to right."""
    figure = canvas(width, height)
    figure.set_layout_engine("none")
    axis = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axis.set_xlim(0.0, units)
    axis.set_ylim(0.0, units * height / width)
    axis.axis("off")
    return figure, axis


def box(axis, x, y, width, height, text, below="", *, colour=BLUE):
    """A box with a name and, in small letters, what happens in it; (x, y) is its lower left."""
    axis.add_patch(
        FancyBboxPatch(
            (x, y), width, height, boxstyle="round,pad=0,rounding_size=0.12",
            fc=colour + "18", ec=colour, lw=1.2,
        )
    )  # fmt: skip
    middle = x + width / 2
    high = y + height / 2 + (0.32 if below else 0.0)
    axis.text(middle, high, text, ha="center", va="center", fontsize=10, color=INK)
    if below:
        axis.text(
            middle, high - 0.22, below, ha="center", va="top", fontsize=8.2, color=INK,
            linespacing=1.5,
        )  # fmt: skip


def arrow(axis, begin, end, *, colour=INK, bend=0.0):
    """An arrow between two points."""
    style = {"arrowstyle": "-|>", "color": colour, "lw": 1.2, "shrinkA": 0, "shrinkB": 0}
    axis.annotate("", end, begin, arrowprops={**style, "connectionstyle": f"arc3,rad={bend}"})


def note(axis, x, y, text, *, colour=SMALL_PRINT, size=8.2, ha="center"):
    """A few words beside an arrow."""
    paper = {"boxstyle": "square,pad=0.25", "fc": "white", "ec": "none"}
    axis.text(x, y, text, ha=ha, va="center", fontsize=size, color=colour, bbox=paper)


def one_step():
    """Predict, update, advance; and what comes out of each."""
    figure, axis = sheet(9.2, 3.2, units=18.4)
    box(axis, 2.2, 2.3, 3.9, 1.9, "predict", "model.prior(state)\n$p(z_t\\,|\\,$past$)$")
    box(
        axis, 7.3, 2.3, 4.4, 1.9, "update", "q = prior; K times:\nq $\\leftarrow$ net(q, dF/dq)",
        colour=ORANGE,
    )  # fmt: skip
    box(axis, 12.9, 2.3, 3.6, 1.9, "advance", "z ~ q\nmodel.advance(...)", colour=GREEN)
    arrow(axis, (0.6, 3.25), (2.1, 3.25))
    note(axis, 1.1, 3.65, "state$_t$", size=9.5)
    arrow(axis, (6.1, 3.25), (7.2, 3.25))
    arrow(axis, (11.7, 3.25), (12.8, 3.25))
    arrow(axis, (16.5, 3.25), (17.9, 3.25))
    note(axis, 17.3, 3.65, "state$_{t+1}$", size=9.5)
    for x in (9.5, 14.7):
        arrow(axis, (x, 5.5), (x, 4.3))
    axis.plot([9.5, 14.7], [5.5, 5.5], color=INK, lw=1.2)
    note(axis, 8.9, 5.5, "observation $x_t$", size=9.5, ha="right")
    for x, text in (
        (4.15, "prediction of $x_t$,\nwith its uncertainty"),
        (9.5, "posterior of $z_t$, surprise of $x_t$,\nfree energy $F_t$"),
    ):
        arrow(axis, (x, 2.2), (x, 1.3))
        note(axis, x, 0.7, text, size=8.8)
    note(axis, 14.7, 0.7, "all that the past\nsends forward", size=8.8)
    arrow(axis, (14.7, 2.2), (14.7, 1.3))
    return figure


def learning():
    """Filter, replay, learn: what is a loop over time, and what is not."""
    figure, axis = sheet(9.2, 3.0, units=18.4)
    rows = (
        (4.3, BLUE, "1  filter", "a loop over time, without a tape", True),
        (2.4, GREEN, "2  replay", "advance alone, with a tape", True),
        (0.5, ORANGE, "3  learn", "all steps of all sequences at once", False),
    )
    for y, colour, name, what, is_loop in rows:
        note(axis, 0.4, y + 0.75, name, colour=colour, size=10.5, ha="left")
        note(axis, 0.4, y + 0.2, what, size=8.4, ha="left")
        for step in range(6):
            x = 6.6 + 1.85 * step
            box(axis, x, y, 1.2, 1.0, f"$t={step + 1}$", colour=colour)
            if is_loop and step < 5:
                arrow(axis, (x + 1.2, y + 0.5), (x + 1.8, y + 0.5))
    for step in range(6):
        x = 7.2 + 1.85 * step
        arrow(axis, (x, 4.2), (x, 3.5), colour=SMALL_PRINT)
        arrow(axis, (x, 2.3), (x, 1.6), colour=SMALL_PRINT)
    note(axis, 0.4, 3.85, "sends down: $z_t$, and (q, dF/dq) of each iteration", ha="left")
    note(axis, 0.4, 1.95, "sends down: the state before each step", ha="left")
    return figure


if __name__ == "__main__":
    main()
