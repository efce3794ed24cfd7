"""Gaussians that give the probability of a quantised value: speech samples and pixels."""

import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, erfc
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.distributions.base import (
    AbstractDistribution,
    Move,
    fill,
    observed,
    parameter,
    require_shape,
    require_width,
)
from varfilter.distributions.normal import FAR, squared

SQRT2 = float(np.sqrt(2))
SQRT_PI = float(np.sqrt(np.pi))
SQRT_2PI = float(np.sqrt(2 * np.pi))
LOG_SQRT_2PI = float(np.log(SQRT_2PI))


class DiscretizedNormal(AbstractDistribution):
    """P(x) = Phi((x + w/2 - mean) / std) - Phi((x - w/2 - mean) / std): the mass of x's own bin.

    `width` is w, the distance of two neighbouring levels of the data. Where the data are
    bounded, give `low` and `high`, the lowest and the highest level: their bins reach to
    infinity, so that the probabilities of all levels sum to one. For a vector whose elements
    are quantised differently, as the counts of a table are, each of the three may be a tuple
    with one for each element.
    """

    is_reparameterisable: ClassVar[bool] = False  # a draw is put on the levels
    mean: Float[Array, " *event"] = eqx.field(converter=parameter)
    log_var: Float[Array, " *event"] = eqx.field(converter=parameter)
    width: float | tuple[float, ...] = eqx.field(static=True)
    low: float | tuple[float | None, ...] | None = eqx.field(static=True, default=None)
    high: float | tuple[float | None, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        require_shape("log_var", self.log_var, self.mean.shape, "One for each element.")
        for width in _each(self.width):
            require_width(width)
        for name in ("width", "low", "high"):
            value = getattr(self, name)
            if isinstance(value, tuple) and self.mean.shape != (len(value),):
                raise ValueError(
                    f"`{name}` has {len(value)} entries, one for each element of a vector, but"
                    f" `mean` has shape {self.mean.shape}. Give one number for all elements."
                )
        lows, highs = (np.array(_each(value), object) for value in (self.low, self.high))
        for low, high in np.broadcast(lows, highs):
            if low is not None and high is not None and not low < high:
                raise ValueError(
                    f"`low` must lie below `high`; got low={low} and high={high}. They are"
                    " the lowest and the highest level of the data."
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""
        return self.mean.shape

    @property
    def variance(self) -> Float[Array, " *event"]:
        """The variance of the Gaussian before it is quantised."""
        return jnp.exp(self.log_var)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " *event"]:
        """Draw an event; on the levels low, low + w, ..., high where these are given."""
        noise = jax.random.normal(key, self.shape, self.mean.dtype)
        x = self.mean + jnp.exp(0.5 * self.log_var) * noise
        if self.low is not None:
            width, low = self._along(self.width), self._along(self.low, 0.0)
            level = low + width * jnp.round((x - low) / width)
            x = level if None not in _each(self.low) else jnp.where(self._is_bounded, level, x)
        return jnp.clip(x, self._along(self.low, -jnp.inf), self._along(self.high, jnp.inf))

    def moved(self, move: Move) -> "DiscretizedNormal":
        """Move the Gaussian before it is quantised; the bins are as much wider as the scale.

        The lowest and the highest level of what moves would move too, by an offset that is not
        known when a program is compiled: they are put on afterwards (`bounded`).
        """
        for low, high, moves in np.broadcast(
            np.array(_each(self.low), object), np.array(_each(self.high), object), move.moving
        ):
            if moves and not (low is None and high is None):
                raise TypeError(
                    "`DiscretizedNormal` with `low` or `high` cannot be moved: its lowest and"
                    " highest level would move too. Leave them out, and give those of the result."
                )
        widths = np.broadcast_to(self.width, self.shape) * move.scale
        width = tuple(widths.tolist()) if len(self.shape) == 1 else float(np.unique(widths).item())
        mean, log_var = move.mean(self.mean), move.log_var(self.log_var)
        return DiscretizedNormal(mean, log_var, width, self.low, self.high)

    def bounded(
        self, low: tuple[float | None, ...], high: tuple[float | None, ...]
    ) -> "DiscretizedNormal":
        """Replace the lowest and highest level of each element by those given, unless None."""
        lows, highs = (
            tuple(own if value is None else value for own, value in zip(each, given, strict=True))
            for each, given in (
                (_spread(self.low, len(low)), low),
                (_spread(self.high, len(high)), high),
            )
        )
        return DiscretizedNormal(
            self.mean, self.log_var, self.width, _unless_none(lows), _unless_none(highs)
        )

    def tempered(self, temperature: float) -> "DiscretizedNormal":
        """Multiply the variance of the Gaussian, before it is quantised, by `temperature`."""
        log_var = self.log_var + math.log(temperature)
        return DiscretizedNormal(self.mean, log_var, self.width, self.low, self.high)

    def log_prob(self, x: Float[Array, " *event"]) -> Float[Array, ""]:
        """Sum over observed elements of the log-probability of their bins."""
        return jnp.sum(jnp.where(observed(x), self.log_mass(fill(x, self.mean)), 0.0))

    def log_mass(self, x: Float[Array, " *event"]) -> Float[Array, " *event"]:
        """The log-probability of each element's bin."""
        precision = jnp.exp(-0.5 * self.log_var)
        centre = (x - self.mean) * precision
        half_width = 0.5 * self._along(self.width)
        half = half_width * precision
        value = log_window_mass(centre, half)
        # Half a bin of slack: levels that went through float arithmetic still count as edges.
        if self.low is not None:
            edge = self._along(self.low, -jnp.inf) + half_width
            value = jnp.where(x < edge, log_ndtr(centre + half), value)
        if self.high is not None:
            edge = self._along(self.high, jnp.inf) - half_width
            value = jnp.where(x > edge, log_ndtr(half - centre), value)
        return value

    @property
    def _is_bounded(self) -> np.ndarray:
        """Which elements have a lowest level, so that a draw can be put on the levels."""
        return np.array([low is not None for low in _each(self.low)])

    def _along(self, value: Any, if_none: float | None = None) -> Any:
        """Leave a number as it is, make a tuple an array along the vector, and None `if_none`."""
        if not isinstance(value, tuple):
            return if_none if value is None else value
        return jnp.array([if_none if v is None else v for v in value], self.mean.dtype)


class PaperDiscretizedNormal(AbstractDistribution):
    """log(Phi(x + w) - Phi(x) + 1e-6): the original code's likelihood, for comparison only.

    The window lies to one side of x, the difference is taken in plain floats, the standard
    deviation is enlarged by 1e-5 / sqrt(2), and the 1e-6 makes it not quite normalised. Use
    `DiscretizedNormal` for anything but comparing with the published tables.
    """

    is_reparameterisable: ClassVar[bool] = False  # as `DiscretizedNormal`, whose place it takes
    mean: Float[Array, " *event"] = eqx.field(converter=parameter)
    log_var: Float[Array, " *event"] = eqx.field(converter=parameter)
    width: float = eqx.field(static=True)

    def __check_init__(self):
        require_width(self.width)
        require_shape("log_var", self.log_var, self.mean.shape, "One for each element.")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""
        return self.mean.shape

    @property
    def variance(self) -> Float[Array, " *event"]:
        """The variance of the Gaussian before it is quantised."""
        return jnp.exp(self.log_var)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " *event"]:
        """Draw from the Gaussian before it is quantised."""
        noise = jax.random.normal(key, self.shape, self.mean.dtype)
        return self.mean + jnp.exp(0.5 * self.log_var) * noise

    def tempered(self, temperature: float) -> "PaperDiscretizedNormal":
        """Multiply the variance of the Gaussian, before it is quantised, by `temperature`."""
        log_var = self.log_var + math.log(temperature)
        return PaperDiscretizedNormal(self.mean, log_var, self.width)

    def log_prob(self, x: Float[Array, " *event"]) -> Float[Array, ""]:
        """Sum over observed elements of log(Phi(x + w) - Phi(x) + 1e-6)."""
        residual = fill(x, self.mean) - self.mean
        scale = SQRT2 * jnp.exp(0.5 * self.log_var) + 1e-5
        mass = 0.5 * (erf((residual + self.width) / scale) - erf(residual / scale))
        return jnp.sum(jnp.where(observed(x), jnp.log(mass + 1e-6), 0.0))


