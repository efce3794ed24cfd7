"""A standard LSTM cell, split where time makes it sequential."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.nn.dense import product

Hidden = tuple[Array, Array]


class LSTM(eqx.Module):
    """i, f, g, o = W_x x + b_x + W_h h + b_h;  c' = σ(f) c + σ(i) tanh(g);  h' = σ(o) tanh(c').

    `project` is the part that needs x alone, for all steps at once; `__call__` is the part
    that must wait for h. An input that is known only when its step comes, as a latent is,
    has weights of its own (`late_size`): W_x x is then W_early x + W_late late. Weights and
    both biases start uniform in ±1/sqrt(hidden_size); the initial state is learned and
    starts at zero.
    """

    input_weight: Float[Array, "gates in"]
    input_bias: Float[Array, " gates"]
    late_weight: Float[Array, "gates late"] | None
    hidden_weight: Float[Array, "gates hidden"]
    hidden_bias: Float[Array, " gates"]
    initial_hidden: Float[Array, " hidden"]
    initial_cell: Float[Array, " hidden"]
    in_size: int = eqx.field(static=True)
    hidden_size: int = eqx.field(static=True)

    def __init__(
        self, in_size: int, hidden_size: int, *, late_size: int | None = None, key: PRNGKeyArray
    ):
        gates = 4 * hidden_size
        limit = hidden_size**-0.5
        keys = jax.random.split(key, 5)

        def uniform(k: PRNGKeyArray, *shape: int) -> Array:
            return jax.random.uniform(k, shape, minval=-limit, maxval=limit)

        self.input_weight = uniform(keys[0], gates, in_size)
        self.input_bias = uniform(keys[1], gates)
        self.hidden_weight = uniform(keys[2], gates, hidden_size)
        self.hidden_bias = uniform(keys[3], gates)
        self.late_weight = None if late_size is None else uniform(keys[4], gates, late_size)
        self.initial_hidden = jnp.zeros((hidden_size,))
        self.initial_cell = jnp.zeros((hidden_size,))
        self.in_size = in_size
        self.hidden_size = hidden_size

    def init(self) -> Hidden:
        """The learned state before the first step."""
        return self.initial_hidden, self.initial_cell

    def project(self, x: Float[Array, " in"]) -> Float[Array, " gates"]:
        """Compute W_x x + b_x + b_h: all that depends on the early input alone."""
        return product(self.input_weight, x) + self.input_bias + self.hidden_bias

    def __call__(
        self,
        projected: Float[Array, " gates"],
        hidden: Hidden,
        late: Float[Array, " late"] | None = None,
    ) -> Hidden:
        """Return (h', c')."""
        h, c = hidden
        gates = projected + product(self.hidden_weight, h)
        if self.late_weight is not None and late is not None:
            gates = gates + product(self.late_weight, late)
        i, f, g, o = jnp.split(gates, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c
