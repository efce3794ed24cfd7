"""The world: five short functions that define any dynamical latent-variable model."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from varfilter import distributions

State = PyTree
Features = PyTree
Latent = PyTree


class AbstractModel(eqx.Module):
    """p(x_t, z_t | x_<t, z_<t) = emission(state, z)(x) * prior(state)(z)   (paper, eq. 1).

    `state` is all that the past sends forward. Write the functions for one sequence and one
    step: time, batch, samples and particles are added by the library. `embed`, `prior`,
    `emission` and `advance` must be deterministic; randomness is the library's.
    """

    @abstractmethod
    def init(self, x0: Float[Array, " *event"] | None = None) -> State:
        """The state before the first step; `x0` is conditioned on, never scored."""

    @abstractmethod
    def embed(self, x: Float[Array, " *event"]) -> Features:
        """All that the recurrence needs of x_t. It sees x_t alone, so it runs for all t at once."""

    @abstractmethod
    def prior(self, state: State) -> Any:
        """p(z_t | x_<t, z_<t), the dynamics: a distribution or a pytree of them."""

    @abstractmethod
    def emission(self, state: State, z: Latent) -> Any:
        """p(x_t | x_<t, z_<=t), the observation model: a distribution over arrays like x_t."""

    @abstractmethod
    def advance(self, state: State, z: Latent, features: Features) -> State:
        """Fold (x_t, z_t) into the past; the result has the structure of `init`'s."""


def prediction(model: AbstractModel, state: State) -> Any:
    """p(x_t | x_<t, z_<t) with z_t put to its prior mean: a plug-in one-step prediction."""
    return model.emission(state, distributions.mean(model.prior(state)))
