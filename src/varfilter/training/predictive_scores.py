"""How good predictions are, column by column: of a filter's many draws, and of Gaussians.

All are proper: the log score, -log p(x), and the continuous ranked probability score, E|X - x| -
E|X - X'| / 2 (Gneiting and Raftery 2007), are least on average for who says what he believes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from varfilter import distributions
from varfilter._programs import kept_jit
from varfilter.data.continued import Continued
from varfilter.data.dataset import Dataset
from varfilter.filtering import Belief, scan_steps, start
from varfilter.filters.base import AbstractFilter, Carry, driven_carry
from varfilter.model import AbstractModel, State, driven
from varfilter.prediction import predictive_quantiles, steady_mean

# The edges of the bands of 90% and 50%.
LEVELS = (0.05, 0.25, 0.75, 0.95)
# Steps of one dispatch, and forecasts that are made side by side.
CHUNK, LOT = 64, 16
# Steps that a filter takes before the first that is scored, where there are any.
MOST_WARM = 256
# Levels went through float32: what is on an edge of a band may lie a rounding beyond it.
SLACK = 1e-4


class Predictions(NamedTuple):
    """What was predicted of values and how well, (values, columns) in the model's units.

    - `xs`: what came, NaN where nothing was observed. `mean`: the expected value.
    - `nats`: -log p(x) of the column alone. `crps`: the continuous ranked probability score.
    - `quantiles`: (4, values, columns), at `LEVELS`; NaN for columns without bands.
    """

    xs: np.ndarray
    mean: np.ndarray
    nats: np.ndarray
    crps: np.ndarray
    quantiles: np.ndarray

    def part(self, which: slice) -> "Predictions":
        """Those of some of the values."""
        xs, mean, nats, crps = (each[which] for each in self[:-1])
        return Predictions(xs, mean, nats, crps, self.quantiles[:, which])

    @staticmethod
    def joined(parts: Sequence["Predictions"]) -> "Predictions":
        """Those of several sequences as one."""
        *others, quantiles = zip(*parts, strict=True)
        xs, mean, nats, crps = map(np.concatenate, others)
        return Predictions(xs, mean, nats, crps, np.concatenate(quantiles, axis=1))


def column_scores(dataset: Dataset, found: Predictions) -> dict[str, dict[str, Any]]:
    """The averages over the values of each column that were observed, as plain JSON.

    `rmse` and `crps` are in the column's own units, `nats` per value in the model's. `within_50`
    and `within_90` are the shares of values inside of the bands; columns of 0 and 1 and of levels
    have none.
    """
    scale = np.broadcast_to(np.asarray(dataset.scaling.scale, np.float64), found.xs.shape[1:])
    scores: dict[str, dict[str, Any]] = {}
    for i, (name, family) in enumerate(dataset.column_families):
        if family.group is not None:
            if family.group not in scores:
                places = [j for j, f in enumerate(dataset.families) if f.group == family.group]
                scores |= _level_scores(family.group, found, places)
            continue
        seen = ~np.isnan(found.xs[:, i])
        if not seen.any():
            continue
        xs, mean = found.xs[seen, i], found.mean[seen, i]
        crps = (mean - xs) ** 2 if family.is_binary else found.crps[seen, i]
        low, lower, upper, high = found.quantiles[:, seen, i]
        has_bands = not family.is_binary and not np.isnan(low).any()
        scores[name] = {
            "num_values": int(seen.sum()),
            "rmse": float(np.sqrt(np.mean((mean - xs) ** 2)) * scale[i]),
            "nats": float(np.mean(found.nats[seen, i])),
            "crps": float(np.mean(crps) * scale[i]),
            "within_50": _share(lower, xs, upper) if has_bands else None,
            "within_90": _share(low, xs, high) if has_bands else None,
        }
    return scores


def _level_scores(name: str, found: Predictions, places: list[int]) -> dict[str, dict[str, Any]]:
    """The scores of a column of levels, whose elements stand at these places; one of them came.

    The probabilities of a predictor that takes each level by itself are brought to a sum of one.
    Half the sum of squares is what a column of 0 and 1 has as its `crps`, with two levels.
    """
    seen = ~np.isnan(found.xs[:, places]).any(axis=1)
    if not seen.any():
        return {}
    xs, mean, nats = (each[seen][:, places] for each in (found.xs, found.mean, found.nats))
    chances = np.where(xs > 0.5, np.exp(-nats), -np.expm1(-nats))
    own = np.sum(xs * chances, axis=1) / np.sum(chances, axis=1)
    square = 0.5 * np.sum((mean - xs) ** 2, axis=1)
    return {
        name: {
            "num_values": int(seen.sum()),
            "rmse": float(np.sqrt(np.mean(square))),
            "nats": float(np.mean(-np.log(np.maximum(own, np.finfo(np.float64).tiny)))),
            "crps": float(np.mean(square)),
            "within_50": None,
            "within_90": None,
        }
    }


def _share(low: np.ndarray, xs: np.ndarray, high: np.ndarray) -> float:
    slack = SLACK * np.maximum(1.0, np.abs(xs))
    return float(np.mean((low - slack <= xs) & (xs <= high + slack)))


def filter_predictions(
    filter: AbstractFilter,
    model: AbstractModel,
    sequences: Iterable[Continued],
    key: PRNGKeyArray,
    *,
    horizon: int = 1,
    every: int = 1,
    num_samples: int = 256,
) -> dict[int, Predictions]:
    """What the filter predicts one step ahead of each step; and, if asked, `horizon` steps ahead.

    Forecasts begin before every `every`-th step, counted from the first that is to be predicted.
    """
    found: dict[int, list[Predictions]] = {1: [], horizon: []}
    for number, sequence in enumerate(sequences):
        own_key = jax.random.fold_in(key, number)
        places = origins(sequence, horizon, every) if horizon > 1 else np.zeros(0, int)
        next_steps = []
        for begin, xs, carries, scores in _chunks(filter, model, sequence, own_key, num_samples):
            next_steps.append(_predictions(xs, scores))
            here = places[(places >= begin) & (places < begin + CHUNK)]
            for first in range(0, len(here), LOT):
                lot = here[first : first + LOT]
                ahead = _forecast(
                    filter, model, sequence, carries, lot, begin, own_key, horizon, num_samples
                )
                found[horizon].append(ahead)
        whole, length = Predictions.joined(next_steps), len(sequence)
        before = sequence.begin - 1 - _first(sequence)
        found[1].append(whole.part(slice(before, before + length - sequence.begin)))
    return {ahead: Predictions.joined(parts) for ahead, parts in found.items() if parts}


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
    for begin, _, carries, _ in _chunks(filter, model, sequence, key, num_samples):
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
    num_samples: int,
) -> Iterator[tuple[int, np.ndarray, Carry, tuple[Array, ...]]]:
    """Filter a sequence: (first step, xs, carries before each step, scores) of each chunk."""
    belief = _start(filter, model, jnp.asarray(sequence.xs[_first(sequence)]), key)
    for begin in range(_first(sequence) + 1, len(sequence), CHUNK):
        xs = _padded(sequence.xs, begin, CHUNK, np.nan)
        us = None if sequence.us is None else jnp.asarray(_padded(sequence.us, begin, CHUNK, 0.0))
        mask = jnp.arange(CHUNK) < len(sequence) - begin
        belief, carries, scores = _scored_steps(
            filter, model, belief, jnp.asarray(xs), us, mask, key, num_samples
        )
        yield begin, xs, carries, scores


def _forecast(
    filter: AbstractFilter,
    model: AbstractModel,
    sequence: Continued,
    carries: Carry,
    places: np.ndarray,
    begin: int,
    key: PRNGKeyArray,
    horizon: int,
    num_samples: int,
) -> Predictions:
    """Forecast from before each of the places, a lot at once; the last step alone counts.

    `carries` has what was carried before step `begin`, and those after it.
    """
    filled = np.resize(places, LOT)
    xs, us = sequence.xs[filled + horizon - 1], None
    if sequence.us is not None:
        us = jnp.asarray(np.stack([sequence.us[place : place + horizon] for place in filled]))
    where = jnp.asarray(filled - begin)
    scores = _scored_ahead(
        filter, model, carries, where, us, jnp.asarray(xs), key, jnp.asarray(filled),
        horizon, num_samples,
    )  # fmt: skip
    return _predictions(xs, scores).part(slice(len(places)))


def _predictions(xs: np.ndarray, scores: tuple[Array, ...]) -> Predictions:
    mean, nats, crps, quantiles = (np.asarray(part, np.float64) for part in scores)
    return Predictions(np.asarray(xs, np.float64), mean, nats, crps, np.moveaxis(quantiles, 1, 0))


def _padded(values: np.ndarray, begin: int, size: int, padding: float) -> np.ndarray:
    part = values[begin : begin + size]
    missing = np.full((size - len(part), *values.shape[1:]), padding, values.dtype)
    return np.concatenate([part, missing])


def _scored_steps(
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    xs: Float[Array, "time size"],
    us: Float[Array, "time inputs"] | None,
    mask: Bool[Array, " time"],
    key: PRNGKeyArray,
    num_samples: int,
) -> tuple[Belief, Carry, tuple[Array, ...]]:
    """The last belief, the carries before each step, and the scores of what was predicted of it."""

    def take(belief: Belief, x_and_u: Any, exists: Array, key: PRNGKeyArray) -> Any:
        x, u = x_and_u
        carry = driven_carry(filter, model, belief.carry, u)
        own = jax.random.split(jax.random.fold_in(key, 1), num_samples)
        scores = _scores(x, *jax.vmap(lambda key: _drawn(filter, model, carry, x, key))(own))
        return filter.step(model, carry, x, key)[0], (belief.carry, scores)

    belief, (carries, scores) = scan_steps(take, belief, (xs, us), mask, key)
    return belief, carries, scores


def _scored_ahead(
    filter: AbstractFilter,
    model: AbstractModel,
    carries: Carry,
    offsets: Int[Array, " lot"],
    us: Float[Array, "lot horizon inputs"] | None,
    xs: Float[Array, "lot size"],
    key: PRNGKeyArray,
    places: Int[Array, " lot"],
    horizon: int,
    num_samples: int,
) -> tuple[Array, ...]:
    """The scores of what is predicted of the last of `horizon` steps, from some of the carries."""

    def one(offset: Array, us: Array | None, x: Array, place: Array) -> tuple[Array, ...]:
        carry = jax.tree.map(lambda leaf: leaf[offset], carries)
        own_key = jax.random.fold_in(jax.random.fold_in(key, place), 1)

        def future(key: PRNGKeyArray) -> tuple[Array, Array, Array]:
            key_state, key_steps, key_last = jax.random.split(key, 3)
            state = filter.draw(model, carry, key_state)
            before = None if us is None else us[:-1]
            state = _simulated(model, state, before, key_steps, horizon - 1)
            state = driven(model, state, None if us is None else us[-1])
            return _emitted(model, state, x, key_last)

        return _scores(x, *jax.vmap(future)(jax.random.split(own_key, num_samples)))

    return jax.vmap(one)(offsets, us, xs, places)


def _simulated(
    model: AbstractModel, state: State, us: Array | None, key: PRNGKeyArray, num_steps: int
) -> State:
    """The state after so many steps of the model's own making."""

    def step(state: State, t_and_u: Any) -> tuple[State, None]:
        t, u = t_and_u
        state = driven(model, state, u)
        key_z, key_x = jax.random.split(jax.random.fold_in(key, t))
        z = distributions.sample(model.prior(state), key_z)
        x = model.emission(state, z).sample(key_x)
        return model.advance(state, z, model.embed(x)), None

    return jax.lax.scan(step, state, (jnp.arange(num_steps), us))[0]


