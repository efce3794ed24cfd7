"""A belief never dies: absurd readings, every filter, and what comes after them.

"Within 5%" is of the spread of a prediction: after 50 more observations its mean is no more than
a twentieth of a standard deviation from that of a stream in which the absurd readings are missing,
and its standard deviation no more than a twentieth of itself.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
import worlds
from varfilter.filters.recovery import FARTHEST, LARGEST_SURPRISE, PATIENCE, finite_bound
from varfilter.inference import Exact, Prior
from varfilter.models import NormalHead
from varfilter.prediction import run_predictive

KEY = jax.random.key(8)
BEFORE, AFTER = 10, 50
OUTLIERS = [1e6, 1e19, 1e30, 3e38]  # the first in standard deviations, which here are about 1
IN_A_ROW = PATIENCE + 3
EXACT = (vf.KalmanFilter(), vf.VariationalFilter(Exact()), vf.ParticleFilter(Exact(), 16))


INFERENCES = {
    "prior": lambda model: Prior(),
    "avf": lambda model: vf.Iterative(model, hidden_size=8, num_layers=1, key=KEY),
    "baseline": worlds.baseline,
    "descent": lambda model: vf.GradientDescent(num_iterations=5),
    "exact": lambda model: Exact(),
}
FILTERS = {
    "": vf.VariationalFilter,
    " particles": lambda inference: vf.ParticleFilter(inference, 64),
    " fivo": lambda inference: vf.ParticleFilter(inference, 32, resample_below=1.0),
    " iwae": lambda inference: vf.ParticleFilter(inference, 32, resample_below=0.0),
}


def names_of(build) -> list[str]:
    """The names of every filter with every inference that fits a world; nothing is built."""
    is_linear = build is worlds.linear_gaussian
    inferences = [name for name in INFERENCES if is_linear or name != "exact"]
    found = [name + filter for name in inferences for filter in FILTERS]
    return ["kalman", *found] if is_linear else found


def filter_named(name: str, model: vf.AbstractModel) -> vf.AbstractFilter:
    if name == "kalman":
        return vf.KalmanFilter()
    inference, space, filter = name.partition(" ")
    return FILTERS[space + filter](INFERENCES[inference](model))


def disturbed(xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sequences with absurd readings, and for each the same with those missing.

    One element of one step, by size and sign; a whole step; one element of many steps in a row.
    """
    with_them, without = [], []

    def add(where: slice, values) -> None:
        bad, clean = xs.copy(), xs.copy()
        bad[where] = np.where(np.isnan(values), bad[where], values)
        clean[where] = np.nan
        with_them.append(bad)
        without.append(clean)

    one = np.full_like(xs[:1], np.nan)
    for outlier in (*OUTLIERS, *(-np.array(OUTLIERS))):
        one.flat[0] = outlier
        add(slice(BEFORE, BEFORE + 1), one.copy())
    signs = (-1.0) ** np.arange(xs[0].size).reshape(xs[0].shape)
    add(slice(BEFORE, BEFORE + 1), 3e38 * signs[None])
    many = np.full((IN_A_ROW, *xs.shape[1:]), np.nan, xs.dtype)
    many.reshape(IN_A_ROW, -1)[:, -1] = np.resize([1e6, -1e19, 3e38, -1e30], IN_A_ROW)
    add(slice(BEFORE + 1 - IN_A_ROW, BEFORE + 1), many)
    return np.stack(with_them), np.stack(without)


def predictions(filter: vf.AbstractFilter, model: vf.AbstractModel, batch: np.ndarray) -> tuple:
    """(means and spreads of what was expected of each step, surprises, fallbacks), by sequence."""

    def one(xs: jax.Array) -> tuple:
        return run_predictive(filter, model, xs, KEY, num_samples=256)

    belief, filtered, predicted = eqx.filter_jit(jax.vmap(one))(jnp.asarray(batch))
    assert np.isfinite(worlds.vector((belief, filtered, predicted))).all()
    found = predicted.mean, predicted.variance, filtered.surprise, filtered.info.num_fallbacks
    mean, variance, surprise, fallbacks = map(np.asarray, found)
    return mean, np.sqrt(variance), surprise, fallbacks


