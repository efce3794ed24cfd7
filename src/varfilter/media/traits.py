"""What recordings are like to an ear, as numbers: of what a model makes up, and of its data.

They stand where nobody has listened. Sound whose traits are those of the data need not be good;
sound whose traits are not, is not like them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from varfilter.data.note_grid import LOWEST

# The name of a trait, with its unit, and what it comes to.
Traits = dict[str, float]

LIKENESS = (
    "What the model makes up, beside the data, as numbers: they were computed, and nobody has"
    " listened for them. Where they are alike, only ears tell whether it sounds like the data."
)
# Recordings that tell what a data set is like, at most, and the seconds of each.
MOST_RECORDINGS, MOST_SECONDS = 32, 20.0
# Sound is looked at in pieces, each overlapping with the next by half: three periods of the lowest
# pitch of a voice fit in.
PIECE_SECONDS = 0.05
# A piece that is so much below the loud ones of its recording, in decibels, is a pause.
PAUSE, LOUD = 30.0, 0.95
# Pitches of voices in Hz, and the autocorrelation from which a piece counts as voiced (Boersma
# 1993 has 0.45, with costs that are left out here).
LOWEST_PITCH, HIGHEST_PITCH, VOICED = 60.0, 400.0, 0.5
# Of peaks that are nearly as high, the first is the period; the others are several of it.
NEARLY = 0.9
FULL_SCALE = 2.0**15
# A major scale, whose notes are those of a minor one too.
SCALE = np.array([0, 2, 4, 5, 7, 9, 11])
# What notes and moves of the upper voice are called, from so many steps or semitones to so many.
LENGTHS = (
    ("of 1 step", 1.0, 1.0),
    ("of 2 steps", 2.0, 2.0),
    ("of 3 or 4 steps", 3.0, 4.0),
    ("of 5 steps or more", 5.0, 1e9),
)
MOVES = (
    ("stays", 0.0, 0.0),
    ("moves by 1 or 2 semitones", 1.0, 2.0),
    ("moves by 3 to 7 semitones", 3.0, 7.0),
    ("leaps further", 8.0, 1e9),
)


def some(sequences: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """At most `MOST_RECORDINGS` of the sequences, at even distances."""
    number = len(sequences)
    places = np.linspace(0, number - 1, min(number, MOST_RECORDINGS)).round().astype(int)
    return (np.asarray(sequences[i]) for i in places.tolist())


def sound_traits(recordings: Iterable[np.ndarray], rate: float | int) -> Traits:
    """Loudness, pauses, spectrum and pitch of recordings in levels of 16 bits.

    The spectrum and the pitch are of what is no pause. Without such, or at a rate that is too low
    for them, they are left out.
    """
    square, num_samples, num_pieces, num_sounding = 0.0, 0, 0, 0
    power, pitches, num_searched = np.zeros(1), [], 0
    for samples in recordings:
        part = np.nan_to_num(np.ravel(samples)[: max(1, round(MOST_SECONDS * rate))].astype(float))
        square, num_samples = square + float(np.sum(part**2)), num_samples + len(part)
        pieces = _pieces(part, rate)
        levels = 10.0 * np.log10(np.maximum(np.mean(pieces**2, axis=1), 1e-6))
        is_sounding = (levels > np.quantile(levels, LOUD) - PAUSE) & (levels > 0.0)
        num_pieces, num_sounding = num_pieces + len(pieces), num_sounding + int(is_sounding.sum())
        spectra = np.abs(np.fft.rfft(pieces[is_sounding] * _window(pieces), 2 * len(pieces[0])))
        power = power + np.sum(spectra**2, axis=0)
        if rate >= 4 * HIGHEST_PITCH:
            num_searched += int(is_sounding.sum())
            pitches.append(_pitches(spectra**2, _window(pieces), rate))
    if not num_samples:
        return {}
    loudness = 10.0 * np.log10(max(square / num_samples, 1e-6) / FULL_SCALE**2)
    traits = {
        "loudness, dB of full scale": loudness,
        "pauses, % of the time": 100.0 * (1.0 - num_sounding / num_pieces),
    }
    if power.sum() > 0:
        frequencies = np.linspace(0.0, rate / 2, len(power))
        centroid = float(np.average(frequencies, weights=power))
        spread = float(np.average((frequencies - centroid) ** 2, weights=power)) ** 0.5
        above = np.maximum(power[1:], 1e-12 * power.max())
        flatness = float(np.exp(np.mean(np.log(above))) / np.mean(above))
        traits |= {
            "spectral centroid, Hz": centroid,
            "spectral spread, Hz": spread,
            "spectral flatness": flatness,
        }
    if num_searched:
        found = np.concatenate(pitches)
        traits["voiced, % of what sounds"] = 100.0 * len(found) / num_searched
        if len(found):
            traits["pitch of what is voiced, Hz"] = float(np.median(found))
    return {name: float(value) for name, value in traits.items()}


def music_traits(rolls: Iterable[np.ndarray]) -> Traits:
    """How many notes there are, how long they are, and how the upper voice moves.

    Rolls are (steps, keys); a key that goes on from step to step is one note.
    """
    num_steps = num_silent = num_notes = num_held = num_after = num_in_scale = 0
    lengths, moves = [np.zeros(0, int)], [np.zeros(0, int)]
    for roll in rolls:
        on = np.nan_to_num(np.asarray(roll, np.float32)) > 0.5
        num_steps, num_silent = num_steps + len(on), num_silent + int((~on.any(axis=1)).sum())
        num_notes += int(on.sum())
        num_held += int((on[1:] & on[:-1]).sum())
        num_after += int(on[1:].sum())
        changes = np.diff(np.pad(on, ((1, 1), (0, 0))).astype(np.int8), axis=0).T
        lengths.append(np.nonzero(changes == -1)[1] - np.nonzero(changes == 1)[1])
        top = np.where(on.any(axis=1), on.shape[1] - 1 - np.argmax(on[:, ::-1], axis=1), -1)
        sounds = (top[1:] >= 0) & (top[:-1] >= 0)
        moves.append(np.abs(np.diff(top))[sounds])
        classes = np.bincount((LOWEST + np.nonzero(on)[1]) % 12, minlength=12)
        num_in_scale += max(int(classes[(SCALE + tonic) % 12].sum()) for tonic in range(12))
    if not num_notes:
        return {}
    traits = {
        "notes a step": num_notes / num_steps,
        "silent steps, %": 100.0 * num_silent / num_steps,
        "notes held from the step before, %": 100.0 * num_held / max(num_after, 1),
    }
    traits |= _shares("notes", LENGTHS, np.concatenate(lengths))
    traits |= _shares("upper voice", MOVES, np.concatenate(moves))
    traits["notes of the best major scale, %"] = 100.0 * num_in_scale / num_notes
    return traits


def trait_table(columns: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """Rows of a table: the name of a trait, and its value in each of the columns that has it."""
    names = dict.fromkeys(name for traits in columns.values() for name in traits)
    return [
        [name, *(_number(each[name]) if name in each else "" for each in columns.values())]
        for name in names
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _shares(what: str, ranges: Sequence[tuple[str, float, float]], values: np.ndarray) -> Traits:
    """How many in a hundred of the values lie in each of the ranges; nothing of no values."""
    if not len(values):
        return {}
    return {
        f"{what} {name}, %": 100.0 * float(np.mean((values >= low) & (values <= high)))
        for name, low, high in ranges
    }


def _pieces(samples: np.ndarray, rate: float | int) -> np.ndarray:
    """Overlapping pieces (pieces, samples), each about its mean; what is shorter is one piece."""
    size = max(round(PIECE_SECONDS * rate), 16)
    padded = np.pad(samples, (0, max(0, size - len(samples))))
    pieces = np.lib.stride_tricks.sliding_window_view(padded, size)[:: size // 2]
    return pieces - pieces.mean(axis=1, keepdims=True)


def _window(pieces: np.ndarray) -> np.ndarray:
    return np.hanning(pieces.shape[1])


def _pitches(power: np.ndarray, window: np.ndarray, rate: float | int) -> np.ndarray:
    """The pitch in Hz of each piece that is voiced, of power spectra (pieces, frequencies).

    By the autocorrelation over that of the window (Boersma 1993), which is 1 at a period.
    """
    size = len(window)
    own = np.fft.irfft(np.abs(np.fft.rfft(window, 2 * size)) ** 2)[:size]
    found = np.fft.irfft(power, axis=1)[:, :size]
    ratio = (found / np.maximum(found[:, :1], 1e-12)) / (own / own[0] + 1e-9)
    first, last = max(2, int(rate / HIGHEST_PITCH)), int(rate / LOWEST_PITCH) + 1
    near = ratio[:, first - 1 : last + 2]
    inner = near[:, 1:-1]
    # What falls all the way from lag 0 is slow, and has no period.
    is_peak = (inner > near[:, :-2]) & (inner >= near[:, 2:])
    heights = np.where(is_peak, inner, -1.0)
    highest = heights.max(axis=1, initial=-1.0)
    is_period = heights >= NEARLY * highest[:, None]
    lags = first + np.argmax(is_period, axis=1)
    return rate / lags[highest > VOICED]
