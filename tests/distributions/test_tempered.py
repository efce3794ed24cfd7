"""Temperature: p(x)^(1 / T), made to sum to 1, where a family has it; and what others do."""

import jax.numpy as jnp
import numpy as np
import pytest

from varfilter import distributions
from varfilter.distributions import (
    Bernoulli,
    Categorical,
    DiscretizedNormal,
    Exponentiated,
    Gaussian,
    Joint,
    Mixture,
    NegativeBinomial,
    Normal,
    Rectified,
    StudentT,
    ZeroInflated,
)

MEAN, LOG_VAR = jnp.array([0.3, -1.0]), jnp.array([0.5, -0.7])
NORMAL = Normal(MEAN, LOG_VAR)
NOTES = Bernoulli(jnp.array([0.4, -2.0]))
LEVELS = Categorical(jnp.array([0.3, -1.0, 2.0]))
GAUSSIAN = Gaussian.from_cholesky(MEAN, jnp.array([[1.0, 0.0], [0.4, 0.8]]))
POINTS = {
    "Normal": (NORMAL, [[0.0, 0.0], [1.0, -2.0], [3.0, 0.5]]),
    "Gaussian": (GAUSSIAN, [[0.0, 0.0], [1.0, -2.0], [3.0, 0.5]]),
    "Bernoulli": (NOTES, [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]),
    "Categorical": (LEVELS, np.eye(3).tolist()),
}


@pytest.mark.parametrize("temperature", [0.3, 2.5])
@pytest.mark.parametrize("name", POINTS)
def test_the_power_of_what_it_was(name, temperature):
    family, points = POINTS[name]
    changed = family.tempered(temperature)
    # log p_T(x) - log p(x) / T is the same for all x: the logarithm of what makes it sum to 1.
    rest = [
        float(changed.log_prob(x) - family.log_prob(x) / temperature) for x in jnp.array(points)
    ]
    np.testing.assert_allclose(rest, rest[0], rtol=1e-5, atol=1e-5)


def test_the_others_are_as_much_wider():
    pixels = DiscretizedNormal(MEAN, LOG_VAR, 0.1, -3.0, 3.0).tempered(2.0)
    np.testing.assert_allclose(pixels.variance, 2.0 * NORMAL.variance, rtol=1e-6)
    assert (pixels.width, pixels.low, pixels.high) == (0.1, -3.0, 3.0)
    heavy = StudentT(MEAN, LOG_VAR, jnp.zeros(2))
    np.testing.assert_allclose(heavy.tempered(0.5).variance, 0.5 * heavy.variance, rtol=1e-6)
    held = Rectified(MEAN, LOG_VAR, (None, None), (None, None))
    np.testing.assert_allclose(held.tempered(0.5).variance, 0.5 * held.variance, rtol=1e-5)
    rain = ZeroInflated(jnp.array([1.0]), jnp.array([0.2]), jnp.array([-1.0])).tempered(0.5)
    np.testing.assert_allclose(rain.logits, 2.0)
    np.testing.assert_allclose(jnp.exp(rain.log_var), 0.5 * np.exp(-1.0), rtol=1e-6)


def test_counts_keep_their_mean_and_are_never_steadier_than_poisson():
    counts = NegativeBinomial(jnp.log(jnp.array([4.0])), jnp.log(jnp.array([2.0])), (1.0,), (0.0,))
    np.testing.assert_allclose(counts.variance, 12.0, rtol=1e-6)
    for temperature, variance in ((2.0, 24.0), (0.5, 6.0), (0.1, 4.0)):
        changed = counts.tempered(temperature)
        np.testing.assert_allclose(changed.mean, 4.0, rtol=1e-6)
        np.testing.assert_allclose(changed.variance, variance, rtol=1e-5)


def test_of_what_is_made_of_others_each():
    joint = Joint((NORMAL, NOTES), ((0, 2), (1, 3))).tempered(2.0)
    np.testing.assert_allclose(joint.parts[0].variance, 2.0 * NORMAL.variance, rtol=1e-6)
    np.testing.assert_allclose(joint.parts[1].logits, NOTES.logits / 2.0)
    positive = Exponentiated(NORMAL, (True, False)).tempered(2.0)
    np.testing.assert_allclose(positive.log.variance, 2.0 * NORMAL.variance, rtol=1e-6)
    both = Mixture(Normal(jnp.zeros((2, 1)), jnp.zeros((2, 1))), jnp.log(jnp.array([0.2, 0.8])))
    colder = both.tempered(0.5)
    np.testing.assert_allclose(colder.weights, [0.04 / 0.68, 0.64 / 0.68], rtol=1e-5)
    np.testing.assert_allclose(colder.components.variance, 0.5, rtol=1e-6)


def test_a_tree_of_them_and_one_that_stays_as_it_is():
    tree = {"z": (NORMAL, GAUSSIAN)}
    assert distributions.tempered(tree, 1.0) is tree
    changed = distributions.tempered(tree, 4.0)["z"]
    np.testing.assert_allclose(changed[0].std, 2.0 * NORMAL.std, rtol=1e-6)
    np.testing.assert_allclose(changed[1].covariance, 4.0 * GAUSSIAN.covariance, rtol=1e-5)
