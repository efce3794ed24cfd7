"""The paper's tables and figures again: train what is missing, score it, put both side by side."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import jax

from varfilter._text import count
from varfilter.data.dataset import Dataset
from varfilter.experiments import AVF, EXPERIMENTS, Experiment, experiment_named
from varfilter.experiments.costs import duration
from varfilter.media import Source, load
from varfilter.plots.curves import improvement, relative_improvement, validation_curves
from varfilter.plots.figures import caption
from varfilter.plots.page import illustration
from varfilter.plots.style import WIDE, png
from varfilter.report.inspection import inspect_sequences
from varfilter.report.page import write_page
from varfilter.report.paper_tables import paper_markdown, paper_page
from varfilter.report.repetition import command
from varfilter.report.summary import drawn_numbers, score_split
from varfilter.runs import Run, train_run
from varfilter.runs.folder import write_whole
from varfilter.runs.plan import Plan, plan_run, reached_in
from varfilter.runs.training import Event, Stopped, Training, Validated

What = Literal["table-1", "table-2", "table-3", "figure-3", "figure-4"]
TITLES: dict[str, str] = {
    "table-1": "Table 1: free energy per step on TIMIT",
    "table-2": "Table 2: free energy per step on KTH actions",
    "table-3": "Table 3: free energy per step on polyphonic music, SRNN",
    "figure-3": "Figure 3: data, predictions and reconstructions of TIMIT, SRNN with AVF",
    "figure-4": "Figure 4: improvement with inference iterations, VRNN with AVF",
}
# The free sets of the same kind.
AT_HAND = {"timit": "timit-sample", "kth": "weizmann"}
ITERATIONS = (1, 2, 4, 8)
Tell = Callable[[str], None]
# Shows what happens in a training, and says whether it is to be left there.
Show = Callable[[Event], bool]
Watch = Callable[[Run, Training], AbstractContextManager[Show]]


class Interrupted(Exception):
    """Training was left before its end, saved; the same call goes on from there."""


class Task(NamedTuple):
    """An experiment of the paper, what is trained for it here, and what that will take.

    Without the data there is no `experiment`, and `missing` is the reason.
    """

    wanted: Experiment
    folder: Path
    experiment: Experiment | None
    dataset: Dataset | None
    plan: Plan | None
    missing: str | None


class Row(NamedTuple):
    """An experiment of the paper with its run here, or the reason why there is none."""

    wanted: Experiment
    run: Run | None
    missing: str | None

    @property
    def is_at_hand(self) -> bool:
        """Whether other data took the place of the paper's."""
        return self.run is not None and self.run.experiment.data != self.wanted.data


def reproduce(
    what: What,
    out: Path,
    *,
    runs: Path | None = None,
    max_updates: int | None = None,
    at_hand: bool = False,
    seed: int = 0,
    tell: Tell = print,
    watch: Watch | None = None,
) -> Path:
    """Write OUT/WHAT.html, .md and .json (and .png of a figure); runs are in `runs`, or OUT/runs.

    First `tell` is given what will be trained, and how long that is expected to take. What was
    begun there is resumed; what was trained is not trained again. A data set that is not here is
    left out, with the reason; with `at_hand` a free one takes its place where there is one.
    `max_updates` is for a short try, and the caption says so. `watch` makes what shows a training;
    by default a line of each validation goes to `tell`.
    """
    if what not in get_args(What):
        raise ValueError(f"`what` must be one of {', '.join(get_args(What))}; got {what!r}.")
    out = Path(out).expanduser()
    folder = out / "runs" if runs is None else Path(runs).expanduser()
    out.mkdir(parents=True, exist_ok=True)
    data = _DataSets()
    tasks = [
        _planned(wanted, folder, data, max_updates=max_updates, at_hand=at_hand)
        for wanted in wanted_by(what)
    ]
    for line in announcement(what, tasks, at_hand=at_hand):
        tell(line)
    watch = watch or (lambda run, _: nullcontext(_teller(run, tell)))
    rows = [_trained(task, watch, max_updates) for task in tasks]
    if any(row.run for row in rows):
        tell("Scoring ...")
    numbers: dict[str, Any] = {
        "what": what,
        "title": TITLES[what],
        "max_updates": max_updates,
        "seed": seed,
        "rows": [_row(row, split=split_of(what), seed=seed) for row in rows],
    }
    figures: list[str] = []
    if what == "figure-3":
        figures = _waveforms(rows[0], numbers, out, seed=seed)
    if what == "figure-4":
        figures = _improvements(rows, numbers, out)
    write_whole(out / f"{what}.md", paper_markdown(numbers))
    write_page(out / f"{what}.html", paper_page(numbers, figures), numbers)
    return out / f"{what}.html"


