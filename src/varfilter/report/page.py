"""A report on one run or several: a page, and beside it all of its numbers."""

import html
import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from varfilter._arguments import require_positive
from varfilter._text import count
from varfilter.data.dataset import SPLITS
from varfilter.plots import curves
from varfilter.plots.page import cards, document, facts, illustration, table
from varfilter.report.columns import comparison_tables
from varfilter.report.run_section import measure_parts, nats, one_run, run_facts
from varfilter.report.summary import RunSummary, labels, summarize
from varfilter.runs import Run
from varfilter.runs.folder import write_whole
from varfilter.runs.metrics import MODEL, best_reference

ABOUT_RESULTS = (
    "Nats per scored step, lower is better; the first step of a sequence is conditioned on and not"
    " scored. “Equal sequences” gives every sequence the same weight, as the paper's tables do, and"
    " is what the naive reference compares with; “equal steps” gives every step the same weight."
)
ABOUT_ERROR = "The standard error is over sequences, not seeds."
ABOUT_PAPER = (
    "“Divided by T” takes all T steps for the T-1 scored ones, as the released evaluation did."
    " The paper's number as printed compares with “divided by T”; corrected to the steps that were"
    " scored, it compares with “equal sequences”."
)
ABOUT_SEVERAL = (
    "“Epochs” are those that were trained of those that were planned; “parameters” are of the model"
    " and of its inference; K is the number of inference iterations."
)


def report(
    runs: Sequence[Run],
    out: Path,
    *,
    split: str = "test",
    seed: int = 0,
    num_particles: int | None = None,
    horizon: int | None = None,
    num_futures: int | None = None,
) -> Path:
    """Write one self-contained page on the runs to `out`, and its numbers to a .json beside it.

    Scores are of the trained bound. Pictures and calibration are of the filter that a run applies
    to new data, with `num_particles` trajectories (those of its medium; 1 is the paper's filter);
    so is a table's comparison with its references, one step and `horizon` steps ahead. Of videos
    `num_futures` are drawn, of which the best counts (10; 0 leaves that out).
    """
    if not runs:
        raise ValueError("`runs` must have at least one run; got none.")
    if split not in SPLITS:
        raise ValueError(f"`split` must be one of {', '.join(SPLITS)}; got {split!r}.")
    if not 0 <= seed < 2**32:
        raise ValueError(f"`seed` must lie in [0, 2^32); got {seed}.")
    if num_particles is not None:
        require_positive("num_particles", num_particles)
    out = require_page(out)
    options = {
        "split": split,
        "seed": seed,
        "num_particles": num_particles,
        "horizon": horizon,
        "num_futures": num_futures,
    }
    found = [
        summarize(run, label, **options) for run, label in zip(runs, labels(runs), strict=True)
    ]
    numbers = {"split": split, "seed": seed, "runs": [each.numbers for each in found]}
    write_page(out, render(found, split=split, seed=seed), numbers)
    return out


def require_page(out: Path) -> Path:
    """Refuse a path that no page can be written to, before minutes are spent on making one."""
    out = Path(out).expanduser()
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"`out` must end in .html; got {str(out)!r}.")
    if not out.parent.is_dir():
        raise FileNotFoundError(
            f"`out` is {str(out)!r}: there is no folder {out.parent} to write it to. Make it first."
        )
    return out


def write_page(out: Path, page: str, numbers: dict[str, Any]) -> None:
    """Write a page, and its numbers to a .json of the same name."""
    write_whole(out.with_suffix(".json"), json.dumps(_finite(numbers), indent=1, allow_nan=False))
    write_whole(out, page)


def render(found: Sequence[RunSummary], *, split: str, seed: int) -> str:
    """The HTML of the whole page."""
    names = " and ".join(dict.fromkeys(each.label for each in found))
    lead = f"Scores on the {split} part; drawn with seed {seed}."
    parts = [
        f"<h1>{html.escape(names if len(found) < 3 else f'{len(found)} runs')}</h1>",
        f'<p class="lead">{html.escape(lead)}</p>',
        *_warnings(found),
        cards(_cards(found, split)),
        facts(run_facts(found[0].numbers)) if len(found) == 1 else "",
        "<h2>Results</h2>",
        *_results([each.numbers for each in found]),
        *_measures(found),
        *_columns(found),
        *_learning(found),
        *_inference(found),
    ]
    for each in found:
        parts += one_run(each, split, is_alone=len(found) == 1)
    return document(f"varfilter report: {names}", "\n".join(parts))


