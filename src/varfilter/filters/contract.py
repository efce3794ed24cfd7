"""A filter and a model that fit each other, found out before anything is compiled."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from varfilter._arguments import kind
from varfilter._signature import once_per_signature
from varfilter.contracts import first_line, observation_shape, require_model, tree_difference
from varfilter.filters.base import AbstractFilter, Carry, Filtered
from varfilter.model import AbstractModel


def require_fitting(filter: Any, model: Any) -> None:
    """A model that keeps its contract, and a filter that can take a step with it."""
    if not isinstance(filter, AbstractFilter):
        raise TypeError(
            f"`filter` must be a filter; got {kind(filter)}."
            " For example `VariationalFilter(Iterative(model, key=key))`."
        )
    require_model(model)
    _check_step(filter, model)


def carry_shapes(filter: AbstractFilter, model: AbstractModel) -> Carry:
    """The shapes of what the filter carries."""
    return _carry_shapes(filter, model)


@once_per_signature
def _carry_shapes(filter: AbstractFilter, model: AbstractModel) -> Carry:
    return eqx.filter_eval_shape(filter.init, model)


@once_per_signature
def _check_step(filter: AbstractFilter, model: AbstractModel) -> None:
    # `init` goes first and unwrapped: a filter that refuses a model says so there.
    carry = _carry_shapes(filter, model)
    x = jax.ShapeDtypeStruct(observation_shape(model), jnp.result_type(float))
    key = jax.eval_shape(lambda: jax.random.key(0))
    inner = getattr(filter, "inference", None)
    name = type(filter).__name__ + (f"({type(inner).__name__})" if inner is not None else "")
    try:
        after, filtered = eqx.filter_eval_shape(filter.step, model, carry, x, key)
    except Exception as error:
        raise TypeError(
            f"`{name}` does not fit `{type(model).__name__}`: its step fails on the shapes of this"
            f" model ({first_line(error)}). Build its networks for this model."
        ) from error
    if difference := tree_difference(carry, after):
        raise TypeError(f"`{name}.step` must keep the carry that `init` makes: {difference}.")
    if not isinstance(filtered, Filtered) or filtered.bound.shape != ():
        raise TypeError(f"`{name}.step` must return a `Filtered` whose `bound` is one number.")
