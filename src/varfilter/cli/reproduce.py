"""`varfilter reproduce`: a table or a figure of the paper, beside ours."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from varfilter.cli.errors import refusals


@dataclass(frozen=True)
class Reproduce:
    """Train what a table or a figure of the paper needs, and put ours beside the paper's.

    What was begun goes on, what is trained is not trained again; a data set that is not here
    is left out, with the reason. Writes WHAT.html, WHAT.md and WHAT.json, prints the table.

    examples:
      varfilter reproduce table-3
      varfilter reproduce table-1 --at-hand --max-updates 20
      varfilter reproduce figure-4 --out paper --runs runs
    """

    what: Annotated[
        Literal["table-1", "table-2", "table-3", "figure-3", "figure-4"], tyro.conf.Positional
    ]
    """Speech, films, music; waveforms; iterations."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("reproduced")
    """The folder to write to; it is made if it is not there."""

    runs: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="")] = None
    """The folder of the runs (DIR/runs)."""

    max_updates: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="")] = None
    """A short try: at most so many updates of each. The caption says so."""

    at_hand: bool = False
    """Take free data (timit-sample, weizmann) where the paper's are not here."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals("Give another machine: the sizes are the paper's.") as refused:
            from varfilter.report import reproduce

            page = reproduce(
                self.what,
                self.out,
                runs=self.runs,
                max_updates=self.max_updates,
                at_hand=self.at_hand,
                tell=lambda text: print(text, file=sys.stderr),
            )
            print(page.with_suffix(".md").read_text(encoding="utf-8"))
            print(f"page: {page.resolve()}")
        return refused.code
