"""Amortized inference with a memory of its own: the posterior LSTM of SVG."""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._arguments import kind, require_key, require_positive
from varfilter._tree import Signature
from varfilter.contracts import first_step
from varfilter.inference.amortized import posterior_like
from varfilter.inference.base import AbstractInference, Inferred, Memory, require_reparameterisable
from varfilter.model import AbstractModel, State
from varfilter.nn import linear
from varfilter.observation import Observation


@runtime_checkable
class RecurrentNetwork(Protocol):
    """A posterior network that carries a memory from step to step."""

    def init(self) -> Memory:
        """The memory before the first step."""
        ...

    def __call__(
        self, memory: Memory, prior: Any, state: State, observation: Observation
    ) -> tuple[Memory, Any]:
        """Return the memory after this observation, and q."""
        ...


class Recurrent(AbstractInference):
    """q, memory = network(memory, prior, state, observation).

    `network` is any module that has `init()`, its first memory, such as
    `LSTMPosterior(model, key=key)`; it learns end to end (`learning.EndToEnd`).

    At a step without any observation the memory advances on the predicted observation: time
    goes on, and q = p.
    """

    network: RecurrentNetwork

    def __check_init__(self):
        if isinstance(self.network, type) or not isinstance(self.network, RecurrentNetwork):
            raise TypeError(
                "`network` must have `init()` and map (memory, prior, state, observation) to"
                f" (memory, q); got {kind(self.network)}."
                " For example `LSTMPosterior(model, key=key)`."
            )

    @classmethod
    def require_fitting(cls, model: AbstractModel) -> None:
        """Refuse latents without a gradient of their draws, by which the network would learn."""
        require_reparameterisable(cls.__name__, model)

    def init(self, model: AbstractModel) -> Memory:
        """The network's memory before the first step."""
        self.require_fitting(model)
        return self.network.init()

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
        """Ask the network once, and keep its memory."""
        own, _ = model.inside(state, observation.x)
        memory, posterior = self.network(memory, model.prior(state), own, observation)
        return Inferred(posterior, memory, jnp.zeros((0,)))


class LSTMPosterior(eqx.Module):
    """An LSTM over the observations with a linear head to the parameters of q."""

    cell: eqx.nn.LSTMCell
    out: eqx.nn.Linear
    hidden: Float[Array, " hidden"]
    cell_state: Float[Array, " hidden"]
    like: Signature = eqx.field(static=True)

    def __init__(self, model: AbstractModel, *, hidden_size: int = 256, key: PRNGKeyArray):
        require_positive("hidden_size", hidden_size)
        require_key(key)
        require_reparameterisable("LSTMPosterior", model)
        shapes = first_step(model.core)
        key_cell, key_out = jax.random.split(key)
        self.cell = eqx.nn.LSTMCell(shapes.observation_size, hidden_size, key=key_cell)
        self.out = linear(hidden_size, shapes.parameter_size, key=key_out)
        self.hidden = jnp.zeros((hidden_size,))
        self.cell_state = jnp.zeros((hidden_size,))
        self.like = Signature(shapes.prior)

    def init(self) -> Memory:
        """The learned initial state."""
        return self.hidden, self.cell_state

    def __call__(
        self, memory: Memory, prior: Any, state: State, observation: Observation
    ) -> tuple[Memory, Any]:
        """Advance the LSTM on x_t and read q off it."""
        memory = self.cell(jnp.ravel(observation.filled), memory)
        return memory, posterior_like(self.like, self.out(memory[0]))
