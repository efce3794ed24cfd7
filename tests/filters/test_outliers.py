"""A belief never dies: absurd readings, every filter, and what comes after them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
import worlds
from varfilter.filters.recovery import LARGEST_SURPRISE
from varfilter.inference import Exact, Prior
from varfilter.prediction import run_predictive

KEY = jax.random.key(8)
BEFORE, AFTER = 10, 50
OUTLIERS = [1e6, 1e19, 1e30, 3e38]  # the first in standard deviations, which here are about 1


def filters(model: vf.AbstractModel) -> dict[str, vf.AbstractFilter]:
    """Every filter with an inference of each kind that fits the model."""
    avf = vf.Iterative(model, hidden_size=8, num_layers=1, key=KEY)
    baseline = worlds.baseline(model)
    found = {
        "avf": vf.VariationalFilter(avf),
        "baseline": vf.VariationalFilter(baseline),
        "descent": vf.VariationalFilter(vf.GradientDescent(num_iterations=5)),
        "bootstrap": vf.ParticleFilter(Prior(), 64),
        "fivo": vf.ParticleFilter(avf, 32, resample_below=1.0),
        "iwae": vf.ParticleFilter(baseline, 32, resample_below=0.0),
    }
    if isinstance(model, vf.LinearGaussian):
        found |= {
            "kalman": vf.KalmanFilter(),
            "exact": vf.VariationalFilter(Exact()),
            "optimal": vf.ParticleFilter(Exact(), 64),
        }
    return found


def predictions(filter: vf.AbstractFilter, model: vf.AbstractModel, batch: np.ndarray) -> tuple:
    """(means and spreads of what was expected of each step, surprises, fallbacks), by sequence."""

    def one(xs: jax.Array) -> tuple:
        return run_predictive(filter, model, xs, KEY, num_samples=256)[1:]

    filtered, predicted = eqx.filter_jit(jax.vmap(one))(jnp.asarray(batch))
    assert np.isfinite(worlds.vector((filtered, predicted))).all()
    found = predicted.mean, predicted.variance, filtered.surprise, filtered.info.num_fallbacks
    mean, variance, surprise, fallbacks = map(np.asarray, found)
    return mean, np.sqrt(variance), surprise, fallbacks


CASES = [
    (build, name)
    for build, names in (
        (worlds.linear_gaussian, ("kalman", "exact", "optimal", "bootstrap", "avf")),
        (worlds.srnn_normal, ("avf", "baseline", "descent", "fivo", "iwae", "bootstrap")),
    )
    for name in names
]


@pytest.mark.parametrize(("build", "name"), CASES, ids=[f"{b.__name__}-{n}" for b, n in CASES])
def test_every_filter_comes_back_from_any_finite_reading(build, name):
    model = build()
    filter = filters(model)[name]
    xs = worlds.observations(model, BEFORE + 1 + AFTER)
    batch = np.stack([xs] * (1 + len(OUTLIERS)))
    batch[0, BEFORE] = np.nan  # what never saw it
    batch[1:, BEFORE, 0] = OUTLIERS
    mean, spread, surprise, fallbacks = predictions(filter, model, batch)
    # Flagged where it happened, and nowhere else.
    happened = np.arange(xs.shape[0]) == BEFORE
    assert (fallbacks[1:, BEFORE] > 0).all()
    assert not fallbacks[0].any()
    assert not fallbacks[:, ~happened].any()
    # It is the greatest surprise of the sequence, and more absurd is more surprising.
    assert (np.argmax(surprise[1:], axis=1) == BEFORE).all()
    assert (np.diff(surprise[1:, BEFORE]) > 0).all()
    assert surprise.max() <= LARGEST_SURPRISE
    # The belief is that of a stream that never saw it: within 5% of the spread of a prediction.
    off = np.abs(mean[1:, -1] - mean[0, -1])
    assert (off <= 0.05 * spread[0, -1]).all()


def test_a_stream_goes_on_after_an_absurd_reading():
    model = worlds.srnn_normal()
    stream = vf.Stream(filters(model)["fivo"], model, KEY)
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
