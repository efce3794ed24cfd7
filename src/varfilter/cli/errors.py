"""How a command ends that cannot do what it was asked: errors of the user's are one line."""

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from varfilter.cli.output import tell


@dataclass
class Refused:
    """The exit code of a command that went through `refusals`.

    `options` gives the options of the command by the names of the arguments that they become; it is
    asked when there is something to tell.
    """

    code: int = 0
    options: Callable[[], Mapping[str, str]] = dict


# A name in backticks, with what may stand behind it there: `step`, `kinds={'a': 'count'}`. Columns
# of the user's stand in backticks too, behind that word.
_ARGUMENT = re.compile(r"(?<!olumn )`([a-z_][a-z_.]*)((?:=|\[)[^`]*)?`(?: (?:is )?(?='))?")
# Arguments that say which data are read: what follows them, in quotes, says it better.
_PLACES = frozenset({"source", "path", "folder"})


def in_options(message: str, options: Mapping[str, str]) -> str:
    """The message of an error with the options that users type instead of Python's arguments.

    `sequence` becomes `--data.sequence`, and `kinds={'a': 'count'}` becomes `--kinds a=count`.
    """

    def option(found: re.Match[str]) -> str:
        name, value = found[1], found[2] or ""
        after = found[0][found[0].rindex("`") + 1 :]
        if name not in options:
            return found[0]
        if name in _PLACES and after and not options[name].startswith("-"):
            return ""
        return f"`{options[name]}{_as_word(value)}`{after}"

    return _ARGUMENT.sub(option, message)


def _as_word(value: str) -> str:
    """A value as Python writes it behind an argument, as it is typed behind an option."""
    if value in ("", "=True"):
        return ""
    if value == "=False":
        return " none"
    try:
        found = ast.literal_eval(value[1:] if value.startswith("=") else value)
    except (ValueError, SyntaxError):
        return f" {value.strip('=[]')}"
    if isinstance(found, dict):
        return "".join(f" {key}={each}" for key, each in found.items())
    return " " + " ".join(map(str, found if isinstance(found, list | tuple) else [found]))


@contextmanager
def naming(**options: str) -> Iterator[None]:
    """Errors from within name these options, whatever the command calls these arguments."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (in_options(error.args[0], options),)
        raise


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if not issubclass(category, DeprecationWarning | PendingDeprecationWarning | FutureWarning):
        tell(message)


@contextmanager
def refusals(
    smaller: str = "Give a smaller --size, a lower --rate, or fewer files.",
    options: Callable[[], Mapping[str, str]] = dict,
) -> Iterator[Refused]:
    """One line on stderr for what the user can put right; `smaller` is said when memory is out.

    The line names `options` where the library names the arguments that they became. Warnings are a
    line each, without the place in the code; what libraries announce to those who call them
    (deprecations) is not for the users of a command.
    """
    refused = Refused(options=options)

    def shown(message: Warning | str, *rest: Any, **more: Any) -> None:
        _show_warning(in_options(str(message), refused.options()), *rest, **more)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = shown
            yield refused
    except BrokenPipeError:
        raise
    except (ValueError, TypeError, OSError, ImportError) as error:
        # On one line, whatever a library wrote.
        tell(in_options(" ".join(str(error).splitlines()), refused.options()))
        refused.code = 2
    except MemoryError as error:
        reason = str(error).rstrip(".") or "out of memory"
        tell(f"There is not enough memory for this ({reason}). {smaller}")
        refused.code = 2
    except RuntimeError as error:
        # What the accelerator's runtime says when its memory is full.
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        tell(f"The device has not enough memory for this. {smaller}")
        refused.code = 2
    except KeyboardInterrupt:
        tell("Interrupted.")
        refused.code = 130
