"""One observation as a filter sees it, with its missing elements predicted."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from varfilter.distributions import fill, observed
from varfilter.model import AbstractModel, Features, State, prediction


class Observation(eqx.Module):
    """x_t in the three forms that the parts of a step need.

    - `x` is scored: NaN marks an unobserved element and adds nothing.
    - `filled` is fed to networks: unobserved elements hold their prediction.
    - `features` is `model.embed(filled)`.
    """

    x: Float[Array, " *event"]
    filled: Float[Array, " *event"]
    features: Features

    @property
    def is_seen(self) -> Bool[Array, ""]:
        """Whether anything at all was observed; otherwise the step is a prediction (q = p)."""
        return jnp.any(observed(self.x))


def observe(
    model: AbstractModel, state: State, x: "Float[Array, ' *event'] | Observation"
) -> Observation:
    """Fill the missing elements of `x` with their prediction, then embed.

    An `Observation` passes through: it was complete, and embedded ahead of time.
    """
    if isinstance(x, Observation):
        return x
    filled = fill(x, prediction(model, state).mean)
    return Observation(x, filled, model.embed(filled))


def embed_ahead(model: AbstractModel, xs: Float[Array, "time *event"]) -> Observation:
    """Observe all steps at once, for sequences in which no element is missing."""
    return Observation(xs, xs, jax.vmap(model.embed)(xs))


def fill_first(
    model: AbstractModel, x0: Float[Array, " *event"] | None
) -> Float[Array, " *event"] | None:
    """Fill the missing elements of `x0` as the unconditioned model predicts them: for `init`."""
    if x0 is None:
        return None
    return fill(x0, prediction(model, model.init(None)).mean)
