"""Weights of densities and of means: those of the mixture, and of the least squares."""

import numpy as np
import pytest
from scipy import stats

from varfilter.runs.pool_weights import STRENGTH, least_error_weights, most_probable_weights
from varfilter.training.predictive_draws import WIDTHS

RNG = np.random.default_rng(0)


def test_weights_are_those_of_the_mixture_that_the_values_came_from():
    start, num_values = np.array([0.5, 0.5]), 20_000
    is_first = RNG.random(num_values) < 0.3
    xs = np.where(is_first, RNG.normal(0, 1, num_values), RNG.normal(4, 1, num_values))
    nats = -np.stack([stats.norm(0, 1).logpdf(xs), stats.norm(4, 1).logpdf(xs)], axis=1)
    found = most_probable_weights(nats, 1.0, start)
    # Four standard errors of a share of 20,000 values, sqrt(0.3 * 0.7 / 20,000) each.
    assert found[0] == pytest.approx(0.3, abs=4 * 0.0033)
    # Where values count for nothing, or none was observed, the weights stay where they start.
    np.testing.assert_allclose(most_probable_weights(nats[:100], 0.0, start), start)
    np.testing.assert_allclose(most_probable_weights(np.full((5, 2), np.nan), 1.0, start), start)
    # One value that the first alone can explain counts as one more beside the start.
    certain = most_probable_weights(np.array([[0.0, 1e6]]), 1.0, start)
    assert certain[0] == pytest.approx((1 + STRENGTH * 0.5) / (1 + STRENGTH))


def test_means_have_the_weights_of_the_least_squares_and_few_values_leave_them_where_they_start():
    num_values, num = 4000, len(WIDTHS)
    first, second = RNG.normal(size=(2, num_values))
    xs = 0.7 * first + 0.3 * second + 0.2 * RNG.normal(size=num_values)
    xs[7] = np.nan
    # The model is `first` in all widths, of two references one is `second`, and one is far off.
    means = np.stack([first] * num + [second, second + 9.0], axis=1)
    start = np.append(0.5 * np.array([0.05, 0.1, 0.7, 0.1, 0.05]), [0.25, 0.25])
    found = least_error_weights(means, xs, 1.0, start)
    # Least squares have errors of 0.2 / sqrt(4000) = 0.003; the start draws by 5 of 4,000.
    assert found[:num].sum() == pytest.approx(0.7, abs=0.02)
    assert found[-2] == pytest.approx(0.3, abs=0.02)
    assert found[-1] < 0.005
    # A width is in a mean by its own mean, and by that next to the median.
    assert found[1] == found[3] == found[4] == 0.0
    few = least_error_weights(means, xs, 0.0, start)
    np.testing.assert_allclose(few[:num], 0.5 * np.array([0.25, 0.0, 0.75, 0.0, 0.0]), atol=1e-6)
    np.testing.assert_allclose(few[num:], 0.25, atol=1e-6)
    nothing = least_error_weights(means, np.full(num_values, np.nan), 1.0, start)
    np.testing.assert_allclose(nothing, few, atol=1e-6)
    # Where the mean of a long tail is off and its median is not, the median is taken.
    skewed = np.stack([first] + [first + 2.0] * (num - 1) + [second, second], axis=1)
    assert least_error_weights(skewed, first, 1.0, start)[0] > 0.95
    # Units do not matter, nor where all of them are right.
    np.testing.assert_allclose(least_error_weights(1e-6 * means, 1e-6 * xs, 1.0, start), found)
    assert least_error_weights(0 * means, 0 * first, 1.0, start).sum() == pytest.approx(1.0)
