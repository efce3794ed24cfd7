"""The part of a page on one run: what was run, its pictures, calibration, sequences, settings."""

import html
from collections.abc import Sequence
from functools import partial
from typing import Any

from varfilter._text import count
from varfilter.media.exhibits import Exhibit
from varfilter.media.traits import trait_table
from varfilter.plots import curves
from varfilter.plots.figures import caption
from varfilter.plots.page import command_line, facts, illustration, player, table
from varfilter.report.alarms import alarm_parts
from varfilter.report.columns import forecast_caption
from varfilter.report.summary import RunSummary


def nats(value: float | int | None) -> str:
    """A score with as many digits as mean something."""
    if value is None:
        return ""
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.3f}"


def one_run(found: RunSummary, split: str, *, is_alone: bool) -> list[str]:
    """The pictures, the calibration, the sequences and the settings of a run."""
    numbers, deeper = found.numbers, "h2" if is_alone else "h3"
    parts = []
    if not is_alone:
        parts = [f"<h2>{html.escape(found.label)}</h2>", facts(run_facts(numbers))]
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
    if found.exhibits:
        parts += [f"<{deeper}>To hear and see</{deeper}>", *map(_exhibit, found.exhibits)]
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


def _exhibit(shown: Exhibit) -> str:
    if shown.traits is not None:
        rows = trait_table(shown.traits)
        note = f'<p class="note">{html.escape(shown.caption)}</p>'
        return table(["", *shown.traits], rows) + note
    if shown.clip is not None:
        return player(shown.clip.kind, shown.clip.content, shown.caption)
    assert shown.paint is not None
    return illustration(shown.paint, shown.caption)


def measure_parts(measures: Sequence[dict[str, Any]]) -> list[str]:
    """A table of measures beside those of other predictors, and curves of those that have any."""
    rows = []
    for each in measures:
        # Of several futures it is the first of the curves.
        own = ", ".join(["model", *list(each["by_step"])[:1]])
        values = {own: each["value"], **each["others"]}
        for i, (name, value) in enumerate(values.items()):
            rows.append([each["name"] if i == 0 else "", name, f"{value:.4g}"])
    notes = [f"{each['name']}: {_whole(each)}." for each in measures]
    parts = [table(["measure", "of", "value"], rows)]
    parts.append(f'<p class="note">{html.escape(" ".join(notes))}</p>')
    if curved := [each for each in measures if each["by_step"]]:
        text = (
            f"{' and '.join(each['name'] for each in curved)} by frames ahead; the curve on top is"
            f" that of the {next(iter(curved[0]['by_step']))}."
        )
        if any(each["errors"] for each in curved):
            text += " Bars: the standard error, over videos, of the difference to the copied frame."
        parts.append(illustration(partial(curves.by_step, curved), text))
    return parts


def _whole(measure: dict[str, Any]) -> str:
    better = measure["is_better"]
    return measure["what"] + (f"; {better} is better" if better else "")


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
        " predictions mean what they say. Bars: standard errors over sequences, or, of a single"
        f" one, of independent values. {_filter_in_words(numbers)}"
    )
    found = [illustration(partial(curves.calibration_curves, parts), text)]
    numeric = [part for part in parts if part["kind"] == "numeric" and part["num_values"]]
    if numeric:
        places = [numeric[0]["nominal"].index(level) for level in (0.5, 0.9)]
        rows = [
            [
                part["column"] or "all values",
                *(_with_error(part, i) for i in places),
                f"{part['num_values']:,}",
            ]
            for part in numeric
        ]
        found.append(table(["intervals", "of 50%", "of 90%", "values"], rows))
    binary = [part for part in parts if part["kind"] == "binary" and part["num_values"]]
    if binary:
        rows = [
            [part["column"] or "all values", f"{part['num_values']:,}", f"{part['error']:.4f}"]
            for part in binary
        ]
        found.append(table(["probabilities", "values", "mean distance"], rows))
    return found


def _with_error(part: dict[str, Any], place: int) -> str:
    """A share of values in percent, with its standard error."""
    return f"{part['observed'][place]:.1%} ± {100 * part['standard_error'][place]:.1f}"


def _filter_in_words(numbers: dict[str, Any]) -> str:
    """Say which filter predicted: scores and free energies are of another one."""
    if numbers["num_particles"] == 1:
        return "Filtered with one sampled trajectory, as the paper does."
    return (
        f"Filtered with {numbers['num_particles']} weighted trajectories; the scores of whole"
        " sequences are of the trained bound."
    )


def run_facts(numbers: dict[str, Any]) -> list[tuple[str, str]]:
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
         f" {numbers['epochs']} epochs, {numbers['seconds']:,.0f} s;"
         f" best checkpoint at update {numbers['best_step']:,}"),
        ("validated", numbers["validation"]),
        ("device", f"{numbers['num_devices']} of {numbers['device']}"),
        ("versions", f"varfilter {numbers['varfilter']}, jax {numbers['jax']}"),
        ("revision", numbers["revision"] or "not from a checkout"),
        ("begun", numbers["begun"]),
    ]  # fmt: skip
    shown = [(name, html.escape(text)) for name, text in pairs]
    shown += [("as typed", command_line(line)) for line in numbers["typed"]]
    return [*shown, ("command", how_to_repeat(numbers))]


def how_to_repeat(numbers: dict[str, Any]) -> str:
    """The HTML of the line that makes the run again."""
    if numbers["command"] is not None:
        return command_line(numbers["command"])
    text = "No command line puts such an experiment together. In Python, of the same data:"
    return f"{text} {command_line(numbers['in_python'])}"


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
