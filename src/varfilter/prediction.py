"""What is expected of the next step, by Monte Carlo, and how surprising each element was then.

`Filtered.prediction` of a variational or a particle filter puts z_t to its prior mean, and is too
narrow; here z_t is drawn, so that all that is not known of it is in the spread.
"""

import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from varfilter import distributions
from varfilter._arguments import require_key, require_positive
from varfilter.contracts import (
    observation_shape,
    require_inputs,
    require_observations,
)
from varfilter.distributions import AbstractDistribution
from varfilter.filtering import Belief, filter_steps, require_belief, require_beside, start
from varfilter.filters.base import AbstractFilter, Filtered, driven_carry, require_fitting
from varfilter.filters.recovery import finite_bound
from varfilter.model import AbstractModel

# Folded into the key of a step: its own draws, apart from those of the filter.
PREDICTION = 0xF1
# The ends between which nine in ten values of an element lie, and how many draws of x for each draw
# of (s, z) find them: given the other elements a few of these may have nearly all of the weight.
BAND = (0.05, 0.95)
DRAWS_FOR_BANDS = 8
# Their ends are found to 1 / 2^20 of the range of the draws; less than this weight is none.
HALVINGS, LEAST_WEIGHT = 20, 1e-4


class ElementSurprises(eqx.Module):
    """How surprising each element of x_t was by itself, in nats; NaN where it was not observed.

    `alone` is -log p(x_k | x_<t), by the past; `given` is -log p(x_k | x_<t, the others of x_t),
    which also sees what does not go together. `mean` and `variance` are what was to be expected
    of the element, given the others. `band` and `band_given` are from where to where nine in ten
    values lie by these. For families whose elements are independent given z_t.
    """

    alone: Float[Array, " *event"]
    given: Float[Array, " *event"]
    mean: Float[Array, " *event"]
    variance: Float[Array, " *event"]
    band: Float[Array, "2 *event"]
    band_given: Float[Array, "2 *event"]


class Predicted(eqx.Module):
    """What was expected of x_t before it was seen: p(x_t | x_<t), by Monte Carlo.

    `mean` and `variance` come from the moments of the emissions (law of total variance), which is
    steadier than from draws of x; `quantiles[i]` is of such draws, and belongs to `levels[i]`.

    `surprises` are those of the elements when they came, if they were asked for.
    """

    mean: Float[Array, " *event"]
    variance: Float[Array, " *event"]
    quantiles: Float[Array, " num_levels *event"]
    levels: tuple[float, ...] = eqx.field(static=True)
    surprises: ElementSurprises | None = None


def predict(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    key: PRNGKeyArray,
    *,
    u: Any = None,
    x: Any = None,
    num_samples: int = 128,
    levels: Sequence[float] = (),
) -> Predicted:
    """Predict E[x], Var[x] = E[Var[x | s, z]] + Var[E[x | s, z]] and quantiles of the next x.

    They are over `num_samples` draws of a state s from the filter's belief, and of z ~ prior(s). A
    `VariationalFilter` carries one sampled past: its s is always the same, and what it does not
    know of the past is not in the spread. A `ParticleFilter` has that too.

    `key` is the key of the whole sequence, as in `step`; `u` is the known input of the next step,
    of a model that has inputs. `x`, where it has come already, is what the `surprises` are of; the
    rest does not depend on it.
    """
    require_fitting(filter, model)
    require_key(key)
    require_belief(filter, model, belief)
    num_samples = require_positive("num_samples", num_samples)
    u = require_inputs("u", u, model, ())
    if x is not None:
        x = require_observations("x", x, model, has_time=False)
    return _predict_driven(filter, model, belief, u, x, key, num_samples, _levels(levels))


def run_predictive(
    filter: AbstractFilter,
    model: AbstractModel,
    xs: Any,
    key: PRNGKeyArray,
    *,
    us: Any = None,
    x0: Any = None,
    mask: Any = None,
    belief: Belief | None = None,
    num_samples: int = 128,
    levels: Sequence[float] = (),
    surprises: bool = False,
) -> tuple[Belief, Filtered, Predicted]:
    """Filter as `run` does, with the same numbers, and `predict` before each step.

    The arguments are those of `run` and of `predict`; with `surprises` each prediction has those of
    the elements that came.
    """
    require_fitting(filter, model)
    require_key(key)
    num_samples = require_positive("num_samples", num_samples)
    xs = require_observations("xs", xs, model)
    us, mask, belief = require_beside(
        filter, model, xs, key, us=us, x0=x0, mask=mask, belief=belief
    )
    return _run_predictive(
        filter, model, belief, xs, us, mask, key, num_samples, _levels(levels), surprises
    )


