"""What a page says of alarms: each event has a picture, the rarest are open."""

import numpy as np
import pytest

from varfilter.data.tables.read import read_table
from varfilter.media import medium_of
from varfilter.media.rows import Alarms, Filtering
from varfilter.report.alarms import MOST_DRAWN, MOST_OPEN, SplitAlarms, alarm_parts


def event(number):
    """Forty steps of one column, of which one raised an alarm."""
    values = np.random.default_rng(number).normal(size=(40, 1))
    flags = np.arange(40) == 20
    causes = np.where(flags, f"x: {number}", "")
    alarms = Alarms(np.where(flags, 1e-4, 0.5), flags, causes, flags[:, None])
    parts = {"mean": 0 * values, "q05": values - 1, "q95": values + 1}
    return Filtering("a", values, np.arange(40), parts, np.ones(40), alarms=alarms)


def test_an_event_is_not_drawn_only_where_there_are_dozens():
    assert MOST_DRAWN >= 60


@pytest.mark.parametrize(("num_events", "num_left"), [(MOST_OPEN, 0), (13, 0), (13, 2)])
def test_each_event_is_drawn_and_the_rarest_are_open(num_events, num_left):
    dataset = read_table({"x": np.random.default_rng(9).normal(size=100)})
    num_drawn = num_events - num_left
    listed = [
        {"sequence": "a", "time": f"{n}", "p_value": 1e-4, "surprise": 90.0 - n, "cause": f"x: {n}"}
        for n in reversed(range(num_events))
    ]
    numbers = {
        "split": "test", "rate": 0.01, "num_steps": 900, "num_calibrated": 500,
        "num_events": num_events, "listed": listed,
    }  # fmt: skip
    found = SplitAlarms(numbers, [event(n) for n in range(num_drawn)])
    parts = alarm_parts(found, medium_of(dataset), dataset)
    page = "".join(parts)
    causes = [page.index(f">x: {n}</td>") for n in range(num_events)]
    assert causes == sorted(causes)  # of the same p-value the more surprising first
    assert f"{num_events} alarms in 900 steps of test" in page
    # Not "500 steps of valid", which had fewer: the last training steps are among them.
    assert (
        "of healthy steps, 9 would raise one. Calibrated on 500 steps, those of valid and" in page
    )
    assert page.count("<figure>") == num_drawn
    assert all(f"a, 20: x: {n}." in page for n in range(num_drawn))
    opened = "".join(part for part in parts if not part.startswith("<details>"))
    assert opened.count("<figure>") == MOST_OPEN
    said = "Drawn are the 11 rarest of 13 events; 2 more are not."
    assert (said in page) == (num_left > 0)


def test_what_would_be_is_not_rounded_to_nothing():
    dataset = read_table({"x": np.random.default_rng(9).normal(size=100)})
    numbers = {
        "split": "test", "rate": 0.001, "num_steps": 39, "num_calibrated": 358,
        "num_events": 0, "listed": [],
    }  # fmt: skip
    page = "".join(alarm_parts(SplitAlarms(numbers, []), medium_of(dataset), dataset))
    assert "of healthy steps, 0.039 would raise one" in page