def _drawn(
    filter: AbstractFilter, model: AbstractModel, carry: Carry, x: Array, key: PRNGKeyArray
) -> tuple[Array, Array, Array]:
    key_state, key_last = jax.random.split(key)
    return _emitted(model, filter.draw(model, carry, key_state), x, key_last)


def _emitted(
    model: AbstractModel, state: State, x: Array, key: PRNGKeyArray
) -> tuple[Array, Array, Array]:
    """(the mean, a draw, log p(x) of each element alone) of the next emission after a draw of z."""
    key_z, key_x = jax.random.split(key)
    emission = model.emission(state, distributions.sample(model.prior(state), key_z))
    # An element alone: the others were not observed.
    alone = jnp.where(jnp.eye(x.size, dtype=bool), x[None], jnp.nan)
    return emission.mean, emission.sample(key_x), jax.vmap(emission.log_prob)(alone)


def _scores(x: Array, means: Array, draws: Array, log_probs: Array) -> tuple[Array, ...]:
    """(mean, nats, CRPS, quantiles) of the mixture that so many draws stand for."""
    count = draws.shape[0]
    nats = jnp.log(jnp.asarray(count, x.dtype)) - jax.nn.logsumexp(log_probs, axis=0)
    ordered = jnp.sort(draws, axis=0)
    # Sum over pairs of |X - X'| is that of the draws in order, each with its rank for a weight.
    ranks = jnp.asarray(2.0 * np.arange(1, count + 1) - count - 1.0, x.dtype)
    apart = jnp.tensordot(ranks, ordered, axes=1) / (count * max(count - 1, 1))
    crps = jnp.mean(jnp.abs(draws - x[None]), axis=0) - apart
    return steady_mean(means), nats, crps, predictive_quantiles(draws, LEVELS)


_start = kept_jit(start)
_scored_steps, _scored_ahead = kept_jit(_scored_steps), kept_jit(_scored_ahead)
