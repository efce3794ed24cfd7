"""Dropout of weights: the same mean, the exact gradient, and nothing at a rate of 0."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
import worlds
from refusals import refuses
from varfilter.inference import MLPPosterior
from varfilter.learning import Dropout
from varfilter.learning.dropout import dropped

KEY = jax.random.key(3)
NOW = jnp.zeros((), jnp.int32)


def test_weights_are_left_out_as_often_as_said_and_keep_their_mean():
    model = vf.SRNN(8, 3, recurrent_size=40, prior_size=40, decoder_size=40, key=KEY)
    after = Dropout(0.25)(model, NOW, jax.random.key(0))
    weight, before = (np.asarray(m.decoder.layers[1].weight) for m in (after, model))
    is_out = weight == 0.0
    # 1,600 draws: the share has a standard deviation of 0.011, of which this is four.
    assert np.mean(is_out) == pytest.approx(0.25, abs=0.044)
    np.testing.assert_allclose(weight[~is_out], before[~is_out] / 0.75, rtol=1e-6)
    # Each matrix draws for itself, and vectors stay whole.
    other = np.asarray(after.decoder.layers[0].weight)[:, :40] == 0.0
    assert np.mean(other == is_out) < 0.75
    worlds.assert_same_bits(*(eqx.filter(m, is_vector) for m in (after, model)))
    assert dropped(model, None, NOW, KEY) is model


def is_vector(leaf):
    return eqx.is_array(leaf) and leaf.ndim < 2


def learners(model, **options):
    adam = optax.sgd(1.0)
    inference = vf.Iterative(model, hidden_size=5, key=KEY)
    yield vf.VariationalFilter(inference), vf.TimeParallel(theta=adam, phi=None, **options)
    amortized = vf.Amortized(MLPPosterior(model, hidden_size=5, key=KEY))
    yield vf.VariationalFilter(amortized), vf.EndToEnd(theta=adam, phi=None, **options)


def step(filter, learner, model, xs):
    """What SGD with a rate of 1 takes from the parameters: the gradient."""
    after, _ = learner.update(learner.init(model, filter), xs, KEY)
    return jax.tree.map(
        lambda a, b: a - b, *(eqx.filter(m, eqx.is_array) for m in (model, after.model))
    )


@pytest.mark.parametrize("which", [0, 1], ids=["time-parallel", "end-to-end"])
def test_the_gradient_is_that_of_the_thinned_model_in_the_whole_ones_weights(which):
    model = worlds.deep_markov()
    xs = jnp.asarray(np.stack([worlds.observations(model, 5, seed) for seed in (1, 2)]))
    thinned = eqx.filter_jit(lambda m: Dropout(0.3)(m, NOW, KEY))
    thin = thinned(model)
    filter, whole = list(learners(model))[which]
    of_thin = step(filter, whole, thin, xs)
    want = eqx.filter_jit(lambda m, of: eqx.filter_vjp(thinned, m)[1](of)[0])(model, of_thin)
    _, learner = list(learners(model, dropout=Dropout(0.3)))[which]
    got = step(filter, learner, model, xs)
    # The same program but for the masks; a - (a - g) of weights of size 1 rounds g at 1e-7.
    assert worlds.relative_distance(got, want) < 1e-5
    assert worlds.relative_distance(got, of_thin) > 0.1


@pytest.mark.parametrize(
    "which",
    # What no rate leaves of a model is the model, to the bit, below: whoever learns from it.
    [pytest.param(0, marks=pytest.mark.slow), 1],
    ids=["time-parallel", "end-to-end"],
)
def test_without_a_rate_the_gradient_is_that_of_the_whole_model(which):
    model = worlds.deep_markov()
    xs = jnp.asarray(np.stack([worlds.observations(model, 5, seed) for seed in (1, 2)]))
    filter, whole = list(learners(model))[which]
    _, none = list(learners(model, dropout=Dropout(0.0)))[which]
    assert (
        worlds.relative_distance(step(filter, none, model, xs), step(filter, whole, model, xs))
        < 1e-6
    )


def test_a_rate_that_leaves_nothing_is_refused():
    for rate in (1.0, -0.1):
        refuses(
            functools.partial(Dropout, rate),
            ValueError,
            "`dropout` must lie in [0, 1)",
            f"got {rate}",
        )
    refuses(lambda: Dropout(0.1, -1), ValueError, "`num_updates`", "-1")


def test_the_rate_rises_from_nothing_and_then_stays():
    dropout = Dropout(0.2, 10)
    rates = [float(dropout.rate_at(jnp.asarray(n, jnp.int32))) for n in (0, 5, 10, 99)]
    assert rates == pytest.approx([0.0, 0.1, 0.2, 0.2])
    model = worlds.srnn()
    worlds.assert_same_bits(dropout(model, NOW, KEY), model)
