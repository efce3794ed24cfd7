"""MIDI files to piano rolls and back: any folder of music as a data set, any roll to be heard."""

import hashlib
import math
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from varfilter._arguments import kind, require_library
from varfilter._text import count
from varfilter.data.dataset import SPLITS, Dataset, Family
from varfilter.data.limits import require_size
from varfilter.data.ragged import Ragged
from varfilter.data.recordings import Notes, note_changes, notes_of
from varfilter.data.rolls import HIGHEST, LOWEST, NUM_KEYS
from varfilter.data.splits import split_by_sequence
from varfilter.distributions import Bernoulli

PERCUSSION = 9  # "channel 10", counted from 0
MICROSECONDS_PER_BEAT = 500_000  # until a file says otherwise
LONGEST = 1_000_000
# A message takes three bytes or so in a file, and some hundred in memory.
PER_BYTE = 300
# A number of the format has four bytes, with seven bits in each.
LARGEST = 2**28
# Texts may have bytes above 127; so many that a number made of them would take minutes to read.
ENDLESS = re.compile(rb"[\x80-\xff]{65536}")


def midi_folder(
    folder: str | Path,
    *,
    steps_per_beat: int | float | None = None,
    seconds_per_step: int | float | None = None,
    transpose: Iterable[int] = (0,),
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    recursive: bool = True,
    percussion: bool = False,
    name: str | None = None,
) -> Dataset:
    """Read the .mid and .midi files of a folder as rolls (time, 88), split by file.

    A step is a part of a beat (one beat, unless you say otherwise) or of a second; `read_midi`
    says which notes sound in it. `transpose` adds copies of the training songs, moved by so
    many semitones (`range(-5, 7)`: every key); a copy that would leave the keyboard is left
    out, and validation and test are never moved. Files with the same music go to the same
    split. A file without any note is left out, with a warning.
    """
    _require_resolution(steps_per_beat, seconds_per_step)
    semitones = _semitones(transpose)
    files = _midi_files(Path(folder), recursive)
    rolls: dict[str, np.ndarray] = {}
    notes: list[Notes] = []
    for file in files:
        # Twice, since they are joined in the end; each moved copy is one more.
        num_bytes = 2 * len(semitones) * sum(roll.nbytes for roll in rolls.values())
        require_size(f"`folder` {str(folder)!r} has long songs, up to {file.name!r}", num_bytes)
        parsed = _parsed(file)
        notes.append(notes_of(parsed, LOWEST, HIGHEST, PERCUSSION))
        rolls[file.relative_to(folder).as_posix()] = _roll(
            parsed,
            file,
            steps_per_beat=steps_per_beat,
            seconds_per_step=seconds_per_step,
            percussion=percussion,
        )
    silent = {file for file, roll in rolls.items() if not roll.any()}
    for warning in _reasons(Path(folder), silent, len(files), percussion):
        warnings.warn(warning, stacklevel=2)
    rolls = {file: roll for file, roll in rolls.items() if file not in silent}
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
        notes=note_changes(
            notes, percussion=percussion, step=_step_in_words(steps_per_beat, seconds_per_step)
        ),
    )


def read_midi(
    path: str | Path,
    *,
    steps_per_beat: int | float | None = None,
    seconds_per_step: int | float | None = None,
    percussion: bool = False,
) -> np.ndarray:
    """Read a MIDI file as a roll, uint8 (time, 88), that says which keys are down in each step.

    A note sounds in each step whose middle it covers. One too short to cover any sounds in the
    step that holds its own middle, so that no note is lost. All tracks and channels are laid
    on one keyboard, but for percussion (channel 10) unless `percussion`. Tempo changes count if
    a step is a part of a second. The sustain pedal is ignored. Notes outside 21 to 108 are
    dropped, not folded into another octave. A note that is never ended lasts until its track
    ends; the roll is as long as the longest track.
    """
    _require_resolution(steps_per_beat, seconds_per_step)
    path = Path(path)
    return _roll(
        _parsed(path),
        path,
        steps_per_beat=steps_per_beat,
        seconds_per_step=seconds_per_step,
        percussion=percussion,
    )


