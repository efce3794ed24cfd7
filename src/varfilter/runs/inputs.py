"""New recordings, read as the data of a run were: with its scaling, rate, frames and columns."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.audio import SUFFIXES, read_audio, resampled
from varfilter.data.dataset import SPLITS, Dataset, Family
from varfilter.data.midi import read_midi
from varfilter.data.rolls import read_rolls
from varfilter.data.tables.read import Table
from varfilter.data.video import read_films
from varfilter.distributions import Bernoulli
from varfilter.experiments.source import Source
from varfilter.media.axes import times_from
from varfilter.media.medium import medium
from varfilter.runs.run import Run

MIDI = (".mid", ".midi")
WHAT = {
    "table": "a table (.csv, .tsv, .parquet, .npy, .npz), or - for JSON lines on standard input",
    "music": "a MIDI file, a folder of them, or rolls (.pickle, .mat, .npz)",
    "sound": f"a sound file ({', '.join(SUFFIXES)}), or a folder of them",
    "film": "a film, a folder of images that are its frames, or a folder of films",
    "array": "a .npy file of rows like those of the data",
}


class Recorded(NamedTuple):
    """One sequence: rows in the user's units, observations in the model's, when each was."""

    name: str | int
    rows: np.ndarray
    xs: np.ndarray
    times: np.ndarray


def read_input(run: Run, source: Any) -> Iterator[Recorded]:
    """The sequences of `source`, of the kind that the run was trained on.

    The data of the run need not be at hand. A table may also be a data frame or a dictionary of
    arrays; all else is a path.
    """
    table, dataset = run.table, run.dataset_like
    what = medium(dataset)
    if isinstance(source, str | Path) and not Path(source).expanduser().exists():
        raise FileNotFoundError(
            f"`INPUT` is {str(source)!r}: there is no such file or folder. For this run, give"
            f" {WHAT[what]}."
        )
    source = Path(source).expanduser() if isinstance(source, str) else source
    if table is not None:
        return _of_table(table, source)
    if not isinstance(source, Path):
        raise TypeError(f"`INPUT` must be a path, of {WHAT[what]}; got {type(source).__name__}.")
    return _of_files(run, dataset, source)


def _of_table(table: Table, source: Any) -> Iterator[Recorded]:
    readings = table.read_like(source)
    for i in range(len(readings.rows)):
        name = readings.names[i] if readings.names else 0
        yield Recorded(name, readings.rows[i], readings.xs[i], readings.times[i])


def _of_files(run: Run, dataset: Dataset, path: Path) -> Iterator[Recorded]:
    what = medium(dataset)
    read: dict[str, Callable[[Source, Dataset, Path], Iterator[tuple[str, np.ndarray]]]] = {
        "music": _songs,
        "sound": _sounds,
        "film": _films,
    }
    shape = dataset.train.values.shape[1:]
    for name, rows in read.get(what, _arrays)(run.experiment.data, dataset, path):
        if rows.shape[1:] != shape or rows.dtype.kind not in "buif":
            raise ValueError(
                f"`INPUT` {str(path)!r} has rows of shape {rows.shape[1:]} ({rows.dtype}); the run"
                f" was trained on rows of shape {shape}. Give {WHAT[what]}."
            )
        xs = dataset.observations(rows)
        if not len(xs):
            raise ValueError(
                f"`INPUT` {str(path)!r}: {name!r} has {len(rows)} rows, less than the"
                f" {dataset.rows_per_step} of one step. Give a longer one."
            )
        rows = rows[: len(xs) * dataset.rows_per_step]
        yield Recorded(name, rows, xs, times_from(dataset, 0, len(xs)))


def _songs(options: Source, dataset: Dataset, path: Path) -> Iterator[tuple[str, np.ndarray]]:
    if path.is_file() and path.suffix.lower() not in MIDI:
        rolls = read_rolls(path)
        for split in SPLITS:
            for i in range(len(rolls.split(split))):
                yield f"{split}/{i}", rolls.split(split)[i]
        return
    for name, file in _files(path, MIDI, "music"):
        yield (
            name,
            read_midi(
                file,
                steps_per_beat=options.steps_per_beat,
                seconds_per_step=options.seconds_per_step,
                percussion=bool(options.percussion),
            ),
        )


def _sounds(options: Source, dataset: Dataset, path: Path) -> Iterator[tuple[str, np.ndarray]]:
    rate, stored = round(dataset.rate or 1), dataset.train.values.dtype
    for name, file in _files(path, SUFFIXES, "sound"):
        sound = read_audio(file)
        samples = resampled(sound.samples, sound.rate, rate)
        # Of what is kept as whole levels, new recordings are too.
        is_finer = stored.kind in "iu" and samples.dtype.kind == "f"
        yield name, (np.rint(samples) if is_finer else samples).astype(stored)


def _films(options: Source, dataset: Dataset, path: Path) -> Iterator[tuple[str, np.ndarray]]:
    shape = dataset.train.values.shape[1:]
    has_channels = len(shape) == 3
    for name, frames in read_films(path, shape[-1], color=has_channels and shape[0] == 3):
        frames = frames if has_channels else frames[:, 0]
        family = dataset.family
        is_binary = isinstance(family, Family) and family.distribution is Bernoulli
        yield name, (frames >= 128).astype(np.uint8) if is_binary else frames


def _arrays(options: Source, dataset: Dataset, path: Path) -> Iterator[tuple[str, np.ndarray]]:
    try:
        yield path.stem, np.atleast_1d(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(
            f"`INPUT` {str(path)!r} cannot be read ({reason}). Give {WHAT['array']}."
        ) from None


def _files(path: Path, suffixes: tuple[str, ...], what: str) -> Iterator[tuple[str, Path]]:
    """The file itself, or those of a folder, by name."""
    if path.is_file():
        if path.suffix.lower() not in suffixes:
            raise ValueError(
                f"`INPUT` is {str(path)!r}, but the run was trained on {what}. Give {WHAT[what]}."
            )
        yield path.stem, path
        return
    found = [
        file
        for file in sorted(path.rglob("*"))
        if file.suffix.lower() in suffixes and not file.name.startswith(".") and file.is_file()
    ]
    if not found:
        raise FileNotFoundError(
            f"`INPUT` {str(path)!r} is a folder without {', '.join(suffixes)}. Give {WHAT[what]}."
        )
    for file in found:
        yield file.relative_to(path).with_suffix("").as_posix(), file
