"""`varfilter evaluate`: a trained run on whole held-out sequences."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from varfilter.cli.errors import refusals
from varfilter.cli.options import Command, Number, RunFolder, Split, named

SMALLER = "Give a smaller --batch-size, or a smaller --num-particles."


@dataclass(frozen=True)
class Evaluate(Command):
    """Score a run's best model on every sequence of a split, whole.

    The first step of a sequence is conditioned on, and not scored. Prints the free energy (or
    minus another bound) in nats per step by every average that is in use, beside the paper's
    number where there is one, and keeps all of it in RUN/evaluation-SPLIT.json.

    examples:
      varfilter evaluate runs/srnn-jsb-avf
      varfilter evaluate runs/srnn-jsb-avf --num-iterations 5
      varfilter evaluate runs/srnn-jsb-avf --bound fivo --num-particles 64 --json
    """

    run: RunFolder
    """The folder of a run."""

    split: Split = "test"
    """Which part of the data."""

    bound: Annotated[Literal["elbo", "iwae", "fivo"] | None, named("elbo|iwae|fivo")] = None
    """Another bound than the one that was trained."""

    num_particles: Annotated[int | None, named("N")] = None
    """How many particles iwae and fivo have (as in training)."""

    num_iterations: Annotated[int | None, named("K")] = None
    """AVF: another number of inference iterations than in training."""

    batch_size: Number = 16
    """Sequences that are filtered at once."""

    seed: Number = 0
    """The seed of the draws of z_t."""

    json: bool = False
    """Print one JSON object instead of a table."""

    @classmethod
    def main(cls, prog: str, words: Sequence[str]) -> int:
        """Parse the words after `prog`, and run; the scores keep the words."""
        return tyro.cli(cls, prog=prog, args=words)((*prog.split(), *words))

    def __call__(self, words: Sequence[str] = ()) -> int:
        """Run; returns the exit code. `words` are put on record as the command that was given."""
        with refusals(SMALLER) as refused:
            from varfilter.runs.run import Run, surroundings, write_whole
            from varfilter.runs.scores import name_of, score_run

            run = Run.load(self.run)
            scores = score_run(
                run,
                split=self.split,
                bound=self.bound,
                num_particles=self.num_particles,
                num_iterations=self.num_iterations,
                seed=self.seed,
                batch_size=self.batch_size,
            )
            scores |= {"command": list(words), **surroundings()}
            path = run.folder / name_of(scores, run)
            text = json.dumps(scores, indent=1)
            print(text) if self.json else _print(scores, path)
            write_whole(path, text + "\n")
        return refused.code


def _print(scores: dict[str, Any], path: Path) -> None:
    bound = scores["bound"]
    if scores["num_particles"] is not None:
        bound += f" with {scores['num_particles']} particles"
    if scores["num_iterations"] is not None:
        bound += f", {scores['num_iterations']} inference iteration(s)"
    print(
        f"{scores['experiment']} at step {scores['step']} on {scores['data']} ({scores['split']}):"
        f" {scores['num_sequences']} sequences, {scores['num_steps']} steps; {bound}"
    )
    published, density = scores["published"] or {}, scores["density"] or {}
    columns = {"nats per step": scores}
    if density:
        columns = {"of probabilities": scores, "of densities": density}
    if published:
        columns[f"paper, {published['table']}"] = published
    error = scores["standard_error"]
    rows = {
        "equal weight per sequence": "nats",
        "equal weight per step": "nats_by_step",
        "as the paper's code averages": "nats_as_published",
    }
    corner = "nats per step" if density else ""
    print(" ".join([corner.ljust(30), *(title.rjust(18) for title in columns)]))
    for title, name in rows.items():
        cells = (_number(column.get(name)).rjust(18) for column in columns.values())
        print(" ".join([title.ljust(30), *cells]))
    if error is not None:
        print(f"{'standard error over sequences':<30} {_number(error):>18}")
    if len(iterations := scores["nats_by_iteration"]) > 1:
        prior, *others = map(_number, iterations)
        print(f"by iteration: {prior} at the prior, then {', '.join(others)}")
    if (reference := scores["reference"]) is not None:
        print(
            f"naive reference: {_number(reference['nats'])} nats per step, {reference['what']};"
            " a model must be below"
        )
    print(f"prediction error, in the data's units: {_number(scores['prediction_error'])}")
    if density:
        print("The data are quantised: F of densities = F of probabilities + n log(width).")
    if published and scores["split"] != "test":
        print(f"The paper's number is of the test part; this is {scores['split']}.")
    print(f"kept in {path}")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if math.isfinite(value) and abs(value) >= 1000 else f"{value:.4f}"
