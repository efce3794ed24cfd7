"""A trained run at work: filter new recordings, forecast how they go on, make up others."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from varfilter._arguments import require_positive
from varfilter.data.dataset import Dataset
from varfilter.data.tables.read import Table
from varfilter.filtering import Belief, run, start, step
from varfilter.filters import AbstractFilter, Filtered
from varfilter.media.futures import forecast_rows
from varfilter.media.medium import dataset_of, medium
from varfilter.media.rows import Row
from varfilter.media.steps import step_rows
from varfilter.model import AbstractModel
from varfilter.prediction import (
    Predicted,
    forecast,
    generate,
    predict,
    require_levels,
    run_predictive,
)
from varfilter.runs.inputs import Recorded, read_input
from varfilter.runs.run import Run

# Steps that are filtered at once, and a shorter sequence is padded to: one program serves them
# all, and compiling it takes longer than filtering thousands of steps. A film's step does not.
NUM_STEPS, NUM_STEPS_OF_FILM = 64, 16
# Draws of a prediction. Each is a pass through the decoder, and a film's is large.
NUM_SAMPLES, NUM_SAMPLES_OF_FILM = 128, 16


@dataclass(frozen=True)
class Ready:
    """A run with all that is decided before the first observation comes."""

    data: Dataset | Table
    model: AbstractModel
    filter: AbstractFilter
    key: PRNGKeyArray
    num_samples: int
    levels: tuple[float, ...]
    latents: bool

    @property
    def dataset(self) -> Dataset:
        """What is known of the run's data."""
        return dataset_of(self.data)

    @property
    def num_steps(self) -> int:
        """That are filtered at once."""
        return NUM_STEPS_OF_FILM if medium(self.data) == "film" else NUM_STEPS

    def begun(self, x0: np.ndarray) -> Belief:
        """The belief after the first observation, which is conditioned on and not scored."""
        return _start(self.filter, self.model, jnp.asarray(x0))

    def first_row(self, recorded: Recorded) -> Row:
        """Of the first step: there is no prediction of it."""
        return next(self.rows(recorded, 0, 1, *self._nothing))

    def rows(
        self, recorded: Recorded, begin: int, end: int, filtered: Filtered, predicted: Predicted
    ) -> Iterator[Row]:
        """Of the steps from `begin` to `end`."""
        size = self.dataset.rows_per_step
        return step_rows(
            self.data,
            recorded.rows[begin * size : end * size],
            filtered,
            predicted=predicted,
            sequence=recorded.name,
            times=recorded.times[begin:end],
            latents=self.latents,
        )

    @functools.cached_property
    def _nothing(self) -> tuple[Filtered, Predicted]:
        """What was filtered and predicted in no step at all."""
        x = jnp.zeros(self.dataset.observation_shape)
        shapes = eqx.filter_eval_shape(self._first_step, x)
        return jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), shapes)

    def _first_step(self, x: Any) -> tuple[Filtered, Predicted]:
        belief = start(self.filter, self.model, x)
        predicted = predict(
            self.filter, self.model, belief, self.key,
            num_samples=self.num_samples, levels=self.levels,
        )  # fmt: skip
        return step(self.filter, self.model, belief, x, self.key)[1], predicted


def ready(
    run: Run,
    *,
    seed: int = 0,
    num_samples: int | None = None,
    levels: Sequence[float] = (),
    latents: bool = False,
) -> Ready:
    """The best checkpoint of a run, to be filtered with."""
    if not 0 <= seed < 2**32:
        raise ValueError(f"`seed` must lie in [0, 2^32); got {seed}.")
    levels = require_levels(levels) if len(levels) else ()
    data = run.table or run.dataset_like
    if num_samples is None:
        num_samples = NUM_SAMPLES_OF_FILM if medium(data) == "film" else NUM_SAMPLES
    num_samples = require_positive("num_samples", num_samples)
    model, filter, _, _ = run.trained()
    return Ready(data, model, filter, jax.random.key(seed), num_samples, levels, latents)