def assert_it_comes_back(filter: vf.AbstractFilter, model: vf.AbstractModel, xs: np.ndarray):
    """What the head of this file promises; and the flags and surprises of absurd readings.

    Returns what is expected of the steps of `xs` as they are.
    """
    bad, clean = disturbed(xs)
    batch = np.concatenate([bad, clean, xs[None]])
    mean, spread, surprise, fallbacks = predictions(filter, model, batch)
    (mean, usual), (spread, _) = (np.split(a, [-1]) for a in (mean, spread))
    # Flagged where it happened, and nowhere else.
    absurd = np.isnan(clean).reshape(*clean.shape[:2], -1).all(axis=-1)
    assert (fallbacks[: len(bad)][absurd] > 0).all()
    assert not fallbacks[: len(bad)][~absurd].any()
    assert not fallbacks[len(bad) :].any()
    # It is the greatest surprise of the sequence, and more absurd is more surprising.
    ours = surprise[: len(bad)]
    assert (np.where(absurd, ours, np.inf).min(1) > np.where(absurd, -np.inf, ours).max(1)).all()
    by_size = ours[: 2 * len(OUTLIERS), BEFORE].reshape(2, -1)
    assert (np.diff(by_size, axis=1) > 0).all()
    assert ours.max() <= LARGEST_SURPRISE
    (mean, other_mean), (spread, other) = (np.split(a[:, -1], 2) for a in (mean, spread))
    assert (np.abs(mean - other_mean) <= 0.05 * other).all()
    np.testing.assert_allclose(spread, other, rtol=0.05)
    return usual[0]


USUAL = [
    (build, name)
    for build, names in (
        (worlds.linear_gaussian, ("kalman", "exact", "prior particles")),
        (worlds.srnn_normal, ("avf", "descent", "baseline iwae")),
    )
    for name in names
]
ALL = [
    pytest.param(build, name, marks=() if (build, name) in USUAL else pytest.mark.slow)
    for build in (worlds.linear_gaussian, worlds.srnn_normal, worlds.vrnn, worlds.deep_markov)
    for name in names_of(build)
]


@pytest.mark.parametrize(("build", "name"), ALL)
def test_every_filter_comes_back_from_any_finite_reading(build, name):
    model = build()
    xs = worlds.observations(model, BEFORE + 1 + AFTER)
    assert_it_comes_back(filter_named(name, model), model, xs)


@functools.cache
def trained() -> tuple[vf.AbstractModel, vf.AbstractInference, np.ndarray]:
    """An SRNN and its AVF that have learned a noisy wave; and another stretch of it."""
    times = np.arange(24 + BEFORE + 1 + AFTER)
    phases = np.linspace(0.0, 2 * np.pi, 17)[:, None]
    random = np.random.default_rng(0)
    waves = np.stack([np.sin(0.5 * times + phases), np.cos(0.5 * times + phases)], axis=-1)
    waves = (waves + 0.1 * random.normal(size=waves.shape)).astype(np.float32)
    model = vf.SRNN(
        2, 2, recurrent_size=12, prior_size=12, decoder_size=12, num_decoder_layers=1,
        head=functools.partial(NormalHead, std=0.3), key=KEY,
    )  # fmt: skip
    avf = vf.Iterative(model, hidden_size=12, num_layers=1, key=KEY)
    learner = vf.TimeParallel(theta=optax.adam(1e-2), phi=optax.adam(1e-2), num_phi_steps=2)
    state = learner.init(model, vf.VariationalFilter(avf))
    for update in range(200):
        state, _ = learner.update(state, waves[:16, :24], jax.random.fold_in(KEY, update))
    return state.model, state.filter.inference, waves[16, 24:]


@pytest.mark.parametrize("num_particles", [pytest.param(1, marks=pytest.mark.slow), 64])
def test_a_trained_model_comes_back_too(num_particles):
    model, avf, xs = trained()
    filter = vf.ParticleFilter(avf, num_particles)
    filter = vf.VariationalFilter(avf) if num_particles == 1 else filter
    # It did learn: the waves themselves have a standard deviation of 0.7, their noise of 0.1.
    mean = assert_it_comes_back(filter, model, xs)
    off = mean - xs
    assert np.sqrt(np.mean(off[20:] ** 2)) < 0.3


def test_particles_come_back_to_the_exact_answer():
    """The bootstrap filter that saw an outlier, beside the Kalman filter that never did."""
    model = worlds.scalar_world()
    xs = worlds.observations(model, BEFORE + 1 + AFTER)
    bad, clean = xs.copy(), xs.copy()
    bad[BEFORE], clean[BEFORE] = 1e30, np.nan
    kalman = vf.run(vf.KalmanFilter(), model, clean, KEY)[1].prediction
    means, variances = jax.vmap(lambda p: (p.mean, p.variance))(kalman)
    exact = float(means[-1, 0]), float(variances[-1, 0])
    _, filtered = vf.run(vf.ParticleFilter(Prior(), 4096), model, bad, KEY)
    last = jax.tree.map(lambda leaf: leaf[-1], filtered.prediction)
    # The mixture puts z_t at its prior's mean: the prior's own spread, C Q C^T, comes on top.
    spread = 1.3**2 * 0.5
    # 4096 particles: an error of 1/64 of a standard deviation, and of 1/45 of a variance.
    assert abs(float(last.mean[0]) - exact[0]) < 0.05 * exact[1] ** 0.5
    assert float(last.variance[0]) + spread == pytest.approx(exact[1], rel=0.05)


