"""Independent binary elements: the notes of a piano roll."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.distributions.base import AbstractDistribution, fill, observed, parameter


class Bernoulli(AbstractDistribution):
    """P(x = 1) = sigmoid(logits), independent over elements."""

    is_reparameterisable: ClassVar[bool] = False
    logits: Float[Array, " *event"] = eqx.field(converter=parameter)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""
        return self.logits.shape

    @property
    def mean(self) -> Float[Array, " *event"]:
        """The probability P(x = 1)."""
        return jax.nn.sigmoid(self.logits)

    @property
    def variance(self) -> Float[Array, " *event"]:
        """The variance p (1 - p)."""
        return jax.nn.sigmoid(self.logits) * jax.nn.sigmoid(-self.logits)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " *event"]:
        """Draw 0 or 1, as floats: what `log_prob` and the models take."""
        draw = jax.random.bernoulli(key, self.mean, self.shape)
        return draw.astype(self.logits.dtype)

    def log_prob(self, x: Float[Array, " *event"]) -> Float[Array, ""]:
        """log p(x), the sum over observed elements of x * logit - softplus(logit)."""
        terms = fill(x, jnp.zeros_like(self.logits)) * self.logits - jax.nn.softplus(self.logits)
        return jnp.sum(jnp.where(observed(x), terms, 0.0))

    def tempered(self, temperature: float) -> "Bernoulli":
        """P(x = 1) = sigmoid(logits / temperature)."""
        return Bernoulli(self.logits / temperature)

    def error(self, x: Float[Array, " *event"]) -> Float[Array, " *event"]:
        """The error (x - p) / (p (1 - p)), which stays finite for certain predictions.

        For x = 1 it is 1 / p = 1 + exp(-logit); for x = 0 it is -(1 + exp(logit)).
        """
        logits = jnp.clip(self.logits, -10.0, 10.0)
        there = fill(x, jnp.zeros_like(logits))
        value = there * (1.0 + jnp.exp(-logits)) - (1.0 - there) * (1.0 + jnp.exp(logits))
        return jnp.where(observed(x), value, 0.0)
