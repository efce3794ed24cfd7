"""What learning carries from update to update, what it reports, and how it protects both."""

import sys
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from varfilter._arguments import kind, listed, require_key, require_optimizer
from varfilter._tree import select, strong
from varfilter.contracts import (
    as_booleans,
    as_observations,
    observation_shape,
    require_complete,
    require_inputs,
    tree_difference,
)
from varfilter.filters.base import AbstractFilter, require_fitting
from varfilter.inference.base import AbstractInference, draws_without_gradient
from varfilter.inference.gradient import descend
from varfilter.model import AbstractModel

Module = TypeVar("Module", bound=eqx.Module)


class LearnerState(eqx.Module):
    """A model and a filter that are being learned, with the state of their optimizers.

    An update with a non-finite gradient is skipped: it is counted in `num_skipped`, the
    latest one's index is `last_skipped` (-1: none so far), and the parameters never see it.
    """

    model: AbstractModel
    filter: AbstractFilter
    theta_state: Any
    phi_state: Any
    num_updates: Int[Array, ""]
    num_skipped: Int[Array, ""]
    last_skipped: Int[Array, ""]


class Metrics(eqx.Module):
    """Averages over the scored steps of a batch, in nats per step.

    `free_energies` is F by inference iteration: at the prior, ..., after the last update
    (one number where the inference is one-shot). `reconstruction` and `kl` are None for
    filters whose bound has no such parts. `num_skipped` counts the skipped optimizer steps.
    """

    free_energy: Float[Array, ""]
    reconstruction: Float[Array, ""] | None
    kl: Float[Array, ""] | None
    free_energies: Float[Array, " iterates"]
    theta_gradient_norm: Float[Array, ""]
    phi_gradient_norm: Float[Array, ""]
    num_skipped: Int[Array, ""]


class Sequences(eqx.Module):
    """A checked batch: xs (batch, time, *event), mask (batch, time), x0 (batch, *event) or None.

    `us` are the known inputs (batch, time, inputs) of a model that has them, else None.
    """

    xs: Float[Array, "batch time *event"]
    mask: Bool[Array, "batch time"]
    x0: Float[Array, "batch *event"] | None
    us: Float[Array, "batch time inputs"] | None = None


def init_state(
    model: AbstractModel,
    filter: AbstractFilter,
    theta: optax.GradientTransformation | None,
    phi: optax.GradientTransformation | None,
) -> LearnerState:
    """Begin to learn both modules, with fresh optimizers.

    The parameters are all arrays of floats, those of NumPy too. A Python number outside of a
    static field is refused, for it would never be trained; libraries' own layers keep theirs (the
    rate of `equinox.nn.Dropout`, the tolerance of a solver), which are settings.
    """
    model, filter = _with_jax_arrays((model, filter))
    require_fitting(filter, model)
    if theta is not None:
        _require_trainable("model", model, "theta")
    if phi is not None:
        _require_trainable("filter", filter, "phi")
        _require_learnable_proposal(model, filter)
    model, filter = strong((model, filter))
    zero = jnp.zeros((), jnp.int32)
    return LearnerState(
        model,
        filter,
        None if theta is None else theta.init(eqx.filter(model, eqx.is_inexact_array)),
        None if phi is None else phi.init(eqx.filter(filter, eqx.is_inexact_array)),
        zero,
        zero,
        zero - 1,
    )


def require_optimizers(
    theta: optax.GradientTransformation | None, phi: optax.GradientTransformation | None
) -> None:
    """Refuse what are no optimizers of the model and of the inference."""
    require_optimizer("theta", theta, without="to hold the model fixed")
    require_optimizer("phi", phi, without="to hold the inference fixed")


def require_sequences(
    state: Any, xs: Any, mask: Any, x0: Any, us: Any, key: PRNGKeyArray, *, complete: bool
) -> Sequences:
    """Return a checked batch of sequences of the shape that the learned model has."""
    if not isinstance(state, LearnerState):
        raise TypeError(
            f"`state` must be a `LearnerState`, from `init` or an earlier `update`;"
            f" got {kind(state)}."
        )
    require_key(key)
    event = observation_shape(state.model)
    xs = as_observations("xs", xs)
    if xs.ndim != 2 + len(event) or xs.shape[2:] != event or 0 in xs.shape[:2]:
        wanted = ", ".join(map(str, ("batch", "time", *event)))
        raise ValueError(
            f"`xs` must have shape ({wanted}), none of them empty; got {xs.shape}."
            " For one sequence, `xs[None]`."
        )
    hint = "It has one for each step of each sequence, (batch, time)."
    mask = np.ones(xs.shape[:2], bool) if mask is None else mask
    mask = jnp.asarray(as_booleans("mask", mask, xs.shape[:2], hint))
    if complete:
        require_complete("xs", xs)
    if x0 is not None:
        x0 = as_observations("x0", x0)
        if x0.shape != (xs.shape[0], *event):
            raise ValueError(
                f"`x0` must have shape {(xs.shape[0], *event)} (batch, *event); got {x0.shape}."
            )
    return Sequences(xs, mask, x0, require_inputs("us", us, state.model, xs.shape[:2]))


