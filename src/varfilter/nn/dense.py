"""Fully connected layers, plain and with highways; Xavier-normal weights and zero biases."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


def linear(in_size: int, out_size: int, *, gain: float = 1.0, key: PRNGKeyArray) -> eqx.nn.Linear:
    """Build W x + b with W ~ N(0, gain^2 * 2 / (in + out)) and b = 0."""
    # Its shapes alone: Equinox's own random numbers would be drawn (and compiled) for nothing.
    layer = eqx.filter_eval_shape(eqx.nn.Linear, in_size, out_size, key=key)
    std = gain * (2.0 / (in_size + out_size)) ** 0.5
    weight = std * jax.random.normal(key, layer.weight.shape, layer.weight.dtype)
    return eqx.tree_at(
        lambda lin: (lin.weight, lin.bias), layer, (weight, jnp.zeros((out_size,), weight.dtype))
    )


class Dense(eqx.Module):
    """`num_layers` hidden layers of one size, each followed by `activation`; no output layer."""

    layers: tuple[eqx.nn.Linear, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)
    out_size: int = eqx.field(static=True)

    def __init__(
        self,
        in_size: int,
        hidden_size: int,
        num_layers: int,
        *,
        activation: Callable[[Array], Array] = jax.nn.elu,
        gain: float = 1.0,
        key: PRNGKeyArray,
    ):
        sizes = [in_size] + [hidden_size] * num_layers
        keys = jax.random.split(key, max(num_layers, 1))
        self.layers = tuple(
            linear(a, b, gain=gain, key=k)
            for a, b, k in zip(sizes[:-1], sizes[1:], keys, strict=False)
        )
        self.activation = activation
        self.out_size = sizes[-1]

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " hidden"]:
        """Compute the last hidden layer's units."""
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


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
        """Compute the last layer's units."""
        for index, (layer, gate) in enumerate(zip(self.layers, self.gates, strict=True)):
            carried = self.carry(x) if index == 0 else x
            g = jax.nn.sigmoid(gate(x))
            x = g * carried + (1.0 - g) * jax.nn.elu(layer(x))
        return x
