"""A Gaussian that is held at bounds: shares, percentages, and sensors that saturate."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.distributions.base import (
    AbstractDistribution,
    Move,
    fill,
    observed,
    parameter,
    require_shape,
)
from varfilter.distributions.discretized import log_ndtr
from varfilter.distributions.normal import Normal, log_density

# Beyond so many standard deviations of a bound, its mass is 0 or 1 in any float.
FURTHEST = 40.0
# Of its distance from 0, or of 1: a value so near to a bound is that bound, but for rounding.
NEAR = 1e-5


class Rectified(AbstractDistribution):
    """x = min(max(y, low), high), y ~ N(mean of y, exp(log_var)): mass at the bounds.

    P(x = low) = Phi((low - m) / s) and P(x = high) = Phi((m - high) / s), and between them the
    density of the Gaussian: the model of Tobin (1958). `low` and `high` have one for each
    element, None where it has no such bound. What is observed beyond a bound, where no value can
    be, has the density of y there.
    """

    # What is held at a bound does not move with the parameters.
    is_reparameterisable: ClassVar[bool] = False
    location: Float[Array, " *event"] = eqx.field(converter=parameter)
    log_var: Float[Array, " *event"] = eqx.field(converter=parameter)
    low: tuple[float | None, ...] = eqx.field(static=True)
    high: tuple[float | None, ...] = eqx.field(static=True)

    def __check_init__(self):
        require_shape("log_var", self.log_var, self.location.shape, "One for each element.")
        for name in ("low", "high"):
            if self.location.shape[-1:] != (len(getattr(self, name)),):
                raise ValueError(
                    f"`{name}` must have one for each element of a vector, or None; got"
                    f" {getattr(self, name)} for the shape {self.location.shape}."
                )
        for low, high in zip(self.low, self.high, strict=True):
            if low is not None and high is not None and not low < high:
                raise ValueError(f"`low` must lie below `high`; got low={low} and high={high}.")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""
        return self.location.shape

    @property
    def mean(self) -> Float[Array, " *event"]:
        """The mean of what is held at the bounds."""
        return self._moments[0]

    @property
    def variance(self) -> Float[Array, " *event"]:
        """The variance of what is held at the bounds, at least 1e-4 of that of y."""
        return jnp.maximum(self._moments[1], 1e-4 * jnp.exp(self.log_var))

    def sample(self, key: PRNGKeyArray) -> Float[Array, " *event"]:
        """Draw y, and hold it at the bounds."""
        drawn = Normal(self.location, self.log_var).sample(key)
        low, high = self._bounds
        return jnp.clip(drawn, jnp.asarray(low, drawn.dtype), jnp.asarray(high, drawn.dtype))

    def log_prob(self, x: Float[Array, " *event"]) -> Float[Array, ""]:
        """Sum over observed elements of the log-mass of a bound, or of the log-density of y."""
        value = fill(x, self.location)
        terms = log_density(value, self.location, self.log_var)
        precision = jnp.exp(-0.5 * self.log_var)
        for bounds, sign in zip(self._bounds, (1.0, -1.0), strict=True):
            has = np.isfinite(bounds)
            bound = jnp.asarray(np.where(has, bounds, 0.0), value.dtype)
            is_there = has & (jnp.abs(value - bound) <= NEAR * jnp.maximum(jnp.abs(bound), 1.0))
            distance = sign * (jnp.where(is_there, bound, self.location) - self.location)
            terms = jnp.where(is_there, log_ndtr(distance * precision), terms)
        return jnp.sum(jnp.where(observed(x), terms, 0.0))

    def moved(self, move: Move) -> "Rectified":
        """Move y; the bounds of what moves would move too, and are put on afterwards."""
        for low, high, moves in zip(self.low, self.high, move.moving, strict=True):
            if moves and not (low is None and high is None):
                raise TypeError(
                    "`Rectified` with `low` or `high` cannot be moved: its bounds would move too."
                    " Leave them out, and give those of the result."
                )
        location, log_var = move.mean(self.location), move.log_var(self.log_var)
        return Rectified(location, log_var, self.low, self.high)

    def bounded(self, low: tuple[float | None, ...], high: tuple[float | None, ...]) -> "Rectified":
        """Replace the bounds of each element by those given, unless None."""
        lows, highs = (
            tuple(own if value is None else value for own, value in zip(each, given, strict=True))
            for each, given in ((self.low, low), (self.high, high))
        )
        return Rectified(self.location, self.log_var, lows, highs)

    def widened(self, factor: float) -> "Rectified":
        """Multiply the standard deviation of y by `factor`."""
        return Rectified(
            self.location, self.log_var + 2.0 * float(np.log(factor)), self.low, self.high
        )

    def stabilised(self) -> "Rectified":
        """Clip the log-variance of y to [-15, 5], as that of `Normal`."""
        return Rectified(self.location, jnp.clip(self.log_var, -15.0, 5.0), self.low, self.high)

    @property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The bounds of each element, infinite where it has none; axes before it are kept."""

        def along(bounds: tuple[float | None, ...], none: float) -> np.ndarray:
            values = np.array([none if bound is None else bound for bound in bounds])
            return np.broadcast_to(values, self.shape)

        return along(self.low, -np.inf), along(self.high, np.inf)

    @property
    def _moments(self) -> tuple[Any, Any]:
        """E[x] and Var[x], from what lies between the bounds and beyond them."""
        std = jnp.exp(0.5 * self.log_var)
        lows, highs = (
            jnp.where(
                np.isfinite(bounds),
                jnp.asarray(np.where(np.isfinite(bounds), bounds, 0.0), std.dtype),
                self.location + sign * FURTHEST * std,  # as good as none, and it has a gradient
            )
            for bounds, sign in zip(self._bounds, (-1.0, 1.0), strict=True)
        )
        # Further outside it makes no difference, but for differences of large numbers.
        m = jnp.clip(self.location, lows - FURTHEST * std, highs + FURTHEST * std)
        alpha, beta = (jnp.clip((end - m) / std, -FURTHEST, FURTHEST) for end in (lows, highs))
        at_low, at_high = jax.scipy.special.ndtr(alpha), jax.scipy.special.ndtr(-beta)
        density_low, density_high = (
            jnp.exp(-0.5 * end**2) / float(np.sqrt(2 * np.pi)) for end in (alpha, beta)
        )
        first = alpha * at_low + beta * at_high + density_low - density_high
        between = 1.0 - at_low - at_high + alpha * density_low - beta * density_high
        second = alpha**2 * at_low + beta**2 * at_high + between
        return m + std * first, std**2 * (second - first**2)
