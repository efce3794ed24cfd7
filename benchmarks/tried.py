"""What was tried for the defaults of `Iterative` and is not part of the library."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from varfilter.distributions import is_distribution, stabilised
from varfilter.inference import (
    Gradients,
    Highway,
    LayerNorm,
    LearnedStep,
    NormAndLog,
    PairedGradients,
    Shift,
    SignedLog,
)
from varfilter.nn import linear


class LayerAndScale(eqx.Module):
    """Layer norm, and the mean and the spread that it took out, as signed logarithms."""

    def __call__(self, term):
        mean, std = jnp.mean(term), jnp.std(term)
        return jnp.concatenate([LayerNorm()(term), SignedLog()(jnp.stack([mean, std]))])


class LayerAndLog(eqx.Module):
    """Layer norm and the signed logarithm side by side."""

    def __call__(self, term):
        return jnp.concatenate([LayerNorm()(term), SignedLog()(term)])


class GatedShift(eqx.Module):
    """q' = q + g * offset: `Highway`'s gate, with a candidate that is counted from q."""

    needs_gradient = False
    offset: eqx.nn.Linear
    gate: eqx.nn.Linear

    def __init__(self, hidden_size, parameter_size, *, key):
        key_offset, key_gate = jax.random.split(key)
        self.offset = linear(hidden_size, parameter_size, gain=0.01, key=key_offset)
        self.gate = linear(hidden_size, parameter_size, key=key_gate)

    def __call__(self, hidden, q, signal):
        parameters, unravel = ravel_pytree(q)
        step = jax.nn.sigmoid(self.gate(hidden)) * self.offset(hidden)
        return stabilised(unravel(parameters + step))


class ScaledShift(eqx.Module):
    """q' = q + offset as `Shift` has it, with means moved in units of q's standard deviation."""

    needs_gradient = False
    offset: eqx.nn.Linear

    def __init__(self, hidden_size, parameter_size, *, key):
        self.offset = linear(hidden_size, parameter_size, gain=0.01, key=key)

    def __call__(self, hidden, q, signal):
        _, unravel = ravel_pytree(q)

        def moved(d, by):
            scaled = eqx.tree_at(lambda d: d.mean, by, jnp.sqrt(d.variance) * by.mean)
            return jax.tree.map(jnp.add, d, scaled)

        step = unravel(self.offset(hidden))
        return stabilised(jax.tree.map(moved, q, step, is_leaf=is_distribution))


NORMALIZATIONS = {
    "layer": LayerNorm(),
    "log": SignedLog(),
    "layer+scale": LayerAndScale(),
    "layer+log": LayerAndLog(),
    "norm+log": NormAndLog(),
}
SIGNALS = {"gradients": Gradients(), "pairs": PairedGradients()}
UPDATES = {
    "highway": Highway,
    "learned-step": LearnedStep,
    "shift": Shift,
    "gated": GatedShift,
    "scaled": ScaledShift,
}
