"""Recordings decoded one by one: into memory, or into a folder that is mapped the next time.

What reading changes of them is said in words, for `Dataset.notes`, from what the headers or the
messages of the files say; nothing that was left as it is gets a sentence.
"""

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter._text import count
from varfilter.data.dataset import SPLITS
from varfilter.data.ragged import Ragged

# Part of the names of stored sets: raise it when recordings are decoded differently.
DECODING = 2
SUSTAIN = 64  # the number of the pedal in MIDI
MOST_LISTED = 3
SOME = 4096


class Recording(NamedTuple):
    """A video or a sound: its files, the names of the sequences in it, and how to decode them.

    `read` gives (values, rate in a second or None) for each of the names.
    """

    files: tuple[Path, ...]
    names: tuple[str, ...]
    read: Callable[[], Sequence[tuple[np.ndarray, float | int | None]]]


class Decoded(NamedTuple):
    """The sequences by split, and their common rate: None if they have none."""

    parts: dict[str, Ragged]
    rate: float | int | None


def decoded(
    name: str,
    recordings: Mapping[str, Sequence[Recording]],
    row: np.ndarray,
    *,
    options: Sequence[Any] = (),
    cache: Path | str | None = None,
) -> Decoded:
    """Decode recordings of rows like `row`, by split, or map them from the folder `cache`.

    What is stored there is found again if neither the files nor the `options` have changed. It is
    written recording by recording: the set need not fit in memory.
    """
    if cache is None:
        rates: set[float | int | None] = set()
        parts = {s: Ragged.of(_values(recordings[s], rates), like=row) for s in SPLITS}
        return Decoded(parts, _common(rates))
    stored = Path(cache) / f"{name}-{_digest(recordings, [*options, str(row.dtype)])}"
    if not stored.is_dir():
        _store(stored, recordings, row)
    return _mapped(stored)


def names_of(recordings: Mapping[str, Sequence[Recording]]) -> dict[str, tuple[str, ...]]:
    """The names of the sequences of recordings, by split."""
    return {s: tuple(name for each in recordings[s] for name in each.names) for s in SPLITS}


class SoundHeader(NamedTuple):
    """The rate and the number of channels that a sound file says it has."""

    rate: int
    channels: int


class FrameHeader(NamedTuple):
    """The size of the frames of a video, whether they are in colour, and how many a second has.

    What is not known is None. `is_uneven` says that some frames are shown much longer than others.
    """

    width: int
    height: int
    is_coloured: bool | None
    rate: float | None = None
    is_uneven: bool = False


class Notes(NamedTuple):
    """The notes of a MIDI file: all, off the keyboard, of drums; and in how many parts they are."""

    total: int
    off_keyboard: int
    drums: int
    parts: int
    has_pedal: bool


def own_rate(headers: Sequence[SoundHeader]) -> tuple[int, str]:
    """The rate that most files have, and a sentence on that; of as many each, it is the lower.

    A lower rate leaves something out, which is said; a higher one would make something up.
    """
    rates = Counter(header.rate for header in headers)
    rate = min(rates, key=lambda each: (-rates[each], each))
    if len(rates) == 1:
        return rate, f"The rate is the files' own, {rate:,} Hz."
    listed = _listed(f"{each:,} Hz ({count(n, 'file')})" for each, n in rates.most_common())
    return rate, f"The files have several rates, {listed}; {rate:,} Hz was taken."


def sound_changes(headers: Sequence[SoundHeader], rate: int) -> tuple[str, ...]:
    """Resampled files, by their rates, and channels that were averaged."""
    found = []
    others = Counter(header.rate for header in headers if header.rate != rate)
    if others:
        rates = _listed(f"{other:,}" for other, _ in others.most_common())
        found.append(f"{_some(others.total(), headers)} resampled from {rates} to {rate:,} Hz.")
    raised = sorted(other for other in others if other < rate)
    if len(raised) and all(header.rate < rate for header in headers):
        found.append(
            f"No file has anything above {raised[-1] / 2:,.0f} Hz: at {rate:,} Hz its samples are"
            " easier to predict than the sound is. Leave `rate` out for the files' own."
        )
    elif raised:
        lower = _listed(f"{other:,}" for other in raised)
        found.append(
            f"What had {lower} Hz has nothing above half of that, and is easier to predict."
        )
    mixed = [header.channels for header in headers if header.channels > 1]
    if mixed:
        found.append(f"{_some(len(mixed), headers)} mixed: the channels were averaged to one.")
    return tuple(found)


