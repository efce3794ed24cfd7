"""The tutorials: their commands and their Python, tiny by default, and to the letter when slow."""

import functools

import numpy as np
import pytest
import soundfile

import videos
from commands import PROGRAM, command, script
from pages import DOCS, python_of, run_commands, stand_in_a_checkout
from real_data import DATA, needs_data
from songs import TINY
from varfilter.data.midi import write_midi

TUTORIALS = DOCS / "tutorials"
FEW = ["--num-particles", "2", "--num-samples", "4"]
STEPS = ["--num-steps", "6"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    stand_in_a_checkout(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_chorales(folder):
    """Songs of four voices that wander, as the tutorial on music writes those of `jsb`."""
    rng = np.random.default_rng(0)
    for place, count in (("songs", 12), ("new", 2)):
        (folder / place).mkdir()
        for number in range(count):
            steps = np.cumsum(rng.integers(-2, 3, (14, 4)), 0)
            roll = np.zeros((14, 88), np.uint8)
            roll[np.arange(14)[:, None], np.array([30, 37, 42, 49]) + steps] = 1
            write_midi(roll, folder / place / f"test-{number:03}.mid")


def write_sentences(folder):
    """Tones with the names of some of the sentences that are fetched."""
    rng = np.random.default_rng(0)
    place = folder / "speech" / "timit_sample"
    place.mkdir(parents=True)
    for number, name in enumerate([f"tone-{i}" for i in range(11)] + ["dr8-mbcg0_sx147"]):
        tone = 3000 * np.sin(np.arange(8 * 200) * (0.02 + 0.01 * number))
        samples = np.rint(tone + rng.normal(0, 20, len(tone))).astype(np.int16)
        soundfile.write(place / f"{name}.flac", samples, 16000)


def write_clips(folder):
    """A spot that moves, with the names of some of the clips that are fetched."""
    rng = np.random.default_rng(0)
    for name in [f"spot-{i}" for i in range(11)] + ["daria_walk"]:
        at = rng.uniform(2, 8) + 0.5 * np.arange(14)
        grid = np.arange(16)
        frames = np.exp(-((grid - at[:, None, None]) ** 2 + (grid[:, None] - 8) ** 2) / 6)
        path = folder / "video" / "weizmann" / f"{name}.avi"
        videos.write_video(path, np.rint(255 * frames).astype(np.uint8))


MUSIC = [*TINY, "--max-updates", "2"]
SMALLEST = [
    *("--model.latent-size", 3, "--model.recurrent-size", 4, "--filter.inference.hidden-size", 4),
    *("--filter.inference.num-layers", 1, "--optimizer.num-phi-steps", 1, "--schedule.batch-size", 2),
    *("--schedule.num-steps", 4, "--schedule.epochs-per-validation", 1, "--max-updates", 1),
]
SPEECH = [
    *SMALLEST,
    *("--model.data-feature-size", 4, "--model.latent-feature-size", 4, "--model.prior-size", 4),
    *("--model.decoder-size", 4, "--model.num-layers", 1),
]
VIDEO = [
    *SMALLEST,
    *("--data.size", 8, "--model.code-size", 4, "--model.channels", 4, "--model.convolutions", 1),
]


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("name", ["music", "speech", "video"])
def test_commands_of_a_tutorial_run_tiny(name, folder):
    write, train = {
        "music": (write_chorales, MUSIC),
        "speech": (write_sentences, SPEECH),
        "video": (write_clips, VIDEO),
    }[name]
    write(folder)
    particles = ["--num-particles", "2"]
    more = {"train": train, "filter": FEW, "forecast": FEW, "sample": STEPS, "evaluate": particles}
    run_commands(
        TUTORIALS / f"{name}.md", functools.partial(quick, more), only=("train", "filter", "sample")
    )
    run_commands(TUTORIALS / f"{name}.md", command, only=("data",))


def quick(more, *words):
    """A command with what `more` has for it."""
    return command(*words, *more.get(words[0], ()))