def _levels(levels: Sequence[float]) -> tuple[float, ...]:
    return require_levels(levels) if len(levels) else ()


@eqx.filter_jit
def _predict_driven(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    u: Float[Array, " inputs"] | None,
    x: Float[Array, " *event"] | None,
    key: PRNGKeyArray,
    num_samples: int,
    levels: tuple[float, ...],
) -> Predicted:
    belief = Belief(driven_carry(filter, model, belief.carry, u), belief.t)
    return _predict(filter, model, belief, x, key, num_samples, levels)


def _predict(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    x: Float[Array, " *event"] | None,
    key: PRNGKeyArray,
    num_samples: int,
    levels: tuple[float, ...],
) -> Predicted:
    def draw(key: PRNGKeyArray) -> Any:
        key_state, key_z, key_x = jax.random.split(key, 3)
        state = filter.draw(model, belief.carry, key_state)
        z = distributions.sample(model.prior(state), key_z)
        emission = model.emission(state, z)
        drawn = emission.sample(key_x) if levels else None
        if x is None:
            return emission.mean, emission.variance, drawn, None
        keys = jax.random.split(jax.random.fold_in(key_x, 1), DRAWS_FOR_BANDS)
        came = element_log_probs(emission, x), jax.vmap(emission.sample)(keys)
        return emission.mean, emission.variance, drawn, came

    own = jax.random.fold_in(jax.random.fold_in(key, belief.t), PREDICTION)
    means, variances, samples, came = jax.vmap(draw)(jax.random.split(own, num_samples))
    mean, variance = jnp.mean(means, axis=0), jnp.mean(variances, axis=0)
    if num_samples > 1:
        variance = variance + jnp.var(means, axis=0, ddof=1)
    quantiles = jnp.zeros((0, *mean.shape), mean.dtype)
    if samples is not None:
        quantiles = predictive_quantiles(samples, levels)
    surprises = None
    if x is not None:
        log_probs, draws = came
        surprises = _element_surprises(x, log_probs, draws, means, variances)
    return Predicted(mean, variance, quantiles, levels, surprises)


def element_log_probs(
    distribution: AbstractDistribution, x: Float[Array, " *event"]
) -> Float[Array, " *event"]:
    """log p(x_k) of each element by itself, whatever the family; 0 where it was not observed."""
    alone = jnp.where(jnp.eye(x.size, dtype=bool), jnp.ravel(x)[None], jnp.nan)
    return jax.vmap(distribution.log_prob)(alone.reshape(x.size, *x.shape)).reshape(x.shape)


def _element_surprises(
    x: Float[Array, " *event"],
    log_probs: Float[Array, "num_samples *event"],
    draws: Float[Array, "num_samples num_draws *event"],
    means: Float[Array, "num_samples *event"],
    variances: Float[Array, "num_samples *event"],
) -> ElementSurprises:
    """Weigh the draws of (s, z) by all other elements: p(x_k | others) = sum_i w_ik p_i(x_k)."""
    num_samples = log_probs.shape[0]
    log_probs = finite_bound(log_probs).reshape(num_samples, x.size)
    # A sum of the others, not of all less one: what is absurd would leave nothing of the rest.
    others = log_probs @ (1.0 - jnp.eye(x.size, dtype=log_probs.dtype))
    log_weights = jax.nn.log_softmax(others, axis=0)
    weights = jnp.exp(log_weights).reshape(means.shape)
    mean = jnp.sum(weights * means, axis=0)
    variance = jnp.sum(weights * (variances + (means - mean[None]) ** 2), axis=0)

    def surprise(log_values: Float[Array, "num_samples size"]) -> Float[Array, " *event"]:
        found = -finite_bound(jax.nn.logsumexp(log_values, axis=0)).reshape(x.shape)
        return jnp.where(distributions.observed(x), found, jnp.nan)

    alone, given = surprise(log_probs - math.log(num_samples)), surprise(log_weights + log_probs)
    flat = draws.reshape(num_samples, -1, x.size)
    weights = jnp.stack([jnp.full_like(log_weights, 1.0 / num_samples), jnp.exp(log_weights)])
    band, band_given = _weighted_bands(flat, weights).reshape(2, 2, *x.shape)
    return ElementSurprises(alone, given, mean, variance, band, band_given)


