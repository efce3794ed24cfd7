"""A sentence, how a model went on with it, and what it made up: spectrograms.

    python docs/pictures/speech.py speech/timit_sample/dr8-mbcg0_sx147.flac goes-on.wav made-up.wav

makes `speech.png` of the files that the commands of the tutorial on speech write.
"""

import numpy as np
import soundfile
from drawing import canvas, parser, save

from varfilter.plots.style import COLOURS, plain, title, x_label, y_label

WINDOW, HOP = 400, 100
DECIBELS = 60.0


def main():
    options = parser(__doc__)
    options.add_argument("given", help="the sentence that was to be continued")
    options.add_argument("continued", help="the sentence with what the model made of it")
    options.add_argument("made_up", help="sound that was made up from the beginning")
    given = options.parse_args()
    sounds = [soundfile.read(each) for each in (given.given, given.continued, given.made_up)]
    save(picture(*sounds), given.out, "speech.png")


def spectrum(samples):
    """Decibels below the loudest, (frequencies, times)."""
    starts = np.arange(0, len(samples) - WINDOW, HOP)
    pieces = samples[starts[:, None] + np.arange(WINDOW)] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(pieces)) ** 2
    return 10.0 * np.log10(power / power.max() + 1e-12).T


def picture(given, continued, made_up):
    """The sentence with its continuation, above what was made up."""
    figure = canvas(9.2, 4.4)
    axes = figure.subplots(2, 1)
    titles = "a sentence, and how the model goes on from the line", "made up from the first step"
    for axis, (samples, rate), text in zip(axes, (continued, made_up), titles, strict=True):
        axis.imshow(
            spectrum(samples), origin="lower", aspect="auto", cmap="magma", vmin=-DECIBELS,
            vmax=0.0, extent=(0.0, len(samples) / rate, 0.0, rate / 2000.0),
        )  # fmt: skip
        plain(axis)
        title(axis, text)
        y_label(axis, "kHz")
    # Whole steps of the sentence were filtered; what is left over at its end is not.
    axes[0].axvline(len(given[0]) / given[1], color=COLOURS[1], lw=1.6)
    x_label(axes[1], "seconds")
    return figure


if __name__ == "__main__":
    main()
