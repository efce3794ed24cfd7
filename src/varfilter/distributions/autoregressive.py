"""Neighbouring elements that depend on each other linearly: the samples of sound within a step."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from varfilter.distributions.base import AbstractDistribution, observed, parameter

# What is made up stays a number, even where observed elements in between make a filter unstable.
FARTHEST = 1e15


class Autoregressive(AbstractDistribution):
    """x_i = sum_k a_k x_{i-k} + e_i: an all-pole filter that is driven by the innovations e.

    - `innovations`: the distribution of the vector e, its elements independent: `Normal` or
      `StudentT`; `DiscretizedNormal` where x lies on levels, so that each x_i has the mass of its
      own bin given those before it.
    - `coefficients`: a_1, ..., a_p. Any numbers make a distribution; `step_up` makes those of a
      stable filter.
    - `before`: the p elements before the first, in their order, so the last is the nearest.

    The map from e to x has the Jacobian 1: p(x) is that of the innovations, p(e).

    Of missing elements, those before an observed one are needed for what that is predicted from;
    they are taken at what is expected of them from all that came before. The score is that of a
    true density of what was observed, exact where no observed element follows a missing one, and
    too sure for the p elements after a gap: it leaves out that what was missing is not known.
    For the same reason `complete` draws a missing element from those before it alone.

    That serves for steps that were lost, and less well for a gap inside of one where the filter has
    several sharp resonances: they go on from what was expected, far from what comes. Of elements
    that are missing here and there, what is expected of one depends on others that are expected,
    with what was observed put in between: this is no longer the stable filter, and it grows until
    floats overflow. Sound comes whole, or not at all for a while.
    """

    innovations: AbstractDistribution
    coefficients: Float[Array, " order"] = eqx.field(converter=parameter)
    before: Float[Array, " order"] = eqx.field(converter=parameter)

    def __check_init__(self):
        if self.coefficients.shape != self.before.shape or self.coefficients.ndim == 0:
            raise ValueError(
                "`before` must have one element for each of `coefficients`; got the shapes"
                f" {self.before.shape} and {self.coefficients.shape}. Where nothing came before,"
                " give zeros."
            )
        if len(self.innovations.shape) != self.coefficients.ndim:
            raise ValueError(
                "`innovations` must be over a vector, whose elements are in the order of time; got"
                f" the shape {self.innovations.shape}."
            )
        for name in ("low", "high"):
            if getattr(self.innovations, name, None) is not None:
                raise ValueError(
                    f"`innovations` has `{name}`, but a bound of x is none of what drives it. Leave"
                    " it out."
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""
        return self.innovations.shape

    @property
    def mean(self) -> Float[Array, "..."]:
        """The filter's answer to the means of the innovations, and to what came before."""
        return _answer(self.coefficients, self.before, self.innovations.mean)

    @property
    def variance(self) -> Float[Array, "..."]:
        """sum_j h_j^2 var(e_{i-j}), with h the filter's answer to a single 1."""
        variance = self.innovations.variance
        one = jnp.zeros_like(variance).at[..., 0].set(1.0)
        impulse = _answer(self.coefficients, jnp.zeros_like(self.before), one)
        return _convolved(impulse**2, variance)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " size"]:
        """Draw the innovations, and put them through the filter."""
        return _answer(self.coefficients, self.before, self.innovations.sample(key))

    def complete(self, x: Float[Array, " size"], key: PRNGKeyArray) -> Float[Array, " size"]:
        """Draw each unobserved element given those before it."""
        drive = self.innovations.sample(key)
        return _filtered(self.coefficients, self.before, drive, x)

    def log_prob(self, x: Float[Array, " size"]) -> Float[Array, ""]:
        """log p(e) of the innovations that would have made the observed elements."""
        return self.innovations.log_prob(self._innovations_of(x))

    def error(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """The precision-weighted error, minus the gradient of log p(x) where e is Gaussian."""
        found, pull = jax.vjp(self._innovations_of, x)
        return pull(self.innovations.error(found))[0]

    def after(self, before: Float[Array, " order"]) -> "Autoregressive":
        """Replace the elements before x; the filter and the innovations stay."""
        return Autoregressive(self.innovations, self.coefficients, before)

    def tempered(self, temperature: float) -> "Autoregressive":
        """Scale the randomness of the innovations, and so that of x by as much."""
        innovations = self.innovations.tempered(temperature)
        return Autoregressive(innovations, self.coefficients, self.before)

    def widened(self, factor: float) -> "Autoregressive":
        """Widen the innovations, and so x by as much."""
        innovations = self.innovations.widened(factor)
        return Autoregressive(innovations, self.coefficients, self.before)

    def stabilised(self) -> "Autoregressive":
        """Hold the innovations in their numerically safe range."""
        return Autoregressive(self.innovations.stabilised(), self.coefficients, self.before)

    def _innovations_of(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """x_i - sum_k a_k x_{i-k}, and NaN where x_i is not observed."""
        whole = self._expected(x)
        residual = whole[self.before.size :] - self._predicted(whole)
        return jnp.where(observed(x), residual, jnp.nan)

    def _predicted(self, whole: Float[Array, " both"]) -> Float[Array, " size"]:
        """sum_k a_k x_{i-k}, of the elements of x after those `before`."""
        order, size = self.before.size, whole.size - self.before.size
        lagged = [whole[order - k : order - k + size] for k in range(1, order + 1)]
        return self.coefficients @ jnp.stack(lagged)

    def _expected(self, x: Float[Array, " size"]) -> Float[Array, " both"]:
        """`before` and x, each element that is missing before an observed one as it is expected.

        That is the solution of y = known + A y, with A strictly lower triangular and zero but for
        what is missing: as many substitutions as elements are missing give it exactly, and where
        none is they cost nothing, unlike a loop over all elements.
        """
        seen = observed(x)
        is_needed = ~seen & (jax.lax.cummax(seen.astype(int), reverse=True) > 0)
        expected = jnp.where(is_needed, self.innovations.mean, 0.0)
        known = jnp.concatenate([self.before, jnp.where(seen, x, expected)])

        def substituted(y: Array) -> Array:
            ahead = jnp.where(is_needed, self._predicted(y), 0.0)
            return jnp.concatenate([jnp.zeros_like(self.before), ahead])

        return _solved(substituted, known, jnp.sum(is_needed))


def _solved(
    substituted: Callable[[Array], Array], known: Float[Array, " both"], count: Int[Array, ""]
) -> Array:
    """The y of y = known + substituted(y), which that many substitutions give.

    It is differentiated as the solution that it is, without a record of the way there.
    """

    def repeated(function: Callable[[Array], Array], start: Array) -> Array:
        def again(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            return carry[0] + 1, start + function(carry[1])

        return jax.lax.while_loop(lambda carry: carry[0] < count, again, (0 * count, start))[1]

    def transposed(_: Any, start: Array) -> Array:
        pull = jax.linear_transpose(substituted, start)
        return repeated(lambda y: pull(y)[0], start)

    return jax.lax.custom_linear_solve(
        lambda y: y - substituted(y), known, lambda _, b: repeated(substituted, b), transposed
    )


def step_up(reflections: Float[Array, " order"]) -> Float[Array, " order"]:
    """The coefficients a_1, ..., a_p of the filter with these reflection coefficients.

    A <- A - r z B and B <- z B - r A for each r, from A = B = 1: Levinson's recursion, by which
    A = 1 - sum_k a_k z^k. The filter 1 / A is stable exactly if every r lies between -1 and 1.
    """

    def step(polynomials: tuple[Array, Array], r: Array) -> tuple[tuple[Array, Array], None]:
        forward, backward = polynomials
        delayed = jnp.concatenate([jnp.zeros_like(backward[:1]), backward[:-1]])
        return (forward - r * delayed, delayed - r * forward), None

    one = jnp.zeros((reflections.size + 1,), reflections.dtype).at[0].set(1.0)
    (forward, _), _ = jax.lax.scan(step, (one, one), reflections)
    return -forward[1:]


def _along(
    coefficients: Float[Array, " order"],
    before: Float[Array, " order"],
    drive: Float[Array, " size"],
    x: Float[Array, " size"],
) -> Float[Array, " size"]:
    """x where that is observed; elsewhere what the filter makes of the drive, one by one."""

    def step(last: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        own, given = now
        made = jnp.clip(own + jnp.sum(coefficients * last), -FARTHEST, FARTHEST)
        value = jnp.where(observed(given), given, made)
        return jnp.append(value, last[:-1]), value

    return jax.lax.scan(step, jnp.flip(before), (drive, x))[1]


# Axes before the vector's (time, a batch) are kept.
_filtered = jnp.vectorize(_along, signature="(k),(k),(n),(n)->(n)")


def _answer(coefficients: Array, before: Array, drive: Array) -> Array:
    """What the filter makes of a drive."""
    return _filtered(coefficients, before, drive, jnp.full_like(drive, jnp.nan))


def _lower_toeplitz(first: Float[Array, " size"], x: Float[Array, " size"]) -> Array:
    """sum_j first_j x_{i-j}."""
    lag = jnp.arange(x.size)[:, None] - jnp.arange(x.size)[None, :]
    return jnp.where(lag >= 0, first[jnp.maximum(lag, 0)], 0.0) @ x


_convolved = jnp.vectorize(_lower_toeplitz, signature="(n),(n)->(n)")
