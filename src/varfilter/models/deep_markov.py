"""The deep Markov model: a gated non-linear transition and a neural emission."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.distributions import Bernoulli, Normal
from varfilter.model import AbstractModel
from varfilter.nn import Dense, linear


class GatedTransition(eqx.Module):
    """p(z_t | z_{t-1}) = N(g * n(z) + (1 - g) * (A z + a), exp(l(n))).

    The gate g chooses, per dimension, between a network and a linear map that starts as the
    identity, so that an untrained model already says "much as before".
    """

    gate: Dense
    gate_out: eqx.nn.Linear
    proposal: Dense
    proposal_out: eqx.nn.Linear
    carry: eqx.nn.Linear
    log_var: eqx.nn.Linear

    def __init__(self, latent_size: int, hidden_size: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 6)
        self.gate = Dense(latent_size, hidden_size, 1, activation=jax.nn.relu, key=keys[0])
        self.gate_out = linear(hidden_size, latent_size, key=keys[1])
        self.proposal = Dense(latent_size, hidden_size, 1, activation=jax.nn.relu, key=keys[2])
        self.proposal_out = linear(hidden_size, latent_size, key=keys[3])
        carry = linear(latent_size, latent_size, key=keys[4])
        self.carry = eqx.tree_at(lambda lin: lin.weight, carry, jnp.eye(latent_size))
        self.log_var = linear(latent_size, latent_size, key=keys[5])

    def __call__(self, z: Float[Array, " latent"]) -> Normal:
        """The distribution of the next latent."""
        g = jax.nn.sigmoid(self.gate_out(self.gate(z)))
        n = self.proposal_out(self.proposal(z))
        log_var = self.log_var(jax.nn.relu(n))
        return Normal(g * n + (1.0 - g) * self.carry(z), log_var).stabilised()


class NormalHead(eqx.Module):
    """N(W h + b, exp(l)) with one learned log-variance for each element."""

    mean: eqx.nn.Linear
    log_var: Float[Array, " size"]
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, hidden_size: int, shape: tuple[int, ...], *, key: PRNGKeyArray):
        size = _size(shape)
        self.mean = linear(hidden_size, size, key=key)
        self.log_var = jnp.zeros((size,))
        self.shape = shape

    def __call__(self, hidden: Float[Array, " hidden"]) -> Normal:
        """The distribution of x given the decoder's last layer."""
        mean = self.mean(hidden).reshape(self.shape)
        return Normal(mean, self.log_var.reshape(self.shape)).stabilised()


class BernoulliHead(eqx.Module):
    """P(x = 1) = sigmoid(W h + b)."""

    logits: eqx.nn.Linear
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, hidden_size: int, shape: tuple[int, ...], *, key: PRNGKeyArray):
        self.logits = linear(hidden_size, _size(shape), key=key)
        self.shape = shape

    def __call__(self, hidden: Float[Array, " hidden"]) -> Bernoulli:
        """The distribution of x given the decoder's last layer."""
        return Bernoulli(self.logits(hidden).reshape(self.shape))


class DeepMarkov(AbstractModel):
    """z_t ~ gated(z_{t-1});  x_t ~ head(decoder(z_t))   (Krishnan, Shalit, Sontag 2017).

    The state is the prior of z_t itself: N(0, I) at the start, the gated transition after.
    """

    transition: GatedTransition
    decoder: Dense
    head: Any
    initial: Normal

    def __init__(
        self,
        observation_shape: tuple[int, ...] | int,
        latent_size: int,
        *,
        hidden_size: int = 64,
        num_layers: int = 2,
        head: Callable[..., Any] = NormalHead,
        key: PRNGKeyArray,
    ):
        shape = (observation_shape,) if isinstance(observation_shape, int) else observation_shape
        key_transition, key_decoder, key_head = jax.random.split(key, 3)
        self.transition = GatedTransition(latent_size, hidden_size, key=key_transition)
        self.decoder = Dense(latent_size, hidden_size, num_layers, key=key_decoder)
        self.head = head(hidden_size, tuple(shape), key=key_head)
        self.initial = Normal(jnp.zeros((latent_size,)), jnp.zeros((latent_size,)))

    def init(self, x0: Float[Array, " *event"] | None = None) -> Normal:
        """The (learned) prior of the first latent; `x0` is ignored: the chain is Markov in z."""
        return self.initial.stabilised()

    def embed(self, x: Float[Array, " *event"]) -> None:
        """Nothing: the recurrence does not need x_t."""
        return None

    def prior(self, state: Normal) -> Normal:
        """p(z_t | z_{t-1})."""
        return state

    def emission(self, state: Normal, z: Float[Array, " latent"]) -> Any:
        """p(x_t | z_t)."""
        return self.head(self.decoder(z))

    def advance(self, state: Normal, z: Float[Array, " latent"], features: None) -> Normal:
        """p(z_{t+1} | z_t)."""
        return self.transition(z)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
