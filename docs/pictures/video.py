"""Frames of a clip, what was expected of each before it was seen, and what may follow.

    python docs/pictures/video.py video/weizmann/daria_walk.avi expected.gif ahead.gif

makes `video.png` of the files that the commands of the tutorial on video write.
"""

import av
import numpy as np
from drawing import canvas, parser, save
from PIL import Image, ImageSequence

from varfilter.plots.style import INK

NUM_SHOWN = 8


def main():
    options = parser(__doc__)
    options.add_argument("clip", help="the clip that was filtered")
    options.add_argument("expected", help="what was expected of each of its frames")
    options.add_argument("ahead", help="what may follow its last frame")
    given = options.parse_args()
    rows = {
        "seen": frames_of(given.clip),
        "expected one\nframe before": frames_of(given.expected),
        "forecast after\nthe last frame": frames_of(given.ahead),
    }
    save(picture(rows), given.out, "video.png")


def frames_of(path):
    """The frames of a film in grey, squeezed to squares as the model saw them."""
    if str(path).endswith(".gif"):
        with Image.open(path) as film:
            images = [frame.convert("L") for frame in ImageSequence.Iterator(film)]
    else:
        with av.open(str(path)) as film:
            images = [frame.to_image().convert("L") for frame in film.decode(video=0)]
    return [np.asarray(image.resize((128, 128))) for image in images]


def picture(rows):
    """A strip for each, with frames at even distances."""
    figure = canvas(9.2, 3.5)
    axes = figure.subplots(len(rows), NUM_SHOWN, squeeze=False)
    for strip, (name, frames) in zip(axes, rows.items(), strict=True):
        for axis, number in zip(strip, np.linspace(0, len(frames) - 1, NUM_SHOWN), strict=True):
            axis.imshow(frames[int(number)], cmap="gray", vmin=0, vmax=255)
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_title(f"{int(number) + 1}", fontsize=7.5, color=INK, pad=2)
        strip[0].set_ylabel(name, fontsize=8.5, color=INK)
    return figure


if __name__ == "__main__":
    main()
