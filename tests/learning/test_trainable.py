"""What a learner trains: arrays, and never by silence something less."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
from refusals import refuses
from worlds import KEY

SGD = optax.sgd(0.1)
FILTER = vf.VariationalFilter(vf.Prior())
XS = np.array([[[1.0], [0.5], [2.0], [1.5]]])


class Decay(vf.AbstractModel):
    """z_t = decay z_{t-1} + noise, with a decay of any type."""

    decay: object = 0.9

    @property
    def rate(self):
        return self.decay

    def init(self, x0=None):
        return jnp.zeros(1)

    def embed(self, x):
        return None

    def prior(self, state):
        return vf.Normal(self.rate * state, jnp.zeros(1))

    def emission(self, state, z):
        return vf.Normal(z, jnp.zeros(1))

    def advance(self, state, z, features):
        return z


class Held(Decay):
    decay: float = eqx.field(static=True, default=0.9)


class Gain(eqx.Module):
    value: object = 0.9


class Nested(Decay):
    decay: Gain = eqx.field(default_factory=Gain)

    @property
    def rate(self):
        return self.decay.value


class Listed(Decay):
    decay: dict = eqx.field(default_factory=lambda: {"rates": [jnp.ones(1), 0.9]})

    @property
    def rate(self):
        return self.decay["rates"][1]


class Layered(Decay):
    """Settings of a library's layers, and what is no number to be trained."""

    decay: object = eqx.field(default_factory=lambda: jnp.array([0.9]))
    dropout: eqx.nn.Dropout = eqx.field(default_factory=lambda: eqx.nn.Dropout(0.5))
    pool: eqx.nn.MaxPool1d = eqx.field(default_factory=lambda: eqx.nn.MaxPool1d(2))
    norm: eqx.nn.LayerNorm = eqx.field(default_factory=lambda: eqx.nn.LayerNorm(1))
    activation: object = jax.nn.relu
    order: int = 2
    is_damped: bool = True
    name: str = "decay"
    nothing: None = None


class Shifted(vf.Prior):
    """An inference with a number of its own."""

    shift: object = 0.5

    def infer(self, model, state, memory, observation, key, *, kl_weight=1.0):
        inferred = vf.Prior().infer(model, state, memory, observation, key)
        p = inferred.posterior
        return eqx.tree_at(lambda i: i.posterior.mean, inferred, p.mean + self.shift)


LEARNERS = {"time-parallel": vf.TimeParallel, "end-to-end": vf.EndToEnd}


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize(
    ("model", "path"),
    [
        (Decay(), "`model.decay`"),
        (Nested(), "`model.decay.value`"),
        (Listed(), "`model.decay['rates'][1]`"),
    ],
)
def test_a_python_number_is_refused(model, path, learner):
    refuses(
        lambda: LEARNERS[learner](theta=SGD, phi=None).init(model, FILTER),
        TypeError, path, "0.9", "never be trained", "`jnp.asarray(0.9)`",
        "`eqx.field(static=True)`", "`theta=None`",
    )  # fmt: skip


def test_a_python_number_of_an_inference_is_refused():
    learner = vf.EndToEnd(theta=SGD, phi=SGD)
    filter = vf.VariationalFilter(Shifted())
    model = Decay(jnp.array([0.9]))
    refuses(
        lambda: learner.init(model, filter),
        TypeError, "`filter.inference.shift`", "0.5", "`phi=None`",
    )  # fmt: skip
    vf.EndToEnd(theta=SGD, phi=None).init(model, filter)


def test_what_is_held_may_be_any_number():
    """A static field, a model that is not trained, and filters that only filter."""
    assert vf.EndToEnd(theta=SGD, phi=None).init(Held(), FILTER).model.decay == 0.9
    assert vf.EndToEnd(theta=None, phi=SGD).init(Decay(), FILTER).model.decay == 0.9
    vf.run(FILTER, Decay(), XS[0], KEY)


def test_settings_of_layers_stay_as_they_are():
    learner = vf.EndToEnd(theta=SGD, phi=None)
    state, _ = learner.update(learner.init(Layered(), FILTER), XS, KEY)
    after = state.model
    assert not np.array_equal(after.decay, Layered().decay)
    assert after.dropout.p == 0.5
    assert (after.order, after.is_damped, after.name) == (2, True, "decay")


@pytest.mark.parametrize("number", [np.float32, np.float64, np.array, lambda v: np.array([v])])
def test_numbers_of_numpy_are_parameters(number):
    """They learn what a JAX array learns, to the bit."""
    learner = vf.EndToEnd(theta=SGD, phi=None)

    def learned(value):
        state = learner.init(Decay(value), FILTER)
        assert isinstance(state.model.decay, jax.Array)
        return np.asarray(learner.update(state, XS, KEY)[0].model.decay)

    given = number(0.9)
    got, want = learned(given), learned(jnp.asarray(given, jnp.float32))
    assert got == want
    assert got != np.float32(0.9)
