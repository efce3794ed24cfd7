"""`varfilter evaluate`, `report` and `reproduce`: scores of runs, pages on them and the paper."""

import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from varfilter._text import count, pasteable, say, tell
from varfilter.cli import usage
from varfilter.cli.exits import STOPPED, Stopping, refusals
from varfilter.cli.options import (
    Command,
    Futures,
    Horizon,
    Number,
    Particles,
    RunFolder,
    Split,
    TrainOptions,
    named,
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
            _require_measured(self, [run])
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
            _require_measured(self, runs)
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


def _require_measured(command: Evaluate | Report, runs: Sequence[Any]) -> None:
    """Refuse numbers of measures that the media of the runs do not have."""
    if command.num_futures is not None and command.num_futures < 0:
        raise ValueError(f"`num_futures` must not be negative; got {command.num_futures}.")
    trained_on = " and ".join(dict.fromkeys(run.medium.plural for run in runs))
    for name, is_measured, what in (
        ("num_futures", any(run.medium.has_futures for run in runs),
         "how many futures of a video are drawn, of which the best counts"),
        ("horizon", any(run.medium.has_column_references for run in runs),
         "how many steps ahead the columns of a table are scored"),
    ):  # fmt: skip
        value = getattr(command, name)
        if value is not None and not is_measured:
            raise ValueError(
                f"`{name}` is {value}, but says {what}; what was trained here was trained on"
                f" {trained_on}. Leave it out."
            )


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
