"""Levels that move: a model of how much x_t changes, as a model of x_t."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from varfilter._arguments import kind
from varfilter.contracts import first_step, require_model
from varfilter.distributions import AbstractDistribution, Joint
from varfilter.distributions.base import Move
from varfilter.model import AbstractModel, State


class DifferencedState(eqx.Module):
    """The state of the model of changes, x_{t-1}, and 1 if that is known, else 0."""

    changes: State
    last: Float[Array, " size"]
    has_last: Float[Array, ""]


class Differenced(AbstractModel):
    """x_t = x_{t-1} + drift + scale * c_t, and `model` is of c_t: p(x_t) = p(c_t) / scale.

    A level that moves on has no range of values in which a network could have learned it; its
    changes have. What is predicted is a distribution of x_t itself, that of c_t moved by x_{t-1}:
    so bounds, scores and forecasts are of x_t, in its own units.

    - `model`: any model of vectors, of the standardised changes c_t: it sees nothing else of x_t.
    - `scale`: of the changes of each element, in units of x, so that c_t is of order one however
      small the changes are beside the levels; None: the element is no change, but x_t as it is.
    - `drift`: the mean change of each element (0).
    - `first_mean`, `first_std`: of a level before which nothing is known (0 and 1, which is so of
      standardised levels): x_0 ~ N(first_mean, first_std^2) where it was not given.
    - `low`, `high`: the lowest and the highest level of x_t, of elements that are quantised or
      held at bounds.

    An element of which x_{t-1} was not observed was drawn by the filter, as any other that is
    missing; so the last value is always known, in each trajectory by itself.
    """

    model: AbstractModel
    scale: tuple[float | None, ...] = eqx.field(static=True)
    drift: tuple[float, ...] = eqx.field(static=True)
    first_mean: tuple[float, ...] = eqx.field(static=True)
    first_std: tuple[float, ...] = eqx.field(static=True)
    low: tuple[float | None, ...] = eqx.field(static=True)
    high: tuple[float | None, ...] = eqx.field(static=True)
    input_size: int = eqx.field(static=True)

    def __init__(
        self,
        model: AbstractModel,
        scale: Sequence[float | None],
        *,
        drift: Sequence[float] | None = None,
        first_mean: Sequence[float] | None = None,
        first_std: Sequence[float] | None = None,
        low: Sequence[float | None] | None = None,
        high: Sequence[float | None] | None = None,
    ):
        require_model(model)
        emission = first_step(model).emission
        if len(emission.shape) != 1:
            raise ValueError(
                f"`model` must be of vectors, whose elements move one by one; that of"
                f" `{type(model).__name__}` have the shape {emission.shape}."
            )
        size = emission.shape[0]
        self.model = model
        self.scale = _for_each("scale", scale, size)
        self.drift = _for_each("drift", drift, size, 0.0)
        self.first_mean = _for_each("first_mean", first_mean, size, 0.0)
        self.first_std = _for_each("first_std", first_std, size, 1.0)
        self.low = _for_each("low", low, size, None)
        self.high = _for_each("high", high, size, None)
        self.input_size = model.input_size
        for name, values in (("scale", self.scale), ("first_std", self.first_std)):
            if any(value is not None and not 0 < value < float("inf") for value in values):
                raise ValueError(
                    f"`{name}` must be positive and finite, of each element; got {values}."
                )
        if all(value is None for value in self.scale):
            raise ValueError(
                "`scale` is None of every element, so that none would be a change. Give the scale"
                " of the changes of one, or use the model as it is."
            )
        _require_movable(emission, self._moves, tuple(range(size)))

    @property
    def core(self) -> AbstractModel:
        """The model of the changes, or what that has inside."""
        return self.model.core

    def inside(self, state: DifferencedState, x: Float[Array, " size"]) -> tuple[State, Array]:
        """The state of the model of changes, and c_t."""
        return self.model.inside(state.changes, self._change(state, x))

    def init(self, x0: Float[Array, " size"] | None = None) -> DifferencedState:
        """Begin at `x0`; the model of changes is told those elements of it that are no changes."""
        if x0 is None:
            last = jnp.asarray(self.first_mean, jnp.result_type(float))
            return DifferencedState(self.model.init(None), last, jnp.zeros(()))
        told = None if self._moves.all() else jnp.where(self._moves, 0.0, x0)
        return DifferencedState(self.model.init(told), x0, jnp.ones(()))

    def drive(self, state: DifferencedState, u: Float[Array, " inputs"]) -> DifferencedState:
        """Fold u_t into the state of the model of changes."""
        return DifferencedState(self.model.drive(state.changes, u), state.last, state.has_last)

    def embed(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """Return x_t itself: its change depends on the past."""
        return x

    def prior(self, state: DifferencedState) -> Any:
        """The prior of the model of changes."""
        return self.model.prior(state.changes)

    def emission(self, state: DifferencedState, z: Any) -> AbstractDistribution:
        """The distribution of c_t, moved by x_{t-1}; without one, by all that it may have been."""
        moves, last = self._moves, state.last
        offset = jnp.where(moves, last + jnp.asarray(self.drift, last.dtype), 0.0)
        unknown = jnp.asarray(self.first_std, last.dtype) * (1.0 - state.has_last)
        scale = np.array([1.0 if value is None else value for value in self.scale])
        move = Move(offset, jnp.where(moves, unknown, 0.0), scale, moves)
        moved = self.model.emission(state.changes, z).moved(move)
        return _bounded(moved, self.low, self.high)

    def advance(
        self, state: DifferencedState, z: Any, features: Float[Array, " size"]
    ) -> DifferencedState:
        """Tell the model of changes c_t, and keep x_t."""
        embedded = self.model.embed(self._change(state, features))
        changes = self.model.advance(state.changes, z, embedded)
        return DifferencedState(changes, features, jnp.ones_like(state.has_last))

    @property
    def _moves(self) -> np.ndarray:
        return np.array([value is not None for value in self.scale])

    def _change(self, state: DifferencedState, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """c_t = (x_t - x_{t-1} - drift) / scale, by element; after nothing, that is no change."""
        scale = jnp.asarray([1.0 if value is None else value for value in self.scale], x.dtype)
        change = (x - state.last - jnp.asarray(self.drift, x.dtype)) / scale
        # A level that nothing came before tells of no change; NaN stays, since it was not seen.
        change = jnp.where(jnp.isnan(x) | (state.has_last > 0), change, 0.0)
        return jnp.where(self._moves, change, x)


def _bounded(
    distribution: Any, low: tuple[float | None, ...], high: tuple[float | None, ...]
) -> AbstractDistribution:
    """Put the lowest and highest levels of x_t on the families that have such."""
    if isinstance(distribution, Joint):
        parts = [
            _bounded(part, tuple(low[i] for i in places), tuple(high[i] for i in places))
            for part, places in zip(distribution.parts, distribution.places, strict=True)
        ]
        return Joint(tuple(parts), distribution.places)
    is_free = all(value is None for value in (*low, *high))
    return distribution if is_free else distribution.bounded(low, high)


def _require_movable(distribution: Any, moves: np.ndarray, places: tuple[int, ...]) -> None:
    """Refuse families of which no member is what another is after a move."""
    if isinstance(distribution, Joint):
        for part, own in zip(distribution.parts, distribution.places, strict=True):
            _require_movable(part, moves[np.array(own)], tuple(places[i] for i in own))
        return
    if not moves.any():
        return
    element = places[int(np.flatnonzero(moves)[0])]
    if type(distribution).moved is AbstractDistribution.moved:
        raise TypeError(
            f"`scale[{element}]` is of an element with a `{type(distribution).__name__}`"
            " distribution, which cannot be moved by the last value: what it gives would lie where"
            " no value can. Give None, so that the element is predicted as it is."
        )
    low, high = (getattr(distribution, name, None) for name in ("low", "high"))
    for values in (low, high):
        each = values if isinstance(values, tuple) else (values,) * len(moves)
        if any(value is not None for value, moving in zip(each, moves, strict=True) if moving):
            raise ValueError(
                f"`scale[{element}]` is of an element whose changes have a lowest or a highest"
                " level; those belong to x_t. Give them as `low` and `high` here, and none to the"
                " `model` of changes."
            )


def _for_each(name: str, values: Any, size: int, *default: Any) -> tuple:
    """One for each element of the vector; the default, where there is one, if none were given."""
    values = default * size if values is None else values
    if isinstance(values, str) or not hasattr(values, "__len__") or len(values) != size:
        raise ValueError(
            f"`{name}` must have one entry for each of the {size} elements of x_t; got"
            f" {kind(values)}."
        )
    return tuple(None if value is None else float(value) for value in values)
