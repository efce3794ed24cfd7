"""Transposition: the same music in other keys, for models that are to learn it in all of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from varfilter._arguments import require_positive
from varfilter.data.batches import Batch


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
