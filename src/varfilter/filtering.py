"""The drivers: `start` a belief, `step` it by one observation, `run` it over a sequence."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from varfilter._ahead import scan_ahead
from varfilter._arguments import kind, require_key, require_weight
from varfilter._threefry import written_out
from varfilter._tree import select, strong
from varfilter.contracts import (
    require_inputs,
    require_observations,
    require_step_mask,
    tree_difference,
)
from varfilter.filters.base import (
    AbstractFilter,
    Carry,
    Filtered,
    carry_shapes,
    driven_carry,
    require_fitting,
)
from varfilter.model import AbstractModel
from varfilter.observation import embed_ahead

# Folded into the key of the first step: the draws of what is missing of the frame before it.
FIRST = 0x66697273


# Names of fields, a function of the whole, or None for all of it.
Kept = tuple[str, ...] | Callable[[Filtered], Any] | None


class Belief(eqx.Module):
    """All that the past has left: the filter's carry, and how many steps it has seen.

    A pytree: save it, move it to another machine, stack a thousand of them.
    """

    carry: Carry
    t: Int[Array, ""]


def start(
    filter: AbstractFilter,
    model: AbstractModel,
    x0: Any = None,
    key: PRNGKeyArray | None = None,
) -> Belief:
    """The belief before the first observation; `x0` is conditioned on, never scored.

    Elements that are missing of `x0` are drawn, by `key`, which is that of the whole sequence.
    """
    require_fitting(filter, model)
    if x0 is not None:
        x0 = require_observations("x0", x0, model, has_time=False)
        if key is None and not isinstance(x0, Tracer) and bool(jnp.isnan(x0).any()):
            raise ValueError(
                "`x0` holds NaN, and what is missing is drawn: give `key`, that of the sequence."
            )
    if key is not None:
        require_key(key)
        key = jax.random.fold_in(jax.random.fold_in(key, 0), FIRST)
    return Belief(strong(filter.init(model, x0, key)), jnp.zeros((), jnp.int32))


def step(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    x: Any,
    key: PRNGKeyArray | None = None,
    *,
    u: Any = None,
    kl_weight: float | Float[Array, ""] = 1.0,
) -> tuple[Belief, Filtered]:
    """Fold in one observation, and before it the known input `u`, if the model has inputs.

    Meant to be compiled (`eqx.filter_jit`); `Stream` does so. `key` is the key of the whole
    sequence; step t draws from `fold_in(key, t)`, so that a
    stream and a scan draw the same numbers. A `KalmanFilter` draws nothing and needs none.
    """
    require_fitting(filter, model)
    key = key_for(filter, key)
    require_belief(filter, model, belief)
    x = require_observations("x", x, model, has_time=False)
    weight = require_weight("kl_weight", kl_weight)
    u = require_inputs("u", u, model, ())
    key_t = jax.random.fold_in(key, belief.t)
    carry = driven_carry(filter, model, belief.carry, u)
    carry, filtered = filter.step(model, carry, x, key_t, kl_weight=weight)
    return Belief(carry, belief.t + 1), filtered


def run(
    filter: AbstractFilter,
    model: AbstractModel,
    xs: Any,
    key: PRNGKeyArray | None = None,
    *,
    us: Any = None,
    x0: Any = None,
    mask: Any = None,
    observed: Any = None,
    belief: Belief | None = None,
    complete: bool = False,
    ahead: bool = False,
    kl_weight: float | Float[Array, ""] = 1.0,
    keep: str | Sequence[str] | Callable[[Filtered], Any] | None = None,
) -> tuple[Belief, Any]:
    """Filter one sequence: `lax.scan` of `step`; each field of the result has time as first axis.

    - `xs`: (time, *event), at least one step; NaN or None marks an unobserved element. Whole
      numbers and booleans become floats; infinities are refused. A step, or a sequence, of
      which nothing was observed is predicted and scores 0.
    - `us`: (time, inputs), the known inputs of a model that has them; none may be missing.
    - `observed`: optional, the shape of `xs`: False marks an unobserved element.
    - `mask`: optional, (time,): False marks a step that does not exist (padding). The belief
      is frozen there and `bound` is 0.
    - `belief`: go on from an earlier one; two chunks give the numbers of one.
    - `complete`: a promise that no element of `xs` is missing; all frames are then embedded
      at once, before the scan.
    - `ahead`: compute for all steps at once what does not have to wait for the step before, and
      share what all sequences have in common, such as the covariances of a `KalmanFilter`.
      Batches of long sequences are filtered sooner, and the program takes longer to compile.
    - `keep`: what to keep of each step, instead of all: names of fields of `Filtered`, such as
      `"posterior"` (the others are None, but for `bound`, which is always there), or a function of
      the `Filtered` of one step, such as `lambda filtered: filtered.posterior.mean`. Ten thousand
      particles and steps are gigabytes; their means are not. Define such a function once: each
      new one is compiled anew.

    With neither `complete` nor `ahead` the numbers are those of a `Stream` with the same key, to
    the bit on a CPU; with either of them they are the same up to rounding.

    A `KalmanFilter` draws nothing and needs no `key`.

    Vmap it over sequences (with one key each) for a batch.
    """
    require_fitting(filter, model)
    key = key_for(filter, key)
    xs = require_observations("xs", xs, model, observed=observed, complete=complete)
    us, mask, belief = require_beside(
        filter, model, xs, key, us=us, x0=x0, mask=mask, belief=belief
    )
    weight = require_weight("kl_weight", kl_weight)
    return _run(
        filter, model, belief, xs, us, mask, key, weight, complete, ahead, require_kept(keep)
    )  # fmt: skip


def require_beside(
    filter: AbstractFilter,
    model: AbstractModel,
    xs: Any,
    key: PRNGKeyArray,
    *,
    us: Any,
    x0: Any,
    mask: Any,
    belief: Belief | None,
) -> tuple[Any, Bool[Array, " time"], Belief]:
    """Return the inputs and the mask of the steps `xs`, and the belief that they continue."""
    mask = require_step_mask(mask, xs.shape[0])
    us = require_inputs("us", us, model, xs.shape[:1])
    if belief is None:
        return us, mask, start(filter, model, x0, key)
    if x0 is not None:
        raise ValueError("`x0` starts a new belief and `belief` continues one: give only one.")
    require_belief(filter, model, belief)
    return us, mask, belief


def key_for(filter: AbstractFilter, key: Any) -> PRNGKeyArray:
    """Return the key, or one that nothing is drawn by where the filter needs none."""
    given: Any = jax.random.key(0) if key is None and not filter.needs_key else key
    require_key(given)
    return given


def require_kept(keep: Any) -> Kept:
    """Return what to keep of a step, and refuse fields that `Filtered` has not."""
    if keep is None or callable(keep):
        return keep
    names = (keep,) if isinstance(keep, str) else tuple(keep)
    known = tuple(field.name for field in dataclasses.fields(Filtered))
    for name in names:
        if name not in known:
            hint = " It is minus `bound`, which is always kept." if name == "surprise" else ""
            raise ValueError(
                f"`keep` must be names of fields of `Filtered` ({', '.join(known)}), or a function"
                f" of one; got {name!r}.{hint}"
            )
    return names


def kept_of(filtered: Filtered, kept: Kept) -> Any:
    """What is kept of a step; `bound` is always there."""
    if kept is None or callable(kept):
        return filtered if kept is None else kept(filtered)
    others = {"prior", "posterior", "prediction", "info"}.difference(kept)
    return dataclasses.replace(filtered, **dict.fromkeys(others))


def require_belief(filter: AbstractFilter, model: AbstractModel, belief: Any) -> None:
    """Refuse a belief that this filter could not have left with this model."""
    if not isinstance(belief, Belief):
        raise TypeError(
            f"`belief` must be a `Belief`, from `start` or an earlier `run`; got {kind(belief)}."
        )
    if difference := tree_difference(carry_shapes(filter, model), belief.carry):
        raise ValueError(
            f"`belief` was made by another filter or model: {difference}."
            " Continue with those it came from, or `start` a new one."
        )


@eqx.filter_jit
def _run(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    xs: Float[Array, "time *event"],
    us: Float[Array, "time inputs"] | None,
    mask: Bool[Array, " time"],
    key: PRNGKeyArray,
    kl_weight: float | Float[Array, ""],
    complete: bool,
    ahead: bool,
    kept: Kept,
) -> tuple[Belief, Any]:
    seen = embed_ahead(model, xs) if complete else xs
    # What is drawn ahead of the steps is drawn at once, and a loop over it compiles sooner.
    key = written_out(key) if jax.default_backend() == "cpu" and not ahead else key

    def keep(filtered: Filtered) -> Any:
        return kept_of(filtered, kept)

    def by_steps() -> tuple[Carry, Any]:
        last, (found, _) = filter_steps(
            filter, model, belief, seen, us, mask, key, kl_weight,
            keep=keep, scan=scan_ahead if ahead else jax.lax.scan,
        )  # fmt: skip
        return last.carry, found

    if ahead:
        carry, found = filter.sweep(model, belief.carry, xs, us, mask, keep=keep, by_steps=by_steps)
    else:
        carry, found = by_steps()
    return Belief(carry, belief.t + jnp.sum(mask, dtype=jnp.int32)), found


def filter_steps(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    xs: Any,
    us: Float[Array, "time inputs"] | None,
    mask: Bool[Array, " time"],
    key: PRNGKeyArray,
    kl_weight: float | Float[Array, ""] = 1.0,
    *,
    look: Callable[[Belief, Any], Any] = lambda belief, x: None,
    keep: Callable[[Filtered], Any] = lambda filtered: filtered,
    scan: Callable[..., tuple[Any, Any]] = jax.lax.scan,
) -> tuple[Belief, tuple[Any, Any]]:
    """Return the last belief, and of each step `keep(filtered)` and `look(belief, x)` before it.

    `run` without its checks, for functions that are compiled; padded steps have a `bound` of 0.
    The belief that is looked at knows the input of its step already, but not the observation `x`.
    """

    def take(belief: Belief, x_and_u: Any, exists: Array, key: PRNGKeyArray) -> tuple[Carry, Any]:
        x, u = x_and_u
        carry = driven_carry(filter, model, belief.carry, u)
        looked = look(Belief(carry, belief.t), x)
        carry, filtered = filter.step(model, carry, x, key, kl_weight=kl_weight)
        bound = jnp.where(exists, filtered.bound, 0.0)
        return carry, (keep(eqx.tree_at(lambda f: f.bound, filtered, bound)), looked)

    return scan_steps(take, belief, (xs, us), mask, key, scan)


def scan_steps(
    take: Callable[[Belief, Any, Bool[Array, ""], PRNGKeyArray], tuple[Carry, Any]],
    belief: Belief,
    xs: Any,
    mask: Bool[Array, " time"],
    key: PRNGKeyArray,
    scan: Callable[..., tuple[Any, Any]] = jax.lax.scan,
) -> tuple[Belief, Any]:
    """Loop over time: return the last belief, and what was kept of each step, time first.

    `take(belief, x, exists, key_t)` returns the carry after the step and what is to be kept of
    it; `key_t` is `fold_in(key, t)`. Where a step does not exist the belief stays as it was.
    `scan` is `jax.lax.scan`, whose steps are those of a stream, or `scan_ahead`, which computes
    for all steps at once what does not have to wait: learning and scoring take it.
    """

    def masked_step(carry: Carry, inputs: Any) -> tuple[Carry, Any]:
        x, exists, t = inputs
        after, kept = take(Belief(carry, t), x, exists, jax.random.fold_in(key, t))
        return select(exists, after, carry), kept

    steps = mask.astype(belief.t.dtype)
    ts = belief.t + jnp.cumsum(steps) - steps
    carry, kept = scan(masked_step, belief.carry, (xs, mask, ts))
    return Belief(carry, belief.t + jnp.sum(steps, dtype=steps.dtype)), kept