def _roll(
    file: Any,
    path: Path,
    *,
    steps_per_beat: int | float | None,
    seconds_per_step: int | float | None,
    percussion: bool,
) -> np.ndarray:
    """The roll of a file as mido reads it; `path` is what an error calls it."""
    notes, tempi, last_tick = _events(file, percussion)
    beats = np.append(notes[:, :2].ravel(), last_tick) / file.ticks_per_beat
    if seconds_per_step is None:
        times = beats * (1.0 if steps_per_beat is None else steps_per_beat)
    else:
        times = _seconds(beats, tempi, file.ticks_per_beat) / seconds_per_step
    # Not the other way round: a damaged file may have times that are no numbers.
    if not times.max() <= LONGEST:
        raise ValueError(
            f"`path` {str(path)!r} is {times.max():.0f} steps long; the most is {LONGEST}."
            " Give longer steps, or leave the file out."
        )
    require_size(f"`path` {str(path)!r} is {times[-1]:.0f} steps long", times[-1] * NUM_KEYS * 16)
    # Sums of parts of a second are not exact: a middle is met to a millionth of a step.
    times = np.round(times, 6)
    begin, end = np.ceil(times[:-1] - 0.5).astype(np.int64).reshape(-1, 2).T
    middle = np.floor(times[:-1].reshape(-1, 2).mean(axis=1)).astype(np.int64)
    short = end <= begin
    begin, end = np.where(short, middle, begin), np.where(short, middle + 1, end)
    num_steps = max(math.ceil(times[-1] - 0.5), int(end.max(initial=1)))
    sounding = np.zeros((num_steps + 1, NUM_KEYS), np.int32)
    np.add.at(sounding, (begin, notes[:, 2] - LOWEST), 1)
    np.add.at(sounding, (end, notes[:, 2] - LOWEST), -1)
    return (np.cumsum(sounding[:-1], axis=0) > 0).astype(np.uint8)


def write_midi(
    roll: Any, path: str | Path, *, seconds_per_step: int | float = 0.5, velocity: int = 80
) -> None:
    """Write a roll (time, 88) of 0 and 1 as a MIDI file; a key that stays down is one note.

    A step is a beat: `read_midi(path)` gives the roll again, and so does the same
    `seconds_per_step`.
    """
    array = np.asarray(roll)
    if array.ndim != 2 or array.shape[1] != NUM_KEYS or not len(array):
        raise ValueError(f"`roll` must have the shape (time, {NUM_KEYS}); got {kind(array)}.")
    if array.dtype.kind not in "buif" or not ((array == 0) | (array == 1)).all():
        raise ValueError(
            f"`roll` must hold 0 and 1 alone; got {kind(array)} with other values."
            " Sample from the probabilities, or cut them at 0.5."
        )
    tempo = round(_require_duration("seconds_per_step", seconds_per_step) * 1e6)
    if not 1 <= tempo < 2**24:
        raise ValueError(
            "`seconds_per_step` must lie between 0.000001 and 16.7, the tempi that MIDI has;"
            f" got {seconds_per_step!r}."
        )
    if isinstance(velocity, bool) or velocity not in range(1, 128):
        raise ValueError(f"`velocity` must be a whole number from 1 to 127; got {velocity!r}.")
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"`path` is {str(path)!r}: there is no such folder to write to.")
    mido = require_library("mido", extra="music")
    ticks_per_beat = 96
    track = mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=tempo)])
    silence = np.zeros((1, NUM_KEYS), np.int8)
    changes = np.diff(np.concatenate([silence, array.astype(np.int8), silence]), axis=0)
    now = 0
    for step, change in enumerate(changes):
        # A note ends before the next begins: -1 comes before +1.
        for down in (-1, 1):
            for key in np.flatnonzero(change == down):
                track.append(
                    mido.Message(
                        "note_on" if down == 1 else "note_off",
                        note=LOWEST + int(key),
                        velocity=int(velocity) if down == 1 else 0,
                        time=(step - now) * ticks_per_beat,
                    )
                )
                now = step
    track.append(mido.MetaMessage("end_of_track", time=(len(array) - now) * ticks_per_beat))
    mido.MidiFile(type=0, ticks_per_beat=ticks_per_beat, tracks=[track]).save(str(path))


def _step_in_words(steps_per_beat: Any, seconds_per_step: Any) -> str:
    if seconds_per_step is not None:
        return f"{seconds_per_step:g} s"
    return "a beat" if steps_per_beat in (None, 1) else f"1/{steps_per_beat:g} of a beat"


