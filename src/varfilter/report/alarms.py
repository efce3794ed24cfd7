"""The alarms in a part of a table: a list with their causes, and a picture of each event."""

import html
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from varfilter._text import count
from varfilter.data.dataset import Dataset
from varfilter.media import AbstractMedium
from varfilter.media.rows import Filtering, joined
from varfilter.plots.page import illustration, table
from varfilter.runs.alarms import held_sequences, with_alarms
from varfilter.runs.applied import apply_run
from varfilter.runs.run import Run

# The quantiles between which bands are drawn.
BAND = (0.05, 0.95)
# How many steps before and after an alarm a picture shows.
CONTEXT = 30
# Alarms that are nearer to each other are of one event, and in one picture.
APART = 10
MOST_DRAWN, MOST_LISTED = 60, 20
# So many of the pictures are open; a click opens the others.
MOST_OPEN = 3


@dataclass(frozen=True)
class SplitAlarms:
    """The alarms in a split: `numbers` is plain JSON, `drawn` the events with the steps around."""

    numbers: dict[str, Any]
    drawn: list[Filtering]


def split_alarms(
    run: Run,
    dataset: Dataset,
    split: str,
    *,
    seed: int = 0,
    num_particles: int | None = None,
    rate: float | None = None,
) -> SplitAlarms | None:
    """Filter a split as `filter_data` does, and look for alarms.

    None for data that have none, and where they cannot be calibrated.
    """
    if not run.medium.has_alarms:
        return None
    applied = apply_run(run, seed=seed, num_particles=num_particles, levels=BAND)
    applied = with_alarms(run, applied, rate, dataset)
    if applied.alarms is None:
        return None
    listed: list[dict[str, Any]] = []
    events, num_steps = [], 0
    for sequence in held_sequences(dataset, split):
        found = joined(list(applied.filterings(sequence)))
        assert found.alarms is not None
        num_steps += int(np.isfinite(found.alarms.p_values).sum())
        for event in _events(found):
            rarest = min((found.alarms.p_values[t], -found.surprise[t]) for t in event)
            events.append((rarest, found, event))
        listed += [
            {
                "sequence": str(found.sequence),
                "time": _moment(found.times[t]),
                "p_value": float(found.alarms.p_values[t]),
                "surprise": float(found.surprise[t]),
                "cause": str(found.alarms.causes[t]),
            }
            for t in np.flatnonzero(found.alarms.flags)
        ]
    events.sort(key=lambda event: event[0])
    drawn = [
        found.at(np.arange(max(0, event[0] - CONTEXT), min(len(found.times), event[-1] + CONTEXT)))
        for _, found, event in events[:MOST_DRAWN]
    ]
    numbers = {
        "split": split,
        "rate": applied.alarms.rate,
        "num_steps": num_steps,
        "num_calibrated": applied.alarms.calibration.num_steps,
        "num_events": len(events),
        "listed": listed,
    }
    return SplitAlarms(numbers, drawn)


def alarm_parts(found: SplitAlarms, medium: AbstractMedium, dataset: Dataset) -> list[str]:
    """What a page says of the alarms: how many, the pictures, and the list."""
    numbers = found.numbers
    listed, rate = numbers["listed"], numbers["rate"]
    lead = (
        f"{count(len(listed), 'alarm')} in {count(numbers['num_steps'], 'step')} of"
        f" {numbers['split']}, at a rate of {rate:g}: of healthy steps,"
        f" {rate * numbers['num_steps']:.2g} would raise one. Calibrated on"
        f" {count(numbers['num_calibrated'], 'step')}, those of valid and the last of train."
    )
    parts = [f"<p>{html.escape(lead)}</p>"]
    pictures = []
    for each in found.drawn:
        assert each.alarms is not None
        first = int(np.flatnonzero(each.alarms.flags)[0])
        text = (
            f"{each.sequence}, {_moment(each.times[first])}: {each.alarms.causes[first]}."
            " Dots are what was seen, the band should hold nine in ten of them, and circles are"
            " the columns that caused an alarm."
        )
        paint = partial(_painted, medium, dataset, each)
        pictures.append(illustration(paint, text))
    parts += pictures[:MOST_OPEN]
    if len(pictures) > MOST_OPEN:
        others = count(len(pictures) - MOST_OPEN, "more event")
        folded = "".join(pictures[MOST_OPEN:])
        parts.append(f"<details><summary>{others}, less rare</summary>{folded}</details>")
    num_left = numbers["num_events"] - len(pictures)
    if num_left > 0:
        parts.append(
            f'<p class="note">Drawn are the {len(pictures)} rarest of'
            f" {count(numbers['num_events'], 'event')}; {num_left:,} more are not.</p>"
        )
    if listed:
        rows = [
            [each["sequence"], each["time"], f"{each['p_value']:.1e}", each["cause"]]
            for each in sorted(listed, key=_rarest_first)[:MOST_LISTED]
        ]
        parts.append(table(["sequence", "time", "p-value", "cause"], rows))
    if len(listed) > MOST_LISTED:
        parts.append(f'<p class="note">The {MOST_LISTED} rarest of {len(listed):,}.</p>')
    return parts


def _painted(medium: AbstractMedium, dataset: Dataset, each: Filtering, width: float) -> Any:
    return medium.draw_filtering(dataset, each, width=width)


def _moment(time: Any) -> str:
    """A time as people write it: a date to the second, or a number."""
    if isinstance(time, np.datetime64):
        return str(np.datetime_as_string(time, unit="s")).replace("T", " ")
    return f"{time:.15g}"


def _rarest_first(each: dict[str, Any]) -> tuple[float, float]:
    """The order of alarms: by p-value, and by surprise where p-values are equally small."""
    return each["p_value"], -each["surprise"]


def _events(found: Filtering) -> Iterator[np.ndarray]:
    """The alarms of a sequence, those together that are not far from each other."""
    assert found.alarms is not None
    steps = np.flatnonzero(found.alarms.flags)
    if len(steps):
        yield from np.split(steps, np.flatnonzero(np.diff(steps) > APART) + 1)
