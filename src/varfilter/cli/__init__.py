"""The command line: the first word says the command, whose module alone is imported."""

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

# Where each command is, and what it does in one line.
COMMANDS = {
    "demo": ("checks:Demo", "train, filter, forecast, find a fault; writes a page"),
    "doctor": ("checks:Doctor", "check the mathematics on this machine's hardware"),
    "list": ("listing:ListExperiments", "the experiments that have a name"),
    "train": ("train:Train", "train on your own data, or an experiment; go on"),
    "repair": ("checks:Repair", "put right what is damaged in a run's folder"),
    "evaluate": ("evaluate:Evaluate", "score a run on whole held-out sequences"),
    "filter": ("apply:Filter", "predict each step of new data; how surprising it was"),
    "forecast": ("apply:Forecast", "how new data may go on: means and quantiles"),
    "sample": ("sample:Sample", "sequences that a trained model makes up"),
    "report": ("reports:Report", "one page on a run, or on several side by side"),
    "reproduce": ("reports:Reproduce", "a table or a figure of the paper, beside ours"),
    "data list": ("data:ListSets", "the data sets that have a name, and which are here"),
    "data fetch": ("data:Fetch", "get a data set by its name, checked"),
    "data check": ("data:Check", "what a set holds: a name, or your own file or folder"),
    "data show": ("data:Show", "a picture of some of its sequences"),
}
# Commands that compile nothing worth keeping.
WITHOUT_PROGRAMS = {"list", "data list", "data fetch", "data check", "data show"}
# Commands that take lines as they come, from `-`.
LIVE = {"filter", "forecast"}
# Words that need another after them.
GROUPS = {"data": "Data sets: those that have a name, and your own files and folders."}

DESCRIPTION = "Learn deep state-space models from sequences, and filter with them online."
EXAMPLES = {
    "": """examples: varfilter train readings.csv
          varfilter filter runs/readings new.csv --out filtered.csv""",
    "data": """examples:
  varfilter data fetch jsb
  varfilter data check recordings
  varfilter data show readings.csv --out readings.png""",
}
# What the system says of an output that takes no more: a full disk, or one that is gone.
UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
HELP = {"-h", "--help", "--help-all"}


def main(words: Sequence[str] | None = None) -> None:
    """Run the command that the words say, those of the process by default, and exit with its code.

    The help of `varfilter` itself is plain text: nobody waits for jax to read it. A reader who
    has seen enough (`| head`) ends a command with the code of the signal for it, as the shell's
    own commands do; where nothing can be written, on a full disk, it is 2.
    """
    _open_streams()
    try:
        code = _run(list(sys.argv[1:] if words is None else words))
        sys.stdout.flush()
    except BrokenPipeError:
        _close_streams()
        code = 128 + 13
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        code = 130
    except OSError as error:
        _close_streams(but_errors=True)
        is_output = error.errno in UNWRITABLE
        reason = f"Standard output cannot be written to ({error.strerror})."
        with suppress(OSError):
            print(reason if is_output else error, file=sys.stderr)
        code = 2
    sys.exit(code)


def _open_streams() -> None:
    """Let what is printed vanish where standard output or error were closed (`>&-`)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def _close_streams(*, but_errors: bool = False) -> None:
    """Let what still waits to be printed vanish: Python would try again as it ends."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        for stream in (sys.stdout,) if but_errors else (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # in a test it is no file
                os.dup2(nowhere.fileno(), stream.fileno())


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
        command = _command(name)
        if name in LIVE and "-" in rest:
            from varfilter.cli.compiled import compute_where_asked

            compute_where_asked()
        return command.main(f"varfilter {name}", rest)
    from varfilter.cli.exits import Stopping

    # A signal is heeded from here on, before anything is imported that takes its time.
    with Stopping() as stopping:
        return _command(name).main(f"varfilter {name}", rest, stopping)


def _command(name: str) -> Any:
    """The class of a command; its module is imported now."""
    if name not in WITHOUT_PROGRAMS:
        from varfilter.cli.compiled import compile_quickly, keep_compiled

        # Before jax is imported, which reads what they set.
        compile_quickly()
        keep_compiled()
    return _imported(COMMANDS[name][0])


def _imported(reference: str) -> Any:
    """The class of a command, such as "train:Train"; its module is imported now."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(f"varfilter.cli.{module}"), name)


def _names(group: str) -> list[str]:
    """The commands of a group; of no group, all of them."""
    return [name for name in COMMANDS if not group or name.startswith(f"{group} ")]


def _help(group: str) -> str:
    """The commands with a line each, and examples that can be pasted; on a screen of 24 lines."""
    prefix = f"varfilter {group}".rstrip()
    lines = [f"usage: {prefix} COMMAND [OPTIONS]", "", GROUPS.get(group, DESCRIPTION), ""]
    lines += ["commands (each has its own --help):"]
    lines += [f"  varfilter {name:<12} {COMMANDS[name][1]}" for name in _names(group)]
    return "\n".join([*lines, "", EXAMPLES[group]])


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
