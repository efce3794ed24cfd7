"""One of several levels, as a vector with a 1 in the place of that level: states, modes, kinds."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from varfilter.distributions.base import AbstractDistribution, observed, parameter

# Errors are weighed as if no probability were nearer to 0 or 1: certain predictions stay finite.
CLOSEST = 4.5e-5


class Categorical(AbstractDistribution):
    """P(x = the k-th unit vector) = softmax(logits)_k, over as many elements as there are levels.

    An element that is unobserved (NaN) may be 1 or 0: `log_prob` is of all levels that the
    observed ones leave, which is how probable what was observed is. So the elements of a vector
    may be missing one by one, or all together.
    """

    is_reparameterisable: ClassVar[bool] = False
    logits: Float[Array, " *event"] = eqx.field(converter=parameter)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""
        return self.logits.shape

    @property
    def mean(self) -> Float[Array, " *event"]:
        """The probability of each level."""
        return jax.nn.softmax(self.logits)

    @property
    def variance(self) -> Float[Array, " *event"]:
        """The variance p (1 - p) of each element."""
        return self.mean * (1.0 - self.mean)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " *event"]:
        """Draw a level, as a vector of floats with a 1 in its place."""
        return self._drawn(self.logits, key)

    def log_prob(self, x: Float[Array, " levels"]) -> Float[Array, ""]:
        """log P of the levels that the observed elements leave; 0 if none is observed."""
        possible = jnp.where(self._possible(x), self.logits, -jnp.inf)
        return jax.nn.logsumexp(possible) - jax.nn.logsumexp(self.logits)

    def complete(self, x: Float[Array, " levels"], key: PRNGKeyArray) -> Float[Array, " levels"]:
        """Draw one of the levels that the observed elements leave."""
        return self._drawn(jnp.where(self._possible(x), self.logits, -jnp.inf), key)

    def tempered(self, temperature: float) -> "Categorical":
        """P of the k-th level = softmax(logits / temperature)_k."""
        return Categorical(self.logits / temperature)

    def error(self, x: Float[Array, " *event"]) -> Float[Array, " *event"]:
        """The error (x - p) / (p (1 - p)) of each element, finite for certain predictions too."""
        p = jnp.clip(self.mean, CLOSEST, 1.0 - CLOSEST)
        value = jnp.where(x > 0.5, 1.0 / p, -1.0 / (1.0 - p))
        return jnp.where(observed(x), value, 0.0)

    def _possible(self, x: Float[Array, " levels"]) -> Bool[Array, " levels"]:
        """Which levels the observed elements leave; all, where they would leave none."""
        is_one = observed(x) & (x > 0.5)
        possible = jnp.where(jnp.any(is_one), is_one, ~observed(x))
        return possible | ~jnp.any(possible)

    def _drawn(self, logits: Float[Array, " *event"], key: PRNGKeyArray) -> Array:
        index = jax.random.categorical(key, logits)
        return jax.nn.one_hot(index, self.shape[-1], dtype=self.logits.dtype)