def _warnings(found: Sequence[RunSummary]) -> list[str]:
    """What is bad about the runs, before any number is read."""
    is_alone = len(found) == 1
    return [
        f'<p class="loud">{html.escape(text if is_alone else f"{each.label}: {text}")}</p>'
        for each in found
        for text in each.numbers["warnings"]
    ]


def printed(value: float | int | None) -> str:
    """A number of the paper's, with the digits that it has there."""
    return "" if value is None else f"{value:,}"


def _results(numbers: Sequence[dict[str, Any]]) -> list[str]:
    """A table with a row for each run, beside its naive reference and the paper's numbers."""
    has_paper = any(each["results"]["published"] for each in numbers)
    head = ["run", "equal sequences", "standard error", "naive reference", "epochs",
            "paper, corrected", "divided by T", "paper, printed", "equal steps",
            "prediction error (RMS)", "parameters", "K"]  # fmt: skip
    rows = [_results_row(each) for each in numbers]
    # What only the paper's numbers compare with, what is said of a single run elsewhere, and what
    # nobody has, takes no room.
    shown_if = {"paper, corrected": has_paper, "divided by T": has_paper}
    shown_if |= {"paper, printed": has_paper, "epochs": has_paper or len(numbers) > 1}
    shown_if |= dict.fromkeys(("parameters", "K"), len(numbers) > 1)
    kept = [
        i for i, name in enumerate(head) if shown_if.get(name, True) and any(row[i] for row in rows)
    ]
    shown = table([head[i] for i in kept], [[row[i] for i in kept] for row in rows])
    references = dict.fromkeys(each["results"]["reference"]["what"] for each in numbers)
    about = [ABOUT_RESULTS]
    if head.index("standard error") in kept:
        about.append(ABOUT_ERROR)
    if has_paper:
        about.append(ABOUT_PAPER)
    if len(numbers) > 1:
        about.append(ABOUT_SEVERAL)
    about.append(f"The naive reference predicts {'; or '.join(references)}.")
    return [shown, f'<p class="note">{html.escape(" ".join(about))}</p>']


def _results_row(numbers: dict[str, Any]) -> list[str]:
    results, published = numbers["results"], numbers["results"]["published"] or {}
    return [
        numbers["label"],
        nats(results["nats"]),
        nats(results["standard_error"]),
        nats(results["reference"]["nats"]),
        numbers["epochs"],
        printed(published.get("corrected")),
        nats(results["nats_as_published"]),
        printed(published.get("nats")),
        nats(results["nats_by_step"]),
        f"{results['prediction_error']:.4g}",
        f"{sum(numbers['num_parameters'].values()):,}",
        "" if numbers["num_iterations"] is None else str(numbers["num_iterations"]),
    ]


def _cards(found: Sequence[RunSummary], split: str) -> list[tuple[str, str]]:
    """The numbers that matter most; of several runs on the same data, those of the best."""
    if len({each.numbers["data"]["sha256"] for each in found}) > 1:
        return []
    best = min(found, key=lambda each: each.numbers["results"]["nats"])
    results = best.numbers["results"]
    if len(found) > 1:
        score = nats(results["nats"]), f"nats per step, {split}: {best.label}"
        return [score, _reference_card(best.numbers)]
    error, digits = results["standard_error"], 1 if abs(results["nats"]) >= 1000 else 3
    shown = [
        (
            nats(results["nats"]) + ("" if error is None else f" ± {error:.{digits}f}"),
            f"nats per step on {split}, {count(results['num_sequences'], 'sequence')}",
        ),
        _reference_card(best.numbers),
        (nats(best.numbers["best_valid"]), "nats per step on valid, at the best checkpoint"),
    ]
    by_iteration = results["nats_by_iteration"]
    if len(by_iteration) > 1:
        gain = curves.improvement(by_iteration)[-1]
        shown.append((f"{-gain:+.1f}%", "free energy, by inference from the prior"))
    return shown


