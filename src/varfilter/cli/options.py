"""What commands share: their base class, common options, and an experiment on the command line."""

import dataclasses
import io
import os
import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from varfilter._text import in_options, tell
from varfilter.cli import usage
from varfilter.cli.usage import Option, Section


class Command(ABC):
    """A command: a dataclass whose fields are its options, and whose call does the work."""

    @classmethod
    def main(cls, prog: str, words: Sequence[str]) -> int:
        """Parse the words after `prog`, and run; returns the exit code."""
        if usage.is_asked(words):
            print(cls.help(prog, words))
            return 0
        return cls.parsed(prog, words)()

    @classmethod
    def parsed(cls, prog: str, words: Sequence[str]) -> Any:
        """Parse the words after `prog`."""
        return parsed_words(cls, prog, words, lambda: flags_of(usage.options_of(cls)))

    @classmethod
    def help(cls, prog: str, words: Sequence[str]) -> str:
        """The page that `--help` and `--help-all` show."""
        sections = [usage.Section("options", usage.options_of(cls))]
        return usage.page(prog, cls.__doc__ or "", sections, words)

    def flags(self) -> dict[str, str]:
        """The options of the command by the names of the arguments that they become."""
        return flags_of(usage.options_of(type(self)))

    @abstractmethod
    def __call__(self) -> int:
        """Run; returns the exit code."""


def parsed_words(
    kind: type[Any],
    prog: str,
    words: Sequence[str],
    flags: Callable[[], Mapping[str, str]],
    **more: Any,
) -> Any:
    """Parse words into an object of a class whose fields are options; print what is wrong in them.

    The parser draws boxes round what it says, and knows settings by the names of their fields;
    `flags` gives the options by these.
    """
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(kind, prog=prog, args=words, **more)
    except SystemExit:
        lines = [
            line.strip("│").rstrip().removeprefix(" ") for line in said.getvalue().splitlines()
        ]
        # Without the lines between, and the one that holds the title.
        lines = [text for text in lines if text.strip("─") and not text.startswith(("╭", "╰"))]
        lines = _of_several_words(" ".join(map(str.strip, lines))) or lines
        tell(*(in_options(text, flags()) for text in lines))
        raise


# What the parser says where an option of several words has another number of them: all forms that
# it might have had, in its own notation.
_WRONG_WORDS = re.compile(
    r"Error parsing (--\S+): no type matching .*? could be instantiated from \[(.*?)\]\."
)
_WANTED_WORDS = re.compile(r"did not match expected argument count (\d+)")


def _of_several_words(said: str) -> list[str]:
    """What the parser says, if an option takes several words and has others; else nothing."""
    found = _WRONG_WORDS.search(said)
    wanted = max(map(int, _WANTED_WORDS.findall(said)), default=0)
    if found is None or wanted < 2:
        return []
    return [f"`{found[1]}` takes {wanted} words, with spaces between; got {found[2] or 'none'}."]


def flags_of(options: Iterable[Option], words: Collection[str] = ()) -> dict[str, str]:
    """Options by the names of their fields, whole (`schedule.num_steps`) and their ends alone.

    Of several that end alike, those that are among the `words` that were typed.
    """
    flags = {each.name: each.flag or each.metavar for each in options}
    ends: dict[str, list[str]] = {}
    for name, flag in flags.items():
        ends.setdefault(name.rpartition(".")[2], []).append(flag)
    typed = {word.partition("=")[0] for word in words}
    for name, some in ends.items():
        flags.setdefault(name, " or ".join([flag for flag in some if flag in typed] or some))
    return flags


