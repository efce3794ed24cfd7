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
from varfilter.plots.figures import caption
from varfilter.plots.page import cards, command_line, document, facts, illustration, table
from varfilter.report.alarms import alarm_parts
from varfilter.report.columns import comparison_tables, forecast_caption
from varfilter.report.summary import RunSummary, labels, summarize
from varfilter.runs import Run
from varfilter.runs.folder import write_whole

ABOUT_RESULTS = (
    "Nats per scored step, lower is better; the first step of a sequence is conditioned on and not"
    " scored. “Equal sequences” gives every sequence the same weight, as the paper's tables do, and"
    " is what the naive reference compares with; “equal steps” gives every step the same weight."
    " The standard error is over sequences, not seeds."
)
ABOUT_PAPER = (
    "“Divided by T” takes all T steps for the T-1 scored ones, as the released evaluation did."
    " The paper's number as printed compares with “divided by T”; corrected to the steps that were"
    " scored, it compares with “equal sequences”."
)


def report(
    runs: Sequence[Run],
    out: Path,
    *,
    split: str = "test",
    seed: int = 0,
    num_particles: int | None = None,
    horizon: int | None = None,
) -> Path:
    """Write one self-contained page on the runs to `out`, and its numbers to a .json beside it.

    Scores are of the trained bound. Pictures and calibration are of the filter that a run applies
    to new data, with `num_particles` trajectories (those of its medium; 1 is the paper's filter);
    so is a table's comparison with its references, one step and `horizon` steps ahead.
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
    options = {"split": split, "seed": seed, "num_particles": num_particles, "horizon": horizon}
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
        facts(_facts(found[0].numbers)) if len(found) == 1 else "",
        "<h2>Results</h2>",
        *_results([each.numbers for each in found]),
        *_columns(found),
        *_learning(found),
        *_inference(found),
    ]
    for each in found:
        parts += _one_run(each, split, is_alone=len(found) == 1)
    return document(f"varfilter report: {names}", "\n".join(parts))


def _warnings(found: Sequence[RunSummary]) -> list[str]:
    """What is bad about the runs, before any number is read."""
    is_alone = len(found) == 1
    return [
        f'<p class="loud">{html.escape(text if is_alone else f"{each.label}: {text}")}</p>'
        for each in found
        for text in each.numbers["warnings"]
    ]


def nats(value: float | int | None) -> str:
    """A score with as many digits as mean something."""
    if value is None:
        return ""
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.3f}"


def printed(value: float | int | None) -> str:
    """A number of the paper's, with the digits that it has there."""
    return "" if value is None else f"{value:,}"


def _results(numbers: Sequence[dict[str, Any]]) -> list[str]:
    """A table with a row for each run, beside its naive reference and the paper's numbers."""
    has_paper = any(each["results"]["published"] for each in numbers)
    head = ["run", "equal sequences", "standard error", "naive reference", "paper, corrected",
            "divided by T", "paper, printed", "equal steps",
            "prediction error (RMS)"]  # fmt: skip
    rows = [_results_row(each) for each in numbers]
    # What only the paper's numbers compare with, and what nobody has, takes no room.
    of_paper = [name.startswith("paper") or name == "divided by T" for name in head]
    kept = [
        i
        for i in range(len(head))
        if (has_paper or not of_paper[i]) and any(row[i] for row in rows)
    ]
    shown = table([head[i] for i in kept], [[row[i] for i in kept] for row in rows])
    references = dict.fromkeys(each["results"]["reference"]["what"] for each in numbers)
    about = [ABOUT_RESULTS, *([ABOUT_PAPER] if has_paper else [])]
    about.append(f"The naive reference predicts {'; or '.join(references)}.")
    return [shown, f'<p class="note">{html.escape(" ".join(about))}</p>']