def _weighted_bands(
    draws: Float[Array, "num_samples num_draws size"],
    weights: Float[Array, "bands num_samples size"],
) -> Float[Array, "bands 2 size"]:
    """The quantiles at `BAND` of one more draw, element by element, by weights of (s, z).

    They are draws themselves. Unequal weights are worth as many equal ones as 1 / sum(w^2); of n of
    those the one of rank p (n + 1) is meant, as by `predictive_quantiles`.
    """
    num_draws, size = draws.shape[1:]
    values = draws.reshape(1, 1, -1, size)
    each = jnp.repeat(weights / num_draws, num_draws, axis=1)
    levels = jnp.array(BAND, draws.dtype)[None, :, None]
    count = 1.0 / jnp.sum(each**2, axis=1)[:, None]
    # The part below it and half of its own; beyond all ranks the outermost draw that counts.
    wanted = jnp.clip(levels + (levels - 0.5) / count, LEAST_WEIGHT, 1.0 - LEAST_WEIGHT)

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = low + 0.5 * (high - low)
        is_below = (values <= middle[:, :, None]).astype(values.dtype)
        is_enough = jnp.sum(each[:, None] * is_below, axis=2) >= wanted
        return jnp.where(is_enough, low, middle), jnp.where(is_enough, middle, high)

    # To sort them takes as long as the whole filter.
    ends = tuple(jnp.broadcast_to(f(values, axis=2), wanted.shape) for f in (jnp.min, jnp.max))
    _, high = jax.lax.fori_loop(0, HALVINGS, halve, ends)
    found = jnp.max(jnp.where(values <= high[:, :, None], values, -jnp.inf), axis=2)
    return jnp.where(jnp.isfinite(found), found, high)


@eqx.filter_jit
def _run_predictive(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    xs: Float[Array, "time *event"],
    us: Float[Array, "time inputs"] | None,
    mask: Bool[Array, " time"],
    key: PRNGKeyArray,
    num_samples: int,
    levels: tuple[float, ...],
    surprises: bool,
) -> tuple[Belief, Filtered, Predicted]:
    def look(belief: Belief, x: Any) -> Predicted:
        return _predict(filter, model, belief, x if surprises else None, key, num_samples, levels)

    belief, (filtered, predicted) = filter_steps(
        filter, model, belief, xs, us, mask, key, look=look
    )
    return belief, filtered, predicted


def no_steps(
    filter: AbstractFilter,
    model: AbstractModel,
    key: PRNGKeyArray,
    *,
    num_samples: int = 128,
    levels: Sequence[float] = (),
    surprises: bool = False,
) -> tuple[Filtered, Predicted]:
    """What `run_predictive` says of no steps at all: every array is empty; nothing is computed."""
    x = jax.ShapeDtypeStruct((0, *observation_shape(model)), jnp.result_type(float))
    size = model.input_size
    us = jax.ShapeDtypeStruct((0, size), jnp.result_type(float)) if size else None
    mask = jax.ShapeDtypeStruct((0,), bool)
    belief = eqx.filter_eval_shape(start, filter, model)
    _, *shapes = eqx.filter_eval_shape(
        _run_predictive,
        *(filter, model, belief, x, us, mask, key, num_samples, _levels(levels), surprises),
    )
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), tuple(shapes))


def require_levels(levels: Any) -> tuple[float, ...]:
    """Return the probabilities of quantiles, and refuse those outside of (0, 1)."""
    try:
        values = np.atleast_1d(np.asarray(levels, dtype=float))
    except (TypeError, ValueError):
        values = np.zeros((0,))
    if values.ndim != 1 or values.size == 0 or not ((values > 0) & (values < 1)).all():
        raise ValueError(
            f"`levels` must be probabilities inside (0, 1), e.g. (0.05, 0.5, 0.95); got {levels}."
        )
    return tuple(values.tolist())


def predictive_quantiles(
    samples: Float[Array, "num_samples *event"], levels: Sequence[float]
) -> Float[Array, "num_levels *event"]:
    """The values below which one more draw lies with the probabilities `levels`.

    One more draw has each rank among n with the same probability 1 / (n + 1), so that of level p
    is the one of rank p (n + 1). The quantiles of the draws themselves lie further in: a band of
    90% between those of 128 would hold 88.6%.
    """
    count = samples.shape[0]
    ranks = np.clip(np.asarray(levels, float) * (count + 1), 1, count)
    among_draws = (ranks - 1) / max(count - 1, 1)
    return jnp.quantile(samples, jnp.asarray(among_draws, samples.dtype), axis=0)
