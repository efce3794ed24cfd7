"""Sound: files of any rate and depth read alike, and a folder of them as a data set."""

import io
import math
import warnings
import wave
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter._arguments import require_all_positive, require_library, require_positive
from varfilter._text import count
from varfilter.data.dataset import SPLITS, Dataset, Family, Scaling
from varfilter.data.limits import require_size
from varfilter.data.recordings import (
    Recording,
    SoundHeader,
    decoded,
    level_changes,
    loudness_changes,
    names_of,
    own_rate,
    silences,
    sound_changes,
)
from varfilter.data.sphere import SPHERE, samples_of_sphere
from varfilter.data.splits import split_by_file
from varfilter.distributions import DiscretizedNormal, Normal

SUFFIXES = (
    ".wav", ".flac", ".sph", ".nist", ".aiff", ".aif", ".mp3", ".ogg", ".oga", ".opus",
)  # fmt: skip
# What older versions of libsndfile do not read, by its names of formats.
FORMATS = {".mp3": "MP3", ".ogg": "OGG", ".oga": "OGG", ".opus": "OGG"}
# By libsndfile's names. What is not here (ADPCM, GSM) is decoded to 16 bits; MP3 and what an OGG
# file holds, to floats.
BITS = {
    "PCM_U8": 8, "PCM_S8": 8, "ULAW": 8, "ALAW": 8, "PCM_16": 16,
    "PCM_24": 24, "PCM_32": 32, "FLOAT": 32, "DOUBLE": 64,
    "MPEG_LAYER_I": 32, "MPEG_LAYER_II": 32, "MPEG_LAYER_III": 32, "VORBIS": 32, "OPUS": 32,
}  # fmt: skip
# How far neighbouring levels lie apart, in levels of 16 bits; 1 for what is not here. None: so
# fine that float32 does not hold the levels. Mu-law and A-law have levels of unequal distance,
# all of them whole in 16 bits: 1, the unit they are kept in.
DISTANCES = {
    "PCM_U8": 2**8, "PCM_S8": 2**8, "PCM_24": 2**-8,
    "PCM_32": None, "FLOAT": None, "DOUBLE": None,
    "MPEG_LAYER_I": None, "MPEG_LAYER_II": None, "MPEG_LAYER_III": None,
    "VORBIS": None, "OPUS": None,
}  # fmt: skip
# What is finer than 16 bits, in words.
FINE = {
    "PCM_24": "24 bits", "PCM_32": "32 bits", "FLOAT": "floats", "DOUBLE": "floats",
    "MPEG_LAYER_I": "MP3", "MPEG_LAYER_II": "MP3", "MPEG_LAYER_III": "MP3",
    "VORBIS": "OGG", "OPUS": "OGG",
}  # fmt: skip
LEVELS = np.iinfo(np.int16)
# Seconds of a step in the paper: 200 samples at 16,000 Hz.
USUAL_STEP = 0.0125


class Sound(NamedTuple):
    """One channel of sound; the unit of `samples` is always a level of 16-bit sound.

    They are int16, exactly as in the file, up to 16 bits; float32, in fractions of a level
    and not rounded, if the file is finer (24 bits, floats, and what MP3 and OGG files are decoded
    to). `distance` is that of neighbouring
    levels, in the same unit: 256 for 8 bits, 2**-8 for 24 bits, None if there are none (floats).
    Averaging channels makes new levels: 1 up to 16 bits, none for finer files.
    """

    samples: np.ndarray
    rate: int
    bits: int
    distance: float | int | None


