"""The paper's tables and figures again: train what is missing, score it, put both side by side."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import jax

from varfilter.experiments import AVF, EXPERIMENTS, Experiment, Run, Source, named, train
from varfilter.media import sequences as media
from varfilter.media.catalogue import Loaded
from varfilter.plots import curves
from varfilter.plots.style import WIDE, both_widths, png
from varfilter.report.inspection import look, loudest_window, most_surprising
from varfilter.report.paper_page import paper_markdown, paper_page
from varfilter.report.report import write_page
from varfilter.report.summary import AMOUNTS, SOUND_STEPS, command, scored
from varfilter.runs.run import write_whole
from varfilter.runs.training import Stopped, Validated, summary

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


class Row(NamedTuple):
    """An experiment of the paper: how it went here, or why it could not."""

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
    """OUT/WHAT.html, .md and .json (and .png of a figure); runs are in `runs`, or OUT/runs.

    What was begun there goes on; what was trained is not trained again. A data set that is not
    here is left out, with the reason; with `at_hand` a free one takes its place where there is
    one. `max_updates` is for a short try, and the caption says so.
    """
    if what not in get_args(What):
        raise ValueError(f"`what` must be one of {', '.join(get_args(What))}; got {what!r}.")
    out = Path(out).expanduser()
    folder = out / "runs" if runs is None else Path(runs).expanduser()
    out.mkdir(parents=True, exist_ok=True)
    data = _Data()
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
        return [named("srnn-timit-avf")]
    if what == "figure-4":
        return [_with_iterations(named("vrnn-timit-avf"), count) for count in ITERATIONS]
    return [
        experiment
        for experiment in EXPERIMENTS.values()
        if experiment.published is not None and experiment.published.table == what
    ]


def split_of(what: str) -> str:
    """The paper's tables are of the test part; figure 4 is of the validation part."""
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
    found = named(base.replace(source, f"-{other}-"))
    return replace(
        found, name=experiment.name.replace(source, f"-{other}-"), filter=experiment.filter
    )


class _Data:
    """Each source is read once."""

    def __init__(self):
        self.known: dict[Source, Loaded | str] = {}

    def __getitem__(self, source: Source) -> Loaded | str:
        """The data, or why they are not here."""
        if source not in self.known:
            try:
                self.known[source] = source.load()
            except (OSError, ImportError, ValueError) as error:
                self.known[source] = " ".join(str(error).split())
        return self.known[source]


def _trained(
    wanted: Experiment,
    folder: Path,
    data: _Data,
    *,
    max_updates: int | None,
    at_hand: bool,
    tell: Tell,
) -> Row:
    experiment, loaded = wanted, data[wanted.data]
    if isinstance(loaded, str) and at_hand and (other := _at_hand(wanted)):
        tell(
            f"{wanted.name}: {wanted.data.source} is not here. TAKING {other.data.source} INSTEAD:"
            " the numbers do not compare with the paper's."
        )
        experiment, loaded = other, data[other.data]
    if isinstance(loaded, str):
        tell(f"{wanted.name}: left out, for want of {experiment.data.source}.")
        return Row(wanted, None, loaded)
    run = Run.begin(folder / experiment.name, experiment, loaded)
    run.loaded = loaded
    for event in train(run, loaded.dataset, max_updates=max_updates):
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
    dataset, lines = row.run.loaded.dataset, row.run.metrics()
    scores = scored(row.run, dataset, model, filter, split=split, seed=seed)
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
        "results": summary(scores),
    }


def _waveforms(row: Row, numbers: dict[str, Any], out: Path, *, seed: int) -> list[str]:
    """Half a second of each of two test sentences."""
    if row.run is None:
        return []
    model, filter, _, _ = row.run.trained()
    dataset = row.run.loaded.dataset
    chosen = jax.random.permutation(jax.random.key(seed), len(dataset.test))[:2]
    looked = look(
        filter, model, dataset, jax.random.key(seed), jax.device_get(chosen),
        split="test", most_steps=AMOUNTS["sound"].num_steps,
        num_samples=AMOUNTS["sound"].num_samples,
    )  # fmt: skip
    drawn = [loudest_window(each, SOUND_STEPS) for each in looked]
    numbers["drawn"] = [
        {"name": each.name, "first_step": each.first, "most_surprising": most_surprising(each)}
        for each in drawn
    ]
    figures = []
    for number, each in enumerate(drawn, 1):
        paint = partial(media.sequence_picture, "sound", dataset, each)
        (out / f"figure-3-{number}.png").write_bytes(png(paint(WIDE)))
        figures.append(both_widths(paint, media.caption("sound", each)))
    return figures


def _improvements(rows: list[Row], numbers: dict[str, Any], out: Path) -> list[str]:
    """(a) validation by epoch for each K; (b) what each iteration of the last K gains."""
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
    figures = [both_widths(paint, text)]
    last = numbers["rows"][-1]["results"]
    if last is not None:
        numbers["improvement"] = curves.improvement(last["nats_by_iteration"])
        paint = partial(curves.relative_improvement, last["nats_by_iteration"])
        (out / "figure-4b.png").write_bytes(png(paint(WIDE)))
        text = (
            f"(b) Improvement of the free energy on the prior's estimate, by iteration, K ="
            f" {ITERATIONS[-1]}, validation part."
        )
        figures.append(both_widths(paint, text))
    return figures
