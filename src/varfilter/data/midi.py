"""MIDI files to piano rolls and back: any file to be learned from, any roll to be heard."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter._arguments import kind, require_library
from varfilter.data.limits import require_size
from varfilter.data.note_grid import (
    HIGHEST,
    LOWEST,
    NUM_KEYS,
    SAMPLINGS,
    NoteGrid,
    PlacedNotes,
    best_grid,
    loudness,
    sounding,
)

PERCUSSION = 9  # "channel 10", counted from 0
MICROSECONDS_PER_BEAT = 500_000  # until a file says otherwise
LONGEST = 1_000_000
# A message takes three bytes or so in a file, and some hundred in memory.
PER_BYTE = 300
# Ticks of a beat that the format has room for.
MOST_TICKS = 2**15 - 1
# A number of the format has four bytes, with seven bits in each.
LARGEST = 2**28
# Texts may have bytes above 127; so many that a number made of them would take minutes to read.
ENDLESS = re.compile(rb"[\x80-\xff]{65536}")


def read_midi(
    path: str | Path,
    *,
    steps_per_beat: int | float | None = None,
    seconds_per_step: int | float | None = None,
    sampling: str = "onset",
    percussion: bool = False,
) -> np.ndarray:
    """Read a MIDI file as a roll, uint8 (time, 88), that says which keys are down at each step.

    A step is as `midi_folder` says; where it is not given, this file decides.

    With `sampling` "onset" a note sounds at each step that begins while it does, as in the
    canonical sets, within an eighth of a step; one that begins and ends between two steps is lost.
    With "middle" it sounds in each step whose middle it covers, or that holds its own: no note is
    lost, but runs of short notes sound together.

    All tracks and channels are laid on one keyboard, but for percussion (channel 10) unless
    `percussion`. Tempo changes count if a step is a part of a second. The sustain pedal is ignored.
    Notes outside 21 to 108 are dropped, not folded into another octave. A note that is never ended
    lasts until its track ends; the roll is as long as the longest track.
    """
    roll, _ = read_song(
        path,
        steps_per_beat=steps_per_beat,
        seconds_per_step=seconds_per_step,
        sampling=sampling,
        percussion=percussion,
    )
    return roll


def read_song(
    path: str | Path,
    *,
    steps_per_beat: int | float | None = None,
    seconds_per_step: int | float | None = None,
    sampling: str = "onset",
    percussion: bool = False,
) -> tuple[np.ndarray, NoteGrid]:
    """The roll that `read_midi` gives, and its grid, with the song's own tempo and loudness."""
    require_resolution(steps_per_beat, seconds_per_step, sampling)
    path = Path(path)
    song = song_of(parsed_midi(path), percussion)
    if steps_per_beat is None and seconds_per_step is None:
        steps_per_beat, _ = best_grid([song.in_beats])
    grid = grid_of([song], steps_per_beat, seconds_per_step, sampling)
    return placed_notes(song, path, grid).roll, grid


class Song(NamedTuple):
    """The notes of a MIDI file: (first tick, last tick, pitch, velocity), and its time.

    `tempi` are the microseconds of a beat, by the tick from which they hold.
    """

    notes: np.ndarray
    tempi: dict[int, int]
    last_tick: int
    ticks_per_beat: int

    @property
    def in_beats(self) -> np.ndarray:
        """Where notes begin and end, in beats."""
        return self.notes[:, :2] / self.ticks_per_beat

    def seconds(self, ticks: np.ndarray) -> np.ndarray:
        """The seconds at which ticks fall; time runs straight between two changes of tempo."""
        changes = {0: MICROSECONDS_PER_BEAT} | self.tempi
        at = np.array([*changes, max(*changes, ticks.max(initial=0)) + 1.0])
        lengths = np.diff(at) * np.array(list(changes.values())) / 1e6 / self.ticks_per_beat
        return np.interp(ticks, at, np.concatenate([np.zeros(1), np.cumsum(lengths)]))