def loudness_changes(clipped: Sequence[tuple[str, int, int]]) -> str:
    """What was louder than 16 bits hold: names of files, and how many of how many samples."""
    listed = _listed(f"{number:,} of {total:,} in {name}" for name, number, total in clipped)
    have = "has" if len(clipped) == 1 else "have"
    return (
        f"{count(len(clipped), 'file')} {have} samples that are louder than 16 bits hold, and were"
        f" clipped: {listed}. `fine` keeps them."
    )


def silences(names: Mapping[str, Sequence[str]], parts: Mapping[str, Ragged]) -> tuple[str, ...]:
    """The files of which all samples are the same, by split: such a file flatters a mean score."""
    silent = [
        f"{name} ({split})"
        for split in SPLITS
        for name, samples in zip(names[split], parts[split], strict=True)
        # Whether the rest is to be looked at is told by how it begins.
        if samples.size and np.ptp(samples[:SOME]) == 0 and np.ptp(samples) == 0
    ]
    if not silent:
        return ()
    number = f"{len(silent):,} of {count(sum(map(len, names.values())), 'file')}"
    which, it = ("is", "it is") if len(silent) == 1 else ("are", "they are")
    return (
        f"{number} {which} silent from beginning to end: {_listed(silent)}. {it.capitalize()} easy"
        " to predict, and every mean has it in it. If that is a recording that failed, take it"
        " out.",
    )


def level_changes(
    finer: Sequence[str], number: int, *, kept: bool, has_levels: bool
) -> tuple[str, ...]:
    """What became of the files that are finer than 16 bits; `finer` says of each what it has."""
    if not finer:
        return ()
    listed = _listed(f"{count(n, 'file')} of {each}" for each, n in Counter(finer).most_common())
    if not kept:
        some = _some(len(finer), range(number))
        return (
            f"{some} rounded to the levels of 16 bits, as players do ({listed}); `fine` keeps what"
            " is finer.",
        )
    if has_levels:
        return (f"The levels are those of the finest files ({listed}).",)
    return (
        f"Without rounding there are no levels ({listed}): scores are nats a sample, of densities,"
        " and do not compare with bits a sample.",
    )


def frame_changes(
    headers: Sequence[FrameHeader],
    size: int,
    *,
    color: bool,
    crop: bool = False,
    frame_rate: float | int | None = None,
) -> tuple[str, ...]:
    """Frames that were cut or squeezed to another size, or left out, and colours left out."""
    found = []
    others = Counter((h.width, h.height) for h in headers if (h.width, h.height) != (size, size))
    if others:
        sizes = _listed(f"{width}x{height}" for (width, height), _ in others.most_common())
        is_square = all(width == height for width, height in others)
        aspect = "" if is_square else "; the aspect is not kept (`crop` keeps it)"
        done = "resized"
        if crop and not is_square:
            done, aspect = "cut to the square in the middle, and resized", ""
        found.append(
            f"{_some(others.total(), headers, 'videos')} {done} from {sizes} to {size}x{size}"
            f" pixels{aspect}."
        )
    rates = Counter(header.rate for header in headers if header.rate is not None)
    thinned = {} if frame_rate is None else {r: n for r, n in rates.items() if r > frame_rate}
    if thinned:
        number = _some(sum(thinned.values()), headers, "videos")
        listed = _listed(f"{rate:.4g}" for rate in thinned)
        found.append(f"{number} thinned from {listed} to {frame_rate:.4g} frames a second.")
    # Of 29.97 frames a second, 30 are all.
    slow = {} if frame_rate is None else {r: n for r, n in rates.items() if frame_rate > 1.01 * r}
    if slow:
        number = _some(sum(slow.values()), headers, "videos")
        listed = _listed(f"{rate:.4g}" for rate in slow)
        found.append(
            f"{number} slower than the {frame_rate:.4g} frames a second that were asked for"
            f" ({listed}): every frame of such is a step, and the same motion is faster there."
        )
    elif len(rates) > 1 and frame_rate is None:
        listed = _listed(f"{rate:.4g}" for rate, _ in rates.most_common())
        found.append(
            f"The videos have {listed} frames a second, and every frame is a step: the same motion"
            " is faster in some. `frame_rate` brings them to one."
        )
    uneven = sum(header.is_uneven for header in headers)
    if uneven:
        have = "have frames that are" if uneven > 1 else "has frames that are"
        found.append(
            f"{uneven:,} of {count(len(headers), 'video')} {have} shown for unequal times, and"
            " every frame is a step: the same motion is faster where they are longer. If that"
            " matters, convert them first, as by ffmpeg -i OLD -r 25 NEW."
        )
    coloured = sum(header.is_coloured is True for header in headers)
    if coloured and not color:
        found.append(f"{_some(coloured, headers, 'videos')} made grey.")
    return tuple(found)


