"""One-shot amortized inference: the hand-made baselines of VRNN and SRNN."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._arguments import kind, require_all_positive, require_key
from varfilter._tree import Signature, flat, flat_size
from varfilter.contracts import first_step
from varfilter.distributions import stabilised
from varfilter.inference.base import AbstractInference, Inferred, Memory, require_reparameterisable
from varfilter.model import AbstractModel, State
from varfilter.nn import Dense, linear
from varfilter.observation import Observation


class Amortized(AbstractInference):
    """q = network(prior, state, observation), in one shot (paper, eq. 4).

    `network` is any module that returns a posterior of the prior's structure, such as
    `MLPPosterior(model, key=key)`; it never sees the free energy. It learns end to end
    (`learning.EndToEnd`): its true gradient runs through all later steps.
    """

    network: Callable[[Any, State, Observation], Any]

    def __check_init__(self):
        if isinstance(self.network, type) or not callable(self.network):
            raise TypeError(
                f"`network` must map (prior, state, observation) to q; got {kind(self.network)}."
                " For example `MLPPosterior(model, key=key)`."
            )

    @classmethod
    def require_fitting(cls, model: AbstractModel) -> None:
        """Refuse latents without a gradient of their draws, by which the network would learn."""
        require_reparameterisable(cls.__name__, model)

    def infer(
        self,
        model: AbstractModel,
        state: State,
        memory: Memory,
        observation: Observation,
        key: PRNGKeyArray,
        *,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> Inferred:
        """Ask the network once."""
        own, _ = model.inside(state, observation.x)
        posterior = self.network(model.prior(state), own, observation)
        return Inferred(posterior, memory, jnp.zeros((0,)))


class MLPPosterior(eqx.Module):
    """A multi-layer perceptron from [x_t, state_t] to the parameters of q: a generic baseline."""

    trunk: Dense
    out: eqx.nn.Linear
    like: Signature = eqx.field(static=True)

    def __init__(
        self,
        model: AbstractModel,
        *,
        hidden_size: int = 256,
        num_layers: int = 2,
        key: PRNGKeyArray,
    ):
        require_all_positive(hidden_size=hidden_size, num_layers=num_layers)
        require_key(key)
        require_reparameterisable("MLPPosterior", model)
        shapes = first_step(model.core)
        key_trunk, key_out = jax.random.split(key)
        in_size = shapes.observation_size + flat_size(shapes.state)
        self.trunk = Dense(in_size, hidden_size, num_layers, key=key_trunk)
        self.out = linear(hidden_size, shapes.parameter_size, key=key_out)
        self.like = Signature(shapes.prior)

    def __call__(self, prior: Any, state: State, observation: Observation) -> Any:
        """Return q(z_t | x_t, state_t)."""
        hidden = self.trunk(jnp.ravel(observation.filled), flat(state))
        return posterior_like(self.like, self.out(hidden))


def posterior_like(like: Signature, parameters: Float[Array, " size"]) -> Any:
    """Build the posterior of the structure of `like` from the vector of its parameters."""
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, parameters.dtype), like.shapes)
    return stabilised(ravel_pytree(zeros)[1](parameters))
