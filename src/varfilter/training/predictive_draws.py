"""What a filter expects of a sequence, one step and many steps ahead, by many draws."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from varfilter import distributions
from varfilter._programs import kept_jit
from varfilter.data.continued import Continued
from varfilter.filtering import Belief, scan_steps, start
from varfilter.filters.base import AbstractFilter, Carry, driven_carry
from varfilter.model import AbstractModel, State, driven
from varfilter.simulation import steady_mean
from varfilter.training.predictive_scores import LEVELS, Predictions, Weighted

# Steps of one dispatch, and forecasts that are made side by side.
CHUNK, LOT = 64, 16
# Steps that a filter takes before the first that is scored, where there are any.
MOST_WARM = 256
# How many times as wide as they are predictions are scored too, about the median of their draws.
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
AS_IT_IS = WIDTHS.index(1.0)


class Drawn(NamedTuple):
    """What a filter expected of values, by draws, (values, columns) in the model's units.

    - `xs`: what came, NaN where nothing was observed. `mean`: the expected value.
    - `nats`: (values, widths, columns), -log p(x) of the column alone, were the prediction so
      many times as wide (`WIDTHS`, of which one is 1); NaN for what has that one width.
    - `draws`: (values, num_samples, columns), of what may come.
    """

    xs: np.ndarray
    mean: np.ndarray
    nats: np.ndarray
    draws: np.ndarray

    @property
    def centre(self) -> np.ndarray:
        """The median of the draws."""
        return np.median(self.draws, axis=1)

    def part(self, which: slice) -> "Drawn":
        """The draws of some of the values."""
        return Drawn(*(each[which] for each in self))

    @staticmethod
    def joined(parts: Sequence["Drawn"]) -> "Drawn":
        """The draws of several sequences as one."""
        return Drawn(*map(np.concatenate, zip(*parts, strict=True)))

    def scored(self) -> Predictions:
        """How good these predictions were, by the draws as they are."""
        own = Weighted.of([np.moveaxis(self.draws, 1, 0)], [np.ones(self.xs.shape)])
        nats = self.nats[:, AS_IT_IS]
        crps, quantiles, chances = own.crps(self.xs), own.quantiles(LEVELS), own.chances(self.xs)
        return Predictions(self.xs, self.mean, nats, crps, quantiles, chances)


class _Counts(NamedTuple):
    """How many draws make a prediction, and which elements are scored in other widths, too."""

    num_samples: int
    widened: tuple[int, ...]


def filter_predictions(
    filter: AbstractFilter,
    model: AbstractModel,
    sequences: Iterable[Continued],
    key: PRNGKeyArray,
    *,
    horizons: Sequence[int] = (1,),
    every: int = 1,
    num_samples: int = 256,
    widened: Sequence[int] = (),
) -> dict[int, Drawn]:
    """What the filter predicts so many steps ahead, for each of `horizons`, in their order.

    One step ahead it is of every step. Further ahead forecasts begin before every `every`-th step,
    counted from the first that is to be predicted, where all of the longest horizon is known. The
    elements `widened`, which have densities without bounds, are scored as if they were narrower or
    wider, too (`WIDTHS`).
    """
    counts = _Counts(num_samples, tuple(widened))
    further = tuple(sorted(horizon for horizon in horizons if horizon > 1))
    found: dict[int, list[Drawn]] = {horizon: [] for horizon in horizons}
    for number, sequence in enumerate(sequences):
        own_key = jax.random.fold_in(key, number)
        places = origins(sequence, further[-1], every) if further else np.zeros(0, int)
        next_steps = []
        for begin, xs, carries, drawn in _chunks(filter, model, sequence, own_key, counts):
            next_steps.append(_as_drawn(xs, drawn))
            here = places[(places >= begin) & (places < begin + CHUNK)]
            for first in range(0, len(here), LOT):
                lot = here[first : first + LOT]
                parts = _forecast(
                    filter, model, sequence, carries, lot, begin, own_key, further, counts
                )
                for horizon, part in zip(further, parts, strict=True):
                    found[horizon].append(part)
        if 1 in found:
            before = sequence.begin - 1 - _first(sequence)
            length = len(sequence) - sequence.begin
            found[1].append(Drawn.joined(next_steps).part(slice(before, before + length)))
    return {ahead: Drawn.joined(parts) for ahead, parts in found.items() if parts}


def origins(sequence: Continued, horizon: int, every: int) -> np.ndarray:
    """The steps before which forecasts begin that reach `horizon` steps, the last of them known."""
    return np.arange(sequence.begin, len(sequence) - horizon + 1, every)


def belief_before(
    filter: AbstractFilter,
    model: AbstractModel,
    sequence: Continued,
    place: int,
    key: PRNGKeyArray,
    *,
    num_samples: int = 256,
) -> Belief:
    """What the filter believes before it sees the step at `place`, which is to be predicted."""
    counts = _Counts(num_samples, ())
    for begin, _, carries, _ in _chunks(filter, model, sequence, key, counts):
        if place < begin + CHUNK:
            carry = jax.tree.map(lambda leaf, at=place - begin: leaf[at], carries)
            return Belief(carry, jnp.asarray(place - _first(sequence) - 1, jnp.int32))
    raise ValueError(f"`place` must be a step after the first; got {place} of {len(sequence)}.")


def _first(sequence: Continued) -> int:
    """The first step that a filter is told of."""
    return max(sequence.begin - 1 - MOST_WARM, 0)


def _chunks(
    filter: AbstractFilter,
    model: AbstractModel,
    sequence: Continued,
    key: PRNGKeyArray,
    counts: _Counts,
) -> Iterator[tuple[int, np.ndarray, Carry, tuple[Array, ...]]]:
    """Filter a sequence: (first step, xs, carries before each, what was expected) of each chunk."""
    belief = _start(filter, model, jnp.asarray(sequence.xs[_first(sequence)]), key)
    for begin in range(_first(sequence) + 1, len(sequence), CHUNK):
        xs = _padded(sequence.xs, begin, CHUNK, np.nan)
        us = None if sequence.us is None else jnp.asarray(_padded(sequence.us, begin, CHUNK, 0.0))
        mask = jnp.arange(CHUNK) < len(sequence) - begin
        belief, carries, drawn = _drawn_steps(
            filter, model, belief, jnp.asarray(xs), us, mask, key, counts
        )
        yield begin, xs, carries, drawn


def _forecast(
    filter: AbstractFilter,
    model: AbstractModel,
    sequence: Continued,
    carries: Carry,
    places: np.ndarray,
    begin: int,
    key: PRNGKeyArray,
    horizons: tuple[int, ...],
    counts: _Counts,
) -> list[Drawn]:
    """Forecast from before each of the places, a lot at once; for each horizon what is said of it.

    `carries` has what was carried before step `begin`, and those after it.
    """
    filled, longest = np.resize(places, LOT), horizons[-1]
    us = None
    if sequence.us is not None:
        us = jnp.asarray(np.stack([sequence.us[place : place + longest] for place in filled]))
    # What stands in the row of each step ahead; those between the horizons are in none.
    rows = np.full(longest, len(horizons))
    rows[np.array(horizons) - 1] = np.arange(len(horizons))
    xs = sequence.xs[filled[:, None] + np.array(horizons) - 1]
    found = _drawn_ahead(
        filter, model, carries, jnp.asarray(filled - begin), us, jnp.asarray(xs), key,
        jnp.asarray(filled), jnp.asarray(rows), counts,
    )  # fmt: skip
    part = slice(len(places))
    return [
        _as_drawn(xs[:, i], tuple(each[:, i] for each in found)).part(part)
        for i in range(len(horizons))
    ]


def _as_drawn(xs: np.ndarray, drawn: tuple[Array, ...]) -> Drawn:
    mean, nats = (np.asarray(each, np.float64) for each in drawn[:2])
    return Drawn(np.asarray(xs, np.float64), mean, nats, np.asarray(drawn[2]))


def _padded(values: np.ndarray, begin: int, size: int, padding: float) -> np.ndarray:
    part = values[begin : begin + size]
    missing = np.full((size - len(part), *values.shape[1:]), padding, values.dtype)
    return np.concatenate([part, missing])


def _drawn_steps(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    xs: Float[Array, "time size"],
    us: Float[Array, "time inputs"] | None,
    mask: Bool[Array, " time"],
    key: PRNGKeyArray,
    counts: _Counts,
) -> tuple[Belief, Carry, tuple[Array, ...]]:
    """The last belief, the carries before each step, and what was expected of it."""

    def take(belief: Belief, x_and_u: Any, exists: Array, key: PRNGKeyArray) -> Any:
        x, u = x_and_u
        carry = driven_carry(filter, model, belief.carry, u)
        own = jax.random.split(jax.random.fold_in(key, 1), counts.num_samples)
        drawn = jax.vmap(lambda key: _drawn(filter, model, carry, key))(own)
        drawn = _expected(x, *drawn, counts.widened)
        return filter.step(model, carry, x, key)[0], (belief.carry, drawn)

    belief, (carries, drawn) = scan_steps(take, belief, (xs, us), mask, key)
    return belief, carries, drawn


def _drawn_ahead(
    filter: AbstractFilter,
    model: AbstractModel,
    carries: Carry,
    offsets: Int[Array, " lot"],
    us: Float[Array, "lot longest inputs"] | None,
    xs: Float[Array, "lot horizons size"],
    key: PRNGKeyArray,
    places: Int[Array, " lot"],
    rows: Int[Array, " longest"],
    counts: _Counts,
) -> tuple[Array, ...]:
    """What is expected at each horizon, from some of the carries: (lot, horizons, ...).

    `rows` says of each step ahead which of the horizons it is; one that is none of them has a
    number beyond theirs, and is simulated only.
    """

    def one(offset: Array, us: Array | None, xs: Array, place: Array) -> tuple[Array, ...]:
        carry = jax.tree.map(lambda leaf: leaf[offset], carries)
        key_state, key_steps = jax.random.split(
            jax.random.fold_in(jax.random.fold_in(key, place), 1)
        )
        states = jax.vmap(lambda key: filter.draw(model, carry, key))(
            jax.random.split(key_state, counts.num_samples)
        )

        def step(carried: tuple[State, Any], t_row_u: Any) -> tuple[tuple[State, Any], None]:
            (states, found), (t, row, u) = carried, t_row_u
            x = xs[jnp.minimum(row, len(xs) - 1)]
            keys = jax.random.split(jax.random.fold_in(key_steps, t), counts.num_samples)

            def go_on(state: State, key: PRNGKeyArray) -> tuple[State, tuple[Any, Array]]:
                state = driven(model, state, u)
                z, emitted = _emitted(model, state, key)
                return model.advance(state, z, model.embed(emitted[1])), emitted

            states, emitted = jax.vmap(go_on)(states, keys)

            def put(found: Any) -> Any:
                new = _expected(x, *emitted, counts.widened)
                return jax.tree.map(lambda kept, new: kept.at[row].set(new), found, new)

            # Most steps are none of the horizons, and densities are the larger part of the work.
            found = jax.lax.cond(row < len(xs), put, lambda found: found, found)
            return (states, found), None

        size = xs.shape[-1]
        shapes = ((size,), (len(WIDTHS), size), (counts.num_samples, size))
        nothing = tuple(jnp.zeros((len(xs), *shape), xs.dtype) for shape in shapes)
        parts = (jnp.arange(len(rows)), rows, us)
        return jax.lax.scan(step, (states, nothing), parts)[0][1]

    return jax.vmap(one)(offsets, us, xs, places)


def _drawn(
    filter: AbstractFilter, model: AbstractModel, carry: Carry, key: PRNGKeyArray
) -> tuple[Any, Array]:
    key_state, key_last = jax.random.split(key)
    return _emitted(model, filter.draw(model, carry, key_state), key_last)[1]


def _emitted(
    model: AbstractModel, state: State, key: PRNGKeyArray
) -> tuple[Any, tuple[Any, Array]]:
    """z, and (the emission after it, a draw of that)."""
    key_z, key_x = jax.random.split(key)
    z = distributions.sample(model.prior(state), key_z)
    emission = model.emission(state, z)
    return z, (emission, emission.sample(key_x))


def _expected(
    x: Array, emissions: Any, draws: Array, widened: tuple[int, ...]
) -> tuple[Array, ...]:
    """(mean, nats, draws) of the mixture that so many emissions, and a draw of each, stand for."""
    count, centre = jnp.asarray(draws.shape[0], x.dtype), jnp.median(draws, axis=0)

    def nats(places: Array, values: Array) -> Array:
        """-log p of each of the values at its place, alone: the others were not observed."""
        alone = jnp.where(jnp.arange(x.size)[None] == places[:, None], values[:, None], jnp.nan)
        log_probs = jax.vmap(lambda emission: jax.vmap(emission.log_prob)(alone))(emissions)
        return jnp.log(count) - jax.nn.logsumexp(log_probs, axis=0)

    found = jnp.full((len(WIDTHS), x.size), jnp.nan, x.dtype)
    found = found.at[AS_IT_IS].set(nats(jnp.arange(x.size), x))
    if widened:
        own = jnp.asarray(widened)

        def nats_of_width(width: Array) -> Array:
            """-log p of the mixture so many times as wide about its centre."""
            place = centre[own] + (x[own] - centre[own]) / width
            return nats(own, place) + jnp.log(width)

        numbers = np.array([k for k in range(len(WIDTHS)) if k != AS_IT_IS])
        wider = jax.lax.map(nats_of_width, jnp.asarray(WIDTHS, x.dtype)[numbers])
        found = found.at[numbers[:, None], own].set(wider)
    means = jax.vmap(lambda emission: emission.mean)(emissions)
    return steady_mean(means), found, draws


_start = kept_jit(start)
_drawn_steps, _drawn_ahead = kept_jit(_drawn_steps), kept_jit(_drawn_ahead)
