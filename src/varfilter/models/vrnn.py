"""VRNN: a recurrence over features of the data and of the latents, which shapes both."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._arguments import require_all_positive, require_input_size, require_key
from varfilter.distributions import Normal
from varfilter.model import AbstractModel
from varfilter.models.heads import LatentHead, VaryingNormalHead, as_shape, num_elements
from varfilter.nn import LSTM, Dense

RELU_GAIN = 2.0**0.5


class VRNNState(eqx.Module):
    """h_{t-1}, the LSTM's output after x_{t-1} and z_{t-1}, with its cell, and the input u_t."""

    hidden: Float[Array, " hidden"]
    cell: Float[Array, " hidden"]
    u: Float[Array, " inputs"]


class VRNNFeatures(eqx.Module):
    """φ_x(x_t), which the baseline posterior sees, and what it adds to the LSTM's gates."""

    units: Float[Array, " units"]
    projected: Float[Array, " gates"]


class VRNN(AbstractModel):
    """z_t ~ N(prior[h_{t-1}]);  x_t ~ head(decoder[φ_z(z_t), h_{t-1}]);
    h_t = LSTM([φ_x(x_t), φ_z(z_t)], h_{t-1})   (Chung et al. 2015).

    The defaults are the paper's model of speech, but for the head: give one that knows the
    width of your data's levels. With `input_size` known inputs a step, the prior, the decoder
    and the LSTM see u_t beside the rest.
    """

    data_features: Dense
    latent_features: Dense
    prior_trunk: Dense
    prior_head: LatentHead
    decoder: Dense
    head: Any
    lstm: LSTM
    latent_size: int = eqx.field(static=True)
    input_size: int = eqx.field(static=True)

    def __init__(
        self,
        observation_shape: tuple[int, ...] | int = 200,
        latent_size: int = 200,
        *,
        recurrent_size: int = 2000,
        data_feature_size: int = 600,
        latent_feature_size: int = 500,
        prior_size: int = 500,
        decoder_size: int = 600,
        num_layers: int = 4,
        input_size: int = 0,
        head: Callable[..., Any] = VaryingNormalHead,
        key: PRNGKeyArray,
    ):
        require_all_positive(
            latent_size=latent_size,
            recurrent_size=recurrent_size,
            data_feature_size=data_feature_size,
            latent_feature_size=latent_feature_size,
            prior_size=prior_size,
            decoder_size=decoder_size,
            num_layers=num_layers,
        )
        require_key(key)
        self.input_size = require_input_size(input_size)
        keys = jax.random.split(key, 8)
        shape = as_shape(observation_shape)
        relus = functools.partial(
            Dense, num_layers=num_layers, activation=jax.nn.relu, gain=RELU_GAIN
        )
        self.data_features = relus(num_elements(shape), data_feature_size, key=keys[0])
        self.latent_features = relus(latent_size, latent_feature_size, key=keys[1])
        self.prior_trunk = relus(recurrent_size + input_size, prior_size, key=keys[2])
        self.prior_head = LatentHead(prior_size, latent_size, keys=keys[3:5])
        decoder_in = latent_feature_size + recurrent_size + input_size
        self.decoder = relus(decoder_in, decoder_size, key=keys[5])
        self.head = head(decoder_size, shape, key=keys[6])
        late_size = latent_feature_size + input_size
        self.lstm = LSTM(data_feature_size, recurrent_size, late_size=late_size, key=keys[7])
        self.latent_size = latent_size

    def init(self, x0: Float[Array, " *event"] | None = None) -> VRNNState:
        """The learned state; `x0` is ignored, for the LSTM takes no x without its z."""
        return VRNNState(*self.lstm.init(), jnp.zeros((self.input_size,)))

    def drive(self, state: VRNNState, u: Float[Array, " inputs"]) -> VRNNState:
        """Keep u_t for the prior, the decoder and the LSTM."""
        return VRNNState(state.hidden, state.cell, u)

    def embed(self, x: Float[Array, " *event"]) -> VRNNFeatures:
        """Compute φ_x(x_t), and what it adds to the LSTM's gates."""
        units = self.data_features(jnp.ravel(x))
        return VRNNFeatures(units, self.lstm.project(units))

    def prior(self, state: VRNNState) -> Normal:
        """p(z_t | h_{t-1}, u_t)."""
        return self.prior_head(self.prior_trunk(state.hidden, state.u))

    def emission(self, state: VRNNState, z: Float[Array, " latent"]) -> Any:
        """p(x_t | z_t, h_{t-1}, u_t)."""
        return self.head(self.decoder(self.latent_features(z), state.hidden, state.u))

    def advance(self, state: VRNNState, z: Array, features: VRNNFeatures) -> VRNNState:
        """Feed φ_x(x_t), φ_z(z_t) and u_t to the LSTM."""
        late = jnp.concatenate([self.latent_features(z), state.u])
        hidden = self.lstm(features.projected, (state.hidden, state.cell), late)
        return VRNNState(*hidden, state.u)
