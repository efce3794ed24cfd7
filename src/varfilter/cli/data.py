"""`varfilter data`: the sets that have a name and the user's own; listed, got, checked, shown."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from varfilter._text import in_options, pasteable, printable, say, tell
from varfilter.cli import usage
from varfilter.cli.exits import refusals
from varfilter.cli.options import (
    Command,
    Number,
    Split,
    cannot_write,
    flags_of,
    named,
    parsed_words,
    reading_options,
    require_options,
    require_place,
    whole_source,
)
from varfilter.cli.usage import Option, Section

Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
NameOrPath = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME|PATH")]
# What matplotlib can write, and people can open.
FORMATS = (".png", ".pdf", ".svg", ".jpg", ".jpeg")


@dataclass(frozen=True)
class ListSets(Command):
    """The data sets that have a name: what they are, where they lie, their licence.

    They are looked for in the folder that $VARFILTER_DATA names, or else in `varfilter` in your
    folder for caches.

    example: varfilter data list
    """

    json: bool = False
    """Print one JSON object instead of a table."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        from varfilter.data.sets.registry import CATALOGUE, data_folder, locate

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
            where = "not here" if entry.places else "simulated"
            if path := found[name]:
                where = path.relative_to(folder).as_posix()
            say(f"{name:<14} {counts:<14} {where}")
            say(f"{'':<14} {entry.what}. Licence: {entry.licence}.")
        say("", "The numbers are of sequences: train/valid/test. To get a set: data fetch NAME")
        say(f"The data folder is {folder}")
        return 0


