"""`varfilter evaluate`: the scores of a run on whole held-out sequences."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from varfilter._text import count, say, tell
from varfilter.cli import usage
from varfilter.cli.exits import refusals
from varfilter.cli.options import (
    Command,
    Futures,
    Horizon,
    Number,
    Particles,
    RunFolder,
    Split,
    named,
    require_measured,
)

SMALLER = "Give a smaller --batch-size, or a smaller --num-particles."


@dataclass(frozen=True)
class Evaluate(Command):
    """Score a run's best model on every sequence of a split, whole.

    The first step of a sequence is conditioned on, and not scored. Prints the free energy (or
    minus another bound) in nats per step by every average that is in use, beside the paper's
    number where there is one, and keeps all of it in RUN/evaluation-SPLIT.json. What is asked
    otherwise than by default is in the name of the file (evaluation-test-iterations-5.json).

    Below the free energy stands minus the particle bound (fivo), of the filter with many
    trajectories that `varfilter filter` applies; it is nearer to -log p(x), and takes longer.
    Then come the measures of the medium, of the same filter, beside what takes no learning: of
    music the frame accuracy, and notes a step; of sound bits a sample, beside linear prediction; of
    video bits a dimension, and PSNR and SSIM of the best of --num-futures, 1 to 20 frames ahead.
    Of a table, that filter then stands beside the last value, that of a season before and a linear
    state-space model, column by column, one step and --horizon steps ahead. Nats are of its columns
    in standardised units: less their mean in training, by their spread there.

    examples:
      varfilter evaluate runs/srnn-jsb-avf
      varfilter evaluate runs/sensors --horizon 20
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
    """AVF: another number of inference iterations than in training, of all that is scored."""

    horizon: Horizon = None
    """Tables: steps ahead that are scored by column, beside one step ahead (10)."""

    num_futures: Futures = None
    """Video: futures of which the best counts (10; papers draw 100; 0 leaves it out)."""

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
            from varfilter.cli.comparison import say_comparison
            from varfilter.runs.comparison import compare_run, compared_part
            from varfilter.runs.folder import surroundings, write_whole
            from varfilter.runs.measures import measure_run
            from varfilter.runs.pretrained import is_pretrained
            from varfilter.runs.run import Run
            from varfilter.runs.scores import name_of, outdone_by, score_particles, score_run

            run = Run.load(self.run)
            for name in ("num_particles", "num_iterations", "horizon", "batch_size"):
                if getattr(self, name) is not None:
                    require_positive(name, getattr(self, name))
            require_measured(self, [run])
            if self.num_iterations is not None:
                _require_iterations(run, self.num_iterations)
            if self.horizon is not None:  # refused before the scores, which take long
                compared_part(run.dataset, self.split, self.horizon)
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
            # Those of a model that comes with varfilter are kept where one is.
            folder = Path() if is_pretrained(run.folder) else run.folder
            path = folder / name_of(scores, run, self.num_particles, self.horizon, self.num_futures)
            if not self.json:
                _print(scores)
            # Kept at once: what follows may take long, and be interrupted.
            write_whole(path, json.dumps(scores, indent=1) + "\n")
            if is_elbo and self.num_particles != 1:
                num_particles = self.num_particles or run.medium.num_particles
                seconds = time.perf_counter() - begin
                tell(
                    f"Scoring with {num_particles} particles too, up to {num_particles} times as"
                    f" long as the {seconds:.0f} s so far; --num-particles 1 leaves it out."
                )
                scores["particle_bound"] = score_particles(
                    run, num_particles=num_particles, **options
                )
            scores["measures"] = measure_run(
                run, split=self.split, seed=self.seed, num_particles=self.num_particles,
                num_iterations=self.num_iterations, num_futures=self.num_futures, scores=scores,
            )  # fmt: skip
            scores["comparison"] = compare_run(
                run, split=self.split, horizon=self.horizon, seed=self.seed,
                num_particles=self.num_particles, num_iterations=self.num_iterations,
            )  # fmt: skip
            write_whole(path, json.dumps(scores, indent=1) + "\n")
            if self.json:
                print(json.dumps(scores, indent=1))
            else:
                _print_bound(scores)
                _print_measures(scores["measures"])
                if (said := outdone_by(scores)) is not None:
                    say(f"warning: {said}")
                if scores["comparison"] is not None:
                    say_comparison(scores["comparison"])
                say(f"kept in {path}")
        return refused.code


def _require_iterations(run: Any, num_iterations: int) -> None:
    """Refuse another number of iterations of what has none that are chosen after training."""
    from varfilter.experiments.settings import AVF

    inference = run.experiment.filter.inference
    if not isinstance(inference, AVF):
        raise ValueError(
            f"`num_iterations` is {num_iterations}, but this run infers by the method"
            f" {type(inference).__name__.lower()!r}, whose iterations are not to be chosen after"
            " training. Leave it out, or evaluate a run of AVF."
        )


def _print(scores: dict[str, Any]) -> None:
    bound = scores["bound"]
    if scores["num_particles"] is not None:
        bound += f" with {count(scores['num_particles'], 'particle')}"
    if scores["num_iterations"] is not None:
        bound += f", {count(scores['num_iterations'], 'inference iteration')}"
    scored = f"{count(scores['num_sequences'], 'sequence')}, {count(scores['num_steps'], 'step')}"
    say(
        f"{scores['experiment']} at step {scores['step']} on {scores['data']} ({scores['split']}):"
        f" {scored}; {bound}"
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


def _print_bound(scores: dict[str, Any]) -> None:
    if (found := scores["particle_bound"]) is not None:
        by_step = _number(found["nats_by_step"])
        density = found["density"] or {}
        also = f"; of densities {_number(density['nats'])}" if density else ""
        say(
            f"{found['bound']} with {count(found['num_particles'], 'particle')}:"
            f" {_number(found['nats'])} nats per step ({by_step} with equal weight per step{also})"
        )


def _print_measures(measures: list[dict[str, Any]]) -> None:
    for each in measures:
        others = "".join(f"; {name} {_number(value)}" for name, value in each["others"].items())
        better = f", {each['is_better']} is better" if each["is_better"] else ""
        say(f"{each['name']}: {_number(each['value'])}{others} ({each['what']}{better})")
        for name, values in each["by_step"].items():
            shown = [step for step in (1, 5, 10, 20) if step <= len(values)]
            listed = ", ".join(f"{_number(values[step - 1])} at {step}" for step in shown)
            say(f"  {name}: {listed}")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if math.isfinite(value) and abs(value) >= 1000 else f"{value:.4f}"