def _reference_card(numbers: dict[str, Any]) -> tuple[str, str]:
    """How far the model is below what takes no learning, or that it is not."""
    results, compared = numbers["results"], numbers["comparison"]
    own, name, other = results["nats"], "the naive reference", results["reference"]["nats"]
    # A model that beats noise as loud, and loses to linear prediction, is no good one.
    if (stronger := results.get("stronger_reference")) is not None:
        name, other = stronger["what"], stronger["nats"]
    if compared is not None:
        scores = {each: by_horizon["1"] for each, by_horizon in compared["nats"].items()}
        best = best_reference(scores)
        name, own, other = f"the {best}", scores[MODEL], scores[best]
    verdict = "better than" if own < other else "NO BETTER than"
    text = f"nats per step: {verdict} {name} ({nats(other)})"
    return ("+" if own >= other else "") + nats(own - other), text


def _measures(found: Sequence[RunSummary]) -> list[str]:
    """What the media are judged by beside nats, run by run."""
    parts = []
    for each in found:
        if each.numbers["measures"]:
            name = "" if len(found) == 1 else f", {each.label}"
            parts += [f"<h2>{html.escape(f'Beside nats{name}')}</h2>"]
            parts += measure_parts(each.numbers["measures"])
    return parts


def _columns(found: Sequence[RunSummary]) -> list[str]:
    """The columns of tables beside their references."""
    parts = []
    for each in found:
        if (compared := each.numbers["comparison"]) is not None:
            heading = "Columns" if len(found) == 1 else f"Columns, {each.label}"
            parts += [f"<h2>{html.escape(heading)}</h2>", *comparison_tables(compared)]
    return parts


def _learning(found: Sequence[RunSummary]) -> list[str]:
    parts = ["<h2>Learning curves</h2>"]
    for name, group in _by_data(found):
        lines = {each.label: each.numbers["metrics"] for each in group}
        if not any(lines.values()):
            parts.append(f"<p>No epoch of {html.escape(name)} was validated.</p>")
            continue
        text = (
            f"{name}: free energy per step of training batches and of the whole validation part,"
            " its parts and the gradients, by epoch. The shade is the standard error of validation"
            " over sequences; no axis spans less than that, or than a thousandth of its values."
        )
        if any(line.get("kl_weight", 1.0) < 1.0 for some in lines.values() for line in some):
            text += (
                " While the weight of the KL is below 1, the free energy of training is not"
                " comparable with that of validation."
            )
        parts.append(illustration(partial(curves.learning_curves, lines), text))
    return parts


def _inference(found: Sequence[RunSummary]) -> list[str]:
    parts = []
    for name, group in _by_data(found):
        values = {each.label: each.numbers["results"]["nats_by_iteration"] for each in group}
        values = {label: each for label, each in values.items() if len(each) > 1}
        if not values:
            continue
        most = max(map(len, values.values()))
        if most > 2:  # two numbers are no curve
            text = (
                f"{name}: free energy at the prior and after each inference iteration. Bars: the"
                " standard error, over sequences, of what was gained since the prior."
            )
            errors = {each.label: each.numbers["results"]["gain_errors"] for each in group}
            parts.append(illustration(partial(curves.iterations, values, errors=errors), text))
        head = ["run", "prior", *map(str, range(1, most))]
        rows = [
            [label, *map(nats, each), *[""] * (most - len(each))] for label, each in values.items()
        ]
        parts.append(table(head, rows))
    return ["<h2>Free energy by inference iteration</h2>", *parts] if parts else []


def _by_data(found: Sequence[RunSummary]) -> list[tuple[str, list[RunSummary]]]:
    """Group runs by the data they were scored on: scores on other data have other scales."""
    groups: dict[str, list[RunSummary]] = {}
    for each in found:
        groups.setdefault(each.numbers["data"]["sha256"], []).append(each)
    return [(group[0].numbers["data"]["name"], group) for group in groups.values()]


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are null."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