@dataclass(frozen=True)
class Fetch(Command):
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

    folder: Annotated[Path | None, named("DIR")] = None
    """The data folder to put it into, instead of $VARFILTER_DATA."""

    mirror: Annotated[
        str | None, tyro.conf.arg(name="from", metavar="MIRROR", help_behavior_hint="")
    ] = None
    """A folder or an address that has the files, instead of their usual addresses."""

    again: bool = False
    """Get it even if it is there, and replace what is there by what came."""

    max_gib: Annotated[float, tyro.conf.arg(metavar="X")] = 8.0
    """How large a file from the network may be, in GiB."""

    max_minutes: Annotated[float, tyro.conf.arg(metavar="X")] = 120.0
    """How long a file may take to come; the next fetch goes on from there."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals(options=self.flags) as refused:
            from varfilter.data.sets.fetch import fetch
            from varfilter.data.sets.registry import data_folder, entry_named, locate

            entry = entry_named(self.name)
            if not entry.places:
                say(f"`{self.name}` is simulated: there is nothing to fetch.")
                return 0
            folder = data_folder() if self.folder is None else self.folder.expanduser()
            was_there = locate(entry, folder) is not None and not self.again
            if entry.is_large and not was_there:
                tell("Its recordings are decoded once and kept, which takes minutes.")
            with _progress_bars() as progress:
                path = fetch(
                    self.name,
                    folder,
                    mirror=self.mirror,
                    again=self.again,
                    progress=progress,
                    max_gib=self.max_gib,
                    max_minutes=self.max_minutes,
                )
            say(f"`{self.name}` {'was there already' if was_there else 'is there'}: {path}")
            say(f"licence: {entry.licence}")
            if folder != data_folder():
                say(f"To use it from there: export VARFILTER_DATA={pasteable(folder)}")
        return refused.code


@dataclass(frozen=True, kw_only=True)
class ReadCommand(Command):
    """A command that reads a data set, with the options of the readers of every medium."""

    source: NameOrPath
    """A name of `varfilter data list`, or the path of a file or folder."""

    at: Annotated[str | None, named("PATH")] = None
    """Where a set that has a name lies, if not in the data folder."""

    @classmethod
    def parsed(cls, prog: str, words: Sequence[str]) -> Any:
        """Parse the words after `prog`, with the options of each medium below its name."""
        from varfilter.media import MEDIA

        seen, fields = {"at"}, []
        for medium in MEDIA.values():
            options = reading_options(medium.source, hidden=seen)
            names = {field.name for field in dataclasses.fields(options)} - {"source"}
            if not names <= seen:
                fields.append((medium.name, options, dataclasses.field(default=options())))
            seen |= names
        # The class's own name: errors of the parser have it.
        parser = dataclasses.make_dataclass(
            cls.__name__, fields, bases=(cls,), frozen=True, namespace={"__doc__": cls.__doc__}
        )
        return parsed_words(parser, prog, words, dict, config=(tyro.conf.OmitArgPrefixes,))

    def notes(self, dataset: Any) -> list[str]:
        """What the reader says of the data, with the options of this command."""
        options = self.flags()
        return [in_options(note, options) for note in dataset.notes]

    @classmethod
    def help(cls, prog: str, words: Sequence[str]) -> str:
        """The page of help: with the options of the medium of a source that is among the words.

        Without one, those of every medium by name alone, unless all was asked for.
        """
        own = Section("options", usage.options_of(cls))
        media = _media_options([word for word in words if not word.startswith("-")])
        if len(media) == 1 or usage.ALL in words:
            sections = [Section(each.title, each.options, each.text) for each in media]
            return usage.page(prog, cls.__doc__ or "", [own, *sections], words)
        named = [
            Option("", f"of {each.title}", "", ", ".join(option.shown for option in each.options))
            for each in media
        ]
        more = "what they mean; or give a PATH with --help"
        sections = [own, Section("options by the kind of the data", named)]
        return usage.page(prog, cls.__doc__ or "", sections, words, more=more)

    def flags(self) -> dict[str, str]:
        """The options of the command and of every medium."""
        media = _media_options([])
        options = [option for section in media for option in section.options]
        # Arguments of the readers: which sequences are for what, and where the data lie.
        readers = {"split": "--split-by", "path": "NAME|PATH", "folder": "NAME|PATH"}
        own = usage.options_of(type(self), hidden=[section.title for section in media])
        return flags_of(options) | readers | flags_of(own)

    def meant(self) -> Any:
        """Build the source with the options that were given; refuse those of other media."""
        from varfilter.media import MEDIA, source_of

        given = {
            name: value
            for medium in MEDIA
            for name, value in vars(getattr(self, medium, None) or _NOTHING).items()
            if value is not None and value is not False and value != ""
        }
        source = source_of(self.source)
        require_options(source, given)
        return whole_source(dataclasses.replace(source, at=self.at, **given))


@dataclass(frozen=True, kw_only=True)
class Check(ReadCommand):
    """What a data set holds: counts, lengths, ranges, densities and a hash of its content.

    A set that has a name is compared with what it must hold; the exit code is 1 if it is
    something else. For your own files and folders there is nothing to compare with;
    the exit code is 1 if they hold no whole step. Of a table, it says how it was read, which family
    of distributions each column has, and why; with --out, it draws how well they fit.

    examples:
      varfilter data check jsb
      varfilter data check timit --at /media/TIMIT
      varfilter data check readings.csv --sequence machine --time when
      varfilter data check readings.csv --columns warm cold --kinds cold=count
      varfilter data check readings.csv --out fit.png
      varfilter data check recordings --rate 8000 --json
    """

    out: Annotated[Path | None, tyro.conf.arg(metavar="PNG")] = None
    """Draw the training values of each column of a table against its family (.png, .pdf, ...)."""

    json: bool = False
    """Print one JSON object instead of a table."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals(options=self.flags) as refused:
            from varfilter.data.sets.checks import describe, without_steps
            from varfilter.media import load, medium_of

            if self.out is not None:
                require_place(self.out, FORMATS)
            source = self.meant()
            dataset = load(source)
            medium = medium_of(dataset)
            judgement = _judged(source, dataset)
            problems = without_steps(dataset)
            numbers = describe(dataset, by_split=partial(medium.numbers, dataset))
            for name, kind in medium.column_kinds(dataset).items():
                numbers["columns"][name] = {**kind, **numbers["columns"][name]}
            numbers |= {"medium": medium.name, "notes": list(dataset.notes), "problems": problems}
            if self.json:
                numbers["is_good"] = judgement.is_good if judgement else None
                numbers["is_verified"] = judgement.is_verified if judgement else None
                numbers["verdict"] = list(judgement.lines) if judgement else []
                print(json.dumps(numbers, indent=1))
            else:
                _print_numbers(numbers | {"notes": self.notes(dataset)}, medium.ones)
                _print_judgement(judgement)
            if self.out is not None:
                _save(medium.draw_fit(dataset), self.out)
                tell(self.out.resolve())
            return 1 if problems or (judgement and not judgement.is_good) else 0
        return refused.code


@dataclass(frozen=True, kw_only=True)
class Show(ReadCommand):
    """Write a picture of some sequences of a data set.

    Music as scores, sound as waves and spectra, videos as strips, tables as lines.

    examples:
      varfilter data show jsb --out jsb.png
      varfilter data show videos --size 32 --split test --seed 1 --out videos.png
      varfilter data show readings.parquet --sequence machine --out readings.png
    """

    out: Annotated[Path, tyro.conf.arg(metavar="PNG")]
    """The file to write; its ending says the format (.png, .pdf, .svg, .jpg)."""

    split: Split = "train"
    """train, valid or test."""

    seed: Number = 0
    """Which sequences are shown is drawn from this number."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals(options=self.flags) as refused:
            from varfilter.media import load, picture

            require_place(self.out, FORMATS)
            dataset = load(self.meant())
            tell(*self.notes(dataset))
            _save(picture(dataset, split=self.split, seed=self.seed), self.out)
            say(self.out.resolve())
        return refused.code


def _save(figure: Any, path: Path) -> None:
    """Write a figure, in the format of the path's ending."""
    try:
        figure.savefig(path)
    except OSError as error:
        raise cannot_write(path, str(error.strerror or error)) from None


