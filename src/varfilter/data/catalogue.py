"""Data sets by name or by path: where they are looked for, and one function that reads any."""

import difflib
import inspect
import os
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from varfilter.data.audio import SUFFIXES, audio_folder
from varfilter.data.dataset import SPLITS, Dataset
from varfilter.data.entries import ENTRIES, Entry
from varfilter.data.midi import midi_folder
from varfilter.data.music import read_rolls
from varfilter.data.tables import Table, table
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


def data_folder() -> Path:
    """$VARFILTER_DATA; if that is not set, `varfilter` in the user's folder for caches."""
    if given := os.environ.get("VARFILTER_DATA"):
        return Path(given).expanduser()
    if sys.platform == "win32":
        caches = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "varfilter"


def named(name: str) -> Entry:
    """The entry of a name; an error that has the nearest name, and all of them."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    raise ValueError(
        f"There is no data set {name!r}.{_nearest(name)} The names are {', '.join(CATALOGUE)};"
        " or give the path of a file or a folder."
    )


def locate(entry: Entry, folder: Path) -> Path | None:
    """Where in the data folder the set lies, if it is there."""
    for place in entry.places:
        path = folder / place
        # What the system hides in a folder (.DS_Store) is not a set.
        if path.is_file() or (path.is_dir() and any(p.name[0] != "." for p in path.iterdir())):
            return path
    return None


def damaged(entry: Entry, path: Path) -> str:
    """What to do with a set that is not what it should be."""
    again = f", or replace it with `varfilter data fetch {entry.name} --again`"
    return f"Delete {path}{again if entry.sources else ''}."


def _is_path(source: str) -> bool:
    """A name has neither a slash nor an ending; what exists is a path in any case."""
    return bool(Path(source).suffix) or Path(source).name != source or Path(source).exists()


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name.lower().replace("_", "-"), CATALOGUE, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def _by_name(entry: Entry, at: str | Path | None, options: dict[str, Any]) -> Dataset:
    _require_options(entry.read, options, has_place=bool(entry.places))
    if not entry.places:
        if at is not None:
            raise ValueError(f"`at` is {str(at)!r}, but {entry.name!r} is simulated: leave it out.")
        return replace(entry.read(**options), name=entry.name)
    folder = data_folder()
    path = locate(entry, folder) if at is None else Path(at).expanduser()
    if path is None:
        raise FileNotFoundError(missing(entry, folder))
    is_plain = at is None and not options
    if entry.is_large and os.access(folder, os.W_OK):
        options = {"cache": folder / "decoded"} | options
    try:
        return replace(entry.read(path, **options), name=entry.name)
    except (ValueError, OSError) as error:
        if not is_plain:
            raise
        raise ValueError(f"{error} {damaged(entry, path)}") from None


def missing(entry: Entry, folder: Path) -> str:
    """What to say of a set that is not there."""
    if folder.exists() and not folder.is_dir():
        return (
            f"The data folder {folder} is a file, so {entry.name!r} cannot be in it."
            " Set $VARFILTER_DATA to a folder."
        )
    places = ", ".join(str(folder / place) for place in entry.places)
    how = entry.by_hand.format(place=folder / entry.places[0])
    how = how or f"Get it with `varfilter data fetch {entry.name}`."
    return f"The data set {entry.name!r} is not here; looked for it at {places}. {how}"


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


def _require_options(
    read: Callable[..., Dataset | Table], options: dict[str, Any], *, has_place: bool = True
) -> None:
    # The first is the place to read from, which is no option.
    known = list(inspect.signature(read).parameters)[int(has_place) :]
    for option in options:
        if option not in known:
            raise TypeError(
                f"`{read.__name__}`, which reads this, has no option {option!r}; it has"
                f" {', '.join(known)}."
            )
