"""Student's t: numbers whose outliers are part of them, such as returns and glitches of sensors."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.distributions.base import (
    AbstractDistribution,
    Move,
    fill,
    observed,
    parameter,
    require_shape,
)
from varfilter.distributions.normal import FAR

# The least degrees of freedom: with 2 or fewer there is no variance, and no error to weigh by it.
LEAST_FREEDOM = 2.5


class StudentT(AbstractDistribution):
    """x = mean + s e with e ~ t(nu), s^2 = exp(log_var), nu = 2.5 + softplus(tails).

    `log_var` is the log of the squared scale; the variance is nu / (nu - 2) times as large. With
    large `tails` it is the Gaussian. Elements are independent.
    """

    mean: Float[Array, " *event"] = eqx.field(converter=parameter)
    log_var: Float[Array, " *event"] = eqx.field(converter=parameter)
    tails: Float[Array, " *event"] = eqx.field(converter=parameter)

    def __check_init__(self):
        require_shape("log_var", self.log_var, self.mean.shape, "One for each element.")
        require_shape("tails", self.tails, self.mean.shape, "One for each element.")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""
        return self.mean.shape

    @property
    def freedom(self) -> Float[Array, " *event"]:
        """The degrees of freedom nu, above 2.5: the fewer, the heavier the tails."""
        return LEAST_FREEDOM + jax.nn.softplus(self.tails)

    @property
    def variance(self) -> Float[Array, " *event"]:
        """The variance s^2 nu / (nu - 2)."""
        return jnp.exp(self.log_var) * self.freedom / (self.freedom - 2.0)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " *event"]:
        """Draw mean + s e, with e by the polar method of Bailey (1994): no draw is rejected.

        e = sqrt(nu (U^(-2/nu) - 1)) cos(2 pi V) with uniform U and V, differentiable in nu.
        """
        key_radius, key_angle = jax.random.split(key)
        dtype = self.mean.dtype
        least = float(jnp.finfo(dtype).tiny)
        u = jax.random.uniform(key_radius, self.shape, dtype, minval=least)
        angle = jax.random.uniform(key_angle, self.shape, dtype, maxval=2.0 * math.pi)
        radius = jnp.sqrt(jnp.maximum(jnp.expm1(-2.0 / self.freedom * jnp.log(u)), least))
        noise = jnp.sqrt(self.freedom) * radius * jnp.cos(angle)
        return self.mean + jnp.exp(0.5 * self.log_var) * noise

    def log_prob(self, x: Float[Array, " *event"]) -> Float[Array, ""]:
        """Sum over observed elements of log t_nu((x - mean) / s) - log s."""
        nu = self.freedom
        constant = gammaln(0.5 * (nu + 1.0)) - gammaln(0.5 * nu) - 0.5 * jnp.log(math.pi * nu)
        residual = fill(x, self.mean) - self.mean
        distance = jax.lax.stop_gradient(jnp.abs(residual * jnp.exp(-0.5 * self.log_var)))
        is_far = distance > FAR
        near = jnp.where(is_far, 0.0, residual) * jnp.exp(-0.5 * self.log_var)
        # Out there log(1 + r^2 / nu) is 2 log r - log nu, in which nothing overflows.
        bounded = jnp.minimum(jnp.abs(residual), float(jnp.finfo(residual.dtype).max))
        log_far = jnp.log(jax.lax.stop_gradient(jnp.where(is_far, bounded, 1.0)))
        beyond = 2.0 * log_far - self.log_var - jnp.log(nu)
        spread = jnp.where(is_far, beyond, jnp.log1p(near**2 / nu))
        terms = constant - 0.5 * self.log_var - 0.5 * (nu + 1.0) * spread
        return jnp.sum(jnp.where(observed(x), terms, 0.0))

    def moved(self, move: Move) -> "StudentT":
        """Move the mean, and add squared scales: what was not known before has such tails too."""
        return StudentT(move.mean(self.mean), move.log_var(self.log_var), self.tails)

    def widened(self, factor: float) -> "StudentT":
        """Multiply the scale by `factor`."""
        return StudentT(self.mean, self.log_var + 2.0 * math.log(factor), self.tails)

    def stabilised(self) -> "StudentT":
        """Clip the log of the squared scale to [-15, 5], as that of `Normal`."""
        return StudentT(self.mean, jnp.clip(self.log_var, -15.0, 5.0), self.tails)
