"""What `filter`, `forecast` and `sample` have in common: a run, and where the result goes."""

from pathlib import Path
from typing import Annotated, Any

import tyro

SMALLER = "Give a smaller --num-samples."


def named(metavar: str) -> Any:
    """An option that shows what it takes."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Input = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="INPUT")]
Out = Annotated[Path | None, named("FILE")]
Number = Annotated[int, tyro.conf.arg(metavar="N")]
Levels = Annotated[tuple[float, ...], tyro.conf.arg(metavar="P ...")]


def require_writable(out: Path | None) -> None:
    """Before anything is read or compiled: not after minutes of it."""
    if out is None:
        return
    if out.is_dir():
        raise IsADirectoryError(f"`--out {out}` is a folder. Give the name of a file in it.")
    if not out.parent.is_dir():
        raise FileNotFoundError(
            f"`--out {out}`: there is no folder {out.parent} to write it to. Make it first."
        )
