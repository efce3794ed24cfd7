"""Which data are meant, and the sequences that are read of them: past steps, and those ahead."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from varfilter.media.rows import GivenRows

if TYPE_CHECKING:
    from varfilter.media.base import AbstractMedium


@dataclass(frozen=True)
class Source:
    """Which data are meant, and how they are read; an option that is None is the reader's own.

    Each medium has a class of its own, whose further fields are the options of its readers; the
    `metavar` in the metadata of a field is what its help says that the option takes.
    """

    medium: ClassVar[str] = ""

    source: str
    """A name of `varfilter data list`, or the path of a file or folder."""
    at: str | None = None
    """Where a set that has a name lies, if not in the data folder."""

    def options(self) -> dict[str, Any]:
        """The options that were given, as the function that reads the data calls them."""
        named = {field.name: getattr(self, field.name) for field in fields(self)[2:]}
        return {name: value for name, value in named.items() if value is not None}

    def flags(self) -> dict[str, str]:
        """The options of `varfilter train` by the names that a reader's notes call them."""
        return {each.name: f"--data.{each.name.replace('_', '-')}" for each in fields(self)}


class NewSequence(NamedTuple):
    """A sequence to be filtered: rows in the user's units, observations in the model's, times.

    `us` are the known inputs of its steps, as the model takes them, where the data have any, and
    `given` the rows of the user's of which the steps were made, where they differ. `schema` is its
    own in place of the data set's, as a song has its own tempo; None: it has no other.
    """

    name: str | int
    rows: np.ndarray
    xs: np.ndarray
    times: np.ndarray
    us: np.ndarray | None = None
    given: GivenRows | None = None
    schema: Any = None

    def steps(self, begin: int, end: int, rows_per_step: int = 1) -> "NewSequence":
        """The part from one step up to another."""
        us = None if self.us is None else self.us[begin:end]
        rows = self.rows[begin * rows_per_step : end * rows_per_step]
        given = None if self.given is None else self.given.steps(begin, end)
        xs, times = self.xs[begin:end], self.times[begin:end]
        return NewSequence(self.name, rows, xs, times, us, given, self.schema)


class NewRecording(NamedTuple):
    """A recording as it was read: rows in the user's units, and its own schema if it has one."""

    name: str
    rows: np.ndarray
    schema: Any = None


class Ahead(NamedTuple):
    """What is known of the steps after a sequence: their times, and their known inputs, if any."""

    times: np.ndarray
    us: np.ndarray | None


def files_in(path: Path, medium: "AbstractMedium") -> Iterator[tuple[str, Path]]:
    """(name, file) of a recording, or of those in a folder and its folders, by name."""
    suffixes = medium.suffixes
    if path.is_file():
        if path.suffix.lower() not in suffixes:
            raise ValueError(
                f"`INPUT` is {str(path)!r}, but the run was trained on {medium.plural}. Give"
                f" {medium.inputs}."
            )
        yield path.stem, path
        return
    found = [
        file
        for file in sorted(path.rglob("*"))
        if file.suffix.lower() in suffixes and not file.name.startswith(".") and file.is_file()
    ]
    if not found:
        raise FileNotFoundError(
            f"`INPUT` {str(path)!r} is a folder without {', '.join(sorted(suffixes))}. Give"
            f" {medium.inputs}."
        )
    for file in found:
        yield file.relative_to(path).with_suffix("").as_posix(), file
