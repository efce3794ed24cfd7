"""Spectra of sound: how loud each frequency is at each time, drawn beside the wave."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from varfilter.plots.style import (
    COLOURS,
    INK,
    WIDE,
    blank,
    ink,
    legible,
    outline,
    plain,
    title,
    x_label,
    y_label,
)

# From black to white; what is lower than `SILENCE` is no sound.
DECIBELS, SILENCE = 70.0, -120.0


def spectrum_of(samples: np.ndarray, rate: float | int) -> np.ndarray:
    """Decibels (frequency, time), from pieces of 25 ms, four times overlapping."""
    return 20.0 * np.log10(np.maximum(_pieces(samples, rate), 10.0 ** (SILENCE / 20.0))).T


def flatness(samples: np.ndarray, rate: float | int) -> float:
    """The geometric mean of the power of all frequencies over the arithmetic one, of all pieces.

    1 for white noise, near 0 where a few frequencies have it all. Silence is left out.
    """
    power = np.mean(_pieces(samples, rate)[:, 1:] ** 2, axis=0)
    if not power.sum() > 0:
        return 0.0
    return float(np.exp(np.mean(np.log(np.maximum(power, 1e-12 * power.max())))) / power.mean())


def loudest_part(samples: np.ndarray, size: int) -> np.ndarray:
    """The `size` samples in a row with the most energy; all of them if there are fewer."""
    if len(samples) <= size:
        return samples
    sums = np.concatenate([[0.0], np.cumsum(np.square(samples - np.mean(samples)))])
    begin = int(np.argmax(sums[size:] - sums[:-size]))
    return samples[begin : begin + size]


def spectra(sounds: Mapping[str, np.ndarray], rate: float | int, width: float) -> Figure:
    """Draw wave and spectrum of each sound, on the scale of the first, one below another."""
    is_wide = width == WIDE
    num_wide, num_high = (2, len(sounds)) if is_wide else (1, 2 * len(sounds))
    figure = blank(width, 1.25 * num_high + 0.4)
    axes = figure.subplots(num_high, num_wide, squeeze=False).reshape(-1, 2)
    levels = {name: spectrum_of(samples, rate) for name, samples in sounds.items()}
    first = next(iter(sounds))
    loudest = max(float(levels[first].max()), DECIBELS + SILENCE)
    height = 1.05 * max(float(np.abs(sounds[first]).max()), 1.0)
    seconds = max(map(len, sounds.values())) / rate
    unit, divisor = ("kHz", 1000.0) if rate >= 4000 else ("Hz", 1.0)
    for (wave, spectrum), (name, samples) in zip(axes, sounds.items(), strict=True):
        plain(wave, grid=True)
        times = np.arange(len(samples)) / rate
        colour = INK if name == first else COLOURS[0]
        wave.plot(*outline(times, samples), color=colour, lw=0.5)
        wave.set(xlim=(0.0, seconds), ylim=(-height, height))
        title(wave, legible(name, 60 if is_wide else 44))
        y_label(wave, "amplitude")
        plain(spectrum)
        spectrum.imshow(
            levels[name], cmap=ink("black"), vmin=loudest - DECIBELS, vmax=loudest, origin="lower",
            aspect="auto", extent=(0.0, len(samples) / rate, 0.0, rate / 2 / divisor),
        )  # fmt: skip
        spectrum.set_xlim(0.0, seconds)
        y_label(spectrum, unit)
    for axis in axes[-1]:
        x_label(axis, "seconds")
    title(axes[0, 1], f"{DECIBELS:.0f} dB from black to white", small=True)
    return figure


def _pieces(samples: np.ndarray, rate: float | int) -> np.ndarray:
    """The size of each frequency (time, frequency), by a window of Hann."""
    size = max(round(0.025 * rate), 16)
    padded = np.pad(np.asarray(samples, np.float32), (size // 2, size))
    pieces = np.lib.stride_tricks.sliding_window_view(padded, size)[: len(samples) : size // 4]
    return np.abs(np.fft.rfft(pieces * np.hanning(size).astype(np.float32)))
