"""What is changed of each batch before it is learned from: parts are hidden, songs change keys."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from varfilter._arguments import require_fraction, require_positive
from varfilter.data.batches import Batch


class Thinning(eqx.Module):
    """How much is hidden: a share of the elements, and gaps of 1 to `longest_gap` whole steps.

    A model that is always shown all of the past learns to predict one step ahead, too surely
    where the rows are few. Behind a gap it is scored on several, with its own predictions for a
    past, as when it forecasts. Elements that are `together`, as the levels of one column are, are
    hidden together.
    """

    elements: float = 0.1
    gaps: float = 0.04
    longest_gap: int = eqx.field(default=5, static=True)
    # Of each element of a vector, the first of those that are hidden with it; None: each by itself.
    together: tuple[int, ...] | None = eqx.field(default=None, static=True)

    def __check_init__(self):
        require_fraction("elements", self.elements, "It is the share of elements to hide.")
        require_fraction("gaps", self.gaps, "It is the chance that a gap begins at a step.")
        require_positive("longest_gap", self.longest_gap)

    def __call__(self, batch: Batch, key: PRNGKeyArray) -> Batch:
        """Put NaN where something of the batch is hidden; `gaps` is the chance that one begins."""
        key_elements, key_steps = jax.random.split(key)
        hidden = jax.random.uniform(key_elements, batch.xs.shape) < self.elements
        if self.together is not None:
            hidden = hidden[..., np.array(self.together)]
        steps = self._in_gaps(batch.xs.shape[:2], key_steps)
        steps = steps.reshape(steps.shape + (1,) * (batch.xs.ndim - 2))
        return batch._replace(xs=jnp.where(hidden | steps, jnp.nan, batch.xs))

    def _in_gaps(self, shape: tuple[int, ...], key: PRNGKeyArray) -> Bool[Array, "batch time"]:
        key_begin, key_length = jax.random.split(key)
        begins = jax.random.uniform(key_begin, shape) < self.gaps
        length = jax.random.randint(key_length, shape, 1, self.longest_gap + 1)
        step = jnp.arange(shape[1])[None]
        # The first step after all gaps that have begun so far.
        end = jax.lax.cummax(jnp.where(begins, step + length, 0), axis=1)
        return step < end


class Transposition(eqx.Module):
    """Moves each window of piano rolls by a random number of columns, -`semitones` to `semitones`.

    A window is moved less far, or not at all, where a note of it would leave the keyboard.
    """

    semitones: int | Int[Array, ""]

    def __check_init__(self):
        if isinstance(self.semitones, int) and self.semitones != 0:
            require_positive("semitones", self.semitones)

    def __call__(self, batch: Batch, key: PRNGKeyArray) -> Batch:
        """The batch with each of its windows in a random key."""
        most = jnp.asarray(self.semitones, jnp.int32)
        shift = jax.random.randint(key, batch.xs.shape[:1], -most, most + 1)
        num_keys = batch.xs.shape[-1]
        # Silence has its first note nowhere: argmax says 0 from both ends, and it stays.
        is_played = jnp.any(batch.xs > 0.5, axis=1)
        below = jnp.argmax(is_played, axis=-1).astype(jnp.int32)
        above = jnp.argmax(is_played[:, ::-1], axis=-1).astype(jnp.int32)
        shift = jnp.clip(shift, -below, above)
        # What comes in at one end went out at the other, and is silent.
        columns = (jnp.arange(num_keys, dtype=jnp.int32)[None] - shift[:, None]) % num_keys
        return batch._replace(xs=jnp.take_along_axis(batch.xs, columns[:, None], axis=2))
