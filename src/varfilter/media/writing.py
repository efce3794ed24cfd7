"""What a model generates, in the medium of its data: to be heard, watched, or opened as a table."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from varfilter._arguments import kind, require_library
from varfilter._files import naming, replacing
from varfilter.data.audio import LEVELS, write_wav
from varfilter.data.dataset import Dataset, Family
from varfilter.data.midi import write_midi
from varfilter.data.tables.read import Table
from varfilter.distributions import Bernoulli
from varfilter.media.axes import own_names, restored, step_length, times_from
from varfilter.media.medium import Medium, dataset_of, is_binary, medium
from varfilter.media.rows import ENDINGS, Row, Vector, write_rows

# The first ending of a medium is its own.
ENDINGS_OF: dict[Medium, tuple[str, ...]] = {
    "music": (".mid", ".midi", ".npz"),
    "sound": (".wav", ".npz"),
    "film": (".gif", ".npz"),
    "table": (".csv", *(ending for ending in ENDINGS if ending != ".csv")),
    "array": (".npz",),
}
# Where nothing is known: a beat of music, and frames in a second.
SECONDS_PER_BEAT, FRAME_RATE = 0.5, 10.0
# A film of 16 pixels is shown as one of at least so many.
FEWEST_PIXELS = 128
# Frames of the data that say what is black and what is white.
NUM_SAMPLED = 200


def write_recording(path: Path | str, data: Dataset | Table, xs: Any, *, first: Any = 0) -> None:
    """Observations in the model's units, `xs` (time, *event), as a recording like those of `data`.

    - music: a .mid file; a step lasts what it does in the data, or half a second;
    - sound: a .wav file of 16 bits; a warning counts the samples that had to be clipped;
    - film: a .gif that repeats, at the rate of the data or 10 frames a second, of whole pixels
      enlarged to at least 128;
    - a table: .csv, or any other ending of `write_rows`: `time`, from `first` on, a step of the
      data apart, and each column in the user's units, counts and binary columns in whole numbers;
    - .npz, of anything: `time`, and the values in the user's units as `observation`.

    A file at `path` stays as it was until the new one is whole.
    """
    path = Path(path)
    dataset, what = dataset_of(data), medium(data)
    ending = path.suffix.lower()
    if ending not in ENDINGS_OF[what]:
        raise ValueError(
            f"`path` must end in {' or '.join(ENDINGS_OF[what])}, for what {dataset.name!r} holds"
            f" ({what}); got {str(path)!r}."
        )
    xs = np.asarray(xs)
    if xs.shape[1:] != dataset.observation_shape or not len(xs) or xs.dtype.kind not in "buif":
        raise ValueError(
            f"`xs` must hold one observation or more, of the shape {dataset.observation_shape} of"
            f" {dataset.name!r}; got {kind(xs)}."
        )
    if what == "table":
        write_rows(recording_rows(data, xs, first=first), path)
    elif ending == ".npz":
        times, values = times_from(data, first, len(xs)), restored(dataset, _floats(xs))
        rows = zip(times, values, strict=True)
        write_rows(({"time": t, "observation": Vector(np.asarray(v))} for t, v in rows), path)
    else:
        with replacing(path) as partial, naming(path):
            {"music": _write_music, "sound": _write_sound, "film": _write_film}[what](
                dataset, xs, partial
            )


def recording_rows(
    data: Dataset | Table, xs: Any, *, first: Any = 0, sequence: str | int | None = None
) -> Iterator[Row]:
    """The rows of a table's recording, as `write_recording` writes them; with its `sequence`."""
    dataset, xs = dataset_of(data), np.asarray(xs)
    values = restored(dataset, _floats(xs))
    columns = list(zip(dataset.columns, map(_is_whole, _families(dataset)), strict=True))
    names = own_names(data, ["sequence", "time"])
    begin = {} if sequence is None else {names["sequence"]: sequence}
    for at, row in zip(times_from(data, first, len(xs)), values, strict=True):
        yield (
            begin
            | {names["time"]: at}
            | {
                name: int(np.rint(value)) if is_whole and np.isfinite(value) else value
                for (name, is_whole), value in zip(columns, row, strict=True)
            }
        )


def _write_music(dataset: Dataset, xs: np.ndarray, path: Path) -> None:
    seconds = SECONDS_PER_BEAT if dataset.rate is None else step_length(dataset)
    write_midi(xs, path, seconds_per_step=seconds)


def _write_sound(dataset: Dataset, xs: np.ndarray, path: Path) -> None:
    samples = np.rint(restored(dataset, _floats(xs)))
    num_clipped = int(np.sum((samples < LEVELS.min) | (samples > LEVELS.max)))
    if num_clipped:
        warnings.warn(
            f"{num_clipped} of {samples.size} samples are louder than 16 bits hold, and were"
            " clipped.",
            stacklevel=3,
        )
    write_wav(samples, path, dataset.rate or 1)


def _write_film(dataset: Dataset, xs: np.ndarray, path: Path) -> None:
    images: Any = require_library("PIL.Image", extra="video")
    low, high = _black_and_white(dataset)
    levels = np.nan_to_num(255.0 * (_floats(xs) - low) / (high - low), nan=127.5)
    frames = np.clip(np.rint(levels), 0, 255).astype(np.uint8)
    if frames.ndim == 4:
        frames = frames[:, 0] if frames.shape[1] == 1 else np.moveaxis(frames, 1, -1)
    times = -(-FEWEST_PIXELS // min(frames.shape[1:3]))
    frames = frames.repeat(times, axis=1).repeat(times, axis=2)
    first, *rest = (images.fromarray(frame) for frame in frames)
    rate = dataset.rate or FRAME_RATE
    # The format counts hundredths of a second, and viewers slow down what lasts less than two.
    milliseconds = 10 * max(2, round(100 / rate))
    first.save(path, format="GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0)


def _families(dataset: Dataset) -> tuple[Family, ...]:
    family = dataset.family
    return family if isinstance(family, tuple) else (family,) * len(dataset.columns)


def _is_whole(family: Family) -> bool:
    """Whether the column is binary or a count, the two kinds of a table that have levels."""
    return issubclass(family.distribution, Bernoulli) or family.width is not None


def _black_and_white(dataset: Dataset) -> tuple[float, float]:
    """In the model's units: the family's lowest and highest level, or the data's own."""
    family = dataset.family
    if isinstance(family, Family) and family.low is not None and family.high is not None:
        return float(family.low), float(family.high)
    if is_binary(family):
        return 0.0, 1.0
    rows = dataset.train.values
    sampled = np.asarray(rows[:: -(-len(rows) // NUM_SAMPLED) or 1], np.float32)
    seen = dataset.scaling(sampled)
    seen = seen[np.isfinite(seen)]
    low, high = (float(seen.min()), float(seen.max())) if seen.size else (0.0, 1.0)
    return low, high if high > low else low + 1.0


def _floats(xs: np.ndarray) -> np.ndarray:
    return xs if xs.dtype.kind == "f" else xs.astype(np.float32)
