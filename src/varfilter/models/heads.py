"""Heads: from a network's last layer, or its maps, to the distribution of x_t or of z_t."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from varfilter._arguments import require_positive
from varfilter.distributions import (
    Autoregressive,
    Bernoulli,
    DiscretizedNormal,
    Normal,
    step_up,
)
from varfilter.nn import linear

# The most that a filter amplifies noise, as a logarithm: 43 dB. Recorded sounds have less, and with
# much more a filter is no longer stable when its coefficients are rounded to 32 bits. Those of long
# filters are larger for the same gain, so that beyond this order the gain is in inverse proportion.
LARGEST_GAIN, LONGEST_OF_FULL_GAIN = 10.0, 24
# How far out its poles may lie, so that nothing rings on: it falls by 60 dB in 7,000 samples.
LARGEST_RADIUS = 0.999
# The spread of the pixels of a frame before which none is known: that of numbers from 0 to 1.
FIRST_STD = 0.3


class NormalHead(eqx.Module):
    """N(W h + b, exp(l)) with one learned log-variance for each element.

    `std` is where exp(l / 2) starts. Give a guess of the noise of the data: it scales how
    much the latents are worth learning (`head=functools.partial(NormalHead, std=0.3)`).
    """

    mean: eqx.nn.Linear
    log_var: Float[Array, " size"]
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self, hidden_size: int, shape: tuple[int, ...], *, std: float = 1.0, key: PRNGKeyArray
    ):
        size = num_elements(shape)
        self.mean = linear(hidden_size, size, key=key)
        self.log_var = jnp.full((size,), 2.0 * jnp.log(std))
        self.shape = shape

    def __call__(self, hidden: Float[Array, " hidden"]) -> Normal:
        """Return the distribution of x given the decoder's last layer."""
        mean = self.mean(hidden).reshape(self.shape)
        return Normal(mean, self.log_var.reshape(self.shape)).stabilised()


class LatentHead(eqx.Module):
    """N(z; W h + b, exp(V h + c)): the prior or the posterior of z_t, in its safe range.

    It takes a pair of random keys, one for each of its two layers.
    """

    mean: eqx.nn.Linear
    log_var: eqx.nn.Linear

    def __init__(self, hidden_size: int, latent_size: int, *, keys: Key[Array, " 2"]):
        key_mean, key_log_var = keys
        self.mean = linear(hidden_size, latent_size, key=key_mean)
        self.log_var = linear(hidden_size, latent_size, key=key_log_var)

    def __call__(self, hidden: Float[Array, " hidden"]) -> Normal:
        """Return the distribution of z given the last hidden layer."""
        return Normal(self.mean(hidden), self.log_var(hidden)).stabilised()


class VaryingNormalHead(eqx.Module):
    """N(W h + b, exp(clip(V h + c))): mean and log-variance both depend on the latent.

    `width` is the distance of two neighbouring levels of quantised data; the head then gives
    the probability of x's bin (`DiscretizedNormal`) instead of a density.
    """

    mean: eqx.nn.Linear
    log_var: eqx.nn.Linear
    shape: tuple[int, ...] = eqx.field(static=True)
    log_var_range: tuple[float, float] = eqx.field(static=True)
    width: float | None = eqx.field(static=True)

    def __init__(
        self,
        hidden_size: int,
        shape: tuple[int, ...],
        *,
        log_var_range: tuple[float, float] = (-20.0, 5.0),
        width: float | None = None,
        key: PRNGKeyArray,
    ):
        key_mean, key_log_var = jax.random.split(key)
        size = num_elements(shape)
        self.mean = linear(hidden_size, size, key=key_mean)
        self.log_var = linear(hidden_size, size, key=key_log_var)
        self.shape = shape
        self.log_var_range = log_var_range
        self.width = width

    def __call__(self, hidden: Float[Array, " hidden"]) -> Normal | DiscretizedNormal:
        """Return the distribution of x given the decoder's last layer."""
        mean = self.mean(hidden).reshape(self.shape)
        log_var = jnp.clip(self.log_var(hidden), *self.log_var_range).reshape(self.shape)
        if self.width is None:
            return Normal(mean, log_var)
        return DiscretizedNormal(mean, log_var, self.width)


