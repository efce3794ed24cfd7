"""Dropout of weights, the same for a whole update: the model learns with some of itself missing."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

Module = TypeVar("Module")

# Folded into the key of an update, so that all else draws as it does without dropout.
DROPOUT = 0x0D0


class Dropout(eqx.Module):
    """W_ij <- W_ij b_ij / (1 - r), b_ij ~ Bernoulli(1 - r), for each matrix of the model.

    DropConnect (Wan et al. 2013), which is what keeps recurrent models of language from learning
    by heart (Merity et al. 2018). Models are deterministic functions of their parameters; dropout
    of units would have to be built into each of them. Vectors, such as biases, stay whole.

    r rises to `rate` over the first `num_updates`: latents that are not yet in use tell less than
    the noise of a thinned decoder, and would be given up for good.
    """

    rate: float | Float[Array, ""]
    num_updates: int | Int[Array, ""] = 0

    def __check_init__(self):
        require_rate(self.rate)
        if isinstance(self.num_updates, int) and self.num_updates < 0:
            raise ValueError(f"`num_updates` must not be negative; got {self.num_updates}.")

    def rate_at(self, update: Int[Array, ""]) -> Float[Array, ""]:
        """The rate in this update, counted from 0."""
        rate = jnp.asarray(self.rate, jnp.result_type(float))
        num_updates = jnp.asarray(self.num_updates, rate.dtype)
        risen = jnp.minimum(update.astype(rate.dtype) / jnp.maximum(num_updates, 1.0), 1.0)
        return rate * jnp.where(num_updates > 0, risen, 1.0)

    def __call__(self, model: Module, update: Int[Array, ""], key: PRNGKeyArray) -> Module:
        """The model with some of its weights left out, and the others scaled up for them."""
        rate = self.rate_at(update)
        leaves, structure = jax.tree.flatten(model)
        key = jax.random.fold_in(key, DROPOUT)
        for number, leaf in enumerate(leaves):
            # The biases of convolutions have axes of size 1.
            if eqx.is_inexact_array(leaf) and np.count_nonzero(np.asarray(leaf.shape) > 1) > 1:
                kept = (1.0 - rate).astype(leaf.dtype)
                drawn = jax.random.bernoulli(jax.random.fold_in(key, number), kept, leaf.shape)
                leaves[number] = jnp.where(drawn, leaf / kept, jnp.zeros_like(leaf))
        return structure.unflatten(leaves)


def dropped(
    model: Module, dropout: Dropout | None, update: Int[Array, ""], key: PRNGKeyArray
) -> Module:
    """The model as it is learned in this update; without dropout, itself."""
    return model if dropout is None else dropout(model, update, key)


def require_rate(rate: float | Float[Array, ""]) -> None:
    """Refuse a rate outside of [0, 1). Arrays are taken as they come."""
    if isinstance(rate, int | float) and not 0.0 <= rate < 1.0:
        raise ValueError(
            f"`dropout` must lie in [0, 1): it is the chance that a weight is left out; got {rate}."
        )
