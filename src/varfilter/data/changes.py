"""What reading changes of recordings, in words: what users hear of their own files before training.

Each function takes what the headers or the messages of the files say, and returns sentences for
`Dataset.notes`; nothing that was left as it is gets one.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

SUSTAIN = 64  # the number of the pedal in MIDI
MOST_LISTED = 3


class SoundHeader(NamedTuple):
    """The rate and the number of channels that a sound file says it has."""

    rate: int
    channels: int


class FrameHeader(NamedTuple):
    """The size of the frames of a video, and whether they are in colour; None is not known."""

    width: int
    height: int
    is_coloured: bool | None


class Notes(NamedTuple):
    """The notes of a MIDI file: all, off the keyboard, of drums; and in how many parts they are."""

    total: int
    off_keyboard: int
    drums: int
    parts: int
    has_pedal: bool


def sound_changes(headers: Sequence[SoundHeader], rate: int) -> tuple[str, ...]:
    """Resampled files, by their rates, and channels that were averaged."""
    found = []
    others = Counter(header.rate for header in headers if header.rate != rate)
    if others:
        rates = _listed(f"{other:,}" for other, _ in others.most_common())
        found.append(f"{_some(others.total(), headers)} resampled from {rates} to {rate:,} Hz.")
    mixed = [header.channels for header in headers if header.channels > 1]
    if mixed:
        found.append(f"{_some(len(mixed), headers)} mixed: the channels were averaged to one.")
    return tuple(found)


def frame_changes(headers: Sequence[FrameHeader], size: int, *, color: bool) -> tuple[str, ...]:
    """Frames that were squeezed to another size, and colours that were left out."""
    found = []
    others = Counter((h.width, h.height) for h in headers if (h.width, h.height) != (size, size))
    if others:
        sizes = _listed(f"{width}x{height}" for (width, height), _ in others.most_common())
        is_square = all(width == height for width, height in others)
        aspect = "" if is_square else "; the aspect is not kept"
        found.append(
            f"{_some(others.total(), headers, 'videos')} resized from {sizes} to {size}x{size}"
            f" pixels{aspect}."
        )
    coloured = sum(header.is_coloured is True for header in headers)
    if coloured and not color:
        found.append(f"{_some(coloured, headers, 'videos')} made grey.")
    return tuple(found)


def note_changes(
    files: Sequence[Notes], *, percussion: bool, step: str = "a beat"
) -> tuple[str, ...]:
    """Parts that were merged on one keyboard, and notes that were left out."""
    found = [f"A step is {step}."]
    merged = sum(file.parts > 1 for file in files)
    if merged:
        found.append(f"{_some(merged, files)} merged: all parts are on one keyboard.")
    for name, count in (
        ("off the 88 keys", sum(file.off_keyboard for file in files)),
        ("of drums", 0 if percussion else sum(file.drums for file in files)),
    ):
        if count:
            total = sum(file.total for file in files)
            found.append(f"{count:,} of {total:,} notes are {name}, and left out.")
    pedals = sum(file.has_pedal for file in files)
    if pedals:
        found.append(f"The sustain pedal is ignored, which {pedals} of {len(files)} files use.")
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


def _some(count: int, all_of_them: Sequence[Any], what: str = "files") -> str:
    if len(all_of_them) == 1:
        return f"The {what.removesuffix('s')} was"
    total = len(all_of_them)
    if count == total:
        return f"All {total:,} {what} were"
    return f"{count:,} of {total:,} {what} {'was' if count == 1 else 'were'}"


def _listed(words: Iterable[str]) -> str:
    words = list(words)
    if len(words) > MOST_LISTED:
        rest = len(words) - MOST_LISTED + 1
        words = [*words[: MOST_LISTED - 1], f"{rest} others"]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
