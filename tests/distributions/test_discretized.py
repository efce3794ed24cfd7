"""The mass of a quantisation window, from the mode to 10^4 standard deviations out."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from numpy.polynomial.hermite_e import hermeval

import varfilter as vf
from varfilter.distributions import PaperDiscretizedNormal
from varfilter.distributions.discretized import log_ndtr, log_window_mass
from worlds import standard_error

EPS = 2.0**-24  # half a unit in the last place of float32

# 121 distances from 0 to 10^4 standard deviations, 61 widths from 10^-5 to 10 of them; as
# float32 numbers, so that the references below see exactly what the library sees.
CENTRE, HALF = (
    grid.astype(np.float32)
    for grid in np.meshgrid(
        np.concatenate([[0.0], np.logspace(-3, 4, 120)]), 0.5 * np.logspace(-5, 1, 61)
    )
)


def _hermite(order: int, x: np.ndarray) -> np.ndarray:
    return hermeval(x, [0.0] * order + [1.0])


def reference(centre, half):
    """(log mass, d/dcentre, d/dhalf) in float64, for centre >= 0, right to about 10^-13.

    Small windows: mass = 2 h phi(c) S with S = sum_k He_2k(c) h^2k / (2k + 1)!, Taylor's series
    integrated; with h max(1, c) < 0.05 the fifth term is below 10^-20. Elsewhere the difference
    of scipy's functions, which keeps all but a factor 1 / (2 h c) < 200 of its digits.
    """
    c, h = np.asarray(centre, np.float64), np.asarray(half, np.float64)
    order = range(5)
    weight = [h ** (2 * k) / math.factorial(2 * k + 1) for k in order]
    series = sum(_hermite(2 * k, c) * weight[k] for k in order)
    by_c = sum(2 * k * _hermite(2 * k - 1, c) * weight[k] for k in order[1:])
    by_h = sum(2 * k * _hermite(2 * k, c) * weight[k] / h for k in order[1:])

    near, far = (c - h) / np.sqrt(2), (c + h) / np.sqrt(2)
    decay = np.exp(-2 * c * h)  # phi(far) / phi(near)
    with np.errstate(all="ignore"):  # each formula overflows where another one is used
        small = (
            scipy.stats.norm.logpdf(c) + np.log(2 * h * series),
            -c + by_c / series,
            1 / h + by_h / series,
        )
        scaled = 0.5 * (scipy.special.erfcx(near) - decay * scipy.special.erfcx(far))
        hazard = 1 / (np.sqrt(2 * np.pi) * scaled)  # phi(near) / mass
        tail = (-(near**2) + np.log(scaled), -hazard * (1 - decay), hazard * (1 + decay))
        outside = 0.5 * (scipy.special.erfc(far) + scipy.special.erfc(-near))
        inside = 0.5 * (scipy.special.erf(far) - scipy.special.erf(near))
        hazard = np.exp(-(near**2)) / np.sqrt(2 * np.pi) / inside
        body = (
            np.where(inside < 0.5, np.log(inside), np.log1p(-outside)),
            -hazard * (1 - decay),
            hazard * (1 + decay),
        )
    is_small = h * np.maximum(1, c) < 0.05
    return [
        np.where(is_small, a, np.where(near > 0, b, d))
        for a, b, d in zip(small, tail, body, strict=True)
    ]


@jax.jit
def _computed(centre, half):
    by_c, by_h = jax.grad(lambda c, h: jnp.sum(log_window_mass(c, h)), (0, 1))(centre, half)
    return log_window_mass(centre, half), by_c, by_h


log_mass = jax.jit(lambda q, x: q.log_mass(x))
value_and_slope = jax.jit(jax.value_and_grad(lambda q, x: q.log_prob(x)))


def computed(centre, half, dtype):
    """(log mass, d/dcentre, d/dhalf) by the library in `dtype`, as float64."""
    results = _computed(jnp.asarray(centre, dtype), jnp.asarray(half, dtype))
    return [np.asarray(result, np.float64) for result in results]


def test_window_mass_in_float32():
    value, by_c, by_h = computed(CENTRE, HALF, jnp.float32)
    expected, expected_c, expected_h = reference(CENTRE, HALF)
    # In units of EPS: a handful of operations, on terms no larger than the answer, cost 20. An
    # edge e enters as exp(-e^2 / 2), which turns a rounding of e into e^2 of them; it matters
    # where the answer is such a small number itself: a window of up to 10 round the mode.
    edge = (CENTRE.astype(float) + HALF) ** 2
    units = 20 + 2 * np.where(CENTRE <= HALF, edge, 0.0)
    assert np.all(np.abs(value - expected) <= EPS * units * np.abs(expected))
    assert np.all(np.abs(by_h - expected_h) <= EPS * units * np.abs(expected_h))
    # d/dcentre is a difference of the two edges' terms, d/dhalf their sum.
    assert np.all(np.abs(by_c - expected_c) <= EPS * units * expected_h)
    # Outside the window's own centre nothing cancels: there it is right by itself.
    away = CENTRE > HALF
    assert np.all(np.abs(by_c - expected_c)[away] <= (1e-5 * np.abs(expected_c))[away])


def test_window_mass_in_float64():
    with jax.enable_x64(True):
        value, by_c, by_h = computed(CENTRE, HALF, jnp.float64)
    expected, expected_c, expected_h = reference(CENTRE, HALF)
    # The reference's own 1e-13, and a factor for e^2 <= 100 roundings as above.
    np.testing.assert_allclose(value, expected, rtol=2e-13)
    np.testing.assert_allclose(by_h, expected_h, rtol=2e-12)
    assert np.all(np.abs(by_c - expected_c) <= 2e-12 * np.maximum(expected_h, CENTRE))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_formulas_meet_at_their_borders(dtype):
    """A few roundings to either side of each border, value and gradient differ as little."""
    centre = np.logspace(0.01, 4, 60)
    c, h = np.stack(
        [
            (np.linspace(0.0, 0.99, 60), np.full(60, 0.5)),  # half = 1/2
            (centre, 0.5 / centre),  # half * distance = 1/2
            (centre, centre),  # distance = half
        ],
        axis=1,
    )
    eps = float(np.finfo(dtype).eps)
    c, below, above = (np.asarray(v, dtype) for v in (c, h * (1 - 4 * eps), h * (1 + 4 * eps)))
    with jax.enable_x64(dtype == np.float64):
        value, by_c, by_h = computed(c, below, dtype)
        value2, by_c2, by_h2 = computed(c, above, dtype)
    # What the step itself does: d/dh for the value, and less than d/dh, whose second derivative
    # is of its own size squared, for the gradients; the rest are roundings, as above.
    step = (above - below).astype(float) * by_h
    np.testing.assert_array_less(np.abs(value2 - value), 1.1 * step + 20 * eps * np.abs(value))
    np.testing.assert_array_less(np.abs(by_h2 - by_h), (4 * step + 40 * eps) * by_h)
    np.testing.assert_array_less(np.abs(by_c2 - by_c), (4 * step + 40 * eps) * by_h)


def test_log_ndtr_in_float32_far_in_both_tails():
    x = np.concatenate([-np.logspace(4, -3, 80), [0.0], np.logspace(-3, 1, 40)]).astype(np.float32)
    value = jax.jit(log_ndtr)(x)
    slope = jax.jit(jax.grad(lambda x: jnp.sum(log_ndtr(x))))(x)
    expected = scipy.special.log_ndtr(x.astype(float))
    # phi / Phi = sqrt(2 / pi) / erfcx(-x / sqrt(2)); scipy's erfcx overflows to the far right.
    hazard = np.sqrt(2 / np.pi) / scipy.special.erfcx(-x.astype(float) / np.sqrt(2))
    units = 20 + 2 * np.where(x > 0, x**2, 0.0)
    assert np.all(np.abs(value - expected) <= EPS * units * np.abs(expected))
    assert np.all(np.abs(slope - hazard) <= EPS * units * hazard)


LEVELS = np.arange(256) / 255


@pytest.mark.parametrize("mean", [-3.0, -0.1, 0.0, 0.3, 0.5001, 1.0, 7.0])
def test_masses_of_all_levels_sum_to_one(mean):
    for log_var in (-15.0, -8.0, -2.0, 5.0):
        total = _total_mass(mean, log_var, jnp.float32)
        # A level is rounded by EPS, so neighbouring windows overlap or gape by as much: times
        # the largest density, 0.4 / std = 720, that is 4e-5.
        np.testing.assert_allclose(total, 1.0, rtol=1e-4)
        with jax.enable_x64(True):
            np.testing.assert_allclose(_total_mass(mean, log_var, jnp.float64), 1.0, rtol=1e-12)


def _total_mass(mean: float, log_var: float, dtype) -> float:
    full = jnp.full(256, mean, dtype), jnp.full(256, log_var, dtype)
    levels = jnp.asarray(LEVELS, dtype)
    values = log_mass(vf.DiscretizedNormal(*full, 1 / 255, 0.0, 1.0), levels)
    return float(np.exp(np.asarray(values, np.float64)).sum())


@pytest.mark.parametrize("std", [1e-5, 100.0])
def test_gradients_of_the_distribution_in_the_far_tails(std):
    """A narrow window's mass is w N(x; mean, var): d/dmean = (x - mean) / var, and so on."""
    distance, log_var = np.array([0.5, 30.0, -1e4]), 2 * np.log(std)
    x = jnp.asarray(distance * std, jnp.float32)
    q = vf.DiscretizedNormal(jnp.zeros(3), jnp.full(3, log_var), 1e-5 * std)
    value, slope = value_and_slope(q, x)
    # float32 carries log_var = -23 to 1e-6, which every quantity here inherits.
    density = -0.5 * (np.log(2 * np.pi) + log_var + distance**2)
    np.testing.assert_allclose(value, np.sum(density + np.log(q.width)), rtol=1e-5)
    np.testing.assert_allclose(slope.mean, distance / std, rtol=1e-5)
    np.testing.assert_allclose(slope.log_var, 0.5 * (distance**2 - 1), rtol=1e-5)


