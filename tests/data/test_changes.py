"""What reading changed of the user's files is said, and what it did not is not."""

import mido
import numpy as np
import pytest
from PIL import Image

from varfilter.data import audio_folder, midi_folder, video_folder, write_midi, write_wav
from varfilter.data.recordings import (
    FrameHeader,
    SoundHeader,
    frame_changes,
    loudness_changes,
    own_rate,
    sound_changes,
)


def test_sound_that_is_as_it_should_be_is_not_spoken_of():
    assert sound_changes([SoundHeader(16000, 1)] * 3, 16000) == ()


@pytest.mark.parametrize(
    ("rates", "said", "of_lower"),
    [
        ([44100], "The file was resampled from 44,100 to 16,000 Hz.", None),
        (
            [8000],
            "The file was resampled from 8,000 to 16,000 Hz.",
            "No file has anything above 4,000",
        ),
        ([8000, 16000], "1 of 2 files was resampled from 8,000 to 16,000 Hz.", "What had 8,000 Hz"),
        (
            [8000, 44100, 44100],
            "All 3 files were resampled from 44,100 and 8,000 to 16,000 Hz.",
            "What had 8,000 Hz",
        ),
        (
            [1, 2, 3, 4, 16000],
            "4 of 5 files were resampled from 1, 2 and 2 others to 16,000 Hz.",
            "What had 1, 2 and 2 others Hz",
        ),
    ],
)
def test_other_rates(rates, said, of_lower):
    first, *rest = sound_changes([SoundHeader(rate, 1) for rate in rates], 16000)
    assert first == said
    # A file cannot gain what it does not hold: that is said, since it flatters scores.
    assert [text.startswith(of_lower or "-") for text in rest] == (
        [] if of_lower is None else [True]
    )


@pytest.mark.parametrize(
    ("rates", "taken"), [([8000], 8000), ([8, 16, 16], 16), ([16, 8], 8), ([8, 8, 16, 16], 8)]
)
def test_the_own_rate_is_that_of_most_files(rates, taken):
    rate, said = own_rate([SoundHeader(rate, 1) for rate in rates])
    assert rate == taken
    assert ("several rates" in said) == (len(set(rates)) > 1)


def test_frames():
    square, wide = FrameHeader(128, 128, False), FrameHeader(160, 120, True)
    assert frame_changes([FrameHeader(64, 64, False)], 64, color=False) == ()
    assert frame_changes([square, square], 64, color=False) == (
        "All 2 videos were resized from 128x128 to 64x64 pixels.",
    )
    resized, grey = frame_changes([wide, square], 64, color=False)
    assert "from 160x120 and 128x128 to 64x64 pixels; the aspect is not kept" in resized
    assert grey == "1 of 2 videos was made grey."
    assert len(frame_changes([wide, square], 64, color=True)) == 1
    (cut,) = frame_changes([wide, wide], 64, color=True, crop=True)
    assert cut == (
        "All 2 videos were cut to the square in the middle, and resized from 160x120 to 64x64"
        " pixels."
    )


def test_frame_rates():
    fast, slow = FrameHeader(8, 8, False, 30.0), FrameHeader(8, 8, False, 10.0)
    assert frame_changes([fast, fast], 8, color=False) == ()
    (mixed,) = frame_changes([fast, slow], 8, color=False)
    assert mixed.startswith("The videos have 30 and 10 frames a second, and every frame is a step")
    (thinned,) = frame_changes([fast, slow], 8, color=False, frame_rate=10.0)
    assert thinned == "1 of 2 videos was thinned from 30 to 10 frames a second."


