"""Whole sequences scored side by side: those of all lengths at once, and each leaves at its end.

A step waits for the one before it, so that what counts is how many there are one after another: in
one batch, those of the longest sequence. The batch is sorted by length, and whenever few are left
the rest goes on in a smaller one. A dispatch filters many chunks of steps; between two of them
nothing is brought to the host, and what is kept of a step are sums.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from varfilter.data.dataset import Dataset
from varfilter.filtering import Belief, run, start
from varfilter.filters.base import AbstractFilter
from varfilter.model import AbstractModel

# Numbers of a split that are kept between two evaluations, ready for the device: 1 GiB.
KEPT = 1 << 28
# How many steps lie in memory at once, at most.
LONGEST_CHUNK = 64
# Paths, or draws of a latent, that are filtered at once, and numbers of the chunks they predict.
MOST_PATHS, MOST_NUMBERS = 1 << 14, 1 << 25
# A smaller batch is one more program to compile: it has to save so much of the work.
LEAST_SAVED = 1 / 8
MOST_PROGRAMS = 4
# On an accelerator fewer sequences than these take as long as these.
SMALLEST = 32


class Rows(eqx.Module):
    """Observations of several sequences, end to end, and their known inputs if they have any."""

    xs: Float[Array, "rows *event"]
    us: Float[Array, "rows inputs"] | None


class Places(eqx.Module):
    """Where each sequence of a batch begins, how many steps it has, and its number in the split."""

    starts: Int[Array, " batch"]
    lengths: Int[Array, " batch"]
    numbers: Int[Array, " batch"]


class Sums(eqx.Module):
    """What is summed over the scored steps of each sequence: the fields of `Evaluation`."""

    num_steps: Int[Array, "*batch"]
    free_energy: Float[Array, "*batch"]
    by_iteration: Float[Array, "*batch iterates"]
    square_error: Float[Array, "*batch"]
    num_observed: Int[Array, "*batch"]


class Task(eqx.Module):
    """What is asked of a program besides the filter and the model: all that is fixed in a split."""

    scale: Array
    chunk: int = eqx.field(static=True)
    complete: bool = eqx.field(static=True)


class Phase(NamedTuple):
    """The chunks from `first` to before `end`, of the first `size` sequences of a batch."""

    first: int
    end: int
    size: int


def most_sequences(filter: AbstractFilter, num_elements: int, chunk: int, members: int = 1) -> int:
    """How many sequences are filtered at once, so that memory suffices: a rough bound."""
    num_particles = getattr(filter, "num_particles", 1)
    inference = getattr(filter, "inference", None)
    num_samples = max(getattr(each, "num_samples", 1) for each in (filter, inference))
    by_paths = MOST_PATHS // (num_particles * num_samples)
    by_numbers = MOST_NUMBERS // (num_particles * num_elements * chunk)
    return max(1, min(by_paths, by_numbers) // members)


class Layout:
    """The sequences of a split as batches, the longest first, and the phases of each batch."""

    def __init__(self, dataset: Dataset, split: str, numbers: Sequence[int], batch_size: int):
        self.dataset, self.split = dataset, split
        lengths = dataset.split(split).lengths // dataset.rows_per_step
        order = sorted(numbers, key=lambda number: (-lengths[number], number))
        # As many in each batch, or the last would have places that nobody takes.
        num_batches = -(-len(order) // batch_size)
        self.size = -(-len(order) // num_batches)
        self.batches = [
            order[begin : begin + self.size] for begin in range(0, len(order), self.size)
        ]
        self.lengths = lengths
        self.chunk = chunk_length(int(lengths[order[0]]) - 1)
        counts = [self._chunks(batch) for batch in self.batches]
        smallest = 1 if jax.default_backend() == "cpu" else SMALLEST
        sizes = batch_sizes(counts, self.size, smallest)
        self.phases = [_phases(count, sizes) for count in counts]
        self._total = int(lengths[order].sum())
        self._kept: Rows | None = None

    @property
    def padded_steps(self) -> int:
        """The steps of all places that are filtered, with those that fill batches and chunks up."""
        phases = (phase for each in self.phases for phase in each)
        return self.chunk * sum((phase.end - phase.first) * phase.size for phase in phases)

    def places(self) -> Iterator[tuple[list[int], Rows, Places, list[Phase]]]:
        """(numbers, rows, places, phases) of each batch; rows are kept if memory allows it."""
        is_kept = self._total * self.dataset.num_elements <= KEPT
        if is_kept and self._kept is None:
            self._kept = self._rows([number for batch in self.batches for number in batch])
        largest = max(int(self.lengths[batch].sum()) for batch in self.batches)
        begin = 0
        for batch, phases in zip(self.batches, self.phases, strict=True):
            # All of one length, or each batch would be a program of its own.
            rows = self._kept if self._kept is not None else self._rows(batch, largest)
            lengths = np.zeros(self.size, np.int32)
            lengths[: len(batch)] = self.lengths[batch]
            starts = begin + np.cumsum(lengths) - lengths
            numbers = np.resize(np.asarray(batch, np.int32), self.size)
            arrays = (jnp.asarray(each, jnp.int32) for each in (starts, lengths, numbers))
            yield batch, rows, Places(*arrays), phases
            begin += int(lengths.sum()) if is_kept else 0

    def _chunks(self, batch: list[int]) -> np.ndarray:
        counts = np.zeros(self.size, np.int64)
        counts[: len(batch)] = -(-(self.lengths[batch] - 1) // self.chunk)
        return counts

    def _rows(self, numbers: list[int], total: int | None = None) -> Rows:
        """The observations of these sequences; behind them zeros, for the last chunk to reach."""
        dataset = self.dataset
        total = self._total if total is None else total
        xs = np.zeros((total + self.chunk, *dataset.observation_shape), np.float32)
        us = np.zeros((total + self.chunk, dataset.input_size), np.float32)
        place = 0
        for number in numbers:
            end = place + int(self.lengths[number])
            xs[place:end] = dataset.observations(dataset.split(self.split)[number])
            if dataset.input_size:
                us[place:end] = dataset.known(self.split, number)
            place = end
        return Rows(jnp.asarray(xs), jnp.asarray(us) if dataset.input_size else None)


def chunk_length(num_steps: int) -> int:
    """The length of as few chunks as there may be, which are as long as each other."""
    num_chunks = max(1, -(-num_steps // LONGEST_CHUNK))
    return max(1, -(-num_steps // num_chunks))


def batch_sizes(counts: list[np.ndarray], size: int, smallest: int = 1) -> list[int]:
    """The sizes of batch that are worth a program each, the largest first.

    `counts` are the chunks of each sequence, by batch, falling. Halves are added, the one that
    saves most first, as long as they save `LEAST_SAVED` of the work; none below `smallest`.
    """

    def work(sizes: list[int]) -> int:
        phases = (phase for count in counts for phase in _phases(count, sizes))
        return sum((phase.end - phase.first) * phase.size for phase in phases)

    halves = [-(-size >> power) for power in range(1, size.bit_length())]
    halves = [half for half in halves if half >= smallest]
    chosen = [size]
    for _ in range(MOST_PROGRAMS - 1):
        trials = {half: work(sorted({*chosen, half}, reverse=True)) for half in halves}
        best = min(trials, key=lambda half: trials[half], default=size)
        if not trials or trials[best] > (1 - LEAST_SAVED) * work(chosen):
            break
        chosen = sorted({*chosen, best}, reverse=True)
    return chosen


def scored(
    filter: AbstractFilter,
    model: AbstractModel,
    key: Key[Array, "*members"],
    rows: Rows,
    places: Places,
    phases: list[Phase],
    task: Task,
) -> list[tuple[int, Sums]]:
    """Start to score a batch; (how many sequences, their sums) at the end of each phase.

    Of sequences that go on in the next phase, those sums are not the last ones. Where there are
    several keys, filter and model are stacked too, and so is the result.
    """
    is_stacked = key.ndim > 0
    standing = _first_beliefs(filter, model, key, rows, places, task, is_stacked)
    found = []
    for phase in phases:
        if phase.size < places.starts.shape[0]:
            places = _front(places, phase.size, 0)
            standing = _front(standing, phase.size, int(is_stacked))
        first, end = jnp.asarray(phase.first, jnp.int32), jnp.asarray(phase.end, jnp.int32)
        standing = _gone_on(
            filter, model, key, rows, places, standing, task, first, end, is_stacked
        )
        found.append((phase.size, standing[1]))
    return found


def _phases(counts: np.ndarray, sizes: list[int]) -> list[Phase]:
    """The phases of a batch whose sequences have so many chunks, falling."""
    found, first = [], 0
    for size, smaller in zip(sizes, [*sizes[1:], 0], strict=True):
        # Until no more are left than the smaller batch holds.
        end = int(counts[smaller]) if smaller < len(counts) else 0
        if end > first:
            found.append(Phase(first, end, size))
            first = end
    return found


@eqx.filter_jit
def _first_beliefs(
    filter: AbstractFilter,
    model: AbstractModel,
    key: Key[Array, "*members"],
    rows: Rows,
    places: Places,
    task: Task,
    is_stacked: bool,
) -> tuple[Belief, Sums]:
    """The beliefs after the first step of each sequence, which is conditioned on; sums of 0."""

    def member(filter: AbstractFilter, model: AbstractModel, key: PRNGKeyArray) -> Any:
        def sequence(start_row: Array, number: Array) -> Belief:
            return start(filter, model, rows.xs[start_row], jax.random.fold_in(key, number))

        beliefs = jax.vmap(sequence)(places.starts, places.numbers)
        shapes = eqx.filter_eval_shape(
            _chunk_sums, filter, model, key, rows, places, beliefs, task, jnp.zeros((), jnp.int32)
        )[1]
        return beliefs, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    return (eqx.filter_vmap(member) if is_stacked else member)(filter, model, key)


@eqx.filter_jit
def _gone_on(
    filter: AbstractFilter,
    model: AbstractModel,
    key: Key[Array, "*members"],
    rows: Rows,
    places: Places,
    standing: tuple[Belief, Sums],
    task: Task,
    first: Array,
    end: Array,
    is_stacked: bool,
) -> tuple[Belief, Sums]:
    """Filter the chunks from `first` to before `end`, which the compiler need not know."""

    def member(
        filter: AbstractFilter, model: AbstractModel, key: PRNGKeyArray, standing: Any
    ) -> Any:
        def body(chunk: Array, standing: Any) -> Any:
            belief, sums = standing
            belief, more = _chunk_sums(filter, model, key, rows, places, belief, task, chunk)
            return belief, jax.tree.map(jnp.add, sums, more)

        return jax.lax.fori_loop(first, end, body, standing)

    member = eqx.filter_vmap(member) if is_stacked else member
    return member(filter, model, key, standing)


def _chunk_sums(
    filter: AbstractFilter,
    model: AbstractModel,
    key: PRNGKeyArray,
    rows: Rows,
    places: Places,
    beliefs: Belief,
    task: Task,
    chunk: Array,
) -> tuple[Belief, Sums]:
    """Filter one chunk of each sequence; steps beyond its end are masked, whatever lies there."""
    first = 1 + chunk * task.chunk

    def sequence(begin: Array, length: Array, number: Array, belief: Belief) -> Any:
        cut = jax.tree.map(
            lambda values: jax.lax.dynamic_slice_in_dim(values, begin + first, task.chunk), rows
        )
        exists = first + jnp.arange(task.chunk) < length
        belief, filtered = run(
            filter, model, cut.xs, jax.random.fold_in(key, number),
            us=cut.us, mask=exists, belief=belief, complete=task.complete, ahead=True,
        )  # fmt: skip
        # Step by step: the mean of particles is over their first axis, whatever that is.
        mean = jax.vmap(lambda prediction: prediction.mean)(filtered.prediction)
        iterates = getattr(filtered.info, "free_energies", jnp.zeros((task.chunk, 0)))
        return belief, _summed(cut.xs, mean, filtered.bound, iterates, exists, task.scale)

    return jax.vmap(sequence)(places.starts, places.lengths, places.numbers, beliefs)


def _summed(
    xs: Array,
    mean: Array,
    bound: Array,
    iterates: Array,
    exists: Bool[Array, " time"],
    scale: Array,
) -> Sums:
    error = (xs - mean) * scale.reshape((1,) * (xs.ndim - scale.ndim) + scale.shape)
    seen = exists.reshape((-1,) + (1,) * (xs.ndim - 1)) & ~jnp.isnan(error)
    return Sums(
        jnp.sum(exists),
        -jnp.sum(bound),
        jnp.sum(jnp.where(exists[:, None], iterates, 0.0), axis=0),
        jnp.sum(jnp.where(seen, error, 0.0) ** 2),
        jnp.sum(seen),
    )


@eqx.filter_jit
def _front(tree: Any, size: int, axis: int) -> Any:
    """The first `size` places of each array."""

    def cut(leaf: Any) -> Any:
        return jax.lax.slice_in_dim(leaf, 0, size, axis=axis) if eqx.is_array(leaf) else leaf

    return jax.tree.map(cut, tree)
