"""What may come: `forecast` from a belief, `generate` from nothing; both run the model freely."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter import distributions
from varfilter._arguments import kind, require_key, require_positive
from varfilter.contracts import (
    first_line,
    first_step,
    require_inputs,
    require_model,
    require_observations,
)
from varfilter.distributions import AbstractDistribution
from varfilter.filtering import FIRST, Belief, require_belief
from varfilter.filters.base import AbstractFilter, require_fitting
from varfilter.model import AbstractModel, Latent, State, driven
from varfilter.observation import fill_first
from varfilter.prediction import predictive_quantiles, require_levels

# Beyond it nothing is left of what was learned.
HOTTEST = 10.0
# What stands for x_t, given its emission, in place of a draw.
Observe = Callable[[AbstractDistribution], Float[Array, " *event"]]
# Of many trajectories, the share at either end that may have run away; and how many times further
# out than all others lie apart, or than 1, it must be for that.
OUTERMOST, FAR = 0.02, 30.0


class Forecast(eqx.Module):
    """What may come, as draws of x_{t+1}, ..., x_{t+horizon} and their summary.

    `mean` averages the emissions' means, which is steadier than averaging `samples`, and leaves
    out futures that have run away (`steady_mean`).
    `quantiles[i]` belongs to `levels[i]`, element by element.
    """

    samples: Float[Array, "num_samples horizon *event"]
    mean: Float[Array, "horizon *event"]
    quantiles: Float[Array, "num_levels horizon *event"]
    levels: tuple[float, ...] = eqx.field(static=True)


def forecast(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    horizon: int,
    key: PRNGKeyArray,
    *,
    us: Any = None,
    num_samples: int = 256,
    levels: Sequence[float] = (0.05, 0.5, 0.95),
    temperature: float | int = 1.0,
    observe: Observe | None = None,
) -> Forecast:
    """Simulate `num_samples` futures of `horizon` steps from the filter's belief.

    A model with known inputs needs those of the future: `us`, (horizon, inputs). `temperature` and
    `observe` are those of `generate`.
    """
    require_fitting(filter, model)
    require_key(key)
    require_belief(filter, model, belief)
    horizon = require_positive("horizon", horizon)
    num_samples = require_positive("num_samples", num_samples)
    us = require_inputs("us", us, model, (horizon,))
    temperature = require_temperature(temperature)
    require_observe(observe, model)
    return _forecast(
        filter, model, belief, us, key,
        horizon, num_samples, require_levels(levels), temperature, observe,
    )  # fmt: skip


def generate(
    model: AbstractModel,
    num_steps: int,
    key: PRNGKeyArray,
    *,
    us: Any = None,
    x0: Any = None,
    temperature: float | int = 1.0,
    observe: Observe | None = None,
) -> tuple[Float[Array, "time *event"], Latent]:
    """Simulate one sequence from the model itself: (xs, zs); `us` are its known inputs.

    `temperature` scales the randomness of the prior of z_t and of the emission of x_t at each step
    (`AbstractDistribution.tempered`): p^(1 / temperature), so that a Gaussian has `temperature`
    times its variance, and the log-odds of a note are divided by it; 1 is the model as learned.
    `observe` makes x_t of its emission in place of a draw, such as its mean; it is what the model
    is told of, too, and z_t is drawn all the same. Define it once: each new function is compiled
    anew, as each temperature is.
    """
    require_model(model)
    require_key(key)
    num_steps = require_positive("num_steps", num_steps)
    if x0 is not None:
        x0 = require_observations("x0", x0, model, has_time=False)
    us = require_inputs("us", us, model, (num_steps,))
    require_observe(observe, model)
    return _generate(model, x0, us, key, num_steps, require_temperature(temperature), observe)


def require_temperature(temperature: Any) -> float:
    """Return a temperature, and refuse one that is not a number above 0, or absurd."""
    is_number = isinstance(temperature, int | float | np.number)
    if not is_number or isinstance(temperature, bool) or not 0.0 < temperature <= HOTTEST:
        raise ValueError(
            f"`temperature` must be a number above 0, at most {HOTTEST:g}; got {temperature!r}. 1"
            " is the model as it was learned, 0.5 is surer of itself, 2 is wilder."
        )
    return float(temperature)


def require_observe(observe: Any, model: AbstractModel) -> None:
    """Refuse what makes no observation of the model's emission."""
    if observe is None:
        return
    hint = "Such as `lambda emission: emission.mean`; None draws from it."
    if not callable(observe):
        raise TypeError(
            f"`observe` must be a function of the emission of a step; got {kind(observe)}. {hint}"
        )
    emission, name = first_step(model).emission, type(model).__name__
    try:
        x = eqx.filter_eval_shape(observe, emission)
    except Exception as error:
        raise TypeError(
            f"`observe` failed on an emission of `{name}`, a `{type(emission).__name__}`"
            f" ({first_line(error)}). {hint}"
        ) from error
    is_array = hasattr(x, "shape") and hasattr(x, "dtype")
    fits = is_array and x.shape == emission.shape and jnp.issubdtype(x.dtype, jnp.floating)
    if not fits:
        got = f"an array `{x.dtype}{list(x.shape)}`" if is_array else kind(x)
        raise TypeError(
            f"`observe` must return floats of shape {emission.shape}, an observation of `{name}`;"
            f" got {got}. {hint}"
        )


