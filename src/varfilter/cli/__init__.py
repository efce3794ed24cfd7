"""The command line: parse, call, print."""

import os
import sys
from typing import Annotated

import tyro

from varfilter.cli.data import Data
from varfilter.cli.demo import Demo
from varfilter.cli.doctor import Doctor
from varfilter.cli.evaluate import Evaluate
from varfilter.cli.filter import Filter
from varfilter.cli.forecast import Forecast
from varfilter.cli.listing import ListExperiments
from varfilter.cli.report import Report
from varfilter.cli.reproduce import Reproduce
from varfilter.cli.sample import Sample
from varfilter.cli.train import Train, train_command

DESCRIPTION = """Learn deep state-space models from sequences, and filter with them online.

examples:
  varfilter demo                    train, filter, forecast and find a fault; writes a page
  varfilter demo --out page --seed 1
  varfilter doctor                  check the mathematics on this machine's hardware
  varfilter doctor --json           the same for programs; exit code 1 if a check fails
  varfilter list                    the experiments that have a name
  varfilter train srnn-jsb-avf      train one; every field is an option (--help after the name)
  varfilter train readings.csv      train on your own table
  varfilter train runs/srnn-jsb-avf go on with a run
  varfilter evaluate runs/srnn-jsb-avf
  varfilter filter runs/readings new.csv --out filtered.csv
  varfilter forecast runs/readings new.csv --horizon 24
  varfilter sample runs/srnn-jsb-avf --out tune.mid
  varfilter report runs/srnn-jsb-avf
  varfilter reproduce table-3       the paper's table beside ours
  varfilter data list               the data sets that have a name, and which are here
  varfilter data fetch jsb          get one, checked
  varfilter data check readings.csv what a set holds: a name, or your own file or folder
  varfilter data show films --out films.png
  varfilter --version
"""

Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[ListExperiments, tyro.conf.subcommand("list")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Filter, tyro.conf.subcommand("filter")]
    | Annotated[Forecast, tyro.conf.subcommand("forecast")]
    | Annotated[Sample, tyro.conf.subcommand("sample")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Data
)

__all__ = ["Demo", "Doctor", "main"]


def main() -> None:
    """The entry point of `varfilter`."""
    try:
        _main()
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)


def _main() -> None:
    if sys.argv[1:] in (["--version"], ["-V"]):
        from importlib.metadata import version

        print(f"varfilter {version('varfilter')}")
        return
    arguments = sys.argv[1:]
    # A command that needs another after it says what there is.
    if arguments in ([], ["data"], ["train"]):
        arguments.append("--help")
    try:
        code = _called(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


def _called(arguments: list[str]) -> int:
    """The exit code of the command."""
    # Its options are those of the experiment, which the first word names.
    if arguments[0] == "train" and not {"-h", "--help"}.issuperset(arguments[1:]):
        return train_command(arguments[1:])
    command = tyro.cli(
        Command,
        prog="varfilter",
        description=DESCRIPTION,
        args=arguments,
        config=(tyro.conf.OmitSubcommandPrefixes,),
    )
    return command()


if __name__ == "__main__":
    main()
