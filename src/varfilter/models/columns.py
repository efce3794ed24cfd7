"""The columns of a table, each with a family of its own: from a last layer to one joint row.

A family is a class below: how many numbers of the last layer its columns take, and what
distribution these make. `CATALOGUE` lists them; a further family is one more class there.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.distributions import (
    AbstractDistribution,
    Bernoulli,
    Categorical,
    DiscretizedNormal,
    Joint,
    NegativeBinomial,
    Normal,
    Rectified,
    StudentT,
    ZeroInflated,
)
from varfilter.distributions.student import LEAST_FREEDOM
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
# From 1/50, where nearly all is in a few steps, to 1000, where events come as Poisson's do.
LOG_SIZE_RANGE = (-4.0, 7.0)
# Of the logarithm of what is positive: a standard deviation of 2 is a factor of 7 either way.
POSITIVE_LOG_VAR_RANGE = (-4.0, 1.4)
# A logarithm is held within so much of its usual value: the exponential of an outlier stays finite.
LARGEST_SHIFT = 10.0
# The degrees of freedom where learning starts, of a column of which none were fitted.
USUAL_FREEDOM = 5.0


# (lowest, highest)
Range = tuple[float, float]


@runtime_checkable
class ColumnFamily(Protocol):
    """What is known about a column; an entry of a table's `Dataset.family` is one.

    `distribution` is one of those in `CATALOGUE`; the others are what some of these take. One may
    say more: `freedom`, the degrees of freedom where learning starts; and `group`, what its element
    is a level of, where those of one group are one categorical column.
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


class AbstractColumns(eqx.Module):
    """The columns of one family in a row: where they stand, and the distribution of them.

    `num_locations` numbers of the last layer are theirs, and one for each of `spread_ranges`.
    """

    distribution: ClassVar[type[AbstractDistribution]]
    places: eqx.AbstractVar[tuple[int, ...]]

    @classmethod
    @abstractmethod
    def of(cls, places: tuple[int, ...], families: Sequence[ColumnFamily]) -> "AbstractColumns":
        """The columns at `places`, of these families."""

    @property
    def num_locations(self) -> int:
        """How many numbers say where the values lie: one a column."""
        return len(self.places)

    def spread_ranges(self, usual: Range) -> list[Range]:
        """The ranges of the numbers that say how far the values spread: `usual`, one a column."""
        return [usual] * len(self.places)

    @abstractmethod
    def __call__(
        self, location: Float[Array, " locations"], spread: Float[Array, " spreads"]
    ) -> AbstractDistribution:
        """The distribution of the columns, of one vector."""


class NumericColumns(AbstractColumns):
    """N(location, exp(spread))."""

    distribution = Normal
    places: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, places: tuple[int, ...], families: Sequence[ColumnFamily]) -> "NumericColumns":
        """The columns at `places`, of which nothing else need be known."""
        return cls(places)

    def __call__(self, location: Array, spread: Array) -> Normal:
        """The Gaussian of the columns."""
        return Normal(location, spread)


class CountColumns(AbstractColumns):
    """Numeric columns, with the mass of each level."""

    distribution = DiscretizedNormal
    places: tuple[int, ...] = eqx.field(static=True)
    width: tuple[float, ...] = eqx.field(static=True)
    low: tuple[float | None, ...] | None = eqx.field(static=True)
    high: tuple[float | None, ...] | None = eqx.field(static=True)

    @classmethod
    def of(cls, places: tuple[int, ...], families: Sequence[ColumnFamily]) -> "CountColumns":
        """The columns at `places`, with the levels that each of them has."""
        lows, highs = ([getattr(f, name) for f in families] for name in ("low", "high"))
        return cls(places, _widths(places, families), _unless_none(lows), _unless_none(highs))

    def spread_ranges(self, usual: Range) -> list[Range]:
        """The ranges of log-variances: a standard deviation is a quarter of a level at least."""
        low, high = usual
        finest = [2.0 * math.log(FINEST_LEVEL * width) for width in self.width]
        return [(max(low, each), high) for each in finest]

    def __call__(self, location: Array, spread: Array) -> DiscretizedNormal:
        """The masses of the levels of the columns."""
        return DiscretizedNormal(location, spread, self.width, self.low, self.high)


