"""Training windows with some of what was observed hidden, as the gaps of a table hide it."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from varfilter._arguments import require_fraction
from varfilter.data.batches import Batch

LONGEST_GAP = 5


class Thinning(eqx.Module):
    """How much is hidden: a share of the elements, and gaps of 1 to 5 whole steps.

    A model that is always shown all of the past learns to predict one step ahead, too surely
    where the rows are few. Behind a gap it is scored on several, with its own predictions for a
    past, as when it forecasts.
    """

    elements: float = eqx.field(static=True, default=0.1)
    gaps: float = eqx.field(static=True, default=0.04)

    def __check_init__(self):
        require_fraction("elements", self.elements, "It is the share of elements to hide.")
        require_fraction("gaps", self.gaps, "It is the chance that a gap begins at a step.")

    def __call__(self, batch: Batch, key: PRNGKeyArray) -> Batch:
        """The batch with NaN where something is hidden; `gaps` is the chance that one begins."""
        key_elements, key_steps = jax.random.split(key)
        hidden = jax.random.uniform(key_elements, batch.xs.shape) < self.elements
        steps = self._in_gaps(batch.xs.shape[:2], key_steps)
        steps = steps.reshape(steps.shape + (1,) * (batch.xs.ndim - 2))
        return batch._replace(xs=jnp.where(hidden | steps, jnp.nan, batch.xs))

    def _in_gaps(self, shape: tuple[int, ...], key: PRNGKeyArray) -> Bool[Array, "batch time"]:
        key_begin, key_length = jax.random.split(key)
        begins = jax.random.uniform(key_begin, shape) < self.gaps
        length = jax.random.randint(key_length, shape, 1, LONGEST_GAP + 1)
        hidden = begins
        for lag in range(1, min(LONGEST_GAP, shape[1])):
            reaches = (begins & (length > lag))[:, :-lag]
            hidden = hidden | jnp.pad(reaches, ((0, 0), (lag, 0)))
        return hidden
