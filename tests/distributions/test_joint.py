"""A vector of several families: its parts' answers put together; and the head that makes it."""

import functools
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
from varfilter.data import Batch, Dataset, Family, Ragged, RandomWindows
from varfilter.distributions import Joint, Mixture
from varfilter.experiments import Schedule
from varfilter.models import ColumnHead, LinearDynamics
from varfilter.testing import check_model
from varfilter.training import Thinning
from varfilter.training.fitting import fit
from worlds import standard_error

ROOT = Path(__file__).parents[2]
NORMAL = vf.Normal(jnp.array([0.5, -1.0]), jnp.array([0.3, -2.0]))
BERNOULLI = vf.Bernoulli(jnp.array([0.7]))
# Two counts on their own levels: 0, 1/2, ..., 2 and from -1 in steps of 1/4 without an end.
COUNTS = vf.DiscretizedNormal(
    jnp.array([0.9, 0.2]), jnp.array([-0.5, 0.4]), (0.5, 0.25), (0.0, -1.0), (2.0, None)
)
PLACES = ((3, 0), (2,), (1, 4))
JOINT = Joint((NORMAL, BERNOULLI, COUNTS), PLACES)
X = np.array([-1.4, 1.5, 1.0, 0.1, 0.25], np.float32)

log_prob = jax.jit(lambda distribution, x: distribution.log_prob(x))
# A few float32 terms of order 1, each right to some units of 6e-8.
FLOAT32 = 1e-5


def parts_log_prob(x):
    return sum(
        float(log_prob(part, jnp.asarray(x[list(places)])))
        for part, places in zip(JOINT.parts, PLACES, strict=True)
    )


def test_log_prob_is_the_sum_of_the_parts():
    np.testing.assert_allclose(log_prob(JOINT, X), parts_log_prob(X), rtol=FLOAT32)


@pytest.mark.parametrize("missing", [(0,), (2,), (1, 3), (0, 1, 2, 3, 4)])
def test_an_unobserved_element_adds_nothing(missing):
    x = X.copy()
    x[list(missing)] = np.nan
    np.testing.assert_allclose(log_prob(JOINT, x), parts_log_prob(x), rtol=FLOAT32, atol=1e-7)
    if len(missing) == X.size:
        assert log_prob(JOINT, x) == 0.0


def test_masses_of_the_discrete_elements_sum_to_one():
    """Each element's by itself, the others unobserved; what has no end is cut at 10 sigma."""
    levels = {1: np.arange(5) * 0.5, 2: np.arange(2.0), 4: -1.0 + 0.25 * np.arange(60)}
    for place, values in levels.items():
        x = np.full((len(values), 5), np.nan, np.float32)
        x[:, place] = values
        masses = jnp.exp(jax.jit(jax.vmap(JOINT.log_prob))(x))
        # As many roundings as there are levels.
        np.testing.assert_allclose(jnp.sum(masses), 1.0, rtol=1e-5)


def test_mean_variance_and_error_stand_in_the_vectors_order():
    for name in ("mean", "variance"):
        whole = np.asarray(getattr(JOINT, name))
        for part, places in zip(JOINT.parts, PLACES, strict=True):
            np.testing.assert_array_equal(whole[list(places)], getattr(part, name))
    x = X.copy()
    x[[1, 2]] = np.nan
    errors = np.asarray(JOINT.error(jnp.asarray(x)))
    np.testing.assert_array_equal(errors[[3, 0]], NORMAL.error(jnp.asarray(x[[3, 0]])))
    assert errors[1] == errors[2] == 0.0
    assert JOINT.shape == (5,)


def test_axes_before_the_vector_are_kept():
    """A filter gives the predictions of all steps as one distribution with a time axis."""
    steps = jax.vmap(lambda a: jax.tree.map(lambda leaf: leaf + a, JOINT))(jnp.arange(3.0))
    assert steps.shape == (3, 5)
    expected = jax.vmap(lambda d: (d.mean, d.variance))(steps)
    np.testing.assert_array_equal(steps.mean, expected[0])
    np.testing.assert_array_equal(steps.variance, expected[1])


