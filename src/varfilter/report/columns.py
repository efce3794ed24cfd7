"""What a report says of the columns of a table: scores beside the references, and a forecast."""

import html
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from varfilter._text import count
from varfilter.data.continued import Continued, continued
from varfilter.data.dataset import Dataset
from varfilter.plots.page import table
from varfilter.plots.tables import FAN_LEVELS, Fan
from varfilter.runs.applied import AppliedRun
from varfilter.runs.comparison import score_rows
from varfilter.simulation import forecast
from varfilter.training.predictive_draws import belief_before

ABOUT = (
    "RMSE and CRPS (the continuous ranked probability score) in the column's own units; the log"
    " score is -log p of a value, in nats, of the column in standardised units (less its mean in"
    " training, by its spread there), and “all” is their sum in a step. Lower is better, the best"
    " log score of each column stands out. 50% and 90%: how many of the values lay inside of such"
    " bands; a column of 0 and 1 has none. All have predicted the same values, told of all rows"
    " before them."
)
# Steps before a forecast that are drawn, for each that is forecast.
BEFORE = 3
FEWEST_BEFORE = 30


def comparison_tables(compared: Mapping[str, Any]) -> list[str]:
    """The HTML of a table for each horizon, with a row for each predictor of each column."""
    parts = []
    for horizon in compared["horizons"]:
        ahead = "One step ahead" if horizon == 1 else f"{horizon} steps ahead"
        steps = f"{count(compared['num_steps'], 'step')} of {compared['split']}"
        every = compared["forecast_every"]
        begun = f", from one in {every}" if horizon > 1 and every > 1 else ""
        parts.append(f"<p><b>{ahead}</b>, {html.escape(steps)}{begun}:</p>")
        parts.append(_table(compared, horizon))
    notes = " ".join(html.escape(text) for text in (ABOUT, *compared["notes"]))
    return [*parts, f'<p class="note">{notes}</p>']


def _table(compared: Mapping[str, Any], horizon: int) -> str:
    rows, best_rows = [], []
    for column, _, predictor, scores, is_best in score_rows(compared, horizon):
        if is_best:
            best_rows.append(len(rows))
        numbers = [_cell(scores, name, ".4g") for name in ("rmse", "nats", "crps")]
        shares = [_cell(scores, name, ".0%") for name in ("within_50", "within_90")]
        rows.append(["all" if column is None else column, predictor, *numbers, *shares])
    head = ["column", "predictor", "RMSE", "log score", "CRPS", "50%", "90%"]
    return table(head, rows, highlighted=best_rows, is_dense=True)


def _cell(scores: Mapping[str, Any], name: str, form: str) -> str:
    """A score in words: nothing where there is none, a dash where it says nothing."""
    if name not in scores:
        return ""
    value = scores[name]
    return "-" if value is None else f"{value:{form}}"


def middle_fan(
    applied: AppliedRun,
    dataset: Dataset,
    split: str,
    number: int,
    horizon: int,
    key: PRNGKeyArray,
    *,
    num_samples: int = 256,
) -> Fan | None:
    """Forecast from the middle of a sequence of a split, as `forecast_data` does.

    None if it is shorter than the horizon.
    """
    found = continued(dataset, split, numbers=[number])
    if not found or len(found[0]) - found[0].begin < horizon:
        return None
    sequence = found[0]
    middle = (sequence.begin + len(sequence)) // 2
    place = min(max(middle, sequence.begin), len(sequence) - horizon)
    filter, model = applied.filter, applied.model
    belief = belief_before(filter, model, sequence, place, key, num_samples=num_samples)
    us = None if sequence.us is None else sequence.us[: place + horizon]
    ahead = forecast(
        filter, model, belief, horizon, key, us=None if us is None else jnp.asarray(us[place:]),
        num_samples=num_samples, levels=FAN_LEVELS,
    )  # fmt: skip
    if applied.pool is not None:
        history = Continued(sequence.name, sequence.xs[:place], us, None, place)
        ahead = applied.pool.forecast(applied.dataset, ahead, history)
    first = max(place - max(BEFORE * horizon, FEWEST_BEFORE), 0)
    # Counted in the sequence of the split, as everywhere: rows before it have numbers below 0.
    num_own = len(dataset.split(split)[number])
    return Fan(
        sequence.name,
        first - (len(sequence) - num_own),
        sequence.xs[first : place + horizon],
        np.asarray(ahead.quantiles),
        None if sequence.times is None else sequence.times[first : place + horizon],
    )


def forecast_numbers(fan: Fan) -> dict[str, Any]:
    """The first step and the horizon of a drawn forecast, and how much of what came is inside."""
    within_50, within_90 = fan.shares()
    return {
        "name": fan.name,
        "first_step": fan.first + len(fan.xs) - fan.horizon,
        "horizon": fan.horizon,
        "within_50": within_50,
        "within_90": within_90,
    }


def forecast_caption(numbers: Mapping[str, Any]) -> str:
    """What the figure of a forecast shows."""
    text = (
        f"{numbers['name']}: a forecast of {count(numbers['horizon'], 'step')} from before step"
        f" {numbers['first_step']}, which is the middle of the sequence, beside what came."
    )
    if numbers["within_90"] is None:
        return text
    return (
        f"{text} Of all values, {numbers['within_90']:.0%} lay inside of the bands of 90%, and"
        f" {numbers['within_50']:.0%} inside of those of 50%."
    )
