"""`varfilter data`: the sets that have a name and the user's own; listed, got, checked, shown."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from varfilter.cli.errors import refusals
from varfilter.cli.printing import print_numbers, progress_bars
from varfilter.cli.reading import Reading

if TYPE_CHECKING:
    from varfilter.data.dataset import Dataset
    from varfilter.data.sets.checks import Judgement
    from varfilter.data.sets.registry import Entry

Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
# What matplotlib can write, and people can open.
FORMATS = (".png", ".pdf", ".svg", ".jpg", ".jpeg")


@dataclass(frozen=True)
class List:
    """The data sets that have a name: what they are, where they lie, their licence.

    They are looked for in the folder that $VARFILTER_DATA names, or else in `varfilter` in your
    folder for caches.

    example: varfilter data list
    """

    json: bool = False
    """Print one JSON object instead of a table."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        from varfilter.media.catalogue import CATALOGUE, data_folder, locate

        folder = data_folder()
        found = {name: locate(entry, folder) for name, entry in CATALOGUE.items()}
        if self.json:
            sets = {
                name: {
                    "what": entry.what,
                    "sequences": list(entry.expected.sequences),
                    "where": str(found[name]) if found[name] else None,
                    "is_simulated": not entry.places,
                    "licence": entry.licence,
                }
                for name, entry in CATALOGUE.items()
            }
            print(json.dumps({"folder": str(folder), "sets": sets}, indent=1))
            return 0
        for name, entry in CATALOGUE.items():
            counts = "/".join(map(str, entry.expected.sequences))
            print(f"{name:<14} {counts:<14} {_where(found[name], folder, entry)}")
            print(f"{'':<14} {entry.what}. Licence: {entry.licence}.")
        print("\nThe numbers are of sequences: train/valid/test. To get a set: data fetch NAME")
        print(f"The data folder is {folder}")
        return 0


@dataclass(frozen=True)
class Fetch:
    """Get a data set by its name: download, check, and put it into the data folder.

    An interrupted download goes on where it stopped. What comes, or is there, is compared with
    what the set must hold; what comes is deleted if it is something else. Without a network, give
    the folder that holds the files, or somebody's data folder: --from DIR.

    examples:
      varfilter data fetch jsb
      varfilter data fetch kth --folder /data
      varfilter data fetch nottingham --from ~/Downloads
    """

    name: Name
    """One of `varfilter data list`."""

    folder: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """The data folder to put it into, instead of $VARFILTER_DATA."""

    mirror: Annotated[
        str | None, tyro.conf.arg(name="from", metavar="MIRROR", help_behavior_hint="")
    ] = None
    """A folder or an address that has the files, instead of their usual addresses."""

    again: bool = False
    """Get it even if it is there, and replace what is there by what came."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals() as refused:
            from varfilter.data.sets.fetch import fetch
            from varfilter.media.catalogue import data_folder, locate, named

            entry = named(self.name)
            if not entry.places:
                print(f"`{self.name}` is simulated: there is nothing to fetch.")
                return 0
            folder = data_folder() if self.folder is None else self.folder.expanduser()
            was_there = locate(entry, folder) is not None and not self.again
            if entry.is_large and not was_there:
                print("Its films are decoded once and kept, which takes minutes.", file=sys.stderr)
            with progress_bars() as progress:
                path = fetch(
                    self.name, folder, mirror=self.mirror, again=self.again, progress=progress
                )
            print(f"`{self.name}` {'was there already' if was_there else 'is there'}: {path}")
            print(f"licence: {entry.licence}")
            if folder != data_folder():
                print(f"To use it from there: export VARFILTER_DATA={folder}")
        return refused.code


@dataclass(frozen=True, kw_only=True)
class Check(Reading):
    """What a data set holds: counts, lengths, ranges, densities and a hash of its content.

    A set that has a name is compared with what it must hold; the exit code is 1 if it is
    something else. For your own files and folders there is nothing to compare with;
    the exit code is 1 if they hold no whole step. Of a table, it says how it was read.

    examples:
      varfilter data check jsb
      varfilter data check timit --at /media/TIMIT
      varfilter data check readings.csv --sequence machine --time when
      varfilter data check readings.csv --time none --columns warm cold --kinds cold=count
      varfilter data check recordings --rate 8000 --json
    """

    json: bool = False
    """Print one JSON object instead of a table."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals() as refused:
            from varfilter.data.sets.checks import describe, without_steps

            dataset, notes, _ = self.loaded()
            judgement = _judged(self, dataset)
            problems = without_steps(dataset)
            numbers = describe(dataset) | {"notes": list(notes), "problems": problems}
            if self.json:
                numbers["is_good"] = judgement.is_good if judgement else None
                numbers["is_verified"] = judgement.is_verified if judgement else None
                numbers["verdict"] = list(judgement.lines) if judgement else []
                print(json.dumps(numbers, indent=1))
            else:
                print_numbers(numbers, judgement)
            return 1 if problems or (judgement and not judgement.is_good) else 0
        return refused.code