def test_edge_bins_hold_all_that_lies_beyond():
    """At the edges the mass is Phi of the inner border alone, for any distance of the mean."""
    mean = np.array([-40.0, 0.5, 40.0], np.float32)
    q = vf.DiscretizedNormal(mean, jnp.zeros(3), 0.25, 0.0, 1.0)
    low = scipy.stats.norm.logcdf(0.125 - mean.astype(float))
    high = scipy.stats.norm.logsf(0.875 - mean.astype(float))
    np.testing.assert_allclose(log_mass(q, jnp.zeros(3)), low, rtol=1e-5)
    np.testing.assert_allclose(log_mass(q, jnp.ones(3)), high, rtol=1e-5)
    # d/dmean log Phi(b - mean) = -phi / Phi; -(b - mean) to leading order when far beyond.
    slope = value_and_slope(q, jnp.zeros(3))[1].mean
    hazard = np.exp(scipy.stats.norm.logpdf(0.125 - mean.astype(float)) - low)
    # The reference itself takes the exponential of a difference of numbers near 800.
    np.testing.assert_allclose(slope, -hazard, rtol=1e-5, atol=1e-30)


def test_samples_fall_on_the_levels_with_their_masses():
    q = vf.DiscretizedNormal(jnp.array([0.8]), jnp.array([-1.0]), 0.25, 0.0, 1.0)
    draws = jax.jit(jax.vmap(q.sample))(jax.random.split(jax.random.key(0), 20_000))
    levels = np.arange(5) / 4
    assert set(np.unique(draws)) == set(levels)
    for level in levels:
        share = np.asarray(draws == level, float)
        mass = float(jnp.exp(log_mass(q, jnp.array([level])))[0])
        assert abs(share.mean() - mass) < 5 * standard_error(share)


