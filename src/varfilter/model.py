"""The world: five short functions that define any dynamical latent-variable model, and a sixth."""

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

    A model with known inputs (controls, covariates, the calendar, the time since the last step)
    has `input_size` numbers u_t a step, and a sixth function, `drive`. Inputs are conditioned on:
    never scored, never learned, and never missing.
    """

    input_size = 0

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

    def drive(self, state: State, u: Float[Array, " inputs"]) -> State:
        """Fold the known input u_t into the past, before z_t is predicted: the state as it is."""
        return state

    @property
    def core(self) -> "AbstractModel":
        """The model that the networks of an inference are made for: this one.

        A wrapper that changes what x_t is called, such as `Differenced`, names the model inside.
        """
        return self

    def inside(self, state: State, x: Float[Array, " *event"]) -> tuple[State, Array]:
        """What the core knows of a step: its own state, and x_t in its own units; as they are."""
        return state, x


def driven(model: AbstractModel, state: State, u: Float[Array, " inputs"] | None) -> State:
    """Fold u_t into the state where the model has inputs; None is the input of those without."""
    return state if u is None else model.drive(state, u)


def prediction(model: AbstractModel, state: State) -> Any:
    """p(x_t | x_<t, z_<t) with z_t put to its prior mean: a plug-in one-step prediction."""
    return model.emission(state, distributions.mean(model.prior(state)))
