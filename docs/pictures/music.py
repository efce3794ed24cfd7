"""A chorale that a model went on with, and one that it made up, as piano rolls.

    python docs/pictures/music.py songs/test-000.mid goes-on.mid made-up.mid

makes `music.png` of the files that the commands of the tutorial on music write.
"""

import numpy as np
from drawing import canvas, parser, save_both

from varfilter.data.midi import read_midi
from varfilter.plots.style import COLOURS, INK, NARROW, ink, plain, title, x_label, y_label

LOWEST = 21
NUM_GIVEN = 32


def main():
    options = parser(__doc__)
    options.add_argument("given", help="the song that was to be continued")
    options.add_argument("continued", help="the song with what the model made of it")
    options.add_argument("made_up", help="a song that was made up from the beginning")
    given = options.parse_args()
    num_given = len(read_midi(given.given, steps_per_beat=1))
    continued = read_midi(given.continued, steps_per_beat=1)[max(0, num_given - NUM_GIVEN) :]
    made_up = read_midi(given.made_up, steps_per_beat=1)
    num_shown = min(num_given, NUM_GIVEN)
    save_both(lambda width: picture(continued, num_shown, made_up, width), given.out, "music.png")


def picture(continued, num_given, made_up, width):
    """Two rolls, one above the other."""
    figure = canvas(width, 4.4)
    axes = figure.subplots(2, 1)
    first = "the end of a chorale of Bach's, and how the model goes on"
    titles = (
        first.replace(", and", ",\nand") if width == NARROW else first,
        "made up from the first step",
    )
    for axis, roll, text in zip(axes, (continued, made_up), titles, strict=True):
        keys = np.flatnonzero(roll.any(axis=0))
        low, high = keys.min() - 2, keys.max() + 3
        axis.imshow(
            roll[:, low:high].T, origin="lower", aspect="auto", cmap=ink(COLOURS[0]),
            vmin=0, vmax=1,
            extent=(0, len(roll), low + LOWEST - 0.5, high + LOWEST - 0.5), interpolation="nearest",
        )  # fmt: skip
        plain(axis)
        title(axis, text)
        y_label(axis, "MIDI note")
    axes[0].axvline(num_given, color=COLOURS[1], lw=1.6)
    for x, text, side in ((num_given - 1.0, "Bach", "right"), (num_given + 1.5, "model", "left")):
        axes[0].text(
            x, 0.95, text, ha=side, va="top", fontsize=8.5, color=INK,
            transform=axes[0].get_xaxis_transform(),
        )  # fmt: skip
    x_label(axes[1], "step (a beat)")
    return figure


if __name__ == "__main__":
    main()