def _results_row(numbers: dict[str, Any]) -> list[str]:
    results, published = numbers["results"], numbers["results"]["published"] or {}
    return [
        numbers["label"],
        nats(results["nats"]),
        nats(results["standard_error"]),
        nats(results["reference"]["nats"]),
        printed(published.get("corrected")),
        nats(results["nats_as_published"]),
        printed(published.get("nats")),
        nats(results["nats_by_step"]),
        f"{results['prediction_error']:.4g}",
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
    own, name, other = results["nats"], "naive reference", results["reference"]["nats"]
    if compared is not None:
        scores = {each: by_horizon["1"] for each, by_horizon in compared["nats"].items()}
        own = scores.pop("model")
        name = min(scores, key=lambda each: scores[each])
        other = scores[name]
    verdict = "better than" if own < other else "NO BETTER than"
    text = f"nats per step: {verdict} the {name} ({nats(other)})"
    return ("+" if own >= other else "") + nats(own - other), text


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
            " its parts and the gradients, by epoch."
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
            text = f"{name}: free energy at the prior and after each inference iteration."
            parts.append(illustration(partial(curves.iterations, values), text))
        head = ["run", "prior", *map(str, range(1, most))]
        rows = [
            [label, *map(nats, each), *[""] * (most - len(each))] for label, each in values.items()
        ]
        parts.append(table(head, rows))
    return ["<h2>Free energy by inference iteration</h2>", *parts] if parts else []


def _one_run(found: RunSummary, split: str, *, is_alone: bool) -> list[str]:
    """The pictures, the calibration, the sequences and the settings of a run."""
    numbers, deeper = found.numbers, "h2" if is_alone else "h3"
    parts = []
    if not is_alone:
        parts = [f"<h2>{html.escape(found.label)}</h2>", facts(_facts(numbers))]
    has_reconstructions = found.medium.has_reconstructions
    heading = (
        "Data, predictions, reconstructions" if has_reconstructions else "Data and predictions"
    )
    parts.append(f"<{deeper}>{heading}</{deeper}>")
    for drawn in found.drawn:
        paint = partial(found.medium.draw_sequence, found.dataset, drawn)
        text = f"{found.medium.caption} {_filter_in_words(numbers)}"
        is_worst = found.medium.inspection.has_worst and numbers["sequences"]["of"] > 1
        text = f"The worst sequence. {text}" if is_worst and drawn is found.drawn[0] else text
        parts.append(illustration(paint, caption(drawn, text)))
    if found.fan is not None:
        paint = partial(found.medium.draw_forecast, found.dataset, found.fan)
        parts.append(illustration(paint, forecast_caption(numbers["forecast"])))
    if found.alarms is not None:
        shown = alarm_parts(found.alarms, found.medium, found.dataset)
        parts += [f"<{deeper}>Alarms</{deeper}>", *shown]
    parts += [f"<{deeper}>Calibration</{deeper}>", *_calibration(numbers)]
    if numbers["sequences"]["of"] > 1:
        parts += [f"<{deeper}>Best and worst sequences</{deeper}>", *_ranked(numbers, split)]
    parts += [f"<{deeper}>Settings</{deeper}>", facts(_all_settings(numbers))]
    return parts


def _ranked(numbers: dict[str, Any], split: str) -> list[str]:
    ranked, parts = numbers["sequences"], []
    for which in ("best", "worst"):
        rows = [[each["name"], f"{each['steps']:,}", nats(each["nats"])] for each in ranked[which]]
        parts.append(table([which, "steps", "nats per step"], rows))
    note = f"Of {count(ranked['of'], 'sequence')} of {split} with two steps or more."
    return [*parts, f'<p class="note">{note}</p>']


def _calibration(numbers: dict[str, Any]) -> list[str]:
    parts = numbers["calibration"]
    if not any(part["num_values"] for part in parts):
        return ["<p>Nothing was observed in the sequences that were inspected.</p>"]
    inspected = numbers["inspected"]
    steps = sum(each["num_steps"] for each in inspected)
    text = (
        f"Of one-step predictions, {count(numbers['num_samples'], 'draw')} each, over"
        f" {count(steps, 'step')} of {count(len(inspected), 'sequence')}; on the dashed line,"
        f" predictions mean what they say. {_filter_in_words(numbers)}"
    )
    found = [illustration(partial(curves.calibration_curves, parts), text)]
    numeric = [part for part in parts if part["kind"] == "numeric" and part["num_values"]]
    if numeric:
        places = [numeric[0]["nominal"].index(level) for level in (0.5, 0.9)]
        rows = [
            [part["column"] or "all values", *(f"{part['observed'][i]:.1%}" for i in places)]
            for part in numeric
        ]
        found.append(table(["intervals", "of 50%", "of 90%"], rows))
    binary = [part for part in parts if part["kind"] == "binary" and part["num_values"]]
    if binary:
        rows = [
            [part["column"] or "all values", f"{part['num_values']:,}", f"{part['error']:.4f}"]
            for part in binary
        ]
        found.append(table(["probabilities", "values", "mean distance"], rows))
    return found


def _filter_in_words(numbers: dict[str, Any]) -> str:
    """Say which filter predicted: scores and free energies are of another one."""
    if numbers["num_particles"] == 1:
        return "Filtered with one sampled trajectory, as the paper does."
    return (
        f"Filtered with {numbers['num_particles']} weighted trajectories; the scores of whole"
        " sequences are of the trained bound."
    )


def _facts(numbers: dict[str, Any]) -> list[tuple[str, str]]:
    """What was run, on what, where, and how to do it again; the second of each pair is HTML."""
    data, parameters = numbers["data"], numbers["num_parameters"]
    sequences = ", ".join(f"{number:,} {split}" for split, number in data["sequences"].items())
    shape = " by ".join(map(str, numbers["observation_shape"]))
    shape = f"{shape} numbers" if shape else "one number"
    pairs = [
        ("experiment", numbers["experiment"]["name"]),
        ("data", f"{data['name']}: {sequences} sequences; an observation is {shape}"),
        ("sha256 of the data", data["sha256"]),
        *(("note", note) for note in numbers["notes"]),
        ("parameters", f"{parameters['model']:,} model, {parameters['inference']:,} inference"),
        ("seed", str(numbers["seed"])),
        ("bound", f"{numbers['bound']}; {numbers['units']}"),
        ("trained", f"{count(numbers['num_updates'], 'update')},"
         f" {count(numbers['num_epochs'], 'epoch')}, {numbers['seconds']:,.0f} s;"
         f" best checkpoint at update {numbers['best_step']:,}"),
        ("validated", numbers["validation"]),
        ("device", f"{numbers['num_devices']} of {numbers['device']}"),
        ("versions", f"varfilter {numbers['varfilter']}, jax {numbers['jax']}"),
        ("revision", numbers["revision"] or "not from a checkout"),
        ("begun", numbers["begun"]),
    ]  # fmt: skip
    shown = [(name, html.escape(text)) for name, text in pairs]
    return [*shown, ("command", command_line(numbers["command"]))]


def _all_settings(numbers: dict[str, Any]) -> list[tuple[str, str]]:
    names = ("model", "filter", "optimizer", "schedule")
    return [(name, html.escape(_settings(numbers["experiment"][name]))) for name in names]


def _settings(value: Any) -> str:
    """A settings object in one line: its kind and its fields."""
    if isinstance(value, dict):
        inner = ", ".join(f"{k} {_settings(v)}" for k, v in value.items() if k != "kind")
        return f"{value['kind']}({inner})"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _by_data(found: Sequence[RunSummary]) -> list[tuple[str, list[RunSummary]]]:
    """Runs on the same numbers, together: others have other scales."""
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
