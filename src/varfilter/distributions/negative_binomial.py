"""The negative binomial: counts of events, with as long a tail as they have."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.distributions.base import (
    AbstractDistribution,
    fill,
    observed,
    parameter,
    require_shape,
    require_width,
)
from varfilter.distributions.normal import FAR


class NegativeBinomial(AbstractDistribution):
    """P(n) = Gamma(n + r) / (Gamma(r) n!) (r / (r + mu))^r (mu / (r + mu))^n, n = 0, 1, ...

    mu = exp(log_mean) is the mean of n, and mu + mu^2 / r its variance, with r = exp(log_size):
    with a large r it is Poisson's. An element is x = low + width n: `width` and `low` have one
    for each, the distance of two levels and the place of n = 0 in scaled data.
    """

    is_reparameterisable: ClassVar[bool] = False  # a draw is a whole number
    log_mean: Float[Array, " *event"] = eqx.field(converter=parameter)
    log_size: Float[Array, " *event"] = eqx.field(converter=parameter)
    width: tuple[float, ...] = eqx.field(static=True)
    low: tuple[float, ...] = eqx.field(static=True)

    def __check_init__(self):
        require_shape("log_size", self.log_size, self.log_mean.shape, "One for each element.")
        for width in self.width:
            require_width(width)
        if not self.log_mean.shape[-1:] == (len(self.width),) == (len(self.low),):
            raise ValueError(
                "`width` and `low` must have one for each element of a vector; got"
                f" {len(self.width)} and {len(self.low)} for the shape {self.log_mean.shape}."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""
        return self.log_mean.shape

    @property
    def mean(self) -> Float[Array, " *event"]:
        """low + width mu."""
        width, low = self._grid
        return low + width * jnp.exp(self.log_mean)

    @property
    def variance(self) -> Float[Array, " *event"]:
        """width^2 mu (1 + mu / r)."""
        width, _ = self._grid
        return width**2 * jnp.exp(self.log_mean) * (1.0 + jnp.exp(self.log_mean - self.log_size))

    def sample(self, key: PRNGKeyArray) -> Float[Array, " *event"]:
        """Draw n ~ Poisson(mu g) with g ~ Gamma(r, 1 / r)."""
        key_rate, key_count = jax.random.split(key)
        log_rate = jax.random.loggamma(key_rate, jnp.exp(self.log_size), dtype=self.log_mean.dtype)
        # Of rates above a million the next float is as good as the next whole number.
        rate = jnp.exp(jnp.minimum(self.log_mean - self.log_size + log_rate, np.log(FAR)))
        width, low = self._grid
        return low + width * jax.random.poisson(key_count, rate).astype(low.dtype)

    def tempered(self, temperature: float) -> "NegativeBinomial":
        """Multiply the variance by `temperature`, down to Poisson's; the mean stays."""
        beyond = temperature * (1.0 + jnp.exp(self.log_mean - self.log_size)) - 1.0
        log_size = self.log_mean - jnp.log(jnp.maximum(beyond, 1.0 / FAR))
        return NegativeBinomial(self.log_mean, log_size, self.width, self.low)

    def log_prob(self, x: Float[Array, " *event"]) -> Float[Array, ""]:
        """Sum over observed elements of log P(n); beyond a million it goes on by the logarithm."""
        width, low = self._grid
        counted = jax.lax.stop_gradient(jnp.round((fill(x, low) - low) / width))
        counted = jnp.clip(counted, 0.0, float(jnp.finfo(counted.dtype).max))
        n, r = jnp.minimum(counted, FAR), jnp.exp(self.log_size)
        odds = self.log_mean - self.log_size
        choices = -jnp.log(n + r) - betaln(n + 1.0, r)
        terms = choices + r * jax.nn.log_sigmoid(-odds) + n * jax.nn.log_sigmoid(odds)
        beyond = FAR * jnp.log(jnp.maximum(counted, FAR) / FAR)
        return jnp.sum(jnp.where(observed(x), terms - beyond, 0.0))

    @property
    def _grid(self) -> tuple[Array, Array]:
        """The distance of two levels, and the lowest one; axes before the vector's are kept."""
        width, low = (np.broadcast_to(np.array(v), self.shape) for v in (self.width, self.low))
        return jnp.asarray(width, self.log_mean.dtype), jnp.asarray(low, self.log_mean.dtype)
