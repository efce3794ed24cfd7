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


def product(weight: Float[Array, "out in"], x: Float[Array, " in"]) -> Float[Array, " out"]:
    """Compute W x with x as the first factor.

    Under `vmap` the result is then a batch of rows, in the order in which all that follows reads
    it; `weight @ x` would make it columns, which is slow to read on a GPU.
    """
    return jax.lax.dot_general(x, weight, (((0,), (1,)), ((), ())))


def in_parts(layer: eqx.nn.Linear, *parts: Float[Array, " _part"]) -> Float[Array, " out"]:
    """Compute W [x_1, x_2, ...] + b as b + W_1 x_1 + W_2 x_2 + ..., a product for each part.

    A filter then multiplies a part that is known for all steps, as the state of an LSTM over x
    alone is, ahead of its loop (`_ahead`), and a gradient in one part needs no product with
    the others.
    """
    assert layer.bias is not None
    total, begin = layer.bias, 0
    for part in parts:
        end = begin + part.size
        if part.size:
            total = total + product(layer.weight[:, begin:end], part)
        begin = end
    return total


class Dense(eqx.Module):
    """`num_layers` hidden layers of one size, each followed by `activation`; no output layer.

    Its input may come in parts, which are joined in their order.
    """

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

    def __call__(self, *parts: Float[Array, " _part"]) -> Float[Array, " hidden"]:
        """Compute the last hidden layer's units."""
        for layer in self.layers:
            parts = (self.activation(in_parts(layer, *parts)),)
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


class HighwayTrunk(eqx.Module):
    """h' = g * carry(h) + (1 - g) * elu(W h + b), with g = sigmoid(W_g h + b_g).

    The gate multiplies the carry path. In the first layer `carry` is a linear map that brings
    the input to `hidden_size`; in the others it is the identity. The input may come in parts.
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

    def __call__(self, *parts: Float[Array, " _part"]) -> Float[Array, " hidden"]:
        """Compute the last layer's units."""
        carried = in_parts(self.carry, *parts)
        for layer, gate in zip(self.layers, self.gates, strict=True):
            g = jax.nn.sigmoid(in_parts(gate, *parts))
            carried = g * carried + (1.0 - g) * jax.nn.elu(in_parts(layer, *parts))
            parts = (carried,)
        return carried