def announcement(what: str, tasks: Sequence[Task], *, at_hand: bool) -> list[str]:
    """What will be trained and how long that takes on this device, a line each."""
    lines = [TITLES[what]]
    width = max(len((task.experiment or task.wanted).name) for task in tasks)
    seconds, is_known = 0.0, True
    for task in tasks:
        name = (task.experiment or task.wanted).name.ljust(width)
        if task.plan is None:
            lines.append(f"  {name}  left out: {task.wanted.data.source} is not here")
            continue
        plan, took = task.plan, task.plan.expected.seconds
        if not plan.left:
            lines.append(f"  {name}  trained: {count(plan.num_updates, 'update')}")
            continue
        done = f"{plan.done:,} of " if plan.done else ""
        time = "" if took is None else f", {'another ' if plan.done else ''}{duration(took)}"
        verb = "goes on" if plan.done else "to train"
        lines.append(f"  {name}  {verb}: {done}{count(plan.num_updates, 'update')}{time}")
        seconds, is_known = seconds + (took or 0.0), is_known and took is not None
    plans = [
        task.plan
        for task in tasks
        if task.plan is not None and task.plan.done < task.plan.num_updates
    ]
    if plans and is_known:
        lines.append(
            f"In all about {duration(seconds)} on {plans[0].device}, guessed from runs elsewhere."
        )
    elif plans:
        lines.append(
            f"How long that takes on {plans[0].device} is not known: the first updates tell."
        )
    if plans:
        lines.append("Ctrl-C saves and stops; the same command goes on from there.")
    for task in tasks:
        if task.experiment is not None and task.experiment.data != task.wanted.data:
            lines.append(
                f"{task.wanted.data.source} is not here. TAKING {task.experiment.data.source}"
                " INSTEAD: the numbers do not compare with the paper's."
            )
    missing = {task.wanted.data.source for task in tasks if task.missing}
    for source in sorted(missing):
        other = AT_HAND.get(source)
        if other is not None and not at_hand:
            lines.append(f"{source} is not here; --at-hand takes {other}, which is free.")
        else:
            name = other if at_hand and other else source
            lines.append(f"{name} is not here; to get it: varfilter data fetch {name}")
    return list(dict.fromkeys(lines))


def wanted_by(what: str) -> list[Experiment]:
    """The experiments of a table or a figure, in the paper's order."""
    if what == "figure-3":
        return [experiment_named("srnn-timit-avf")]
    if what == "figure-4":
        return [_with_iterations(experiment_named("vrnn-timit-avf"), count) for count in ITERATIONS]
    return [
        experiment
        for experiment in EXPERIMENTS.values()
        if experiment.published is not None and experiment.published.table == what
    ]


def split_of(what: str) -> str:
    """The part that is scored: the test part for all but figure 4."""
    return "valid" if what == "figure-4" else "test"


def _with_iterations(experiment: Experiment, count: int) -> Experiment:
    if count == 1:
        return experiment
    assert isinstance(experiment.filter.inference, AVF)
    inference = replace(experiment.filter.inference, num_iterations=count)
    return replace(
        experiment,
        name=f"{experiment.name}-k{count}",
        filter=replace(experiment.filter, inference=inference),
        published=None,
    )


def _at_hand(experiment: Experiment) -> Experiment | None:
    """The experiment on the free data of its kind, where the named experiments have it."""
    other = AT_HAND.get(experiment.data.source)
    if other is None:
        return None
    source = f"-{experiment.data.source}-"
    base = max(
        (name for name in EXPERIMENTS if f"{experiment.name}-".startswith(f"{name}-")), key=len
    )
    found = experiment_named(base.replace(source, f"-{other}-"))
    return replace(
        found, name=experiment.name.replace(source, f"-{other}-"), filter=experiment.filter
    )


class _DataSets:
    """The data of experiments; each source is read once."""

    def __init__(self):
        self.known: dict[Source, Dataset | str] = {}

    def __getitem__(self, source: Source) -> Dataset | str:
        """The data, or the reason why they are not here."""
        if source not in self.known:
            try:
                self.known[source] = load(source)
            except (OSError, ImportError, ValueError) as error:
                self.known[source] = " ".join(str(error).split())
        return self.known[source]


def _planned(
    wanted: Experiment, folder: Path, data: _DataSets, *, max_updates: int | None, at_hand: bool
) -> Task:
    experiment, dataset = wanted, data[wanted.data]
    if isinstance(dataset, str) and at_hand and (other := _at_hand(wanted)):
        experiment, dataset = other, data[other.data]
    place = folder / experiment.name
    if isinstance(dataset, str):
        return Task(wanted, place, None, None, None, dataset)
    plan = plan_run(experiment, dataset, max_updates=max_updates, reached=[reached_in(place)])
    return Task(wanted, place, experiment, dataset, plan, None)


