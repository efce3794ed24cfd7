"""The paper's tables and figures again: train what is missing, score it, put both side by side."""

import html
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import jax

from varfilter.data.dataset import Dataset
from varfilter.experiments import AVF, EXPERIMENTS, Experiment, experiment_named
from varfilter.media import Source, load
from varfilter.plots import curves
from varfilter.plots.page import command_line, document, facts, illustration, table
from varfilter.plots.sequences import caption
from varfilter.plots.style import WIDE, count, png
from varfilter.report.inspection import inspect_sequences
from varfilter.report.page import nats, printed, write_page
from varfilter.report.summary import command, drawn_numbers, score_split
from varfilter.runs import Run, train_run
from varfilter.runs.folder import write_whole
from varfilter.runs.training import Stopped, Validated

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
HEAD = ("experiment", "data", "nats per step", "standard error", "paper, corrected",
        "divided by T", "paper, printed", "trained")  # fmt: skip
ABOUT = (
    "Free energy in nats per step, lower is better, every sequence with the same weight. Our nats"
    " per step are of the steps that were scored, and compare with the paper's number corrected to"
    " those; divided by T, all T steps of a sequence instead of the T-1 scored ones, they compare"
    " with the number as printed. The standard error is over sequences, not seeds."
)

Tell = Callable[[str], None]


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
) -> Path:
    """Write OUT/WHAT.html, .md and .json (and .png of a figure); runs are in `runs`, or OUT/runs.

    What was begun there is resumed; what was trained is not trained again. A data set that is not
    here is left out, with the reason; with `at_hand` a free one takes its place where there is
    one. `max_updates` is for a short try, and the caption says so.
    """
    if what not in get_args(What):
        raise ValueError(f"`what` must be one of {', '.join(get_args(What))}; got {what!r}.")
    out = Path(out).expanduser()
    folder = out / "runs" if runs is None else Path(runs).expanduser()
    out.mkdir(parents=True, exist_ok=True)
    data = _DataSets()
    rows = [
        _trained(wanted, folder, data, max_updates=max_updates, at_hand=at_hand, tell=tell)
        for wanted in wanted_by(what)
    ]
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
    """The same on the free data of its kind, where the named experiments have it."""
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


def _trained(
    wanted: Experiment,
    folder: Path,
    data: _DataSets,
    *,
    max_updates: int | None,
    at_hand: bool,
    tell: Tell,
) -> Row:
    experiment, dataset = wanted, data[wanted.data]
    if isinstance(dataset, str) and at_hand and (other := _at_hand(wanted)):
        tell(
            f"{wanted.name}: {wanted.data.source} is not here. TAKING {other.data.source} INSTEAD:"
            " the numbers do not compare with the paper's."
        )
        experiment, dataset = other, data[other.data]
    if isinstance(dataset, str):
        tell(f"{wanted.name}: left out, because {experiment.data.source} is not here.")
        return Row(wanted, None, dataset)
    run = Run.begin(folder / experiment.name, experiment, dataset)
    run.dataset = dataset
    for event in train_run(run, dataset, max_updates=max_updates):
        if isinstance(event, Validated):
            line = event.line
            tell(
                f"{experiment.name}: update {line['step']:,}, epoch {line['epoch']:.4g}:"
                f" validation {line['valid']['nats']:.3f} nats per step, best {line['best']:.3f}"
            )
        elif isinstance(event, Stopped):
            tell(f"{experiment.name}: {event.reason}.")
    return Row(wanted, run, None)


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
    paint = partial(curves.validation_curves, lines)
    (out / "figure-4a.png").write_bytes(png(paint(WIDE)))
    text = "(a) Validation free energy per step for models trained with K inference iterations."
    figures = [illustration(paint, text)]
    last = numbers["rows"][-1]["results"]
    if last is not None:
        numbers["improvement"] = curves.improvement(last["nats_by_iteration"])
        paint = partial(curves.relative_improvement, last["nats_by_iteration"])
        (out / "figure-4b.png").write_bytes(png(paint(WIDE)))
        text = (
            f"(b) Improvement of the free energy on the prior's estimate, by iteration, K ="
            f" {ITERATIONS[-1]}, validation part."
        )
        figures.append(illustration(paint, text))
    return figures


def paper_page(numbers: dict[str, Any], figures: list[str]) -> str:
    """The HTML of a table or a figure of the paper beside ours; `figures` are HTML."""
    warnings = "".join(f'<p class="loud">{html.escape(text)}</p>' for text in _warnings_of(numbers))
    commands = [row["command"] for row in numbers["rows"] if row["results"]]
    body = [
        f"<h1>{html.escape(numbers['title'])}</h1>",
        f'<p class="lead">Ours beside those of the paper. Scored with seed {numbers["seed"]}.</p>',
        warnings,
        *figures,
        table(HEAD, [_cells(row) for row in numbers["rows"]]),
        f'<p class="note">{html.escape(ABOUT)}</p>',
    ]
    if missing := _missing_of(numbers):
        listed = [(data, html.escape(reason)) for data, reason in missing.items()]
        body += ["<h2>What is missing</h2>", facts(listed)]
    if commands:
        items = "".join(f"<li>{command_line(line)}</li>" for line in commands)
        body += ["<h2>The runs, each by itself</h2>", f"<ul>{items}</ul>"]
    return document(f"varfilter: {numbers['title']}", "\n".join(body))


def paper_markdown(numbers: dict[str, Any]) -> str:
    """The same table as Markdown, for a README."""
    lines = [f"# {numbers['title']}", ""]
    lines += [f"**{text}**\n" for text in _warnings_of(numbers)]
    rows = [HEAD, ["---", "---", *["---:"] * (len(HEAD) - 3), "---"], *map(_cells, numbers["rows"])]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines += ["", ABOUT]
    for data, reason in _missing_of(numbers).items():
        lines += ["", f"{data} is missing: {reason}"]
    return "\n".join(lines) + "\n"


def _missing_of(numbers: dict[str, Any]) -> dict[str, str]:
    """The data sets that are not here, each with the reason."""
    return {row["data_wanted"]: row["missing"] for row in numbers["rows"] if row["missing"]}


def _cells(row: dict[str, Any]) -> list[str]:
    """The row of one experiment."""
    published, results = row["published"] or {}, row["results"]
    paper = printed(published.get("corrected")), printed(published.get("nats"))
    if results is None:
        return [row["wanted"], row["data_wanted"], "missing", "", paper[0], "", paper[1], ""]
    data = row["data"] + (" (not the paper's data)" if row["is_at_hand"] else "")
    return [
        row["experiment"],
        data,
        nats(results["nats"]),
        nats(results["standard_error"]),
        paper[0],
        nats(results["nats_as_published"]),
        paper[1],
        count(row["num_updates"], "update"),
    ]


def _warnings_of(numbers: dict[str, Any]) -> list[str]:
    """What a reader must know before the numbers."""
    found = []
    if numbers["max_updates"] is not None and any(row["results"] for row in numbers["rows"]):
        found.append(
            f"A short try: at most {numbers['max_updates']:,} update(s) each. These numbers say"
            " nothing of the method."
        )
    if others := sorted({row["data"] for row in numbers["rows"] if row["is_at_hand"]}):
        found.append(
            f"OTHER DATA: {', '.join(others)} in the place of the paper's, which are licensed and"
            " not here. The numbers do not compare with the paper's."
        )
    return found
