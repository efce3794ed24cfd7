"""Positive elements: the exponential of what another distribution draws."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.distributions.base import AbstractDistribution, fill, observed

# The largest logarithm whose exponential is still a 32-bit number, with its square apart.
LARGEST_LOG = 80.0


class Exponentiated(AbstractDistribution):
    """p(x) = p(y) prod 1 / x_i with y_i = log x_i, over the elements i that are `positive`.

    The others are as in `log`, the distribution of y. A positive element whose logarithm is
    Gaussian is log-normal; `mean` and `variance` are those of it. The exponential of Student's t
    has neither: there they are those of the log-normal with the same moments of the logarithm.
    What is observed at 0 or below, which a positive element never is, counts as the smallest
    positive number there is.
    """

    is_symmetric: ClassVar[bool] = False
    log: AbstractDistribution
    positive: tuple[bool, ...] = eqx.field(static=True)

    def __check_init__(self):
        if self.log.shape[-1:] != (len(self.positive),):
            raise ValueError(
                f"`positive` must say of each element of a vector whether it is; got"
                f" {len(self.positive)} for the shape {self.log.shape}."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""
        return self.log.shape

    @property
    def mean(self) -> Float[Array, "..."]:
        """exp(m + v / 2) of a positive element, with m and v the moments of its logarithm."""
        m, v = self.log.mean, self.log.variance
        return jnp.where(self._is_positive, jnp.exp(jnp.minimum(m + 0.5 * v, LARGEST_LOG)), m)

    @property
    def variance(self) -> Float[Array, "..."]:
        """exp(2 m + v) (exp(v) - 1) of a positive element."""
        m, v = self.log.mean, self.log.variance
        safe = jnp.where(self._is_positive, jnp.minimum(v, LARGEST_LOG), 0.0)
        log_variance = 2.0 * m + safe + jnp.log(jnp.maximum(jnp.expm1(safe), _tiny(m)))
        return jnp.where(self._is_positive, jnp.exp(jnp.minimum(log_variance, LARGEST_LOG)), v)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " size"]:
        """Draw y, and take the exponential of its positive elements."""
        return exponentials(self.log.sample(key), self._is_positive)

    def log_prob(self, x: Float[Array, " size"]) -> Float[Array, ""]:
        """log p(y) - sum over observed positive elements of log x."""
        y = logarithms(x, self._is_positive)
        counts = observed(x) & self._is_positive
        return self.log.log_prob(y) - jnp.sum(jnp.where(counts, fill(y, jnp.zeros_like(y)), 0.0))

    def complete(self, x: Float[Array, " size"], key: PRNGKeyArray) -> Float[Array, " size"]:
        """Draw the unobserved elements of y given the others."""
        drawn = self.log.complete(logarithms(x, self._is_positive), key)
        return fill(x, exponentials(drawn, self._is_positive))

    def tempered(self, temperature: float) -> "Exponentiated":
        """Scale the randomness of y."""
        return Exponentiated(self.log.tempered(temperature), self.positive)

    def stabilised(self) -> "Exponentiated":
        """Hold the distribution of y in its numerically safe range."""
        return Exponentiated(self.log.stabilised(), self.positive)

    @property
    def _is_positive(self) -> np.ndarray:
        """Which elements are positive; axes before the vector's (time, a batch) are kept."""
        return np.broadcast_to(np.array(self.positive), self.shape)


def logarithms(x: Float[Array, " size"], positive: np.ndarray) -> Float[Array, " size"]:
    """The logarithm of the positive elements; that of what is not above 0 is about -87."""
    safe = jnp.where(positive, jnp.maximum(x, _tiny(x)), 1.0)
    return jnp.where(positive, jnp.log(safe), x)


def exponentials(y: Float[Array, " size"], positive: np.ndarray) -> Float[Array, " size"]:
    """The exponential of the positive elements, held to what is a finite and positive number."""
    safe = jnp.where(positive, jnp.clip(y, -LARGEST_LOG, LARGEST_LOG), 0.0)
    return jnp.where(positive, jnp.exp(safe), y)


def _tiny(x: Array) -> float:
    return float(jnp.finfo(x.dtype).tiny)