def _each(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def _spread(value: Any, count: int) -> tuple:
    return value if isinstance(value, tuple) else (value,) * count


def _unless_none(values: tuple) -> tuple | None:
    """None where no element is bounded: the mass of an edge need not be compiled then."""
    return None if all(value is None for value in values) else values


@jax.custom_jvp
def log_window_mass(
    centre: Float[Array, " *event"], half: Float[Array, " *event"]
) -> Float[Array, " *event"]:
    """log(Phi(centre + half) - Phi(centre - half)), accurate also in float32 and far in the tails.

    No one formula is: a plain difference cancels for narrow windows and underflows in the
    tails. Three are used, each where it keeps its digits (and each fed harmless numbers
    elsewhere, so that the gradient of a branch not taken cannot be NaN). Beyond FAR standard
    deviations the logarithm goes on as that of `Normal` does, as far as floats go.

    The derivatives are (phi(c + h) -+ phi(c - h)) / mass, the densities at the two edges, and need
    no more than the mass itself: those of the formulas' own equations would be most of a program.
    """
    return _window(centre, half).log_mass


@log_window_mass.defjvp
def _window_slope(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    window, (by_centre, by_half) = _window(*primals), tangents
    return window.log_mass, window.by_centre * by_centre + window.by_half * by_half


class _Window(NamedTuple):
    """The log-mass of windows, and its derivatives."""

    log_mass: Float[Array, " *event"]
    by_centre: Float[Array, " *event"]
    by_half: Float[Array, " *event"]


@jax.jit  # traced once for each shape, however often a program weighs an observation
def _window(centre: Float[Array, " *event"], half: Float[Array, " *event"]) -> _Window:
    beyond = squared(centre) - jnp.minimum(jnp.abs(centre), FAR) ** 2
    distance = jnp.minimum(jnp.abs(centre), FAR)
    narrow = (half < 0.5) & (half * distance < 0.5)
    inside = ~narrow & (distance <= half)
    tail = ~narrow & ~inside
    zero = jnp.zeros_like(centre)

    # Narrow: phi(c) times the integral of exp(-c u - u^2 / 2) over [-h, h], by quadrature.
    h = jnp.where(narrow, half, 0.25)
    c = jnp.where(narrow, distance, zero)
    # Pair by pair of opposite nodes: a product with the weights would be a kernel of its own, of
    # ten times the size, and some accelerators round the factors of a product to 10 bits.
    integral = zero
    for node, weight in zip(_NODES.tolist(), _WEIGHTS.tolist(), strict=True):
        if node > 0.0:
            u = h * node
            integral = integral + 2.0 * weight * jnp.exp(-0.5 * u**2) * jnp.cosh(c * u)
    log_narrow = -0.5 * c**2 - LOG_SQRT_2PI + jnp.log(h) + jnp.log(integral)
    edge = 2.0 * jnp.exp(-0.5 * h**2) / (h * integral)
    of_narrow = -edge * jnp.sinh(c * h), edge * jnp.cosh(c * h)

    # Around the mean: one minus the two tails.
    h = jnp.where(inside, half, 1.0)
    c = jnp.where(inside, distance, zero)
    near, far = (h - c) / SQRT2, (h + c) / SQRT2
    outside = 0.5 * (erfc(far) + erfc(near))
    edge = jnp.exp(-(near**2)) / (SQRT_2PI * (1.0 - outside))
    other = jnp.exp(-(far**2)) / (SQRT_2PI * (1.0 - outside))
    log_inside, of_inside = jnp.log1p(-outside), (other - edge, other + edge)

    # Far from the mean: with the near edge n = c - h, exp(-n^2/2) factors out of both terms
    # of the difference, and what is left is of order one however far out we are.
    h = jnp.where(tail, half, 1.0)
    c = jnp.where(tail, distance, 2.0)
    near, far = (c - h) / SQRT2, (c + h) / SQRT2
    decay = jnp.exp(-2.0 * c * h)
    difference = erfcx(near) - decay * erfcx(far)
    log_tail = -(near**2) + jnp.log(0.5 * difference)
    edge = 2.0 / (SQRT_2PI * difference)
    of_tail = edge * jnp.expm1(-2.0 * c * h), edge * (1.0 + decay)

    def chosen(if_narrow: Array, if_inside: Array, if_tail: Array) -> Array:
        return jnp.where(narrow, if_narrow, jnp.where(inside, if_inside, if_tail))

    by_distance, by_half = map(chosen, of_narrow, of_inside, of_tail)
    return _Window(
        chosen(log_narrow, log_inside, log_tail) - 0.5 * jnp.where(distance < FAR, 0.0, beyond),
        jnp.where(distance < FAR, jnp.sign(centre) * by_distance, 0.0),
        by_half,
    )


@jax.custom_jvp
def log_ndtr(x: Float[Array, " *event"]) -> Float[Array, " *event"]:
    """log Phi(x), with a gradient that stays right in float32 at x = -10^4.

    jax.scipy's takes the gradient from a difference of two large logarithms. Below -FAR it goes on
    as the log-density of `Normal` does.
    """
    return _left(x)[0]


@log_ndtr.defjvp
def _log_ndtr_slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    value, slope = _left(*primals)
    return value, slope * tangents[0]


@jax.jit
def _left(x: Float[Array, " *event"]) -> tuple[Float[Array, " *event"], Float[Array, " *event"]]:
    """log Phi(x), and its derivative phi(x) / Phi(x)."""
    left = x < 0
    tail = jnp.clip(jnp.where(left, x, -1.0), -FAR, None) / SQRT2
    body = jnp.where(left, 1.0, x) / SQRT2
    scaled, above = 0.5 * erfcx(-tail), 0.5 * erfc(body)
    beyond = jnp.where(x < -FAR, squared(jnp.minimum(x, 0.0)) - FAR**2, 0.0)
    value = jnp.where(left, -(tail**2) + jnp.log(scaled) - 0.5 * beyond, jnp.log1p(-above))
    slope = jnp.where(left, 1.0 / scaled, jnp.exp(-(body**2)) / (1.0 - above)) / SQRT_2PI
    return value, jnp.where(x < -FAR, 0.0, slope)


@jax.custom_jvp
def erfcx(x: Float[Array, " *event"]) -> Float[Array, " *event"]:
    """exp(x^2) erfc(x) for x >= 0, by Laplace's continued fraction where erfc underflows.

    The derivative is 2 x erfcx(x) - 2 / sqrt(pi), whose two terms cancel for large x, as in
    jax.scipy's; there it is written as -(2 / sqrt(pi)) (1 - Q / P), with the fraction x P / Q. A
    derivative of the fraction's own equations would be many times as many of them.
    """
    large, small_x, large_x = _divided(x)
    above, below, _ = _fraction_of(x)
    y = 1.0 / large_x**2
    fraction = large_x * _polynomial(above, y) / _polynomial(below, y)
    return jnp.where(large, 1 / (SQRT_PI * fraction), jnp.exp(small_x**2) * erfc(small_x))


@erfcx.defjvp
def _erfcx_slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (tangent,) = primals, tangents
    value = erfcx(x)
    large, small_x, large_x = _divided(x)
    above, _, difference = _fraction_of(x)
    y = 1.0 / large_x**2
    far = -2.0 / SQRT_PI * (_polynomial(difference, y) / _polynomial(above, y))
    near = 2.0 * small_x * jnp.where(large, 0.5, value) - 2.0 / SQRT_PI
    return value, jnp.where(large, far, near) * tangent


def _divided(x: Float[Array, " *event"]) -> tuple[Array, Array, Array]:
    """Return where x is large, and x with its large and its small elements made harmless."""
    large = x > 3.0
    return large, jnp.where(large, 1.0, x), jnp.where(large, x, 4.0)


def _polynomial(coefficients: np.ndarray, y: Float[Array, " *event"]) -> Float[Array, " *event"]:
    """Evaluate a polynomial by Horner's rule."""
    value = jnp.full_like(y, coefficients[-1])
    for coefficient in coefficients[-2::-1].tolist():
        value = value * y + coefficient
    return value


def _fraction(num_terms: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x + (1/2) / (x + (2/2) / (x + (3/2) / (x + ...))) = x P(y) / Q(y), y = 1 / x^2: P, Q, P - Q.

    All coefficients are positive, so nothing cancels. One division instead of `num_terms` in a
    row, whose derivative takes a compiler seconds wherever it stands.
    """
    above, below = np.ones(1), np.ones(1)
    for n in range(num_terms, 0, -1):
        above, below = np.polynomial.polynomial.polyadd(above, [0.0, *(0.5 * n * below)]), above
    return above, below, np.polynomial.polynomial.polysub(above, below)


def _fraction_of(x: Float[Array, " *event"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return _FRACTION if jnp.finfo(x.dtype).bits > 32 else _SHORT_FRACTION


# The error, of order exp(x^2 - 2 x sqrt(2 n)), is below 1e-14 from x = 3 on; and below 2e-8, which
# is less than half a unit in the last place, for floats of 32 bits.
_FRACTION = _fraction(24)
_SHORT_FRACTION = _fraction(10)

# Gauss-Legendre on [-1, 1]; ten nodes are exact to 1e-15 for the narrow windows above.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
