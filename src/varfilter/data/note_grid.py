"""Notes on a grid of steps: which grid fits them, and which keys are down at each step."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

# The keys of a piano, as MIDI counts them.
LOWEST, HIGHEST = 21, 108
NUM_KEYS = HIGHEST - LOWEST + 1
NUM_OCTAVES = HIGHEST // 12 - LOWEST // 12 + 1

Sampling = Literal["onset", "middle"]
SAMPLINGS: tuple[str, ...] = get_args(Sampling)
# Steps in a beat that are tried, from coarse to fine; triplets among them.
GRIDS = (1, 2, 3, 4, 6, 8, 12)
# So many of the notes must begin on a grid that is chosen; where none does, the last resort.
FITTING, RESORT = 0.95, 4
# A note that begins so much of a step late, or ends so much late, counts as in time.
TOLERANCE = 1 / 8
USUAL_VELOCITY = 80
# Of how loud notes are beyond what is usual where they begin: each stands for as many of them.
QUANTILES = (np.arange(16) + 0.5) / 16
USUAL_SECONDS_PER_BEAT = 0.5


@dataclass(frozen=True)
class NoteGrid:
    """How steps lie in the time of music, and how loud and fast it is: of a whole data set.

    A step is a part of a beat or of a second; one of the two is None. `seconds_per_beat` is the
    middle tempo of the files, and `velocities` how loud notes are that begin on each step of a
    beat, in the middle; `registers` are added to that, in the octaves from C0 on, `spread` are
    quantiles of what is left, and `softest_loudest` the ends of all. `sampling` says which notes
    sound at a step (`sounding`).
    """

    steps_per_beat: float | int | None = 1
    seconds_per_step: float | int | None = None
    sampling: str = "onset"
    seconds_per_beat: float = USUAL_SECONDS_PER_BEAT
    velocities: tuple[int, ...] = (USUAL_VELOCITY,)
    registers: tuple[int, ...] = (0,) * NUM_OCTAVES
    spread: tuple[int, ...] = (0,)
    softest_loudest: tuple[int, int] = (1, 127)

    def loudness(self, num_steps: int) -> np.ndarray:
        """Velocities (num_steps, 88) of notes that begin on a step and a key, the same each time.

        A roll does not say how loud a note is: it is drawn as such notes were in the data.
        """
        octaves = np.arange(LOWEST, HIGHEST + 1) // 12 - LOWEST // 12
        found = np.resize(self.velocities, num_steps)[:, None] + np.take(self.registers, octaves)
        drawn = np.random.default_rng(0).choice(self.spread, found.shape)
        return np.clip(found + drawn, *self.softest_loudest)

    def since(self, step: int) -> "NoteGrid":
        """The grid of what begins at a step of a piece: its accents stay on the same beats."""
        return replace(self, velocities=tuple(np.roll(self.velocities, -step).tolist()))

    @property
    def step_seconds(self) -> float:
        """How long a step lasts, at the middle tempo."""
        if self.steps_per_beat is None:
            assert self.seconds_per_step is not None
            return float(self.seconds_per_step)
        return self.seconds_per_beat / self.steps_per_beat

    def as_json(self) -> dict[str, Any]:
        """The grid as plain JSON."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @staticmethod
    def of_json(known: dict[str, Any]) -> "NoteGrid":
        """Read what `as_json` made."""
        lists: dict[str, Any] = {name: tuple(v) for name, v in known.items() if isinstance(v, list)}
        return NoteGrid(**{**known, **lists})


class PlacedNotes(NamedTuple):
    """A roll, uint8 (time, 88), and what became of the notes that it was made of.

    `num_lost` sound at no step, and are not in it. `num_merged` follow on another of the same key
    without a step between them: a roll does not tell a repeated note from a held one.
    """

    roll: np.ndarray
    num_lost: int
    num_merged: int


