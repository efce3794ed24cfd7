"""A model that is less sure of the next latent than it has learned to be."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from varfilter import distributions
from varfilter.contracts import require_model
from varfilter.model import AbstractModel, Features, Latent, State
from varfilter.models.ensemble import Ensemble


class Widened(AbstractModel):
    """The model with a prior whose standard deviations are `factor` times as large.

    Learned by the free energy of one sampled path, a model takes too much of what it does not know
    for noise of the observation, which is forgotten, and too little for noise of the latent, which
    is carried on: it is right one step ahead, and too sure further on. Filters of many trajectories
    know the same fault, and the same cure (covariance inflation; Anderson and Anderson 1999).
    """

    model: AbstractModel
    factor: float = eqx.field(static=True)
    input_size: int = eqx.field(static=True)

    def __init__(self, model: AbstractModel, factor: float):
        require_model(model)
        if not isinstance(factor, int | float) or not 0.0 < factor < float("inf"):
            raise ValueError(
                f"`factor` must be a positive number, 1 for the model as it is; got {factor!r}."
            )
        self.model = model
        self.factor = float(factor)
        self.input_size = model.input_size

    @property
    def core(self) -> AbstractModel:
        """The model inside, or what that has inside."""
        return self.model.core

    def inside(self, state: State, x: Float[Array, " *event"]) -> tuple[State, Array]:
        """What the core knows of a step."""
        return self.model.inside(state, x)

    def init(self, x0: Float[Array, " *event"] | None = None) -> State:
        """Begin as the model does."""
        return self.model.init(x0)

    def drive(self, state: State, u: Float[Array, " inputs"]) -> State:
        """Fold u_t into the past as the model does."""
        return self.model.drive(state, u)

    def embed(self, x: Float[Array, " *event"]) -> Features:
        """What the model needs of x_t."""
        return self.model.embed(x)

    def prior(self, state: State) -> Any:
        """The prior of the model, widened."""
        return jax.tree.map(
            lambda each: each.widened(self.factor),
            self.model.prior(state),
            is_leaf=distributions.is_distribution,
        )

    def emission(self, state: State, z: Latent) -> Any:
        """The emission of the model, as it is."""
        return self.model.emission(state, z)

    def advance(self, state: State, z: Latent, features: Features) -> State:
        """Fold (x_t, z_t) into the past as the model does."""
        return self.model.advance(state, z, features)


def widened(model: AbstractModel, factor: float) -> AbstractModel:
    """The model, or each member of an ensemble, `Widened`; as it is if the factor is 1."""
    if factor == 1.0:
        return model
    if isinstance(model, Ensemble):
        members = eqx.filter_vmap(lambda member: Widened(member, factor))(model.members)
        return eqx.tree_at(lambda ensemble: ensemble.members, model, members)
    return Widened(model, factor)
