"""Dropout of weights, the same for a whole update: the model learns with some of itself missing."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

Module = TypeVar("Module")

# Folded into the key of an update, so that all else draws as it does without dropout.
DROPOUT = 0x0D0

Rate = float | Float[Array, ""]


def require_rate(rate: Rate | None) -> Rate | None:
    """Refuse a rate outside of [0, 1); None is no dropout. Arrays are taken as they come."""
    if isinstance(rate, int | float) and not 0.0 <= rate < 1.0:
        raise ValueError(
            f"`dropout` must lie in [0, 1): it is the chance that a weight is left out; got {rate}."
        )
    return rate


def dropped(model: Module, rate: Rate | None, key: PRNGKeyArray) -> Module:
    """W_ij <- W_ij b_ij / (1 - rate), b_ij ~ Bernoulli(1 - rate), for each matrix of the model.

    DropConnect (Wan et al. 2013), which is what keeps recurrent models of language from learning
    by heart (Merity et al. 2018). Models are deterministic functions of their parameters; dropout
    of units would have to be built into each of them. Vectors, such as biases, stay whole.
    """
    if rate is None:
        return model
    leaves, structure = jax.tree.flatten(model)
    key = jax.random.fold_in(key, DROPOUT)
    for number, leaf in enumerate(leaves):
        # The biases of convolutions have axes of size 1.
        if eqx.is_inexact_array(leaf) and np.count_nonzero(np.asarray(leaf.shape) > 1) > 1:
            kept = 1.0 - jnp.asarray(rate, leaf.dtype)
            drawn = jax.random.bernoulli(jax.random.fold_in(key, number), kept, leaf.shape)
            leaves[number] = jnp.where(drawn, leaf / kept, jnp.zeros_like(leaf))
    return structure.unflatten(leaves)
