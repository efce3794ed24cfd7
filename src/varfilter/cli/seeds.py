"""`varfilter train --seeds`: several runs in one program, and what is shown of them."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from varfilter._arguments import require_positive
from varfilter._text import pasteable, printable, say, say_labelled, tell
from varfilter.cli.exits import STOPPED, Stopping
from varfilter.cli.options import Target, TrainOptions
from varfilter.cli.overview import Correction, overview
from varfilter.cli.progress import (
    COMPILING,
    SECONDS_PER_PICTURE,
    Pace,
    SparseLines,
    best_score,
    has_ended,
    print_resumed,
    printing_above,
    scalars,
    scored_part,
    validating,
    written_duration,
)
from varfilter.media import load
from varfilter.runs.commands import keeping
from varfilter.runs.folder import is_run, seed_folder, seeds_in, updates_made
from varfilter.runs.metrics import collapse, rise
from varfilter.runs.plan import plan_run, reached_in
from varfilter.runs.run import Run
from varfilter.runs.scores import judged_run
from varfilter.runs.sweep import Events, train_runs
from varfilter.runs.training import Resumed, Stopped, Updated, Validated, Validating


def train_seeds(
    target: Target, options: TrainOptions, stopping: Stopping, words: Sequence[str] = ()
) -> int:
    """Train one run for each seed, all in one program; returns the exit code.

    `words` are kept as the command that was given.
    """
    out = options.out
    assert out is not None
    seeds = _seeds(target, options, out)
    earlier = target.run
    if earlier is not None and earlier.experiment.data == target.experiment.data:
        dataset = earlier.dataset
    else:
        dataset = load(target.experiment.data)
    runs = [
        Run.begin(seed_folder(out, seed), replace(target.experiment, seed=seed), dataset)
        for seed in seeds
    ]
    plan, keep = None, keeping(words, options.max_updates, runs)
    if not options.quiet:
        reached = [reached_in(run.folder) for run in runs]
        first = runs[0].experiment
        plan = plan_run(first, dataset, max_updates=options.max_updates, reached=reached)
        lines = overview(runs[0], dataset, plan)
        say_labelled([*lines[:-1], ("seeds", _listed(seeds)), ("runs", f"{out}/seed-N")])
    events = train_runs(
        runs,
        dataset,
        max_updates=options.max_updates,
        seconds_per_checkpoint=options.checkpoint_seconds,
    )
    stopping.save_with(events.leave, lambda: _how_to_go_on(out, _left(runs)))
    stopped: dict[int, Stopped] = {}
    try:
        # Closed before anything else: what was learned is saved.
        with _shown_by(runs, options, stopping, plan) as show, closing(events):
            for event in events:
                keep()
                show(event)
                stopped |= {m: e for m, e in enumerate(event) if isinstance(e, Stopped)}
                if stopping.is_asked and len(stopped) < len(runs):
                    stopping.take_over()
                    break
    except OSError as error:
        tell(error)
        if any(run.has_learned for run in runs):
            say(_how_to_go_on(out, "Training stopped; what was saved before is whole."))
        return 2
    if len(stopped) < len(runs):
        say(_how_to_go_on(out, _left(runs)))
        return STOPPED
    _print_end(out, runs, dataset, stopped, options)
    return 0


def _seeds(target: Target, options: TrainOptions, out: Path) -> Sequence[int]:
    """The seeds to train: those in the folder, or `--seeds` many from the given one on."""
    assert options.seeds is not None
    num_seeds = require_positive("--seeds", options.seeds)
    if options.distributed:
        raise ValueError(
            "`--seeds` trains all in one process, and `--distributed` one run in several. Give one"
            " of them."
        )
    if is_run(out):
        raise ValueError(
            f"`--seeds {num_seeds}` cannot be given for {str(out)!r}, which is the folder of one"
            " run. Give another `--out`: each seed gets a folder in it."
        )
    if target.seeds and (num_seeds, options.seed) == (len(target.seeds), target.experiment.seed):
        return target.seeds
    seeds = range(options.seed, options.seed + num_seeds)
    begun, new = [], []
    for seed in seeds:
        (begun if is_run(seed_folder(out, seed)) else new).append(seed)
    if new and (ahead := [seed for seed in begun if updates_made(seed_folder(out, seed))]):
        raise ValueError(
            f"`--seeds {num_seeds}`: there are runs of some of these seeds in {str(out)!r} (seed-"
            f"{ahead[0]} is at step {updates_made(seed_folder(out, ahead[0]))}), and none of seed"
            f" {new[0]} yet: they cannot begin in one program. Train the new ones by themselves,"
            f" `--seed {new[0]} --seeds {len(new)}`, or all of them with another `--out`."
        )
    if left_out := sorted(set(seeds_in(out)) - set(seeds)):
        names = ", ".join(map(str, left_out))
        tell(f"The runs of the seeds {names} in {str(out)!r} are left as they are.")
    return seeds


def _listed(seeds: Sequence[int]) -> str:
    """The seeds in words, and what that means."""
    many = len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1
    names = f"{seeds[0]} to {seeds[-1]}" if many else " and ".join(map(str, seeds))
    return f"{names}, in one program; each has its own folder, and stops by itself"


def _how_to_go_on(out: Path, before: str) -> str:
    return f"{before} To go on: varfilter train {pasteable(str(out))}"


def _left(runs: Sequence[Run]) -> str:
    has_learned = any(run.has_learned for run in runs)
    return "Stopped, and saved." if has_learned else "Stopped; nothing was learned yet."


def _print_end(
    out: Path,
    runs: Sequence[Run],
    dataset: Any,
    stopped: dict[int, Stopped],
    options: TrainOptions,
) -> None:
    from varfilter.cli.comparison import say_alarms, say_comparison, tell_what_comes
    from varfilter.runs.applied import calibrate_run
    from varfilter.runs.comparison import remember_comparisons

    lines: list[tuple[str, str]] = []
    for run, end in zip(runs, (stopped[m] for m in range(len(runs))), strict=True):
        lines.append((run.folder.name, f"done at step {end.step:,}: {end.reason}"))
        lines += [("", text) for text in best_score(run, end.best)]
    best = [end.best.valid for end in stopped.values() if end.best.step]
    if len(best) > 1:
        lines.append(
            (f"{len(best)} seeds", f"best validation: {_mean_and_spread(best)} nats per step")
        )
    say_labelled(lines, sys.stdout)
    if not options.quiet:
        tell_what_comes(runs[0])
    # Now, since the data are at hand: the folders may go where they are not.
    healthy = [calibrate_run(run, dataset) for run in runs]
    say_alarms(runs[0], healthy[0])
    compared = remember_comparisons(runs, dataset, options.horizon or 1)
    if compared is not None and not options.quiet:
        say_comparison(compared)
    said: dict[str, list[str]] = {}
    for run in runs:
        for text in judged_run(run, dataset):
            said.setdefault(text, []).append(run.folder.name)
    warnings = [("warning:", f"{', '.join(who)}: {text}") for text, who in said.items()]
    say_labelled(warnings, sys.stdout)
    say(f"runs: {out}", f"next: {runs[0].command('evaluate')}", "      and so each of them")


def _mean_and_spread(values: Sequence[float]) -> str:
    """The mean, and the standard deviation of one run if there are several."""
    spread = f" +- {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
    return f"{np.mean(values):.4f}{spread}"


@contextmanager
def _shown_by(
    runs: Sequence[Run], options: TrainOptions, stopping: Stopping, plan: Any
) -> Iterator[Callable[[Events], None]]:
    """A function that shows what happened to each run."""
    console = Console(stderr=True)
    with ExitStack() as stack:
        stack.enter_context(printing_above(console, stopping))
        writers = [stack.enter_context(scalars(run)) for run in runs if options.tensorboard]
        viewers: list[Any] = []
        if not options.quiet:
            viewer = _SeedTable if console.is_terminal else _Lines
            viewers.append(stack.enter_context(viewer(console, runs, options.max_updates)))
            viewers.append(_Warnings(runs))
        correction = None if plan is None else Correction(plan)

        def show(events: Events) -> None:
            for writer, event in zip(writers, events, strict=False):
                if event is not None:
                    writer.show(event)
            if resumed := [event for event in events if isinstance(event, Resumed)]:
                refused = [reason for event in resumed for reason in event.refused]
                last = max(event.step for event in resumed)
                quiet = options.quiet or has_ended(plan)
                print_resumed(Resumed(last, tuple(refused)), quiet=quiet)
            for viewer in viewers:
                viewer.show(events)
            if correction is not None:
                correction.show(next((event for event in events if event is not None), None))

        yield show


def _first(events: Events, kind: Any) -> Any:
    return next((event for event in events if isinstance(event, kind)), None)


class _Lines(SparseLines):
    """One line for a validation of all, at most every few seconds, and one for each that stops."""

    def __init__(self, console: Any, runs: Sequence[Run], max_updates: int | None):
        super().__init__(max_updates)
        self.runs = runs
        self.best: dict[int, float] = {}
        self.stopped: set[int] = set()

    def show(self, events: Events) -> None:
        """Take note of it, and print what is due."""
        for kind in (Updated, Validated):
            if (event := _first(events, kind)) is not None:
                self.pace.add(event)
        self.updated = _first(events, Updated) or self.updated
        for member, event in enumerate(events):
            if isinstance(event, Stopped):
                self.print_waiting()
                self.stopped.add(member)
                tell(f"{self.runs[member].folder.name} ends at step {event.step}: {event.reason}")
        found = {m: event.line for m, event in enumerate(events) if isinstance(event, Validated)}
        if found:
            self.best |= {m: line["best"] for m, line in found.items()}
            self.add_line(self._line(list(found.values())))

    def _line(self, lines: list[dict[str, Any]]) -> str:
        first = lines[0]
        train = [line["train"].get("free_energy", float("nan")) for line in lines]
        valid = [line["valid"]["nats"] for line in lines]
        skipped = sum(line["num_skipped"] for line in lines)
        left = None if self.updated is None else self.pace.left(self.updated)
        lowest = min(self.best, key=lambda m: self.best[m])
        return (
            f"epoch {first['epoch']:g}, step {first['step']}, {len(lines)} of {len(self.runs)}"
            f" runs{f', {skipped} skipped' if skipped else ''}: train {_mean_and_spread(train)},"
            f" valid {_mean_and_spread(valid)}{scored_part(first)}, best"
            f" {_mean_and_spread(list(self.best.values()))} nats per step, lowest"
            f" {self.best[lowest]:.4f} of {self.runs[lowest].folder.name}"
            + (f"; {written_duration(left)} left" if left else "")
        )


class _SeedTable:
    """A table with a row for each run, that is drawn again and again in its place."""

    def __init__(self, console: Any, runs: Sequence[Run], max_updates: int | None):
        self.runs, self.pace = runs, Pace(max_updates)
        self.rows: list[dict[str, str]] = [{} for _ in runs]
        self.updated: Updated | None = None
        self.what = COMPILING
        self.last = 0.0
        self.live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> "_SeedTable":
        self.live.__enter__()
        self.live.update(self._picture(), refresh=True)
        return self

    def __exit__(self, *error: Any) -> None:
        # What stays on the screen is where training ended, with no time left.
        self.what = self._caption((), is_over=True)
        self.live.update(self._picture(), refresh=True)
        # Where nothing was done, nothing stays.
        self.live.transient = self.updated is None
        self.live.__exit__(*error)

    def show(self, events: Events) -> None:
        """Take note of it, and draw if it is time."""
        for kind in (Updated, Validated):
            if (event := _first(events, kind)) is not None:
                self.pace.add(event)
        self.updated = _first(events, Updated) or self.updated
        is_due = time.perf_counter() - self.last >= SECONDS_PER_PICTURE
        if is_due or _first(events, Updated) is None:
            for row, event in zip(self.rows, events, strict=True):
                row |= self._cells(event)
            self.what = self._caption(events)
            self.live.update(self._picture(), refresh=True)
            self.last = time.perf_counter()

    def _cells(self, event: Any) -> dict[str, str]:
        match event:
            case Updated():
                return {"train": f"{np.mean(event.metrics.free_energy):.4f}"}
            case Validated():
                line = event.line
                return {"valid": f"{line['valid']['nats']:.4f}", "best": f"{line['best']:.4f}"}
            case Stopped():
                return {"": f"ended at step {event.step}: {event.reason}"}
        return {}

    def _caption(self, events: Events, *, is_over: bool = False) -> str:
        if (begun := _first(events, Validating)) is not None:
            return validating(begun)
        if (event := self.updated) is None:
            return self.what
        rate, left = self.pace.per_second, self.pace.left(event)
        text = self.pace.place(event)
        if rate is not None and left is not None:
            text += f"; {rate:.3g} updates/s of each"
            text += "" if is_over else f", {written_duration(left)} left"
        return text

    def _picture(self) -> Group:
        columns = ("train", "valid", "best", "")
        name = printable(self.runs[0].experiment.name)
        picture = Table(name, *columns, box=None)
        for run, row in zip(self.runs, self.rows, strict=True):
            picture.add_row(run.folder.name, *(row.get(column, "") for column in columns))
        # Not as the table's caption, which would be as narrow as the table.
        return Group(picture, Text(self.what))


class _Warnings:
    """Says once what is bad about the validations of some of the runs, when it becomes so."""

    def __init__(self, runs: Sequence[Run]):
        self.runs = runs
        self.said: set[tuple[Any, int]] = set()

    def show(self, events: Events) -> None:
        """Judge those that were just validated."""
        for judge in (rise, collapse):
            found: dict[int, str] = {}
            for member, event in enumerate(events):
                if isinstance(event, Validated) and (judge, member) not in self.said:
                    text = judge(self.runs[member].metrics())
                    found |= {} if text is None else {member: text}
            if found:
                self.said |= {(judge, member) for member in found}
                names = ", ".join(self.runs[member].folder.name for member in found)
                say_labelled([("warning:", f"{names}: {next(iter(found.values()))}")])
