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

# In spreads of c_t: a change that lies farther out is told to the recurrence as this.
FARTHEST = 30.0
# A reading so many spreads from the last is no level that the next could be a change from.
ABSURD = 1e12


class DifferencedState(eqx.Module):
    """The state of the model of changes, x_{t-1}, and 1 if that is known, else 0.

    Where elements have seasons, `past` are x_{t-1}, x_{t-2}, ... as far back as the longest needs,
    and `num_past` is how many of them there were.
    """

    changes: State
    last: Float[Array, " size"]
    has_last: Float[Array, ""]
    past: Float[Array, "lags size"] | None = None
    num_past: Float[Array, ""] | None = None


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
    - `season`: of elements that come back after s steps, s: then c_t is the change beyond that of
      a season before, x_t = x_{t-1} + (x_{t-s} - x_{t-s-1}) + drift + scale * c_t. None: no season.
    - `season_spread`: the spread of x_t - x_{t-1} of such an element. Until a season and a step
      were seen, that is what is known of it: x_t ~ N(x_{t-1}, season_spread^2), widened by c_t's.

    The recurrence of `model` is told of no change beyond 30 times `scale`; what is scored is whole.
    After a reading that lies 1e12 times `scale` off, the level is what it was before.

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
    season: tuple[int | None, ...] = eqx.field(static=True)
    season_spread: tuple[float, ...] = eqx.field(static=True)
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
        season: Sequence[int | None] | None = None,
        season_spread: Sequence[float] | None = None,
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
        self.season = _seasons(season, size, self.scale)
        self.season_spread = _for_each("season_spread", season_spread, size, 1.0)
        self.input_size = model.input_size
        positive = {
            "scale": self.scale,
            "first_std": self.first_std,
            "season_spread": self.season_spread,
        }
        for name, values in positive.items():
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
            return DifferencedState(
                self.model.init(None), last, jnp.zeros(()), *self._first_past(last, 0.0)
            )
        told = None if self._moves.all() else jnp.where(self._moves, 0.0, x0)
        return DifferencedState(self.model.init(told), x0, jnp.ones(()), *self._first_past(x0, 1.0))

    def drive(self, state: DifferencedState, u: Float[Array, " inputs"]) -> DifferencedState:
        """Fold u_t into the state of the model of changes."""
        return eqx.tree_at(lambda s: s.changes, state, self.model.drive(state.changes, u))

    def embed(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """Return x_t itself: its change depends on the past."""
        return x

    def prior(self, state: DifferencedState) -> Any:
        """The prior of the model of changes."""
        return self.model.prior(state.changes)

    def emission(self, state: DifferencedState, z: Any) -> AbstractDistribution:
        """The distribution of c_t, moved by x_{t-1}; without one, by all that it may have been."""
        moves, last = self._moves, state.last
        before, is_known = self._before(state)
        offset = jnp.where(moves, before + jnp.asarray(self.drift, last.dtype), 0.0)
        in_first_season = jnp.where(is_known, 0.0, jnp.asarray(self.season_spread, last.dtype))
        nothing_before = jnp.asarray(self.first_std, last.dtype)
        unknown = jnp.where(state.has_last > 0, in_first_season, nothing_before)
        scale = np.array([1.0 if value is None else value for value in self.scale])
        move = Move(offset, jnp.where(moves, unknown, 0.0), scale, moves)
        moved = self.model.emission(state.changes, z).moved(move)
        return _bounded(moved, self.low, self.high)

    def advance(
        self, state: DifferencedState, z: Any, features: Float[Array, " size"]
    ) -> DifferencedState:
        """Tell the model of changes c_t, and keep x_t."""
        change = self._change(state, features)
        # One absurd reading of a sensor is not where it goes on from: the next, good one would be
        # the second to be absurd.
        is_absurd = self._moves & (jnp.abs(change) > ABSURD)
        level = jnp.where(is_absurd, state.last, features)
        # With heavy tails a draw may lie a thousand spreads out; a network that was told of it
        # would answer with as much, and a forecast feed that back to it step by step.
        change = jnp.where(self._moves, jnp.clip(change, -FARTHEST, FARTHEST), change)
        embedded = self.model.embed(change)
        changes = self.model.advance(state.changes, z, embedded)
        past, num_past = state.past, state.num_past
        if past is not None and num_past is not None:
            past = jnp.concatenate([level[None], past[:-1]])
            num_past = jnp.minimum(num_past + 1.0, float(len(past)))
        return DifferencedState(changes, level, jnp.ones_like(state.has_last), past, num_past)

    @property
    def _moves(self) -> np.ndarray:
        return np.array([value is not None for value in self.scale])

    def _change(self, state: DifferencedState, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """c_t = (x_t - x_{t-1} - drift) / scale, by element; after nothing, that is no change."""
        scale = jnp.asarray([1.0 if value is None else value for value in self.scale], x.dtype)
        before, is_known = self._before(state)
        change = (x - before - jnp.asarray(self.drift, x.dtype)) / scale
        # A level that nothing came before, or no season, tells of no change; NaN stays, since it
        # was not seen.
        is_change = (state.has_last > 0) & is_known
        change = jnp.where(jnp.isnan(x) | is_change, change, 0.0)
        return jnp.where(self._moves, change, x)

    def _first_past(self, last: Float[Array, " size"], count: float) -> tuple[Any, Any]:
        """What `past` and `num_past` are at the start; None without seasons."""
        longest = max((s for s in self.season if s is not None), default=None)
        if longest is None:
            return None, None
        # All the same, so that a season before makes no difference while there is none.
        return jnp.tile(last, (longest + 1, 1)), jnp.asarray(count, last.dtype)

    def _before(self, state: DifferencedState) -> tuple[Array, Any]:
        """What x_t is a change from, by element, and whether what that needs was seen."""
        if state.past is None or state.num_past is None:
            return state.last, np.ones(len(self.season), bool)
        has_season = np.array([s is not None for s in self.season])
        lag = np.array([s or 1 for s in self.season])
        elements = np.arange(len(lag))
        turn = state.past[lag - 1, elements] - state.past[lag, elements]
        is_known = ~has_season | (state.num_past > jnp.asarray(lag, state.num_past.dtype))
        return state.last + jnp.where(has_season & is_known, turn, 0.0), is_known


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


def _seasons(
    season: Sequence[int | None] | None, size: int, scale: tuple[float | None, ...]
) -> tuple[int | None, ...]:
    """The seasons of the elements as whole numbers; only what is a change has one."""
    found = _for_each("season", season, size, None)
    for element, (length, own) in enumerate(zip(found, scale, strict=True)):
        if length is not None and (length < 2 or length != int(length) or own is None):
            raise ValueError(
                f"`season[{element}]` must be a whole number of at least 2 steps, of an element"
                f" that has a `scale`; got {length:g} and {own}. Give None for no season."
            )
    return tuple(None if length is None else int(length) for length in found)


def _for_each(name: str, values: Any, size: int, *default: Any) -> tuple:
    """One for each element of the vector; the default, where there is one, if none were given."""
    values = default * size if values is None else values
    if isinstance(values, str) or not hasattr(values, "__len__") or len(values) != size:
        raise ValueError(
            f"`{name}` must have one entry for each of the {size} elements of x_t; got"
            f" {kind(values)}."
        )
    return tuple(None if value is None else float(value) for value in values)