def grid_of(
    songs: Sequence[Song],
    steps_per_beat: int | float | None,
    seconds_per_step: int | float | None,
    sampling: str,
) -> NoteGrid:
    """The grid with the tempo and the loudness of the songs, each in the middle.

    The tempo of a song is that at which its beats take as long as with all its changes of tempo; a
    song without any duration, as of a damaged file, has none. In the middle of two is the faster,
    since no song has their mean.
    """
    whole = [song for song in songs if song.last_tick > 0 and len(song.notes)]
    tempi = [
        float(song.seconds(np.array([song.last_tick]))[0]) * song.ticks_per_beat / song.last_tick
        for song in whole
    ]
    tempi = [seconds for seconds in tempi if seconds > 0.0]
    begins = np.concatenate([song.in_beats[:, 0] for song in whole] or [np.zeros(0)])
    notes = np.concatenate([song.notes for song in whole] or [np.zeros((0, 4), np.int64)])
    return NoteGrid(
        steps_per_beat,
        seconds_per_step,
        sampling,
        float(np.quantile(tempi, 0.5, method="lower")) if tempi else MICROSECONDS_PER_BEAT / 1e6,
        *loudness(begins, notes[:, 2], notes[:, 3], steps_per_beat),
    )


def placed_notes(song: Song, path: Path, grid: NoteGrid) -> PlacedNotes:
    """The roll of a song; `path` is what an error calls it."""
    ticks = np.append(song.notes[:, :2].ravel(), song.last_tick)
    if grid.steps_per_beat is not None:
        times = ticks / song.ticks_per_beat * grid.steps_per_beat
    else:
        assert grid.seconds_per_step is not None
        times = song.seconds(ticks) / grid.seconds_per_step
    # Not the other way round: a damaged file may have times that are no numbers.
    if not times.max() <= LONGEST:
        raise ValueError(
            f"`path` {str(path)!r} is {times.max():.0f} steps long; the most is {LONGEST}."
            " Give longer steps, or leave the file out."
        )
    require_size(f"`path` {str(path)!r} is {times[-1]:.0f} steps long", times[-1] * NUM_KEYS * 16)
    begin, end = times[:-1].reshape(-1, 2).T
    return sounding(begin, end, song.notes[:, 2], times[-1], grid.sampling)


def write_midi(
    roll: Any,
    path: str | Path,
    *,
    seconds_per_step: int | float = 0.5,
    steps_per_beat: int | float = 1,
    velocity: int | Sequence[int] | np.ndarray = 80,
) -> None:
    """Write a roll (time, 88) of 0 and 1 as a MIDI file; a key that stays down is one note.

    `read_midi` with the same `steps_per_beat`, or the same `seconds_per_step`, gives the roll
    again. `velocity` is one for all notes, or one for those that begin on each step of a beat in
    turn; an array (steps, 88) has one for each key, too.
    """
    array = np.asarray(roll)
    if array.ndim != 2 or array.shape[1] != NUM_KEYS or not len(array):
        raise ValueError(f"`roll` must have the shape (time, {NUM_KEYS}); got {kind(array)}.")
    if array.dtype.kind not in "buif" or not ((array == 0) | (array == 1)).all():
        raise ValueError(
            f"`roll` must hold 0 and 1 alone; got {kind(array)} with other values."
            " Sample from the probabilities, or cut them at 0.5."
        )
    steps_per_beat = _require_duration("steps_per_beat", steps_per_beat)
    seconds_per_beat = _require_duration("seconds_per_step", seconds_per_step) * steps_per_beat
    tempo = round(seconds_per_beat * 1e6)
    if not 1 <= tempo < 2**24:
        raise ValueError(
            "`seconds_per_step` must give a beat of between 0.000001 and 16.7 s, the tempi that"
            f" MIDI has; got {seconds_per_step!r} with {steps_per_beat:g} steps in a beat."
        )
    velocities = _velocities(velocity)
    if not Path(path).parent.is_dir():
        raise FileNotFoundError(f"`path` is {str(path)!r}: there is no such folder to write to.")
    mido = require_library("mido", extra="music")
    ticks_per_step = _ticks_per_step(steps_per_beat)
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
                        velocity=int(velocities[step % len(velocities), key]) if down == 1 else 0,
                        time=(step - now) * ticks_per_step,
                    )
                )
                now = step
    track.append(mido.MetaMessage("end_of_track", time=(len(array) - now) * ticks_per_step))
    ticks_per_beat = round(ticks_per_step * steps_per_beat)
    mido.MidiFile(type=0, ticks_per_beat=ticks_per_beat, tracks=[track]).save(str(path))


