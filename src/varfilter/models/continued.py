"""Steps of one long wave: a model of them in which x_t goes on from the end of x_{t-1}."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from varfilter import distributions
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

    The model inside is told the `companded` x_t, in its recurrence and in its inference: the same
    network would otherwise see a hundredfold between a whisper and a shout, and what is made up,
    being fed back, would lead it to where nothing was learned. What is scored is x_t as it is.
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
        return self.model.inside(state.inner, companded(x))

    def init(self, x0: Float[Array, " size"] | None = None) -> ContinuedState:
        """Begin as the model inside does; `x0` is a step of which z is the mean of its prior."""
        state = ContinuedState(self.model.init(None), jnp.zeros((self.order,)))
        if x0 is None:
            return state
        return self.advance(state, distributions.mean(self.prior(state)), self.embed(x0))

    def drive(self, state: ContinuedState, u: Float[Array, " inputs"]) -> ContinuedState:
        """Fold u_t into the past as the model inside does."""
        return ContinuedState(self.model.drive(state.inner, u), state.last)

    def embed(self, x: Float[Array, " size"]) -> ContinuedFeatures:
        """What the model inside needs of x_t, and its end."""
        return ContinuedFeatures(self.model.embed(companded(x)), x[-self.order :])

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


def companded(x: Float[Array, " size"]) -> Float[Array, " size"]:
    """0.3 arsinh(x / 0.02): in proportion while x is quiet, and its logarithm where it is loud.

    x is standardised, so that sound lies between 0.02 and 10. What telephones do to the samples of
    speech (ITU-T G.711): a step that is 40 dB louder is told as three times as much, not a hundred.
    """
    return 0.3 * jnp.arcsinh(x / 0.02)
