"""A model of frames that goes on from its own, and is not told how these differ from each other."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from varfilter.contracts import require_model
from varfilter.model import AbstractModel, Features, Latent, State
from varfilter.models.ensemble import Ensemble
from varfilter.models.svg import SVG


class Settled(AbstractModel):
    """An `SVG` that predicts from the last frame, told that the last change was none.

    Of frames that were seen, the change from one to the next says where things are moving. Of
    frames that it predicted itself, it says what was predicted: told of that, the model makes the
    same change again, a little larger, and after some frames the picture is lost. What moves is
    then known from the frames that were seen, by the states of the LSTMs, alone
    (`benchmarks/NOTES.md`).
    """

    model: AbstractModel
    input_size: int = eqx.field(static=True)

    def __init__(self, model: AbstractModel):
        require_model(model)
        if not _is_told_changes(model):
            raise TypeError(
                "`model` must be an `SVG` whose head is told the last frame, such as"
                f" `NormalChange`; got `{type(model.core).__name__}`. Use it as it is."
            )
        self.model = model
        self.input_size = model.input_size

    @property
    def core(self) -> AbstractModel:
        """The model inside, or what that has inside."""
        return self.model.core

    def init(self, x0: Float[Array, "channels height width"] | None = None) -> State:
        """Begin as the model does."""
        return self.model.init(x0)

    def embed(self, x: Float[Array, "channels height width"]) -> Features:
        """What the model needs of x_t."""
        return self.model.embed(x)

    def prior(self, state: State) -> Any:
        """The prior of the model, as it is."""
        return self.model.prior(state)

    def emission(self, state: State, z: Latent) -> Any:
        """The emission of the model, as it is."""
        return self.model.emission(state, z)

    def advance(self, state: State, z: Latent, features: Features) -> State:
        """Fold (x_t, z_t) into the past as the model does, but for how x_t differs from x_{t-1}."""
        after = self.model.advance(state, z, features)
        return eqx.tree_at(lambda s: s.last.change, after, jnp.zeros_like(after.last.change))


def settled(model: AbstractModel) -> AbstractModel:
    """The model, or each member of an ensemble, `Settled`; one that is told no changes as it is."""
    if isinstance(model, Ensemble):
        members = eqx.filter_vmap(settled)(model.members)
        return eqx.tree_at(lambda ensemble: ensemble.members, model, members)
    return Settled(model) if _is_told_changes(model) else model


def _is_told_changes(model: AbstractModel) -> bool:
    core = model.core
    return isinstance(core, SVG) and core.from_last_frame