def test_samples_have_the_parts_moments():
    draws = np.asarray(jax.jit(jax.vmap(JOINT.sample))(jax.random.split(jax.random.key(0), 20_000)))
    for place in (0, 2, 3):
        value = draws[:, place].astype(float)
        mean, variance = float(JOINT.mean[place]), float(JOINT.variance[place])
        assert abs(value.mean() - mean) < 5 * standard_error(value)
        square = (value - mean) ** 2
        assert abs(square.mean() - variance) < 5 * standard_error(square)
    assert set(np.unique(draws[:, 1])) == set(np.arange(5) * 0.5)
    assert draws[:, 4].min() == -1.0
    for place, level in ((1, 1.5), (4, -1.0)):
        x = np.full(5, np.nan, np.float32)
        x[place] = level
        share = (draws[:, place] == level).astype(float)
        assert abs(share.mean() - np.exp(log_prob(JOINT, x))) < 5 * standard_error(share)
    # The parts draw from keys of their own.
    assert abs(np.corrcoef(draws[:, [0, 1, 2, 3, 4]].T) - np.eye(5)).max() < 5 / 20_000**0.5


def test_gradients_are_finite_also_where_elements_are_missing():
    slope = jax.jit(jax.grad(lambda d, x: d.log_prob(x)))
    for x in (X, np.where(np.arange(5) % 2, np.nan, X), np.full(5, np.nan), 1e4 * X):
        for leaf in jax.tree.leaves(slope(JOINT, jnp.asarray(x, jnp.float32))):
            assert np.isfinite(leaf).all()


def test_a_mixture_of_joints_is_one():
    """As a particle filter predicts: log of the mean of two densities."""
    other = jax.tree.map(lambda leaf: leaf + 0.3, JOINT)
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), JOINT, other)
    mixture = Mixture(both, jnp.log(jnp.array([0.25, 0.75])))
    expected = jnp.log(0.25 * jnp.exp(log_prob(JOINT, X)) + 0.75 * jnp.exp(log_prob(other, X)))
    np.testing.assert_allclose(log_prob(mixture, X), expected, rtol=FLOAT32)
    assert mixture.shape == (5,)
    assert mixture.sample(jax.random.key(0)).shape == (5,)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="every element of the vector once"):
        Joint((NORMAL, BERNOULLI), ((0, 1), (1,)))
    with pytest.raises(ValueError, match=r"`parts\[1\]` must be over a vector of 2"):
        Joint((NORMAL, BERNOULLI), ((0, 1), (2, 3)))
    with pytest.raises(ValueError, match="as many entries"):
        Joint((NORMAL,), ((0, 1), (2,)))
    with pytest.raises(ValueError, match="`width` has 2 entries"):
        vf.DiscretizedNormal(jnp.zeros(3), jnp.zeros(3), (0.1, 0.2))
    with pytest.raises(ValueError, match="`low` must lie below `high`"):
        vf.DiscretizedNormal(jnp.zeros(2), jnp.zeros(2), 0.1, (0.0, 2.0), 1.0)


# The head


FAMILIES = (
    Family(vf.Normal),
    Family(vf.DiscretizedNormal, width=0.5, low=-1.5),
    Family(vf.Bernoulli),
    Family(vf.Normal),
)
HEAD = functools.partial(ColumnHead, families=FAMILIES)


def test_each_column_gets_its_family():
    row = HEAD(6, (4,), key=jax.random.key(0))(jnp.ones(6))
    assert {type(part): places for part, places in zip(row.parts, row.places, strict=True)} == {
        vf.Normal: (0, 3), vf.DiscretizedNormal: (1,), vf.Bernoulli: (2,)
    }  # fmt: skip
    for families in (FAMILIES[:1], FAMILIES[1:2], FAMILIES[2:3]):
        alone = ColumnHead(6, (1,), families=families, key=jax.random.key(0))(jnp.ones(6))
        assert [type(part) for part in alone.parts] == [families[0].distribution]


def test_log_variances_stay_in_their_range_with_a_way_back():
    head = HEAD(6, (4,), key=jax.random.key(0))

    def log_vars(hidden):
        normal, counts, _ = head(hidden).parts
        return jnp.concatenate([normal.log_var, counts.log_var])

    # The softplus of 15 times a unit weight is at the border but for rounding.
    for scale in (-1000.0, -15.0, 0.0, 15.0, 1000.0):
        values = np.asarray(log_vars(scale * jnp.ones(6)))
        assert (values[:2] >= -7.0).all()
        assert (values <= 3.01).all()
        # A count's is never below a quarter of a level.
        assert values[2] >= 2 * np.log(0.25 * 0.5) - 1e-6
    # Near zero, where the data are standardised, it is what the layer says.
    np.testing.assert_allclose(log_vars(jnp.zeros(6))[:2], 0.0, atol=0.06)
    slope = jax.jacobian(log_vars)(5.0 * jnp.ones(6))
    assert (np.abs(slope).max(axis=1) > 0).all()