def filter_input(
    run: Run,
    source: Any,
    *,
    seed: int = 0,
    num_samples: int | None = None,
    levels: Sequence[float] = (),
    latents: bool = False,
) -> Iterator[Row]:
    """A row for each step of each sequence of `source`, as `outputs.step_rows` describes them.

    The prediction is that of `predict`, from `num_samples` draws (128; 16 for films), with
    quantiles at `levels`. The first step of a sequence is conditioned on, as in training: it has
    neither prediction nor surprise. Every sequence draws from the same seed, so that its numbers
    do not depend on those beside it, and are those of the same lines on standard input.
    """
    ours = ready(run, seed=seed, num_samples=num_samples, levels=levels, latents=latents)
    return _filtered(ours, read_input(run, source))


def forecast_input(
    run: Run,
    source: Any,
    horizon: int,
    *,
    seed: int = 0,
    num_samples: int = 256,
    levels: Sequence[float] = (0.05, 0.5, 0.95),
) -> Iterator[Row]:
    """What may follow each sequence of `source`: `horizon` rows, as `outputs.forecast_rows`."""
    horizon = require_positive("horizon", horizon)
    ours = ready(run, seed=seed, num_samples=num_samples, levels=require_levels(levels))
    return (
        row
        for recorded in read_input(run, source)
        for row in future_rows(
            ours, _last_belief(ours, recorded), horizon, recorded.name, recorded.times[-1]
        )
    )


def future_rows(
    ours: Ready, belief: Belief, horizon: int, sequence: str | int, last: Any
) -> Iterator[Row]:
    """How a sequence that was last seen at `last` may go on."""
    # As a stream's own: the same each time it is asked for at this step.
    key = jax.random.fold_in(jax.random.fold_in(ours.key, belief.t), 0xF0)
    found = forecast(
        ours.filter, ours.model, belief, horizon, key,
        num_samples=ours.num_samples, levels=ours.levels,
    )  # fmt: skip
    return forecast_rows(ours.data, found, sequence=sequence, last=last)


def sample_run(run: Run, num_steps: int, num_sequences: int = 1, *, seed: int = 0) -> np.ndarray:
    """(sequences, steps, *event) in the model's units, from the model's own start, without x0."""
    require_positive("num_steps", num_steps)
    require_positive("num_sequences", num_sequences)
    ours = ready(run, seed=seed)
    # One after another: a film of many frames has no need to lie in memory many times.
    keys = jax.random.split(ours.key, num_sequences)
    return np.stack([np.asarray(generate(ours.model, num_steps, key)[0]) for key in keys])


def _filtered(ours: Ready, sequences: Iterator[Recorded]) -> Iterator[Row]:
    for recorded in sequences:
        belief = ours.begun(recorded.xs[0])
        yield ours.first_row(recorded)
        for begin, num_steps, xs, mask in _chunks(recorded.xs, ours.num_steps):
            belief, *found = run_predictive(
                ours.filter, ours.model, xs, ours.key,
                mask=mask, belief=belief, num_samples=ours.num_samples, levels=ours.levels,
            )  # fmt: skip
            filtered, predicted = jax.tree.map(lambda a: np.asarray(a)[:num_steps], found)  # noqa: B023
            yield from ours.rows(recorded, begin, begin + num_steps, filtered, predicted)


def _last_belief(ours: Ready, recorded: Recorded) -> Belief:
    belief = ours.begun(recorded.xs[0])
    for _, _, xs, mask in _chunks(recorded.xs, ours.num_steps):
        belief, _ = run(ours.filter, ours.model, xs, ours.key, mask=mask, belief=belief)
    return belief


def _chunks(xs: np.ndarray, size: int) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """(first step, how many, they with padding, which exist) of the steps after the first."""
    for begin in range(1, len(xs), size):
        part = xs[begin : begin + size]
        padded = np.full((size, *xs.shape[1:]), np.nan, xs.dtype)
        padded[: len(part)] = part
        yield begin, len(part), padded, np.arange(size) < len(part)


_start = eqx.filter_jit(start)