class AutoregressiveHead(eqx.Module):
    """x_i = sum_k a_k x_{i-k} + e_i: the filter a and the innovations e both depend on the latent.

    - `head`: makes the head of the innovations, `VaryingNormalHead` as a rule. Its variance is that
      of the sound: the innovations have as much less as the filter amplifies, so that how loud a
      step is and which colour it has are learned apart, and no filter makes it louder.
    - `order`: how many elements before it each depends on. The filter is decoded as reflection
      coefficients, tanh(W h + b), so that it is stable whatever h is.

    What is before the first element this head does not know, and takes for 0; the model that
    keeps it is `Continued`.
    """

    innovations: Any
    reflections: eqx.nn.Linear

    def __init__(
        self,
        hidden_size: int,
        shape: tuple[int, ...],
        *,
        order: int = 16,
        head: Callable[..., Any] = VaryingNormalHead,
        key: PRNGKeyArray,
    ):
        key_innovations, key_reflections = jax.random.split(key)
        if len(shape) != 1:
            raise ValueError(
                f"`shape` must be that of a vector, whose elements follow each other; got {shape}."
            )
        self.innovations = head(hidden_size, shape, key=key_innovations)
        hidden = jax.ShapeDtypeStruct((hidden_size,), jnp.result_type(float))
        driving = eqx.filter_eval_shape(self.innovations, hidden)
        if not hasattr(driving, "log_var"):
            raise TypeError(
                "`head` must make innovations with a spread of their own (`log_var`), which are"
                f" put through a filter; it makes `{type(driving).__name__}`. Use"
                " `VaryingNormalHead`, or that head by itself, without a filter."
            )
        # Learning starts without a filter: from a random one, the first 20 updates on speech scored
        # 20,000 times as many nats, and learning was behind ever after.
        order = require_positive("order", order)
        self.reflections = linear(hidden_size, order, gain=0.0, key=key_reflections)

    def __call__(self, hidden: Float[Array, " hidden"]) -> Autoregressive:
        """Return the distribution of x given the decoder's last layer."""
        reflections = _bounded(self.reflections(hidden))
        radii = jnp.asarray(LARGEST_RADIUS ** np.arange(1, reflections.size + 1), reflections.dtype)
        coefficients = radii * step_up(reflections)
        innovations = self.innovations(hidden)
        log_gain = -jnp.sum(jnp.log1p(-(reflections**2)))
        quieter = innovations.log_var - log_gain
        innovations = eqx.tree_at(lambda each: each.log_var, innovations, quieter)
        return Autoregressive(innovations, coefficients, jnp.zeros_like(coefficients))


class BernoulliHead(eqx.Module):
    """P(x = 1) = sigmoid(W h + b)."""

    logits: eqx.nn.Linear
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, hidden_size: int, shape: tuple[int, ...], *, key: PRNGKeyArray):
        self.logits = linear(hidden_size, num_elements(shape), key=key)
        self.shape = shape

    def __call__(self, hidden: Float[Array, " hidden"]) -> Bernoulli:
        """Return the distribution of x given the decoder's last layer."""
        return Bernoulli(self.logits(hidden).reshape(self.shape))


class NormalImage(eqx.Module):
    """Two maps a channel make its mean, through a sigmoid, and its log-variance, at least -10.

    Pixels lie in [0, 1] on levels `width` apart; `width=None` gives a density instead. `std` is
    the standard deviation at a map of zero, near which learning starts.
    """

    num_maps: ClassVar[int] = 2
    is_of_change: ClassVar[bool] = False
    width: float | None = eqx.field(static=True, default=1 / 255)
    std: float = eqx.field(static=True, default=1.0)

    def __call__(self, maps: Float[Array, "_maps height width"]) -> Normal | DiscretizedNormal:
        """Return the distribution of a frame given the decoder's maps."""
        mean, log_var = jnp.split(maps, 2)
        mean = jax.nn.sigmoid(mean)
        log_var = jnp.maximum(log_var + 2.0 * math.log(self.std), -10.0)
        if self.width is None:
            return Normal(mean, log_var)
        return DiscretizedNormal(mean, log_var, self.width, low=0.0, high=1.0)


class BernoulliImage(eqx.Module):
    """One map a channel makes its probabilities: P(pixel = 1) = sigmoid(map)."""

    num_maps: ClassVar[int] = 1
    is_of_change: ClassVar[bool] = False

    def __call__(self, maps: Float[Array, "_maps height width"]) -> Bernoulli:
        """Return the distribution of a frame given the decoder's maps."""
        return Bernoulli(maps)


