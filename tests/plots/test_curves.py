"""Figures of numbers: improvements are in percent, and short or odd curves are drawn."""

import math

import numpy as np
import pytest

from varfilter.plots.curves import (
    by_step,
    calibration_curves,
    improvement,
    iterations,
    learning_curves,
    validation_curves,
)
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


def test_a_single_validation_shows_both_of_its_numbers():
    """The training value had neither a line nor a dot, and the axis showed hundredths."""
    (line,) = lines([5.0])
    axis = learning_curves({"a run": [line | {"epoch": 0.35}]}, WIDE).axes[0]
    dotted = [each for each in axis.lines if each.get_marker() == "o" and len(each.get_xdata())]
    assert {each.get_linestyle() for each in dotted} == {"-", "--"}
    assert axis.get_xlim() == pytest.approx((0.0, 0.7))


def spans(figure):
    low, high = figure.axes[0].get_ylim()
    return high - low


def test_a_fall_of_a_millionth_does_not_fill_the_picture():
    values = np.linspace(24725.346, 24725.336, 20).tolist()
    for figure in (
        learning_curves({"a": lines(values)}, WIDE),
        validation_curves({"a": lines(values)}, WIDE),
    ):
        assert spans(figure) >= 0.001 * 24725
    assert spans(iterations({"a": [24725.346, 24725.336]}, WIDE)) >= 0.001 * 24725
    # What is large beside the values fills it.
    assert spans(learning_curves({"a": lines(np.linspace(9.0, 7.0, 20).tolist())}, WIDE)) < 2.5


def test_a_norm_that_hardly_changes_is_not_on_the_edge():
    """Its axis begins at zero, and the room above it was that of its changes."""
    some = lines(np.linspace(9.0, 7.0, 20).tolist())
    for i, line in enumerate(some):
        line["train"]["theta_gradient_norm"] = 2.25 + 1e-4 * i
    figure = learning_curves({"a": some}, WIDE)
    titles = [each.get_title(loc="left") for each in figure.axes]
    axis = figure.axes[titles.index("norm of the gradient, model")]
    low, high = axis.get_ylim()
    assert low == 0.0
    assert high >= 1.04 * 2.25


def test_an_axis_spans_the_noise_of_what_it_shows():
    values = np.linspace(7.01, 7.0, 20).tolist()
    noisy = lines(values)
    for line in noisy:
        line["valid"]["standard_error"] = 0.3
    # Two standard errors about the last value, and a little room.
    assert 0.6 < spans(learning_curves({"a": noisy}, WIDE)) < 0.7
    assert spans(learning_curves({"a": lines(values)}, WIDE)) < 0.1
    assert spans(iterations({"a": [7.01, 7.0]}, WIDE, errors={"a": [0.0, 0.2]})) > 0.39


def test_the_noise_of_the_last_validation_is_not_cut_off():
    # The end of the curves is what is shown; the shade about it is wider than what they span.
    values = np.linspace(9.0, 2.0, 40)
    kept = lines(values.tolist())
    for line in kept:
        line["valid"]["standard_error"] = 5.0
    low, high = learning_curves({"a run": kept}, WIDE).axes[0].get_ylim()
    assert low < values[-1] - 5.0
    assert high > values[-1] + 5.0


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_points_say_how_many_values_they_stand_for(width):
    part = {
        "column": None, "kind": "binary", "num_values": 12_345, "predicted": [0.1, 0.6],
        "observed": [0.2, 0.5], "counts": [12_300, 45], "standard_error": [0.01, 0.1],
    }  # fmt: skip
    figure = calibration_curves([part], width)
    assert [text.get_text() for text in figure.axes[0].texts] == ["12.3k", "45"]
    assert len(figure.axes[0].collections) == 2  # the bars, and points by how many they stand for


def test_curves_by_steps_ahead():
    measure = {
        "name": "PSNR", "by_step": {"best of 10": [30.0, 25.0], "copy": [29.0, 20.0]},
        "errors": {"best of 10": [0.5, 0.6]},
    }  # fmt: skip
    figure = by_step([measure, measure], WIDE)
    assert len(figure.axes) == 2
    drawn = [np.asarray(line.get_ydata()).tolist() for line in figure.axes[0].lines]
    assert [30.0, 25.0] in drawn
    assert [29.0, 20.0] in drawn
    # Where two are the same, the first is seen, and the other beside it.
    best, copy = figure.axes[0].lines[:2]
    assert best.get_zorder() > copy.get_zorder()
    assert best.get_linewidth() < copy.get_linewidth()
