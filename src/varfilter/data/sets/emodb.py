"""EmoDB, the Berlin database of emotional speech: ten actors, ten German sentences."""

import re
from functools import partial
from pathlib import Path

import numpy as np

from varfilter.data.audio import read_audio, sound_dataset, sound_files
from varfilter.data.dataset import SPLITS, Dataset
from varfilter.data.recordings import Recording

RATE = 16000
# Actors that learning does not hear; all others are in the training part.
SPEAKERS = {"valid": ("15",), "test": ("16", "03")}
# The speaker, the text, the emotion by its German initial, and the version: 03a01Fa.
_UTTERANCE = re.compile(r"(\d\d)([ab]\d\d)([A-Z])([a-z])")


def emodb(folder: Path | str, *, frame_size: int = 200) -> Dataset:
    """Read the 535 utterances of a folder, as FLAC or WAV; no actor is in two splits.

    Actor 15 is for validation, 16 and 03 (a woman and a man) for testing. All speak the same ten
    sentences, so that no split has words of its own.
    """
    folder = Path(folder)
    sounds: dict[str, list[Recording]] = {split: [] for split in SPLITS}
    for path in sound_files(folder):
        match = _UTTERANCE.fullmatch(path.stem)
        if match is None:
            raise ValueError(
                f"`folder` must hold only utterances of EmoDB, named such as 03a01Fa; got"
                f" {str(path)!r}. For sound of your own use `audio_folder`."
            )
        split = next((name for name, own in SPEAKERS.items() if match[1] in own), "train")
        sounds[split].append(Recording((path,), (path.stem,), partial(_speech, path)))
    for split, part in sounds.items():
        if not part:
            raise ValueError(
                f"`folder` {str(folder)!r} has no utterance for {split}: some are lost."
            )
    return sound_dataset("emodb", sounds, folder=folder, rate=RATE, frame_size=frame_size)


def _speech(path: Path) -> list[tuple[np.ndarray, int]]:
    sound = read_audio(path)
    if (sound.rate, sound.bits) != (RATE, 16):
        raise ValueError(
            f"{path} has {sound.rate} samples in a second of {sound.bits} bits; EmoDB has {RATE} of"
            " 16. Give the original, or read it with `audio_folder`."
        )
    return [(sound.samples, RATE)]
