"""`varfilter report` and `varfilter reproduce`: pages on runs, and on what the paper shows."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from varfilter._text import pasteable
from varfilter.cli.errors import refusals
from varfilter.cli.options import Command, Number, Particles, Split, TrainOptions, named
from varfilter.cli.output import say, tell
from varfilter.cli.stopping import STOPPED, Stopping


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

    First it says what it will train, and how long that is expected to take here. What was begun
    goes on, what is trained is not trained again; a data set that is not here is left out, with
    the reason. Writes WHAT.html, WHAT.md and WHAT.json, prints the table.

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
        # Before anything is imported that takes its time.
        with Stopping() as stopping, refusals(smaller, self.flags) as refused:
            from varfilter.report import reproduce
            from varfilter.report.paper_tables import terminal_table
            from varfilter.report.reproduction import Interrupted

            try:
                page = reproduce(
                    self.what,
                    self.out,
                    runs=self.runs,
                    max_updates=self.max_updates,
                    at_hand=self.at_hand,
                    tell=tell,
                    watch=partial(_watched, stopping, self),
                )
            except Interrupted:
                say(f"Stopped, and saved. To go on: {self.command()}")
                return STOPPED
            numbers = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
            say("", numbers["title"], "", *terminal_table(numbers), "", f"page: {page.resolve()}")
        return refused.code

    def command(self) -> str:
        """The words that were typed, to be typed again."""
        words = ["varfilter", "reproduce", self.what, "--out", str(self.out)]
        words += [] if self.runs is None else ["--runs", str(self.runs)]
        words += [] if self.max_updates is None else ["--max-updates", str(self.max_updates)]
        return pasteable(*words, *(["--at-hand"] if self.at_hand else []))


@contextmanager
def _watched(stopping: Stopping, command: Reproduce, run: Any, events: Any) -> Iterator[Any]:
    """Show a training as `varfilter train` does; a signal saves it first."""
    from varfilter.cli.progress import shown_by
    from varfilter.runs.training import Stopped

    tell("", f"{run.experiment.name}:")
    stopping.save_with(events.leave, lambda: f"Stopped, and saved. To go on: {command.command()}")
    with shown_by(run, TrainOptions(max_updates=command.max_updates)) as show:

        def seen(event: Any) -> bool:
            if stopping.is_asked and not isinstance(event, Stopped):
                stopping.take_over()
                return True
            show(event)
            if isinstance(event, Stopped):
                tell(f"Done at step {event.step}: {event.reason}.")
            return False

        yield seen
    # What was trained is on the disk: a signal need not wait for anything.
    stopping.save_with(lambda: None, lambda: f"Stopped. To go on: {command.command()}")
