"""A close look at some sequences: what was predicted before each step, and inferred after it."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from varfilter import distributions
from varfilter.data.dataset import Dataset, Family
from varfilter.filtering import Belief, scan_steps, start
from varfilter.filters import AbstractFilter, VariationalFilter
from varfilter.filters.base import Carry
from varfilter.model import AbstractModel

# The band of the predictions that is drawn.
LOW, HIGH = 0.05, 0.95
# What is folded into the key for the draws of predictions: a number that no sequence has.
DRAWS = 0xFFFFFFFF


class Looked(NamedTuple):
    """The scored steps of a sequence, in the model's units; time is the first axis of each.

    - `mean`, `low`, `high`: of the prediction p(x_t | x_<t, z_<t), the 5% and the 95% quantile.
    - `ranks`: of x_t among draws of its prediction, from 0 to 1, with ties broken at random:
      uniform if the predictions are right (the randomised probability integral transform).
      NaN where x_t is missing.
    - `reconstruction`: the mean of p(x_t | z_t) for the z_t ~ q_t that is passed on; None for
      filters that have no single q.
    - `surprise`: minus the bound, in nats.

    `first` is the number of the first of these steps (0 is conditioned on, not scored), and
    `num_steps` of the last that the whole sequence has.
    """

    name: str
    first: int
    num_steps: int
    xs: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    ranks: np.ndarray
    reconstruction: np.ndarray | None
    surprise: np.ndarray


def look(
    filter: AbstractFilter,
    model: AbstractModel,
    dataset: Dataset,
    key: PRNGKeyArray,
    numbers: np.ndarray,
    *,
    split: str,
    most_steps: int,
    num_samples: int,
) -> list[Looked]:
    """The first `most_steps` scored steps of some sequences, one after another.

    The filter draws as in `evaluate` with the same key: the surprises are the same.
    """
    names = names_of(dataset, split)
    ragged = dataset.split(split)
    widths = jnp.broadcast_to(_half_widths(dataset), dataset.observation_shape)
    longest = int(np.max(ragged.lengths[numbers])) // dataset.rows_per_step - 1
    # Rounded up: few lengths, few programs.
    most_steps = min(most_steps, 8 * -(-longest // 8))
    rows = (most_steps + 1) * dataset.rows_per_step
    found = []
    for number in map(int, numbers):
        xs = dataset.observations(np.asarray(ragged[number][:rows]))
        # Steps of which nothing is seen, at the end: all sequences share one program.
        padding = np.full((most_steps + 1 - len(xs), *xs.shape[1:]), np.nan, xs.dtype)
        padded = jnp.asarray(np.concatenate([xs, padding]))
        keys = (
            jax.random.fold_in(key, number),
            jax.random.fold_in(jax.random.fold_in(key, DRAWS), number),
        )
        told = _looked(filter, model, padded, keys, widths, num_samples)
        parts: list[Any] = [
            None if part is None else np.asarray(part)[: len(xs) - 1] for part in told
        ]
        num_steps = len(ragged[number]) // dataset.rows_per_step - 1
        found.append(Looked(names[number], 1, num_steps, xs[1:], *parts))
    return found


def loudest_window(looked: Looked, num_steps: int) -> Looked:
    """The `num_steps` neighbouring steps with the largest squares: speech begins with silence."""
    loudness = np.nansum(np.square(looked.xs.reshape(len(looked.xs), -1)), axis=1)
    sums = np.convolve(loudness, np.ones(min(num_steps, len(loudness))), "valid")
    begin = int(np.argmax(sums))
    window = slice(begin, begin + num_steps)
    cut: list[Any] = [part if part is None else part[window] for part in looked[3:]]
    return Looked(looked.name, looked.first + begin, looked.num_steps, *cut)


def most_surprising(looked: Looked, count: int = 3) -> list[dict[str, Any]]:
    """The steps with the highest surprise, in their order."""
    steps = np.sort(np.argsort(-looked.surprise, kind="stable")[:count])
    return [{"step": looked.first + int(t), "surprise": float(looked.surprise[t])} for t in steps]


def names_of(dataset: Dataset, split: str) -> tuple[str, ...]:
    """Of the sequences; those that have none are numbered."""
    count = len(dataset.split(split))
    return dataset.names.get(split) or tuple(f"sequence {i}" for i in range(count))


def _half_widths(dataset: Dataset) -> Any:
    """Half the distance of two levels, by element: values that are nearer are the same."""
    families = dataset.family
    if isinstance(families, Family):
        return jnp.asarray((families.width or 0.0) / 2, jnp.result_type(float))
    return jnp.asarray([(f.width or 0.0) / 2 for f in families], jnp.result_type(float))


@eqx.filter_jit
def _looked(
    filter: AbstractFilter,
    model: AbstractModel,
    xs: Array,
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

    def take(belief: Belief, x: Array, exists: Array, key: PRNGKeyArray) -> Any:
        key_rank, key_samples = jax.random.split(jax.random.fold_in(key_draws, belief.t))
        each = jax.random.split(key_samples, num_samples)
        samples, means = jax.vmap(lambda k: drawn(belief.carry, k))(each)
        low, high = jnp.quantile(samples, jnp.asarray([LOW, HIGH], samples.dtype), axis=0)
        after, reconstruction, bound = _step(filter, model, belief.carry, x, key)
        ranks = _rank(x, samples, half_widths, key_rank)
        return after, (jnp.mean(means, axis=0), low, high, ranks, reconstruction, -bound)

    mask = jnp.ones((len(xs) - 1,), bool)
    return scan_steps(take, start(filter, model, xs[0]), xs[1:], mask, key_filter)[1]


def _step(
    filter: AbstractFilter, model: AbstractModel, carry: Any, x: Array, key: PRNGKeyArray
) -> tuple[Any, Array | None, Array]:
    """(carry, mean of p(x | z) for the z ~ q that is passed on, bound) after one step."""
    if not isinstance(filter, VariationalFilter):
        after, filtered = filter.step(model, carry, x, key)
        return after, None, filtered.bound
    trace = filter.trace(model, carry, x, key)
    emission = model.emission(carry.state, trace.z)
    return filter.advance(model, carry, trace), emission.mean, -trace.free_energy.total


def _rank(x: Array, samples: Array, half_widths: Array, key: PRNGKeyArray) -> Array:
    """(number of draws below x + u (number equal + 1)) / (number of draws + 1), u uniform."""
    distance = samples - x[None]
    below = jnp.sum(distance < -half_widths[None], axis=0)
    equal = jnp.sum(jnp.abs(distance) <= half_widths[None], axis=0)
    uniform = jax.random.uniform(key, x.shape, x.dtype)
    counted = below.astype(x.dtype) + uniform * (equal + 1).astype(x.dtype)
    return jnp.where(jnp.isnan(x), x, counted / (samples.shape[0] + 1))