class NormalChange(eqx.Module):
    """x_t ~ N((1 - g) (x_{t-1} + std c) + g n, std^2 exp(l)): the last frame, and what changes.

    Four maps a channel make the log-variance l, the change c, the gate g and the new pixel n of
    each pixel; the last two through a sigmoid, that of the gate moved by `gate`. So where all maps
    are zero, near which learning starts, the mean is the last frame, of which 1% has gone to
    grey. Of a frame before which none is known, g is 1, and 0.3^2 is added to the variance.

    Pixels lie in [0, 1] on levels `width` apart; `width=None` gives a density instead. The standard
    deviation is at least a quarter of a level, since much of a video does not change at all.
    """

    num_maps: ClassVar[int] = 4
    is_of_change: ClassVar[bool] = True
    width: float | None = eqx.field(static=True, default=1 / 255)
    std: float = eqx.field(static=True, default=0.01)
    gate: float = eqx.field(static=True, default=-5.0)

    def __call__(
        self,
        maps: Float[Array, "_maps height width"],
        last: Float[Array, "_channels height width"],
        is_known: Float[Array, ""],
    ) -> Normal | DiscretizedNormal:
        """Return the distribution of a frame given the decoder's maps and the frame before it."""
        log_var, change, gate, new = jnp.split(maps, self.num_maps)
        gate = jnp.where(is_known > 0, jax.nn.sigmoid(gate + self.gate), 1.0)
        mean = (1.0 - gate) * (last + self.std * change) + gate * jax.nn.sigmoid(new)
        log_var = log_var + 2.0 * math.log(self.std)
        first = jnp.logaddexp(log_var, 2.0 * math.log(FIRST_STD))
        least = 2.0 * math.log((1 / 255 if self.width is None else self.width) / 4)
        log_var = jnp.maximum(jnp.where(is_known > 0, log_var, first), least)
        if self.width is None:
            return Normal(mean, log_var)
        return DiscretizedNormal(mean, log_var, self.width, low=0.0, high=1.0)

    def rounded(self, x: Float[Array, "_channels height width"]) -> Float[Array, "..."]:
        """The frame from which the next one is predicted: x_t in [0, 1], on the nearest levels.

        Pixels of data lie on levels. A mean that is fed back to go on from lies between them,
        where what it is off by would add up from frame to frame.
        """
        x = jnp.clip(x, 0.0, 1.0)
        return x if self.width is None else jnp.round(x / self.width) * self.width


class BernoulliChange(eqx.Module):
    """P(pixel = 1) = sigmoid(map + 4 (2 x_{t-1} - 1)): where the map is zero, 98% stay as they are.

    Of a frame before which none is known, P(pixel = 1) = sigmoid(map).
    """

    num_maps: ClassVar[int] = 1
    is_of_change: ClassVar[bool] = True
    std: ClassVar[float] = 1.0

    def __call__(
        self,
        maps: Float[Array, "_maps height width"],
        last: Float[Array, "_channels height width"],
        is_known: Float[Array, ""],
    ) -> Bernoulli:
        """Return the distribution of a frame given the decoder's maps and the frame before it."""
        return Bernoulli(maps + is_known * 4.0 * (2.0 * last - 1.0))

    def rounded(self, x: Float[Array, "_channels height width"]) -> Float[Array, "..."]:
        """The frame from which the next one is predicted: x_t, black or white."""
        return jnp.round(jnp.clip(x, 0.0, 1.0))


def _bounded(values: Float[Array, " order"]) -> Float[Array, " order"]:
    """tanh of the values, scaled down where the filter would amplify by more than it may.

    Noise of variance 1 leaves the filter with prod 1 / (1 - r^2). The logarithm, 2 sum log cosh v,
    is convex in v and 0 at 0, so that a part of v has at most this part of the gain.
    """
    gain = 2.0 * jnp.sum(jnp.logaddexp(values, -values) - math.log(2.0))
    largest = LARGEST_GAIN * min(1.0, LONGEST_OF_FULL_GAIN / values.size)
    return jnp.tanh(values / jnp.maximum(1.0, gain / largest))


def as_shape(shape: tuple[int, ...] | int) -> tuple[int, ...]:
    """The shape of an observation; a whole number means a vector."""
    sizes = shape if isinstance(shape, tuple) else (shape,)
    return tuple(require_positive("observation_shape", size) for size in sizes)


def num_elements(shape: tuple[int, ...]) -> int:
    """How many elements an array of this shape has."""
    size = 1
    for length in shape:
        size *= length
    return size
