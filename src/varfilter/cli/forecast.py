"""`varfilter forecast`."""

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from varfilter.cli.errors import refusals
from varfilter.cli.filter import code_of, report
from varfilter.cli.running import (
    SMALLER,
    Input,
    Levels,
    Number,
    Out,
    RunFolder,
    require_writable,
)


@dataclass(frozen=True)
class Forecast:
    """How data may go on: mean and quantiles of each step ahead, with a trained run.

    INPUT is as for `varfilter filter`; each of its sequences is filtered to its end, and the
    futures begin there. With INPUT - the lines are read until there are no more.

    examples:
      varfilter forecast runs/pumps new.csv --horizon 24
      varfilter forecast runs/pumps new.csv --horizon 24 --levels 0.1 0.9 --out ahead.csv
    """

    run: RunFolder
    """The folder of a run."""
    input: Input
    """The data to go on from; - for JSON lines on standard input."""
    horizon: Annotated[int, tyro.conf.arg(metavar="H")]
    """How many steps ahead."""
    levels: Levels = (0.05, 0.5, 0.95)
    """The quantiles to give."""
    num_samples: Number = 256
    """How many futures to draw."""
    out: Out = None
    """.jsonl, .csv, .parquet or .npz (JSON lines to standard output)."""
    seed: Number = 0
    """All randomness comes from this number."""
    skip_bad_lines: bool = False
    """Leave out bad lines of standard input, and go on."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals(f"{SMALLER[:-1]} or --horizon.") as refused:
            from varfilter._arguments import require_positive
            from varfilter.outputs import require_ending, write_rows
            from varfilter.prediction import require_levels
            from varfilter.runs.run import Run

            require_writable(self.out)
            require_positive("--horizon", self.horizon)
            run = Run.load(self.run)
            if self.out is not None:
                size = 1 if run.table is not None else run.dataset_like.num_elements
                require_ending(self.out, num_elements=size)
            options = {
                "seed": self.seed,
                "num_samples": self.num_samples,
                "levels": require_levels(self.levels),
            }
            if self.input == "-":
                from varfilter.runs.applied import ready
                from varfilter.runs.live import LineFilter

                ours = ready(run, **options)
                lines = LineFilter(ours, report, skip_bad_lines=self.skip_bad_lines)
                write_rows(lines.forecast_rows(sys.stdin.buffer, self.horizon), self.out)
                return code_of(lines)
            from varfilter.runs.applied import forecast_input

            write_rows(forecast_input(run, self.input, self.horizon, **options), self.out)
        return refused.code
