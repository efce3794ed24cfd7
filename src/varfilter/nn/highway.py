"""The trunk of the iterative inference network: ELU layers with highway connections."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.nn.dense import linear


class HighwayTrunk(eqx.Module):
    """h' = g * carry(h) + (1 - g) * elu(W h + b), with g = sigmoid(W_g h + b_g).

    The gate multiplies the carry path. In the first layer `carry` is a linear map that brings
    the input to `hidden_size`; in the others it is the identity.
    """

    carry: eqx.nn.Linear
    layers: tuple[eqx.nn.Linear, ...]
    gates: tuple[eqx.nn.Linear, ...]

    def __init__(self, in_size: int, hidden_size: int, num_layers: int, *, key: PRNGKeyArray):
        key_carry, key_layers, key_gates = jax.random.split(key, 3)
        sizes = [in_size] + [hidden_size] * (num_layers - 1)
        self.carry = linear(in_size, hidden_size, key=key_carry)
        self.layers = tuple(
            linear(size, hidden_size, key=k)
            for size, k in zip(sizes, jax.random.split(key_layers, num_layers), strict=True)
        )
        self.gates = tuple(
            linear(size, hidden_size, key=k)
            for size, k in zip(sizes, jax.random.split(key_gates, num_layers), strict=True)
        )

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " hidden"]:
        """The last layer's units."""
        for index, (layer, gate) in enumerate(zip(self.layers, self.gates, strict=True)):
            carried = self.carry(x) if index == 0 else x
            g = jax.nn.sigmoid(gate(x))
            x = g * carried + (1.0 - g) * jax.nn.elu(layer(x))
        return x
