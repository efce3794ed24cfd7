"""Zero, or a positive number: rain, sales, the flow of a tap."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.distributions.base import (
    AbstractDistribution,
    fill,
    observed,
    parameter,
    require_shape,
)
from varfilter.distributions.exponentiated import LARGEST_LOG
from varfilter.distributions.normal import log_density


class ZeroInflated(AbstractDistribution):
    """P(x > 0) = sigmoid(logits), and then log x ~ N(log_mean, exp(log_var)).

    A probability at 0 and a density above it. What is observed below 0, where no value can be,
    counts as the smallest positive number there is. Elements are independent.
    """

    is_reparameterisable: ClassVar[bool] = False  # whether it is zero is a choice
    logits: Float[Array, " *event"] = eqx.field(converter=parameter)
    log_mean: Float[Array, " *event"] = eqx.field(converter=parameter)
    log_var: Float[Array, " *event"] = eqx.field(converter=parameter)

    def __check_init__(self):
        for name in ("log_mean", "log_var"):
            require_shape(name, getattr(self, name), self.logits.shape, "As `logits` has.")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""
        return self.logits.shape

    @property
    def mean(self) -> Float[Array, " *event"]:
        """P(x > 0) exp(m + v / 2), with m and v of the logarithm."""
        log_mean = jax.nn.log_sigmoid(self.logits) + self.log_mean + 0.5 * jnp.exp(self.log_var)
        return jnp.exp(jnp.minimum(log_mean, LARGEST_LOG))

    @property
    def variance(self) -> Float[Array, " *event"]:
        """p exp(2 m + v) (exp(v) - p), with p = P(x > 0)."""
        v = jnp.minimum(jnp.exp(self.log_var), LARGEST_LOG)
        # exp(v) - p without the difference of two numbers near 1.
        rest = jnp.expm1(v) + jax.nn.sigmoid(-self.logits)
        log_variance = jax.nn.log_sigmoid(self.logits) + 2.0 * self.log_mean + v + jnp.log(rest)
        return jnp.exp(jnp.clip(log_variance, -LARGEST_LOG, LARGEST_LOG))

    def sample(self, key: PRNGKeyArray) -> Float[Array, " *event"]:
        """Draw whether it is zero, and the logarithm of what it is otherwise."""
        key_zero, key_log = jax.random.split(key)
        is_positive = jax.random.bernoulli(key_zero, jax.nn.sigmoid(self.logits), self.shape)
        noise = jax.random.normal(key_log, self.shape, self.logits.dtype)
        log_value = self.log_mean + jnp.exp(0.5 * self.log_var) * noise
        value = jnp.exp(jnp.clip(log_value, -LARGEST_LOG, LARGEST_LOG))
        return jnp.where(is_positive, value, 0.0)

    def tempered(self, temperature: float) -> "ZeroInflated":
        """The log-odds of zero divided by it, and as many times the variance of the logarithm."""
        log_var = self.log_var + math.log(temperature)
        return ZeroInflated(self.logits / temperature, self.log_mean, log_var)

    def log_prob(self, x: Float[Array, " *event"]) -> Float[Array, ""]:
        """Sum over observed elements of log P(0), or of log P(x > 0) + log p(log x) - log x."""
        value = fill(x, jnp.zeros_like(x))
        log_value = jnp.log(jnp.maximum(value, float(jnp.finfo(value.dtype).tiny)))
        density = log_density(log_value, self.log_mean, self.log_var) - log_value
        positive = jax.nn.log_sigmoid(self.logits) + density
        terms = jnp.where(value == 0.0, jax.nn.log_sigmoid(-self.logits), positive)
        return jnp.sum(jnp.where(observed(x), terms, 0.0))
