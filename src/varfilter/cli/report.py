"""`varfilter report`: a page on one run, or on several side by side."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from varfilter.cli.errors import refusals


@dataclass(frozen=True)
class Report:
    """Score runs on whole held-out sequences, and write one self-contained page on them.

    Results beside the paper's, learning curves, what each inference iteration gains, pictures
    of data, predictions and reconstructions, calibration, the best and the worst sequences.
    All of its numbers go to a .json file of the same name.

    examples:
      varfilter report runs/srnn-jsb-avf
      varfilter report runs/srnn-jsb-avf runs/srnn-jsb-baseline --out jsb.html
    """

    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint=""),
    ]
    """The folders of runs."""

    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE.html", help_behavior_hint="")] = None
    """The page (RUN/report.html for one run, report.html for several)."""

    split: Literal["train", "valid", "test"] = "test"
    """Which part of the data is scored and shown."""

    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Of the draws, and of which sequences are shown."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals() as refused:
            from varfilter.runs import Run
            from varfilter.report import report

            if not self.runs:
                raise ValueError("`RUN` is missing: give the folder of a run, or of several.")
            runs = [Run.load(folder) for folder in self.runs]
            folder = self.runs[0] if len(runs) == 1 else Path()
            out = report(runs, self.out or folder / "report.html", split=self.split, seed=self.seed)
            print(f"page: {out.resolve()}")
        return refused.code
