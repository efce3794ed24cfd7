"""How a belief outlives any observation: when a step falls back to its prediction.

An absurd observation is ignored, and a belief that goes on to find all of them absurd starts anew.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from varfilter import distributions
from varfilter._batch import if_any
from varfilter._tree import all_finite, select, strong
from varfilter.distributions import observed
from varfilter.model import AbstractModel, Latent, State, prediction
from varfilter.observation import Observation, draw_missing, fill_first

# In standard deviations. It must be far: a level that has jumped for good has to be followed, and
# the sharpest emission of a trained model, whose log-variance is held above -15, has a standard
# deviation of 1/1800 of that of the data.
FARTHEST = 1e5
MOST_NATS_PER_ELEMENT = 0.5 * FARTHEST**2
# So many observations in a row may be absurd; after them it is the belief that is.
PATIENCE = 5
# Beyond every free energy that can be computed, and its square is still a float32.
LARGEST_SURPRISE = 1e19


def is_lost(
    x: Float[Array, " *event"], found: Any, log_weight: Float[Array, ""]
) -> Bool[Array, ""]:
    """Whether x_t cannot be weighed, so that the step must do without it.

    That is where anything of what inference `found` is not finite, or where the log-weight
    log p(x_t, z_t) / q(z_t) is one that no observation has, however unlikely.
    """
    count = jnp.maximum(jnp.sum(observed(x)), 1).astype(log_weight.dtype)
    is_possible = jnp.abs(log_weight) < MOST_NATS_PER_ELEMENT * count
    return ~(is_possible & all_finite(found))


def finite_bound(bound: Float[Array, "..."]) -> Float[Array, "..."]:
    """Hold a bound to what is finite; one that is NaN counts as the greatest surprise of all.

    So does one that is infinite, of an emission without any spread: it would be the best score
    there is.
    """
    bound = jnp.where(bound < jnp.inf, bound, -LARGEST_SURPRISE)
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


def no_losses() -> Int[Array, ""]:
    """How many observations in a row could not be weighed, before the first of them."""
    return jnp.zeros((), jnp.int32)


def count_losses(
    num_lost: Int[Array, ""], x: Float[Array, " *event"], lost: Bool[Array, ""]
) -> Int[Array, ""]:
    """Count on: a step without an observation is neither a loss nor the end of them."""
    return jnp.where(lost, num_lost + 1, jnp.where(jnp.any(observed(x)), 0, num_lost))


def started_anew(
    carry: Any,
    fresh: Callable[[], Any],
    model: AbstractModel,
    x: Float[Array, " *event"],
    key: PRNGKeyArray,
) -> Any:
    """What a filter carries, or `fresh()` once too many observations in a row were lost on it.

    Unless x_t itself is absurd: a belief had better go on without it.
    """
    return started_anew_if(lambda: can_begin_with(model, x, key), carry, fresh)


def started_anew_if(
    can_begin: Callable[[], Bool[Array, ""]], carry: Any, fresh: Callable[[], Any]
) -> Any:
    """Start anew as `started_anew` does, if `can_begin` says that a new belief can weigh x_t."""

    def anew() -> Any:
        return select(can_begin(), strong(fresh()), carry)

    return if_any(carry.num_lost >= PATIENCE, lambda: _chosen(carry, anew), lambda: carry)


def _chosen(carry: Any, anew: Callable[[], Any]) -> Any:
    return select(carry.num_lost >= PATIENCE, anew(), carry)


def first_state(
    model: AbstractModel, x0: Float[Array, " *event"] | None, key: PRNGKeyArray | None
) -> State:
    """The state of one trajectory before the first step; what is missing of `x0` is drawn.

    An absurd `x0` is missing; without a key, only one that would make the state overflow.
    """
    if x0 is None:
        return model.init(None)
    if key is not None:
        begins = can_begin_with(model, x0, jax.random.fold_in(key, 1))
        x0 = jnp.where(begins, x0, jnp.nan)
    state = model.init(fill_first(model, x0, key))
    return select(all_finite(state), state, model.init(None))


def can_begin_with(
    model: AbstractModel, x: Float[Array, " *event"], key: PRNGKeyArray
) -> Bool[Array, ""]:
    """Whether a belief without a past could weigh `x`."""
    state = model.init(None)
    expected = prediction(model, state)
    drawn = model.emission(state, distributions.sample(model.prior(state), key))
    # How far a draw of z_t takes x_t is part of what may happen: a first prior may be wide.
    spread = jnp.sqrt(expected.variance + (drawn.mean - expected.mean) ** 2)
    distance = jnp.where(observed(x), jnp.abs(x - expected.mean), 0.0)
    return jnp.all(distance <= FARTHEST * spread)
