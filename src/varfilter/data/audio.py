"""Sound: files of any rate and depth read alike, and a folder of them as a data set."""

import math
import wave
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter._arguments import require_all_positive, require_positive
from varfilter.data.dataset import SPLITS, Dataset, Family, Ragged, Scaling
from varfilter.data.extras import require
from varfilter.data.sphere import is_sphere, read_sphere
from varfilter.data.splits import split_by_sequence
from varfilter.distributions import DiscretizedNormal, Normal

SUFFIXES = (".wav", ".flac", ".sph", ".nist")
# By libsndfile's names. What is not here (ADPCM, GSM) is decoded to 16 bits.
BITS = {
    "PCM_U8": 8, "PCM_S8": 8, "ULAW": 8, "ALAW": 8, "PCM_16": 16,
    "PCM_24": 24, "PCM_32": 32, "FLOAT": 32, "DOUBLE": 64,
}  # fmt: skip
LEVELS = np.iinfo(np.int16)


class Sound(NamedTuple):
    """One channel of sound; the unit of `samples` is always a level of 16-bit sound.

    They are int16, exactly as in the file, up to 16 bits; float32, in fractions of a level
    and not rounded, if the file is finer (24 bits, floats).
    """

    samples: np.ndarray
    rate: int
    bits: int