class HeavyColumns(AbstractColumns):
    """Student's t around the location, with learned degrees of freedom for each column."""

    distribution = StudentT
    tails: Float[Array, " columns"]
    places: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, places: tuple[int, ...], families: Sequence[ColumnFamily]) -> "HeavyColumns":
        """The columns at `places`, with the degrees of freedom at which learning starts."""
        above = [
            max(float(getattr(family, "freedom", None) or USUAL_FREEDOM) - LEAST_FREEDOM, 0.1)
            for family in families
        ]
        return cls(tails=jnp.log(jnp.expm1(jnp.array(above))), places=places)

    def __call__(self, location: Array, spread: Array) -> StudentT:
        """Student's t of the columns."""
        return StudentT(location, spread, self.tails)


class BoundedColumns(AbstractColumns):
    """A Gaussian that is held at the bounds of each column."""

    distribution = Rectified
    places: tuple[int, ...] = eqx.field(static=True)
    low: tuple[float | None, ...] = eqx.field(static=True)
    high: tuple[float | None, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, places: tuple[int, ...], families: Sequence[ColumnFamily]) -> "BoundedColumns":
        """The columns at `places`, with their bounds; those of a change are put on elsewhere."""
        lows, highs = (
            tuple(None if value is None else float(value) for value in values)
            for values in ([f.low for f in families], [f.high for f in families])
        )
        return cls(places, lows, highs)

    def __call__(self, location: Array, spread: Array) -> Rectified:
        """The Gaussian of the columns, held at their bounds."""
        return Rectified(location, spread, self.low, self.high)


class EventColumns(AbstractColumns):
    """A negative binomial, whose mean is usually that of the training part."""

    distribution = NegativeBinomial
    places: tuple[int, ...] = eqx.field(static=True)
    width: tuple[float, ...] = eqx.field(static=True)
    low: tuple[float, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, places: tuple[int, ...], families: Sequence[ColumnFamily]) -> "EventColumns":
        """The columns at `places`, with their levels, of which the lowest is 0 events."""
        return cls(places, _widths(places, families), tuple(float(f.low or 0.0) for f in families))

    def spread_ranges(self, usual: Range) -> list[Range]:
        """The ranges of log r, one a column."""
        return [LOG_SIZE_RANGE] * len(self.places)

    def __call__(self, location: Array, spread: Array) -> NegativeBinomial:
        """The negative binomials of the columns."""
        # Standardised data have a mean of 0, which is so many levels above the lowest.
        usual = np.log(np.maximum(-np.array(self.low) / np.array(self.width), 0.01))
        log_mean = jnp.asarray(usual, location.dtype) + _shift(location)
        return NegativeBinomial(log_mean, spread, self.width, self.low)


class ZeroColumns(AbstractColumns):
    """Zero or log-normal: a logit and a logarithm for each column, and the spread of the latter."""

    distribution = ZeroInflated
    places: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, places: tuple[int, ...], families: Sequence[ColumnFamily]) -> "ZeroColumns":
        """The columns at `places`, of which nothing else need be known."""
        return cls(places)

    @property
    def num_locations(self) -> int:
        """How many numbers say where the values lie: a logit and a mean for each column."""
        return 2 * len(self.places)

    def spread_ranges(self, usual: Range) -> list[Range]:
        """The ranges of the log-variances of the logarithms, one a column."""
        return [POSITIVE_LOG_VAR_RANGE] * len(self.places)

    def __call__(self, location: Array, spread: Array) -> ZeroInflated:
        """Zero or log-normal, of the columns."""
        logits, log_mean = jnp.split(location, 2)
        return ZeroInflated(logits, _shift(log_mean), spread)


class BinaryColumns(AbstractColumns):
    """P(x = 1) = sigmoid(location)."""

    distribution = Bernoulli
    places: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, places: tuple[int, ...], families: Sequence[ColumnFamily]) -> "BinaryColumns":
        """The columns at `places`, of which nothing else need be known."""
        return cls(places)

    def spread_ranges(self, usual: Range) -> list[Range]:
        """A probability has no spread beside it."""
        return []

    def __call__(self, location: Array, spread: Array) -> Bernoulli:
        """The probabilities of the columns."""
        return Bernoulli(location)


class CategoricalColumn(AbstractColumns):
    """One column of several levels, each of which is an element: P = softmax(location)."""

    distribution = Categorical
    places: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, places: tuple[int, ...], families: Sequence[ColumnFamily]) -> "CategoricalColumn":
        """The levels at `places`, of which nothing else need be known."""
        return cls(places)

    def spread_ranges(self, usual: Range) -> list[Range]:
        """Probabilities have no spread beside them."""
        return []

    def __call__(self, location: Array, spread: Array) -> Categorical:
        """The probabilities of the levels."""
        return Categorical(location)


