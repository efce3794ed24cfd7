"""Look ahead: simulate a model from where a filter stands, or from nothing."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter import distributions
from varfilter._arguments import require_key, require_positive
from varfilter.contracts import require_model, require_observations
from varfilter.filtering import Belief, require_belief
from varfilter.filters.base import AbstractFilter
from varfilter.filters.contract import require_fitting
from varfilter.model import AbstractModel, Latent, State
from varfilter.observation import condition


class Forecast(eqx.Module):
    """What may come: draws of x_{t+1}, ..., x_{t+horizon} and their summary.

    `mean` averages the emissions' means, which is steadier than averaging `samples`.
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
    num_samples: int = 256,
    levels: Sequence[float] = (0.05, 0.5, 0.95),
) -> Forecast:
    """Simulate `num_samples` futures of `horizon` steps from the filter's belief."""
    require_fitting(filter, model)
    require_key(key)
    require_belief(filter, model, belief)
    horizon = require_positive("horizon", horizon)
    num_samples = require_positive("num_samples", num_samples)
    return _forecast(filter, model, belief, key, horizon, num_samples, require_levels(levels))


def generate(
    model: AbstractModel, num_steps: int, key: PRNGKeyArray, *, x0: Any = None
) -> tuple[Float[Array, "time *event"], Latent]:
    """(xs, zs): one sequence simulated from the model itself."""
    require_model(model)
    require_key(key)
    num_steps = require_positive("num_steps", num_steps)
    if x0 is not None:
        x0 = require_observations("x0", x0, model, has_time=False)
    return _generate(model, x0, key, num_steps)


def require_levels(levels: Any) -> tuple[float, ...]:
    """Probabilities of quantiles."""
    try:
        values = np.atleast_1d(np.asarray(levels, dtype=float))
    except (TypeError, ValueError):
        values = np.zeros((0,))
    if values.ndim != 1 or values.size == 0 or not ((values > 0) & (values < 1)).all():
        raise ValueError(
            f"`levels` must be probabilities inside (0, 1), e.g. (0.05, 0.5, 0.95); got {levels}."
        )
    return tuple(values.tolist())


@eqx.filter_jit
def _forecast(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    key: PRNGKeyArray,
    horizon: int,
    num_samples: int,
    levels: tuple[float, ...],
) -> Forecast:
    def future(key: PRNGKeyArray) -> Any:
        key_draw, key_simulate = jax.random.split(key)
        state = filter.draw(model, belief.carry, key_draw)
        return simulate(model, state, horizon, key_simulate)

    samples, means, _ = jax.vmap(future)(jax.random.split(key, num_samples))
    quantiles = jnp.quantile(samples, jnp.array(levels, samples.dtype), axis=0)
    return Forecast(samples, jnp.mean(means, axis=0), quantiles, levels)


@eqx.filter_jit
def _generate(model: AbstractModel, x0: Any, key: PRNGKeyArray, num_steps: int) -> Any:
    xs, _, zs = simulate(model, model.init(condition(model, x0)), num_steps, key)
    return xs, zs


def simulate(model: AbstractModel, state: State, num_steps: int, key: PRNGKeyArray) -> Any:
    """(xs, emission means, zs) of the model run freely: z ~ prior, x ~ emission, advance."""

    def step(state: State, t: Array) -> Any:
        key_z, key_x = jax.random.split(jax.random.fold_in(key, t))
        z = distributions.sample(model.prior(state), key_z)
        emission = model.emission(state, z)
        x = emission.sample(key_x)
        return model.advance(state, z, model.embed(x)), (x, emission.mean, z)

    return jax.lax.scan(step, state, jnp.arange(num_steps))[1]
