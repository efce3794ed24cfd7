"""Piano rolls, one below another: pitch against steps."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from varfilter.plots.style import (
    COLOURS,
    GRID,
    INK,
    blank,
    ink,
    legible,
    plain,
    title,
    x_label,
    y_label,
)


def rolls(songs: Mapping[str, np.ndarray], width: float, lowest: int) -> Figure:
    """Draw rolls (steps, keys) by name, on common axes; the first is in ink, and is the data's.

    Only the pitches round those that sound are shown; `lowest` is the pitch of the first key.
    """
    figure = blank(width, 1.45 * len(songs) + 0.4)
    axes = figure.subplots(len(songs), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    sounding = np.flatnonzero(np.concatenate(list(songs.values())).max(axis=0) > 0.5)
    keys = lowest + (sounding if sounding.size else np.arange(1))
    for place, (axis, (name, roll)) in enumerate(zip(axes, songs.items(), strict=True)):
        plain(axis)
        num_steps, num_keys = roll.shape
        axis.imshow(
            roll.T, cmap=ink(COLOURS[0] if place else INK), vmin=0.0, vmax=1.0, origin="lower",
            aspect="auto", interpolation="nearest",
            extent=(-0.5, num_steps - 0.5, lowest - 0.5, lowest + num_keys - 0.5),
        )  # fmt: skip
        title(axis, legible(name, 60))
        y_label(axis, "pitch")
        cs = [note for note in range(24, 109, 12) if keys[0] - 2.5 <= note <= keys[-1] + 2.5]
        axis.set_yticks(cs, [f"C{note // 12 - 1}" for note in cs])
        for note in cs:  # between B and C: through C it would strike the notes out
            axis.axhline(note - 0.5, color=GRID, lw=0.6)
    axes[-1].set_ylim(keys[0] - 2.5, keys[-1] + 2.5)
    axes[-1].set_xlim(-0.5, max(map(len, songs.values())) - 0.5)
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    x_label(axes[-1], "step")
    return figure
