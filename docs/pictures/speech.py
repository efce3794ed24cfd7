"""How a model went on with a sentence, and what it made up: spectrograms.

    python docs/pictures/speech.py speech/timit_sample/dr8-mbcg0_sx147.flac goes-on.wav made-up.wav

makes `speech.png` of the files that the commands of the tutorial on speech write. The sentence
itself is not drawn, since its licence is not that of this project.
"""

import numpy as np
import soundfile
from drawing import canvas, parser, save

from varfilter.plots.style import plain, title, x_label, y_label

WINDOW, HOP = 400, 100
DECIBELS = 60.0


def main():
    options = parser(__doc__)
    options.add_argument("given", help="the sentence that was to be continued")
    options.add_argument("continued", help="the sentence with what the model made of it")
    options.add_argument("made_up", help="sound that was made up from the beginning")
    given = options.parse_args()
    num_given = len(soundfile.read(given.given)[0])
    continued, rate = soundfile.read(given.continued)
    made_up = soundfile.read(given.made_up)[0]
    save(picture(continued[num_given:], made_up, rate), given.out, "speech.png")


def spectrum(samples):
    """Decibels below the loudest, (frequencies, times)."""
    starts = np.arange(0, len(samples) - WINDOW, HOP)
    pieces = samples[starts[:, None] + np.arange(WINDOW)] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(pieces)) ** 2
    return 10.0 * np.log10(power / power.max() + 1e-12).T


def picture(continued, made_up, rate):
    """What follows a sentence, above what was made up."""
    figure = canvas(9.2, 4.4, resolution=100)  # of noise, each pixel costs
    axes = figure.subplots(2, 1)
    titles = "what the model makes of the end of a sentence", "made up from the first step"
    for axis, samples, text in zip(axes, (continued, made_up), titles, strict=True):
        axis.imshow(
            spectrum(samples), origin="lower", aspect="auto", cmap="magma", vmin=-DECIBELS,
            vmax=0.0, extent=(0.0, len(samples) / rate, 0.0, rate / 2000.0),
        )  # fmt: skip
        plain(axis)
        title(axis, text)
        y_label(axis, "kHz")
    x_label(axes[1], "seconds")
    return figure


if __name__ == "__main__":
    main()