@pytest.mark.parametrize("outlier", [pytest.param(1e30, marks=pytest.mark.slow), -3e38])
def test_an_absurd_first_observation_is_outlived(outlier):
    """`x0` is conditioned on and not scored; an autoregression would take it in as it is."""
    model = vf.LinearGaussian(
        transition=[[0.5]], feedback=[[0.4]], process_covariance=[[0.3]], loading=[[1.0]],
        noise_covariance=[[0.4]],
    )  # fmt: skip
    xs = worlds.observations(model, AFTER)
    begin = eqx.filter_jit(vf.start)
    for filter in EXACT:
        begun = (begin(filter, model, jnp.full(1, x0), KEY) for x0 in (outlier, np.nan))
        bad, usual = (
            run_predictive(filter, model, xs, KEY, belief=belief, num_samples=256)
            for belief in begun
        )
        assert np.isfinite(worlds.vector(bad)).all()
        off = np.abs(bad[2].mean[-1] - usual[2].mean[-1])
        assert (off <= 0.05 * np.sqrt(usual[2].variance[-1])).all()


def test_a_level_that_has_jumped_for_good_is_followed():
    """A reading that is far, but not absurd, is taken for what it is: here 6,000 of the filter's
    standard deviations. Ignoring it would be to ignore all that come after it."""
    model = vf.LinearGaussian(
        transition=[[1.0]], process_covariance=[[1e-8]], loading=[[1.0]], noise_covariance=[[1e-8]]
    )
    xs = np.repeat(np.float32([0.0, 1.0]), 20)[:, None]
    for filter in EXACT:
        _, filtered = vf.run(filter, model, xs, KEY)
        assert not np.asarray(filtered.info.num_fallbacks).any()
        last = jax.vmap(lambda p: p.mean)(filtered.prediction)[-1]
        assert float(last[0]) == pytest.approx(1.0, abs=1e-3)


class Drifting(vf.AbstractModel):
    """A wide first prior, and then a walk that forgets nothing; a known input moves it."""

    input_size = 1

    def init(self, x0=None):
        return vf.Normal(jnp.zeros(1), jnp.full((1,), 2 * np.log(100.0)))

    def embed(self, x):
        return None

    def prior(self, state):
        return state

    def emission(self, state, z):
        return vf.Normal(z, jnp.full((1,), 2 * np.log(0.01)))

    def advance(self, state, z, features):
        return vf.Normal(z, jnp.full((1,), 2 * np.log(0.01)))

    def drive(self, state, u):
        return vf.Normal(state.mean + u, state.log_var)


# One object for all pushes, so that the program is compiled once.
DESCENT = vf.GradientDescent(optax.sgd(5e-5), num_iterations=3)


@pytest.mark.parametrize("push", [3e6, 1e30, 3e38])
@pytest.mark.parametrize("num_particles", [1, 16])
def test_a_belief_that_finds_every_reading_absurd_starts_anew(push, num_particles):
    """An absurd *input* takes the state to where no reading can be weighed, and it would stay."""
    model = Drifting()
    filter = vf.ParticleFilter(DESCENT, num_particles)
    filter = vf.VariationalFilter(DESCENT) if num_particles == 1 else filter
    xs = np.full((30, 1), 7.0, np.float32)
    us = np.zeros((30, 1), np.float32)
    us[10] = push
    belief, filtered = vf.run(filter, model, xs, KEY, us=us)
    assert np.isfinite(worlds.vector((belief, filtered))).all()
    lost = np.asarray(filtered.info.num_fallbacks) > 0
    # After the patience is over it starts from the first prior, which can weigh the reading.
    assert lost[10 : 10 + PATIENCE].all()
    assert not lost[10 + PATIENCE :].any()
    last = jax.vmap(lambda p: p.mean)(filtered.prediction)[-1]
    assert float(last[0]) == pytest.approx(7.0, abs=0.1)


