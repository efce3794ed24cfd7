"""An ensemble: several models of the same observations, learned apart, one of which is at work."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from varfilter._tree import at_place, stacked
from varfilter.contracts import require_model
from varfilter.model import AbstractModel, Features, Latent, State


class EnsembleState(eqx.Module):
    """Which member is at work, and the state of that one."""

    member: Int[Array, ""]
    state: State


class Ensemble(AbstractModel):
    """p(x_1, ..., x_T) = 1/M Σ_m p_m(x_1, ..., x_T): each sequence is the work of one member.

    Models that were learned from the same data, each from its own start, agree where the data
    speak and differ where they do not, so that the spread between them is what a single one
    cannot know of itself. `EnsembleFilter` carries the belief of each.

    `members` is one model whose arrays have a leading axis, an entry for each. `init`, which knows
    of no randomness, begins with the first of them; a filter's `draw` with any.
    """

    members: AbstractModel
    num_members: int = eqx.field(static=True)
    input_size: int = eqx.field(static=True)

    def __init__(self, models: Sequence[AbstractModel]):
        for model in models:
            require_model(model)
        self.members = stacked(models)
        self.num_members = len(models)
        self.input_size = models[0].input_size

    def member(self, place: int | Int[Array, ""]) -> AbstractModel:
        """The model of one member."""
        return at_place(self.members, place)

    def init(self, x0: Float[Array, " *event"] | None = None) -> EnsembleState:
        """Begin with the first member."""
        return EnsembleState(jnp.zeros((), jnp.int32), self.member(0).init(x0))

    def drive(self, state: EnsembleState, u: Float[Array, " inputs"]) -> EnsembleState:
        """Fold u_t into the state of the member at work."""
        return EnsembleState(state.member, self.member(state.member).drive(state.state, u))

    def embed(self, x: Float[Array, " *event"]) -> Features:
        """What each member needs of x_t, with a leading axis: which one is at work is not known."""
        return eqx.filter_vmap(lambda model: model.embed(x))(self.members)

    def prior(self, state: EnsembleState) -> Any:
        """p_m(z_t | x_<t, z_<t) of the member at work."""
        return self.member(state.member).prior(state.state)

    def emission(self, state: EnsembleState, z: Latent) -> Any:
        """p_m(x_t | x_<t, z_<=t) of the member at work."""
        return self.member(state.member).emission(state.state, z)

    def advance(self, state: EnsembleState, z: Latent, features: Features) -> EnsembleState:
        """Fold (x_t, z_t) into the past of the member at work."""
        own = jax.tree.map(lambda leaf: leaf[state.member], features)
        model = self.member(state.member)
        return EnsembleState(state.member, model.advance(state.state, z, own))
