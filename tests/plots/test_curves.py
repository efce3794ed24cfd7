"""Figures of numbers: improvements are in percent, and short or odd curves are drawn."""

import math

import numpy as np
import pytest

from varfilter.plots.curves import improvement, iterations, learning_curves, validation_curves
from varfilter.plots.style import NARROW, WIDE, png


def lines(values):
    """Metrics such as `metrics.jsonl` holds, one validation an epoch."""
    return [
        {
            "epoch": i + 1,
            "kl_weight": 1.0,
            "train": {"free_energy": value, "kl": 0.1, "reconstruction": value},
            "valid": {"nats": value},
        }
        for i, value in enumerate(values)
    ]


def test_improvement_is_in_percent_of_the_prior():
    assert improvement([200.0, 150.0, 140.0]) == [0.0, 25.0, 30.0]


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize(
    "values",
    [[5.0], [5.0, 5.0], [math.nan, 3.0, math.inf], np.linspace(900.0, 1.0, 40).tolist()],
    ids=["one", "constant", "not finite", "falling"],
)
def test_curves_of_any_length_are_drawn(values, width):
    runs = {"a run": lines(values), "none yet": []}
    for figure in (learning_curves(runs, width), validation_curves(runs, width)):
        drawn = [line for line in figure.axes[0].lines if len(np.asarray(line.get_xdata())) > 0]
        assert drawn  # what is finite is there
        for line in drawn:
            assert np.isfinite(np.asarray(line.get_ydata(), float)).all()
        assert len(png(figure)) > 1000
    assert len(png(iterations({"a run": [3.0, 2.0]}, width))) > 1000