# In this order the columns of a row take their numbers of the last layer: new ones stand where
# rows of the older families keep theirs.
CATALOGUE: tuple[type[AbstractColumns], ...] = (
    NumericColumns,
    CountColumns,
    HeavyColumns,
    BoundedColumns,
    EventColumns,
    ZeroColumns,
    BinaryColumns,
    CategoricalColumn,
)


class ColumnHead(eqx.Module):
    """One product W h + b says where the values of all columns lie, and V h + c how they spread.

    Numeric columns are N(W h + b, exp(l)) with l = V h + c held softly to `log_var_range`;
    `CATALOGUE` has the other families. Give those of the data set:
    `head=functools.partial(ColumnHead, families=dataset.family)`.
    """

    mean: eqx.nn.Linear
    log_var: eqx.nn.Linear | None
    parts: tuple[AbstractColumns, ...]
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
        self.parts = tuple(
            kind.of(places, [families[i] for i in places])
            for kind in CATALOGUE
            for places in _places(kind, families)
        )
        self.log_var_range = log_var_range
        key_mean, key_log_var = jax.random.split(key)
        num_locations = sum(part.num_locations for part in self.parts)
        self.mean = linear(hidden_size, num_locations, key=key_mean)
        num_spreads = sum(len(part.spread_ranges(log_var_range)) for part in self.parts)
        self.log_var = linear(hidden_size, num_spreads, key=key_log_var) if num_spreads else None

    def __call__(self, hidden: Float[Array, " hidden"]) -> Joint:
        """Return the distribution of a row given the decoder's last layer."""
        location = self.mean(hidden)
        spread = jnp.zeros((0,)) if self.log_var is None else self._held(self.log_var(hidden))
        parts, first, first_spread = [], 0, 0
        for part in self.parts:
            last = first + part.num_locations
            last_spread = first_spread + len(part.spread_ranges(self.log_var_range))
            parts.append(part(location[first:last], spread[first_spread:last_spread]))
            first, first_spread = last, last_spread
        return Joint(tuple(parts), tuple(part.places for part in self.parts))

    def _held(self, log_var: Float[Array, " spread"]) -> Float[Array, " spread"]:
        """Hold spreads in their ranges, softly: clipped ones have no gradient to come back by."""
        usual = self.log_var_range
        ranges = [each for part in self.parts for each in part.spread_ranges(usual)]
        floor = jnp.array([low for low, _ in ranges], log_var.dtype)
        ceiling = jnp.array([high for _, high in ranges], log_var.dtype)
        # A count of few levels may have a floor near the ceiling, or above it.
        ceiling = jnp.maximum(ceiling, floor + 2.0)
        below = ceiling - jax.nn.softplus(ceiling - log_var)
        return floor + jax.nn.softplus(below - floor)


def _shift(location: Float[Array, " columns"]) -> Float[Array, " columns"]:
    """The location as it is near 0, and never further than `LARGEST_SHIFT`."""
    return LARGEST_SHIFT * jnp.tanh(location / LARGEST_SHIFT)


def _places(kind: type[AbstractColumns], families: Sequence[ColumnFamily]) -> list[tuple[int, ...]]:
    """The elements of a family: all together, but those of each group of levels by itself."""
    found: dict[Any, list[int]] = {}
    for i, family in enumerate(families):
        if family.distribution is kind.distribution:
            found.setdefault(getattr(family, "group", None), []).append(i)
    return [tuple(places) for places in found.values()]


def _widths(places: tuple[int, ...], families: Sequence[ColumnFamily]) -> tuple[float, ...]:
    """The distances of the levels of columns that have levels."""
    for i, family in zip(places, families, strict=True):
        if not family.width:
            raise ValueError(
                f"`families[{i}].width` is {family.width}, but a count's levels lie apart: give"
                " their distance in the scaled data."
            )
    return tuple(float(family.width or 0.0) for family in families)


def _unless_none(values: Sequence[float | int | None]) -> tuple[float | None, ...] | None:
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
    known = [kind.distribution for kind in CATALOGUE]
    for i, family in enumerate(families):
        if family.distribution not in known:
            raise ValueError(
                f"`families[{i}].distribution` must be one of"
                f" {', '.join(each.__name__ for each in known)}; got {family.distribution!r}."
            )
