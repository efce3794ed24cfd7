"""The command line: parse, call, print."""

import os
import sys
from typing import Annotated

import tyro

from varfilter.cli.data import Data
from varfilter.cli.demo import Demo
from varfilter.cli.doctor import Doctor
from varfilter.cli.report import Report
from varfilter.cli.reproduce import Reproduce

DESCRIPTION = """Learn deep state-space models from sequences, and filter with them online.

examples:
  varfilter demo                    train, filter, forecast and find a fault; writes a page
  varfilter demo --out page --seed 1
  varfilter doctor                  check the mathematics on this machine's hardware
  varfilter doctor --json           the same for programs; exit code 1 if a check fails
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
    if arguments in ([], ["data"]):
        arguments.append("--help")
    command = tyro.cli(
        Command,
        prog="varfilter",
        description=DESCRIPTION,
        args=arguments,
        config=(tyro.conf.OmitSubcommandPrefixes,),
    )
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


if __name__ == "__main__":
    main()
