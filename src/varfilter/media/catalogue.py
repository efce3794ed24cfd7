"""Data sets by name or by path: where they are looked for, and one function that reads any."""

import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from varfilter.data.audio import SUFFIXES, audio_folder
from varfilter.data.dataset import SPLITS, Dataset
from varfilter.data.midi import midi_folder
from varfilter.data.rolls import read_rolls
from varfilter.data.sets.registry import ENTRIES
from varfilter.data.tables.read import Table, table
from varfilter.data.video import IMAGES, VIDEOS, video_folder

CATALOGUE = {entry.name: entry for entry in ENTRIES}
MIDI = frozenset({".mid", ".midi"})
ROLLS = frozenset({".pickle", ".pkl", ".p", ".pck", ".mat"})
# Of what a folder may be full, the endings of such files, and what reads the folder.
FOLDERS: dict[str, tuple[frozenset[str], Callable[..., Dataset]]] = {
    "MIDI": (MIDI, midi_folder),
    "sound": (frozenset(SUFFIXES), audio_folder),
    "film": (VIDEOS, video_folder),
}


class Loaded(NamedTuple):
    """A data set, and sentences that say how it was read, where there was something to decide.

    `table` is what a table was read as, which reads others like it.
    """

    dataset: Dataset
    notes: tuple[str, ...] = ()
    table: Table | None = None


def load(source: str | Path, *, at: str | Path | None = None, **options: Any) -> Dataset:
    """A data set: one of the catalogue by its name, or the user's own by its path.

    - a name, such as "jsb": looked for in the data folder, or `at` a given place;
    - a folder of MIDI files, of sound, of films or of folders of images: told by what it holds,
      and read by `midi_folder`, `audio_folder` or `video_folder`;
    - a file: a table (`table`), or rolls in a pickle, .mat or .npz file (`read_rolls`).

    `options` go to the function that reads it. A data frame, or arrays: use `table`.
    """
    return load_with_notes(source, at=at, **options).dataset


def load_with_notes(source: str | Path, *, at: str | Path | None = None, **options: Any) -> Loaded:
    """As `load`, and how it was read: of a table, its notes."""
    if not isinstance(source, str | Path):
        raise TypeError(
            f"`source` must be a name or a path; got {type(source).__name__}. For a data frame,"
            " arrays or a dictionary of them use `table(source)`."
        )
    if isinstance(source, str) and (source in CATALOGUE or not _is_path(source)):
        return Loaded(_by_name(named(source), at, options))
    if at is not None:
        raise ValueError(f"`at` is for the sets that have a name; {str(source)!r} is a path.")
    path = Path(source).expanduser()
    if not path.exists():
        raise FileNotFoundError(
            f"`source` is {str(source)!r}: there is no such file or folder.{_nearest(str(source))}"
            f" The sets that have a name are {', '.join(CATALOGUE)}."
        )
    read = reader_of_folder(path) if path.is_dir() else _reader_of_file(path)
    _require_options(read, options)
    found = read(path, **options)
    if isinstance(found, Table):
        return Loaded(found.dataset, found.notes, found)
    return Loaded(found)


def _is_path(source: str) -> bool:
    """A name has neither a slash nor an ending; what exists is a path in any case."""
    return bool(Path(source).suffix) or Path(source).name != source or Path(source).exists()


def reader_of_folder(path: Path) -> Callable[..., Dataset]:
    """What reads a folder, by what it is full of."""
    found: Counter[str] = Counter()
    for file in path.rglob("*"):
        if not file.name.startswith(".") and file.is_file():
            found[file.suffix.lower()] += 1
    counts = {kind: sum(found[s] for s in suffixes) for kind, (suffixes, _) in FOLDERS.items()}
    there = [kind for kind, count in counts.items() if count]
    if len(there) > 1:
        listed = " and ".join(f"{counts[kind]} {kind} files" for kind in there)
        calls = " or ".join(f"`{FOLDERS[kind][1].__name__}`" for kind in there)
        raise ValueError(
            f"`source` {str(path)!r} has {listed}: it could be either. Read one kind with {calls},"
            " or give a folder of one kind."
        )
    if there:
        return FOLDERS[there[0]][1]
    # Pictures beside sound or music are covers; where there is nothing else, they are frames.
    if any(found[suffix] for suffix in IMAGES):
        return video_folder
    endings = ", ".join(f"{count} {suffix or 'without ending'}" for suffix, count in found.items())
    raise FileNotFoundError(
        f"`source` {str(path)!r} has no MIDI, sound, film or image files"
        f" ({endings[:120] or 'it is empty'}). For a table, or for rolls, give the file itself."
    )


def _reader_of_file(path: Path) -> Callable[..., Dataset | Table]:
    suffix = path.suffix.lower()
    for kind, (suffixes, read) in FOLDERS.items():
        if suffix in suffixes:
            raise ValueError(
                f"`source` {str(path)!r} is a single {kind} file; a data set needs three or more,"
                f" one for each split. Give the folder that holds them, to `{read.__name__}`."
            )
    return read_rolls if suffix in ROLLS or _holds_rolls(path) else table


def _holds_rolls(path: Path) -> bool:
    """Whether it is an .npz file of rolls and not one of columns."""
    if path.suffix.lower() != ".npz" or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as file:
        return any(f"{split}_rolls.npy" in file.namelist() for split in SPLITS)