def note_changes(files: Sequence[Notes], *, percussion: bool) -> tuple[str, ...]:
    """Parts that were merged on one keyboard, and notes that were left out."""
    found = []
    merged = sum(file.parts > 1 for file in files)
    if merged:
        found.append(f"{_some(merged, files)} merged: all parts are on one keyboard.")
    for name, number in (
        ("off the 88 keys", sum(file.off_keyboard for file in files)),
        ("of drums", 0 if percussion else sum(file.drums for file in files)),
    ):
        if number:
            total = count(sum(file.total for file in files), "note")
            verb = "is" if number == 1 else "are"
            found.append(f"{number:,} of {total} {verb} {name}, and left out.")
    pedals = sum(file.has_pedal for file in files)
    if pedals:
        of_files = count(len(files), "file")
        verb = "uses" if pedals == 1 else "use"
        found.append(f"The sustain pedal is ignored, which {pedals:,} of {of_files} {verb}.")
    return tuple(found)


def notes_of(file: Any, lowest: int, highest: int, drums: int) -> Notes:
    """Count the notes of a MIDI file as mido reads it; `drums` is the channel of percussion."""
    total = off = of_drums = 0
    parts, has_pedal = set(), False
    for number, track in enumerate(file.tracks):
        for message in track:
            if message.type == "control_change":
                has_pedal = has_pedal or (message.control == SUSTAIN and message.value > 0)
            if message.type != "note_on" or message.velocity == 0:
                continue
            total += 1
            if message.channel == drums:
                of_drums += 1
                continue
            off += not lowest <= message.note <= highest
            parts.add((number, message.channel))
    return Notes(total, off, of_drums, len(parts), has_pedal)


def _values(
    recordings: Sequence[Recording], rates: set[float | int | None]
) -> Iterator[np.ndarray]:
    """Decode sequence by sequence; the rates of the sequences are added to `rates`."""
    for recording in recordings:
        for values, rate in recording.read():
            rates.add(rate)
            yield values
            del values  # else it is in memory while the next is read


def _common(rates: set[float | int | None]) -> float | int | None:
    """The rate of all recordings, if they have the same."""
    return next(iter(rates)) if len(rates) == 1 else None


def _digest(recordings: Mapping[str, Sequence[Recording]], options: list[Any]) -> str:
    """A hash of all that decides what a stored set holds, which is not where the files lie."""
    files = {
        split: [
            [each.names, [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in each.files]]
            for each in recordings[split]
        ]
        for split in SPLITS
    }
    text = json.dumps([DECODING, options, files])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _store(stored: Path, recordings: Mapping[str, Sequence[Recording]], row: np.ndarray) -> None:
    """Decode into another folder and then rename it: what has the name is whole."""
    stored.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=stored.parent, prefix=".decoding-") as scratch:
        rates: set[float | int | None] = set()
        for split in SPLITS:
            values = _values(recordings[split], rates)
            Ragged.write(values, Path(scratch) / "set" / split, like=row)
        text = json.dumps(_common(rates))
        (Path(scratch) / "set" / "rate.json").write_text(text, encoding="utf-8")
        try:
            (Path(scratch) / "set").rename(stored)
        except OSError:
            # Another process has decoded the same files meanwhile: its copy is as good.
            if not stored.is_dir():
                raise


def _mapped(stored: Path) -> Decoded:
    try:
        rate = json.loads((stored / "rate.json").read_text(encoding="utf-8"))
        return Decoded({split: Ragged.open(stored / split) for split in SPLITS}, rate)
    except (OSError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(
            f"`cache` holds a damaged copy in {stored} ({reason}). Delete that folder."
        ) from None


def _some(number: int, all_of_them: Sequence[Any], what: str = "files") -> str:
    if len(all_of_them) == 1:
        return f"The {what.removesuffix('s')} was"
    total = len(all_of_them)
    if number == total:
        return f"All {total:,} {what} were"
    return f"{number:,} of {total:,} {what} {'was' if number == 1 else 'were'}"


def _listed(words: Iterable[str]) -> str:
    words = list(words)
    if len(words) > MOST_LISTED:
        rest = len(words) - MOST_LISTED + 1
        words = [*words[: MOST_LISTED - 1], f"{rest} others"]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
