"""What a model expected of the frames of a clip, each before it was seen, and what may follow.

    python docs/pictures/video.py expected.gif ahead.gif

makes `video.png` of the files that the commands of the tutorial on video write. The clip itself is
not drawn, since its licence does not say that it may be passed on.
"""

import numpy as np
from drawing import canvas, parser, save
from PIL import Image, ImageSequence

from varfilter.plots.style import INK

NUM_SHOWN = 8


def main():
    options = parser(__doc__)
    options.add_argument("expected", help="what was expected of each frame of a clip")
    options.add_argument("ahead", help="what may follow its last frame")
    given = options.parse_args()
    rows = {
        "expected one\nframe before": frames_of(given.expected)[1:],  # the first is as it was given
        "forecast after\nthe last frame": frames_of(given.ahead),
    }
    save(picture(rows), given.out, "video.png")


def frames_of(path):
    """The frames of a film in grey."""
    with Image.open(path) as film:
        images = [frame.convert("L") for frame in ImageSequence.Iterator(film)]
    return [np.asarray(image.resize((128, 128))) for image in images]


def picture(rows):
    """A strip for each, with frames at even distances."""
    figure = canvas(9.2, 2.4, resolution=120)
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
