"""`varfilter report` and `varfilter reproduce`: pages on runs, and on what the paper shows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from varfilter.cli.errors import refusals
from varfilter.cli.options import Command, Number, Particles, Split, named
from varfilter.cli.output import say, tell


@dataclass(frozen=True)
class Report(Command):
    """Score runs on whole held-out sequences, and write one self-contained page on them.

    Results beside the paper's, learning curves, what each inference iteration gains, pictures
    of data, predictions and reconstructions, calibration, the best and the worst sequences.
    Scores are of the bound that was trained; pictures and calibration are of the filter that the
    run applies to new data. All of its numbers go to a .json file of the same name.

    examples:
      varfilter report runs/srnn-jsb-avf
      varfilter report runs/srnn-jsb-avf runs/srnn-jsb-baseline --out jsb.html
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, named("RUN [RUN ...]")]
    """The folders of runs."""

    out: Annotated[Path | None, named("FILE.html")] = None
    """The page (RUN/report.html for one run, report.html for several)."""

    split: Split = "test"
    """Which part of the data is scored and shown."""

    seed: Number = 0
    """The seed of the draws, and of the choice of sequences that are shown."""

    num_particles: Particles = None
    """Trajectories behind pictures and calibration (64; 32 for sound, 16 for music, 8 for
    video); 1 is the paper's filter."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals("Give a smaller --num-particles.", self.flags) as refused:
            from varfilter.report import report
            from varfilter.runs.run import Run

            if not self.runs:
                raise ValueError("`RUN` is missing: give the folder of a run, or of several.")
            runs = [Run.load(folder) for folder in self.runs]
            folder = self.runs[0] if len(runs) == 1 else Path()
            out = report(
                runs,
                self.out or folder / "report.html",
                split=self.split,
                seed=self.seed,
                num_particles=self.num_particles,
            )
            say(f"page: {out.resolve()}")
        return refused.code


@dataclass(frozen=True)
class Reproduce(Command):
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
    """Which table (speech, video, music) or figure (waveforms, iterations) of the paper to make."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("reproduced")
    """The folder to write to; it is made if it is not there."""

    runs: Annotated[Path | None, named("DIR")] = None
    """The folder of the runs (DIR/runs)."""

    max_updates: Annotated[int | None, named("N")] = None
    """A short try: at most so many updates of each. The caption says so."""

    at_hand: bool = False
    """Take free data (timit-sample, weizmann) where the paper's are not here."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        smaller = "Give another machine: the sizes are the paper's."
        with refusals(smaller, self.flags) as refused:
            from varfilter.report import reproduce

            page = reproduce(
                self.what,
                self.out,
                runs=self.runs,
                max_updates=self.max_updates,
                at_hand=self.at_hand,
                tell=tell,
            )
            say(*page.with_suffix(".md").read_text(encoding="utf-8").splitlines())
            say(f"page: {page.resolve()}")
        return refused.code
