"""`varfilter report` and `reproduce`: pages on runs, and on the paper."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from varfilter._text import pasteable, say, tell
from varfilter.cli.exits import STOPPED, Stopping, refusals
from varfilter.cli.options import (
    Command,
    Futures,
    Horizon,
    Number,
    Particles,
    Split,
    TrainOptions,
    named,
    require_measured,
)


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

    horizon: Horizon = None
    """Tables: steps ahead that are scored by column, beside one step ahead, and drawn (10)."""

    num_futures: Futures = None
    """Video: futures of which the best counts (10; papers draw 100; 0 leaves it out)."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals("Give a smaller --num-particles.", self.flags) as refused:
            from varfilter._arguments import require_positive
            from varfilter.report import report
            from varfilter.runs.comparison import compared_part
            from varfilter.runs.run import Run

            if not self.runs:
                raise ValueError("`RUN` is missing: give the folder of a run, or of several.")
            runs = [Run.load(folder) for folder in self.runs]
            for name in ("num_particles", "horizon"):
                if getattr(self, name) is not None:
                    require_positive(name, getattr(self, name))
            require_measured(self, runs)
            for run in runs if self.horizon is not None else ():
                if run.medium.has_column_references:
                    compared_part(run.dataset, self.split, self.horizon)
            folder = self.runs[0] if len(runs) == 1 else Path()
            out = report(
                runs,
                self.out or folder / "report.html",
                split=self.split,
                seed=self.seed,
                num_particles=self.num_particles,
                horizon=self.horizon,
                num_futures=self.num_futures,
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
      varfilter reproduce table-3 --from-results results/table-3
      varfilter reproduce figure-4 --from-results results
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

    from_results: Annotated[Path | None, named("DIR")] = None
    """Train nothing: several seeds of each method, from the files that are kept of a study. DIR has
    the table's cells (results/table-3); of a figure it is the folder of all tables (results)."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        if self.from_results is not None:
            return self._from_results(self.from_results)
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

    def _from_results(self, folder: Path) -> int:
        with refusals(options=self.flags) as refused:
            from varfilter.report.kept import kept_results

            found = kept_results(self.what, folder, self.out)
            say(*found.lines, "", *(f"{path.suffix[1:]}: {path.resolve()}" for path in found.paths))
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

    tell("", f"{run.experiment.name}:")
    stopping.save_with(events.leave, lambda: f"Stopped, and saved. To go on: {command.command()}")
    with shown_by(run, TrainOptions(max_updates=command.max_updates), stopping) as show:

        def seen(event: Any) -> bool:
            if (stopped := show(event)) is not None:
                tell(f"Done at step {stopped.step:,}: {stopped.reason}.")
            elif stopping.is_asked:
                stopping.take_over()
                return True
            return False

        yield seen
    # What was trained is on the disk: a signal need not wait for anything.
    stopping.save_with(lambda: None, lambda: f"Stopped. To go on: {command.command()}")
