"""Tones have the pitch, the length and the silence of the notes of a roll."""

import numpy as np

from sounds import peak
from varfilter.media.tones import RATE, tones


def test_a_roll_sounds_as_it_is_written():
    roll = np.zeros((4, 88))
    roll[0:2, 69 - 21] = 1  # the A of 440 Hz for two steps
    roll[3, 57 - 21] = 1  # an octave below, after a step of silence
    samples = tones(roll, 0.5, 21)
    size = round(0.5 * RATE)
    assert len(samples) == 4 * size
    # A line of the spectrum of half a second is 2 Hz wide.
    assert abs(peak(samples[: 2 * size], RATE) - 440) < 2
    assert abs(peak(samples[3 * size :], RATE) - 220) < 3
    assert not samples[2 * size : 3 * size].any()
    assert 0 < np.abs(samples).max() < 2**15
    # One note of two steps: it does not stop between them.
    assert np.abs(samples[size - 50 : size + 50]).max() > 1000


def test_silence_and_the_highest_key_are_no_noise():
    assert not tones(np.zeros((3, 88)), 0.1, 21).any()
    highest = np.zeros((4, 88))
    highest[:, 87] = 1
    assert abs(peak(tones(highest, 0.25, 21), RATE) - 4186) < 5
