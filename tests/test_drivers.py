"""The drivers: one step serves scans, chunks, padding, gaps, streams and forecasts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
import worlds
from varfilter.inference import Exact

KEY = jax.random.key(6)


def avf(model: vf.AbstractModel) -> vf.VariationalFilter:
    return vf.VariationalFilter(vf.Iterative(model, hidden_size=5, num_iterations=2, key=KEY))


class Counting(vf.AbstractModel):
    """Another model, counting how often its emission is traced."""

    inner: vf.AbstractModel
    calls: list = eqx.field(static=True)

    def init(self, x0=None):
        return self.inner.init(x0)

    def embed(self, x):
        return self.inner.embed(x)

    def prior(self, state):
        return self.inner.prior(state)

    def emission(self, state, z):
        self.calls[0] += 1
        return self.inner.emission(state, z)

    def advance(self, state, z, features):
        return self.inner.advance(state, z, features)


class Calls(list):
    """A counter that may sit in a static field."""

    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other


def test_each_driver_traces_once():
    calls = Calls([0])
    model = Counting(worlds.deep_markov(), calls)
    filter = avf(model.inner)
    xs = jnp.asarray(worlds.observations(model.inner, 5))
    learner = vf.TimeParallel(theta=optax.adam(1e-3), phi=optax.adam(1e-3))
    learning = learner.init(model, filter)
    stream = vf.Stream(filter, model, KEY)
    belief, _ = vf.run(filter, model, xs, KEY)

    def drive(seed: int):
        nonlocal learning
        key = jax.random.key(seed)
        vf.run(filter, model, xs + seed, key)
        stream.push(xs[0] + seed)
        vf.forecast(filter, model, belief, 3, key, num_samples=4)
        vf.generate(model, 4, key)
        learning, _ = learner.update(learning, xs[None] + seed, key)

    drive(1)
    drive(2)  # counters and optimizer states have their final types from here on
    before = calls[0]
    drive(3)
    drive(4)
    assert before > 0
    assert calls[0] == before


@pytest.mark.parametrize(
    "build",
    [
        *(
            pytest.param(m, marks=pytest.mark.slow)
            for m in (worlds.linear_gaussian, worlds.continued)
        ),
        worlds.srnn,
    ],
)
def test_two_chunks_and_padding_and_observed_and_complete(build):
    model = build()
    filter = avf(model)
    xs = worlds.observations(model, 6)
    belief, whole = vf.run(filter, model, xs, KEY)

    # Two chunks are one: step t draws from fold_in(key, t) wherever it is run. (Halves of one
    # length, and below as many steps as in the whole: one program serves several runs.)
    first, left = vf.run(filter, model, xs[:3], KEY)
    second, right = vf.run(filter, model, xs[3:], KEY, belief=first)
    np.testing.assert_allclose(
        np.concatenate([left.bound, right.bound]), whole.bound, rtol=1e-5, atol=1e-5
    )
    assert int(second.t) == int(belief.t) == 6

    # Padded steps freeze the belief and add nothing, wherever they stand.
    mask = np.array([True, True, False, True, False, False])
    padded = np.full_like(xs, 7.0)
    padded[mask] = xs[:3]
    after, filtered = vf.run(filter, model, padded, KEY, mask=mask)
    np.testing.assert_allclose(filtered.bound[mask], left.bound, rtol=1e-5, atol=1e-5)
    assert not np.any(filtered.bound[~mask])
    assert int(after.t) == 3

    # `observed` says the same as NaN.
    gaps = worlds.with_gaps(xs)
    by_nan = vf.run(filter, model, gaps, KEY)[1].bound
    by_mask = vf.run(filter, model, xs, KEY, observed=~np.isnan(gaps))[1].bound
    np.testing.assert_array_equal(by_nan, by_mask)
    # with_gaps leaves out steps 2 and 3: a step without any observation adds nothing.
    assert not np.any(by_nan[2:4])

    # A promise of completeness changes the order of work, not the result.
    ahead = vf.run(filter, model, xs, KEY, complete=True)[1].bound
    np.testing.assert_allclose(ahead, whole.bound, rtol=1e-5, atol=1e-5)


def test_an_all_missing_sequence_is_a_prediction():
    model = worlds.linear_gaussian()
    xs = np.full((4, 2), np.nan)
    for filter in (vf.KalmanFilter(), avf(model), vf.ParticleFilter(vf.Prior(), 50)):
        _, filtered = vf.run(filter, model, xs, KEY)
        # Bounds are sums of weights that are one: zero but for the rounding of their logarithm.
        np.testing.assert_allclose(filtered.bound, 0.0, atol=1e-5)
    _, filtered = vf.run(avf(model), model, xs, KEY)
    worlds.assert_same_bits(filtered.posterior, filtered.prior)


def test_the_exact_step_with_missing_elements_is_kalmans():
    # From the same predicted Gaussian, one step of the sampled recursion is Kalman's update.
    model = worlds.linear_gaussian()
    x = np.array([[np.nan, 0.7]])
    _, sampled = vf.run(vf.VariationalFilter(Exact()), model, x, KEY)
    _, marginal = vf.run(vf.KalmanFilter(), model, x, KEY)
    covariances = jax.vmap(lambda d: d.covariance)
    np.testing.assert_allclose(sampled.posterior.mean, marginal.posterior.mean, rtol=1e-5)
    np.testing.assert_allclose(
        covariances(sampled.posterior), covariances(marginal.posterior), rtol=1e-4, atol=1e-6
    )


def test_forecast_from_kalman_has_the_exact_moments():
    model = worlds.linear_gaussian()
    xs = worlds.observations(model, 10)
    belief, _ = vf.run(vf.KalmanFilter(), model, xs, KEY)
    num_samples = 4000
    ahead = vf.forecast(
        vf.KalmanFilter(), model, belief, 3, KEY, num_samples=num_samples, levels=(0.1, 0.5, 0.9)
    )
    # The predictive of a gap is the exact forecast: run Kalman on over missing steps.
    _, filtered = vf.run(vf.KalmanFilter(), model, np.full((3, 2), np.nan), KEY, belief=belief)
    mean = np.asarray(filtered.prediction.mean)
    std = np.sqrt(np.asarray(jax.vmap(lambda d: d.variance)(filtered.prediction)))
    # A mean of n draws is off by std / sqrt(n) at one sigma; five sigma over six numbers. A
    # variance of n draws has relative error sqrt(2 / n).
    np.testing.assert_array_less(np.abs(ahead.mean - mean), 5 * std / num_samples**0.5)
    ratio = np.asarray(ahead.samples).std(axis=0) / std
    np.testing.assert_allclose(ratio, 1.0, atol=5 * (0.5 / num_samples) ** 0.5)
    low, middle, high = np.asarray(ahead.quantiles)
    assert (low < middle).all()
    assert (middle < high).all()


def test_x0_is_conditioned_on_and_its_missing_elements_are_drawn():
    model = worlds.srnn()
    filter = avf(model)
    xs = worlds.observations(model, 4)
    x0 = np.array([1.0, 0.0, 1.0, 0.0])
    without = vf.run(filter, model, xs, KEY)[1].bound
    given = vf.run(filter, model, xs, KEY, x0=x0)[1].bound
    assert not np.allclose(without, given)
    assert given.shape == (4,)
    gappy = x0.copy()
    gappy[1] = np.nan
    drawn = np.asarray(vf.run(filter, model, xs, KEY, x0=gappy)[1].bound)
    # A note is there or not: never in between, as its mean is.
    filled = [np.where(np.isnan(gappy), value, gappy) for value in (0.0, 1.0)]
    each = [np.asarray(vf.run(filter, model, xs, KEY, x0=x)[1].bound) for x in filled]
    assert any(np.allclose(drawn, bound, rtol=1e-5) for bound in each)
    assert not np.allclose(*each, rtol=1e-3)

    # Over many keys, as often as the model expects it.
    state = model.init(None)

    @jax.jit
    @jax.vmap
    def means(key):
        return model.emission(state, model.prior(state).sample(key)).mean[1]

    @jax.jit
    @jax.vmap
    def carries(key):
        return vf.start(filter, model, jnp.asarray(gappy, jnp.float32), key).carry

    expected = float(np.mean(means(jax.random.split(KEY, 4000))))
    found = np.asarray(carries(jax.random.split(KEY, 400)).state.hidden)
    with_note = np.asarray(vf.start(filter, model, filled[1]).carry.state.hidden)
    share = np.mean(np.isclose(found, with_note[None]).all(axis=1))
    assert abs(share - expected) < 4 * 0.5 / np.sqrt(400)  # four standard errors

    with pytest.raises(ValueError, match=r"`x0` holds NaN.*give `key`"):
        vf.start(filter, model, gappy)


def test_a_batch_by_vmap_is_one_by_one():
    model = worlds.srnn()
    filter = avf(model)
    xs = jnp.asarray(np.stack([worlds.observations(model, 5, seed) for seed in (1, 2, 3)]))
    keys = jax.random.split(KEY, 3)
    batch = jax.vmap(lambda x, k: vf.run(filter, model, x, k)[1].bound)(xs, keys)
    single = [vf.run(filter, model, x, k)[1].bound for x, k in zip(xs, keys, strict=True)]
    np.testing.assert_allclose(batch, np.stack(single), rtol=1e-4, atol=1e-5)


def test_generate_is_reproducible():
    model = worlds.deep_markov()
    worlds.assert_same_bits(vf.generate(model, 5, KEY), vf.generate(model, 5, KEY))
