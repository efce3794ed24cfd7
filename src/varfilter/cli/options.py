"""What commands share: their base class, common options, and an experiment on the command line."""

import dataclasses
import os
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro


class Command(ABC):
    """A command: a dataclass whose fields are its options, and whose call does the work."""

    @classmethod
    def main(cls, prog: str, words: Sequence[str]) -> int:
        """Parse the words after `prog`, and run; returns the exit code."""
        return tyro.cli(cls, prog=prog, args=words)()

    @abstractmethod
    def __call__(self) -> int:
        """Run; returns the exit code."""


def named(metavar: str) -> Any:
    """Declare an option that shows what it takes, and no default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Input = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="INPUT")]
Out = Annotated[Path | None, named("FILE")]
TableFile = Annotated[str | None, named("FILE")]
Number = Annotated[int, tyro.conf.arg(metavar="N")]
Particles = Annotated[int | None, named("N")]
Levels = Annotated[tuple[float, ...], tyro.conf.arg(metavar="P ...")]
Split = Literal["train", "valid", "test"]


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
            metavar = field.metadata.get("metavar") or _metavar(hint)
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

            flags = ", ".join(f"{prefix}{each.replace('_', '-')}" for each in own)
            raise ValueError(
                f"{source.source!r} is {medium_named(source.medium).plural}, which has no option"
                f" {name!r}; it has {flags}."
            )


def _metavar(hint: Any) -> str:
    """What an option of this type takes, for its help."""
    choices = [each for each in typing.get_args(hint) if each is not types.NoneType]
    kind = choices[0] if choices else hint
    if typing.get_origin(kind) is Literal:
        return "|".join(typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        first, last = typing.get_args(kind)
        return f"{_metavar(first)} {'...' if last is ... else _metavar(last)}"
    return {int: "N", float: "X"}.get(kind, "NAME")


# An experiment on the command line.

Method = Literal["avf", "baseline", "descent"]


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """How to train, whatever it is that is trained."""

    out: Annotated[Path | None, named("DIR")] = None
    """The folder of the run (runs/NAME). A run that is there already goes on."""

    max_updates: Annotated[int | None, named("N")] = None
    """Stop when so many updates were made in all, before the schedule's end."""

    seed: Number = 0
    """All randomness comes from this number: the same seed gives the same run."""

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
    """What is to be trained: an experiment, the folder it goes to, and the run that is there."""

    experiment: Any
    out: Path
    run: Any = None


def meant_by(word: str) -> Target:
    """The target that a word names: an experiment, a file or a folder of recordings, or a run.

    A name comes first: a folder that happens to be called like an experiment is `./NAME`.
    """
    from varfilter.experiments.paper import (
        EXPERIMENTS,
        TEMPLATES,
        experiment_named,
        own_experiment,
    )
    from varfilter.media import source_of
    from varfilter.runs.folder import is_run
    from varfilter.runs.run import Run

    path = Path(word).expanduser()
    is_name = word in EXPERIMENTS and word not in TEMPLATES
    if is_name or not (path.exists() or path.suffix):
        return Target(experiment_named(word), Path("runs") / word)
    if is_run(path):
        run = Run.load(path)
        return Target(run.experiment, path, run)
    if not path.exists():
        raise FileNotFoundError(
            f"There is no file {word!r}. Give the path of a table, the folder of a run, or a name"
            " of `varfilter list`."
        )
    name = path.resolve().name if path.is_dir() else path.stem
    return Target(own_experiment(source_of(path)), Path("runs") / name)


def overridden(
    target: Target, words: Sequence[str], *, prog: str = "", description: str = ""
) -> tuple[Any, TrainOptions]:
    """The experiment with the fields that were given, each of them an option; and how to train."""
    experiment = _with_method(target.experiment, words)
    source = experiment.data
    require_options(source, _names_of_data(words), "--data.")
    hidden = dataclasses.make_dataclass(
        type(source).__name__,
        [("source", tyro.conf.Suppress[str], dataclasses.field(default=""))],
        bases=(type(source),),
        frozen=True,
        namespace={"__doc__": source.__doc__},
    )
    own = {"data": (hidden, hidden(**vars(source)))} | {
        name: (type(value), value)
        for name in ("model", "filter", "optimizer", "schedule")
        if (value := getattr(experiment, name)) is not None
    }
    fields = [(name, kind, dataclasses.field(default=value)) for name, (kind, value) in own.items()]
    method = dataclasses.field(default=type(experiment.filter.inference).__name__.lower())
    parser = dataclasses.make_dataclass(
        "Train",
        [("method", Annotated[Method, _METHOD], method), *fields],
        bases=(TrainOptions,),
        frozen=True,
        kw_only=True,
    )
    given = tyro.cli(
        parser,
        prog=prog,
        description=description,
        args=words,
        default=parser(seed=experiment.seed, out=target.out),
        config=(tyro.conf.AvoidSubcommands,),
    )
    chosen = {name: getattr(given, name) for name in own} | {"seed": given.seed}
    chosen["data"] = whole_source(type(source)(**vars(chosen["data"])))
    options = {field.name: getattr(given, field.name) for field in dataclasses.fields(TrainOptions)}
    return dataclasses.replace(experiment, **chosen), TrainOptions(**options)


def whole_source(source: Any) -> Any:
    """The source with the whole path of where it lies: a run has to find it from any folder."""
    if source.at is None:
        return source
    return dataclasses.replace(source, at=str(Path(source.at).expanduser().resolve()))


_METHOD = tyro.conf.arg(
    help="How q is found; another one than the experiment's own has its own --filter.inference."
    " options."
)


def _with_method(experiment: Any, words: Sequence[str]) -> Any:
    """The experiment with the method that was given: its fields are the options that there are."""
    from varfilter.experiments.settings import AVF, Baseline, Descent

    kinds = {"avf": AVF, "baseline": Baseline, "descent": Descent}
    given = None
    for place, word in enumerate(words):
        if word == "--method" and place + 1 < len(words):
            given = words[place + 1]
        elif word.startswith("--method="):
            given = word.partition("=")[2]
    if given not in kinds or isinstance(experiment.filter.inference, kinds[given]):
        return experiment
    filter = dataclasses.replace(experiment.filter, inference=kinds[given]())
    # What the paper prints is of the experiment's own method.
    return dataclasses.replace(experiment, filter=filter, published=None)


def _names_of_data(words: Sequence[str]) -> list[str]:
    """The options of some medium that were given as `--data.NAME`, whatever the data are."""
    from varfilter.media import MEDIA

    media = [dataclasses.fields(medium.source) for medium in MEDIA.values()]
    known = {field.name for fields in media for field in fields} - {"source"}
    given = [word.removeprefix("--data.") for word in words if word.startswith("--data.")]
    return [name for word in given if (name := word.split("=")[0].replace("-", "_")) in known]