@dataclass(frozen=True, kw_only=True)
class Show(Reading):
    """Write a picture of some sequences of a data set.

    Music as scores, sound as waves and spectra, films as strips, tables as lines.

    examples:
      varfilter data show jsb --out jsb.png
      varfilter data show films --size 32 --split test --seed 1 --out films.png
      varfilter data show readings.parquet --sequence machine --out readings.png
    """

    out: Annotated[Path, tyro.conf.arg(metavar="PNG")]
    """The file to write; its ending says the format (.png, .pdf, .svg, .jpg)."""

    split: Annotated[str, tyro.conf.arg(metavar="SPLIT")] = "train"
    """train, valid or test."""

    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Which sequences are shown is drawn from this number."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals() as refused:
            from varfilter.media.pictures import picture

            _require_writable(self.out)
            dataset, notes, _ = self.loaded()
            for note in notes:
                print(note, file=sys.stderr)
            figure = picture(dataset, split=self.split, seed=self.seed)
            try:
                figure.savefig(self.out)
            except OSError as error:
                raise _cannot_write(self.out, str(error.strerror or error)) from None
            print(self.out.resolve())
        return refused.code


DESCRIPTION = """Data sets: those that have a name, and your own files and folders.

examples:
  varfilter data list
  varfilter data fetch jsb
  varfilter data check recordings
  varfilter data show readings.csv --out readings.png
"""
Data = Annotated[
    Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Fetch, tyro.conf.subcommand("fetch")]
    | Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Show, tyro.conf.subcommand("show")],
    tyro.conf.subcommand("data", description=DESCRIPTION),
]


def _judged(command: Check, dataset: "Dataset") -> "Judgement | None":
    from varfilter.data.sets.checks import judge
    from varfilter.media.catalogue import CATALOGUE, damaged, data_folder, locate

    if command.source not in CATALOGUE:
        return None
    entry = CATALOGUE[command.source]
    path = command.at or locate(entry, data_folder())
    judgement = judge(entry, dataset, path, plain=not command.options())
    if judgement.is_good or command.at or path is None:
        return judgement
    return judgement._replace(lines=(*judgement.lines, damaged(entry, path)))


def _require_writable(out: Path) -> None:
    """Before anything is read: not after minutes of it."""
    if out.is_dir():
        raise IsADirectoryError(f"`--out {out}` is a folder. Give a file in it: {out / 'x.png'}.")
    if out.suffix.lower() not in FORMATS:
        raise ValueError(
            f"`--out {out}` must end in one of {', '.join(FORMATS)}; got {out.suffix!r}."
        )
    if not out.parent.is_dir():
        raise FileNotFoundError(
            f"`--out {out}`: there is no folder {out.parent} to write it to. Make it first."
        )
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise _cannot_write(out, "you have no right to")


def _cannot_write(out: Path, reason: str) -> OSError:
    return OSError(f"`--out {out}` cannot be written ({reason}). Give a file in another folder.")


def _where(path: Path | None, folder: Path, entry: "Entry") -> str:
    if not entry.places:
        return "simulated"
    return path.relative_to(folder).as_posix() if path else "not here"
