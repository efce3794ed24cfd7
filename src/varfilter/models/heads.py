"""Heads: from a network's last layer, or its maps, to the distribution of x_t or of z_t."""

import math
from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from varfilter._arguments import require_positive
from varfilter.distributions import (
    AbstractDistribution,
    Bernoulli,
    DiscretizedNormal,
    Joint,
    Normal,
)
from varfilter.nn import linear

# Columns are standardised, so their variance is about 1 if nothing else is known. The floor, a
# standard deviation of 3% of the column's spread, is for what the training rows show too well: a
# constant column, or a sensor that is stuck, would have a density without bound, which is worth
# more nats than all other columns together, and makes its first twitch infinitely surprising. A
# finer prediction than 3% is worth little, and few rows could prove it. The ceiling keeps what a
# network says far from the data finite.
LOG_VAR_RANGE = (-7.0, 3.0)
# A count has a probability, never above 1, so nothing is won below a fraction of a level: a
# standard deviation of 1/4 level already gives a bin 95%, and keeps the next but one at -20 nats.
FINEST_LEVEL = 0.25


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

    def __call__(self, maps: Float[Array, "_maps height width"]) -> Bernoulli:
        """Return the distribution of a frame given the decoder's maps."""
        return Bernoulli(maps)


@runtime_checkable
class ColumnFamily(Protocol):
    """What is known about a column; an entry of a table's `Dataset.family` is one.

    `distribution` is `Normal`, `Bernoulli` or `DiscretizedNormal`; the others are what the last
    of these takes.
    """

    @property
    def distribution(self) -> type[AbstractDistribution]:
        """The kind of distribution."""
        ...

    @property
    def width(self) -> float | int | None:
        """The distance of two neighbouring levels."""
        ...

    @property
    def low(self) -> float | int | None:
        """The lowest level."""
        ...

    @property
    def high(self) -> float | int | None:
        """The highest level."""
        ...


class ColumnHead(eqx.Module):
    """Numeric columns are N(W h + b, exp(l)) with l = V h + c held softly to `log_var_range`.

    Binary columns have P(x = 1) = sigmoid(W h + b), and counts are as numeric columns, with the
    mass of each level. Give the families of the data set:
    `head=functools.partial(ColumnHead, families=dataset.family)`.
    """

    mean: eqx.nn.Linear
    log_var: eqx.nn.Linear | None
    numeric: tuple[int, ...] = eqx.field(static=True)
    binary: tuple[int, ...] = eqx.field(static=True)
    counts: tuple[int, ...] = eqx.field(static=True)
    width: tuple[float, ...] = eqx.field(static=True)
    low: tuple[float | None, ...] | None = eqx.field(static=True)
    high: tuple[float | None, ...] | None = eqx.field(static=True)
    log_var_range: tuple[float, float] = eqx.field(static=True)

    def __init__(
        self,
        hidden_size: int,
        shape: tuple[int, ...],
        *,
        families: Sequence[ColumnFamily],
        log_var_range: tuple[float, float] = LOG_VAR_RANGE,
        key: PRNGKeyArray,
    ):
        _require_families(families, shape)
        if not log_var_range[0] < log_var_range[1]:
            raise ValueError(
                f"`log_var_range` must be (lowest, highest); got {log_var_range}."
                f" {LOG_VAR_RANGE} suits standardised columns."
            )
        self.numeric, self.binary, self.counts = (
            tuple(i for i, family in enumerate(families) if family.distribution is kind)
            for kind in (Normal, Bernoulli, DiscretizedNormal)
        )
        counts = [families[i] for i in self.counts]
        self.width = tuple(float(family.width or 0.0) for family in counts)
        self.low = _bounds([family.low for family in counts])
        self.high = _bounds([family.high for family in counts])
        self.log_var_range = log_var_range
        key_mean, key_log_var = jax.random.split(key)
        # One product for all columns, in the order numeric, counts, binary.
        self.mean = linear(hidden_size, len(families), key=key_mean)
        num_spread = len(self.numeric) + len(self.counts)
        self.log_var = linear(hidden_size, num_spread, key=key_log_var) if num_spread else None

    def __call__(self, hidden: Float[Array, " hidden"]) -> Joint:
        """Return the distribution of a row given the decoder's last layer."""
        numeric, spread = len(self.numeric), len(self.numeric) + len(self.counts)
        mean = self.mean(hidden)
        parts: list[tuple[AbstractDistribution, tuple[int, ...]]] = []
        if self.log_var is not None:
            log_var = self._held(self.log_var(hidden))
            if self.numeric:
                parts.append((Normal(mean[:numeric], log_var[:numeric]), self.numeric))
            if self.counts:
                values = mean[numeric:spread], log_var[numeric:]
                levels = self.width, self.low, self.high
                parts.append((DiscretizedNormal(*values, *levels), self.counts))
        if self.binary:
            parts.append((Bernoulli(mean[spread:]), self.binary))
        return Joint(tuple(part for part, _ in parts), tuple(places for _, places in parts))

    def _held(self, log_var: Float[Array, " spread"]) -> Float[Array, " spread"]:
        """Hold log-variances in range, softly: clipped ones have no gradient to come back by."""
        low, high = self.log_var_range
        finest = [2.0 * math.log(FINEST_LEVEL * width) for width in self.width]
        floor = jnp.array([low] * len(self.numeric) + [max(low, f) for f in finest], log_var.dtype)
        # A count of few levels may have a floor near the ceiling, or above it.
        ceiling = jnp.maximum(high, floor + 2.0)
        below = ceiling - jax.nn.softplus(ceiling - log_var)
        return floor + jax.nn.softplus(below - floor)


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


def _bounds(values: Sequence[float | int | None]) -> tuple[float | None, ...] | None:
    """Give None where no column is bounded: the mass of an edge need not be compiled then."""
    bounds = tuple(None if value is None else float(value) for value in values)
    return None if all(bound is None for bound in bounds) else bounds


def _require_families(families: Sequence[ColumnFamily], shape: tuple[int, ...]) -> None:
    """Refuse families that are not one for each column, or not of the kinds a column can have."""
    if shape != (len(families),):
        raise ValueError(
            f"`families` must have one for each element of a row, of shape {shape}; got"
            f" {len(families)}. Give the `family` of the table's data set."
        )
    for i, family in enumerate(families):
        kinds = (Normal, Bernoulli, DiscretizedNormal)
        if family.distribution not in kinds:
            raise ValueError(
                f"`families[{i}].distribution` must be one of"
                f" {', '.join(kind.__name__ for kind in kinds)}; got {family.distribution!r}."
            )
        if family.distribution is DiscretizedNormal and not family.width:
            raise ValueError(
                f"`families[{i}].width` is {family.width}, but a count's levels lie apart: give"
                " their distance in the scaled data."
            )
