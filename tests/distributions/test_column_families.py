"""The families of columns add up to one, their draws are theirs, and no number breaks them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import varfilter as vf
from varfilter.distributions import (
    Categorical,
    Exponentiated,
    Joint,
    NegativeBinomial,
    Rectified,
    StudentT,
    ZeroInflated,
)
from varfilter.distributions.base import Move
from worlds import standard_error

STUDENT = StudentT([0.3, -1.0], [-1.0, 0.5], [0.2, 3.0])
EVENTS = NegativeBinomial(np.log([3.0, 0.2]), np.log([0.7, 40.0]), (0.5, 1.0), (-1.0, 0.0))
RECTIFIED = Rectified([0.2, -0.4], [0.1, -1.0], (-0.5, None), (1.0, 0.1))
ZEROS = ZeroInflated([0.2, -2.0], [-0.5, 0.3], [0.1, -1.0])
LEVELS = Categorical([0.3, -1.0, 2.0])
FAMILIES = (STUDENT, EVENTS, RECTIFIED, ZEROS, LEVELS)
by_name = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: type(family).__name__)


@jax.jit
def log_probs(distribution, xs):
    return jax.vmap(distribution.log_prob)(xs)


def of_first(distribution, values):
    """log p of values of the first element; the others are unobserved."""
    xs = np.full((len(values), *distribution.shape), np.nan, np.float32)
    xs[:, 0] = values
    return np.asarray(log_probs(distribution, jnp.asarray(xs)), np.float64)


def test_they_are_what_others_compute():
    """SciPy in double precision; logarithms of order ten in single have six digits."""
    nu, scale = float(STUDENT.freedom[0]), np.exp(-0.5)
    x = np.linspace(-8.0, 8.0, 9)
    np.testing.assert_allclose(
        of_first(STUDENT, x), scipy.stats.t.logpdf(x, nu, 0.3, scale), rtol=1e-5
    )
    n = np.array([0, 1, 2, 10, 100, 2000, 100_000])
    expected = scipy.stats.nbinom.logpmf(n, 0.7, 0.7 / 3.7)
    np.testing.assert_allclose(of_first(EVENTS, -1.0 + 0.5 * n), expected, rtol=2e-5)


def test_they_add_up_to_one():
    # The sum over whole numbers, of which those above a thousand have e^-180.
    assert np.exp(of_first(EVENTS, -1.0 + 0.5 * np.arange(1000))).sum() == pytest.approx(
        1, abs=1e-5
    )
    # Mass at the bounds, and a density between: the trapezoid rule is right to 1e-6 here.
    inside = np.linspace(-0.5, 1.0, 4003)[1:-1]
    between = np.trapezoid(np.exp(of_first(RECTIFIED, inside[1:-1])), inside[1:-1])
    between += 2 * (inside[1] - inside[0]) * np.exp(of_first(RECTIFIED, [-0.4995, 0.9995])).sum()
    at_bounds = np.exp(of_first(RECTIFIED, [-0.5, 1.0])).sum()
    assert between + at_bounds == pytest.approx(1, abs=1e-4)
    positive = np.exp(np.linspace(-12.0, 9.0, 4001))
    mass = np.trapezoid(np.exp(of_first(ZEROS, positive)), positive)
    assert mass + np.exp(of_first(ZEROS, [0.0]))[0] == pytest.approx(1, abs=1e-4)
    wide = np.sinh(np.linspace(-12.0, 12.0, 4001))
    assert np.trapezoid(np.exp(of_first(STUDENT, wide)), wide) == pytest.approx(1, abs=1e-4)


def test_levels_that_are_not_told_apart_have_their_probabilities_together():
    nan = np.nan
    p = np.exp([0.3, -1.0, 2.0])
    p /= p.sum()
    told = np.array([[1, 0, 0], [0, 1, 0], [1, nan, nan], [0, nan, nan], [0, nan, 0], [nan] * 3])
    found = np.exp(log_probs(LEVELS, jnp.asarray(told, jnp.float32)))
    np.testing.assert_allclose(found, [p[0], p[1], p[0], p[1] + p[2], p[1], 1.0], rtol=1e-5)
    draws = jax.vmap(lambda k: LEVELS.complete(jnp.array([0.0, nan, nan]), k))(
        jax.random.split(jax.random.key(0), 2000)
    )
    assert (draws.sum(axis=1) == 1).all()
    share = np.asarray(draws[:, 2], float)
    assert abs(share.mean() - p[2] / (p[1] + p[2])) < 5 * standard_error(share)


@by_name
def test_draws_have_its_moments_and_probabilities(family):
    draws = np.asarray(
        jax.jit(jax.vmap(family.sample))(jax.random.split(jax.random.key(1), 20_000))
    )
    for i in range(family.shape[0]):
        value = draws[:, i].astype(float)
        assert abs(value.mean() - float(family.mean[i])) < 5 * standard_error(value)
        if isinstance(family, StudentT):
            # Tails so heavy have no fourth moment; ranks have all they need.
            nu, scale = float(family.freedom[i]), float(np.exp(0.5 * family.log_var[i]))
            law = scipy.stats.t(nu, float(family.mean[i]), scale)
            assert scipy.stats.kstest(value, law.cdf).pvalue > 1e-3
            assert law.var() == pytest.approx(float(family.variance[i]), rel=1e-4)
            continue
        square = (value - float(family.mean[i])) ** 2
        assert abs(square.mean() - float(family.variance[i])) < 5 * standard_error(square)
    atoms = {NegativeBinomial: (-1.0, 0.0), Rectified: (-0.5, 1.0), ZeroInflated: (0.0,)}
    for atom in atoms.get(type(family), ()):
        share = (draws[:, 0] == np.float32(atom)).astype(float)
        assert abs(share.mean() - np.exp(of_first(family, [atom])[0])) < 5 * standard_error(share)


@by_name
def test_no_number_breaks_it(family):
    """Values and gradients are finite for all that floats can be; what is missing adds nothing."""
    slope = jax.jit(jax.grad(lambda d, x: d.log_prob(x)))
    for value in (0.0, -0.5, 1.0, 1e4, -1e4, 1e30, -1e30, 3.4e38, -3.4e38):
        x = jnp.full(family.shape, value, jnp.float32)
        assert np.isfinite(log_probs(family, x[None])).all(), value
        for leaf in jax.tree.leaves(slope(family, x)):
            assert np.isfinite(leaf).all(), value
    nothing = jnp.full(family.shape, jnp.nan)
    assert log_probs(family, nothing[None])[0] == 0.0
    assert all((leaf == 0.0).all() for leaf in jax.tree.leaves(slope(family, nothing)))
    moments = jax.grad(lambda d: jnp.sum(d.mean) + jnp.sum(d.variance))(family)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(moments))
    assert (family.error(nothing) == 0.0).all()


def test_further_out_is_less_likely():
    """Also where squares overflow: a filter orders even absurd observations."""
    far = np.array([1e3, 1e7, 1e20, 1e30, 1e38])
    for family in (STUDENT, EVENTS, RECTIFIED, ZEROS):
        assert (np.diff(of_first(family, far)) < 0).all(), type(family)
    # With tails like these an outlier costs hundreds of nats where a Gaussian has 5e11.
    assert of_first(STUDENT, [1e30])[0] > -400.0


def test_gradients_are_those_of_differences():
    for family, x in ((STUDENT, 4.0), (EVENTS, 2.0), (RECTIFIED, 1.0), (ZEROS, 0.7)):
        vector = jnp.full(family.shape, jnp.nan).at[0].set(x)
        slopes = jax.grad(lambda d, x: d.log_prob(x))(family, vector)
        leaves, tree = jax.tree.flatten(family)
        for place, slope in enumerate(jax.tree.leaves(slopes)):
            up, down = (
                tree.unflatten([*leaves[:place], leaves[place] + h, *leaves[place + 1 :]])
                for h in (1e-2, -1e-2)
            )
            difference = (up.log_prob(vector) - down.log_prob(vector)) / 2e-2
            # Third derivatives of order one: 1e-4 / 6, and single precision.
            assert float(slope[0]) == pytest.approx(float(difference), rel=1e-2, abs=1e-3)


def test_what_moves_has_bounds_put_on_afterwards_and_keeps_its_tails():
    move = Move(jnp.array([5.0]), jnp.zeros(1), np.array([0.1]), np.array([True]))
    moved = Rectified([0.2], [0.0], (None,), (None,)).moved(move).bounded((4.9,), (5.1,))
    assert np.exp(of_first(moved, [4.9]))[0] == pytest.approx(scipy.stats.norm.cdf(-1.2), rel=1e-4)
    with pytest.raises(TypeError, match="bounds would move"):
        Rectified([0.2], [0.0], (0.0,), (None,)).moved(move)
    heavy = StudentT([0.2], [0.0], [1.0]).moved(move)
    assert heavy.mean[0] == pytest.approx(5.02)
    assert of_first(heavy, [5.12])[0] == pytest.approx(
        of_first(StudentT([0.2], [0.0], [1.0]), [1.2])[0] - np.log(0.1), rel=1e-4
    )
    positive = Exponentiated(Joint((StudentT([0.0], [-4.0], [0.0]),), ((0,),)), (True,))
    grid = np.exp(np.linspace(-30.0, 30.0, 20_001))
    # Its tails, beyond e^30, have about 2e-6 of it.
    assert np.trapezoid(np.exp(of_first(positive, grid)), grid) == pytest.approx(1, abs=1e-3)
    assert np.isfinite(positive.mean).all()


def test_they_are_refused_where_they_do_not_fit():
    with pytest.raises(ValueError, match="`tails` must have shape"):
        StudentT([0.0], [0.0], [0.0, 1.0])
    with pytest.raises(ValueError, match="`low` must lie below `high`"):
        Rectified([0.0], [0.0], (1.0,), (0.0,))
    with pytest.raises(ValueError, match="one for each element"):
        NegativeBinomial([0.0], [0.0], (1.0, 1.0), (0.0,))
    with pytest.raises(ValueError, match="`width` must be positive"):
        NegativeBinomial([0.0], [0.0], (0.0,), (0.0,))
    assert not any(vf.distributions.is_reparameterisable(family) for family in FAMILIES[1:])