def guarded_update(
    optimizer: optax.GradientTransformation | None,
    optimizer_state: Any,
    module: Module,
    gradient: Any,
) -> tuple[Module, Any, Bool[Array, ""]]:
    """Make one step: (module, optimizer state, skipped), both unchanged where it was skipped.

    `optimizer=None` holds the module fixed.
    """
    if optimizer is None:
        return module, optimizer_state, jnp.array(False)
    parameters = eqx.filter(module, eqx.is_inexact_array)
    if difference := tree_difference(jax.eval_shape(optimizer.init, parameters), optimizer_state):
        raise ValueError(
            f"`state` was begun with another optimizer: {difference} in its state."
            " Update with the learner that began it, or `init` again."
        )
    # Finite squares: Adam's mean square of a gradient of 1e30 would be infinite, and hold the
    # parameters still ever after. It is known before the step, so the step stays one pass over
    # memory; a check of its results would cost two more.
    good = jnp.isfinite(_square_norm(gradient))
    step, next_state = descend(optimizer, gradient, optimizer_state, parameters)
    module = select(good, eqx.apply_updates(module, step), module)
    return module, select(good, next_state, optimizer_state), ~good


def finish(
    state: LearnerState,
    model: AbstractModel,
    filter: AbstractFilter,
    theta_state: Any,
    phi_state: Any,
    num_skipped: Int[Array, ""],
) -> LearnerState:
    """Make the state after an update, with its counters."""
    return LearnerState(
        model,
        filter,
        theta_state,
        phi_state,
        state.num_updates + 1,
        state.num_skipped + num_skipped,
        jnp.where(num_skipped > 0, state.num_updates, state.last_skipped),
    )


def gradient_norm(gradient: Any) -> Float[Array, ""]:
    """The Euclidean norm over all parameters."""
    return jnp.sqrt(_square_norm(gradient))


def masked_mean(values: Float[Array, "..."], weights: Bool[Array, "..."]) -> Float[Array, "..."]:
    """The mean over the leading axes of `weights`, where it holds; 0 if it holds nowhere."""
    extra = values.ndim - weights.ndim
    spread = weights.reshape(weights.shape + (1,) * extra)
    axes = tuple(range(weights.ndim))
    count = jnp.maximum(jnp.sum(weights), 1).astype(values.dtype)
    return jnp.sum(jnp.where(spread, values, 0.0), axis=axes) / count


def _require_trainable(name: str, module: eqx.Module, optimizer: str) -> None:
    """Refuse Python numbers where a reader of the class would expect a parameter."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(module):
        # NumPy's numbers, some of which are Python floats too, are arrays and are trained.
        is_number = isinstance(leaf, float | complex) and not isinstance(leaf, np.generic)
        if is_number and not _is_of_library(_owner(module, path)):
            raise TypeError(
                f"`{name}{jax.tree_util.keystr(path)}` is the Python number {leaf!r}, which would"
                f" never be trained: parameters are arrays. Give `jnp.asarray({leaf!r})` to train"
                " it; to hold it, declare its field with `eqx.field(static=True)`, or give"
                f" `{optimizer}=None` to train nothing of `{name}`."
            )


def _owner(module: Any, path: Any) -> Any:
    """The innermost module on the way to a leaf."""
    nodes = [module]
    for entry in path:
        match entry:
            case jax.tree_util.GetAttrKey(name):
                nodes.append(getattr(nodes[-1], name))
            case jax.tree_util.SequenceKey(index) | jax.tree_util.DictKey(index):
                nodes.append(nodes[-1][index])
            case _:  # inside a container of another kind, which has no names for its parts
                break
    return [node for node in nodes if isinstance(node, eqx.Module)][-1]


def _is_of_library(module: Any) -> bool:
    """Whether an installed library defines the class, so that no user can declare its fields."""
    if isinstance(module, AbstractModel | AbstractInference | AbstractFilter):
        return False
    file = getattr(sys.modules.get(type(module).__module__), "__file__", None) or ""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def _require_learnable_proposal(model: AbstractModel, filter: AbstractFilter) -> None:
    """Refuse to learn an inference from draws that have no gradient."""
    has_parameters = any(map(eqx.is_inexact_array, jax.tree.leaves(filter)))
    if has_parameters and (families := draws_without_gradient(model)):
        raise TypeError(
            f"`phi` cannot learn an inference of {listed(families)}, the latent of"
            f" `{type(model).__name__}`: the draws cannot be reparameterised, so that no gradient"
            " reaches q. Give `phi=None` to hold the inference as it is."
        )


def _with_jax_arrays(tree: Any) -> Any:
    """Make NumPy's floats JAX arrays, so that each version of Equinox counts them as parameters."""

    def converted(leaf: Any) -> Any:
        is_numpy = isinstance(leaf, np.ndarray | np.generic)
        return jnp.asarray(leaf) if is_numpy and np.issubdtype(leaf.dtype, np.inexact) else leaf

    return jax.tree.map(converted, tree)


def _square_norm(gradient: Any) -> Float[Array, ""]:
    """The sum of squares over all parameters, of matrices row by row first.

    On an accelerator the sum of a whole matrix takes two kernels, and that of a vector one: so it
    is one for each matrix, and two for all that is left, which XLA would take apart again.
    """
    leaves = jax.tree.leaves(gradient)
    rows = [jnp.sum(leaf**2, axis=tuple(range(1, leaf.ndim))) for leaf in leaves]
    joined = jnp.concatenate([jnp.zeros(1), *map(jnp.ravel, rows)])
    return jnp.sum(jax.lax.optimization_barrier(joined))
