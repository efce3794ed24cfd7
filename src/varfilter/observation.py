"""One observation as a filter sees it: missing elements expected at first, drawn in the end."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from varfilter import distributions
from varfilter.distributions import fill, observed
from varfilter.model import AbstractModel, Features, Latent, State, prediction

# Folded into the key of a step: the draws of missing elements, apart from those of the latents,
# of which there are never as many.
MISSING = 0x6D697373


class Observation(eqx.Module):
    """x_t in the three forms that the parts of a step need.

    - `x` is scored: NaN marks an unobserved element and adds nothing.
    - `filled` is fed to networks: unobserved elements hold their prediction to an inference, and
      a draw to the recurrence. An inference is shown x_t in the units of the model's core.
    - `features` is `model.embed(filled)`, and to an inference `model.core.embed(filled)`.
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
    """Fill the missing elements of `x` with their prediction, for an inference to see.

    An `Observation` passes through: it was complete, and embedded ahead of time. What a model
    calls otherwise inside (`AbstractModel.inside`), an inference is shown so.
    """
    core = model.core
    if isinstance(x, Observation):
        if core is model:
            return x
        _, seen = model.inside(state, x.filled)
        return Observation(x.x, seen, core.embed(seen))
    filled = fill(x, prediction(model, state).mean)
    _, seen = model.inside(state, filled)
    return Observation(x, seen, core.embed(seen))


def draw_missing(
    model: AbstractModel,
    state: State,
    z: Latent,
    x: "Float[Array, ' *event'] | Observation",
    key: PRNGKeyArray,
) -> Observation:
    """Draw the missing elements of `x` from p(x_t | x_<t, z_<=t), for the recurrence to take in.

    A missing element is one more latent: a recurrence that was fed its mean would be as sure of
    the next step as if it had been seen. `key` is that of the step of this trajectory. An
    `Observation` passes through: it was complete, and embedded ahead of time.
    """
    if isinstance(x, Observation):
        return x
    filled = model.emission(state, z).complete(x, jax.random.fold_in(key, MISSING))
    return Observation(x, filled, model.embed(filled))


def embed_ahead(model: AbstractModel, xs: Float[Array, "time *event"]) -> Observation:
    """Observe all steps at once, for sequences in which no element is missing."""
    return Observation(xs, xs, jax.vmap(model.embed)(xs))


def fill_first(
    model: AbstractModel, x0: Float[Array, " *event"] | None, key: PRNGKeyArray | None
) -> Float[Array, " *event"] | None:
    """Draw the missing elements of `x0` from the unconditioned model: for `init`.

    Without a key they hold their mean, which is enough to know the shapes of a carry.
    """
    if x0 is None:
        return None
    state = model.init(None)
    if key is None:
        return fill(x0, prediction(model, state).mean)
    key_z, key_x = jax.random.split(key)
    z = distributions.sample(model.prior(state), key_z)
    return model.emission(state, z).complete(x0, key_x)
