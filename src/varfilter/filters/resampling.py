"""How the particles of the next step choose their ancestors, and what a gradient sees of it."""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


class AbstractResampling(eqx.Module):
    """A way to draw as many ancestors as there are particles, particle i N w_i times on average.

    `holds_draws` says whether a gradient in the model's parameters takes the draws z_t as they
    are, or moves them with the parameters (reparameterised).
    """

    holds_draws: ClassVar[bool] = False

    @abstractmethod
    def __call__(
        self, log_weights: Float[Array, " num_particles"], key: PRNGKeyArray
    ) -> tuple[Int[Array, " num_particles"], Float[Array, " num_particles"]]:
        """The index of each new particle's ancestor, and the new log-weights (sum one)."""


class Systematic(AbstractResampling):
    """All ancestors by one uniform number; a gradient sees nothing of the choice.

    The gradient that FIVO is usually learned by: steady where proposals are good, and biased,
    for parameters are never credited with the particles that their weights let live. The bias
    does not vanish as the number of particles grows.
    """

    def __call__(
        self, log_weights: Float[Array, " num_particles"], key: PRNGKeyArray
    ) -> tuple[Int[Array, " num_particles"], Float[Array, " num_particles"]]:
        """Draw ancestors; all weights are equal after it."""
        return systematic(log_weights, key), equal_weights(log_weights.shape[0])


class ScoredSystematic(AbstractResampling):
    """Resampling as `Systematic` does it, with the term that it leaves out of a gradient.

    The new weight of a child of particle a is w_a / (N stop(w_a)), stop being what gradients do
    not pass: 1 / N in value, but its gradient is that of log w_a (stop-gradient resampling,
    Ścibior and Wood 2021). The gradient of the summed bound then goes to the score,
    d log p(x_1, ..., x_T) / dθ, as the number of particles grows. Its variance is higher, and
    grows with the length of a sequence.

    Draws are held fixed, so that this is Fisher's identity: the mean of d log p(x, z) / dθ over
    the trajectories that are alive at the end. Moving them with θ would go to the same limit; of
    the bootstrap filter, with a variance that is far higher. The parameters φ of a proposal learn
    from the bound of their own step alone, as AVF does: the term that is added here tells them
    nothing, for with enough particles the bound is the same under every proposal.
    """

    holds_draws: ClassVar[bool] = True

    def __call__(
        self, log_weights: Float[Array, " num_particles"], key: PRNGKeyArray
    ) -> tuple[Int[Array, " num_particles"], Float[Array, " num_particles"]]:
        """Draw ancestors; all weights are equal after it, and remember whose they were."""
        ancestors = systematic(log_weights, key)
        chosen = log_weights[ancestors]
        equal = equal_weights(log_weights.shape[0])
        return ancestors, equal + (chosen - jax.lax.stop_gradient(chosen))


def systematic(
    log_weights: Float[Array, " num_particles"], key: PRNGKeyArray
) -> Int[Array, " num_particles"]:
    """Draw ancestors systematically, all by one uniform number, which keeps their variance low.

    Particle i appears floor or ceil of N w_i times, N w_i on average.
    """
    num_particles = log_weights.shape[0]
    weights = jax.nn.softmax(log_weights)
    offset = jax.random.uniform(key, (), weights.dtype)
    positions = (jnp.arange(num_particles, dtype=weights.dtype) + offset) / num_particles
    cumulative = jnp.cumsum(weights)
    # The last sum may fall short of 1 by rounding; no position may fall beyond it.
    indices = jnp.searchsorted(cumulative, positions * cumulative[-1])
    return jnp.clip(indices, 0, num_particles - 1)


def equal_weights(num_particles: int) -> Float[Array, " num_particles"]:
    """The logarithm of 1 / N, N times."""
    # With a dtype: a weakly typed carry would make a stream compile its step twice.
    log_weight = -jnp.log(jnp.asarray(num_particles, jnp.result_type(float)))
    return jnp.full((num_particles,), log_weight)
