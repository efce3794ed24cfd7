"""A model run on its own data: what the checks of models, inferences and filters start from."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter import distributions
from varfilter.contracts import observation_shape
from varfilter.distributions import fill
from varfilter.model import AbstractModel, Latent, State


class Rollout(eqx.Module):
    """A sequence with its latents, and the model's state before each step; time comes first."""

    xs: Float[Array, "time *event"]
    zs: Latent
    states: State
    last: State

    def at(self, t: int) -> tuple[State, Latent, Float[Array, " *event"]]:
        """(state_t, z_t, x_t)."""
        return jax.tree.map(lambda leaf: leaf[t], (self.states, self.zs, self.xs))


def roll_out(
    model: AbstractModel,
    xs: Float[Array, "time *event"] | None,
    num_steps: int,
    key: PRNGKeyArray,
    *,
    state: State = None,
) -> Rollout:
    """z_t ~ prior, and x_t ~ emission where no `xs` are given; from `state` if there is one."""
    state = model.init(None) if state is None else state
    if xs is None:
        nothing = np.full((num_steps, *observation_shape(model)), np.nan)
        xs = jnp.asarray(nothing, jnp.result_type(float))
    return _roll_out(model, state, xs, key)


def half_missing(xs: Float[Array, "time *event"]) -> Float[Array, "time *event"]:
    """`xs` with every other element NaN, alternating from step to step."""
    place = np.arange(xs[0].size).reshape(xs.shape[1:])
    steps = np.arange(xs.shape[0]).reshape((-1,) + (1,) * place.ndim)
    return jnp.where(jnp.asarray((place[None] + steps) % 2 == 0), xs, jnp.nan)


@eqx.filter_jit
def _roll_out(model: AbstractModel, state: State, xs: Array, key: PRNGKeyArray) -> Rollout:
    def step(state: State, inputs: Any) -> Any:
        x, t = inputs
        key_z, key_x = jax.random.split(jax.random.fold_in(key, t))
        z = distributions.sample(model.prior(state), key_z)
        # Where an element is missing the model draws it, so that nothing given draws all.
        x = fill(x, model.emission(state, z).sample(key_x))
        return model.advance(state, z, model.embed(x)), (x, z, state)

    last, (xs, zs, states) = jax.lax.scan(step, state, (xs, jnp.arange(xs.shape[0])))
    return Rollout(xs, zs, states, last)