def _velocities(velocity: Any) -> np.ndarray:
    """Velocities (steps of a beat, 88); refuses what the format has no room for."""
    found = np.asarray(velocity)
    found = found[:, None] if found.ndim == 1 else np.atleast_2d(found)
    is_table = found.ndim == 2 and len(found) > 0 and found.shape[1] in (1, NUM_KEYS)
    if not is_table or found.dtype.kind not in "iu" or found.min() < 1 or found.max() > 127:
        raise ValueError(
            "`velocity` must be a whole number from 1 to 127, or one for each step of a beat, or an"
            f" array (steps, {NUM_KEYS}) of such; got"
            f" {kind(velocity) if isinstance(velocity, np.ndarray) else repr(velocity)}."
        )
    return np.broadcast_to(found, (len(found), NUM_KEYS))


def _ticks_per_step(steps_per_beat: float) -> int:
    """Ticks of which a beat has a whole number too, so that steps do not drift from beats."""
    most = max(1, min(96, math.floor(MOST_TICKS / steps_per_beat)))
    for ticks in range(most, 0, -1):
        beat = ticks * steps_per_beat
        if beat >= 1 and abs(beat - round(beat)) < 1e-9:
            return ticks
    return max(most, math.ceil(1 / steps_per_beat))


def require_resolution(steps_per_beat: Any, seconds_per_step: Any, sampling: Any) -> None:
    """Refuse a step that is both a part of a beat and of a second, or none, and odd samplings."""
    if steps_per_beat is not None and seconds_per_step is not None:
        raise ValueError(
            f"`steps_per_beat` is {steps_per_beat!r} and `seconds_per_step` is"
            f" {seconds_per_step!r}: a step is a part of a beat or of a second. Give one of them."
        )
    if sampling not in SAMPLINGS:
        raise ValueError(f"`sampling` must be {' or '.join(SAMPLINGS)}; got {sampling!r}.")
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


def parsed_midi(path: Path) -> Any:
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
        # What mido says of the end of a file has no words.
        ends = "it ends too soon" if size else "it is empty"
        ends = ends if isinstance(error, EOFError) else type(error).__name__
        reason = " ".join(str(error).split()).rstrip(".") or ends
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


def song_of(file: Any, percussion: bool) -> Song:
    """The notes of a file as mido reads it, on the keys of a piano."""
    notes: list[tuple[int, int, int, int]] = []
    tempi: list[tuple[int, int]] = []
    last_tick = 0
    for track in file.tracks:
        tick = 0
        # When the keys that are down were struck, and how hard.
        down: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for message in track:
            tick += message.time
            if message.type == "set_tempo":
                tempi.append((tick, message.tempo))
            elif message.type in ("note_on", "note_off"):
                if message.channel == PERCUSSION and not percussion:
                    continue
                begun = down.setdefault((message.channel, message.note), [])
                if message.type == "note_on" and message.velocity > 0:
                    begun.append((tick, message.velocity))
                    continue
                # A key struck again in this tick stays down: the end is of the stroke before.
                ended = [stroke for stroke in begun if stroke[0] < tick] or begun
                notes += [(start, tick, message.note, velocity) for start, velocity in ended]
                down[message.channel, message.note] = (
                    [] if ended is begun else [stroke for stroke in begun if stroke[0] == tick]
                )
        notes += [
            (start, tick, key, velocity)
            for (_, key), begun in down.items()
            for start, velocity in begun
        ]
        last_tick = max(last_tick, tick)
    table = np.array(notes, np.int64).reshape(-1, 4)
    on_keyboard = (table[:, 2] >= LOWEST) & (table[:, 2] <= HIGHEST)
    changes = dict(sorted(tempi, key=lambda change: change[0]))
    return Song(table[on_keyboard], changes, last_tick, file.ticks_per_beat)