def _media_options(words: Sequence[str]) -> list[Section]:
    """The options of each medium's reader; of one alone where a word is a source of that medium."""
    from varfilter.media import MEDIA, source_of

    kinds = [medium.source for medium in MEDIA.values()]
    for word in words[:1]:
        with suppress(ValueError, OSError):
            kinds = [type(source_of(word))]
    sections = []
    for kind in kinds:
        options = usage.options_of(reading_options(kind, hidden=("at",)))
        sections.append(Section(kind.medium, options, kind.__doc__ or ""))
    return [section for section in sections if section.options]


class _Nothing:
    """A medium without options."""


_NOTHING = _Nothing()


def _judged(source: Any, dataset: Any) -> Any:
    """The judgement of a set that has a name; None for others."""
    from varfilter.data.sets.checks import judge
    from varfilter.data.sets.registry import CATALOGUE, damaged, data_folder, locate

    if source.source not in CATALOGUE:
        return None
    entry = CATALOGUE[source.source]
    path = Path(source.at) if source.at else locate(entry, data_folder())
    judgement = judge(entry, dataset, path, plain=not source.options())
    if judgement.is_good or source.at or path is None:
        return judgement
    return judgement._replace(lines=(*judgement.lines, damaged(entry, path)))


# For people.


@contextmanager
def _progress_bars() -> Iterator[Any]:
    """A function that shows a bar for each file that comes; None where nobody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, Any] = {}

        def show(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done, total=total)

        yield show


def _print_numbers(numbers: dict[str, Any], ones: str) -> None:
    """Print what `describe` found as tables; `ones` is what people call elements that are 1."""
    shape = tuple(numbers["observation"])
    say(f"{numbers['name']} ({numbers['medium']}): observations of shape {shape}")
    # One below another: a line has room for three numbers, not for ten.
    columns = [_in_words(shown, ones) for shown in numbers["splits"].values()]
    rows = [[what, *(_short(column.get(what)) for column in columns)] for what in columns[0]]
    _print_table(["", *numbers["splits"]], rows)
    if "columns" in numbers:
        has_kinds = any("kind" in column for column in numbers["columns"].values())
        shown = ["kind" if has_kinds else "family", "lowest", "highest", "mean", "missing"]
        cells = [
            [name, *(_short(column.get(what)) for what in shown)]
            for name, column in numbers["columns"].items()
        ]
        _print_table(["column (train)", *shown], cells)
    else:
        say(f"family: {', '.join(numbers['family'])}")
    if numbers["rate"]:
        say(f"rate: {numbers['rate']:g} rows in a second, {numbers['rows_per_step']} in a step")
    say(f"sha256: {numbers['sha256']}", *numbers["notes"])
    say(*(f"PROBLEM: {problem}" for problem in numbers["problems"]))


def _print_judgement(judgement: Any) -> None:
    if judgement is None:
        return
    say(*judgement.lines)
    good = "verified" if judgement.is_verified else "nothing wrong, not verified"
    say(f"verdict: {good if judgement.is_good else 'WRONG'}")


def _in_words(shown: dict[str, Any], ones: str) -> dict[str, Any]:
    """The numbers of a split by what people call them; those of its medium alone come last."""
    shown = dict(shown)
    found = {name: shown.pop(name, None) for name in ("sequences", "steps")}
    found |= {f"{name} sequence": length for name, length in shown.pop("length", {}).items()}
    for name in ("lowest", "highest", "mean"):
        found[f"{name} value"] = shown.pop(name, None)
    found["missing"] = shown.pop("missing", None)
    if "ones_per_step" in shown:
        found[f"{ones} in a step"] = shown.pop("ones_per_step")
    return found | {name.replace("_", " "): value for name, value in shown.items()}


def _short(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, list):
        return "-".join(map(_short, cell))
    if not isinstance(cell, float):
        return str(cell)
    # Not 8e+04: beside whole numbers, one looks like them. But a line has no room for the twelve
    # digits of a larger one, which would be folded and read as two.
    return f"{cell:.0f}" if 1e4 <= abs(cell) < 1e8 else f"{cell:.4g}"


def _print_table(header: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    table = Table(*(Column(title, overflow="fold") for title in header))
    for row in rows:
        table.add_row(*(escape(printable(cell)) for cell in row))
    Console().print(table)
