"""Steps of one long wave: a model of them in which x_t goes on from the end of x_{t-1}."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from varfilter.contracts import first_step, require_model
from varfilter.distributions import Autoregressive
from varfilter.model import AbstractModel, Features, Latent, State


class ContinuedState(eqx.Module):
    """The state of the model inside, and the last elements before x_t, in their order."""

    inner: State
    last: Float[Array, " order"]


class ContinuedFeatures(eqx.Module):
    """The features of the model inside, and the last elements of x_t."""

    inner: Features
    last: Float[Array, " _end"]


class Continued(AbstractModel):
    """x_{t,i} = sum_k a_k x_{t,i-k} + e_{t,i}, where x_{t,0}, x_{t,-1}, ... are the end of x_{t-1}.

    - `model`: any model of vectors whose emission is `Autoregressive`, such as a `VRNN` with an
      `AutoregressiveHead`: it decodes the filter a and the innovations e of each step.

    A step is a piece of sound. Without its past, a filter would begin each in silence, with a click
    at every edge. Before the first step are zeros, unless `x0` is given.
    """

    model: AbstractModel
    order: int = eqx.field(static=True)
    input_size: int = eqx.field(static=True)

    def __init__(self, model: AbstractModel):
        require_model(model)
        emission = first_step(model).emission
        if not isinstance(emission, Autoregressive):
            raise TypeError(
                "`model` must have an `Autoregressive` emission, which can go on from the elements"
                f" before it; that of `{type(model).__name__}` is `{type(emission).__name__}`."
                " Build it with `head=AutoregressiveHead`."
            )
        self.model = model
        self.order = emission.before.shape[0]
        self.input_size = model.input_size

    @property
    def core(self) -> AbstractModel:
        """The model inside, or what that has inside."""
        return self.model.core

    def inside(self, state: ContinuedState, x: Float[Array, " size"]) -> tuple[State, Array]:
        """What the core knows of a step."""
        return self.model.inside(state.inner, x)

    def init(self, x0: Float[Array, " size"] | None = None) -> ContinuedState:
        """Begin as the model inside does, after the end of `x0`."""
        nothing = jnp.zeros((self.order,))
        last = nothing if x0 is None else self._after(nothing, x0)
        return ContinuedState(self.model.init(x0), last)

    def drive(self, state: ContinuedState, u: Float[Array, " inputs"]) -> ContinuedState:
        """Fold u_t into the past as the model inside does."""
        return ContinuedState(self.model.drive(state.inner, u), state.last)

    def embed(self, x: Float[Array, " size"]) -> ContinuedFeatures:
        """What the model inside needs of x_t, and its end."""
        return ContinuedFeatures(self.model.embed(x), x[-self.order :])

    def prior(self, state: ContinuedState) -> Any:
        """The prior of the model inside."""
        return self.model.prior(state.inner)

    def emission(self, state: ContinuedState, z: Latent) -> Autoregressive:
        """The emission of the model inside, after the end of x_{t-1}."""
        return self.model.emission(state.inner, z).after(state.last)

    def advance(
        self, state: ContinuedState, z: Latent, features: ContinuedFeatures
    ) -> ContinuedState:
        """Advance the model inside, and keep the end of x_t."""
        inner = self.model.advance(state.inner, z, features.inner)
        return ContinuedState(inner, self._after(state.last, features.last))

    def _after(self, last: Float[Array, " order"], x: Float[Array, " _end"]) -> Array:
        """The last elements once x is added to them; of steps shorter than the filter, several."""
        return jnp.concatenate([last, x])[-self.order :]
