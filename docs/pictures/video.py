"""What a model expected of a clip, frame by frame, and how it goes on, beside what came.

    python docs/pictures/video.py CLIP EXPECTED AHEAD GOES_ON

makes `video.png` of a whole clip and of the films that the commands of the tutorial on video write:
of CLIP as it was expected, and of two ways on from its first 20 frames. The clips are those of
`walkers.py`, since Weizmann's have no licence that says that they may be passed on.
"""

import numpy as np
from drawing import canvas, parser, save
from PIL import Image, ImageSequence

from varfilter.plots.style import INK

NUM_SHOWN = 8


def main():
    options = parser(__doc__)
    options.add_argument("clip", help="a clip that was not learned from")
    options.add_argument("expected", help="what was expected of each of its frames")
    options.add_argument("ahead", help="the mean of what may follow its beginning")
    options.add_argument("goes_on", help="its beginning, and one future")
    given = options.parse_args()
    lasts = shortest(given.clip)
    clip, expected, ahead, goes_on = (
        frames_of(path, lasts) for path in (given.clip, given.expected, given.ahead, given.goes_on)
    )
    begin = len(goes_on) - len(ahead)
    rows = {
        "seen": (clip[1:begin], 2),  # the first is given, and not expected
        "expected one\nframe before": (expected[1:begin], 2),
        "what came": (clip[begin:], begin + 1),
        "one future": (goes_on[begin:], begin + 1),
        "the mean of\nmany": (ahead, begin + 1),
    }
    save(picture(rows), given.out, "video.png")


def shortest(path):
    """The milliseconds of a step: a frame that stays as it was for several is one in the file."""
    with Image.open(path) as film:
        return min(frame.info["duration"] for frame in ImageSequence.Iterator(film))


def frames_of(path, lasts):
    """The frames of a film in grey, each as often as it lasts so many milliseconds."""
    found = []
    with Image.open(path) as film:
        for frame in ImageSequence.Iterator(film):
            image = frame.convert("L").resize((128, 128))
            found += [np.asarray(image)] * round(frame.info["duration"] / lasts)
    return found


def picture(rows):
    """A strip for each, with frames at even distances under the number of their step."""
    figure = canvas(9.2, 1.2 * len(rows), resolution=100)
    axes = figure.subplots(len(rows), NUM_SHOWN, squeeze=False)
    for strip, (name, (frames, first)) in zip(axes, rows.items(), strict=True):
        for axis, number in zip(strip, np.linspace(0, len(frames) - 1, NUM_SHOWN), strict=True):
            axis.imshow(frames[int(number)], cmap="gray", vmin=0, vmax=255)
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_title(f"{int(number) + first}", fontsize=7.5, color=INK, pad=2)
        strip[0].set_ylabel(name, fontsize=8.5, color=INK)
    return figure


if __name__ == "__main__":
    main()