def _require_resolution(steps_per_beat: Any, seconds_per_step: Any) -> None:
    if steps_per_beat is not None and seconds_per_step is not None:
        raise ValueError(
            f"`steps_per_beat` is {steps_per_beat!r} and `seconds_per_step` is"
            f" {seconds_per_step!r}: a step is a part of a beat or of a second. Give one of them."
        )
    if steps_per_beat is not None:
        _require_duration("steps_per_beat", steps_per_beat)
    if seconds_per_step is not None:
        _require_duration("seconds_per_step", seconds_per_step)


def _require_duration(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"`{name}` must be a positive number; got {kind(value)}.")
    if not 0.0 < value < math.inf:
        raise ValueError(f"`{name}` must be positive and finite; got {value!r}.")
    return float(value)


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


def _reasons(folder: Path, silent: set[str], num_files: int, percussion: bool) -> list[str]:
    """A sentence for each reason why files have an empty roll."""
    drums = [
        file
        for file in sorted(silent)
        if not percussion and read_midi(folder / file, percussion=True).any()
    ]
    rest = sorted(silent - set(drums))
    lacking = f"notes between {LOWEST} and {HIGHEST}"
    return [
        f"Left out: {len(some)} of {count(num_files, 'file')}, without {what}:"
        f" {', '.join(some[:3])}{', ...' if len(some) > 3 else ''}.{fix}"
        for some, what, fix in (
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


def _parsed(path: Path) -> Any:
    """A MIDI file as mido reads it; an error if its time is not in beats."""
    mido = require_library("mido", extra="music")
    if not path.is_file():
        raise FileNotFoundError(f"`path` is {str(path)!r}: there is no such file.")
    size = path.stat().st_size
    require_size(f"`path` {str(path)!r} has {size} bytes of music", PER_BYTE * size)
    try:
        if ENDLESS.search(path.read_bytes()):
            raise ValueError("it has a number without an end")
        file = mido.MidiFile(str(path))
        if any(message.time >= LARGEST for track in file.tracks for message in track):
            raise ValueError("it has a time of more than four bytes")
    except MemoryError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise ValueError(
            f"`path` {str(path)!r} is not a MIDI file that can be read ({reason})."
            " Repair or remove it."
        ) from None
    if file.type == 2 or file.ticks_per_beat <= 0:
        unread = "independent patterns (type 2)" if file.type == 2 else "video time (SMPTE)"
        raise ValueError(
            f"`path` {str(path)!r} is a MIDI file of {unread}, which is not read."
            " Save it as type 1, timed in beats."
        )
    return file


def _events(file: Any, percussion: bool) -> tuple[np.ndarray, dict[int, int], int]:
    """The notes (first tick, last tick, pitch), the microseconds a beat by tick, the last tick."""
    notes: list[tuple[int, int, int]] = []
    tempi: list[tuple[int, int]] = []
    last_tick = 0
    for track in file.tracks:
        tick = 0
        down: dict[tuple[int, int], list[int]] = {}
        for message in track:
            tick += message.time
            if message.type == "set_tempo":
                tempi.append((tick, message.tempo))
            elif message.type in ("note_on", "note_off"):
                if message.channel == PERCUSSION and not percussion:
                    continue
                begun = down.setdefault((message.channel, message.note), [])
                if message.type == "note_on" and message.velocity > 0:
                    begun.append(tick)
                    continue
                # A key struck again in this tick stays down: the end is of the stroke before.
                ended = [start for start in begun if start < tick] or begun
                notes += [(start, tick, message.note) for start in ended]
                down[message.channel, message.note] = (
                    [] if ended is begun else [start for start in begun if start == tick]
                )
        notes += [(start, tick, key) for (_, key), begun in down.items() for start in begun]
        last_tick = max(last_tick, tick)
    table = np.array(notes, np.int64).reshape(-1, 3)
    on_keyboard = (table[:, 2] >= LOWEST) & (table[:, 2] <= HIGHEST)
    return table[on_keyboard], dict(sorted(tempi, key=lambda change: change[0])), last_tick


def _seconds(beats: np.ndarray, tempi: dict[int, int], ticks_per_beat: int) -> np.ndarray:
    """The seconds at which beats fall; time runs straight between two changes of tempo."""
    changes = {0: MICROSECONDS_PER_BEAT} | tempi
    at = np.array([*changes, max(*changes, beats.max() * ticks_per_beat) + 1.0]) / ticks_per_beat
    passed = np.cumsum(np.diff(at) * np.array(list(changes.values())) / 1e6)
    return np.interp(beats, at, np.concatenate([np.zeros(1), passed]))
