"""Hidden Markov models with discrete and mixed latents, and their exact answers by enumeration."""

import itertools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import varfilter as vf
from varfilter.distributions import AbstractDistribution, Joint
from varfilter.inference import Inferred

XS = np.array([[1.2], [0.4], [np.nan], [-0.3], [-1.5], [0.9]])


def number(value):
    """One parameter; with a dtype, since a weakly typed state has a stream compile twice."""
    return jnp.asarray(value, jnp.result_type(float))


class TwoStates(vf.AbstractModel):
    """A hidden Markov model: z in {0, 1} stays as it is with some probability, x = ±1 + noise."""

    first: Array = eqx.field(converter=number, default=0.3)
    stay: Array = eqx.field(converter=number, default=1.1)
    leave: Array = eqx.field(converter=number, default=-0.6)
    log_var: Array = eqx.field(converter=number, default=-0.4)

    def init(self, x0=None):
        return self.first

    def embed(self, x):
        return None

    def prior(self, state):
        return vf.Bernoulli(state)

    def emission(self, state, z):
        return vf.Normal(jnp.where(z > 0.5, 1.0, -1.0)[None], self.log_var[None])

    def advance(self, state, z, features):
        return jnp.where(z > 0.5, self.stay, self.leave)


class Categorical(AbstractDistribution):
    """One of several states as a one-hot vector; it forgets to say that it is discrete."""

    logits: Array

    @property
    def shape(self):
        return self.logits.shape

    @property
    def mean(self):
        return jax.nn.softmax(self.logits)

    @property
    def variance(self):
        return self.mean * (1.0 - self.mean)

    def sample(self, key):
        index = jax.random.categorical(key, self.logits)
        return jax.nn.one_hot(index, self.logits.shape[-1], dtype=self.logits.dtype)

    def log_prob(self, x):
        return jnp.sum(x * jax.nn.log_softmax(self.logits))


class DeclaredCategorical(Categorical):
    is_reparameterisable: ClassVar[bool] = False


def states(family=DeclaredCategorical):
    """The same chain with its two states as a one-hot vector of `family`."""

    class OneHot(TwoStates):
        def prior(self, state):
            return family(jnp.stack([jnp.zeros_like(state), state]))

        def emission(self, state, z):
            return TwoStates.emission(self, state, z[1])

        def advance(self, state, z, features):
            return TwoStates.advance(self, state, z[1], features)

    return OneHot()


class Mixed(TwoStates):
    """A switch, and beside it a position that is observed through it."""

    def prior(self, state):
        return {"switch": vf.Bernoulli(state), "level": vf.Normal(jnp.zeros(1), jnp.zeros(1))}

    def emission(self, state, z):
        mean = z["level"] * jnp.where(z["switch"] > 0.5, 2.0, 1.0)[None]
        return vf.Normal(mean, self.log_var[None])

    def advance(self, state, z, features):
        return TwoStates.advance(self, state, z["switch"], features)


class Together(TwoStates):
    """The same two, in one vector."""

    def prior(self, state):
        parts = (vf.Bernoulli(state[None]), vf.Normal(jnp.zeros(1), jnp.zeros(1)))
        return Joint(parts, ((0,), (1,)))

    def emission(self, state, z):
        return Mixed.emission(self, state, {"switch": z[0], "level": z[1:]})

    def advance(self, state, z, features):
        return TwoStates.advance(self, state, z[0], features)


def forward(parameters, xs):
    """Sum p(xs, zs) over all 2^T paths: (log p(xs), P(z_t = 1 | x_<=t) of each t).

    By enumeration, in float64, from the definition; a missing x counts for nothing.
    """
    first, stay, leave, log_var = parameters

    def path(zs, seen):
        total = 0.0
        for t, (z, x) in enumerate(zip(zs, seen, strict=True)):
            logit = first if t == 0 else (stay if zs[t - 1] else leave)
            total += -np.logaddexp(0.0, -logit if z else logit)
            if not np.isnan(x):
                residual = x - (1.0 if z else -1.0)
                total += -0.5 * (np.log(2 * np.pi) + log_var + residual**2 * np.exp(-log_var))
        return total

    beliefs = []
    for t in range(1, len(xs) + 1):
        paths = list(itertools.product((0, 1), repeat=t))
        scores = np.array([path(zs, xs[:t, 0]) for zs in paths])
        weights = np.exp(scores - np.logaddexp.reduce(scores))
        beliefs.append(weights @ np.array([zs[-1] for zs in paths]))
    return np.logaddexp.reduce(scores), np.array(beliefs)


def parameters(model):
    return np.array([model.first, model.stay, model.leave, model.log_var], np.float64)


class Posterior(vf.AbstractInference):
    """The exact one-step posterior of `TwoStates`: what a user may write for a discrete latent."""

    shift: Array = eqx.field(converter=number, default=0.0)

    def infer(self, model, state, memory, observation, key, *, kl_weight=1.0):
        x = jnp.where(jnp.isnan(observation.x[0]), 0.0, observation.x[0])
        logit = state + 2.0 * x * jnp.exp(-model.log_var) + self.shift
        return Inferred(vf.Bernoulli(logit), memory, jnp.zeros((0,)))
