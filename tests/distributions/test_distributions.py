"""Distributions against scipy, their own samples, and the marginals that NaN asks for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import varfilter as vf
from varfilter import distributions
from varfilter.distributions import Joint, Mixture, PaperDiscretizedNormal, Particles
from worlds import covariance, standard_error

RANDOM = np.random.default_rng(0)
MEAN, OTHER_MEAN = RANDOM.normal(size=(2, 3)).astype(np.float32)
LOG_VAR, OTHER_LOG_VAR = RANDOM.normal(size=(2, 3)).astype(np.float32)
COVARIANCE, OTHER_COVARIANCE = (covariance(RANDOM, 3) for _ in range(2))
X = np.array([0.3, -1.2, 2.0], np.float32)

NORMAL = vf.Normal(MEAN, LOG_VAR)
GAUSSIAN = vf.Gaussian.from_covariance(jnp.asarray(MEAN), jnp.asarray(COVARIANCE, jnp.float32))
BERNOULLI = vf.Bernoulli(MEAN)
OTHER_NORMAL = vf.Normal(OTHER_MEAN, OTHER_LOG_VAR)
OTHER_GAUSSIAN = vf.Gaussian.from_covariance(
    jnp.asarray(OTHER_MEAN), jnp.asarray(OTHER_COVARIANCE, jnp.float32)
)
OTHER_BERNOULLI = vf.Bernoulli(OTHER_MEAN)

# One compilation for each family instead of one for each operation.
log_prob = jax.jit(lambda distribution, x: distribution.log_prob(jnp.asarray(x, jnp.float32)))

value_and_slope = jax.jit(jax.value_and_grad(lambda d, x: d.log_prob(x), argnums=(0, 1)))

# Sums of a few float32 terms of order 1 to 10, each right to a few units of 6e-8.
FLOAT32 = 1e-5


# Densities


def test_normal_is_scipy_norm():
    expected = scipy.stats.norm.logpdf(X, MEAN, np.exp(0.5 * LOG_VAR)).sum()
    np.testing.assert_allclose(log_prob(NORMAL, X), expected, rtol=FLOAT32)


def test_gaussian_is_scipy_multivariate_normal():
    expected = scipy.stats.multivariate_normal.logpdf(X, MEAN, COVARIANCE)
    np.testing.assert_allclose(log_prob(GAUSSIAN, X), expected, rtol=FLOAT32)
    np.testing.assert_allclose(GAUSSIAN.covariance, COVARIANCE, rtol=FLOAT32, atol=1e-6)
    np.testing.assert_allclose(GAUSSIAN.variance, np.diag(COVARIANCE), rtol=FLOAT32)


def test_gaussian_of_a_normal_is_that_normal():
    same = vf.Gaussian.from_normal(NORMAL)
    np.testing.assert_allclose(log_prob(same, X), log_prob(NORMAL, X), rtol=FLOAT32)


def test_bernoulli_is_scipy_bernoulli():
    x = np.array([1.0, 0.0, 1.0], np.float32)
    expected = scipy.stats.bernoulli.logpmf(x, scipy.special.expit(MEAN.astype(float))).sum()
    np.testing.assert_allclose(log_prob(BERNOULLI, x), expected, rtol=FLOAT32)


@pytest.mark.parametrize("logit", [-1e4, -100.0, 100.0, 1e4])
def test_bernoulli_at_extreme_logits(logit):
    """log sigmoid(l) = min(l, 0) - log(1 + exp(-|l|)): the last term is below 1e-43 here."""
    certain = vf.Bernoulli(jnp.array([logit]))
    for x in (0.0, 1.0):
        value, slope = jax.value_and_grad(lambda d, x=x: d.log_prob(jnp.array([x])))(certain)
        assert float(value) == min(logit * (2 * x - 1), 0.0)
        assert float(slope.logits[0]) == x - (logit > 0)
        assert np.isfinite(certain.error(jnp.array([x]))).all()


def test_particles_have_no_density():
    particles = Particles(jnp.zeros((4, 2)), jnp.zeros(4))
    with pytest.raises(TypeError, match="no density"):
        particles.log_prob(jnp.zeros(2))


# Missing elements

MISSING = [
    pytest.param([np.nan, -1.2, 2.0], id="first"),
    pytest.param([0.3, np.nan, 2.0], id="middle"),
    pytest.param([np.nan, -1.2, np.nan], id="two"),
]


@pytest.mark.parametrize("x", MISSING)
def test_gaussian_with_missing_elements_is_the_marginal(x):
    seen = ~np.isnan(x)
    expected = scipy.stats.multivariate_normal.logpdf(
        np.asarray(x)[seen], MEAN[seen], COVARIANCE[np.ix_(seen, seen)]
    )
    np.testing.assert_allclose(log_prob(GAUSSIAN, x), expected, rtol=FLOAT32)
    error = np.zeros(3)
    error[seen] = np.linalg.solve(COVARIANCE[np.ix_(seen, seen)], (np.array(x) - MEAN)[seen])
    np.testing.assert_allclose(GAUSSIAN.error(jnp.array(x)), error, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("x", MISSING)
@pytest.mark.parametrize(
    "distribution",
    [
        NORMAL,
        BERNOULLI,
        vf.DiscretizedNormal(MEAN, LOG_VAR, 0.1),
        PaperDiscretizedNormal(MEAN, LOG_VAR, 0.1),
    ],
    ids=lambda d: type(d).__name__,
)
def test_independent_elements_that_are_missing_drop_out(distribution, x):
    """What is left is the same family over the observed elements alone, to the last bits."""
    seen = ~np.isnan(x)
    smaller = jax.tree.map(lambda leaf: leaf[seen], distribution)
    np.testing.assert_allclose(
        log_prob(distribution, x),
        log_prob(smaller, np.array(x)[seen]),
        rtol=1e-6,
    )
    np.testing.assert_array_equal(distribution.error(jnp.array(x))[~seen], 0.0)


ALL = [
    NORMAL,
    GAUSSIAN,
    BERNOULLI,
    vf.DiscretizedNormal(MEAN, LOG_VAR, 0.1, -2.0, 2.0),
    PaperDiscretizedNormal(MEAN, LOG_VAR, 0.1),
    Mixture(jax.tree.map(lambda a, b: jnp.stack([a, b]), NORMAL, OTHER_NORMAL), jnp.zeros(2)),
]


@pytest.mark.parametrize("distribution", ALL, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("x", [[np.nan, -1.2, 2.0], [np.nan] * 3], ids=["one", "all"])
def test_gradients_are_finite_with_missing_elements(distribution, x):
    """In the parameters and in x; and a wholly missing x says nothing about the parameters."""
    x = jnp.array(x)
    value, slope = value_and_slope(distribution, x)
    for leaf in jax.tree.leaves((value, slope)):
        assert np.isfinite(leaf).all()
    if np.isnan(x).all():
        # The mixture's weights go through logsumexp: zero up to one rounding of log(1).
        np.testing.assert_allclose(value, 0.0, atol=2e-7)
        for leaf in jax.tree.leaves(slope):
            np.testing.assert_allclose(leaf, 0.0, atol=2e-7)


# Samples


@pytest.mark.parametrize(
    "distribution",
    [NORMAL, GAUSSIAN, BERNOULLI, PaperDiscretizedNormal(MEAN, LOG_VAR, 0.1), ALL[-1]],
    ids=lambda d: type(d).__name__,
)
def test_samples_have_the_stated_mean_and_variance(distribution):
    draws = np.asarray(
        jax.jit(jax.vmap(distribution.sample))(jax.random.split(jax.random.key(0), 20_000)), float
    )
    assert draws.shape[1:] == distribution.shape
    for i in range(3):
        # Five standard errors: a false alarm once in a million.
        mean, variance = float(distribution.mean[i]), float(distribution.variance[i])
        assert abs(draws[:, i].mean() - mean) < 5 * standard_error(draws[:, i])
        squares = (draws[:, i] - mean) ** 2
        assert abs(squares.mean() - variance) < 5 * standard_error(squares)


def test_gaussian_samples_have_the_stated_covariance():
    draws = jax.jit(jax.vmap(GAUSSIAN.sample))(jax.random.split(jax.random.key(1), 20_000))
    centred = np.asarray(draws, float) - MEAN
    for i in range(3):
        for j in range(i):
            product = centred[:, i] * centred[:, j]
            assert abs(product.mean() - COVARIANCE[i, j]) < 5 * standard_error(product)


# KL

PAIRS = {
    "Normal, Normal": (NORMAL, OTHER_NORMAL),
    "Gaussian, Gaussian": (GAUSSIAN, OTHER_GAUSSIAN),
    "Normal, Gaussian": (NORMAL, GAUSSIAN),
    "Gaussian, Normal": (GAUSSIAN, NORMAL),
    "Bernoulli, Bernoulli": (BERNOULLI, OTHER_BERNOULLI),
    "tree": (
        {"upper": NORMAL, "lower": [GAUSSIAN, BERNOULLI]},
        {"upper": GAUSSIAN, "lower": [OTHER_NORMAL, OTHER_BERNOULLI]},
    ),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_kl_is_the_mean_log_ratio_of_samples(pair):
    q, p = pair
    assert distributions.has_analytic_kl(q, p)

    def log_ratio(key):
        z = distributions.sample(q, key)
        return distributions.log_prob(q, z) - distributions.log_prob(p, z)

    ratios = np.asarray(jax.jit(jax.vmap(log_ratio))(jax.random.split(jax.random.key(2), 20_000)))
    assert abs(float(vf.kl(q, p)) - ratios.mean()) < 5 * standard_error(ratios)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_kl_of_a_distribution_with_itself_is_zero(pair):
    q, _ = pair
    # Differences of sums of order 10 in float32.
    np.testing.assert_allclose(vf.kl(q, q), 0.0, atol=2e-6)


def test_kl_of_two_close_normals_keeps_its_digits():
    """KL is (dl)^2 / 4 to leading order; the textbook formula gives 0 or 6e-8 in float32."""
    p = vf.Normal(jnp.zeros(1), jnp.zeros(1))
    q = vf.Normal(jnp.zeros(1), jnp.array([1e-3]))
    # The next term of the series, dl^3 / 12, is 3e-4 of the first; expm1 rounds at 6e-8 / 1e-3.
    np.testing.assert_allclose(vf.kl(q, p), 2.5e-7, rtol=1e-3)


def test_kl_against_scipy_for_bernoulli():
    q, p = (scipy.special.expit(m.astype(float)) for m in (MEAN, OTHER_MEAN))
    expected = np.sum(scipy.special.rel_entr([q, 1 - q], [p, 1 - p]))
    np.testing.assert_allclose(vf.kl(BERNOULLI, OTHER_BERNOULLI), expected, rtol=FLOAT32)


def test_a_pair_without_closed_form_is_refused_by_name():
    discretized = vf.DiscretizedNormal(MEAN, LOG_VAR, 0.1)
    assert not distributions.has_analytic_kl(discretized, NORMAL)
    with pytest.raises(TypeError, match=r"no closed form for q `DiscretizedNormal`"):
        vf.kl(discretized, NORMAL)
    with pytest.raises(TypeError, match="one structure"):
        vf.kl([NORMAL], NORMAL)


# Trees


def test_a_tree_of_distributions_is_their_product():
    tree = {"a": NORMAL, "b": [GAUSSIAN, BERNOULLI]}
    z = distributions.sample(tree, jax.random.key(3))
    assert distributions.event_shape(tree) == {"a": (3,), "b": [(3,), (3,)]}
    expected = (
        NORMAL.log_prob(z["a"]) + GAUSSIAN.log_prob(z["b"][0]) + BERNOULLI.log_prob(z["b"][1])
    )
    np.testing.assert_allclose(distributions.log_prob(tree, z), expected, rtol=1e-6)
    np.testing.assert_array_equal(distributions.mean(tree)["b"][0], GAUSSIAN.mean)
    np.testing.assert_array_equal(distributions.error(tree, z)["a"], NORMAL.error(z["a"]))
    # Two leaves of one family must not share their noise.
    twins = distributions.sample([NORMAL, NORMAL], jax.random.key(4))
    assert not np.allclose(twins[0], twins[1])


def test_a_pair_of_draws_is_mirrored_where_the_family_is_symmetric():
    joint = Joint((NORMAL,), ((0, 1, 2),))
    tree = {"normal": NORMAL, "gaussian": GAUSSIAN, "vector": joint}
    first, second = distributions.sample_pair(tree, jax.random.key(5))
    for name in ("normal", "gaussian"):
        middle = (first[name] + second[name]) / 2
        np.testing.assert_allclose(middle, tree[name].mean, atol=1e-5)
        assert not np.allclose(first[name], second[name])
    # A family that does not say that it is symmetric is drawn from twice.
    assert not joint.is_symmetric
    assert not np.allclose(first["vector"] + second["vector"], 2 * joint.mean, atol=1e-3)


@pytest.mark.parametrize("distribution", [NORMAL, GAUSSIAN], ids=["Normal", "Gaussian"])
def test_a_mirrored_draw_is_a_draw(distribution):
    """As many standard deviations from the mean as any, with the covariance it should have."""
    keys = jax.random.split(jax.random.key(6), 20_000)
    draws = jax.jit(jax.vmap(lambda key: distributions.sample_pair(distribution, key)[1]))(keys)
    draws = np.asarray(draws, float)
    spread = np.sqrt(np.asarray(distribution.variance, float))
    error = (draws.mean(0) - distribution.mean) / spread
    # Five standard errors of a mean, and of a variance, of 20,000 draws.
    assert np.abs(error).max() < 5 / 20_000**0.5
    np.testing.assert_allclose(draws.var(0), spread**2, rtol=5 * (2 / 20_000) ** 0.5)


def test_stabilised_holds_the_spread_and_changes_nothing_else():
    wild = vf.Normal(MEAN, jnp.array([-1e3, 0.5, 1e3]))
    np.testing.assert_array_equal(wild.stabilised().log_var, [-15.0, 0.5, 5.0])
    np.testing.assert_array_equal(wild.stabilised().mean, MEAN)
    factor = jnp.array([[-1e3, 9.0], [0.75, 1e3]])
    tamed = vf.Gaussian(jnp.zeros(2), factor).stabilised()
    # The same limits as a log-variance: the diagonal holds log standard deviations.
    np.testing.assert_array_equal(tamed.factor, [[-7.5, 0.0], [0.75, 2.5]])


# Particles and mixtures


def test_particle_moments():
    random = np.random.default_rng(5)
    values, log_weights = random.normal(size=(6, 2)), random.normal(size=6)
    w = np.exp(log_weights) / np.exp(log_weights).sum()
    # An added constant must not matter: particle weights arrive unnormalised.
    particles = Particles(
        {"z": jnp.asarray(values, jnp.float32)}, jnp.asarray(log_weights + 50, jnp.float32)
    )
    mean = w @ values
    np.testing.assert_allclose(particles.mean["z"], mean, rtol=FLOAT32)
    np.testing.assert_allclose(particles.variance["z"], w @ (values - mean) ** 2, rtol=FLOAT32)
    np.testing.assert_allclose(particles.effective_sample_size, 1 / (w**2).sum(), rtol=FLOAT32)
    assert particles.shape == {"z": (2,)}
    draws = jax.jit(jax.vmap(particles.sample))(jax.random.split(jax.random.key(6), 20_000))["z"]
    for i in range(6):
        share = np.asarray(draws[:, 0] == particles.values["z"][i, 0], float)
        assert abs(share.mean() - w[i]) < 5 * np.sqrt(w[i] * (1 - w[i]) / share.size)


def test_effective_sample_size_at_its_two_ends():
    values = jnp.zeros((8, 1))
    equal = Particles(values, jnp.full(8, -3.0))
    lonely = Particles(values, jnp.full(8, -jnp.inf).at[3].set(0.0))
    np.testing.assert_allclose(equal.effective_sample_size, 8.0, rtol=1e-6)
    np.testing.assert_allclose(lonely.effective_sample_size, 1.0, rtol=1e-6)


def test_mixture_moments_and_density():
    w = np.array([0.2, 0.8])
    means, log_vars = np.stack([MEAN, OTHER_MEAN]), np.stack([LOG_VAR, OTHER_LOG_VAR])
    mixture = Mixture(vf.Normal(means, log_vars), jnp.log(jnp.array(w, jnp.float32)) + 7.0)
    mean = w @ means
    np.testing.assert_allclose(mixture.mean, mean, rtol=FLOAT32)
    np.testing.assert_allclose(
        mixture.variance, w @ (np.exp(log_vars) + (means - mean) ** 2), rtol=FLOAT32
    )
    for x in (X, np.array([0.3, np.nan, 2.0], np.float32)):
        seen = ~np.isnan(x)
        parts = scipy.stats.norm.pdf(x, means, np.exp(0.5 * log_vars))[:, seen].prod(axis=1)
        np.testing.assert_allclose(log_prob(mixture, x), np.log(w @ parts), rtol=FLOAT32)