def read_audio(path: Path | str) -> Sound:
    """Read a sound file (`SUFFIXES`); channels are averaged (16-bit: to the nearest level)."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"`path` must be a sound file; {str(path)!r} does not exist.")
    with _opened(path) as file:
        rate, bits = file.samplerate, BITS.get(file.subtype, 16)
        distance = _distance_of(file.subtype, file.channels > 1)
        # What is read, and the average of the channels.
        needed = file.frames * (4 * file.channels + 12)
        require_size(
            f"{path} announces {file.frames} samples in {file.channels} channel(s)", needed
        )
        samples = file.read(dtype="int16" if bits <= 16 else "float32")
    if _is_cut_off(path):
        raise ValueError(f"{path} is cut off: {len(samples)} samples are there. Copy it again.")
    # libsndfile's floats are 1 at the highest level; a power of two loses nothing.
    samples = samples if bits <= 16 else samples * np.float32(2**15)
    if not len(samples):
        raise ValueError(f"{path} holds no sound: it has 0 samples. Remove it.")
    if not np.isfinite(samples).all():
        raise ValueError(f"{path} has samples that are NaN or infinite. Repair or remove it.")
    if samples.ndim > 1:
        samples = _stored(samples.mean(axis=1, dtype=np.float64), samples.dtype)
    return Sound(samples, rate, bits, distance)


def resampled(
    samples: np.ndarray, from_rate: int, to_rate: int, name: str = "The sound"
) -> np.ndarray:
    """Bring a sound to another rate by a polyphase filter; int16 stays int16, rounded anew.

    What lies above half of the lower rate is filtered out. `name` is what an error calls it.
    """
    require_all_positive(from_rate=from_rate, to_rate=to_rate)
    if from_rate == to_rate:
        return samples
    from scipy.signal import resample_poly

    common = math.gcd(from_rate, to_rate)
    up, down = to_rate // common, from_rate // common
    # SciPy's filter has 20 coefficients for each of the larger number.
    needed = 8 * (len(samples) * (1 + 2 * up / down) + 80 * max(up, down))
    what = f"{name} has {len(samples)} samples at {from_rate} Hz, asked for at {to_rate} Hz"
    require_size(what, needed)
    values = resample_poly(samples.astype(np.float64), up, down)
    return _stored(values, samples.dtype)


def write_wav(samples: Any, path: Path | str | io.BytesIO, rate: float | int) -> None:
    """Write sound in 16-bit levels, of any shape (frames too), as a 16-bit WAV file, one channel.

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
    with wave.open(path if isinstance(path, io.BytesIO) else str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(_stored(values, np.dtype(np.int16)).astype("<i2").tobytes())


def audio_folder(
    folder: Path | str,
    *,
    rate: int | None = None,
    frame_size: int = 200,
    fine: bool = False,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    group: Callable[[Path], Hashable] | None = None,
    cache: Path | str | None = None,
    suffixes: Sequence[str] = SUFFIXES,
) -> Dataset:
    """Read every sound file (with one of `suffixes`) in a folder and its subfolders, at one rate.

    The rate is the files' own; where they have several, that of most files (of as many each, the
    lower), and the others are resampled. Another `rate` resamples whatever differs from it.
    `Dataset.notes` says what was done.

    An observation is `frame_size` samples. Files are dealt to the splits at random; with
    `group`, from a file's path to a name (`lambda path: path.parent.name` for a folder per
    speaker), whole groups are, so that no speaker is in two splits; nor are exact copies of a
    file. `cache` is a folder in which the decoded sound is stored, file by file, as in
    `video_folder`: the set need not fit in memory.

    The unit is a level of 16-bit sound. The family is `DiscretizedNormal`, its width the
    distance of neighbouring levels in the finest file: 256 for 8 bits, and 1 for 16, for mu-law
    and A-law, whose levels have no common distance, and for new levels, which resampling and
    averaging channels make. What is finer than 16 bits (24 bits, floats, what MP3 and OGG files
    are decoded to) is rounded to 16, as players do, so that scores are in bits a sample and
    compare.

    With `fine` it is kept: the width is 2**-8 for 24 bits, and where a file has floats, or new
    levels finer than those of 16 bits, there are no levels and the family is `Normal`.
    """
    require_all_positive(frame_size=frame_size, **({} if rate is None else {"rate": rate}))
    folder = Path(folder)
    paths = sound_files(folder, suffixes)
    split_of = split_by_file(folder, {path: (path,) for path in paths}, fractions, seed, group)
    # From the headers: what is written file by file must be of one kind from the first on.
    headers = [_header(path) for path in paths]
    notes: list[str] = []
    if rate is None:
        rate, said = own_rate([header for _, header in headers])
        milliseconds = f"{1000 * frame_size / rate:.3g} ms"
        notes = [f"{said} A step of {count(frame_size, 'sample')} lasts {milliseconds}."]
        usual = round(USUAL_STEP * rate)
        if not 0.4 < frame_size / usual < 2.5:
            notes.append(
                f"With `frame_size` {usual} it would last the {USUAL_STEP * 1000:g} ms that"
                " the model was made for."
            )
    notes += sound_changes([header for _, header in headers], rate)
    distances = [_distance_at(subtype, header, rate) for subtype, header in headers]
    is_finer = [each is None or each < 1 for each in distances]
    if not fine:
        distances = [1 if finer else each for finer, each in zip(is_finer, distances, strict=True)]
    distance = _finest(distances)
    finer = [FINE[subtype] for (subtype, _), each in zip(headers, is_finer, strict=True) if each]
    notes += level_changes(finer, len(headers), kept=fine, has_levels=distance is not None)
    if distance is not None and distance > 1:
        notes.append(
            f"The files have 8 bits, and scores are probabilities of their levels: each is"
            f" {distance} of 16 bits."
        )
    sounds: dict[str, list[Recording]] = {split: [] for split in SPLITS}
    clipped: list[tuple[str, int, int]] = []
    for path in paths:
        label = path.relative_to(folder).with_suffix("").as_posix()
        read = partial(_at_rate, path, rate, _dtype(distance), clipped)
        sounds[split_of[path]].append(Recording((path,), (label,), read))
    dataset = sound_dataset(
        folder.resolve().name,
        sounds,
        folder=folder,
        rate=rate,
        frame_size=frame_size,
        distance=distance,
        cache=cache,
        notes=tuple(notes),
    )
    if clipped:
        warnings.warn(loudness_changes(clipped), stacklevel=2)
    parts = {"train": dataset.train, "valid": dataset.valid, "test": dataset.test}
    return replace(dataset, notes=dataset.notes + silences(dataset.names, parts))


def sound_files(folder: Path, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """List the sound files of a folder and its subfolders, sorted; links are not followed."""
    if not folder.is_dir():
        raise FileNotFoundError(f"`folder` must be a folder; {str(folder)!r} is none.")
    # Names with a dot in front are of the system: macOS puts `._a.wav` beside `a.wav`.
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in suffixes and not path.name.startswith(".") and path.is_file()
    )
    if not paths:
        raise FileNotFoundError(
            f"`folder` must hold sound files ({', '.join(suffixes)}); {str(folder)!r} has none."
        )
    return paths


def sound_dataset(
    name: str,
    sounds: Mapping[str, Sequence[Recording]],
    *,
    folder: Path,
    rate: int,
    frame_size: int,
    distance: float | int | None = 1,
    cache: Path | str | None = None,
    notes: tuple[str, ...] = (),
) -> Dataset:
    """Make a data set of recordings by split, scaled by the mean and spread of the training part.

    `distance` is that of neighbouring levels, as in `Sound`; it decides how samples are stored.
    """
    row = np.zeros(1, _dtype(distance))
    parts, _ = decoded(name, sounds, row, options=[rate], cache=cache)
    for split, part in parts.items():
        longest = int(part.lengths.max(initial=0))
        if len(part) and longest < frame_size:
            raise ValueError(
                f"`frame_size` is {frame_size}, and no file for {split} in {str(folder)!r}"
                f" has so many samples: the longest has {longest}, at {rate} in a"
                " second. Give a smaller `frame_size` or longer files."
            )
    scaling = Scaling.standardizing(parts["train"].values)
    family = Family(Normal)
    if distance is not None:
        family = Family(DiscretizedNormal, width=distance / float(scaling.scale))
    return Dataset(
        name=name,
        train=parts["train"],
        valid=parts["valid"],
        test=parts["test"],
        family=family,
        scaling=scaling,
        rows_per_step=frame_size,
        names=names_of(sounds),
        rate=float(rate),
        medium="sound",
        notes=notes,
    )


def _finest(distances: Sequence[float | int | None]) -> float | int | None:
    """The least distance of levels; None if one of them has no levels."""
    known = [distance for distance in distances if distance is not None]
    return min(known) if len(known) == len(distances) else None


def _dtype(distance: float | int | None) -> type[np.int16] | type[np.float32]:
    return np.int16 if distance is not None and distance >= 1 else np.float32


def _at_rate(
    path: Path, rate: int, dtype: type[np.generic], clipped: list[tuple[str, int, int]]
) -> list[tuple[np.ndarray, int]]:
    """The samples of a file at a rate; what of them had to be clipped is added to `clipped`."""
    sound = read_audio(path)
    samples = resampled(sound.samples, sound.rate, rate, str(path))
    if samples.dtype.kind == "f" and dtype is np.int16:
        num_clipped = int(np.sum((samples < LEVELS.min - 0.5) | (samples >= LEVELS.max + 0.5)))
        if num_clipped:
            clipped.append((path.name, num_clipped, samples.size))
        samples = _stored(samples, np.dtype(dtype))
    return [(samples.astype(dtype, copy=False), rate)]


def _header(path: Path) -> tuple[str, SoundHeader]:
    """How the samples of a file are coded, and what else its header says."""
    with _opened(path) as file:
        return file.subtype, SoundHeader(file.samplerate, file.channels)


def _distance_at(subtype: str, header: SoundHeader, rate: int) -> float | int | None:
    """The distance of the levels of a file once it is at that rate."""
    return _distance_of(subtype, header.channels > 1 or header.rate != rate)


def _distance_of(subtype: str, is_mixed: bool) -> float | int | None:
    """The distance of the levels; samples that are sums of others lie between the file's."""
    distance = DISTANCES.get(subtype, 1)
    if is_mixed and distance is not None:
        return 1 if distance >= 1 else None
    return distance


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A sound file, opened by libsndfile; what is a SPHERE file, its first bytes say."""
    soundfile = require_library("soundfile", extra="audio")
    with path.open("rb") as file:
        is_sphere = file.read(len(SPHERE)) == SPHERE  # TIMIT's have names that end in .WAV
    source, form = samples_of_sphere(path) if is_sphere else (nullcontext(path), {})
    try:
        with source as opened, soundfile.SoundFile(opened, **form) as file:
            yield file
    except soundfile.LibsndfileError as error:
        form = FORMATS.get(path.suffix.lower())
        if form is not None and form not in soundfile.available_formats():
            raise ValueError(
                f"{path} cannot be read: the libsndfile that is installed"
                f" ({soundfile.__libsndfile_version__}) reads no {form} files. Update `soundfile`,"
                " or convert the file to WAV."
            ) from None
        raise ValueError(
            f"{path} cannot be read as sound ({error.error_string.rstrip('.')})."
            " Copy it again, convert or remove it."
        ) from None


def _is_cut_off(path: Path) -> bool:
    """Whether a WAV or AIFF file is shorter than it says; libsndfile takes it without a word."""
    with path.open("rb") as file:
        head = file.read(8)
    size = int.from_bytes(head[4:8], "big" if head[:4] == b"FORM" else "little")
    # Programs that write to a pipe, and so cannot know the size, put one near the highest.
    return head[:4] in (b"RIFF", b"FORM") and path.stat().st_size < size + 8 < 2**31 - 2**16


def _stored(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`values` as `dtype`: to the nearest level for int16, as they are for floats."""
    if dtype == np.int16:
        values = np.clip(np.rint(values), LEVELS.min, LEVELS.max)
    return values.astype(dtype)
