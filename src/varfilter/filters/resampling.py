"""Systematic resampling: low-variance ancestors from one uniform number."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


def systematic(
    log_weights: Float[Array, " num_particles"], key: PRNGKeyArray
) -> Int[Array, " num_particles"]:
    """Ancestor indices: particle i appears floor or ceil of N w_i times, N w_i on average."""
    num_particles = log_weights.shape[0]
    weights = jax.nn.softmax(log_weights)
    offset = jax.random.uniform(key, (), weights.dtype)
    positions = (jnp.arange(num_particles, dtype=weights.dtype) + offset) / num_particles
    cumulative = jnp.cumsum(weights)
    # The last sum may fall short of 1 by rounding; no position may fall beyond it.
    indices = jnp.searchsorted(cumulative, positions * cumulative[-1])
    return jnp.clip(indices, 0, num_particles - 1)
