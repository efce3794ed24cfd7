"""Checks at the border: every wrong input is refused before anything is compiled."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from varfilter.distributions import is_distribution, mean
from varfilter.filters.base import AbstractFilter
from varfilter.model import AbstractModel


def require_fitting(filter: Any, model: Any) -> None:
    """A model that keeps its contract, and a filter."""
    if not isinstance(filter, AbstractFilter):
        raise TypeError(
            f"`filter` must be a filter; got {_kind(filter)}."
            " For example `VariationalFilter(Iterative(model, key=key))`."
        )
    require_model(model)


def require_model(model: Any) -> None:
    """A model whose five functions exist and agree with each other, by their shapes alone."""
    if not isinstance(model, AbstractModel):
        raise TypeError(
            f"`model` must derive from `varfilter.AbstractModel`; got {_kind(model)}."
            " Write its five functions: init, embed, prior, emission, advance."
        )
    name = type(model).__name__
    state = _shape_of(f"{name}.init(None)", lambda: model.init(None))
    prior = _shape_of(f"{name}.prior(state)", model.prior, state)
    _require_distributions(f"{name}.prior", prior)
    z = eqx.filter_eval_shape(mean, prior)
    emission = _shape_of(f"{name}.emission(state, z)", model.emission, state, z)
    _require_distributions(f"{name}.emission", emission)
    if not is_distribution(emission):
        raise TypeError(
            f"`{name}.emission` must return one distribution over an array; got {_kind(emission)}."
        )
    x = jax.ShapeDtypeStruct(emission.shape, jnp.result_type(float))
    features = _shape_of(f"{name}.embed(x)", model.embed, x)
    after = _shape_of(f"{name}.advance(state, z, features)", model.advance, state, z, features)
    _require_same_structure(name, state, after)


def require_observations(
    name: str, xs: Any, model: AbstractModel, *, observed: Any = None, has_time: bool = True
) -> Float[Array, "..."]:
    """Observations of the model's shape as floats, unobserved elements as NaN."""
    require_model(model)
    event = observation_shape(model)
    array = as_observations(name, xs)
    shape = array.shape[1:] if has_time else array.shape
    if shape != event or (has_time and array.ndim == 0):
        wanted = ("time", *event) if has_time else event
        raise ValueError(
            f"`{name}` must have shape ({', '.join(map(str, wanted))}{',' * (len(wanted) == 1)})"
            f" for `{type(model).__name__}`; got {array.shape}."
            + (" For a batch of sequences, `jax.vmap` over the first axis." if has_time else "")
        )
    if has_time and array.shape[0] == 0:
        raise ValueError(f"`{name}` is empty: a sequence needs at least one step.")
    if observed is not None:
        seen = jnp.asarray(observed)
        if seen.shape != array.shape or seen.dtype != bool:
            raise ValueError(
                f"`observed` must be a boolean array of the shape of `{name}`, {array.shape};"
                f" got {seen.dtype} {seen.shape}. For steps that do not exist use `mask`."
            )
        array = jnp.where(seen, array, jnp.nan)
    return array


def as_observations(name: str, xs: Any) -> Float[Array, "..."]:
    """`xs` as an array of floats; None becomes NaN, infinities are refused."""
    if isinstance(xs, jax.Array):
        array = xs
    else:
        try:
            array = np.asarray(xs)
            if array.dtype == object:  # None among numbers
                array = np.asarray(xs, dtype=float)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"`{name}` must be an array of numbers; got {_kind(xs)} ({error})."
                " Pad sequences of different lengths to one and give `mask`."
            ) from None
    if not (array.dtype == bool or jnp.issubdtype(array.dtype, jnp.number)) or jnp.issubdtype(
        array.dtype, jnp.complexfloating
    ):
        raise TypeError(f"`{name}` must hold real numbers; got dtype {array.dtype}.")
    if not isinstance(array, jax.core.Tracer) and bool(np.isinf(np.asarray(array)).any()):
        raise ValueError(
            f"`{name}` holds infinities. Mark unobserved elements with NaN, or remove the values."
        )
    return jnp.asarray(array, dtype=jnp.result_type(float))


def require_step_mask(mask: Any, num_steps: int) -> Bool[Array, " time"]:
    """A boolean for each step; all True if there is none."""
    if mask is None:
        return jnp.ones((num_steps,), bool)
    array = jnp.asarray(mask)
    if array.shape != (num_steps,) or array.dtype != bool:
        raise ValueError(
            f"`mask` must be a boolean array of shape ({num_steps},), one for each step;"
            f" got {array.dtype} {array.shape}. For single elements use NaN or `observed`."
        )
    return array


def require_key(key: Any) -> None:
    """A typed random key."""
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise TypeError(f"`key` must be a random key, `jax.random.key(seed)`; got {_kind(key)}.")
    if key.shape != ():
        raise ValueError(
            f"`key` must be a single key; got shape {key.shape}. For a batch, vmap over keys."
        )


def observation_shape(model: AbstractModel) -> tuple[int, ...]:
    """The shape of one observation."""

    def emission() -> Any:
        state = model.init(None)
        return model.emission(state, mean(model.prior(state)))

    return eqx.filter_eval_shape(emission).shape


def _shape_of(call: str, function: Any, *arguments: Any) -> Any:
    try:
        return eqx.filter_eval_shape(function, *arguments)
    except Exception as error:
        raise TypeError(
            f"`{call}` failed when called with the shapes the other functions return:"
            f" {type(error).__name__}: {error}"
        ) from error


def _require_distributions(call: str, tree: Any) -> None:
    for leaf in jax.tree.leaves(tree, is_leaf=is_distribution) or [None]:
        if not is_distribution(leaf):
            raise TypeError(
                f"`{call}` must return a distribution, e.g. `Normal(mean, log_var)`;"
                f" got {_kind(leaf)}."
            )


def _require_same_structure(name: str, before: Any, after: Any) -> None:
    left, right = jax.tree.structure(before), jax.tree.structure(after)
    if left != right:
        raise TypeError(
            f"`{name}.advance` must return a state of the structure that `init` returns;"
            f" got {right}, wanted {left}."
        )
    for path, old in jax.tree_util.tree_leaves_with_path(before):
        new = dict(jax.tree_util.tree_leaves_with_path(after))[path]
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise TypeError(
                f"`{name}.advance` changes the state's `{jax.tree_util.keystr(path)}` from"
                f" {old.dtype}{list(old.shape)} to {new.dtype}{list(new.shape)}; a state must keep"
                " its shapes."
            )


def _kind(value: Any) -> str:
    return f"`{type(value).__name__}`"
