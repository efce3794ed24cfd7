"""SRNN: a stochastic chain of latents on top of a deterministic recurrence over the data."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._arguments import require_all_positive, require_input_size, require_key
from varfilter.distributions import Normal
from varfilter.model import AbstractModel
from varfilter.models.heads import BernoulliHead, LatentHead, as_shape, num_elements
from varfilter.nn import LSTM, Dense


class SRNNState(eqx.Module):
    """h_t (a function of x_<t) with the LSTM's cell, z_{t-1}, and the known input u_t."""

    hidden: Float[Array, " hidden"]
    cell: Float[Array, " hidden"]
    z: Float[Array, " latent"]
    u: Float[Array, " inputs"]


class SRNN(AbstractModel):
    """h_t = LSTM(x_{t-1}, h_{t-1});  z_t ~ N(prior[h_t, z_{t-1}]);  x_t ~ head(decoder[h_t, z_t]).

    After Fraccaro et al. (2016), with the past alone; the defaults are the paper's model of
    music. `head` maps the decoder's last layer to the distribution of x_t: `BernoulliHead`,
    `NormalHead`, or your own. With `input_size` known inputs a step, the prior and the decoder
    see u_t beside the rest, and the LSTM takes it in with x_t.
    """

    lstm: LSTM
    prior_trunk: Dense
    prior_head: LatentHead
    decoder: Dense
    head: Any
    z0: Float[Array, " latent"]
    latent_size: int = eqx.field(static=True)
    input_size: int = eqx.field(static=True)

    def __init__(
        self,
        observation_shape: tuple[int, ...] | int = 88,
        latent_size: int = 100,
        *,
        recurrent_size: int = 300,
        prior_size: int = 500,
        num_prior_layers: int = 1,
        decoder_size: int = 500,
        num_decoder_layers: int = 2,
        input_size: int = 0,
        head: Callable[..., Any] = BernoulliHead,
        key: PRNGKeyArray,
    ):
        require_all_positive(
            latent_size=latent_size,
            recurrent_size=recurrent_size,
            prior_size=prior_size,
            num_prior_layers=num_prior_layers,
            decoder_size=decoder_size,
            num_decoder_layers=num_decoder_layers,
        )
        require_key(key)
        keys = jax.random.split(key, 6)
        shape = as_shape(observation_shape)
        self.input_size = require_input_size(input_size)
        joint = recurrent_size + latent_size + input_size
        late_size = input_size or None
        self.lstm = LSTM(num_elements(shape), recurrent_size, late_size=late_size, key=keys[0])
        self.prior_trunk = Dense(
            joint, prior_size, num_prior_layers, activation=clipped_leaky_relu, key=keys[1]
        )
        self.prior_head = LatentHead(prior_size, latent_size, keys=keys[2:4])
        self.decoder = Dense(
            joint, decoder_size, num_decoder_layers, activation=clipped_leaky_relu, key=keys[4]
        )
        self.head = head(decoder_size, shape, key=keys[5])
        self.z0 = jnp.zeros((latent_size,))
        self.latent_size = latent_size

    def init(self, x0: Float[Array, " *event"] | None = None) -> SRNNState:
        """The learned state, advanced by `x0` where there is one."""
        hidden = self.lstm.init()
        if x0 is not None:
            hidden = self.lstm(self.embed(x0), hidden)
        return SRNNState(*hidden, self.z0, jnp.zeros((self.input_size,)))

    def drive(self, state: SRNNState, u: Float[Array, " inputs"]) -> SRNNState:
        """Keep u_t for the prior, the decoder and the LSTM."""
        return SRNNState(state.hidden, state.cell, state.z, u)

    def embed(self, x: Float[Array, " *event"]) -> Float[Array, " gates"]:
        """Compute what x_t adds to the LSTM's gates."""
        return self.lstm.project(jnp.ravel(x))

    def prior(self, state: SRNNState) -> Normal:
        """p(z_t | z_{t-1}, x_<t, u_<=t)."""
        return self.prior_head(self.prior_trunk(state.hidden, state.z, state.u))

    def emission(self, state: SRNNState, z: Float[Array, " latent"]) -> Any:
        """p(x_t | z_t, x_<t, u_<=t)."""
        return self.head(self.decoder(state.hidden, z, state.u))

    def advance(self, state: SRNNState, z: Array, features: Array) -> SRNNState:
        """Feed x_t and u_t to the LSTM; keep z_t."""
        hidden = self.lstm(features, (state.hidden, state.cell), state.u)
        return SRNNState(*hidden, z, state.u)


def clipped_leaky_relu(x: Array) -> Array:
    """Leaky ReLU with slope 1/3, clipped to [-3, 3]."""
    return jnp.clip(jnp.where(x > 0, x, x / 3.0), -3.0, 3.0)