def named(metavar: str) -> Any:
    """Declare an option that shows what it takes, and no default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Input = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="INPUT")]
Out = Annotated[Path | None, named("FILE")]
TableFile = Annotated[str | None, named("FILE")]
Number = Annotated[int, tyro.conf.arg(metavar="N")]
Particles = Annotated[int | None, named("N")]
Horizon = Annotated[int | None, named("H")]
Futures = Annotated[int | None, named("N")]
Levels = Annotated[tuple[float, ...], tyro.conf.arg(metavar="P ...")]
Format = Annotated[Literal["jsonl", "csv", "parquet", "npz"] | None, named("jsonl|csv|parquet|npz")]
Split = Literal["train", "valid", "test"]


def require_measured(command: Any, runs: Sequence[Any]) -> None:
    """Refuse numbers of measures that the media of the runs do not have."""
    if command.num_futures is not None and command.num_futures < 0:
        raise ValueError(f"`num_futures` must not be negative; got {command.num_futures}.")
    trained_on = " and ".join(dict.fromkeys(run.medium.plural for run in runs))
    for name, is_measured, what in (
        ("num_futures", any(run.medium.has_futures for run in runs),
         "how many futures of a video are drawn, of which the best counts"),
        ("horizon", any(run.medium.has_column_references for run in runs),
         "how many steps ahead the columns of a table are scored"),
    ):  # fmt: skip
        value = getattr(command, name)
        if value is not None and not is_measured:
            raise ValueError(
                f"`{name}` is {value}, but says {what}; what was trained here was trained on"
                f" {trained_on}. Leave it out."
            )


def require_place(out: Path | None, endings: Sequence[str] = ()) -> None:
    """Refuse a file that cannot be written, before anything is read or compiled for it."""
    if out is None:
        return
    if out.is_dir():
        raise IsADirectoryError(f"`--out {out}` is a folder. Give the name of a file in it.")
    if endings and out.suffix.lower() not in endings:
        raise ValueError(
            f"`--out {out}` must end in one of {', '.join(endings)}; got {out.suffix!r}."
        )
    if not out.parent.is_dir():
        raise FileNotFoundError(
            f"`--out {out}`: there is no folder {out.parent} to write it to. Make it first."
        )
    if not os.access(out if out.exists() else out.parent, os.W_OK):
        raise cannot_write(out, "you have no right to")


def cannot_write(out: Path, reason: str) -> OSError:
    """The error about a file that the system does not let us write."""
    return OSError(f"`--out {out}` cannot be written ({reason}). Give a file in another folder.")


# The options of a medium's readers.


def reading_options(source: type[Any], hidden: Collection[str] = ()) -> type[Any]:
    """A medium's `Source` as options of a command that say what they take; `hidden` ones are not.

    What is read is said elsewhere. An option that is None or False was not given.
    """
    hints = typing.get_type_hints(source)
    fields: list[Any] = []
    for field in dataclasses.fields(source):
        hint = hints[field.name]
        if field.name == "source" or field.name in hidden:
            value = "" if field.name == "source" else field.default
            fields.append((field.name, tyro.conf.Suppress[hint], dataclasses.field(default=value)))
        elif bool in typing.get_args(hint):
            fields.append((field.name, tyro.conf.FlagCreatePairsOff[bool], False))
        else:
            metavar = field.metadata.get("metavar") or usage.metavar_of(hint)
            shown = Annotated[hint, named(metavar)]
            fields.append((field.name, shown, dataclasses.field(default=None)))
    return dataclasses.make_dataclass(
        source.__name__, fields, bases=(source,), frozen=True, namespace={"__doc__": source.__doc__}
    )


def require_options(source: Any, names: Iterable[str], prefix: str = "--") -> None:
    """Refuse options that belong to data of another kind than the source's.

    `prefix` is what options of data begin with on this command line.
    """
    own = [field.name for field in dataclasses.fields(source)][1:]
    for name in names:
        if name not in own:
            from varfilter.media import medium_named

            # What has a path of its own lies nowhere else.
            shown = [each for each in own if each != "at" or os.sep not in source.source]
            given, *flags = (f"{prefix}{each.replace('_', '-')}" for each in (name, *shown))
            raise ValueError(
                f"{source.source!r} is {medium_named(source.medium).plural}, which has no option"
                f" {given}; it has {', '.join(flags)}."
            )


# An experiment on the command line.

Method = Literal["avf", "baseline", "descent"]


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """How to train, whatever it is that is trained."""

    out: Annotated[Path | None, named("DIR")] = None
    """The folder of the run (runs/NAME). A run that is there already goes on."""

    preset: Annotated[Literal["small", "paper"] | None, named("small|paper")] = None
    """Sizes and schedule: small is for two cores and some five minutes, paper the paper's (small
    for your own data on a CPU, paper for an experiment that has a name)."""

    max_updates: Annotated[int | None, named("N")] = None
    """Stop when so many updates were made in all, before the schedule's end."""

    seed: Number = 0
    """All randomness comes from this number: the same seed gives the same run."""

    num_members: Number = 1
    """Models that are learned side by side, each from its own start, and that predict together; of
    a table 2, unless you say otherwise."""

    seeds: Annotated[int | None, named("N")] = None
    """Train so many runs in one program, with the seeds from --seed on; each has a folder of its
    own, DIR/seed-N, and the numbers of a run of that seed alone."""

    horizon: Horizon = None
    """Tables: at the end, compare forecasts of so many steps with the references too (1)."""

    checkpoint_seconds: Annotated[float, tyro.conf.arg(metavar="X")] = 30.0
    """What a crash may cost, at most: the state is saved as often, in the background."""

    tensorboard: tyro.conf.FlagCreatePairsOff[bool] = False
    """Write the metrics to DIR/tensorboard too."""

    distributed: tyro.conf.FlagCreatePairsOff[bool] = False
    """Train together with other processes, each started with the same words: by `srun` or
    `mpirun`, or with JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID set."""

    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the last lines only."""


@dataclass(frozen=True)
class Target:
    """What is to be trained: an experiment, the folder it goes to, and the run that is there.

    `is_own` says whether it is on the user's own data, which the paper's protocol is not for.
    Where the folder holds the runs of several `seeds`, the run is the first of them.
    """

    experiment: Any
    out: Path
    run: Any = None
    is_own: bool = False
    seeds: tuple[int, ...] = ()


def meant_by(word: str) -> Target:
    """The target that a word names: an experiment, a file or folder of recordings, a run, or a set.

    An experiment comes first: a folder that happens to be called like one is `./NAME`. A set of
    `varfilter data list` comes last, and is trained as recordings of the user's own would be.
    """
    from varfilter.data.sets.registry import CATALOGUE
    from varfilter.experiments.paper import (
        EXPERIMENTS,
        TEMPLATES,
        experiment_named,
        own_experiment,
    )
    from varfilter.media import source_of
    from varfilter.runs.folder import is_run, seed_folder, seeds_in
    from varfilter.runs.run import Run

    path = Path(word).expanduser()
    is_name = word in EXPERIMENTS and word not in TEMPLATES
    if word in CATALOGUE and not is_name and not path.exists():
        return Target(own_experiment(source_of(word)), Path("runs") / word, is_own=True)
    if is_name or not (path.exists() or path.suffix):
        return Target(experiment_named(word), Path("runs") / word)
    if is_run(path):
        run = Run.load(path)
        return Target(run.experiment, path, run)
    if seeds := seeds_in(path):
        run = Run.load(seed_folder(path, seeds[0]))
        return Target(run.experiment, path, run, seeds=tuple(seeds))
    if not path.exists():
        raise FileNotFoundError(
            f"There is no file {word!r}. Give the path of a table, the folder of a run, or a name"
            " of `varfilter list`."
        )
    name = path.resolve().name if path.is_dir() else path.stem
    # Whole, so that it is not taken for the set of that name.
    return Target(own_experiment(source_of(path.resolve())), Path("runs") / name, is_own=True)


def overridden(target: Target, words: Sequence[str], *, prog: str = "") -> tuple[Any, TrainOptions]:
    """The experiment with the fields that were given, each of them an option; and how to train."""
    from varfilter.experiments.presets import fitted

    experiment = with_method(target.experiment, words)
    source = experiment.data
    require_options(source, _names_of_data(words), "--data.")
    hints = typing.get_type_hints(type(source))
    switches = [name for name, hint in hints.items() if bool in typing.get_args(hint)]
    hidden = dataclasses.make_dataclass(
        type(source).__name__,
        [
            ("source", tyro.conf.Suppress[str], dataclasses.field(default="")),
            *((name, tyro.conf.FlagCreatePairsOff[bool], False) for name in switches),
        ],
        bases=(type(source),),
        frozen=True,
        namespace={"__doc__": source.__doc__},
    )
    # What is not given is the reader's own: None, where a switch is off.
    shown = vars(source) | {name: bool(getattr(source, name)) for name in switches}
    own = {"data": (hidden, hidden(**shown))} | {
        name: (type(value), value) for name, value in _settings(experiment).items()
    }
    fields = [(name, kind, dataclasses.field(default=value)) for name, (kind, value) in own.items()]
    method = dataclasses.field(default=type(experiment.filter.inference).__name__.lower())
    parser = dataclasses.make_dataclass(
        "Train",
        [("method", Annotated[Method, tyro.conf.arg(help=_METHOD)], method), *fields],
        bases=(TrainOptions,),
        frozen=True,
        kw_only=True,
    )
    given = parsed_words(
        parser,
        prog,
        words,
        lambda: experiment_flags(experiment, words),
        default=parser(
            **_of_experiment(experiment), out=target.out, seeds=len(target.seeds) or None
        ),
        config=(tyro.conf.AvoidSubcommands,),
    )
    chosen = {name: getattr(given, name) for name in (*own, *_of_experiment(experiment))}
    read = vars(chosen["data"])
    read |= {name: read[name] or getattr(source, name) for name in switches}
    chosen["data"] = whole_source(type(source)(**read))
    training = {f.name: getattr(given, f.name) for f in dataclasses.fields(TrainOptions)}
    return fitted(dataclasses.replace(experiment, **chosen), experiment), TrainOptions(**training)


def experiment_options(experiment: Any) -> list[Section]:
    """The options that the fields of an experiment are: first of the data, then of its settings."""
    inference = type(experiment.filter.inference).__name__.lower()
    method = Option("method", "--method", "avf|baseline|descent", f"{_METHOD} ({inference})")
    training = usage.options_of(TrainOptions, default=TrainOptions(**_of_experiment(experiment)))
    source = experiment.data
    # What has a path of its own lies nowhere else.
    hidden = ("source", "at") if os.sep in source.source else ("source",)
    data = usage.options_of(type(source), default=source, prefix="data.", hidden=hidden)
    sections = [
        Section("data", data, source.__doc__ or ""),
        Section("training", [*training, method]),
    ]
    for name, settings in _settings(experiment).items():
        options = usage.options_of(type(settings), default=settings, prefix=f"{name}.")
        sections.append(Section(name, options, settings.__doc__ or ""))
    return sections


def experiment_flags(experiment: Any, words: Sequence[str]) -> dict[str, str]:
    """The options of an experiment by the names of the arguments that they become."""
    options = [each for section in experiment_options(experiment) for each in section.options]
    # Arguments of the readers: which sequences are for what, and where the data lie.
    places = dict.fromkeys(("source", "path", "folder"), "TABLE|FOLDER")
    return {"split": "--data.split-by"} | flags_of(options, words) | places


def _of_experiment(experiment: Any) -> dict[str, Any]:
    """The numbers of an experiment that stand among the options of training."""
    return {"seed": experiment.seed, "num_members": experiment.num_members}


def _settings(experiment: Any) -> dict[str, Any]:
    """The settings of an experiment by the name of the field that holds them."""
    names = ("model", "filter", "optimizer", "schedule")
    return {name: value for name in names if (value := getattr(experiment, name)) is not None}


def whole_source(source: Any) -> Any:
    """The source with the whole path of where it lies: a run has to find it from any folder."""
    if source.at is None:
        return source
    return dataclasses.replace(source, at=str(Path(source.at).expanduser().resolve()))


_METHOD = (
    "How q is found; another one than the experiment's own has its own --filter.inference. options."
)


def given_option(words: Sequence[str], name: str) -> str | None:
    """What stands behind an option on which others depend, before all of them are parsed."""
    given = None
    for place, word in enumerate(words):
        if word == name and place + 1 < len(words):
            given = words[place + 1]
        elif word.startswith(f"{name}="):
            given = word.partition("=")[2]
    return given


def with_method(experiment: Any, words: Sequence[str]) -> Any:
    """The experiment with the method that was given: its fields are the options that there are."""
    from varfilter.experiments.settings import AVF, Baseline, Descent

    kinds = {"avf": AVF, "baseline": Baseline, "descent": Descent}
    given = given_option(words, "--method")
    if given not in kinds or isinstance(experiment.filter.inference, kinds[given]):
        return experiment
    filter = dataclasses.replace(experiment.filter, inference=kinds[given]())
    # What the paper prints is of the experiment's own method.
    return dataclasses.replace(experiment, filter=filter, published=None)


def _names_of_data(words: Sequence[str]) -> list[str]:
    """The names given as `--data.NAME` that are options of any medium."""
    from varfilter.media import MEDIA

    media = [dataclasses.fields(medium.source) for medium in MEDIA.values()]
    known = {field.name for fields in media for field in fields} - {"source"}
    given = [word.removeprefix("--data.") for word in words if word.startswith("--data.")]
    return [name for word in given if (name := word.split("=")[0].replace("-", "_")) in known]
