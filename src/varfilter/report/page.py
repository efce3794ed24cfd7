"""The page of a report: what its findings say, in words, tables and pictures."""

import html
from collections.abc import Sequence
from functools import partial
from typing import Any

from varfilter.media import sequences as media
from varfilter.plots import curves
from varfilter.plots import page as _page
from varfilter.plots.style import both_widths
from varfilter.report.summary import Findings

ABOUT_RESULTS = (
    "Nats per scored step, lower is better; the first step of a sequence is conditioned on and not"
    " scored. “Equal sequences” gives every sequence the same weight, as the paper's tables do, and"
    " compares with the paper's number corrected to the steps that were scored; “equal steps” gives"
    " every step the same weight; “divided by T” takes all T steps for the T-1 scored ones, as the"
    " released evaluation did, and compares with the number as printed. The standard error is over"
    " sequences, not seeds."
)


def render(found: Sequence[Findings], *, split: str, seed: int) -> str:
    """The whole page."""
    names = " and ".join(dict.fromkeys(each.label for each in found))
    lead = f"Scores on the {split} part; drawn with seed {seed}."
    parts = [
        f"<h1>{html.escape(names if len(found) < 3 else f'{len(found)} runs')}</h1>",
        f'<p class="lead">{html.escape(lead)}</p>',
        _page.cards(_cards(found, split)),
        _page.facts(_summary(found[0].numbers)) if len(found) == 1 else "",
        "<h2>Results</h2>",
        results_table([each.numbers for each in found]),
        f'<p class="note">{html.escape(ABOUT_RESULTS)}</p>',
        *_learning(found),
        *_inference(found),
    ]
    for each in found:
        parts += _one(each, split, is_alone=len(found) == 1)
    return _page.document(f"varfilter report: {names}", "\n".join(parts))


def results_table(numbers: Sequence[dict[str, Any]]) -> str:
    """A row for each run, beside the paper's numbers."""
    head = ["run", "equal sequences", "standard error", "paper, corrected", "divided by T",
            "paper, printed", "equal steps", "prediction error (RMS)"]  # fmt: skip
    return _page.table(head, [results_row(each) for each in numbers])


def results_row(numbers: dict[str, Any]) -> list[str]:
    """The cells of a run."""
    results, published = numbers["results"], numbers["results"]["published"] or {}
    return [
        numbers["label"],
        nats(results["nats"]),
        nats(results["standard_error"]),
        printed(published.get("corrected")),
        nats(results["nats_as_published"]),
        printed(published.get("nats")),
        nats(results["nats_by_step"]),
        f"{results['prediction_error']:.4g}",
    ]


def nats(value: float | int | None) -> str:
    """With as many digits as mean something."""
    if value is None:
        return ""
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.3f}"


def printed(value: float | int | None) -> str:
    """As the paper has it."""
    return "" if value is None else f"{value:,}"


def _cards(found: Sequence[Findings], split: str) -> list[tuple[str, str]]:
    if len(found) > 1:
        best = min(found, key=lambda each: each.numbers["results"]["nats"])
        is_one = len({each.numbers["data"]["sha256"] for each in found}) == 1
        shown = [(nats(best.numbers["results"]["nats"]), f"nats per step, {split}: {best.label}")]
        return shown if is_one else []
    (only,) = found
    results = only.numbers["results"]
    error, digits = results["standard_error"], 1 if abs(results["nats"]) >= 1000 else 3
    cards = [
        (
            nats(results["nats"]) + ("" if error is None else f" ± {error:.{digits}f}"),
            f"nats per step on {split}, {results['num_sequences']:,} sequences",
        ),
        (nats(only.numbers["best_valid"]), "nats per step on valid, at the best checkpoint"),
    ]
    by_iteration = results["nats_by_iteration"]
    if len(by_iteration) > 1:
        gain = curves.improvement(by_iteration)[-1]
        cards.append((f"{-gain:+.1f}%", "free energy, by inference from the prior"))
    return cards


def _learning(found: Sequence[Findings]) -> list[str]:
    parts = ["<h2>Learning curves</h2>"]
    for name, group in _by_data(found):
        lines = {each.label: each.numbers["metrics"] for each in group}
        if not any(lines.values()):
            parts.append(f"<p>No epoch of {html.escape(name)} was validated.</p>")
            continue
        text = (
            f"{name}: free energy per step of training batches and of the whole validation part,"
            " its parts, the gradients and the weight of the KL, by epoch. While that weight is"
            " below 1, the free energy of training is not comparable with that of validation."
        )
        parts.append(both_widths(partial(curves.learning_curves, lines), text))
    return parts


def _inference(found: Sequence[Findings]) -> list[str]:
    parts = []
    for name, group in _by_data(found):
        values = {each.label: each.numbers["results"]["nats_by_iteration"] for each in group}
        values = {label: each for label, each in values.items() if len(each) > 1}
        if not values:
            continue
        text = f"{name}: free energy at the prior and after each inference iteration."
        parts.append(both_widths(partial(curves.iterations, values), text))
        most = max(map(len, values.values()))
        head = ["run", "prior", *map(str, range(1, most))]
        rows = [
            [label, *map(nats, each), *[""] * (most - len(each))] for label, each in values.items()
        ]
        parts.append(_page.table(head, rows))
    return ["<h2>Free energy by inference iteration</h2>", *parts] if parts else []