def test_a_window_needs_a_width():
    for width in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="`width` must be positive"):
            vf.DiscretizedNormal(jnp.zeros(1), jnp.zeros(1), width)


def test_the_papers_likelihood_is_its_formula():
    x = np.linspace(-2.5, 2.0, 7)
    mean, log_var, width = 0.1 * x, np.linspace(0.0, 1.0, 7), 0.05
    scale = np.sqrt(2) * np.exp(0.5 * log_var) + 1e-5
    mass = 0.5 * (
        scipy.special.erf((x + width - mean) / scale) - scipy.special.erf((x - mean) / scale)
    )
    expected = np.log(mass + 1e-6).sum()
    with jax.enable_x64(True):
        wide = PaperDiscretizedNormal(mean, log_var, width)
        np.testing.assert_allclose(wide.log_prob(jnp.asarray(x)), expected, rtol=1e-12)
    narrow = PaperDiscretizedNormal(*(np.float32(v) for v in (mean, log_var)), width)
    # The plain difference loses a few EPS of a mass above 1e-3, in each of the seven terms.
    np.testing.assert_allclose(narrow.log_prob(jnp.asarray(x, jnp.float32)), expected, atol=2e-3)


def test_the_papers_likelihood_has_a_floor():
    q = PaperDiscretizedNormal(jnp.zeros(2), jnp.zeros(2), 0.01)
    value, slope = value_and_slope(q, jnp.array([30.0, -1e4]))
    np.testing.assert_allclose(value, 2 * np.log(1e-6), rtol=1e-6)
    np.testing.assert_array_equal(slope.mean, 0.0)  # which is why it cannot learn from outliers


def test_second_derivatives_are_those_of_the_first():
    """An inference that is learned through its gradients differentiates them once more."""
    with jax.enable_x64(True):
        # Narrow windows, windows around the mean, tails; and log Phi to both sides.
        centre, half = jnp.array([0.3, 1.0, 4.0, 9.0, -6.0]), jnp.array([0.1, 2.0, 1.0, 0.4, 3.0])
        step = 1e-6
        for function, arguments in (
            (lambda c: log_window_mass(c, half), centre),
            (lambda h: log_window_mass(centre, h), half),
            (log_ndtr, jnp.array([-40.0, -5.0, -3.0, 0.5, 3.0])),
        ):
            slope = jax.jit(jax.grad(lambda x, f=function: jnp.sum(f(x))))
            second = jax.grad(lambda x, f=slope: jnp.sum(f(x)))(arguments)
            by_difference = (slope(arguments + step) - slope(arguments - step)) / (2 * step)
            # Roundings of 1e-16 over a step of 1e-6, on slopes of up to 40.
            np.testing.assert_allclose(second, by_difference, rtol=1e-7, atol=1e-8)
