"""What recordings are like, in numbers: of tones, noise and rolls of which they are known."""

import numpy as np
import pytest

from varfilter.media.traits import MOST_RECORDINGS, music_traits, some, sound_traits, trait_table

RATE = 16000
TIMES = np.arange(2 * RATE) / RATE


def tone(*frequencies, level=3000.0):
    return level * np.sin(2 * np.pi * np.outer(frequencies, TIMES)).sum(axis=0)


def test_spectrum_of_tones_and_of_noise():
    one = sound_traits([tone(1000)], RATE)
    # A line is 10 Hz wide by the window of 50 ms and twice as long a transform; Hann has 4 of them.
    assert one["spectral centroid, Hz"] == pytest.approx(1000, abs=2)
    assert one["spectral spread, Hz"] < 40
    assert one["spectral flatness"] < 1e-3
    # The mean square of a sine is half of its height's square.
    loudness = 20 * np.log10(3000 / 2**15 / 2**0.5)
    assert one["loudness, dB of full scale"] == pytest.approx(loudness, abs=0.01)
    two = sound_traits([tone(1000, 3000)], RATE)
    assert two["spectral centroid, Hz"] == pytest.approx(2000, abs=2)
    assert two["spectral spread, Hz"] == pytest.approx(1000, abs=2)
    noise = sound_traits([np.random.default_rng(0).normal(0, 3000, 2 * RATE)], RATE)
    # 80 pieces: the mean power of a line has a relative error of 0.11; frequencies 4000 +- 2309.
    assert noise["spectral centroid, Hz"] == pytest.approx(4000, abs=60)
    assert noise["spectral spread, Hz"] == pytest.approx(RATE / 2 / 12**0.5, abs=60)
    assert noise["spectral flatness"] > 0.95


def test_louder_is_nothing_but_louder():
    rng = np.random.default_rng(0)
    sound = [tone(120, 240) * np.abs(np.sin(TIMES)), rng.normal(0, 300, RATE)]
    soft, loud = (sound_traits([k * each for each in sound], RATE) for k in (1.0, 10.0))
    assert loud.pop("loudness, dB of full scale") == pytest.approx(
        soft.pop("loudness, dB of full scale") + 20
    )
    assert loud == pytest.approx(soft)


@pytest.mark.parametrize("pitch", [80, 120, 220, 350])
def test_the_pitch_of_a_voice_is_that_of_its_harmonics(pitch):
    # The lowest is as weak as on a telephone.
    voice = tone(*(pitch * k for k in range(2, 9))) + 0.1 * tone(pitch)
    found = sound_traits([voice], RATE)
    assert found["voiced, % of what sounds"] == 100
    # Lags are whole samples.
    assert found["pitch of what is voiced, Hz"] == pytest.approx(pitch, rel=pitch / RATE)


def test_what_has_no_pitch_is_not_voiced():
    noise = np.random.default_rng(0).normal(0, 3000, 2 * RATE)
    for sound in (noise, tone(10), tone(20)):
        found = sound_traits([sound], RATE)
        assert found["voiced, % of what sounds"] < 2


def test_half_of_it_is_a_pause():
    sound = np.concatenate([tone(200), np.random.default_rng(0).normal(0, 3, 2 * RATE)])
    found = sound_traits([sound], RATE)
    # One of 159 pieces is half tone.
    assert found["pauses, % of the time"] == pytest.approx(50, abs=1)
    # What is a pause has no part in the rest.
    assert found["spectral centroid, Hz"] == pytest.approx(200, abs=5)
    assert found["voiced, % of what sounds"] == 100


def test_silence_and_scraps_have_what_they_have():
    silence = sound_traits([np.zeros(RATE)], RATE)
    assert silence["pauses, % of the time"] == 100
    assert not any(name.startswith(("spectral", "voiced", "pitch")) for name in silence)
    assert sound_traits([], RATE) == {}
    # Too low a rate for a pitch, and a recording that is shorter than a piece.
    for sound, rate in ((tone(3)[:50], 100), (tone(400)[:100], RATE)):
        found = sound_traits([sound], rate)
        assert all(np.isfinite(list(found.values())))
    assert "voiced, % of what sounds" not in sound_traits([tone(3)[:50]], 100)


def test_rolls_by_hand():
    roll = np.zeros((6, 88), np.uint8)
    c4 = 60 - 21
    roll[0:3, c4] = 1  # three steps
    roll[0, c4 + 4] = 1  # above it, one
    roll[4:6, c4 + 12] = 1  # after a silence, two
    roll[5, c4 + 1] = 1  # the one that is in no major scale with C, E and C
    found = music_traits([roll])
    assert found == pytest.approx(
        {
            "notes a step": 7 / 6,
            "silent steps, %": 100 / 6,
            # Of the five that sound after the first step.
            "notes held from the step before, %": 60,
            "notes of 1 step, %": 50,
            "notes of 2 steps, %": 25,
            "notes of 3 or 4 steps, %": 25,
            "notes of 5 steps or more, %": 0,
            # E to C, C to C, and on the other side of the silence C to C.
            "upper voice stays, %": 200 / 3,
            "upper voice moves by 1 or 2 semitones, %": 0,
            "upper voice moves by 3 to 7 semitones, %": 100 / 3,
            "upper voice leaps further, %": 0,
            "notes of the best major scale, %": 600 / 7,
        }
    )
    # In another key it is the same, and so are two of it.
    assert music_traits([np.roll(roll, 5, axis=1)]) == pytest.approx(found)
    assert music_traits([roll, roll]) == pytest.approx(found)
    assert music_traits([np.zeros((4, 88))]) == music_traits([]) == {}


def test_of_many_recordings_some_are_taken_at_even_distances():
    many = list(np.arange(1000)[:, None])
    taken = [int(each[0]) for each in some(many)]
    assert len(taken) == MOST_RECORDINGS
    assert (taken[0], taken[-1]) == (0, 999)
    assert set(np.diff(taken)) <= {32, 33}
    assert [int(each[0]) for each in some(many[:3])] == [0, 1, 2]
    assert list(some(many[:0])) == []


def test_a_table_has_a_row_for_each_trait_that_any_has():
    rows = trait_table({"a": {"x": 1234.5, "y": 0.0123456}, "b": {"x": 2.0, "z": 100.0}})
    assert rows == [["x", "1,234", "2"], ["y", "0.0123", ""], ["z", "", "100"]]
