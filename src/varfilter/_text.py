"""Text for people: what can be shown on a terminal, what can be pasted there, and lines for it."""

import shlex
import sys
import unicodedata
from pathlib import Path
from typing import Any


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


def _is_space(character: str) -> bool:
    return unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
