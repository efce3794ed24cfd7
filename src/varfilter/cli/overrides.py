"""An experiment on the command line: which one is meant, and every field of it as an option."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from varfilter.experiments import Experiment, Source

Method = Literal["avf", "baseline", "descent"]
_CONFIG = (tyro.conf.AvoidSubcommands,)


def _named(metavar: str) -> Any:
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to train, whatever it is that is trained."""

    out: Annotated[Path | None, _named("DIR")] = None
    """The folder of the run (runs/NAME). A run that is there already goes on."""

    max_updates: Annotated[int | None, _named("N")] = None
    """Stop when so many updates were made in all, before the schedule's end."""

    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """All randomness comes from this number: the same seed gives the same run."""

    checkpoint_seconds: Annotated[float, tyro.conf.arg(metavar="X")] = 30.0
    """How often the state is saved, at most: what a crash may cost."""

    tensorboard: tyro.conf.FlagCreatePairsOff[bool] = False
    """Write the metrics to DIR/tensorboard too."""

    distributed: tyro.conf.FlagCreatePairsOff[bool] = False
    """Train together with other processes, each started with the same words: by `srun` or
    `mpirun`, or with JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID set."""

    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the last lines only."""


@dataclass(frozen=True)
class Meant:
    """What the first word says: an experiment, where it goes, and whether that is a run already."""

    experiment: "Experiment"
    out: Path
    is_run: bool = False


def meant_by(word: str, rest: Sequence[str]) -> Meant:
    """A name, a table, a folder of recordings, or that of a run; `rest` says how to read a table.

    A name comes first: a folder that happens to be called like an experiment is `./NAME`.
    """
    from varfilter.experiments import EXPERIMENTS, Run, named, recordings_experiment

    path = Path(word).expanduser()
    if word in EXPERIMENTS or not (path.exists() or path.suffix):
        return Meant(named(word), Path("runs") / word)
    if path.is_dir() and (path / "run.json").exists():
        return Meant(Run.load(path).experiment, path, is_run=True)
    if path.is_dir():
        return Meant(recordings_experiment(path), Path("runs") / path.resolve().name)
    if not path.exists():
        raise FileNotFoundError(
            f"There is no file {word!r}. Give the path of a table, the folder of a run, or a name"
            " of `varfilter list`."
        )
    return Meant(_of_table(path, rest), Path("runs") / path.stem)


def overridden(
    meant: Meant, rest: Sequence[str], *, prog: str, description: str
) -> tuple["Experiment", Options]:
    """The experiment with the fields that were given, and how to train it."""
    experiment, rest = _with_method(meant.experiment, list(rest))
    own = {
        name: (type(value), value)
        for name in ("model", "filter", "optimizer", "schedule")
        if (value := getattr(experiment, name)) is not None
    }
    reading = _reading_class()
    own = {"data": (reading, reading(**vars(experiment.data)))} | own
    fields = [(name, kind, dataclasses.field(default=value)) for name, (kind, value) in own.items()]
    method = dataclasses.field(default=_method_of(experiment))
    parser = dataclasses.make_dataclass(
        "Train",
        [("method", Annotated[Method, _METHOD], method), *fields],
        bases=(Options,),
        frozen=True,
        kw_only=True,
    )
    given = tyro.cli(
        parser,
        prog=prog,
        description=description,
        args=rest,
        default=parser(seed=experiment.seed, out=meant.out),
        config=_CONFIG,
    )
    chosen = {name: getattr(given, name) for name in own} | {"seed": given.seed}
    chosen["data"] = _as_source(chosen["data"])
    options = {field.name: getattr(given, field.name) for field in dataclasses.fields(Options)}
    return dataclasses.replace(experiment, **chosen), Options(**options)


_METHOD = tyro.conf.arg(
    help="How q is found; another one than the experiment's own has its own --filter.inference."
    " options."
)


def _with_method(experiment: "Experiment", rest: list[str]) -> tuple["Experiment", list[str]]:
    """The method first: its fields are the options that there are."""
    from varfilter.experiments import AVF, Baseline, Descent

    kinds = {"avf": AVF, "baseline": Baseline, "descent": Descent}
    given = None
    for place, word in enumerate(rest):
        if word == "--method" and place + 1 < len(rest):
            given = rest[place + 1]
        elif word.startswith("--method="):
            given = word.partition("=")[2]
    if given not in kinds or isinstance(experiment.filter.inference, kinds[given]):
        return experiment, rest
    filter = dataclasses.replace(experiment.filter, inference=kinds[given]())
    # What the paper prints is of the experiment's own method.
    return dataclasses.replace(experiment, filter=filter, published=None), rest


def _method_of(experiment: "Experiment") -> str:
    return type(experiment.filter.inference).__name__.lower()


def _of_table(path: Path, rest: Sequence[str]) -> "Experiment":
    """How the table is read decides what is trained on it, so these options come first."""
    from varfilter.experiments import Source
    from varfilter.experiments.tables import table_experiment

    # Whole, as below.
    source = Source(str(path.resolve()))
    reading = _reading_class()
    only = dataclasses.make_dataclass(
        "Data", [("data", reading, dataclasses.field(default=reading(**vars(source))))]
    )
    words = [word for word in rest if word not in ("-h", "--help")]
    given, _ = tyro.cli(only, args=words, config=_CONFIG, return_unknown_args=True)
    return table_experiment(_as_source(given.data))


def _reading_class() -> type[Any]:
    """`Source` as options: all but what is read, which the first word says."""
    from varfilter.experiments import Source

    @dataclass(frozen=True)
    class Reading(Source):
        """How the data are read; None: as they ask for."""

        source: tyro.conf.Suppress[str] = ""

    return Reading


def _as_source(reading: Any) -> "Source":
    from varfilter.experiments import Source

    given = vars(reading)
    if given["at"] is not None:
        # Whole: the run has to find it from any folder.
        given = given | {"at": str(Path(given["at"]).expanduser().resolve())}
    return Source(**given)
