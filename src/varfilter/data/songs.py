"""A folder of MIDI files as a data set of rolls, with the grid of steps that fits its notes."""

import hashlib
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from varfilter._text import count
from varfilter.data.dataset import SPLITS, Dataset, Family
from varfilter.data.limits import require_size
from varfilter.data.midi import (
    PERCUSSION,
    Song,
    grid_of,
    parsed_midi,
    placed_notes,
    require_resolution,
    song_of,
)
from varfilter.data.note_grid import (
    FITTING,
    HIGHEST,
    LOWEST,
    NUM_KEYS,
    NoteGrid,
    PlacedNotes,
    best_grid,
)
from varfilter.data.ragged import Ragged
from varfilter.data.recordings import Notes, note_changes, notes_of
from varfilter.data.splits import split_by_sequence
from varfilter.distributions import Bernoulli


def midi_folder(
    folder: str | Path,
    *,
    steps_per_beat: int | float | None = None,
    seconds_per_step: int | float | None = None,
    sampling: str = "onset",
    transpose: Iterable[int] = (0,),
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    recursive: bool = True,
    percussion: bool = False,
    name: str | None = None,
) -> Dataset:
    """Read the .mid and .midi files of a folder as rolls (time, 88), split by file.

    A step is a part of a beat or of a second. Where neither is given, it is the coarsest part of a
    beat on which 95% of the notes begin (1, 1/2, 1/3, 1/4, 1/6, 1/8 or 1/12; a quarter where none
    fits), and `Dataset.notes` says which. `read_midi` says which notes sound at a step.

    `transpose` adds copies of the training songs, moved by so many semitones (`range(-5, 7)`: every
    key); a copy that would leave the keyboard is left out, and validation and test are never moved.
    Files with the same music go to the same split. A file without any note is left out, with a
    warning.
    """
    require_resolution(steps_per_beat, seconds_per_step, sampling)
    semitones = _semitones(transpose)
    files = _midi_files(Path(folder), recursive)
    songs: dict[str, Song] = {}
    notes: list[Notes] = []
    errors: dict[str, ValueError] = {}
    for file in files:
        within = file.relative_to(folder).as_posix()
        try:
            parsed = parsed_midi(file)
        except ValueError as error:
            errors[within] = error
            continue
        notes.append(notes_of(parsed, LOWEST, HIGHEST, PERCUSSION))
        songs[within] = song_of(parsed, percussion)
    _require_readable(errors, len(files))
    share = None
    if steps_per_beat is None and seconds_per_step is None:
        steps_per_beat, share = best_grid([song.in_beats for song in songs.values()])
    grid = grid_of(list(songs.values()), steps_per_beat, seconds_per_step, sampling)
    placed: dict[str, PlacedNotes] = {}
    for file, song in songs.items():
        # Twice, since they are joined in the end; each moved copy is one more.
        num_bytes = 2 * len(semitones) * sum(each.roll.nbytes for each in placed.values())
        require_size(f"`folder` {str(folder)!r} has long songs, up to {file!r}", num_bytes)
        placed[file] = placed_notes(song, Path(folder) / file, grid)
    silent = {file for file, each in placed.items() if not each.roll.any()}
    for warning in _reasons(Path(folder), silent, songs, percussion):
        warnings.warn(warning, stacklevel=2)
    rolls = {file: each.roll for file, each in placed.items() if file not in silent}
    parts = _split(Path(folder), rolls, len(files), fractions, seed)
    parts["train"] = {
        f"{file} {shift:+d}" if shift else file: moved
        for file, roll in parts["train"].items()
        for shift in semitones
        if (moved := _transposed(roll, shift)) is not None
    }
    return Dataset(
        Path(folder).resolve().name if name is None else name,
        *(Ragged.of(parts[split].values()) for split in SPLITS),
        family=Family(Bernoulli),
        names={split: tuple(parts[split]) for split in SPLITS},
        rate=None if seconds_per_step is None else 1.0 / seconds_per_step,
        medium="music",
        schema=grid,
        notes=(
            _step_in_words(grid, share),
            *note_changes(notes, percussion=percussion),
            *_placing_in_words(list(placed.values()), list(songs.values()), grid),
        ),
    )


def _step_in_words(grid: NoteGrid, share: float | None) -> str:
    """What a step is; and why, where it was chosen, by the share of notes that fit."""
    if grid.steps_per_beat is None:
        return f"A step is {grid.seconds_per_step:g} s."
    part = "a beat" if grid.steps_per_beat == 1 else f"1/{grid.steps_per_beat:g} of a beat"
    if share is None:
        return f"A step is {part}."
    if share >= FITTING:
        return (
            f"A step is {part}, the longest on which at least {FITTING:.0%} of the notes begin"
            f" ({share:.1%}); `steps_per_beat` chooses another."
        )
    return (
        f"A step is {part}: the notes begin on no grid of beats ({share:.0%} on this one), as of"
        " music that is played freely. `seconds_per_step` or `steps_per_beat` chooses another."
    )