def test_a_family_that_is_no_columns_is_refused():
    with pytest.raises(ValueError, match="one for each element of a row"):
        HEAD(6, (5,), key=jax.random.key(0))
    gaussian = SimpleNamespace(distribution=vf.Gaussian, width=None, low=None, high=None)
    with pytest.raises(ValueError, match="must be one of Normal, DiscretizedNormal"):
        ColumnHead(6, (1,), families=(gaussian,), key=jax.random.key(0))
    with pytest.raises(ValueError, match="width` is None"):
        ColumnHead(6, (1,), families=(Family(vf.DiscretizedNormal),), key=jax.random.key(0))


@pytest.mark.slow
def test_a_model_of_a_table_keeps_its_contract():
    model = vf.SRNN(
        4, 3, recurrent_size=5, prior_size=5, decoder_size=5, num_decoder_layers=1,
        head=HEAD, key=jax.random.key(0),
    )  # fmt: skip
    results = check_model(model, jax.random.key(1))
    assert "missing-drops" in [result.check for result in results]


# What training hides


def test_thinning_hides_its_shares():
    """Elements by themselves, and whole steps in gaps of 1 to 5, or as many as it is told."""
    batch = Batch(jnp.ones((40, 500, 3)), jnp.ones((40, 500), bool))
    only_elements = jnp.isnan(Thinning(0.1, 0.0)(batch, jax.random.key(0)).xs)
    # 60,000 independent elements: 5 standard errors of 0.0012.
    assert abs(float(only_elements.mean()) - 0.1) < 0.006
    for thinning, longest in ((Thinning(0.0, 0.02), 5), (Thinning(0.0, 0.005, 20), 20)):
        hidden = np.isnan(thinning(batch, jax.random.key(0)).xs)
        assert (hidden.all(axis=2) == hidden.any(axis=2)).all()
        # Seen if no gap began here, nor one long enough at any of the steps before.
        each = thinning.gaps * (longest - np.arange(longest)) / longest
        # About 20,000 / 3 independent stretches, or 20,000 / 10: 5 standard errors of 0.003, 0.005.
        assert abs((1 - hidden[:, longest:, 0].mean()) - np.prod(1 - each)) < 0.005 * longest**0.5
        # Only gaps that meet are longer than the longest, and they are rare.
        rows = ["".join("#" if is_hidden else "." for is_hidden in row) for row in hidden[:, :, 0]]
        lengths = [len(gap) for row in rows for gap in row.split(".")]
        assert longest <= max(lengths) < 4 * longest
    with pytest.raises(ValueError, match="`gaps` must lie in"):
        Thinning(0.1, 2.0)


def test_levels_of_one_column_are_hidden_together():
    levels = [Family(vf.distributions.Categorical, group="state")] * 2
    families = [Family(vf.Normal), *levels, Family(vf.Normal)]
    thinning = Schedule(hidden_elements=0.3, hidden_gaps=0.0).thinning(families)
    batch = Batch(jnp.ones((20, 100, 4)), jnp.ones((20, 100), bool))
    hidden = np.isnan(thinning(batch, jax.random.key(0)).xs)
    np.testing.assert_array_equal(hidden[..., 1], hidden[..., 2])
    assert (hidden[..., 0] != hidden[..., 1]).any()
    assert Schedule(hidden_elements=0.3).thinning([Family(vf.Normal)] * 2).together is None


def test_thinning_needs_a_learner_that_allows_for_gaps():
    rows = Ragged.of([np.zeros((5, 2), np.float32)])
    windows = RandomWindows(Dataset("zeros", rows, rows, rows, Family(vf.Normal)), 4, 2)
    learner = vf.EndToEnd(theta=optax.adam(1e-3), phi=None, complete=True)
    model = LinearDynamics(2, 1, hidden_size=3, key=jax.random.key(0))
    learning = learner.init(model, vf.VariationalFilter(vf.Prior()))
    with pytest.raises(ValueError, match="`thinning` hides observations"):
        next(fit(learner, learning, windows, jax.random.key(0), num_updates=1, thinning=Thinning()))


# The example's table


def test_the_table_of_the_pumps_is_what_its_script_makes():
    path = ROOT / "examples" / "make_sensors.py"
    spec = importlib.util.spec_from_file_location("make_sensors", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    text, (run, _) = script.sensors()
    assert script.OUT.read_text() == text
    assert run == script.FAULTY_RUN
