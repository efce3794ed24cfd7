"""The deep Markov model: a gated non-linear transition and a neural emission."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._arguments import require_all_positive, require_input_size, require_key
from varfilter.distributions import Normal
from varfilter.model import AbstractModel
from varfilter.models.heads import NormalHead, as_shape
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
        """Return the distribution of the next latent."""
        g = jax.nn.sigmoid(self.gate_out(self.gate(z)))
        n = self.proposal_out(self.proposal(z))
        log_var = self.log_var(jax.nn.relu(n))
        return Normal(g * n + (1.0 - g) * self.carry(z), log_var).stabilised()


class InputEffect(eqx.Module):
    """What a known input does to the latent that it meets: N(m + a(m, u), exp(l + b(m, u))).

    m and l are what the transition had predicted; the last layer starts at zero, so that an
    untrained model is the one without inputs.
    """

    hidden: Dense
    out: eqx.nn.Linear

    def __init__(self, input_size: int, latent_size: int, hidden_size: int, *, key: PRNGKeyArray):
        key_hidden, key_out = jax.random.split(key)
        self.hidden = Dense(latent_size + input_size, hidden_size, 1, key=key_hidden)
        out = linear(hidden_size, 2 * latent_size, key=key_out)
        self.out = eqx.tree_at(lambda lin: lin.weight, out, jnp.zeros_like(out.weight))

    def __call__(self, latent: Normal, u: Float[Array, " inputs"]) -> Normal:
        """Return the distribution of the latent, now that the input is known."""
        moved = self.out(self.hidden(latent.mean, u))
        mean, log_var = jnp.split(moved, 2)
        return Normal(latent.mean + mean, latent.log_var + log_var).stabilised()


class DeepMarkovState(eqx.Module):
    """The prior of z_t, and the known input u_t (without inputs, an empty vector)."""

    latent: Normal
    u: Float[Array, " inputs"]


class DeepMarkov(AbstractModel):
    """z_t ~ gated(z_{t-1});  x_t ~ head(decoder(z_t, u_t))   (Krishnan, Shalit, Sontag 2017).

    The state holds the prior of z_t itself: N(0, I) at the start, the gated transition after.
    With `input_size` known inputs a step, u_t moves that prior and is seen by the decoder.
    """

    transition: GatedTransition
    input_effect: InputEffect | None
    decoder: Dense
    head: Any
    initial: Normal
    latent_size: int = eqx.field(static=True)
    input_size: int = eqx.field(static=True)

    def __init__(
        self,
        observation_shape: tuple[int, ...] | int,
        latent_size: int,
        *,
        hidden_size: int = 64,
        num_layers: int = 2,
        input_size: int = 0,
        head: Callable[..., Any] = NormalHead,
        key: PRNGKeyArray,
    ):
        shape = as_shape(observation_shape)
        require_all_positive(
            latent_size=latent_size, hidden_size=hidden_size, num_layers=num_layers
        )
        require_key(key)
        key_transition, key_decoder, key_head = jax.random.split(key, 3)
        self.input_size = require_input_size(input_size)
        self.transition = GatedTransition(latent_size, hidden_size, key=key_transition)
        self.input_effect = None
        if input_size:
            key_input = jax.random.fold_in(key_transition, 1)
            self.input_effect = InputEffect(input_size, latent_size, hidden_size, key=key_input)
        self.decoder = Dense(latent_size + input_size, hidden_size, num_layers, key=key_decoder)
        self.head = head(hidden_size, shape, key=key_head)
        self.initial = Normal(jnp.zeros((latent_size,)), jnp.zeros((latent_size,)))
        self.latent_size = latent_size

    def init(self, x0: Float[Array, " *event"] | None = None) -> DeepMarkovState:
        """The (learned) prior of the first latent; `x0` is ignored: the chain is Markov in z."""
        return DeepMarkovState(self.initial.stabilised(), jnp.zeros((self.input_size,)))

    def drive(self, state: DeepMarkovState, u: Float[Array, " inputs"]) -> DeepMarkovState:
        """Let u_t move the prior of z_t, and keep it for the decoder."""
        assert self.input_effect is not None
        return DeepMarkovState(self.input_effect(state.latent, u), u)

    def embed(self, x: Float[Array, " *event"]) -> None:
        """Return nothing: the recurrence does not need x_t."""
        return None

    def prior(self, state: DeepMarkovState) -> Normal:
        """p(z_t | z_{t-1}, u_t)."""
        return state.latent

    def emission(self, state: DeepMarkovState, z: Float[Array, " latent"]) -> Any:
        """p(x_t | z_t, u_t)."""
        return self.head(self.decoder(z, state.u))

    def advance(
        self, state: DeepMarkovState, z: Float[Array, " latent"], features: None
    ) -> DeepMarkovState:
        """Predict the next latent: p(z_{t+1} | z_t)."""
        return DeepMarkovState(self.transition(z), state.u)
