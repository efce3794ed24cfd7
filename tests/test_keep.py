"""`run` keeps what it is asked for, with the numbers of a run that keeps all."""

import functools

import equinox as eqx
import jax
import numpy as np
import pytest

import varfilter as vf
from refusals import refuses
from worlds import KEY, assert_same_bits, linear_gaussian, observations, with_gaps

MASK = np.arange(9) < 7
FILTERS = {"Kalman": vf.KalmanFilter(), "particles": vf.ParticleFilter(vf.Prior(), 8)}


@functools.cache
def model():
    return linear_gaussian()


@functools.cache
def data():
    return with_gaps(observations(model(), 9))


def posterior_mean(filtered: vf.Filtered) -> jax.Array:
    return filtered.posterior.mean


# Particles with and without gaps keep in the same way: five more programs.
@pytest.mark.parametrize(
    ("name", "gaps"),
    [
        pytest.param("Kalman", False, id="Kalman-complete"),
        pytest.param("Kalman", True, id="Kalman-missing"),
        pytest.param("particles", False, id="particles-complete", marks=pytest.mark.slow),
        pytest.param("particles", True, id="particles-missing"),
    ],
)
def test_what_is_kept_is_what_would_have_been(name, gaps):
    filter, xs = FILTERS[name], data() if gaps else observations(model(), 9)
    belief, whole = vf.run(filter, model(), xs, KEY, mask=MASK)
    assert whole.prior is not None
    for keep in ("bound", ("bound",), ()):
        last, kept = vf.run(filter, model(), xs, KEY, mask=MASK, keep=keep)
        assert kept.prior is kept.posterior is kept.prediction is kept.info is None
        np.testing.assert_allclose(kept.bound, whole.bound, rtol=1e-5, atol=1e-6)  # float32
        for a, b in zip(jax.tree.leaves(last), jax.tree.leaves(belief), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    _, kept = vf.run(filter, model(), xs, KEY, mask=MASK, keep=["posterior", "info"])
    assert kept.prior is None
    for a, b in zip(
        jax.tree.leaves((kept.posterior, kept.info)),
        jax.tree.leaves((whole.posterior, whole.info)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    _, means = vf.run(filter, model(), xs, KEY, mask=MASK, keep=posterior_mean)
    wanted = jax.vmap(lambda q: q.mean)(whole.posterior)
    np.testing.assert_allclose(means, wanted, rtol=1e-5, atol=1e-6)


def test_a_field_that_there_is_not_is_refused():
    refuses(
        lambda: vf.run(vf.KalmanFilter(), model(), data(), keep=("bound", "postirior")),
        ValueError, "`keep`", "'postirior'", "posterior",
    )  # fmt: skip
    refuses(
        lambda: vf.run(vf.KalmanFilter(), model(), data(), keep="surprise"),
        ValueError, "`keep`", "'surprise'", "minus `bound`, which is always kept",
    )  # fmt: skip


def test_the_kalman_filter_needs_no_key():
    with_key, without = (vf.run(vf.KalmanFilter(), model(), data(), *key) for key in ([KEY], []))
    assert_same_bits(without, with_key)
    stream = vf.Stream(vf.KalmanFilter(), model())
    belief, step = vf.start(vf.KalmanFilter(), model()), eqx.filter_jit(vf.step)
    for x in data()[:3]:
        stream.push(x)
        belief, _ = step(vf.KalmanFilter(), model(), belief, x)
    # The program of a stream and that of a step alone round differently.
    for a, b in zip(jax.tree.leaves(stream.belief), jax.tree.leaves(belief), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    lean = vf.Stream(vf.KalmanFilter(), model(), keep="posterior")
    whole = vf.Stream(vf.KalmanFilter(), model())
    for x in data()[:3]:
        kept, filtered = lean.push(x), whole.push(x)
    assert kept.prior is kept.prediction is kept.info is None
    assert_same_bits((kept.posterior, kept.bound), (filtered.posterior, filtered.bound))
    particles = FILTERS["particles"]
    refuses(lambda: vf.run(particles, model(), data()), TypeError, "`key`", "None")
    refuses(lambda: vf.Stream(particles, model()), TypeError, "`key`", "None")
