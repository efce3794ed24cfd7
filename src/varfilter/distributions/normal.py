"""The diagonal Gaussian: the posterior and prior family of the paper."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.distributions.base import (
    AbstractDistribution,
    fill,
    observed,
    parameter,
    require_shape,
)

LOG_2PI = float(np.log(2 * np.pi))


class Normal(AbstractDistribution):
    """N(x; mean, exp(log_var)), independent over elements.

    `log_var` is the log-variance l of the paper, so std = exp(l / 2).
    """

    mean: Float[Array, " *event"] = eqx.field(converter=parameter)
    log_var: Float[Array, " *event"] = eqx.field(converter=parameter)

    def __check_init__(self):
        fix = "Spread one number over all elements with `jnp.full_like(mean, ...)`."
        require_shape("log_var", self.log_var, self.mean.shape, fix)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""
        return self.mean.shape

    @property
    def variance(self) -> Float[Array, " *event"]:
        """The variance, exp(log_var)."""
        return jnp.exp(self.log_var)

    @property
    def std(self) -> Float[Array, " *event"]:
        """The standard deviation, exp(log_var / 2)."""
        return jnp.exp(0.5 * self.log_var)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " *event"]:
        """Draw mean + std * eps (reparameterised)."""
        return self.mean + self.std * jax.random.normal(key, self.shape, self.mean.dtype)

    def log_prob(self, x: Float[Array, " *event"]) -> Float[Array, ""]:
        """log p(x) = -1/2 sum over observed elements of (log 2 pi + l + (x - mean)^2 exp(-l))."""
        square = (fill(x, self.mean) - self.mean) ** 2
        terms = LOG_2PI + self.log_var + square * jnp.exp(-self.log_var)
        return -0.5 * jnp.sum(jnp.where(observed(x), terms, 0.0))

    def stabilised(self) -> "Normal":
        """Clip the log-variance to [-15, 5], as the original code does."""
        return Normal(self.mean, jnp.clip(self.log_var, -15.0, 5.0))
