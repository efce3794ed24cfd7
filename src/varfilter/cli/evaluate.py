"""`varfilter evaluate`: a trained run on whole held-out sequences."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from varfilter.cli import usage
from varfilter.cli.errors import refusals
from varfilter.cli.options import Command, Number, Particles, RunFolder, Split, named
from varfilter.cli.output import say, tell

SMALLER = "Give a smaller --batch-size, or a smaller --num-particles."


@dataclass(frozen=True)
class Evaluate(Command):
    """Score a run's best model on every sequence of a split, whole.

    The first step of a sequence is conditioned on, and not scored. Prints the free energy (or
    minus another bound) in nats per step by every average that is in use, beside the paper's
    number where there is one, and keeps all of it in RUN/evaluation-SPLIT.json.

    Below the free energy stands minus the particle bound (fivo), of the filter with many
    trajectories that `varfilter filter` applies; it is nearer to -log p(x), and takes longer.

    examples:
      varfilter evaluate runs/srnn-jsb-avf
      varfilter evaluate runs/srnn-jsb-avf --num-iterations 5 --num-particles 1
      varfilter evaluate runs/srnn-jsb-avf --bound fivo --num-particles 64 --json
    """

    run: RunFolder
    """The folder of a run."""

    split: Split = "test"
    """Which part of the data."""

    bound: Annotated[Literal["elbo", "iwae", "fivo"] | None, named("elbo|iwae|fivo")] = None
    """Another bound than the one that was trained."""

    num_particles: Particles = None
    """Of iwae and fivo (as in training); with elbo, of the particle bound below it (64; 32 for
    sound, 16 for music, 8 for video), and 1 leaves that out."""

    num_iterations: Annotated[int | None, named("K")] = None
    """AVF: another number of inference iterations than in training."""

    batch_size: Annotated[int | None, named("N")] = None
    """Sequences that are filtered at once (as many as memory allows)."""

    seed: Number = 0
    """The seed of the draws of z_t."""

    json: bool = False
    """Print one JSON object instead of a table."""

    @classmethod
    def main(cls, prog: str, words: Sequence[str]) -> int:
        """Parse the words after `prog`, and run; the scores keep the words."""
        if usage.is_asked(words):
            return super().main(prog, words)
        return cls.parsed(prog, words)((*prog.split(), *words))

    def __call__(self, words: Sequence[str] = ()) -> int:
        """Run; returns the exit code. `words` are put on record as the command that was given."""
        with refusals(SMALLER, self.flags) as refused:
            from varfilter._arguments import require_positive
            from varfilter.runs.folder import write_whole
            from varfilter.runs.run import Run
            from varfilter.runs.scores import name_of, score_particles, score_run
            from varfilter.runs.surroundings import surroundings

            run = Run.load(self.run)
            if self.num_particles is not None:
                require_positive("num_particles", self.num_particles)
            is_elbo = (self.bound or run.experiment.filter.bound) == "elbo"
            options = {
                "split": self.split,
                "num_iterations": self.num_iterations,
                "seed": self.seed,
                "batch_size": self.batch_size,
            }
            begin = time.perf_counter()
            particles = None if is_elbo else self.num_particles
            scores = score_run(run, bound=self.bound, num_particles=particles, **options)
            scores |= {"particle_bound": None, "command": list(words), **surroundings()}
            path = run.folder / name_of(scores, run, self.num_particles)
            if not self.json:
                _print(scores)
            # Kept at once: what follows may take long, and be interrupted.
            write_whole(path, json.dumps(scores, indent=1) + "\n")
            if is_elbo and self.num_particles != 1:
                count = self.num_particles or run.medium.num_particles
                seconds = time.perf_counter() - begin
                tell(
                    f"Scoring with {count} particles too, up to {count} times as long as the"
                    f" {seconds:.0f} s so far; --num-particles 1 leaves it out."
                )
                scores["particle_bound"] = score_particles(run, num_particles=count, **options)
                write_whole(path, json.dumps(scores, indent=1) + "\n")
            if self.json:
                print(json.dumps(scores, indent=1))
            else:
                _print_last(scores, path)
        return refused.code


def _print(scores: dict[str, Any]) -> None:
    bound = scores["bound"]
    if scores["num_particles"] is not None:
        bound += f" with {scores['num_particles']} particles"
    if scores["num_iterations"] is not None:
        bound += f", {scores['num_iterations']} inference iteration(s)"
    say(
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
    say(" ".join([corner.ljust(30), *(title.rjust(18) for title in columns)]))
    for title, name in rows.items():
        cells = (_number(column.get(name)).rjust(18) for column in columns.values())
        say(" ".join([title.ljust(30), *cells]))
    if error is not None:
        say(f"{'standard error over sequences':<30} {_number(error):>18}")
    if len(iterations := scores["nats_by_iteration"]) > 1:
        prior, *others = map(_number, iterations)
        say(f"by iteration: {prior} at the prior, then {', '.join(others)}")
    if (reference := scores["reference"]) is not None:
        say(
            f"naive reference: {_number(reference['nats'])} nats per step, {reference['what']};"
            " a model must be below"
        )
    say(f"prediction error, in the data's units: {_number(scores['prediction_error'])}")
    if density:
        say("The data are quantised: F of densities = F of probabilities + n log(width).")
    if published and scores["split"] != "test":
        say(f"The paper's number is of the test part; this is {scores['split']}.")


def _print_last(scores: dict[str, Any], path: Path) -> None:
    if (found := scores["particle_bound"]) is not None:
        by_step = _number(found["nats_by_step"])
        density = found["density"] or {}
        also = f"; of densities {_number(density['nats'])}" if density else ""
        say(
            f"{found['bound']} with {found['num_particles']} particles: {_number(found['nats'])}"
            f" nats per step ({by_step} with equal weight per step{also})"
        )
    say(f"kept in {path}")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if math.isfinite(value) and abs(value) >= 1000 else f"{value:.4f}"
