"""A close look at some sequences: predictions, inferences, surprise; and their calibration.

Predictions are right where they mean what they say. Numeric values: the rank u of x among draws
of its prediction is uniform on (0, 1) if the predictions are right; the central interval of level
c then holds x, |2u - 1| <= c, as often as c. Values of 0 and 1: of the steps where p was
predicted, a part p should be 1.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from varfilter import distributions
from varfilter.data.dataset import Dataset
from varfilter.filtering import Belief, scan_steps, start
from varfilter.filters import AbstractFilter, ParticleFilter, VariationalFilter
from varfilter.filters.base import Carry, driven_carry
from varfilter.filters.ensemble import EnsembleFilter, pooled
from varfilter.media import Inspection
from varfilter.model import AbstractModel
from varfilter.plots.figures import InspectedSequence
from varfilter.prediction import predictive_quantiles

# The quantiles of a prediction between which its band is drawn.
LOW, HIGH = 0.05, 0.95
# What is folded into the key for the draws of predictions: a number that no sequence has.
DRAWS = 0xFFFFFFFF
# The levels of the intervals whose coverage is counted.
NOMINAL = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
NUM_BINS = 10


def inspect_sequences(
    filter: AbstractFilter,
    model: AbstractModel,
    dataset: Dataset,
    key: PRNGKeyArray,
    numbers: np.ndarray,
    *,
    split: str,
    inspection: Inspection,
) -> list[InspectedSequence]:
    """Filter the sequences of a split with these numbers, each up to `inspection.num_steps`.

    The filter draws as in `evaluate` with the same key: the surprises are the same.
    """
    names = dataset.sequence_names(split)
    ragged = dataset.split(split)
    widths = jnp.broadcast_to(_half_widths(dataset), dataset.observation_shape)
    longest = int(np.max(ragged.lengths[numbers])) // dataset.rows_per_step - 1
    # Rounded up: few lengths, few programs.
    most_steps = min(inspection.num_steps, 8 * -(-longest // 8))
    rows = (most_steps + 1) * dataset.rows_per_step
    found = []
    for number in map(int, numbers):
        xs = dataset.observations(np.asarray(ragged[number][:rows]))
        # Steps of which nothing is seen, at the end: all sequences share one program.
        padding = np.full((most_steps + 1 - len(xs), *xs.shape[1:]), np.nan, xs.dtype)
        padded = jnp.asarray(np.concatenate([xs, padding]))
        us = dataset.known(split, number)
        if us is not None:
            us = us[: len(xs)]
            us = jnp.asarray(np.concatenate([us, np.zeros((len(padding), us.shape[1]), us.dtype)]))
        keys = (
            jax.random.fold_in(key, number),
            jax.random.fold_in(jax.random.fold_in(key, DRAWS), number),
        )
        scanned = _inspected(filter, model, padded, us, keys, widths, inspection.num_samples)
        parts: list[Any] = [
            None if part is None else np.asarray(part)[: len(xs) - 1] for part in scanned
        ]
        num_steps = len(ragged[number]) // dataset.rows_per_step - 1
        times = dataset.times.get(split)
        times = None if times is None else np.asarray(times[number])[1 : len(xs)]
        inspected = InspectedSequence(names[number], 1, num_steps, xs[1:], *parts)
        found.append(inspected._replace(times=times))
    return found


def calibration(dataset: Dataset, inspected: Sequence[InspectedSequence]) -> list[dict[str, Any]]:
    """The calibration of each column that has a name, else of all elements, as plain JSON."""
    if not dataset.columns:
        return [_calibration_of(None, *_values(inspected), is_binary=dataset.is_binary)]
    return [
        _calibration_of(column, *_values(inspected, i), is_binary=family.is_binary)
        for i, (column, family) in enumerate(dataset.column_families)
    ]


def coverage(ranks: np.ndarray) -> list[float]:
    """The share of the values that lies in the central interval of each nominal level."""
    return [float(np.mean(np.abs(2 * ranks - 1) <= level)) for level in NOMINAL]


def reliability(probabilities: np.ndarray, ones: np.ndarray) -> dict[str, list[float]]:
    """The mean prediction and the frequency of ones, by bins of the predicted probability.

    Bins in which there is nothing are left out; `counts` says how many values the others hold.
    """
    bins = _bins(probabilities)
    counts = np.bincount(bins, minlength=NUM_BINS)
    filled = counts > 0
    predicted = np.bincount(bins, probabilities, NUM_BINS)[filled] / counts[filled]
    observed = np.bincount(bins, ones, NUM_BINS)[filled] / counts[filled]
    return {
        "predicted": predicted.tolist(),
        "observed": observed.tolist(),
        "counts": counts[filled].tolist(),
    }


def _bins(probabilities: np.ndarray) -> np.ndarray:
    return np.minimum((probabilities * NUM_BINS).astype(int), NUM_BINS - 1)


def share_error(is_inside: np.ndarray, owners: np.ndarray) -> float:
    """The standard error of a share of values that belong to several sequences.

    The values of a sequence are alike, so that what counts are the sequences: of a ratio of sums
    over them, sqrt(G / (G - 1) sum_i (s_i - r n_i)^2) / n for G sequences of n_i values, s_i of
    them inside. Of one sequence it is that of independent values, which is the least it can be.
    """
    numbers = np.bincount(owners).astype(np.float64)
    inside = np.bincount(owners, is_inside)[numbers > 0]
    numbers = numbers[numbers > 0]
    share, total = inside.sum() / numbers.sum(), numbers.sum()
    if len(numbers) == 1:
        return float(np.sqrt(share * (1 - share) / total))
    correction = len(numbers) / (len(numbers) - 1)
    return float(np.sqrt(correction * np.sum((inside - share * numbers) ** 2)) / total)


def _calibration_of(
    column: str | None,
    ranks: np.ndarray,
    means: np.ndarray,
    xs: np.ndarray,
    owners: np.ndarray,
    *,
    is_binary: bool,
) -> dict[str, Any]:
    seen = ~np.isnan(xs)
    owners = owners[seen]
    head = {"column": column, "num_values": int(seen.sum())}
    if is_binary:
        found = reliability(means[seen].astype(np.float64), xs[seen].astype(np.float64))
        bins = _bins(means[seen].astype(np.float64))
        errors = [
            share_error(xs[seen][bins == each] > 0.5, owners[bins == each])
            for each in np.unique(bins)
        ]
        found["standard_error"] = errors
        distance = np.abs(np.subtract(found["predicted"], found["observed"]))
        # The mean distance of the two, each bin weighed by what is in it.
        error = float(np.average(distance, weights=found["counts"])) if seen.any() else None
        return {**head, "kind": "binary", **found, "error": error}
    ranks = ranks[seen]
    observed = coverage(ranks) if seen.any() else [None] * len(NOMINAL)
    distances = np.abs(2 * ranks - 1)
    errors = [share_error(distances <= level, owners) for level in NOMINAL] if seen.any() else []
    counts = np.histogram(ranks, NUM_BINS, (0.0, 1.0))[0]
    return {
        **head,
        "kind": "numeric",
        "nominal": list(NOMINAL),
        "observed": observed,
        "standard_error": errors,
        "ranks": counts.tolist(),
    }


def _values(
    inspected: Sequence[InspectedSequence], column: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The ranks, predicted means and values of all steps, of a column or of all elements.

    Last, the number of the sequence that each belongs to.
    """

    def joined(arrays: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([(a if column is None else a[:, column]).ravel() for a in arrays])

    return (
        joined([each.ranks for each in inspected]),
        joined([each.mean for each in inspected]),
        joined([each.xs for each in inspected]),
        joined([np.full(each.xs.shape, i) for i, each in enumerate(inspected)]),
    )


def _half_widths(dataset: Dataset) -> Array:
    """Half the distance of two levels, by element: values that are nearer are the same."""
    widths = [(family.width or 0.0) / 2 for family in dataset.families]
    is_by_column = isinstance(dataset.family, tuple)
    return jnp.asarray(widths if is_by_column else widths[0], jnp.result_type(float))


@eqx.filter_jit
def _inspected(
    filter: AbstractFilter,
    model: AbstractModel,
    xs: Array,
    us: Array | None,
    keys: tuple[PRNGKeyArray, PRNGKeyArray],
    half_widths: Array,
    num_samples: int,
) -> tuple[Array | None, ...]:
    key_filter, key_draws = keys

    def drawn(carry: Carry, key: PRNGKeyArray) -> tuple[Array, Array]:
        key_state, key_z, key_x = jax.random.split(key, 3)
        state = filter.draw(model, carry, key_state)
        emission = model.emission(state, distributions.sample(model.prior(state), key_z))
        return emission.sample(key_x), emission.mean

    def take(belief: Belief, x_and_u: Any, exists: Array, key: PRNGKeyArray) -> Any:
        x, u = x_and_u
        carry = driven_carry(filter, model, belief.carry, u)
        key_rank, key_samples = jax.random.split(jax.random.fold_in(key_draws, belief.t))
        each = jax.random.split(key_samples, num_samples)
        samples, means = jax.vmap(lambda k: drawn(carry, k))(each)
        low, high = predictive_quantiles(samples, (LOW, HIGH))
        after, reconstruction, bound = _step(filter, model, carry, x, key)
        ranks = _rank(x, samples, half_widths, key_rank)
        return after, (jnp.mean(means, axis=0), low, high, ranks, reconstruction, -bound)

    mask = jnp.ones((len(xs) - 1,), bool)
    first = start(filter, model, xs[0], key_filter)
    later = (xs[1:], None if us is None else us[1:])
    return scan_steps(take, first, later, mask, key_filter)[1]


def _step(
    filter: AbstractFilter, model: AbstractModel, carry: Any, x: Array, key: PRNGKeyArray
) -> tuple[Any, Array | None, Array]:
    """(carry, mean of p(x | z) for the z ~ q that are passed on, bound) after one step."""
    if isinstance(filter, EnsembleFilter):
        after, means, bounds = filter.each(
            lambda filter, model, carry, key: _step(filter, model, carry, x, key),
            model, carry, filter.keys(key),
        )  # fmt: skip
        return after, jnp.mean(means, axis=0), pooled(bounds, axis=0)
    if not isinstance(filter, VariationalFilter):
        after, filtered = filter.step(model, carry, x, key)
        if not isinstance(filter, ParticleFilter):
            return after, None, filtered.bound
        posterior = filtered.posterior
        means = jax.vmap(lambda state, z: model.emission(state, z).mean)(
            carry.states, posterior.values
        )
        return after, jnp.tensordot(posterior.weights, means, axes=1), filtered.bound
    emission = model.emission(carry.state, filter.trace(model, carry, x, key).z)
    after, filtered = filter.step(model, carry, x, key)
    return after, emission.mean, filtered.bound


def _rank(x: Array, samples: Array, half_widths: Array, key: PRNGKeyArray) -> Array:
    """(number of draws below x + u (number equal + 1)) / (number of draws + 1), u uniform."""
    distance = samples - x[None]
    below = jnp.sum(distance < -half_widths[None], axis=0)
    equal = jnp.sum(jnp.abs(distance) <= half_widths[None], axis=0)
    uniform = jax.random.uniform(key, x.shape, x.dtype)
    counted = below.astype(x.dtype) + uniform * (equal + 1).astype(x.dtype)
    return jnp.where(jnp.isnan(x), x, counted / (samples.shape[0] + 1))
