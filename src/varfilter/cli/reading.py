"""What `check` and `show` have in common: which data to read, and how to read them."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from varfilter.experiments.source import Source
    from varfilter.media.catalogue import Loaded

Source = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME|PATH")]


def _named(metavar: str) -> Any:
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A data set and the options to read it; those that were not given are the reader's own."""

    source: Source
    """A name of `varfilter data list`, or the path of a file or folder."""

    at: Annotated[Path | None, _named("PATH")] = None
    """Where a set that has a name lies, if not in the data folder."""

    size: Annotated[int | None, _named("N")] = None
    """Films: the height and width of the frames in pixels (64)."""

    rate: Annotated[int | None, _named("N")] = None
    """Sound: samples in a second (16000)."""

    frame_size: Annotated[int | None, _named("N")] = None
    """Sound: samples in a step (200)."""

    steps_per_beat: Annotated[float | None, _named("X")] = None
    """MIDI: steps in a beat (1)."""

    seconds_per_step: Annotated[float | None, _named("X")] = None
    """MIDI: a step is so long, instead of a part of a beat."""

    percussion: bool = False
    """MIDI: with the notes of drums."""

    sequence: Annotated[str | None, _named("COLUMN|none")] = None
    """Tables: the column that tells sequences apart (one named run, series, ...); none: all rows
    are one."""

    time: Annotated[str | None, _named("COLUMN|none")] = None
    """Tables: the column of times (the one that looks like it); none: rows are steps."""

    step: Annotated[float | None, _named("X")] = None
    """Tables: between two rows, in the unit of the times; seconds for dates (the usual one)."""

    columns: Annotated[tuple[str, ...] | None, _named("COLUMN ...")] = None
    """Tables: the columns to observe, in this order (all that hold numbers)."""

    kinds: Annotated[tuple[str, ...] | None, _named("COLUMN=KIND ...")] = None
    """Tables: numeric, binary or count, by column (by what the training rows hold)."""

    long: Annotated[tuple[str, str] | None, _named("VARIABLE VALUE")] = None
    """Tables of one reading a row: the columns that name it and hold it."""

    split_by: Annotated[
        Literal["auto", "sequence", "time"] | None, _named("auto|sequence|time")
    ] = None
    """Tables: split whole sequences, or each by time (auto: whole ones from three on)."""

    def source_of(self) -> "Source":
        """The same as an experiment has it."""
        from varfilter.experiments.source import Source

        given: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(Source)}
        given["at"] = None if self.at is None else str(self.at)
        return Source(**given)

    def options(self) -> dict[str, Any]:
        """Those that were given, as the readers call them."""
        return self.source_of().options()

    def loaded(self) -> "Loaded":
        """The data set, and how it was read."""
        return self.source_of().load()