def _one(found: Findings, split: str, *, is_alone: bool) -> list[str]:
    """The pictures, the calibration, the sequences and the settings of a run."""
    numbers, deeper = found.numbers, "h2" if is_alone else "h3"
    parts = []
    if not is_alone:
        parts = [f"<h2>{html.escape(found.label)}</h2>", _page.facts(_summary(numbers))]
    is_table = found.medium == "table"
    heading = "Data and predictions" if is_table else "Data, predictions, reconstructions"
    parts.append(f"<{deeper}>{heading}</{deeper}>")
    for drawn in found.drawn:
        paint = partial(media.sequence_picture, found.medium, found.dataset, drawn)
        parts.append(both_widths(paint, media.caption(found.medium, drawn)))
    parts += [f"<{deeper}>Calibration</{deeper}>", *_calibration(numbers)]
    ranked = numbers["sequences"]
    parts.append(f"<{deeper}>Best and worst sequences</{deeper}>")
    for which in ("best", "worst"):
        rows = [[each["name"], f"{each['steps']:,}", nats(each["nats"])] for each in ranked[which]]
        parts.append(_page.table([which, "steps", "nats per step"], rows))
    parts.append(
        f'<p class="note">Of the {ranked["of"]:,} sequences of {split} with two steps or more.</p>'
    )
    parts += [f"<{deeper}>Settings</{deeper}>", _page.facts(_settings_of(numbers))]
    return parts


def _calibration(numbers: dict[str, Any]) -> list[str]:
    parts = numbers["calibration"]
    if not any(part["num_values"] for part in parts):
        return ["<p>Nothing was observed in the sequences that were looked at.</p>"]
    looked = numbers["looked_at"]
    steps = sum(each["num_steps"] for each in looked)
    text = (
        f"Of one-step predictions, {numbers['num_samples']} draws each, over {steps:,} steps of"
        f" {len(looked)} sequences; on the dashed line, predictions mean what they say."
    )
    found = [both_widths(partial(curves.calibration_curves, parts), text)]
    numeric = [part for part in parts if part["kind"] == "numeric" and part["num_values"]]
    if numeric:
        places = [numeric[0]["nominal"].index(level) for level in (0.5, 0.9)]
        rows = [
            [part["column"] or "all values", *(f"{part['observed'][i]:.1%}" for i in places)]
            for part in numeric
        ]
        found.append(_page.table(["intervals", "of 50%", "of 90%"], rows))
    binary = [part for part in parts if part["kind"] == "binary" and part["num_values"]]
    if binary:
        rows = [
            [part["column"] or "all values", f"{part['num_values']:,}", f"{part['error']:.4f}"]
            for part in binary
        ]
        found.append(_page.table(["probabilities", "values", "mean distance"], rows))
    return found


def _summary(numbers: dict[str, Any]) -> list[tuple[str, str]]:
    """What was run, on what, where, and how to do it again; the second of each pair is HTML."""
    data, parameters = numbers["data"], numbers["num_parameters"]
    sequences = ", ".join(f"{count:,} {split}" for split, count in data["sequences"].items())
    shape = " by ".join(map(str, numbers["observation_shape"])) or "one number"
    pairs = [
        ("experiment", numbers["experiment"]["name"]),
        ("data", f"{data['name']}: {sequences} sequences; an observation is {shape}"),
        ("sha256 of the data", data["sha256"]),
        *(("note", note) for note in numbers["notes"]),
        ("parameters", f"{parameters['model']:,} model, {parameters['inference']:,} inference"),
        ("seed", str(numbers["seed"])),
        ("bound", f"{numbers['bound']}; {numbers['units']}"),
        ("trained", f"{numbers['num_updates']:,} updates, {numbers['num_epochs']:.4g} epochs,"
         f" {numbers['seconds']:,.0f} s; best checkpoint at update {numbers['best_step']:,}"),
        ("device", f"{numbers['num_devices']} of {numbers['device']}"),
        ("versions", f"varfilter {numbers['varfilter']}, jax {numbers['jax']}"),
        ("revision", numbers["revision"] or "not from a checkout"),
        ("begun", numbers["begun"]),
    ]  # fmt: skip
    shown = [(name, html.escape(text)) for name, text in pairs]
    return [*shown, ("command", f"<code>{html.escape(numbers['command'])}</code>")]


def _settings_of(numbers: dict[str, Any]) -> list[tuple[str, str]]:
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


def _by_data(found: Sequence[Findings]) -> list[tuple[str, list[Findings]]]:
    """Runs on the same numbers, together: others have other scales."""
    groups: dict[str, list[Findings]] = {}
    for each in found:
        groups.setdefault(each.numbers["data"]["sha256"], []).append(each)
    return [(group[0].numbers["data"]["name"], group) for group in groups.values()]
