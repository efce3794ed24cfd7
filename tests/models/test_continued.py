"""Steps that go on from each other are one long sequence, cut anywhere."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

import varfilter as vf
import worlds
from refusals import refuses
from varfilter.data.dataset import Family
from varfilter.distributions import Autoregressive, Normal
from varfilter.experiments import VRNNSizes
from varfilter.experiments.models import PIXELS, SPEECH, Observations
from varfilter.models import AutoregressiveHead, Continued
from varfilter.models.heads import BernoulliHead

KEY = jax.random.key(6)
SIZE, ORDER, NUM_STEPS = 5, 3, 7
COEFFICIENTS = np.array([0.9, -0.5, 0.2])


class Wave(vf.AbstractModel):
    """The same filter and innovations at each step; the latent does nothing."""

    log_var: jax.Array

    def init(self, x0: Any = None) -> jax.Array:
        return jnp.zeros(())

    def embed(self, x: Any) -> jax.Array:
        return jnp.zeros(())

    def prior(self, state: Any) -> Normal:
        return Normal(jnp.zeros(1), jnp.zeros(1))

    def emission(self, state: Any, z: Any) -> Autoregressive:
        return driven(self.log_var)

    def advance(self, state: Any, z: Any, features: Any) -> jax.Array:
        return state


def driven(log_var, before=None) -> Autoregressive:
    before = jnp.zeros(ORDER) if before is None else before
    coefficients = jnp.asarray(COEFFICIENTS, log_var.dtype)
    return Autoregressive(Normal(jnp.full_like(log_var, 0.1), log_var), coefficients, before)


def test_the_score_of_the_steps_is_that_of_the_whole():
    """Given the end of what came before them, and given nothing."""
    with jax.enable_x64(True):
        model = Continued(Wave(jnp.linspace(-1.0, 1.0, SIZE)))
        whole = jnp.tile(jnp.linspace(-1.0, 1.0, SIZE), NUM_STEPS)
        xs = jnp.asarray(np.random.default_rng(0).normal(size=(NUM_STEPS, SIZE)))
        x0 = jnp.asarray(np.random.default_rng(1).normal(size=SIZE))
        filter = vf.VariationalFilter(vf.Prior())
        for first, before in ((None, None), (x0, x0[-ORDER:])):
            _, filtered = vf.run(filter, model, xs, KEY, x0=first)
            # The latent does nothing, so that the bound is the evidence; the rest is rounding.
            exact = driven(whole, before).log_prob(jnp.ravel(xs))
            np.testing.assert_allclose(jnp.sum(filtered.bound), exact, rtol=1e-12)


def test_sound_that_is_made_up_has_the_spectrum_of_the_filter():
    """Its correlations are those of the stationary process, over the edges of steps too."""
    model = Continued(Wave(jnp.zeros(SIZE)))
    xs = np.ravel(vf.generate(model, 8000, KEY)[0]).astype(np.float64)
    found = np.array(
        [np.mean((xs[k:] - xs.mean()) * (xs[: xs.size - k] - xs.mean())) for k in range(6)]
    )
    frequency = 2j * np.pi * np.arange(4096) / 4096
    gain = np.abs(1 - sum(a * np.exp(-frequency * (k + 1)) for k, a in enumerate(COEFFICIENTS)))
    expected = np.fft.ifft(gain**-2).real[:6]
    # By 40,000 samples, five times sqrt(2 sum_k r_k^2 / n), Bartlett's bound of the error.
    slack = 5 * np.sqrt(2 * np.sum(np.fft.ifft(gain**-2).real ** 2) / xs.size)
    np.testing.assert_allclose(found, expected, atol=slack)
    np.testing.assert_allclose(xs.mean(), 0.1 / (1 - COEFFICIENTS.sum()), atol=slack)


def test_steps_may_be_shorter_than_the_filter():
    """Cut into steps of two, the same samples have the same score."""
    with jax.enable_x64(True):
        xs = jnp.asarray(np.random.default_rng(0).normal(size=12))
        filter, found = vf.VariationalFilter(vf.Prior()), []
        for size in (2, 6):
            model = Continued(Wave(jnp.zeros(size)))
            _, filtered = vf.run(filter, model, xs.reshape(-1, size), KEY)
            found.append(float(jnp.sum(filtered.bound)))
        np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
        assert Continued(Wave(jnp.zeros(2))).init(jnp.array([3.0, 4.0])).last.tolist() == [0, 3, 4]


def test_a_recording_goes_on_from_its_end():
    model = worlds.continued()
    x0 = jnp.arange(4.0)
    assert model.init(x0).last.tolist() == [2.0, 3.0]
    assert model.init().last.tolist() == [0.0, 0.0]
    state = model.init(x0)
    z = model.prior(state).mean
    after = model.advance(state, z, model.embed(x0 + 4.0))
    assert after.last.tolist() == [6.0, 7.0]
    np.testing.assert_array_equal(model.emission(after, z).before, [6.0, 7.0])


def test_an_order_of_none_is_the_model_as_it_was():
    """Records of before have no order."""
    small = {name: 4 for name in vars(VRNNSizes()) if name not in ("order", "num_layers")}
    with_none = VRNNSizes(**small, num_layers=1).build(SPEECH, KEY)
    assert isinstance(with_none, vf.VRNN)
    ordered = VRNNSizes(**small, num_layers=1, order=8).build(SPEECH, KEY)
    assert isinstance(ordered, Continued)
    assert ordered.order == 8
    assert isinstance(ordered.core, vf.VRNN)


def test_the_filter_is_stable_whatever_the_network_says():
    """What a single 1 leaves behind dies out, in coefficients of 32 bits, for units of any size."""
    head = worlds.coloured(AutoregressiveHead(8, (40,), order=16, key=KEY))
    random = np.random.default_rng(0)
    for size in (1.0, 1e2, 1e4, 1e8):
        hidden = jnp.asarray(size * random.normal(size=(20, 8)), jnp.float32)
        emissions = jax.vmap(head)(hidden)
        assert emissions.coefficients.dtype == jnp.float32
        for a in np.asarray(emissions.coefficients, np.float64):
            answer = scipy.signal.lfilter([1.0], [1.0, *-a], np.eye(1, 60_000)[0])
            # 0.999^40000 is e^-40, and what such a filter amplifies at most is e^5.
            assert np.abs(answer[40_000:]).max() < 1e-12
            # The sum of its squares is what the filter amplifies noise by.
            assert np.sum(answer**2) < np.exp(10.0)


def test_learning_starts_without_a_filter():
    """The innovations are those of the head inside, until the reflections are learned."""
    head, hidden = AutoregressiveHead(8, (6,), order=4, key=KEY), jnp.linspace(-2.0, 2.0, 8)
    emission = head(hidden)
    assert not emission.coefficients.any()
    worlds.assert_same_bits(emission.innovations, head.innovations(hidden))

    def score(head):
        return head(hidden).log_prob(jnp.arange(6.0))

    # Zero is no point of rest: the slope there is the correlation of neighbouring samples.
    assert np.all(np.asarray(eqx.filter_grad(score)(head).reflections.bias) != 0.0)


@pytest.mark.parametrize("order", [16, 32, 64])
def test_long_filters_are_stable_as_they_are_rounded(order):
    """Near the largest gain, with the patterns whose coefficients are the largest."""
    head = AutoregressiveHead(1, (4,), order=order, key=KEY)
    random, lags = np.random.default_rng(0), np.arange(order)
    tones = np.cos(lags * random.uniform(0.0, np.pi, (60, 1)) + random.uniform(0.0, 6.0, (60, 1)))
    patterns = np.concatenate([[np.ones(order), (-1.0) ** lags], tones])
    sizes = np.linspace(0.05, 1.2, 24)
    values = jnp.asarray(np.concatenate([size * patterns for size in sizes]), jnp.float32)

    def coefficients(bias):
        told = eqx.tree_at(lambda each: each.reflections.bias, head, bias)
        return told(jnp.zeros(1)).coefficients

    found = np.asarray(jax.jit(jax.vmap(coefficients))(values), np.float64)
    # The poles lie within 0.999 but for what the rounding of the coefficients moves them.
    companion = np.tile(np.eye(order, k=-1), (len(found), 1, 1))
    companion[:, 0] = found
    assert np.abs(np.linalg.eigvals(companion)).max() < 0.9995


def test_what_cannot_go_on_is_refused():
    refuses(
        lambda: Continued(worlds.vrnn()), TypeError, "`Autoregressive` emission", "`VRNN`",
        "`head=AutoregressiveHead`",
    )  # fmt: skip
    refuses(
        lambda: AutoregressiveHead(4, (2, 3), key=KEY),
        ValueError,
        "`shape` must be that of a vector",
    )
    with pytest.raises(ValueError, match="`order` must be"):
        AutoregressiveHead(4, (6,), order=0, key=KEY)
    refuses(
        lambda: AutoregressiveHead(4, (6,), head=BernoulliHead, key=KEY),
        TypeError, "`head` must make", "`Bernoulli`", "Use `VaryingNormalHead`",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "order", "words"),
    [
        (Observations("songs", (88,), Family(vf.Bernoulli)), 8, ["'songs'", "Leave it 0"]),
        (Observations("films", (1, 8, 8), PIXELS), 8, ["'films'", "Leave it 0"]),
        (Observations("table", (1,), (Family(Normal),)), 8, ["'table'", "Leave it 0"]),
        (SPEECH, -1, ["must be a whole number", "-1"]),
    ],
)
def test_an_order_is_for_samples_that_go_on(data, order, words):
    refuses(lambda: VRNNSizes(order=order).build(data, KEY), ValueError, "`model.order`", *words)
