"""The diagonal Gaussian: the posterior and prior family of the paper."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from varfilter.distributions.base import (
    AbstractDistribution,
    Move,
    fill,
    observed,
    parameter,
    require_shape,
)

LOG_2PI = float(np.log(2 * np.pi))
FAR = 1e6  # standard deviations: e to the minus 5e11, where nothing that happens lies


class Normal(AbstractDistribution):
    """N(x; mean, exp(log_var)), independent over elements.

    `log_var` is the log-variance l of the paper, so std = exp(l / 2).
    """

    is_symmetric: ClassVar[bool] = True
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
        terms = _twice_nats(fill(x, self.mean), self.mean, self.log_var)
        return -0.5 * jnp.sum(jnp.where(observed(x), terms, 0.0))

    def moved(self, move: Move) -> "Normal":
        """N(offset + scale mean, scale^2 variance + spread^2)."""
        return Normal(move.mean(self.mean), move.log_var(self.log_var))

    def widened(self, factor: float) -> "Normal":
        """N(mean, factor^2 variance)."""
        return Normal(self.mean, self.log_var + 2.0 * math.log(factor))

    def stabilised(self) -> "Normal":
        """Clip the log-variance to [-15, 5], as the original code does."""
        return Normal(self.mean, jnp.clip(self.log_var, -15.0, 5.0))


def log_density(
    x: Float[Array, "..."], mean: Float[Array, "..."], log_var: Float[Array, "..."]
) -> Float[Array, "..."]:
    """The log-density of each element, as `Normal.log_prob` adds them up."""
    return -0.5 * _twice_nats(x, mean, log_var)


def _twice_nats(
    x: Float[Array, "..."], mean: Float[Array, "..."], log_var: Float[Array, "..."]
) -> Float[Array, "..."]:
    """log 2 pi + l + (x - mean)^2 exp(-l), of each element."""
    residual = x - mean
    is_far, distance_squared = _far(residual * jnp.exp(-0.5 * log_var))
    near_squared = jnp.where(is_far, 0.0, residual) ** 2 * jnp.exp(-log_var)
    return LOG_2PI + log_var + jnp.where(is_far, distance_squared, near_squared)


def squared(r: Float[Array, "..."]) -> Float[Array, "..."]:
    """r^2, and beyond FAR = 10^6 its continuation FAR^2 (1 + 2 log(r / FAR)).

    r is a distance in standard deviations. The square of the largest floats is not one; this
    grows as far as floats do, and so orders even absurd outliers. Its gradient is zero out there:
    what is so far from all that was expected does not say where to go.
    """
    is_far, distance_squared = _far(r)
    return jnp.where(is_far, distance_squared, jnp.where(is_far, 0.0, r) ** 2)


def _far(r: Float[Array, "..."]) -> tuple[Bool[Array, "..."], Float[Array, "..."]]:
    """Say which distances are beyond FAR, and continue their squares."""
    distance = jax.lax.stop_gradient(jnp.abs(r))
    is_far = distance > FAR
    bounded = jnp.minimum(distance, float(jnp.finfo(r.dtype).max))
    # A harmless number where the branch is not taken, so that its gradient is not NaN.
    return is_far, FAR**2 * (1.0 + 2.0 * jnp.log(jnp.where(is_far, bounded, FAR) / FAR))
