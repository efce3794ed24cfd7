"""TIMIT: the whole corpus, split as the papers do, and the sample of it that may be passed on."""

import random
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from varfilter.data.audio import read_audio, sound_dataset, sound_files
from varfilter.data.dataset import SPLITS, Dataset
from varfilter.data.recordings import Recording
from varfilter.data.sets.entry import Judgement
from varfilter.data.sets.registry import CATALOGUE

RATE = 16000
# What the public preparation script of FIVO prints for its training part, in 16-bit levels.
MEAN, STD = 0.006060, 548.136169

_SENTENCE = re.compile(r"(?:.*/)?((?:TRAIN|TEST)/DR[1-8]/[^/]+/[^/.]+)[^/]*")
_SAMPLE = re.compile(r"(?:.*/)?(dr([1-8])-[^/_]+)[/_]([^/_]+)")


def timit(folder: Path | str, *, frame_size: int = 200, cache: Path | str | None = None) -> Dataset:
    """Read the whole corpus from a folder in which TRAIN and TEST lie somewhere, as from LDC.

    TRAIN|TEST/DRn/SPEAKER/SENTENCE.WAV in any letter case, SPHERE or plain WAV. The split is
    that of `timit_split`; speakers of the training part are in the validation part too, those
    of the test part in no other. `check_timit` says whether it is all there. `cache` is as
    in `audio_folder`.
    """
    paths = _sentences(Path(folder))
    train, valid = timit_split([key for key in paths if key.startswith("TRAIN")])
    test = sorted(key for key in paths if key.startswith("TEST"))
    sounds = {
        split: [_recording(paths[key], _name(key)) for key in keys]
        for split, keys in zip(SPLITS, (train, valid, test), strict=True)
    }
    return sound_dataset(
        "timit", sounds, folder=Path(folder), rate=RATE, frame_size=frame_size, cache=cache
    )


def timit_split(sentences: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the official training part, sorted and shuffled; the first 5% are for validation.

    The papers' programs ran `random.seed(1234); random.shuffle(files)` in Python 2, on the
    files in the order of the directory (Marino et al. 2018) or sorted (FIVO): the latter, which
    everybody can repeat, is this. Python 3 shuffles differently, and numpy may at any release;
    `random()` of a seed is promised to stay, and Python 2's shuffle is two lines of it.
    """
    order = sorted(sentences)
    draw = random.Random(1234).random
    for i in range(len(order) - 1, 0, -1):
        j = int(draw() * (i + 1))
        order[i], order[j] = order[j], order[i]
    num_valid = len(order) // 20
    return order[num_valid:], order[:num_valid]


def check_timit(dataset: Dataset) -> Judgement:
    """Judge whether all of TIMIT was read, by the number of files and the spread of training.

    The tolerances: leaving out other 5% of the files moves the spread by about 1.2 and the
    mean by 0.0015 (one standard deviation, by how much the files of the sample differ), so 2%
    and 0.02 hold for any split. The very split of FIVO agrees to rounding in single precision.
    """
    counts = tuple(len(dataset.split(split)) for split in SPLITS)
    mean, std = float(dataset.scaling.offset), float(dataset.scaling.scale)
    expected = CATALOGUE["timit"].expected.sequences
    is_complete = counts == expected
    is_near = abs(std - STD) < 0.02 * STD and abs(mean - MEAN) < 0.02
    is_same = abs(std - STD) < 0.01 and abs(mean - MEAN) < 0.001
    is_exact = dataset.train.values.dtype == np.int16
    lines = [
        f"{_mark(is_complete)} files (train, valid, test): {counts}, expected {expected}",
        f"{_mark(is_exact)} samples are {dataset.train.values.dtype}, expected int16",
        f"{_mark(is_near)} training mean {mean:.6f} and spread {std:.6f}, expected about"
        f" {MEAN:.6f} and {STD:.6f}" + (" (the same to rounding)" if is_same else ""),
    ]
    is_good = is_complete and is_near and is_exact
    verdict = "This is TIMIT, complete." if is_good else "This is not the whole TIMIT as expected."
    return Judgement(is_good, is_good, (*lines, verdict))


def timit_sample(folder: Path | str, *, frame_size: int = 200) -> Dataset:
    """Read the 160 sentences of 16 speakers that NLTK distributes, as FLAC or WAV.

    The files are named drN-SPEAKER_SENTENCE, or lie in folders drN-SPEAKER. No speaker is in
    two splits: region 7 is for validation, 8 for testing. All come from the training part of
    TIMIT, and likelihoods are not comparable with the whole corpus.
    """
    folder = Path(folder)
    sounds: dict[str, list[Recording]] = {split: [] for split in SPLITS}
    for path in sound_files(folder):
        match = _SAMPLE.fullmatch(path.relative_to(folder).with_suffix("").as_posix().lower())
        if match is None:
            raise ValueError(
                f"`folder` must hold only files named drN-SPEAKER_SENTENCE; got {str(path)!r}."
                " For sound of your own use `audio_folder`."
            )
        split = {"7": "valid", "8": "test"}.get(match[2], "train")
        sounds[split].append(_recording(path, f"{match[1]}_{match[3]}"))
    for split, part in sounds.items():
        if not part:
            raise ValueError(
                f"`folder` {str(folder)!r} has no sentence for {split}: some are lost."
            )
    return sound_dataset("timit-sample", sounds, folder=folder, rate=RATE, frame_size=frame_size)


def _sentences(folder: Path) -> dict[str, Path]:
    """The files of the sentences, as {"TRAIN/DR1/FCJF0/SA1": path}; some for either part."""
    found: dict[str, Path] = {}
    for path in sound_files(folder):
        match = _SENTENCE.fullmatch(path.relative_to(folder).as_posix().upper())
        if match is None:
            continue
        other = found.setdefault(match[1], path)
        if other is path:
            continue
        if other.parent != path.parent or len(other.name) == len(path.name):
            raise ValueError(
                f"`folder` must hold TIMIT once; {match[1]} is there as {str(other)!r} and as"
                f" {str(path)!r}. Give the folder of one copy."
            )
        # Some copies have SA1.WAV.wav, converted, beside the original SA1.WAV.
        found[match[1]] = min(other, path, key=lambda p: len(p.name))
    for part in ("TRAIN", "TEST"):
        if not any(key.startswith(part) for key in found):
            raise FileNotFoundError(
                f"`folder` must have TIMIT's files {part}/DRn/SPEAKER/SENTENCE.WAV in it;"
                f" {str(folder)!r} has none. Give the folder that holds TRAIN and TEST."
            )
    return found


def _name(key: str) -> str:
    """The name of a sentence, as the files of the sample have it: dr1-fcjf0_sa1."""
    _, region, speaker, sentence = key.lower().split("/")
    return f"{region}-{speaker}_{sentence}"


def _recording(path: Path, name: str) -> Recording:
    return Recording((path,), (name,), partial(_speech, path))


def _speech(path: Path) -> list[tuple[np.ndarray, int]]:
    sound = read_audio(path)
    if sound.rate != RATE:
        raise ValueError(
            f"{path} has {sound.rate} samples in a second; TIMIT has {RATE}. Give the original,"
            " or read it with `audio_folder`."
        )
    if sound.bits != 16:
        raise ValueError(
            f"{path} has {sound.bits} bits; TIMIT has 16. Give the original, or read it with"
            " `audio_folder`."
        )
    return [(sound.samples, RATE)]


def _mark(is_good: bool) -> str:
    return "ok " if is_good else "BAD"
