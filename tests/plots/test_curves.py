"""Figures of numbers: improvements are in percent, and short or odd curves are drawn."""

from varfilter.plots.curves import improvement


def test_improvement_is_in_percent_of_the_prior():
    assert improvement([200.0, 150.0, 140.0]) == [0.0, 25.0, 30.0]
