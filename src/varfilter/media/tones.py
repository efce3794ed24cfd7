"""Piano rolls as sound, by plain tones: for ears, not for concerts."""

import io

import numpy as np

from varfilter._text import count
from varfilter.data.audio import write_wav
from varfilter.data.dataset import Dataset
from varfilter.media.exhibits import Clip, Exhibit, Maker
from varfilter.media.traits import LIKENESS, music_traits, some

RATE = 11025
# How loud each harmonic is, and after how many seconds a note has faded to a third.
HARMONICS, FADING = (1.0, 0.5, 0.25, 0.12), 0.7
# The rise and the fall of a note, without which it would click.
EDGE_SECONDS = 0.01
LOUDEST = 20_000.0
# Steps of each song in a report; and songs that are made up to say what such are like, of which two
# are played.
NUM_STEPS, NUM_MADE, NUM_PLAYED = 64, 8, 2


def music_exhibits(
    dataset: Dataset, split: str, make: Maker, seconds_per_step: float, lowest: int
) -> list[Exhibit]:
    """Players and rolls: the beginning of a held-out song, and what the model makes up."""
    from varfilter.plots.rolls import rolls

    songs: dict[str, np.ndarray] = {}
    if len(dataset.split(split)):
        song = np.asarray(dataset.split(split)[0][:NUM_STEPS], np.float32)
        songs[f"held out: {dataset.sequence_names(split)[0]}"] = np.nan_to_num(song)
    made = make(NUM_STEPS, NUM_MADE)
    songs |= {f"made up, {i}": xs for i, xs in enumerate(made[:NUM_PLAYED], 1)}
    shown = Exhibit(
        "What is made up begins with the first step of a training song; none was chosen.",
        paint=lambda width: rolls(songs, width, lowest),
    )
    # Of a long song its beginning counts, as of those that are made up.
    beginnings = (song[:NUM_STEPS] for song in some(dataset.split(split)))
    traits = {split: music_traits(beginnings), f"made up ({NUM_MADE})": music_traits(made)}
    players = [_player(name, xs, seconds_per_step, lowest) for name, xs in songs.items()]
    return [shown, *players, Exhibit(LIKENESS, traits=traits)]


def _player(name: str, roll: np.ndarray, seconds_per_step: float, lowest: int) -> Exhibit:
    buffer = io.BytesIO()
    write_wav(tones(roll, seconds_per_step, lowest), buffer, RATE)
    notes = float(np.mean(np.sum(roll > 0.5, axis=1)))
    caption = (
        f"{name}: {count(len(roll), 'step')}, {notes:.2f} notes a step; played by plain tones."
    )
    return Exhibit(caption, Clip("audio/wav", buffer.getvalue()))


def tones(roll: np.ndarray, seconds_per_step: float, lowest: int) -> np.ndarray:
    """Samples in levels of 16 bits of a roll (steps, keys) of 0 and 1; `lowest` is the first pitch.

    A key that goes on from step to step is one note, since a roll does not say otherwise.
    """
    size = max(1, round(seconds_per_step * RATE))
    samples = np.zeros(len(roll) * size)
    on = np.pad(np.asarray(roll) > 0.5, ((1, 1), (0, 0))).astype(np.int8)
    changes = np.diff(on, axis=0)
    for key in np.flatnonzero(changes.any(axis=0)):
        begins, ends = (np.flatnonzero(changes[:, key] == sign).tolist() for sign in (1, -1))
        for begin, end in zip(begins, ends, strict=True):
            samples[begin * size : end * size] += _note(lowest + int(key), (end - begin) * size)
    loudest = float(np.abs(samples).max(initial=0.0))
    return samples * (LOUDEST / loudest) if loudest else samples


def _note(pitch: int, size: int) -> np.ndarray:
    times = np.arange(size) / RATE
    frequency = 440.0 * 2.0 ** ((pitch - 69) / 12)
    wave = np.zeros(size)
    for number, level in enumerate(HARMONICS, 1):
        if number * frequency < RATE / 2:  # what is higher would come back as another tone
            wave += level * np.sin(2 * np.pi * number * frequency * times)
    edge = np.minimum(times, times[::-1]) / EDGE_SECONDS
    return wave * np.exp(-times / FADING) * np.minimum(edge, 1.0)
