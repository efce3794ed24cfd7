"""`varfilter filter`."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from varfilter.cli.errors import refusals
from varfilter.cli.running import (
    SMALLER,
    Input,
    Levels,
    Number,
    Out,
    RunFolder,
    named,
    require_writable,
)

if TYPE_CHECKING:
    from varfilter.runs.live import LineFilter


@dataclass(frozen=True)
class Filter:
    """Filter new data with a trained run: the prediction of each step, and how surprising it was.

    INPUT is of the kind the run was trained on: a table, a MIDI file or rolls, a sound file, a
    film or a folder of images; or a folder of such files. It is read with the run's scaling and
    rate; the training data need not be there. The first step of a sequence is given, and has no
    prediction.

    INPUT - is for tables as they come: a JSON object a line on standard input, with the names of
    the columns; null or absent is missing. The columns of time and sequence may be there. A row
    goes out before the next line is waited for, and its prediction was made before its line came.
    A bad line ends it with exit code 2, after all that came before was written.

    examples:
      varfilter filter runs/pumps new.csv --out filtered.csv
      varfilter filter runs/srnn-jsb-avf song.mid --out song.jsonl
      tail -f readings.jsonl | varfilter filter runs/pumps - --levels 0.05 0.95
    """

    run: RunFolder
    """The folder of a run."""
    input: Input
    """The data to filter; - for JSON lines on standard input."""
    out: Out = None
    """.jsonl, .csv, .parquet or .npz (JSON lines to standard output)."""
    latents: bool = False
    """With the mean and the spread of the latents."""
    seed: Number = 0
    """All randomness comes from this number."""
    num_samples: Annotated[int | None, named("N")] = None
    """Draws of the latent for each prediction (128; 16 for films)."""
    levels: Levels = ()
    """With these quantiles of the prediction, such as 0.05 0.95."""
    skip_bad_lines: bool = False
    """Leave out bad lines of standard input, and go on."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals(SMALLER) as refused:
            from varfilter.outputs import require_ending, write_rows
            from varfilter.runs.run import Run

            require_writable(self.out)
            run = Run.load(self.run)
            if self.out is not None:
                is_table = run.table is not None
                size = 1 if is_table else run.dataset_like.num_elements
                require_ending(self.out, num_elements=size)
            options = {
                "seed": self.seed,
                "num_samples": self.num_samples,
                "levels": self.levels,
                "latents": self.latents,
            }
            if self.input == "-":
                from varfilter.runs.applied import ready
                from varfilter.runs.live import LineFilter

                ours = ready(run, **options)
                lines = LineFilter(ours, report, skip_bad_lines=self.skip_bad_lines)
                write_rows(lines.rows(sys.stdin.buffer), self.out)
                return code_of(lines)
            from varfilter.runs.applied import filter_input

            write_rows(filter_input(run, self.input, **options), self.out)
        return refused.code


def report(message: str) -> None:
    """To people, beside the rows."""
    print(message, file=sys.stderr, flush=True)


def code_of(lines: "LineFilter") -> int:
    """The exit code after the last line."""
    if lines.interrupted:
        report("Interrupted.")
        return 130
    if lines.refused:
        report("Stopped there. To leave such lines out and go on: --skip-bad-lines.")
        return 2
    if lines.num_bad:
        report(f"{lines.num_bad} of {lines.num_lines} lines were bad, and left out.")
    return 0
