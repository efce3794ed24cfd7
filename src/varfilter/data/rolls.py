"""The polyphonic music sets: piano rolls from the original pickles, their .mat copies, or .npz.

Piano-midi.de, Nottingham, MuseData and JSB Chorales (Boulanger-Lewandowski et al. 2012), and
any music in one of the three formats. For MIDI files see `midi_folder`.
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from varfilter._arguments import kind
from varfilter.data.arrays import read_arrays, read_mat
from varfilter.data.dataset import SPLITS, Dataset, Family
from varfilter.data.limits import require_size
from varfilter.data.note_grid import HIGHEST, LOWEST, NUM_KEYS
from varfilter.data.plain_pickle import read_plain_pickle
from varfilter.data.ragged import Ragged
from varfilter.distributions import Bernoulli


def read_rolls(path: str | Path, name: str | None = None) -> Dataset:
    """Read songs from one file as binary rolls (time, 88), column j for the MIDI note 21 + j.

    - a pickle of {"train": songs, "valid": songs, "test": songs}, where a song is a list of
      steps and a step a list of MIDI note numbers; nothing in it is run (`read_plain_pickle`);
    - a .mat file with cell arrays `traindata`, `validdata`, `testdata` of (time, 88) matrices;
    - an .npz file with, for each split s, `s_rolls` (all steps, 11), the rolls packed by
      `np.packbits(axis=1)`, and `s_lengths`, the steps of each song.

    The same music gives the same numbers from each. Songs without steps are left out. The
    `name` is the file's unless given.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"`path` is {str(path)!r}: there is no such file.")
    songs = _reader(path)(path)
    for split, ragged in songs.items():
        if not len(ragged):
            raise ValueError(
                f"`path` {str(path)!r} has no songs for {split!r}: each split needs one."
            )
    return Dataset(
        path.stem if name is None else name, **songs, family=Family(Bernoulli), medium="music"
    )


def _reader(path: Path) -> Any:
    """Choose the reader of a file by its first bytes, which do not lie, or else by its ending."""
    with open(path, "rb") as file:
        head = file.read(8)
    suffix = path.suffix.lower()
    if head.startswith(b"PK"):
        return _read_npz
    if head.startswith(b"MATLAB"):
        return _read_mat
    if head.startswith(b"\x80") or suffix in (".pickle", ".pkl", ".p", ".pck"):
        return _read_pickle
    readers = {".npz": _read_npz, ".mat": _read_mat}
    if suffix not in readers:
        raise ValueError(
            f"`path` {str(path)!r} is none of the formats of rolls: a pickle (.pickle or .pkl),"
            " a .mat file or an .npz file. For MIDI files use `midi_folder`."
        )
    return readers[suffix]


def _read_pickle(path: Path) -> dict[str, Ragged]:
    """Songs from a pickle of lists of note numbers, by split."""
    splits = _by_split(read_plain_pickle(path), SPLITS, path)
    return {split: _from_notes(songs, split, path) for split, songs in splits.items()}


def _read_mat(path: Path) -> dict[str, Ragged]:
    keys = [f"{split}data" for split in SPLITS]
    try:
        contents = read_mat(path, keys)
    except MemoryError:
        raise
    except Exception as error:
        if str(error).startswith("`path`"):
            raise
        raise _unreadable(
            path, "a .mat file of MATLAB 5 to 7 (save it with `-v7`)", error
        ) from None
    return {
        split: _from_cells(cells, split, path)
        for split, cells in _by_split(contents, keys, path).items()
    }


def _read_npz(path: Path) -> dict[str, Ragged]:
    keys = [f"{split}_{part}" for split in SPLITS for part in ("rolls", "lengths")]
    try:
        contents = read_arrays(path, f"`path` {str(path)!r}", keys)
    except MemoryError:
        raise
    except Exception as error:
        if str(error).startswith("`path`"):
            raise
        raise _unreadable(path, "an .npz file of plain arrays", error) from None
    rolls = _by_split(contents, keys[::2], path)
    lengths = _by_split(contents, keys[1::2], path)
    return {split: _from_bits(rolls[split], lengths[split], split, path) for split in SPLITS}