def test_a_run_of_absurd_readings_is_no_reason_to_start_anew():
    """Fill values such as 1e20 for hours are missing values: the belief goes on without them."""
    model = worlds.scalar_world()
    xs = np.array(worlds.observations(model, 40))
    gap = np.where(np.arange(40)[:, None] < 30, xs, np.nan)
    fill = np.where(np.arange(40)[:, None] < 30, xs, 1e20).astype(np.float32)
    expected, _ = vf.run(vf.KalmanFilter(), model, gap, KEY)
    found, filtered = vf.run(vf.KalmanFilter(), model, fill, KEY)
    worlds.assert_same_bits(found.carry.state, expected.carry.state)
    assert int(np.sum(filtered.info.num_fallbacks)) == 10 == int(found.carry.num_lost)
    assert float(filtered.surprise[-1]) > 0.5 * FARTHEST**2


def test_a_stream_goes_on_after_an_absurd_reading():
    model = worlds.srnn_normal()
    stream = vf.Stream(filter_named("avf fivo", model), model, KEY)
    xs = worlds.observations(model, 8)
    for x in xs[:4]:
        stream.push(x)
    filtered = stream.push(np.array([3e38, -3e38, 1e30, 0.0]))
    assert int(filtered.info.num_fallbacks) == 32
    assert np.isfinite(float(filtered.surprise))
    for x in xs[4:]:
        assert np.isfinite(worlds.vector(stream.push(x))).all()


def test_a_family_that_overflows_has_the_greatest_surprise_of_all():
    class Plain(vf.AbstractModel):
        """A user's model whose log-probability is minus infinity far out."""

        def init(self, x0=None):
            return jnp.zeros(2)

        def embed(self, x):
            return x

        def prior(self, state):
            return vf.Normal(0.9 * state, jnp.zeros(2))

        def emission(self, state, z):
            return worlds.PlainNormal(z)

        def advance(self, state, z, features):
            return 0.5 * (z + features)

    model = Plain()
    xs = worlds.observations(model, 20)
    xs = np.where(np.arange(20)[:, None] == 9, 1e30, xs).astype(np.float32)
    for filter in (vf.VariationalFilter(Prior()), vf.ParticleFilter(Prior(), 16)):
        belief, filtered = vf.run(filter, model, xs, KEY)
        assert float(filtered.surprise[9]) == pytest.approx(LARGEST_SURPRISE)
        assert np.isfinite(worlds.vector((belief, filtered))).all()


def test_an_emission_without_any_spread_is_no_perfect_prediction():
    """Its density is infinite where x_t is met, and would be the best bound that there is."""
    for infinite in (jnp.inf, -jnp.inf, jnp.nan):
        found = finite_bound(jnp.asarray([infinite, 3.0, -4.0]))
        np.testing.assert_array_equal(found, jnp.asarray([-LARGEST_SURPRISE, 3.0, -4.0]))

    class Frozen(vf.AbstractModel):
        """A user's model that says of each observation that it has no noise at all."""

        def init(self, x0=None):
            return vf.Normal(jnp.zeros(1), jnp.zeros(1))

        def embed(self, x):
            return None

        def prior(self, state):
            return state

        def emission(self, state, z):
            return vf.Normal(z, jnp.full(1, -jnp.inf))

        def advance(self, state, z, features):
            return vf.Normal(0.9 * z, jnp.zeros(1))

    for filter in (vf.VariationalFilter(Prior()), vf.ParticleFilter(Prior(), 4)):
        belief, filtered = vf.run(filter, Frozen(), np.float32([[0.3], [0.1]]), KEY)
        assert (filtered.surprise > 0).all()
        assert np.isfinite(worlds.vector((belief, filtered.bound))).all()


def test_the_tail_of_a_normal_meets_its_square_and_goes_on():
    normal = vf.Normal(jnp.zeros(1), jnp.full((1,), 2 * np.log(0.1)))
    xs = np.float32([1.0, 9.99e4, 1.01e5, 1e10, 1e19, 1e30, 3e38])
    scores = np.array([float(normal.log_prob(jnp.asarray([x]))) for x in xs])
    assert np.isfinite(scores).all()
    assert (np.diff(scores) < 0).all()
    # Where the tail takes over, at 1e6 standard deviations, both sides are -(1e6)^2 / 2.
    np.testing.assert_allclose(scores[1:3], -0.5e12, rtol=0.03)
    slope = jax.grad(lambda x: normal.log_prob(x[None]))
    assert float(slope(jnp.asarray(1e30))) == 0.0
    np.testing.assert_allclose(float(slope(jnp.asarray(1.0))), -100.0, rtol=1e-5)
