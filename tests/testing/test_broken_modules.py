"""The conformance suite finds modules that break their contract, each in one way."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
import worlds
from varfilter.distributions import AbstractDistribution
from varfilter.inference import Inferred
from varfilter.testing import ConformanceError, check_filter, check_inference, check_model

KEY = jax.random.key(11)


class Walk(vf.AbstractModel):
    """z_t ~ N(a z_{t-1}, 1), x_t ~ N(c z_t, 1), two of each; the breaks below change one part."""

    rate: jax.Array = eqx.field(converter=jnp.asarray, default=0.9)
    gain: jax.Array = eqx.field(converter=jnp.asarray, default=1.5)

    def init(self, x0=None):
        return jnp.zeros(2)

    def embed(self, x):
        return x

    def prior(self, state):
        return vf.Normal(self.rate * state, jnp.zeros(2))

    def emission(self, state, z):
        return vf.Normal(self.gain * z, jnp.zeros(2))

    def advance(self, state, z, features):
        return z


class Overflowing(Walk):
    def emission(self, state, z):
        return worlds.PlainNormal(self.gain * z)


class NaNAsNumber(AbstractDistribution):
    """A unit Gaussian that forgets to look for missing elements, or takes them for zeros."""

    mean: jax.Array
    as_zero: bool = eqx.field(static=True)

    @property
    def variance(self):
        return jnp.ones_like(self.mean)

    @property
    def shape(self):
        return self.mean.shape

    def sample(self, key):
        return self.mean + jax.random.normal(key, self.shape)

    def log_prob(self, x):
        x = jnp.nan_to_num(x) if self.as_zero else x
        return -0.5 * jnp.sum((x - self.mean) ** 2)


class HalfCounted(NaNAsNumber):
    """Nothing observed scores nothing, but a missing element costs as much as an observed one."""

    def log_prob(self, x):
        seen = ~jnp.isnan(x)
        terms = (jnp.where(seen, x, 0.0) - self.mean) ** 2
        return jnp.where(jnp.any(seen), -0.5 * jnp.sum(terms), 0.0)


class HiddenRandomness(Walk):
    def advance(self, state, z, features):
        return z + float(np.random.default_rng().normal())


class TimeVaryingShape(Walk):
    def advance(self, state, z, features):
        return jnp.concatenate([state, z])


class IgnoresNaN(Walk):
    def emission(self, state, z):
        return NaNAsNumber(self.gain * z, as_zero=False)


class ScoresMissing(Walk):
    def emission(self, state, z):
        return NaNAsNumber(self.gain * z, as_zero=True)


class MiscountsMissing(Walk):
    def emission(self, state, z):
        return HalfCounted(self.gain * z, as_zero=True)


class Explodes(Walk):
    def advance(self, state, z, features):
        return jnp.exp(1e3 * (1.0 + z**2))


class GradientTrap(Walk):
    def emission(self, state, z):
        # 0 * inf: the root is not taken at 0, but its derivative is.
        root = jnp.where(z > 1e9, jnp.sqrt(jnp.maximum(z - 1e9, 0.0)), z)
        return vf.Normal(self.gain * root, jnp.zeros(2))


class IgnoresLatent(Walk):
    def emission(self, state, z):
        return vf.Normal(self.gain * jnp.ones(2), jnp.zeros(2))

    def advance(self, state, z, features):
        return features


class UnsafeWhere(NaNAsNumber):
    """Right in value, but NaN in gradient: the square of NaN is masked after it was taken."""

    def log_prob(self, x):
        return -0.5 * jnp.sum(jnp.where(jnp.isnan(x), 0.0, (x - self.mean) ** 2))


class MasksTooLate(Walk):
    def emission(self, state, z):
        return UnsafeWhere(self.gain * z, as_zero=False)


class MixesBatch(Walk):
    def embed(self, x):
        # A callback that sees the whole batch and centres it.
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(
            lambda v: (
                (v - v.mean(axis=0, keepdims=v.ndim > 1)).astype(v.dtype) if v.ndim > 1 else v
            ),
            shape,
            x,
            vmap_method="broadcast_all",
        )


class EmitsNaN(Walk):
    def emission(self, state, z):
        return vf.Normal(self.gain * z, jnp.full((2,), jnp.nan))


class ExpectsNaN(Walk):
    def prior(self, state):
        return vf.Normal(self.rate * state, jnp.full((2,), jnp.nan))

    def advance(self, state, z, features):
        return state


@pytest.mark.parametrize(("model", "name"), [(EmitsNaN, "emission"), (ExpectsNaN, "prior")])
def test_draws_that_are_not_finite_name_the_function_they_come_of(model, name):
    with pytest.raises(ConformanceError, match=rf"^\[sample-finite\] .*See `{name}`"):
        check_model(model(), KEY)


@pytest.mark.parametrize(
    ("model", "check"),
    [
        (TimeVaryingShape, "contract"),
        (Explodes, "state-finite"),
        (HiddenRandomness, "deterministic"),
        (MixesBatch, "vmap"),
        (IgnoresNaN, "missing-all"),
        (ScoresMissing, "missing-all"),
        (MiscountsMissing, "missing-drops"),
        (GradientTrap, "gradient-z"),
        (IgnoresLatent, "gradient-z-nonzero"),
        (MasksTooLate, "gradient-missing"),
    ],
)
def test_broken_models_are_found(model, check):
    with pytest.raises(ConformanceError, match=rf"^\[{check}\] `{model.__name__}`: got") as raised:
        check_model(model(), KEY)
    assert raised.value.check == check


def test_a_sound_model_passes():
    """The broken models differ from this one in one function each."""
    assert len(check_model(Walk(), KEY)) > 15


def test_own_observations_are_used():
    xs = np.array([[0.5, -1.0], [np.nan, 2.0], [0.0, 0.0]])
    assert check_model(Walk(), KEY, xs=xs)
    # So far from what the model expects that its score overflows, where the family lets it.
    with pytest.raises(ConformanceError, match=r"^\[log-prob-finite\]"):
        check_model(Overflowing(), KEY, xs=1e30 * xs)
    with pytest.raises(ValueError, match="`xs` must have shape"):
        check_inference(vf.Prior(), Walk(), KEY, xs=xs[:, :1])
    with pytest.raises(ValueError, match="at least 2 steps"):
        check_filter(vf.VariationalFilter(vf.Prior()), Walk(), KEY, xs=xs[:1])


class AnotherFamily(vf.Prior):
    def infer(self, model, state, memory, observation, key, *, kl_weight=1.0):
        q = vf.Gaussian.from_normal(model.prior(state))
        return Inferred(q, memory, jnp.zeros((0,)))


class GrowingMemory(vf.Prior):
    def init(self, model):
        return jnp.zeros(1)

    def infer(self, model, state, memory, observation, key, *, kl_weight=1.0):
        return Inferred(model.prior(state), jnp.concatenate([memory, memory]), jnp.zeros((0,)))


class ReadsRaw(vf.Prior):
    def infer(self, model, state, memory, observation, key, *, kl_weight=1.0):
        p = model.prior(state)
        return Inferred(vf.Normal(p.mean + observation.x, p.log_var), memory, jnp.zeros((0,)))


class OwnRandomness(vf.Prior):
    def infer(self, model, state, memory, observation, key, *, kl_weight=1.0):
        p = model.prior(state)
        shift = float(np.random.default_rng().normal())
        return Inferred(vf.Normal(p.mean + shift, p.log_var), memory, jnp.zeros((0,)))


class Unlearnable(vf.Prior):
    shift: jax.Array = eqx.field(converter=jnp.asarray, default=0.5)

    def infer(self, model, state, memory, observation, key, *, kl_weight=1.0):
        p = model.prior(state)
        mean = p.mean + jax.lax.stop_gradient(self.shift)
        return Inferred(vf.Normal(mean, p.log_var), memory, jnp.zeros((0,)))


class ForgetsRevise(vf.Prior):
    """Records its input, but `revise` does not do what `infer` did with it."""

    def infer(self, model, state, memory, observation, key, *, kl_weight=1.0):
        p = model.prior(state)
        record = jax.tree.map(lambda leaf: leaf[None], p)
        return Inferred(vf.Normal(p.mean + 1.0, p.log_var), memory, jnp.zeros((1,)), record)

    def revise(self, record, observation):
        return record


@pytest.mark.parametrize(
    ("inference", "check"),
    [
        (AnotherFamily, "posterior-structure"),
        (GrowingMemory, "memory-structure"),
        (OwnRandomness, "deterministic"),
        (ReadsRaw, "missing-some"),
        (ForgetsRevise, "revise"),
        (Unlearnable, "gradient-phi-nonzero"),
    ],
)
def test_broken_inferences_are_found(inference, check):
    with pytest.raises(ConformanceError, match=rf"^\[{check}\] `{inference.__name__}`: got"):
        check_inference(inference(), Walk(), KEY)


def test_inference_must_be_one():
    with pytest.raises(ConformanceError, match=r"^\[class\] `str`: got `str`"):
        check_inference("prior", Walk(), KEY)


class Wrapped(vf.AbstractFilter):
    """A sound filter; the breaks below change one part of it."""

    inner: vf.VariationalFilter = eqx.field(
        default_factory=lambda: vf.VariationalFilter(vf.Prior())
    )

    def init(self, model, x0=None, key=None):
        return self.inner.init(model, x0, key)

    def step(self, model, carry, x, key, *, kl_weight=1.0):
        return self.inner.step(model, carry, x, key, kl_weight=kl_weight)

    def draw(self, model, carry, key):
        return self.inner.draw(model, carry, key)


class HiddenState(Wrapped):
    """Counts its calls outside the carry, so that two compilations are two filters."""

    calls: list = eqx.field(static=True, default_factory=list)

    def step(self, model, carry, x, key, *, kl_weight=1.0):
        self.calls.append(None)
        carry, filtered = self.inner.step(model, carry, x, key, kl_weight=kl_weight)
        bound = filtered.bound + float(len(self.calls))
        return carry, eqx.tree_at(lambda f: f.bound, filtered, bound)


class ChargesForNothing(Wrapped):
    def step(self, model, carry, x, key, *, kl_weight=1.0):
        carry, filtered = self.inner.step(model, carry, x, key, kl_weight=kl_weight)
        return carry, eqx.tree_at(lambda f: f.bound, filtered, filtered.bound - 1.0)


class ForgetsThePrior(Wrapped):
    def step(self, model, carry, x, key, *, kl_weight=1.0):
        carry, filtered = self.inner.step(model, carry, x, key, kl_weight=kl_weight)
        wide = eqx.tree_at(lambda f: f.posterior.log_var, filtered, filtered.posterior.log_var + 1)
        return carry, wide


class DrawsTheCarry(Wrapped):
    def draw(self, model, carry, key):
        return carry


class ChangesTheCarry(Wrapped):
    def step(self, model, carry, x, key, *, kl_weight=1.0):
        carry, filtered = self.inner.step(model, carry, x, key, kl_weight=kl_weight)
        return (carry, carry), filtered


class KeepsTime(Wrapped):
    """Reads the clock from the data, not from the carry: NaN poisons it."""

    def init(self, model, x0=None, key=None):
        return self.inner.init(model, x0, key), jnp.zeros((), jnp.result_type(float))

    def step(self, model, carry, x, key, *, kl_weight=1.0):
        inner, total = carry
        inner, filtered = self.inner.step(model, inner, x, key, kl_weight=kl_weight)
        return (inner, total + jnp.sum(x)), filtered

    def draw(self, model, carry, key):
        return self.inner.draw(model, carry[0], key)


@pytest.mark.parametrize(
    ("filter", "check"),
    [
        (ChangesTheCarry, "fits"),
        (HiddenState, "stream"),
        (KeepsTime, "missing-some"),
        (ChargesForNothing, "missing-all-bound"),
        (ForgetsThePrior, "missing-all-posterior"),
        (DrawsTheCarry, "draw-structure"),
    ],
)
def test_broken_filters_are_found(filter, check):
    with pytest.raises(ConformanceError, match=rf"^\[{check}\] `{filter.__name__}`: got"):
        check_filter(filter(), Walk(), KEY)


def test_a_filter_refuses_what_does_not_fit():
    with pytest.raises(ConformanceError, match=r"^\[fits\] `KalmanFilter`: got TypeError"):
        check_filter(vf.KalmanFilter(), Walk(), KEY)
