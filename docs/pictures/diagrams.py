"""Two drawings: one step of the filter, and one update that is parallel over time.

    python docs/pictures/diagrams.py

makes `one_step.png` and `learning.png`.
"""

from drawing import canvas, parser, save_both
from matplotlib.patches import FancyBboxPatch

from varfilter.plots.style import COLOURS, INK, NARROW, SMALL_PRINT

BLUE, ORANGE, GREEN = COLOURS


def main():
    given = parser(__doc__).parse_args()
    save_both(one_step, given.out, "one_step.png")
    save_both(learning, given.out, "learning.png")


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


# What a step does: a name, how, what comes out of it, and a colour.
STEP = (
    ("predict", "model.prior(state)\n$p(z_t\\,|\\,$past$)$",
     "prediction of $x_t$,\nwith its uncertainty", BLUE),
    ("update", "q = prior; K times:\nq $\\leftarrow$ net(q, dF/dq)",
     "posterior of $z_t$, surprise of $x_t$,\nfree energy $F_t$", ORANGE),
    ("advance", "z ~ q\nmodel.advance(...)", "all that the past\nsends forward", GREEN),
)  # fmt: skip


def one_step(width):
    """Predict, update, advance; and what comes out of each."""
    if width == NARROW:
        return one_step_downwards()
    figure, axis = sheet(width, 3.2, units=18.4)
    places = (2.2, 3.9), (7.3, 4.4), (12.9, 3.6)
    for (x, wide), (name, how, out, colour) in zip(places, STEP, strict=True):
        box(axis, x, 2.3, wide, 1.9, name, how, colour=colour)
        middle = x + wide / 2
        arrow(axis, (middle, 2.2), (middle, 1.3))
        note(axis, middle, 0.7, out, size=8.8)
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
    return figure


def one_step_downwards():
    """The same from top to bottom."""
    figure, axis = sheet(NARROW, 3.7, units=7.2)
    arrow(axis, (2.4, 7.2), (2.4, 6.75))
    note(axis, 2.7, 7.0, "state$_t$", size=9.5, ha="left")
    for y, (name, how, out, colour) in zip((5.2, 2.95, 0.7), STEP, strict=True):
        box(axis, 0.7, y, 3.4, 1.5, name, how, colour=colour)
        arrow(axis, (4.1, y + 0.75), (4.6, y + 0.75))
        # A second line that is as short as the first.
        note(axis, 4.72, y + 0.75, out.replace(", surprise", ",\nsurprise"), size=8.2, ha="left")
    arrow(axis, (2.4, 5.2), (2.4, 4.5))
    arrow(axis, (2.4, 2.95), (2.4, 2.25))
    arrow(axis, (2.4, 0.7), (2.4, 0.2))
    note(axis, 2.7, 0.35, "state$_{t+1}$", size=9.5, ha="left")
    for y in (3.7, 1.45):
        arrow(axis, (0.25, y), (0.65, y))
    axis.plot([0.25, 0.25], [1.45, 4.85], color=INK, lw=1.2)
    note(axis, 0.05, 4.85, "observation $x_t$", size=8.8, ha="left")
    return figure


def learning(width):
    """Filter, replay, learn: what is a loop over time, and what is not."""
    is_narrow = width == NARROW
    num_steps, left, apart = (4, 0.5, 1.7) if is_narrow else (6, 6.6, 1.85)
    units, rise = (7.2, 3.0) if is_narrow else (18.4, 1.9)
    figure, axis = sheet(width, 4.0 if is_narrow else 3.0, units=units)
    rows = (
        (BLUE, "1  filter", "a loop over time, without a tape", True),
        (GREEN, "2  replay", "advance alone, with a tape", True),
        (ORANGE, "3  learn", "all steps of all sequences at once", False),
    )
    handed = ("sends down: $z_t$, and (q, dF/dq) of each iteration",
              "sends down: the state before each step")  # fmt: skip
    for number, (colour, name, what, is_loop) in enumerate(rows):
        y = (0.2 if is_narrow else 0.5) + rise * (2 - number)
        # Beside the boxes, or where there is no room, above them.
        at = (left - 0.1, y + 1.3) if is_narrow else (0.4, y + 0.75)
        note(axis, *at, name, colour=colour, size=10.5, ha="left")
        at = (left + 1.7, y + 1.3) if is_narrow else (0.4, y + 0.2)
        note(axis, *at, what, size=8.4, ha="left")
        for step in range(num_steps):
            x = left + apart * step
            box(axis, x, y, 1.2, 1.0, f"$t={step + 1}$", colour=colour)
            if is_loop and step < num_steps - 1:
                arrow(axis, (x + 1.2, y + 0.5), (x + apart - 0.05, y + 0.5))
            if number < 2 and not is_narrow:
                arrow(axis, (x + 0.6, y - 0.1), (x + 0.6, y - 0.8), colour=SMALL_PRINT)
        if number < 2:
            at = (left + 0.7, y - 0.65) if is_narrow else (0.4, y - 0.45)
            if is_narrow:
                arrow(axis, (left + 0.4, y - 0.1), (left + 0.4, y - 1.2), colour=SMALL_PRINT)
            note(axis, *at, handed[number], ha="left")
    return figure


if __name__ == "__main__":
    main()