def _placing_in_words(
    placed: list[PlacedNotes], songs: list[Song], grid: NoteGrid
) -> tuple[str, ...]:
    """How many notes are in no step, and how many run into the one before."""
    total = sum(len(song.notes) for song in songs)
    lost, merged = (
        sum(getattr(each, name) for each in placed) for name in ("num_lost", "num_merged")
    )
    empty = sum(int(np.sum(song.notes[:, 1] <= song.notes[:, 0])) for song in songs)
    found = []
    if lost and empty:  # which no grid keeps
        lost -= empty
        verb = "has" if empty == 1 else "have"
        found.append(
            f"{empty:,} of {count(total, 'note')} {verb} no length (the end is at the beginning):"
            " such sound at no step, and do not count for the grid."
        )
    if lost:
        finer = "shorter step" if grid.steps_per_beat is None else "greater `steps_per_beat`"
        found.append(
            f"{lost:,} of {count(total, 'note')} ({lost / total:.1%}) begin and end between two"
            f" steps, and are left out: a {finer} keeps more of them, `sampling='middle'` all."
        )
    if merged:
        found.append(
            f"{merged:,} of {count(total, 'note')} ({merged / total:.1%}) are merged with the one"
            " before on their key: a roll does not tell a repeated note from a held one."
        )
    return tuple(found)


def _semitones(transpose: Any) -> list[int]:
    """The shifts without repeats; 0, the song itself, comes first, asked for or not."""
    shifts = list(transpose) if isinstance(transpose, Iterable) else [transpose]
    whole = all(isinstance(s, int | np.integer) and not isinstance(s, bool) for s in shifts)
    if not isinstance(transpose, Iterable) or not whole:
        raise TypeError(
            "`transpose` must be whole numbers of semitones, e.g. `range(-5, 7)`;"
            f" got {transpose!r}."
        )
    return list(dict.fromkeys([0, *map(int, shifts)]))


def _midi_files(folder: Path, recursive: bool) -> list[Path]:
    if not folder.is_dir():
        raise FileNotFoundError(f"`folder` is {str(folder)!r}: there is no such folder.")
    # Hidden files are no music: some systems leave a "._song.mid" beside each song.
    files = [
        file
        for file in (folder.rglob("*") if recursive else folder.glob("*"))
        if file.suffix.lower() in (".mid", ".midi")
        and file.is_file()
        and not file.name.startswith(".")
    ]
    if not files:
        raise FileNotFoundError(f"`folder` {str(folder)!r} has no .mid or .midi files.")
    return sorted(files, key=lambda file: file.relative_to(folder).as_posix())


def _require_readable(errors: dict[str, ValueError], num_files: int) -> None:
    """Refuse files that cannot be read all at once: collections have more than one."""
    if not errors:
        return
    first, *others = errors
    listed = f"{', '.join(others[:5])}{', ...' if len(others) > 5 else ''}"
    more = (
        f" The same holds for {len(others)} more of {count(num_files, 'file')}: {listed}."
        if others
        else ""
    )
    raise ValueError(f"{errors[first]}{more}") from None


def _reasons(folder: Path, silent: set[str], songs: dict[str, Song], percussion: bool) -> list[str]:
    """A sentence for each reason why files have an empty roll."""
    short = [file for file in sorted(silent) if len(songs[file].notes)]
    drums = [
        file
        for file in sorted(silent - set(short))
        if not percussion and len(song_of(parsed_midi(folder / file), percussion=True).notes)
    ]
    rest = sorted(silent - set(short) - set(drums))
    lacking = f"notes between {LOWEST} and {HIGHEST}"
    return [
        f"Left out: {len(some)} of {count(len(songs), 'file')}, without {what}:"
        f" {', '.join(some[:3])}{', ...' if len(some) > 3 else ''}.{fix}"
        for some, what, fix in (
            (short, "a note that sounds where a step begins", " Give a shorter step."),
            (drums, f"{lacking} but percussion", " Give `percussion=True` to keep them."),
            (rest, lacking, ""),
        )
        if some
    ]


def _split(
    folder: Path,
    rolls: dict[str, np.ndarray],
    num_files: int,
    fractions: Sequence[float],
    seed: int,
) -> dict[str, dict[str, np.ndarray]]:
    """The rolls by split and file; files that are copies of one song stay together."""
    songs: dict[bytes, list[str]] = {}
    for file, roll in rolls.items():
        songs.setdefault(hashlib.sha256(roll.tobytes()).digest(), []).append(file)
    if len(songs) < len(SPLITS):
        raise ValueError(
            f"`folder` must hold at least 3 different songs, one each for train, valid and test;"
            f" {str(folder)!r} has {count(len(songs), 'different song')} in"
            f" {count(num_files, 'file')}, {len(rolls)} of them with notes. Add some."
        )
    copies = list(songs.values())
    return {
        split: {file: rolls[file] for number in numbers for file in copies[number]}
        for split, numbers in split_by_sequence(len(songs), fractions, seed).items()
    }


def _transposed(roll: np.ndarray, semitones: int) -> np.ndarray | None:
    """The roll moved along the keyboard; None if a note would fall off it."""
    keys = np.flatnonzero(roll.any(axis=0)) + semitones
    if keys[0] < 0 or keys[-1] >= NUM_KEYS:
        return None
    return np.roll(roll, semitones, axis=1)
