"""A model run on its own data: what the checks of models, inferences and filters start from."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter import distributions
from varfilter.contracts import observation_shape
from varfilter.distributions import fill
from varfilter.model import AbstractModel, Latent, State, driven

# Folded into the key of a sequence: its known inputs, apart from the draws of its steps.
INPUTS = 0x75000000


class Rollout(eqx.Module):
    """A sequence with its latents, and the model's state before each step; time comes first.

    `us` are the known inputs of a model that has them, else None; each state knows its own.
    """

    xs: Float[Array, "time *event"]
    us: Float[Array, "time inputs"] | None
    zs: Latent
    states: State
    last: State

    def at(self, t: int) -> tuple[State, Latent, Float[Array, " *event"]]:
        """(state_t, z_t, x_t)."""
        return on_device(row((self.states, self.zs, self.xs), t))


def roll_out(
    model: AbstractModel,
    xs: Float[Array, "time *event"] | None,
    num_steps: int,
    key: PRNGKeyArray,
    *,
    state: State = None,
) -> Rollout:
    """z_t ~ prior, and x_t ~ emission where no `xs` are given; from `state` if there is one.

    Known inputs, of a model that has them, are drawn from N(0, I).
    """
    state = model.init(None) if state is None else state
    if xs is None:
        nothing = np.full((num_steps, *observation_shape(model)), np.nan, jnp.result_type(float))
        xs = jnp.asarray(nothing)
    us = None
    if model.input_size:
        us = jax.random.normal(jax.random.fold_in(key, INPUTS), (xs.shape[0], model.input_size))
    return _roll_out(model, state, xs, us, key)


def half_missing(xs: Any) -> Any:
    """`xs` with every other element NaN, alternating from step to step."""
    place = np.arange(math.prod(xs.shape[1:])).reshape(xs.shape[1:])
    steps = np.arange(xs.shape[0]).reshape((-1,) + (1,) * place.ndim)
    is_seen = (place[None] + steps) % 2 == 0
    if isinstance(xs, np.ndarray):
        return np.where(is_seen, xs, np.asarray(np.nan, xs.dtype))
    return jnp.where(jnp.asarray(is_seen), xs, jnp.nan)


# Slicing and stacking on the device compiles a program for each shape; numpy's does not.


def on_host(tree: Any) -> Any:
    """The same numbers as numpy arrays (random keys stay as they are)."""
    return jax.tree.map(lambda leaf: leaf if _is_key(leaf) else np.asarray(leaf), tree)


def on_device(tree: Any) -> Any:
    """The same numbers as JAX arrays, as a module expects them."""
    return jax.tree.map(lambda leaf: leaf if _is_key(leaf) else jnp.asarray(leaf), tree)


def row(tree: Any, index: int) -> Any:
    """The numbers at one place of the first axis, as numpy arrays."""
    return jax.tree.map(lambda leaf: leaf[index], on_host(tree))


def stacked(trees: list) -> Any:
    """Trees of one structure as one tree, with a new first axis, as numpy arrays."""

    def stack(*leaves: Any) -> Any:
        return jnp.stack(leaves) if _is_key(leaves[0]) else np.stack(leaves)

    return jax.tree.map(stack, *map(on_host, trees))


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


@eqx.filter_jit
def _roll_out(
    model: AbstractModel, state: State, xs: Array, us: Array | None, key: PRNGKeyArray
) -> Rollout:
    def step(state: State, inputs: Any) -> Any:
        x, u, t = inputs
        state = driven(model, state, u)
        key_z, key_x = jax.random.split(jax.random.fold_in(key, t))
        z = distributions.sample(model.prior(state), key_z)
        # Where an element is missing the model draws it, so that nothing given draws all.
        x = fill(x, model.emission(state, z).sample(key_x))
        return model.advance(state, z, model.embed(x)), (x, z, state)

    last, (xs, zs, states) = jax.lax.scan(step, state, (xs, us, jnp.arange(xs.shape[0])))
    return Rollout(xs, us, zs, states, last)