def _trained(task: Task, watch: Watch, max_updates: int | None) -> Row:
    if task.experiment is None or task.dataset is None:
        return Row(task.wanted, None, task.missing)
    run = Run.begin(task.folder, task.experiment, task.dataset)
    run.dataset = task.dataset
    events = train_run(run, task.dataset, max_updates=max_updates)
    with watch(run, events) as show, closing(events):
        for event in events:
            if show(event):
                raise Interrupted
    return Row(task.wanted, run, None)


def _teller(run: Run, tell: Tell) -> Show:
    """Show the validations and the end of a training as lines."""

    def show(event: Event) -> bool:
        if isinstance(event, Validated):
            line = event.line
            tell(
                f"{run.experiment.name}: update {line['step']:,}, epoch {line['epoch']:.4g}:"
                f" validation {line['valid']['nats']:.3f} nats per step, best {line['best']:.3f}"
            )
        elif isinstance(event, Stopped):
            tell(f"{run.experiment.name}: {event.reason}.")
        return False

    return show


def _row(row: Row, *, split: str, seed: int) -> dict[str, Any]:
    published = row.wanted.published
    numbers: dict[str, Any] = {
        "wanted": row.wanted.name,
        "data_wanted": row.wanted.data.source,
        "published": None if published is None else dict(vars(published)),
        "missing": row.missing,
        "is_at_hand": row.is_at_hand,
        "results": None,
    }
    if row.run is None:
        return numbers
    model, filter, step, _ = row.run.trained()
    lines = row.run.metrics()
    scores = score_split(row.run, model, filter, split=split, seed=seed)
    schedule = row.run.experiment.schedule
    return numbers | {
        "experiment": row.run.experiment.name,
        "data": row.run.experiment.data.source,
        "sha256": row.run.record["data"]["sha256"],
        "folder": str(row.run.folder),
        "command": command(row.run),
        "split": split,
        "best_step": step,
        "num_updates": lines[-1]["step"] if lines else 0,
        "num_epochs": lines[-1]["epoch"] if lines else 0,
        "num_epochs_of_schedule": schedule.num_epochs,
        "results": scores.as_json(),
    }


def _waveforms(row: Row, numbers: dict[str, Any], out: Path, *, seed: int) -> list[str]:
    """Draw half a second of each of two test sentences."""
    if row.run is None:
        return []
    model, filter, _, _ = row.run.trained()
    dataset, medium = row.run.dataset, row.run.medium
    chosen = jax.random.permutation(jax.random.key(seed), len(dataset.test))[:2]
    inspected = inspect_sequences(
        filter, model, dataset, jax.random.key(seed), jax.device_get(chosen),
        split="test", inspection=medium.inspection,
    )  # fmt: skip
    drawn = [medium.inspected(each) for each in inspected]
    numbers["drawn"] = [drawn_numbers(each) for each in drawn]
    figures = []
    for number, each in enumerate(drawn, 1):
        paint = partial(medium.draw_sequence, dataset, each)
        (out / f"figure-3-{number}.png").write_bytes(png(paint(WIDE)))
        figures.append(illustration(paint, caption(each, medium.caption)))
    return figures


def _improvements(rows: list[Row], numbers: dict[str, Any], out: Path) -> list[str]:
    """Draw (a) validation by epoch for each K and (b) what each iteration of the last K gains."""
    lines = {
        f"K = {count}": row.run.metrics()
        for count, row in zip(ITERATIONS, rows, strict=True)
        if row.run is not None
    }
    if not lines:
        return []
    numbers["curves"] = {
        name: [[line["epoch"], line["valid"]["nats"]] for line in each]
        for name, each in lines.items()
    }
    paint = partial(validation_curves, lines)
    (out / "figure-4a.png").write_bytes(png(paint(WIDE)))
    text = "(a) Validation free energy per step for models trained with K inference iterations."
    figures = [illustration(paint, text)]
    last = numbers["rows"][-1]["results"]
    if last is not None:
        numbers["improvement"] = improvement(last["nats_by_iteration"])
        paint = partial(relative_improvement, last["nats_by_iteration"])
        (out / "figure-4b.png").write_bytes(png(paint(WIDE)))
        text = (
            f"(b) Improvement of the free energy on the prior's estimate, by iteration, K ="
            f" {ITERATIONS[-1]}, validation part."
        )
        figures.append(illustration(paint, text))
    return figures
