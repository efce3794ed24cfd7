"""Elements that depend on those before them: held against the dense Gaussian that this is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
from refusals import refuses
from varfilter.distributions import Autoregressive, DiscretizedNormal, Gaussian, StudentT, step_up

KEY = jax.random.key(5)
SIZE, ORDER = 12, 4


@pytest.fixture
def in_float64():
    with jax.enable_x64(True):
        yield


def example(size=SIZE, order=ORDER, seed=0):
    """A stable filter with innovations of many means and spreads, in the precision in force."""
    random = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(random.normal(size=shape), jnp.result_type(float))  # noqa: E731
    innovations = vf.Normal(draw(size), draw(size))
    return Autoregressive(innovations, step_up(jnp.tanh(draw(order))), draw(order))


def dense(distribution) -> Gaussian:
    """The same by linear algebra: A x = u, A having ones and -a_k on its diagonals."""
    order, size = distribution.coefficients.size, distribution.shape[0]
    a, before = (np.asarray(each) for each in (distribution.coefficients, distribution.before))
    matrix, drive = np.eye(size), np.array(distribution.innovations.mean)
    for i in range(size):
        for k in range(1, order + 1):
            if i >= k:
                matrix[i, i - k] = -a[k - 1]
            else:
                drive[i] += a[k - 1] * before[i - k]
    root = np.linalg.inv(matrix) * np.asarray(distribution.innovations.std)
    return Gaussian.from_covariance(
        jnp.asarray(np.linalg.solve(matrix, drive)), jnp.asarray(root @ root.T)
    )


@pytest.mark.usefixtures("in_float64")
def test_it_is_the_dense_gaussian():
    one = example()
    other, x = dense(one), jnp.asarray(np.random.default_rng(1).normal(size=SIZE))
    # The matrix has a condition number of some 10^2; all else is rounding.
    for name in ("mean", "variance"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-10)
    np.testing.assert_allclose(one.log_prob(x), other.log_prob(x), rtol=1e-10)
    np.testing.assert_allclose(one.error(x), other.error(x), rtol=1e-10, atol=1e-10)
    slope = jax.grad(lambda x: one.log_prob(x))(x)
    np.testing.assert_allclose(one.error(x), -slope, rtol=1e-10, atol=1e-10)
    for same, wide in ((one.widened(2.0), 2.0), (one.tempered(4.0), 2.0)):
        np.testing.assert_allclose(same.variance, wide**2 * other.variance, rtol=1e-10)
        np.testing.assert_allclose(same.mean, other.mean, rtol=1e-10)


def test_draws_have_its_mean_and_covariance():
    one = example()
    other, count = dense(one), 20_000
    draws = np.asarray(jax.vmap(one.sample)(jax.random.split(KEY, count)))
    std = np.sqrt(np.asarray(other.variance))
    # Five standard errors: 1 / sqrt(n) of the mean, and at most sqrt(2 / n) of a covariance.
    assert np.all(np.abs(draws.mean(0) - other.mean) < 5 * std / np.sqrt(count))
    far = np.abs(np.cov(draws.T) - other.covariance) / np.outer(std, std)
    assert np.all(far < 5 * np.sqrt(2 / count))


@pytest.mark.usefixtures("in_float64")
def test_missing_elements_that_nothing_follows_are_marginalised_exactly():
    one = example()
    x = jnp.asarray(np.random.default_rng(1).normal(size=SIZE)).at[8:].set(jnp.nan)
    np.testing.assert_allclose(one.log_prob(x), dense(one).log_prob(x), rtol=1e-10)
    assert one.log_prob(jnp.full_like(x, jnp.nan)) == 0.0
    assert np.isnan(x[8:]).all()
    assert np.all(one.error(x)[8:] == 0.0)


@pytest.mark.usefixtures("in_float64")
def test_what_follows_a_gap_is_predicted_from_what_is_expected_in_it():
    """The terms of the observed elements, with the gap filled one by one."""
    one = example()
    x = np.random.default_rng(1).normal(size=SIZE)
    x[[0, 3, 4, 5, 8, 11]] = np.nan
    a, line = np.asarray(one.coefficients)[::-1], list(np.asarray(one.before))
    means, stds = np.asarray(one.innovations.mean), np.asarray(one.innovations.std)
    total = 0.0
    for value, mean, std in zip(x, means, stds, strict=True):
        expected = mean + a @ line[-ORDER:]
        line.append(expected if np.isnan(value) else value)
        if not np.isnan(value):
            total -= 0.5 * ((value - expected) / std) ** 2 + np.log(std) + 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(one.log_prob(jnp.asarray(x)), total, rtol=1e-12)


@pytest.mark.usefixtures("in_float64")
def test_its_error_goes_through_the_gap():
    """What is predicted after a gap depends on what was observed before it, too."""
    one = example()
    x = jnp.asarray(np.random.default_rng(1).normal(size=SIZE))
    x = x.at[jnp.array([0, 3, 4, 8, 11])].set(jnp.nan)
    error, slope = one.error(x), jax.grad(lambda x: one.log_prob(x))(x)
    # Both are products of the same filter with the same residuals; the rest is rounding.
    np.testing.assert_allclose(error, -slope, rtol=1e-10, atol=1e-10)
    assert np.all(error[np.isnan(x)] == 0.0)


@pytest.mark.usefixtures("in_float64")
def test_its_gradient_goes_through_the_gap():
    """Finite differences of the score with elements missing, in all that it depends on."""
    one = example()
    x = (
        jnp.asarray(np.random.default_rng(1).normal(size=SIZE))
        .at[jnp.array([2, 3, 7])]
        .set(jnp.nan)
    )
    leaves, treedef = jax.tree.flatten(one)

    def score(*leaves):
        return treedef.unflatten(leaves).log_prob(x)

    slopes = jax.jit(jax.grad(score, argnums=tuple(range(len(leaves)))))(*leaves)
    for i, slope in enumerate(slopes):
        direction = jnp.asarray(np.random.default_rng(i).normal(size=leaves[i].shape))
        # The error of a central difference is h^2 times a third derivative of order 100 at most.
        h = 1e-5
        up, down = (
            score(*leaves[:i], leaves[i] + s * direction, *leaves[i + 1 :]) for s in (h, -h)
        )
        np.testing.assert_allclose((up - down) / (2 * h), jnp.sum(slope * direction), rtol=1e-6)


def test_a_missing_element_is_drawn_after_those_before_it():
    one = example()
    x = jnp.asarray(np.random.default_rng(1).normal(size=SIZE), jnp.float32)
    gap = x.at[6:].set(jnp.nan)
    keys = jax.random.split(KEY, 20_000)
    draws = np.asarray(jax.vmap(lambda key: one.complete(gap, key))(keys))
    np.testing.assert_array_equal(draws[:, :6], np.broadcast_to(x[:6], (20_000, 6)))
    # The exact conditional, since nothing that follows the gap was observed.
    whole = dense(one)
    covariance = np.asarray(whole.covariance)
    gain = covariance[6:, :6] @ np.linalg.inv(covariance[:6, :6])
    mean = np.asarray(whole.mean)[6:] + gain @ np.asarray(x - whole.mean)[:6]
    std = np.sqrt(np.diagonal(covariance[6:, 6:] - gain @ covariance[:6, 6:]))
    # Five standard errors of a mean and of a standard deviation.
    assert np.all(np.abs(draws[:, 6:].mean(0) - mean) < 5 * std / np.sqrt(20_000))
    assert np.all(np.abs(draws[:, 6:].std(0) / std - 1) < 5 / np.sqrt(2 * 20_000))


@pytest.mark.usefixtures("in_float64")
def test_the_probabilities_of_all_levels_sum_to_one():
    """Each of two elements by its own bin, given the level that the other has."""
    width = 0.25
    innovations = DiscretizedNormal(jnp.array([0.3, -0.2]), jnp.array([-1.0, -2.0]), width)
    one = Autoregressive(innovations, jnp.array([0.9]), jnp.array([0.6]))
    levels = jnp.linspace(-10.0, 10.0, 81)  # beyond 10, some 16 standard deviations, is nothing
    pairs = jnp.stack(jnp.meshgrid(levels, levels), axis=-1).reshape(-1, 2)
    np.testing.assert_allclose(jnp.sum(jnp.exp(jax.vmap(one.log_prob)(pairs))), 1.0, rtol=1e-10)


def test_without_coefficients_it_is_the_innovations():
    """Of any family whose elements are independent."""
    mean, log_var, x = jnp.array([0.1, -0.4]), jnp.array([0.3, -0.2]), jnp.array([0.5, jnp.nan])
    for family in (
        vf.Normal(mean, log_var),
        StudentT(mean, log_var, jnp.array([0.2, 0.1])),
        DiscretizedNormal(mean, log_var, 0.1),
    ):
        one = Autoregressive(family, jnp.zeros(3), jnp.array([5.0, -7.0, 9.0]))
        np.testing.assert_allclose(one.log_prob(x), family.log_prob(x), rtol=1e-6)
        np.testing.assert_allclose(one.sample(KEY), family.sample(KEY), rtol=1e-6)
        np.testing.assert_allclose(one.variance, family.variance, rtol=1e-6)


@pytest.mark.usefixtures("in_float64")
def test_reflections_below_one_are_those_of_a_stable_filter():
    """The recursion backwards finds them again; all poles lie inside of the unit circle."""
    random = np.random.default_rng(0)
    for order in (1, 2, 5, 16):
        reflections = np.tanh(0.7 * random.normal(size=order))
        a = np.asarray(step_up(jnp.asarray(reflections)))
        assert np.abs(np.roots([1.0, *-a])).max() < 1.0
        found = []
        while a.size:
            found.append(a[-1])
            a = (a + a[-1] * np.append(a[-2::-1], 0.0))[:-1] / (1.0 - a[-1] ** 2)
        # Each of 16 turns multiplies the rounding by 1 / (1 - r^2), which is 10 at most.
        np.testing.assert_allclose(found[::-1], reflections, atol=1e-9)
    # Of two coefficients there is a formula: a_1 = r_1 (1 - r_2), a_2 = r_2.
    np.testing.assert_allclose(step_up(jnp.array([0.5, -0.8])), [0.9, -0.8], rtol=1e-12)


def test_what_does_not_go_together_is_refused():
    normal, flat = vf.Normal(jnp.zeros(5), jnp.zeros(5)), jnp.zeros((5, 2))
    bounded = DiscretizedNormal(jnp.zeros(5), jnp.zeros(5), 0.1, low=0.0)
    two, three = jnp.zeros(2), jnp.zeros(3)
    refuses(
        lambda: Autoregressive(normal, two, three), ValueError, "`before` must have", "(3,)", "(2,)"
    )
    refuses(
        lambda: Autoregressive(vf.Normal(flat, flat), two, two),
        ValueError,
        "over a vector",
        "(5, 2)",
    )
    refuses(lambda: Autoregressive(bounded, two, two), ValueError, "`innovations` has `low`")


def test_what_is_made_up_between_observed_elements_stays_finite():
    """Four poles at 0.9, every second element missing: that is no stable filter any more."""
    poles = np.poly([0.9, 0.9, 0.9, 0.9])
    coefficients = jnp.asarray(-poles[1:], jnp.float32)
    size = 200
    innovations = vf.Normal(jnp.zeros(size), jnp.zeros(size))
    whole = Autoregressive(innovations, coefficients, jnp.zeros(4))
    x = whole.sample(jax.random.key(0)).at[::2].set(jnp.nan)
    completed = whole.complete(x, jax.random.key(1))
    assert np.isfinite(completed).all()
    np.testing.assert_array_equal(completed[1::2], x[1::2])
    assert np.isfinite(whole.log_prob(x))
