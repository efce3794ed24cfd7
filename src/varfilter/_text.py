"""Text for people: what can be shown on a terminal, and commands that can be pasted into one."""

import shlex
import unicodedata
from pathlib import Path


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


def _is_space(character: str) -> bool:
    return unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
