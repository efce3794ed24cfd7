"""`varfilter repair`: what is damaged in a run's folder, put right from what is whole."""

from dataclasses import dataclass

from varfilter.cli.errors import refusals
from varfilter.cli.options import Command, RunFolder


@dataclass(frozen=True)
class Repair(Command):
    """Put right what is damaged in the folder of a run.

    A damaged run.json is restored from the copy in the newest checkpoint that is whole; of a
    damaged metrics.jsonl the lines that are whole are kept. The damaged files stay, with
    `.damaged` behind their names. Checkpoints are not touched: training leaves bad ones out.

    example: varfilter repair runs/srnn-jsb-avf
    """

    run: RunFolder
    """The folder of a run."""

    def __call__(self) -> int:
        """Run; returns the exit code."""
        with refusals() as refused:
            from varfilter.runs.repair import repair_run

            done = repair_run(self.run)
            for sentence in done:
                print(sentence)
            if not done:
                print(f"There is nothing to repair in {self.run}.")
        return refused.code