def _by_split(contents: Any, keys: Sequence[str], path: Path) -> dict[str, Any]:
    """The parts of a file under the names of the splits."""
    missing = [key for key in keys if not isinstance(contents, dict) or key not in contents]
    if missing:
        found = kind(contents)
        if isinstance(contents, dict):
            found = ", ".join([str(key) for key in contents if not str(key).startswith("__")][:8])
        raise ValueError(
            f"`path` {str(path)!r} must have the parts {', '.join(keys)};"
            f" {', '.join(missing)} is missing. It has: {found or 'nothing'}."
        )
    return {split: contents[key] for split, key in zip(SPLITS, keys, strict=True)}


def _from_notes(songs: Any, split: str, path: Path) -> Ragged:
    """Rolls from lists of note numbers.

    Flattened first and set at once: a million notes take well under a second.
    """
    where = f"`path` {str(path)!r}, {split!r}:"
    if not _all_lists([songs]) or not _all_lists(songs):
        raise ValueError(f"{where} must be a list of songs, each a list of steps.")
    # The same list may be there a million times: it takes little room in the file.
    num_steps = sum(map(len, songs))
    require_size(f"{where} has {num_steps} steps", num_steps * (NUM_KEYS + 16))
    steps = list(chain.from_iterable(songs))
    if not _all_lists(steps):
        raise ValueError(f"{where} each step of a song must be a list of MIDI note numbers.")
    num_notes = sum(map(len, steps))
    require_size(f"{where} has {num_notes} notes", num_notes * 32)
    notes = list(chain.from_iterable(steps))
    if not set(map(type, notes)) <= {int, float}:
        wrong = next(note for note in notes if type(note) not in (int, float))
        raise ValueError(f"{where} a MIDI note must be a whole number; got {kind(wrong)}.")
    for note in set(notes):
        if not LOWEST <= note <= HIGHEST or note != int(note):
            song = next(i for i, song in enumerate(songs) if any(note in step for step in song))
            raise ValueError(
                f"{where} song {song} has the note {note!r}; a roll holds the whole numbers"
                f" {LOWEST} to {HIGHEST}, the keys of a piano. Leave it out or transpose the song."
            )
    rows = np.repeat(np.arange(len(steps)), np.fromiter(map(len, steps), np.int64, len(steps)))
    values = np.zeros((len(steps), NUM_KEYS), np.uint8)
    values[rows, np.array(notes, np.int64) - LOWEST] = 1
    return Ragged(values, [len(song) for song in songs if len(song)])


def _from_cells(cells: Any, split: str, path: Path) -> Ragged:
    where = f"`path` {str(path)!r}, `{split}data`"
    if not isinstance(cells, np.ndarray) or cells.dtype != object:
        raise ValueError(f"{where} must be a cell array of matrices; got {kind(cells)}.")
    # MATLAB counts the cells down the columns.
    songs = [song for song in cells.ravel(order="F") if np.size(song)]
    for number, song in enumerate(songs):
        if np.ndim(song) != 2 or song.shape[1] != NUM_KEYS or song.dtype.kind not in "buif":
            raise ValueError(
                f"{where} must hold numeric matrices (time, {NUM_KEYS});"
                f" song {number} is {kind(song)}."
            )
        if not ((song == 0) | (song == 1)).all():
            raise ValueError(f"{where} must hold 0 and 1; song {number} has other values.")
    like = np.zeros((0, NUM_KEYS), np.uint8)
    return Ragged.of([song.astype(np.uint8) for song in songs], like=like)


def _from_bits(rolls: np.ndarray, lengths: np.ndarray, split: str, path: Path) -> Ragged:
    fits = rolls.dtype == np.uint8 and rolls.ndim == 2 and rolls.shape[1] == NUM_KEYS // 8
    fits = fits and lengths.dtype.kind in "iu" and lengths.ndim == 1
    if not fits or (lengths < 0).any() or lengths.sum() != len(rolls):
        raise ValueError(
            f"`path` {str(path)!r}: `{split}_rolls` must be uint8 (all steps, {NUM_KEYS // 8}) and"
            f" `{split}_lengths` whole numbers that sum to its rows;"
            f" got {kind(rolls)} and {kind(lengths)} with the sum {lengths.sum()}."
        )
    require_size(f"`path` {str(path)!r} has {len(rolls)} steps for {split!r}", rolls.size * 8)
    return Ragged(np.unpackbits(rolls, axis=1, count=NUM_KEYS), lengths[lengths > 0])


def _all_lists(values: Any) -> bool:
    return set(map(type, values)) <= {list, tuple}


def _unreadable(path: Path, expected: str, error: Exception) -> ValueError:
    reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return ValueError(f"`path` {str(path)!r} is not {expected} ({reason}). Get the file again.")
