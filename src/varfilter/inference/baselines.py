"""The hand-made filters that AVF is held against: one posterior network for each model.

Each knows the insides of its own model, which is what AVF does without. All of them see the
observation through the model's own features where the published one does, and learn end to
end (`learning.EndToEnd`), so that those features also learn to serve the posterior.
"""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from varfilter._arguments import kind, require_all_positive, require_key
from varfilter.distributions import Normal
from varfilter.model import AbstractModel
from varfilter.models.heads import LatentHead
from varfilter.models.srnn import SRNN, SRNNState, clipped_leaky_relu
from varfilter.models.svg import SVG, SVGState
from varfilter.models.vrnn import RELU_GAIN, VRNN, VRNNState
from varfilter.nn import LSTM, Dense, linear
from varfilter.nn.lstm import Hidden
from varfilter.observation import Observation

Model = TypeVar("Model", bound=AbstractModel)


class VRNNPosterior(eqx.Module):
    """q = N(net[φ_x(x_t), h_{t-1}])   (Chung et al. 2015)."""

    trunk: Dense
    out: LatentHead

    def __init__(
        self,
        model: AbstractModel,
        *,
        hidden_size: int = 500,
        num_layers: int = 4,
        key: PRNGKeyArray,
    ):
        model = _require(model, VRNN)
        in_size = model.data_features.out_size + model.lstm.hidden_size + model.input_size
        self.trunk, self.out = _trunk_and_head(
            in_size, hidden_size, num_layers, model.latent_size, key,
            activation=jax.nn.relu, gain=RELU_GAIN,
        )  # fmt: skip

    def __call__(self, prior: Normal, state: VRNNState, observation: Observation) -> Normal:
        """Return q(z_t | x_t, h_{t-1}, u_t)."""
        return self.out(self.trunk(observation.features.units, state.hidden, state.u))


class SRNNPosterior(eqx.Module):
    """q = N(net[x_t, h_t]): the baseline of the AVF paper's code.

    Unlike the posterior of Fraccaro et al. (2016) it sees neither z_{t-1} nor the prior.
    """

    trunk: Dense
    out: LatentHead

    def __init__(
        self,
        model: AbstractModel,
        *,
        hidden_size: int = 500,
        num_layers: int = 1,
        key: PRNGKeyArray,
    ):
        model = _require(model, SRNN)
        in_size = model.lstm.in_size + model.lstm.hidden_size + model.input_size
        self.trunk, self.out = _trunk_and_head(
            in_size, hidden_size, num_layers, model.latent_size, key,
            activation=clipped_leaky_relu,
        )  # fmt: skip

    def __call__(self, prior: Normal, state: SRNNState, observation: Observation) -> Normal:
        """Return q(z_t | x_t, h_t, u_t)."""
        return self.out(self.trunk(jnp.ravel(observation.filled), state.hidden, state.u))


class SRNNResidualPosterior(eqx.Module):
    """a_t = net[x_t, h_t];  q = N(mean of p + m[a_t, z_{t-1}], v[a_t, z_{t-1}]).

    The filtering posterior of Fraccaro et al. (2016): it sees the last latent, and says how
    far the prior's mean is off. Mean and log-variance have a hidden layer each.
    """

    trunk: Dense
    mean_hidden: Dense
    mean: eqx.nn.Linear
    log_var_hidden: Dense
    log_var: eqx.nn.Linear

    def __init__(
        self,
        model: AbstractModel,
        *,
        trunk_size: int = 300,
        num_layers: int = 1,
        hidden_size: int = 500,
        key: PRNGKeyArray,
    ):
        model = _require(model, SRNN)
        require_all_positive(trunk_size=trunk_size, num_layers=num_layers, hidden_size=hidden_size)
        require_key(key)
        keys = jax.random.split(key, 5)
        in_size = model.lstm.in_size + model.lstm.hidden_size + model.input_size
        latent_size = model.latent_size

        def dense(in_size: int, out_size: int, count: int, key: PRNGKeyArray) -> Dense:
            return Dense(in_size, out_size, count, activation=clipped_leaky_relu, key=key)

        self.trunk = dense(in_size, trunk_size, num_layers, keys[0])
        self.mean_hidden = dense(trunk_size + latent_size, hidden_size, 1, keys[1])
        self.mean = linear(hidden_size, latent_size, key=keys[2])
        self.log_var_hidden = dense(trunk_size + latent_size, hidden_size, 1, keys[3])
        self.log_var = linear(hidden_size, latent_size, key=keys[4])

    def __call__(self, prior: Normal, state: SRNNState, observation: Observation) -> Normal:
        """Return q(z_t | x_t, h_t, z_{t-1}, u_t)."""
        seen = self.trunk(jnp.ravel(observation.filled), state.hidden, state.u), state.z
        mean = prior.mean + self.mean(self.mean_hidden(*seen))
        return Normal(mean, self.log_var(self.log_var_hidden(*seen))).stabilised()


class SVGPosterior(eqx.Module):
    """q = N(net[LSTM(encoder(x_t), ...)]): it has a memory of its own   (Denton, Fergus 2018).

    The encoder is the model's, and learns from both of its duties.
    """

    lstm: LSTM
    out: LatentHead

    def __init__(self, model: AbstractModel, *, hidden_size: int = 256, key: PRNGKeyArray):
        model = _require(model, SVG)
        require_all_positive(hidden_size=hidden_size)
        require_key(key)
        key_lstm, key_out = jax.random.split(key)
        self.lstm = LSTM(model.code_size, hidden_size, key=key_lstm)
        self.out = LatentHead(hidden_size, model.latent_size, keys=jax.random.split(key_out))

    def init(self) -> Hidden:
        """The learned state before the first frame."""
        return self.lstm.init()

    def __call__(
        self, memory: Hidden, prior: Normal, state: SVGState, observation: Observation
    ) -> tuple[Hidden, Normal]:
        """Return the LSTM's state after x_t, and q(z_t | x_<=t)."""
        memory = self.lstm(self.lstm.project(observation.features.code), memory)
        return memory, self.out(memory[0])


def _trunk_and_head(
    in_size: int,
    hidden_size: int,
    num_layers: int,
    latent_size: int,
    key: PRNGKeyArray,
    **options: Any,
) -> tuple[Dense, LatentHead]:
    require_all_positive(hidden_size=hidden_size, num_layers=num_layers)
    require_key(key)
    key_trunk, key_out = jax.random.split(key)
    trunk = Dense(in_size, hidden_size, num_layers, key=key_trunk, **options)
    return trunk, LatentHead(hidden_size, latent_size, keys=jax.random.split(key_out))


def _require(model: AbstractModel, wanted: type[Model]) -> Model:
    model = model.core
    if not isinstance(model, wanted):
        raise TypeError(
            f"`model` must be a `{wanted.__name__}`: this posterior reads its state; got"
            f" {kind(model)}. `MLPPosterior(model, key=key)` fits any model."
        )
    return model
