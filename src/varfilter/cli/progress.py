"""What training shows while it goes on: a live table on a terminal, else now and then a line."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

import jax
import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from varfilter._arguments import require_library
from varfilter._text import count, printable, say_labelled, tell
from varfilter.cli.exits import Stopping
from varfilter.cli.options import TrainOptions
from varfilter.cli.overview import Correction
from varfilter.runs.checkpointing import Best
from varfilter.runs.metrics import collapse, rise
from varfilter.runs.plan import Plan
from varfilter.runs.run import Run
from varfilter.runs.training import Event, Resumed, Stopped, Updated, Validated, Validating

# Between two lines where nobody watches, and between two pictures where somebody does.
SECONDS_PER_LINE = 5.0
SECONDS_PER_PICTURE = 0.25
COMPILING = "compiling ..."

Show = Callable[[Event], Stopped | None]


@contextmanager
def shown_by(
    run: Run, options: TrainOptions, stopping: Stopping, plan: Plan | None = None
) -> Iterator[Show]:
    """A function that shows an event, and returns it if it is the end.

    What the `plan` expected is corrected once the first updates have shown their pace.
    """
    console = Console(stderr=True)
    with ExitStack() as stack:
        stack.enter_context(printing_above(console, stopping))
        viewers: list[Any] = []
        if options.tensorboard:
            viewers.append(stack.enter_context(scalars(run)))
        if not options.quiet:
            viewer = _Live if console.is_terminal else _Lines
            viewers.append(stack.enter_context(viewer(console, run, options.max_updates)))
            if plan is not None:
                viewers.append(Correction(plan))
            viewers.append(_Warnings(run))

        def show(event: Event) -> Stopped | None:
            if isinstance(event, Resumed):
                print_resumed(event, quiet=options.quiet or has_ended(plan))
            for viewer in viewers:
                viewer.show(event)
            return event if isinstance(event, Stopped) else None

        yield show


@contextmanager
def printing_above(console: Console, stopping: Stopping) -> Iterator[None]:
    """Let what is said of a signal be printed above the picture, if there is one."""
    if console.is_terminal:
        stopping.print_above = console.print
    try:
        yield
    finally:
        stopping.print_above = None


def print_resumed(event: Any, *, quiet: bool) -> None:
    """Print the step that training resumes from, and which checkpoints could not be used."""
    for reason in event.refused:
        tell(f"A checkpoint was left out: {reason}")
    if not quiet or event.refused:
        tell(f"Going on from step {event.step}.")


def has_ended(plan: Plan | None) -> bool:
    """Whether it was known beforehand that there is nothing left to do."""
    return plan is not None and not plan.left


class Pace:
    """The time that updates and validations take, without compiling; and the time left.

    A program is compiled when it is first used: by the first updates, and others where an epoch's
    last updates are fewer than usual, and by the first validation. What takes far longer than
    usual is left out by taking medians.
    """

    def __init__(self, max_updates: int | None):
        self.max_updates = max_updates
        self.seconds: deque[float] = deque(maxlen=50)
        self.validations: deque[float] = deque(maxlen=10)
        self.step = self.num_validated = self.first_validated = self.last_validated = 0
        self.first: int | None = None
        self.is_measuring = False
        self.last = time.perf_counter()

    def add(self, event: Event) -> None:
        """Take note of an event that took the time since the one before."""
        now = time.perf_counter()
        begin, self.last = self.last, now
        is_measured, self.is_measuring = self.is_measuring, isinstance(event, Validating)
        if isinstance(event, Updated):
            # The first ones are compiled; straight after `Validating`, a validation was measured.
            if self.first is None:
                self.first = event.step
            elif not is_measured:
                self.seconds.append((now - begin) / max(event.step - self.step, 1))
            self.step = event.step
        elif isinstance(event, Validated) and self.first is not None:
            self.num_validated += 1
            self.last_validated = self.step
            if self.num_validated > 1:
                self.validations.append(now - begin)
            else:
                self.first_validated = self.step

    @property
    def per_second(self) -> float | None:
        """Updates in a second, while there are updates."""
        return 1.0 / max(median(self.seconds), 1e-9) if self.seconds else None

    def end(self, event: Updated) -> int:
        """The last update that will be made."""
        return min(event.num_updates, self.max_updates or event.num_updates)

    def place(self, event: Updated) -> str:
        """Where training is, in words."""
        step = f"step {event.step:,} of {self.end(event):,}"
        return f"epoch {event.epoch:,} of {event.num_epochs:,}, {step}"

    def left(self, event: Updated) -> float | None:
        """Seconds to the end."""
        if not self.seconds:
            return None
        per_update = median(self.seconds)
        if self.validations:
            # As many more, for each update, as there were from the first on.
            often = (self.num_validated - 1) / max(self.last_validated - self.first_validated, 1)
            per_update += often * median(self.validations)
        return max(self.end(event) - event.step, 0) * per_update


class SparseLines:
    """A viewer that prints a line at most every few seconds, and the last one at the end."""

    def __init__(self, max_updates: int | None):
        self.pace = Pace(max_updates)
        self.updated: Updated | None = None
        self.waiting: str | None = None
        self.last = -SECONDS_PER_LINE

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.print_waiting()

    def add_line(self, line: str) -> None:
        """Print a line, or keep it in the place of the one before until it is due."""
        self.waiting = line
        if time.perf_counter() - self.last >= SECONDS_PER_LINE:
            self.print_waiting()

    def print_waiting(self) -> None:
        """Print the line that was kept, if there is one."""
        if self.waiting is not None:
            tell(self.waiting)
            self.waiting, self.last = None, time.perf_counter()


class _Lines(SparseLines):
    """One line for a validation, at most every few seconds, and the last one."""

    def __init__(self, console: Any, run: Run, max_updates: int | None):
        super().__init__(max_updates)

    def show(self, event: Event) -> None:
        self.pace.add(event)
        if isinstance(event, Updated):
            self.updated = event
        elif isinstance(event, Validated):
            self.add_line(self._line(event))

    def _line(self, event: Validated) -> str:
        line, train = event.line, event.line["train"]
        parts = ""
        if "kl" in train:
            weight = f" times {line['kl_weight']:.2g}" if line["kl_weight"] < 1.0 else ""
            parts = f" (reconstruction {train['reconstruction']:.4g}, KL {train['kl']:.4g}{weight})"
        skipped = f", {line['num_skipped']} skipped" if line["num_skipped"] else ""
        left = None if self.updated is None else self.pace.left(self.updated)
        return (
            f"epoch {line['epoch']:g}, step {line['step']}{skipped}:"
            f" train {train.get('free_energy', float('nan')):.4f}{parts},"
            f" valid {line['valid']['nats']:.4f}{scored_part(line)},"
            f" best {line['best']:.4f} nats per step"
            + (f"; {written_duration(left)} left" if left else "")
        )


class _Live:
    """A table that is drawn again and again in its place."""

    def __init__(self, console: Any, run: Run, max_updates: int | None):
        self.name = printable(run.experiment.name)
        self.pace = Pace(max_updates)
        self.valid: dict[str, Any] | None = None
        self.updated: Updated | None = None
        self.last = 0.0
        self.live = Live(console=console, auto_refresh=False)
        self.live.update(Text(f"{self.name}: {COMPILING}"), refresh=True)

    def __enter__(self) -> "_Live":
        self.live.__enter__()
        self.live.refresh()
        return self

    def __exit__(self, *error: Any) -> None:
        # What stays on the screen is where training ended, with no time left.
        if self.updated is not None:
            self.live.update(self._picture(self.updated, is_over=True), refresh=True)
        # Where nothing was done, nothing stays.
        self.live.transient = self.updated is None
        self.live.__exit__(*error)

    def show(self, event: Event) -> None:
        self.pace.add(event)
        if isinstance(event, Updated):
            self.updated = event
        elif isinstance(event, Validated):
            self.valid = event.line
        if self.updated is None:
            what = validating(event) if isinstance(event, Validating) else COMPILING
            self.live.update(Text(f"{self.name}: {what}"), refresh=True)
            return
        if isinstance(event, Validating):
            picture = Group(self._picture(self.updated), Text(validating(event)))
            self.live.update(picture, refresh=True)
            return
        # The last validation is always shown: what is printed below the picture agrees with it.
        is_due = time.perf_counter() - self.last >= SECONDS_PER_PICTURE
        if is_due or not isinstance(event, Updated):
            self.live.update(self._picture(self.updated), refresh=True)
            self.last = time.perf_counter()

    def _picture(self, event: Updated, *, is_over: bool = False) -> Table:
        means = jax.tree.map(lambda m: np.mean(m, axis=0), jax.device_get(event.metrics))
        picture = Table.grid(padding=(0, 2))
        rate, left = self.pace.per_second, self.pace.left(event)
        picture.add_row(Text(self.name), self.pace.place(event))
        if rate is not None and left is not None:
            end = "" if is_over else f", {written_duration(left)} left"
            picture.add_row("pace", f"{rate:.3g} updates/s{end}")
        parts = f"{means.free_energy:.4f} nats per step"
        if means.kl is not None and means.reconstruction is not None:
            parts += f": reconstruction {means.reconstruction:.4f}, KL {means.kl:.4f}"
        picture.add_row("free energy", parts)
        if means.free_energies.size > 1:
            prior, *others = (f"{value:.4f}" for value in means.free_energies)
            picture.add_row("by iteration", f"prior {prior}, then {', '.join(others)}")
        norms = f"theta {means.theta_gradient_norm:.3g}, phi {means.phi_gradient_norm:.3g}"
        picture.add_row("gradients", f"{norms}; {count(event.num_skipped, 'update')} skipped")
        if self.valid is not None:
            nats, best = self.valid["valid"]["nats"], self.valid["best"]
            text = f"last {nats:.4f}, best {best:.4f} nats per step{scored_part(self.valid)}"
            picture.add_row("validation", text)
        return picture


class _Warnings:
    """Says once what is bad about the validations so far, when it becomes so."""

    def __init__(self, run: Run):
        self.run = run
        self.said: set[Any] = set()

    def show(self, event: Event) -> None:
        if not isinstance(event, Validated):
            return
        lines = self.run.metrics()
        for judge in (rise, collapse):
            if judge not in self.said and (text := judge(lines)) is not None:
                say_labelled([("warning:", text)])
                self.said.add(judge)


class _Scalars:
    """Each line of the metrics for TensorBoard."""

    def __init__(self, writer: Any):
        self.writer = writer

    def show(self, event: Event) -> None:
        if not isinstance(event, Validated):
            return
        for part in ("train", "valid"):
            for name, value in event.line[part].items():
                values = value if isinstance(value, list) else [value]
                for i, number in enumerate(values):
                    suffix = f"/{i}" if isinstance(value, list) else ""
                    if number is not None:
                        self.writer.add_scalar(f"{part}/{name}{suffix}", number, event.line["step"])


@contextmanager
def scalars(run: Run) -> Iterator[_Scalars]:
    """A viewer that writes the metrics of a run for TensorBoard."""
    writer = require_library("tensorboardX", extra="tensorboard").SummaryWriter(
        str(run.folder / "tensorboard")
    )
    try:
        yield _Scalars(writer)
    finally:
        writer.close()


def validating(event: Validating) -> str:
    """What is said while a validation goes on."""
    return f"validating {event.num_sequences:,} of {count(event.of, 'sequence')} ..."


def best_score(run: Run, best: Best) -> list[str]:
    """What is said of the lowest validation of a run that has ended, in lines; none if none was."""
    if not best.step:
        return []
    lines = run.metrics()
    part = scored_part(lines[-1]) if lines else ""
    found = [f"best validation: {best.valid:.4f} nats per step at step {best.step:,}{part}"]
    if best.full is not None:
        found.append(f"on all sequences: {best.full:.4f} nats per step")
    return found


def scored_part(line: dict[str, Any]) -> str:
    """How much of the validation part was scored, if not all of it."""
    scored, of = line["valid"].get("num_sequences"), line["valid"].get("of")
    return "" if of in (None, scored) else f" ({scored:,} of {of:,} sequences)"


def written_duration(seconds: float) -> str:
    """A length of time in few letters."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
