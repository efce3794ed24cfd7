"""The command line: the first word says the command, whose module alone is imported."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

# Where each command is, and what it does in one line.
COMMANDS = {
    "demo": ("checks:Demo", "train, filter, forecast and find a fault; writes a page"),
    "doctor": ("checks:Doctor", "check the mathematics on this machine's hardware"),
    "list": ("listing:ListExperiments", "the experiments that have a name"),
    "train": ("train:Train", "train an experiment, or on your own data; go on with a run"),
    "repair": ("repair:Repair", "put right what is damaged in a run's folder"),
    "evaluate": ("evaluate:Evaluate", "score a run on whole held-out sequences"),
    "filter": ("apply:Filter", "predict each step of new data, and say how surprising it was"),
    "forecast": ("apply:Forecast", "how new data may go on: means and quantiles"),
    "sample": ("apply:Sample", "sequences that a trained model makes up"),
    "report": ("reports:Report", "one page on a run, or on several side by side"),
    "reproduce": ("reports:Reproduce", "a table or a figure of the paper, beside ours"),
    "data list": ("data:ListSets", "the data sets that have a name, and which are here"),
    "data fetch": ("data:Fetch", "get a data set by its name, checked"),
    "data check": ("data:Check", "what a set holds: a name, or your own file or folder"),
    "data show": ("data:Show", "a picture of some of its sequences"),
}
# Commands that compile nothing worth keeping.
WITHOUT_PROGRAMS = {"list", "data list", "data fetch", "data check", "data show"}
# Words that need another after them.
GROUPS = {"data": "Data sets: those that have a name, and your own files and folders."}

DESCRIPTION = "Learn deep state-space models from sequences, and filter with them online."
EXAMPLES = """examples:
  varfilter demo --out page --seed 1
  varfilter doctor --json           the same for programs; exit code 1 if a check fails
  varfilter train srnn-jsb-avf      every field is an option (--help after the name)
  varfilter train readings.csv      train on your own table
  varfilter train runs/srnn-jsb-avf go on with a run
  varfilter evaluate runs/srnn-jsb-avf
  varfilter filter runs/readings new.csv --out filtered.csv
  varfilter forecast runs/readings new.csv --horizon 24
  varfilter sample runs/srnn-jsb-avf --out tune.mid
  varfilter report runs/srnn-jsb-avf
  varfilter reproduce table-3
  varfilter data list
  varfilter data fetch jsb
  varfilter data check recordings
  varfilter data show readings.csv --out readings.png
  varfilter --version
"""
HELP = {"-h", "--help"}


def main(words: Sequence[str] | None = None) -> None:
    """Run the command that the words say, those of the process by default, and exit with its code.

    The help of `varfilter` itself is plain text: nobody waits for jax to read it.
    """
    try:
        code = _run(list(sys.argv[1:] if words is None else words))
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        code = 130
    sys.exit(code)


def _run(words: list[str]) -> int:
    """The exit code of the command."""
    if words in (["--version"], ["-V"]):
        from varfilter import __version__

        print(f"varfilter {__version__}")
        return 0
    if not words or words[0] in HELP:
        print(_help(""))
        return 0
    if words[0] in GROUPS and (not words[1:] or words[1] in HELP):
        print(_help(words[0]))
        return 0
    num_words = 2 if words[0] in GROUPS else 1
    name, rest = " ".join(words[:num_words]), words[num_words:]
    if name not in COMMANDS:
        print(_unknown(name), file=sys.stderr)
        return 2
    if name != "train":
        return _command(name).main(f"varfilter {name}", rest)
    from varfilter.cli.stopping import Stopping

    # A signal is heeded from here on, before anything is imported that takes its time.
    with Stopping() as stopping:
        return _command(name).main(f"varfilter {name}", rest, stopping)


def _command(name: str) -> Any:
    """The class of a command; its module is imported now."""
    if name not in WITHOUT_PROGRAMS:
        from varfilter.cli.compiled import keep_compiled

        keep_compiled()  # before jax is imported, which reads where to keep them
    return _imported(COMMANDS[name][0])


def _imported(reference: str) -> Any:
    """The class of a command, such as "train:Train"; its module is imported now."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"varfilter.cli.{module}"), name)


def _names(group: str) -> list[str]:
    """The commands of a group; of no group, all of them."""
    return [name for name in COMMANDS if not group or name.startswith(f"{group} ")]


def _help(group: str) -> str:
    """The commands with a line each, and examples that can be pasted."""
    prefix = f"varfilter {group}".rstrip()
    lines = [f"usage: {prefix} COMMAND [OPTIONS]", "", GROUPS.get(group, DESCRIPTION), ""]
    lines += ["commands (each has its own --help):"]
    lines += [f"  varfilter {name:<12} {COMMANDS[name][1]}" for name in _names(group)]
    first, *examples = EXAMPLES.splitlines()
    lines += ["", first, *(line for line in examples if line.startswith(f"  {prefix} "))]
    return "\n".join(lines)


def _unknown(name: str) -> str:
    """The sentence about a word that is no command, with the nearest that is one."""
    from varfilter._arguments import nearest

    group = name.split()[0] if name.split()[0] in GROUPS else ""
    names = _names(group)
    known = ", ".join(each.removeprefix(group).strip() for each in names)
    prefix = f"varfilter {group}".rstrip()
    return (
        f"There is no command `varfilter {name}`.{nearest(name, names)} After `{prefix}` comes one"
        f" of {known}; `{prefix} --help` says what each does."
    )