def steady_mean(means: Float[Array, "num *event"]) -> Float[Array, " *event"]:
    """The mean over trajectories, without the few that have run away.

    With heavy tails one future in hundreds runs away, and fed back to a network for many steps it
    may lie a million times as far out as all others; the mean of all would be that one's alone. So
    of the lowest and the highest 2% those are left out that lie beyond all others by 30 times as
    much as these lie apart, or by 30 where that is less: observations have a spread of about 1.
    All that lies nearer counts, be it ever so rare: the mean of a probability, of what has bounds,
    or of what is skewed has no bias.
    """
    num_outermost = int(OUTERMOST * means.shape[0])
    if not num_outermost:
        return jnp.mean(means, axis=0)
    ordered = jnp.sort(means, axis=0)
    low, high = ordered[num_outermost], ordered[-num_outermost - 1]
    reach = FAR * jnp.maximum(high - low, 1.0)
    is_near = (ordered >= (low - reach)[None]) & (ordered <= (high + reach)[None])
    count = jnp.sum(is_near, axis=0).astype(means.dtype)
    return jnp.sum(jnp.where(is_near, ordered, 0.0), axis=0) / count


@eqx.filter_jit
def _forecast(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    us: Float[Array, "horizon inputs"] | None,
    key: PRNGKeyArray,
    horizon: int,
    num_samples: int,
    levels: tuple[float, ...],
    temperature: float,
    observe: Observe | None,
) -> Forecast:
    def future(key: PRNGKeyArray) -> Any:
        key_draw, key_simulate = jax.random.split(key)
        state = filter.draw(model, belief.carry, key_draw)
        return simulate(
            model, state, horizon, key_simulate, us, temperature=temperature, observe=observe
        )

    samples, means, _ = jax.vmap(future)(jax.random.split(key, num_samples))
    quantiles = predictive_quantiles(samples, levels)
    return Forecast(samples, steady_mean(means), quantiles, levels)


@eqx.filter_jit
def _generate(
    model: AbstractModel,
    x0: Any,
    us: Float[Array, "time inputs"] | None,
    key: PRNGKeyArray,
    num_steps: int,
    temperature: float,
    observe: Observe | None,
) -> Any:
    first = jax.random.fold_in(jax.random.fold_in(key, 0), FIRST)
    state = model.init(fill_first(model, x0, first))
    xs, _, zs = simulate(model, state, num_steps, key, us, temperature=temperature, observe=observe)
    return xs, zs


def simulate(
    model: AbstractModel,
    state: State,
    num_steps: int,
    key: PRNGKeyArray,
    us: Float[Array, "time inputs"] | None = None,
    *,
    temperature: float | int = 1.0,
    observe: Observe | None = None,
) -> Any:
    """Run the model freely, z ~ prior and x ~ emission: (xs, emission means, zs)."""

    def step(state: State, t_and_u: Any) -> Any:
        t, u = t_and_u
        state = driven(model, state, u)
        key_z, key_x = jax.random.split(jax.random.fold_in(key, t))
        prior = distributions.tempered(model.prior(state), temperature)
        z = distributions.sample(prior, key_z)
        emission = model.emission(state, z)
        if observe is None:
            x = distributions.tempered(emission, temperature).sample(key_x)
        else:
            x = observe(emission)
        return model.advance(state, z, model.embed(x)), (x, emission.mean, z)

    return jax.lax.scan(step, state, (jnp.arange(num_steps), us))[1]
