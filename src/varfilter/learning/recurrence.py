"""Back-propagation through the recurrence alone, with only the adjoint in a scan.

The filter has already computed every state, so no tape is needed: the scan carries dF/dstate
backwards, and the parameters' gradient is then one product over all steps and sequences.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from varfilter._ahead import scan_ahead
from varfilter._tree import select
from varfilter.model import AbstractModel, Latent, State, driven


class Transition(eqx.Module):
    """One step of the recurrence as it was: state_{t+1} = advance(drive(state, u), z, embed(told)).

    `told` is x_t with its missing elements drawn. Where `exists` is False the step is padding,
    and the state stayed as it was.
    """

    state: State
    u: Float[Array, "..."] | None
    z: Latent
    told: Float[Array, "..."]  # one step, or with the axes (batch, time)
    exists: Bool[Array, "..."]


def recurrence_gradient(
    model: AbstractModel,
    x0: Float[Array, "batch *event"] | None,
    transitions: Transition,
    gradients: Any,
) -> Any:
    """Compute dL/dθ through the states, where dL/dstate_t = `gradients`, (batch, time, ...).

    With λ_t = dL/dstate_t + (d state_{t+1} / d state_t)^T λ_{t+1}, it is the sum over t of
    (d state_t / dθ)^T λ_t, each state_t seen as a function of its own transition's θ. Nothing of
    `x0` is missing any more.
    """
    initial, adjoints = jax.vmap(lambda *parts: _adjoints(model, *parts))(transitions, gradients)

    def inner_products(model: AbstractModel) -> Float[Array, ""]:
        def first(x0: Array | None, adjoint: Any) -> Float[Array, ""]:
            return _inner(adjoint, model.init(x0))

        def later(transition: Transition, adjoint: Any) -> Float[Array, ""]:
            value = _inner(adjoint, _advance(model, transition))
            return jnp.where(transition.exists, value, 0.0)

        return jnp.sum(jax.vmap(first)(x0, initial)) + jnp.sum(
            jax.vmap(jax.vmap(later))(transitions, adjoints)
        )

    return eqx.filter_grad(inner_products)(model)


def _adjoints(model: AbstractModel, transitions: Transition, gradients: Any) -> tuple[Any, Any]:
    """Compute λ of the first state, and λ of the state after each step, of one sequence."""
    features = jax.vmap(model.embed)(transitions.told)

    def step(after: Any, inputs: Any) -> tuple[Any, Any]:
        transition, features, gradient = inputs
        moving, fixed = eqx.partition(transition.state, eqx.is_inexact_array)

        def advance(moving: Any) -> Any:
            state = driven(model, eqx.combine(moving, fixed), transition.u)
            return _moving(model.advance(state, transition.z, features))

        (pulled,) = jax.vjp(advance, moving)[1](after)
        carried = select(transition.exists, pulled, after)
        return jax.tree.map(jnp.add, gradient, carried), after

    none = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), gradients)
    return scan_ahead(
        step, none, (transitions, features, gradients), reverse=True, has_gradient=False
    )


def _advance(model: AbstractModel, transition: Transition) -> State:
    state = driven(model, transition.state, transition.u)
    return model.advance(state, transition.z, model.embed(transition.told))


def _inner(adjoint: Any, state: State) -> Float[Array, ""]:
    products = jax.tree.map(lambda a, b: jnp.sum(a * b), adjoint, _moving(state))
    return sum(jax.tree.leaves(products), start=jnp.zeros(()))


def _moving(state: State) -> Any:
    return eqx.filter(state, eqx.is_inexact_array)
