"""What was expected: the distribution of x_t given x_<t, with all that is not known of z_t in it.

`Filtered.prediction` of a variational or a particle filter puts z_t to its prior mean, and is too
narrow; here z_t is drawn.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from varfilter import distributions
from varfilter._arguments import require_key, require_positive
from varfilter.contracts import require_observations, require_step_mask
from varfilter.filtering import Belief, only_if, require_belief, start, step
from varfilter.filters.base import AbstractFilter, Filtered
from varfilter.filters.contract import require_fitting
from varfilter.forecast import require_levels
from varfilter.model import AbstractModel

# Folded into the key of a step: its own draws, apart from those of the filter.
PREDICTION = 0xF1


class Predicted(eqx.Module):
    """x_t before it was seen, element by element: p(x_t | x_<t) by Monte Carlo.

    `mean` and `variance` come from the moments of the emissions (law of total variance), which is
    steadier than from draws of x; `quantiles[i]` is of such draws, and belongs to `levels[i]`.
    """

    mean: Float[Array, " *event"]
    variance: Float[Array, " *event"]
    quantiles: Float[Array, " num_levels *event"]
    levels: tuple[float, ...] = eqx.field(static=True)


def predict(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    key: PRNGKeyArray,
    *,
    num_samples: int = 128,
    levels: Sequence[float] = (),
) -> Predicted:
    """E[x], Var[x] = E[Var[x | s, z]] + Var[E[x | s, z]] and quantiles of the next observation.

    Over `num_samples` draws of a state s from the filter's belief, and of z ~ prior(s). A
    `VariationalFilter` carries one sampled past: its s is always the same, and what it does not
    know of the past is not in the spread. A `ParticleFilter` has that too.

    `key` is the key of the whole sequence, as in `step`.
    """
    require_fitting(filter, model)
    require_key(key)
    require_belief(filter, model, belief)
    num_samples = require_positive("num_samples", num_samples)
    return _predict(filter, model, belief, key, num_samples, _levels(levels))


def run_predictive(
    filter: AbstractFilter,
    model: AbstractModel,
    xs: Any,
    key: PRNGKeyArray,
    *,
    x0: Any = None,
    mask: Any = None,
    belief: Belief | None = None,
    num_samples: int = 128,
    levels: Sequence[float] = (),
) -> tuple[Belief, Filtered, Predicted]:
    """`run`, with the same numbers, and what `predict` says before each step, time first.

    The arguments are those of `run` and of `predict`.
    """
    require_fitting(filter, model)
    require_key(key)
    num_samples = require_positive("num_samples", num_samples)
    xs = require_observations("xs", xs, model)
    mask = require_step_mask(mask, xs.shape[0])
    if belief is None:
        belief = start(filter, model, x0)
    elif x0 is not None:
        raise ValueError("`x0` starts a new belief and `belief` continues one: give only one.")
    else:
        require_belief(filter, model, belief)
    return _run(filter, model, belief, xs, mask, key, num_samples, _levels(levels))


def _levels(levels: Sequence[float]) -> tuple[float, ...]:
    return require_levels(levels) if len(levels) else ()


@eqx.filter_jit
def _predict(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    key: PRNGKeyArray,
    num_samples: int,
    levels: tuple[float, ...],
) -> Predicted:
    def draw(key: PRNGKeyArray) -> Any:
        key_state, key_z, key_x = jax.random.split(key, 3)
        state = filter.draw(model, belief.carry, key_state)
        z = distributions.sample(model.prior(state), key_z)
        emission = model.emission(state, z)
        return emission.mean, emission.variance, emission.sample(key_x) if levels else None

    own = jax.random.fold_in(jax.random.fold_in(key, belief.t), PREDICTION)
    means, variances, samples = jax.vmap(draw)(jax.random.split(own, num_samples))
    mean, variance = jnp.mean(means, axis=0), jnp.mean(variances, axis=0)
    if num_samples > 1:
        variance = variance + jnp.var(means, axis=0, ddof=1)
    quantiles = jnp.zeros((0, *mean.shape), mean.dtype)
    if samples is not None:
        quantiles = jnp.quantile(samples, jnp.array(levels, samples.dtype), axis=0)
    return Predicted(mean, variance, quantiles, levels)


@eqx.filter_jit
def _run(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    xs: Float[Array, "time *event"],
    mask: Bool[Array, " time"],
    key: PRNGKeyArray,
    num_samples: int,
    levels: tuple[float, ...],
) -> tuple[Belief, Filtered, Predicted]:
    def masked_step(belief: Belief, x_and_mask: Any) -> tuple[Belief, Any]:
        x, exists = x_and_mask
        predicted = _predict(filter, model, belief, key, num_samples, levels)
        after, filtered = only_if(exists, belief, *step(filter, model, belief, x, key))
        return after, (filtered, predicted)

    belief, (filtered, predicted) = jax.lax.scan(masked_step, belief, (xs, mask))
    return belief, filtered, predicted
