"""Train a filter and score filters, with a progress bar, and remember the curve."""

import time
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray
from rich.progress import Progress

from varfilter.filtering import run
from varfilter.filters import AbstractFilter, Filtered
from varfilter.learning import EndToEnd, LearnerState, Metrics, TimeParallel
from varfilter.model import AbstractModel


@dataclass(frozen=True)
class Trained:
    """A model and a filter after training; `curve` is the free energy of each update's batch."""

    model: AbstractModel
    filter: AbstractFilter
    curve: np.ndarray
    seconds: float
    num_skipped: int


@dataclass(frozen=True)
class Score:
    """Nats per step on held-out sequences; `free_energies` by inference iteration."""

    name: str
    free_energy: float
    free_energies: tuple[float, ...]
    prediction_error: float
    train_seconds: float | None = None


def adam(learning_rate: float, num_steps: int) -> optax.GradientTransformation:
    """Adam with a cosine decay to zero and the gradient's norm held to 10."""
    schedule = optax.cosine_decay_schedule(learning_rate, num_steps)
    return optax.chain(optax.clip_by_global_norm(10.0), optax.adam(schedule))


def train(
    name: str,
    learner: TimeParallel | EndToEnd,
    model: AbstractModel,
    filter: AbstractFilter,
    xs: Float[Array, "num_sequences time *event"],
    key: PRNGKeyArray,
    *,
    num_updates: int,
    batch_size: int,
    num_annealing: int = 0,
    progress: Progress,
) -> Trained:
    """`num_updates` updates on random batches; the KL's weight rises over `num_annealing`."""
    task = progress.add_task(f"train {name}", total=num_updates)
    state = learner.init(model, filter)
    curve: list[Array] = []
    begin = time.perf_counter()
    for index in range(num_updates):
        weight = min(1.0, (index + 1) / max(num_annealing, 1))
        state, metrics = _update(learner, state, xs, key, index, weight, batch_size)
        curve.append(metrics.free_energy)
        if index % 10 == 9 or index == num_updates - 1:
            shown = f"train {name}: {float(metrics.free_energy):.2f} nats per step"
            progress.update(task, completed=index + 1, description=shown)
    seconds = time.perf_counter() - begin
    values = np.asarray(jnp.stack(curve))
    return Trained(state.model, state.filter, values, seconds, int(state.num_skipped))


def _update(
    learner: TimeParallel | EndToEnd,
    state: LearnerState,
    xs: Array,
    key: PRNGKeyArray,
    index: int,
    weight: float,
    batch_size: int,
) -> tuple[LearnerState, Metrics]:
    key_batch, key_update = jax.random.split(jax.random.fold_in(key, index))
    chosen = jax.random.randint(key_batch, (batch_size,), 0, xs.shape[0])
    return learner.update(state, xs[chosen], key_update, kl_weight=weight)


def score(
    name: str,
    model: AbstractModel,
    filter: AbstractFilter,
    xs: Float[Array, "num_sequences time *event"],
    target: Float[Array, "num_sequences time *event"],
    key: PRNGKeyArray,
    *,
    num_repeats: int = 1,
    train_seconds: float | None = None,
    progress: Progress,
) -> Score:
    """Filter every sequence `num_repeats` times with fresh draws and average.

    The prediction error is the root mean square distance of the one-step prediction's mean
    to `target`.
    """
    task = progress.add_task(f"filter with {name}", total=num_repeats)
    sums: Any = None
    for repeat in range(num_repeats):
        values = _averages(model, filter, xs, target, jax.random.fold_in(key, repeat))
        sums = values if sums is None else jax.tree.map(jnp.add, sums, values)
        progress.advance(task)
    bound, error, iterates = jax.tree.map(lambda v: np.asarray(v) / num_repeats, sums)
    iterates = tuple(float(v) for v in ([-bound] if iterates is None else iterates))
    return Score(name, float(-bound), iterates, float(error) ** 0.5, train_seconds)


@eqx.filter_jit
def _averages(model: AbstractModel, filter: AbstractFilter, xs: Array, target: Array, key: Any):
    def sequence(xs: Array, key: PRNGKeyArray) -> Filtered:
        return run(filter, model, xs, key)[1]

    filtered = jax.vmap(sequence)(xs, jax.random.split(key, xs.shape[0]))
    iterates = getattr(filtered.info, "free_energies", None)
    prediction = jax.vmap(jax.vmap(lambda d: d.mean))(filtered.prediction)
    return (
        jnp.mean(filtered.bound),
        jnp.mean((prediction - target) ** 2),
        None if iterates is None else jnp.mean(iterates, axis=(0, 1)),
    )
