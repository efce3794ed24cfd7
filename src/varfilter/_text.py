"""Text for people: what can be shown on a terminal, what can be pasted there, and lines for it."""

import ast
import re
import shlex
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# A name in backticks, with what may stand behind it there: `step`, `kinds={'a': 'count'}`. Columns
# of the user's stand in backticks too, behind that word.
_ARGUMENT = re.compile(r"(?<!olumn )`([A-Za-z_][A-Za-z_.]*)((?:=|\[)[^`]*)?`(?: (?:is )?(?='))?")
# Arguments that say which data are read: what follows them, in quotes, says it better.
_PLACES = frozenset({"source", "path", "folder"})
# How wide the labels of lines are; and how wide lines are at most: longer ones are hard to read.
_LABEL, _MOST_COLUMNS = 10, 100


def printable(text: str) -> str:
    r"""The text on one line, with every character visible: others are written as in `repr`.

    Names of files and columns and what servers say can hold the codes that move a cursor, clear a
    screen or turn the direction of writing. They become `\x1b` and the like; a line cannot end.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or _is_space(c) else _escaped(c) for c in text)


def pasteable(*words: str | Path) -> str:
    """A command that a shell takes as these words, whatever characters they hold."""
    return shlex.join(map(str, words))


def count(number: int | float, unit: str) -> str:
    """A number with its unit, in the plural where there is not just one: 1 step, 2 steps."""
    shown = f"{number:.4g}" if isinstance(number, float) else f"{number:,}"
    return f"{shown} {unit}" + ("" if shown == "1" else "s")


def say(*lines: Any) -> None:
    """Write lines of a command's result to standard output."""
    for line in lines:
        print(printable(str(line)))


def tell(*lines: Any) -> None:
    """Write lines on how a command gets on, or why it does not, to standard error, at once."""
    for line in lines:
        print(printable(str(line)), file=sys.stderr, flush=True)


def say_labelled(lines: list[tuple[str, str]], file: Any = None) -> None:
    """Print (label, sentence) of each line, wrapped at words to the width of the terminal."""
    file = sys.stderr if file is None else file
    columns = min(shutil.get_terminal_size().columns, _MOST_COLUMNS)
    for label, text in lines:
        wrapped = textwrap.wrap(
            text,
            max(columns - 1, 40),
            initial_indent=f"{label} ".ljust(_LABEL),
            subsequent_indent=" " * _LABEL,
            break_long_words=False,
            break_on_hyphens=False,
        )
        print("\n".join(wrapped), file=file)


def _is_space(character: str) -> bool:
    return unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


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
