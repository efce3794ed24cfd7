"""Which data an experiment is about, and how they are read."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from varfilter.media.catalogue import Loaded, load_with_notes

# What the data are called that came from memory, and not from a file.
FRAME = "<frame>"
# Those that do not go to the reader under their own name.
_OURS = ("source", "at", "split_by", "kinds")


@dataclass(frozen=True)
class Source:
    """A data set and the options to read it; those that are None are the reader's own."""

    source: str
    """A name of `varfilter data list`, or the path of a file or folder."""
    at: str | None = None
    """Where a set that has a name lies, if not in the data folder."""
    size: int | None = None
    """Films: the height and width of the frames in pixels (64)."""
    rate: int | None = None
    """Sound: samples in a second (16000)."""
    frame_size: int | None = None
    """Sound: samples in a step (200)."""
    steps_per_beat: float | None = None
    """MIDI: steps in a beat (1)."""
    seconds_per_step: float | None = None
    """MIDI: a step is so long, instead of a part of a beat."""
    percussion: bool | None = None
    """MIDI: with the notes of drums."""
    sequence: str | None = None
    """Tables: the column that tells sequences apart (one named run, series, ...); none: all
    rows are one."""
    time: str | None = None
    """Tables: the column of times (the one that looks like it); none: rows are steps."""
    step: float | None = None
    """Tables: between two rows, in the unit of the times; seconds for dates (the usual one)."""
    columns: tuple[str, ...] | None = None
    """Tables: the columns to observe, in this order (all that hold numbers)."""
    kinds: tuple[str, ...] | None = None
    """Tables: COLUMN=KIND; numeric, binary or count (by what the training rows hold)."""
    long: tuple[str, str] | None = None
    """Tables of one reading a row: the columns that name it and hold it."""
    split_by: Literal["auto", "sequence", "time"] | None = None
    """Tables: split whole sequences, or each by time (auto: whole ones from three on)."""

    def options(self) -> dict[str, Any]:
        """Those that were given, as the readers call them."""
        names = [field.name for field in fields(Source) if field.name not in _OURS]
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if self.split_by is not None:
            given["split"] = self.split_by
        if given.get("percussion") is False:
            del given["percussion"]
        for name in ("time", "sequence"):
            if given.get(name) == "none":
                given[name] = False
        if self.kinds is not None:
            given["kinds"] = dict(map(_pair, self.kinds))
        return given

    def load(self) -> Loaded:
        """The data set, how it was read, and, of a table, what reads another like it."""
        if self.source == FRAME:
            raise ValueError(
                "These data were a table in memory, not a file: they cannot be read again. Fit"
                " anew, or filter other data with the run."
            )
        return load_with_notes(self.source, at=self.at, **self.options())


def _pair(text: str) -> tuple[str, str]:
    column, equals, kind = text.rpartition("=")
    if not (column and equals):
        raise ValueError(f"`kinds` must be like COLUMN=count; got {text!r}.")
    return column, kind