def test_a_folder_of_sound_says_so(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    noise = np.random.default_rng(0).normal(0, 0.1, (3, 4000, 2))
    for number, (rate, channels) in enumerate(((16000, 1), (8000, 1), (16000, 2))):
        path = tmp_path / f"{number}.wav"
        soundfile.write(path, noise[number, :, :channels], rate, subtype="PCM_16")
    assert audio_folder(tmp_path).notes == (
        "The files have several rates, 16,000 Hz (2 files) and 8,000 Hz (1 file); 16,000 Hz was"
        " taken. A step of 200 samples lasts 12.5 ms.",
        "1 of 3 files was resampled from 8,000 to 16,000 Hz.",
        "What had 8,000 Hz has nothing above half of that, and is easier to predict.",
        "1 of 3 files was mixed: the channels were averaged to one.",
    )


def test_a_folder_of_music_says_so(tmp_path):
    for number in range(2):
        write_midi(np.eye(8, 88, number), tmp_path / f"{number}.mid")
    tracks = []
    for channel, notes in ((0, (60, 5)), (1, (64,)), (9, (40, 41))):
        track = mido.MidiTrack()
        if channel == 0:
            track.append(mido.Message("control_change", channel=0, control=64, value=127))
        for note in notes:
            track.append(mido.Message("note_on", channel=channel, note=note, velocity=9))
            track.append(mido.Message("note_off", channel=channel, note=note, time=480))
        tracks.append(track)
    mido.MidiFile(type=1, ticks_per_beat=480, tracks=tracks).save(str(tmp_path / "band.mid"))
    # 8 notes each of the first two, and five of the band: one below the keyboard, two of drums.
    assert midi_folder(tmp_path, steps_per_beat=2).notes == (
        "A step is 1/2 of a beat.",
        "1 of 3 files was merged: all parts are on one keyboard.",
        "1 of 21 notes is off the 88 keys, and left out.",
        "2 of 21 notes are of drums, and left out.",
        "The sustain pedal is ignored, which 1 of 3 files uses.",
    )


def test_a_folder_of_images_says_so(tmp_path):
    images = pytest.importorskip("PIL.Image")
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        for frame in range(2):
            pixels = np.full((20, 30, 3), 10 * number + frame, np.uint8)
            images.fromarray(pixels).save(folder / f"{frame}.png")
    assert video_folder(tmp_path, 8).notes == (
        "All 3 videos were resized from 30x20 to 8x8 pixels; the aspect is not kept (`crop`"
        " keeps it).",
        "All 3 videos were made grey.",
    )


def test_a_step_that_is_far_shorter_than_the_paper_s_is_said(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    noise = np.random.default_rng(0).normal(0, 0.1, (3, 4000))
    for number, samples in enumerate(noise):
        soundfile.write(tmp_path / f"{number}.wav", samples, 96000, subtype="PCM_U8")
    said = audio_folder(tmp_path).notes
    assert said[1:] == (
        "With `frame_size` 1200 it would last the 12.5 ms that the model was made for.",
        "The files have 8 bits, and scores are probabilities of their levels: each is 256 of 16"
        " bits.",
    )
    # What is resampled has other levels, and what is asked for is not advised on.
    assert len(audio_folder(tmp_path, rate=16000, frame_size=10).notes) == 1


def test_silence_is_said_of_what_never_sounds(tmp_path):
    rng = np.random.default_rng(3)
    noise = 1000.0 * rng.normal(size=(4, 6000))
    noise[:2, :5000] = 0.0  # begins after a pause
    for name, samples in zip("abcd", noise, strict=True):
        write_wav(samples, tmp_path / f"{name}.wav", 16000)
    assert len(audio_folder(tmp_path).notes) == 1
    write_wav(np.zeros(6000), tmp_path / "c.wav", 16000)
    (said,) = audio_folder(tmp_path).notes[1:]
    assert said.startswith("1 of 4 files is silent from beginning to end: c (")
    write_wav(np.full(6000, 7), tmp_path / "d.wav", 16000)
    (said,) = audio_folder(tmp_path).notes[1:]
    assert said.startswith("2 of 4 files are silent from beginning to end: ")
    assert "They are easy to predict" in said


def test_loudness():
    assert loudness_changes([("a.wav", 2, 1000)]) == (
        "1 file has samples that are louder than 16 bits hold, and were clipped: 2 of 1,000 in"
        " a.wav. `fine` keeps them."
    )
    many = loudness_changes([(f"{i}.wav", 1, 10) for i in range(9)])
    assert many.startswith("9 files have samples")
    assert "others" in many


@pytest.mark.parametrize(
    ("lasts", "is_uneven"),
    [
        ([40] * 30, False),
        ([30, 30, 40] * 10, False),  # a GIF of 30 frames a second
        ([40] * 29 + [80], False),  # a frame that was lost
        ([33, 33, 100, 33, 66] * 6, True),
        ([40, 200], False),  # too few to tell
    ],
)
def test_videos_whose_frames_come_at_uneven_times_are_said(lasts, is_uneven, tmp_path):
    images = [
        Image.fromarray(np.full((16, 16), 10 * i % 256, np.uint8)) for i in range(len(lasts) + 1)
    ]
    for number in range(3):
        images[0].putpixel((0, 0), number)
        images[0].save(
            tmp_path / f"{number}.gif", save_all=True, append_images=images[1:],
            duration=[*lasts, 40], loop=0,
        )  # fmt: skip
    said = " ".join(video_folder(tmp_path, 16).notes)
    assert ("3 of 3 videos have frames that are shown for unequal times" in said) == is_uneven