def read_audio(path: Path | str) -> Sound:
    """A WAV, FLAC or SPHERE file; several channels are averaged (16-bit: to the nearest level)."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"`path` must be a sound file; {str(path)!r} does not exist.")
    if is_sphere(path):
        samples, rate = read_sphere(path)
        bits = 16
    else:
        samples, rate, bits = _read_with_soundfile(path)
    if not len(samples):
        raise ValueError(f"{path} holds no sound: it has 0 samples. Remove it.")
    if not np.isfinite(samples).all():
        raise ValueError(f"{path} has samples that are NaN or infinite. Repair or remove it.")
    if samples.ndim > 1:
        samples = _stored(samples.mean(axis=1, dtype=np.float64), samples.dtype)
    return Sound(samples, rate, bits)


def resampled(samples: np.ndarray, from_rate: int, to_rate: int) -> np.ndarray:
    """The same sound at another rate, by a polyphase filter; int16 stays int16, rounded anew.

    What lies above half of the lower rate is filtered out.
    """
    require_all_positive(from_rate=from_rate, to_rate=to_rate)
    if from_rate == to_rate:
        return samples
    from scipy.signal import resample_poly

    common = math.gcd(from_rate, to_rate)
    values = resample_poly(samples.astype(np.float64), to_rate // common, from_rate // common)
    return _stored(values, samples.dtype)


def write_wav(samples: Any, path: Path | str, rate: float | int) -> None:
    """Sound in 16-bit levels, of any shape (frames too), as a 16-bit WAV file with one channel.

    Rounded, and clipped to what 16 bits hold. For what a model generates:
    `write_wav(dataset.scaling.restore(xs), "sound.wav", dataset.rate)`.
    """
    values = np.asarray(samples, np.float64).reshape(-1)
    if not np.isfinite(values).all():
        raise ValueError(
            f"`samples` must be finite; {np.sum(~np.isfinite(values))} of {values.size} are not."
        )
    is_whole = isinstance(rate, float) and rate.is_integer()
    rate = require_positive("rate", int(rate) if is_whole else rate)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(_stored(values, np.dtype(np.int16)).astype("<i2").tobytes())


def audio_folder(
    folder: Path | str,
    *,
    rate: int = 16000,
    frame_size: int = 200,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    group: Callable[[Path], str] | None = None,
) -> Dataset:
    """Every WAV, FLAC and SPHERE file in a folder and its subfolders, at one rate.

    An observation is `frame_size` samples. Files are dealt to the splits at random; with
    `group`, from a file's path to a name (`lambda path: path.parent.name` for a folder per
    speaker), whole groups are, so that no speaker is in two splits.

    Sound of at most 16 bits is kept in 16-bit levels, also after resampling, and its family
    is `DiscretizedNormal`. If any file is finer, all are kept as floats: `Normal`.
    """
    require_all_positive(rate=rate, frame_size=frame_size)
    folder = Path(folder)
    paths = sound_files(folder)
    groups = [group(path) if group else str(path) for path in paths]
    names = sorted(set(groups))
    if len(names) < len(SPLITS):
        raise ValueError(
            f"`folder` must hold at least 3 {'groups' if group else 'files'}, one for each split;"
            f" {str(folder)!r} has {len(names)}."
        )
    numbers = split_by_sequence(len(names), fractions, seed)
    split_of = {names[n]: split for split in SPLITS for n in numbers[split]}
    sounds: dict[str, list[tuple[str, np.ndarray]]] = {split: [] for split in SPLITS}
    for path, name in zip(paths, groups, strict=True):
        sound = read_audio(path)
        label = path.relative_to(folder).with_suffix("").as_posix()
        samples = resampled(sound.samples, sound.rate, rate)
        sounds[split_of[name]].append((label, samples))
    return sound_dataset(folder.resolve().name, sounds, rate=rate, frame_size=frame_size)


def sound_files(folder: Path) -> list[Path]:
    """In a folder and its subfolders (links to folders are not followed), sorted; at least one."""
    if not folder.is_dir():
        raise FileNotFoundError(f"`folder` must be a folder; {str(folder)!r} is none.")
    # Names with a dot in front are of the system: macOS puts `._a.wav` beside `a.wav`.
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    )
    if not paths:
        raise FileNotFoundError(
            f"`folder` must hold sound files ({', '.join(SUFFIXES)}); {str(folder)!r} has none."
        )
    return paths


def sound_dataset(
    name: str, sounds: dict[str, list[tuple[str, np.ndarray]]], *, rate: int, frame_size: int
) -> Dataset:
    """From (name, samples) by split; scaled by one mean and spread over the training samples."""
    is_exact = all(s.dtype == np.int16 for part in sounds.values() for _, s in part)
    dtype = np.int16 if is_exact else np.float32
    arrays = {k: [s.astype(dtype, copy=False) for _, s in part] for k, part in sounds.items()}
    train = Ragged.of(arrays["train"])
    scaling = Scaling.standardizing(train.values)
    # Two levels are 1 apart as they are stored.
    width = 1.0 / float(scaling.scale)
    return Dataset(
        name=name,
        train=train,
        valid=Ragged.of(arrays["valid"], like=train.values),
        test=Ragged.of(arrays["test"], like=train.values),
        family=Family(DiscretizedNormal, width=width) if is_exact else Family(Normal),
        scaling=scaling,
        rows_per_step=frame_size,
        names={split: tuple(label for label, _ in sounds[split]) for split in SPLITS},
        rate=float(rate),
    )


def _read_with_soundfile(path: Path) -> tuple[np.ndarray, int, int]:
    soundfile = require("soundfile", extra="audio")
    try:
        with soundfile.SoundFile(path) as file:
            rate, bits = file.samplerate, BITS.get(file.subtype, 16)
            samples = file.read(dtype="int16" if bits <= 16 else "float32")
    except soundfile.LibsndfileError as error:
        raise ValueError(
            f"{path} cannot be read as WAV, FLAC or SPHERE ({error.error_string.rstrip('.')})."
            " Copy it again, convert or remove it."
        ) from None
    if _is_cut_off(path):
        raise ValueError(f"{path} is cut off: {len(samples)} samples are there. Copy it again.")
    # libsndfile's floats are 1 at the highest level; a power of two loses nothing.
    return (samples if bits <= 16 else samples * np.float32(2**15)), rate, bits


def _is_cut_off(path: Path) -> bool:
    """Whether a WAV file is shorter than it says, which libsndfile takes without a word."""
    with path.open("rb") as file:
        head = file.read(8)
    size = int.from_bytes(head[4:8], "little")
    # Programs that write to a pipe, and so cannot know the size, put one near the highest.
    return head[:4] == b"RIFF" and path.stat().st_size < size + 8 < 2**31 - 2**16


def _stored(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`values` as `dtype`: to the nearest level for int16, as they are for floats."""
    if dtype == np.int16:
        values = np.clip(np.rint(values), LEVELS.min, LEVELS.max)
    return values.astype(dtype)
