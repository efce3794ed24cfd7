"""How a belief outlives any observation: when a step falls back to its prediction."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from varfilter import distributions
from varfilter._tree import all_finite, select
from varfilter.distributions import observed
from varfilter.model import AbstractModel, Latent, State
from varfilter.observation import Observation, draw_missing

# float32 has 24 binary digits: of more nats than this it no longer tells one, and weights and
# gradients are rounding. For one element it is a distance of some 5,800 standard deviations.
MOST_NATS_PER_ELEMENT = 2.0**24
# Beyond every free energy that can be computed, and its square is still a float32.
LARGEST_SURPRISE = 1e19


def is_lost(
    x: Float[Array, " *event"], found: Any, log_weight: Float[Array, ""]
) -> Bool[Array, ""]:
    """Whether x_t cannot be weighed, so that the step must do without it.

    That is where anything of what inference `found` is not finite, or where the log-weight
    log p(x_t, z_t) / q(z_t) is so low that its digits say nothing any more.
    """
    count = jnp.maximum(jnp.sum(observed(x)), 1).astype(log_weight.dtype)
    can_be_told = (log_weight > -MOST_NATS_PER_ELEMENT * count) & (log_weight < jnp.inf)
    return ~(can_be_told & all_finite(found))


def finite_bound(bound: Float[Array, "..."]) -> Float[Array, "..."]:
    """Hold a bound to what is finite; one that is NaN counts as the greatest surprise of all."""
    bound = jnp.where(jnp.isnan(bound), -LARGEST_SURPRISE, bound)
    return jnp.clip(bound, -LARGEST_SURPRISE, LARGEST_SURPRISE)


def advance(
    model: AbstractModel,
    state: State,
    prior: Any,
    z: Latent,
    x: Float[Array, " *event"] | Observation,
    lost: Bool[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Latent, State]:
    """Fold (x_t, z_t) into one trajectory: the z_t that was passed on, and the next state.

    What is missing of x_t is drawn. A step that is lost is a prediction: z_t is drawn from the
    prior, and all of x_t is missing; a frame that was embedded ahead of time cannot be drawn
    again, and leaves the state as it was. So does a next state that is not finite.
    """
    z = select(lost, distributions.sample(prior, key), z)
    if isinstance(x, Observation):
        after = model.advance(state, z, x.features)
        return z, select(all_finite(after) & ~lost, after, state)
    told = draw_missing(model, state, z, jnp.where(lost, jnp.nan, x), key)
    after = model.advance(state, z, told.features)
    return z, select(all_finite(after), after, state)