def best_grid(songs: Sequence[np.ndarray]) -> tuple[int, float]:
    """(steps in a beat, share of notes that fit) of the coarsest grid that fits notes in beats.

    `songs` have rows (begin, end, ...). A note fits that begins on a step, within an eighth of it,
    and sounds there; one without any length sounds nowhere, and does not count. Where no grid has
    95% of them, as of music that was played freely, there are four steps in a beat.
    """
    notes = np.concatenate([song[:, :2] for song in songs] or [np.zeros((0, 2))])
    notes = notes[notes[:, 1] > notes[:, 0]]
    if not len(notes):
        return GRIDS[0], 1.0
    shares = {grid: _share_on(notes * grid) for grid in GRIDS}
    fitting = [grid for grid, share in shares.items() if share >= FITTING]
    chosen = fitting[0] if fitting else RESORT
    return chosen, shares[chosen]


def sounding(
    begin: np.ndarray, end: np.ndarray, pitches: np.ndarray, length: float, sampling: str
) -> PlacedNotes:
    """Put notes on steps; their times, and the length of the song, are in steps.

    - "onset": a note sounds at each step that begins while it does, as in the canonical sets;
      within an eighth of a step, since players and programs are late. One that begins and ends
      between two steps is lost.
    - "middle": a note sounds in each step whose middle it covers, and one too short to cover any,
      in the step that holds its own middle: none is lost, and runs of short notes sound together.
    """
    # Sums of parts of a second are not exact: a step is met to a millionth.
    begin, end, length = np.round(begin, 6), np.round(end, 6), round(length, 6)
    shift = TOLERANCE if sampling == "onset" else 0.5
    first, last = (np.ceil(times - shift).astype(np.int64) for times in (begin, end))
    is_short = last <= first
    if sampling == "middle":
        middle = np.floor((begin + end) / 2).astype(np.int64)
        first, last = np.where(is_short, middle, first), np.where(is_short, middle + 1, last)
        is_short = np.zeros(len(first), bool)
    first, last, keys = (values[~is_short] for values in (first, last, pitches - LOWEST))
    num_steps = max(int(np.ceil(length - shift)), int(last.max(initial=1)))
    changes = np.zeros((num_steps + 1, NUM_KEYS), np.int32)
    np.add.at(changes, (first, keys), 1)
    np.add.at(changes, (last, keys), -1)
    roll = (np.cumsum(changes[:-1], axis=0) > 0).astype(np.uint8)
    struck = np.diff(roll, axis=0, prepend=np.zeros((1, NUM_KEYS), np.uint8)) == 1
    return PlacedNotes(roll, int(is_short.sum()), len(first) - int(struck.sum()))


def loudness(
    begins: np.ndarray,
    pitches: np.ndarray,
    velocities: np.ndarray,
    steps_per_beat: float | int | None,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, int]]:
    """The middle velocity of the notes that begin on each step of a beat; of all, elsewhere.

    By how much those of each octave are louder, so that a melody stays above what goes with it;
    the quantiles of what is left; and the softest and the loudest. `begins` are in beats. Where
    steps are no whole parts of a beat, the first is one number.
    """
    is_whole = steps_per_beat is not None and steps_per_beat == int(steps_per_beat)
    size = int(steps_per_beat) if steps_per_beat is not None and is_whole else 1
    places = np.ceil(begins * size - TOLERANCE).astype(np.int64) % size
    middle = _middle(velocities, USUAL_VELOCITY)
    of_steps = [_middle(velocities[places == place], middle) for place in range(size)]
    beyond, octaves = velocities - np.array(of_steps)[places], pitches // 12 - LOWEST // 12
    registers = [_middle(beyond[octaves == octave], 0) for octave in range(NUM_OCTAVES)]
    if not len(velocities):
        return tuple(of_steps), tuple(registers), NoteGrid.spread, NoteGrid.softest_loudest
    left = beyond - np.array(registers)[octaves]
    spread = np.quantile(left, QUANTILES).round().astype(int).tolist()
    ends = int(velocities.min()), int(velocities.max())
    return tuple(of_steps), tuple(registers), tuple(spread), ends


def _share_on(notes: np.ndarray) -> float:
    """The share of notes, in steps, that begin on a step and sound there."""
    begin, end = np.round(notes, 6).T
    is_on = np.abs(begin - np.round(begin)) <= TOLERANCE
    return float(np.mean(is_on & (np.ceil(end - TOLERANCE) > np.ceil(begin - TOLERANCE))))


def _middle(values: np.ndarray, otherwise: int) -> int:
    return int(np.median(values)) if len(values) else otherwise
