"""Batches of equal length from ragged sequences: random windows, fixed windows, whole sequences."""

import math
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from varfilter._arguments import kind, require_all_positive, require_key, require_positive
from varfilter._text import count
from varfilter.data.dataset import Dataset, require_dataset

Step = Int[Array, ""] | int | np.integer

# Rows are counted in 32 bits on a device.
MOST = 2**31 - 1


class Batch(NamedTuple):
    """Sequences side by side; `mask` is False for steps that do not exist (padding).

    `us` are the known inputs of the steps, where the data have any.
    """

    xs: Float[Array, "batch time *event"]
    mask: Bool[Array, "batch time"]
    us: Float[Array, "batch time inputs"] | None = None


class Cut(NamedTuple):
    """The stored rows of the windows of a batch (batch, rows, ...), and their known inputs."""

    rows: Array | np.ndarray
    us: Array | np.ndarray | None


class RandomWindows(eqx.Module):
    """Draws one random window of each training sequence an epoch, in random order.

    The paper's protocol: sequences shorter than a window are left out, and each of the others
    gives one window, which starts at any row. The last batch of an epoch is filled up with
    other windows of the sequences that the epoch began with.

    What is drawn depends on the step and the key alone, so that step 1,000 is the same after a
    restart, on the device or on the host. The data lie on the device, as compactly as in the
    files, unless `on_device` is False: then use `prefetched`. On the device `windows(step, key)`
    is free of host work and may stand in a `scan`; give the `RandomWindows` to a compiled
    function as an argument, or all the data become constants of the program.
    """

    values: Array | np.ndarray
    inputs: Array | np.ndarray | None
    starts: Int[Array, " sequences"] | np.ndarray
    lengths: Int[Array, " sequences"]
    offset: Array
    scale: Array
    batch_size: int = eqx.field(static=True)
    num_steps: int = eqx.field(static=True)
    rows_per_step: int = eqx.field(static=True)
    observation_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        dataset: Dataset,
        num_steps: int,
        batch_size: int,
        *,
        split: str = "train",
        on_device: bool = True,
    ):
        dataset = require_dataset(dataset)
        self.num_steps = require_positive("num_steps", num_steps)
        self.batch_size = require_positive("batch_size", batch_size)
        self.rows_per_step = dataset.rows_per_step
        self.observation_shape = dataset.observation_shape
        ragged = dataset.split(split)
        keep = ragged.lengths >= self.num_rows
        if not keep.any():
            longest = max(ragged.lengths, default=0) // dataset.rows_per_step
            fix = f"Give `num_steps` {longest}, or less."
            if longest < 2:
                fix = "What follows a step is what is learned: give sequences of two or more."
            raise ValueError(
                f"`num_steps` is {num_steps}, but the longest sequence of {dataset.name!r}"
                f" ({split}) has {count(longest, 'step')}. {fix}"
            )
        if on_device and len(ragged.values) > MOST:
            raise ValueError(
                f"{dataset.name!r} ({split}) has {len(ragged.values)} rows; a device holds at"
                f" most {MOST}. Give `on_device=False` and use `prefetched`."
            )
        if ragged.lengths.max() > MOST:
            raise ValueError(
                f"{dataset.name!r} ({split}) has a sequence of {ragged.lengths.max()} rows; the"
                f" most is {MOST}. Split it."
            )
        starts = ragged.offsets[:-1][keep]
        us = None
        if dataset.input_size:
            if dataset.rows_per_step > 1:
                raise ValueError(
                    f"{dataset.name!r} has known inputs and {dataset.rows_per_step} rows in a step:"
                    " windows that begin at any row have no inputs of their own. Give one row a"
                    " step."
                )
            us = dataset.inputs[split].values
        self.values = jnp.asarray(_compact(ragged.values)) if on_device else ragged.values
        self.inputs = us if us is None or not on_device else jnp.asarray(us, jnp.float32)
        self.starts = jnp.asarray(starts, jnp.int32) if on_device else starts
        self.lengths = jnp.asarray(ragged.lengths[keep], jnp.int32)
        self.offset = jnp.asarray(dataset.scaling.offset, jnp.float32)
        self.scale = jnp.asarray(dataset.scaling.scale, jnp.float32)

    @property
    def num_batches(self) -> int:
        """How many batches make an epoch; the last of them may be filled up."""
        return -(-self.lengths.size // self.batch_size)

    @property
    def num_rows(self) -> int:
        """How many rows of the recording a window has."""
        return self.num_steps * self.rows_per_step

    def order(self, epoch: Step, key: PRNGKeyArray) -> Int[Array, " sequences"]:
        """The numbers, from 0, of all sequences that are long enough, in the order of an epoch."""
        return _order(self.lengths, epoch, key)

    def draw(
        self,
        step: Step,
        key: PRNGKeyArray,
        order: Int[Array, " sequences"] | None = None,
    ) -> tuple[Int[Array, " num_windows"], Int[Array, " num_windows"]]:
        """Which sequences give the windows of the batch at `step`, and from which of their rows.

        `order` is that of the epoch, for callers that have it from the step before.
        """
        step = jnp.asarray(step, jnp.int32)
        if order is None:
            order = self.order(step // self.num_batches, key)
        return _draw(order, self.lengths, step, key, self.batch_size, self.num_rows)

    def places(
        self, step: Step, key: PRNGKeyArray
    ) -> Int[Array, " num_windows"] | Int[np.ndarray, " num_windows"]:
        """The first row of each window of the batch at `step`, counted from 0 over all epochs."""
        chosen, first = self.draw(step, key)
        if isinstance(self.starts, np.ndarray):
            return self.starts[np.asarray(chosen)] + np.asarray(first)
        return self.starts[chosen] + first

    def windows(self, step: Step, key: PRNGKeyArray) -> Batch:
        """The batch at `step`, cut and scaled where the data lie."""
        require_key(key)
        if not isinstance(self.values, np.ndarray):
            return _windows(self, jnp.asarray(step, jnp.int32), key)
        if isinstance(step, Tracer) or isinstance(key, Tracer):
            raise TypeError(
                "`windows` cannot be compiled where the data lie on the host. Use `prefetched`"
                " outside of `jit`, or give `on_device=True`."
            )
        return self.batch(self.read(*self.draw(step, key)))

    def read(self, chosen: Any, first: Any) -> Cut:
        """The rows that `draw` chose, copied to the memory of the host."""
        places = np.asarray(self.starts)[np.asarray(chosen)] + np.asarray(first)

        def cut(values: np.ndarray) -> np.ndarray:
            return np.stack([values[place : place + self.num_rows] for place in places])

        us = None if self.inputs is None else cut(np.asarray(self.inputs))
        return Cut(cut(np.asarray(self.values)), us)

    def batch(self, cut: Cut) -> Batch:
        """Make a batch of scaled observations from the stored rows of windows."""
        rows, us = cut
        rows = jnp.asarray(_compact(rows) if isinstance(rows, np.ndarray) else rows)
        xs = _scaled(rows, self.offset, self.scale, self.num_steps, self.observation_shape)
        us = None if us is None else jnp.asarray(us, jnp.float32)
        return Batch(xs, jnp.ones(xs.shape[:2], bool), us)


def consecutive_windows(
    dataset: Dataset, num_steps: int, batch_size: int, *, split: str = "valid"
) -> Sequence[Batch]:
    """Cut a split into fixed windows, end to end, which are the same at every validation.

    The last window of a sequence is padded and masked; a rest of a single step is left out,
    since the first step is conditioned on and not scored. Each batch is made when it is asked for;
    `list` makes all of them at once.
    """
    require_all_positive(num_steps=num_steps, batch_size=batch_size)
    pieces = [
        (number, begin)
        for number, steps in enumerate(dataset.split(split).lengths // dataset.rows_per_step)
        for begin in range(0, steps, num_steps)
        if steps - begin >= min(num_steps, 2)
    ]
    return _ConsecutiveWindows(dataset, split, pieces, num_steps, batch_size)


def whole_sequences(
    dataset: Dataset,
    batch_size: int,
    *,
    split: str = "test",
    growth: float | int = 1.25,
    numbers: Sequence[int] | None = None,
) -> Iterator[tuple[np.ndarray, Batch]]:
    """Iterate over batches that hold every sequence once, whole, with others of about its length.

    Lengths are rounded up to a few values, 8 and then each `growth` times the one before, so
    that few programs are compiled and little is padded. Yields (the sequences' numbers, batch);
    the last batch of a length has empty places, all masked, numbered -1. A sequence too short
    for one step is left out. `numbers` are the sequences to take (all).
    """
    require_all_positive(batch_size=batch_size)
    if not 1.0 < growth < np.inf:
        raise ValueError(f"`growth` must be greater than 1, and finite; got {growth!r}.")
    ragged = dataset.split(split)
    steps = ragged.lengths // dataset.rows_per_step
    wanted = range(len(steps)) if numbers is None else set(numbers)
    buckets: dict[int, list[int]] = {}
    for number in np.argsort(steps, kind="stable").tolist():
        if steps[number] > 0 and number in wanted:
            length = padded_length(int(steps[number]), growth)
            buckets.setdefault(length, []).append(number)

    def batches() -> Iterator[tuple[np.ndarray, Batch]]:
        for length, numbers in buckets.items():
            for begin in range(0, len(numbers), batch_size):
                chosen = numbers[begin : begin + batch_size]
                empty = [-1] * (batch_size - len(chosen))
                rows = [ragged[number] for number in chosen]
                us = [dataset.known(split, number) for number in chosen]
                yield np.array(chosen + empty), _padded(dataset, rows, us, length, batch_size)

    return batches()


def prefetched(
    windows: RandomWindows,
    key: PRNGKeyArray,
    *,
    first_step: int = 0,
    part: slice = slice(None),
    num_workers: int = 2,
    num_ahead: int = 4,
) -> Generator[Batch, None, None]:
    """Iterate without end over the batches that `windows.windows` gives from `first_step` on.

    Where a window lies depends on the step and the key alone, and batches are handed out in
    the order of the steps: the number of workers changes nothing but the speed. While the
    caller learns from one batch the next `num_ahead` are read. Threads, not processes: cutting
    rows out of a memory map is copying, which holds no lock. `close` ends them. `part` is which
    of the windows of each batch to read, where other processes read the rest.
    """
    require_all_positive(num_workers=num_workers, num_ahead=num_ahead)
    require_key(key)
    if not isinstance(first_step, int | np.integer) or first_step < 0:
        raise ValueError(
            f"`first_step` must be a whole number, at least 0; got {kind(first_step)}."
        )
    return _batches(windows, key, int(first_step), part, num_workers, num_ahead)


class _ConsecutiveWindows(Sequence[Batch]):
    """Pieces of `num_steps` steps, each of (sequence, first step): a set is not scaled whole."""

    def __init__(
        self,
        dataset: Dataset,
        split: str,
        pieces: list[tuple[int, int]],
        num_steps: int,
        batch_size: int,
    ):
        self.dataset = dataset
        self.split = split
        self.pieces = pieces
        self.num_steps = num_steps
        self.batch_size = batch_size

    def __len__(self) -> int:
        return -(-len(self.pieces) // self.batch_size)

    def __getitem__(self, index: Any) -> Any:
        begins = range(0, len(self.pieces), self.batch_size)[index]
        return [self._at(b) for b in begins] if isinstance(begins, range) else self._at(begins)

    def _at(self, begin: int) -> Batch:
        per_step = self.dataset.rows_per_step
        ragged = self.dataset.split(self.split)
        pieces = self.pieces[begin : begin + self.batch_size]
        rows = [
            ragged[number][step * per_step : (step + self.num_steps) * per_step]
            for number, step in pieces
        ]
        known = ((self.dataset.known(self.split, number), step) for number, step in pieces)
        us = [None if u is None else u[step : step + self.num_steps] for u, step in known]
        return _padded(self.dataset, rows, us, self.num_steps, self.batch_size)


def _padded(
    dataset: Dataset,
    rows: list[np.ndarray],
    known: list[np.ndarray | None],
    num_steps: int,
    batch_size: int,
) -> Batch:
    """A batch of sequences; padding holds zeros and not NaN: it is masked, not missing."""
    xs = np.zeros((batch_size, num_steps, *dataset.observation_shape), np.float32)
    us = np.zeros((batch_size, num_steps, dataset.input_size), np.float32)
    mask = np.zeros((batch_size, num_steps), bool)
    for place, (sequence, u) in enumerate(zip(map(dataset.observations, rows), known, strict=True)):
        xs[place, : len(sequence)] = sequence
        mask[place, : len(sequence)] = True
        if u is not None:
            us[place, : len(sequence)] = u
    return Batch(
        jnp.asarray(xs), jnp.asarray(mask), jnp.asarray(us) if dataset.input_size else None
    )


def padded_length(steps: int, growth: float | int) -> int:
    """The length to which `whole_sequences` pads a sequence of `steps` steps."""
    length = 8
    while length < steps:
        length = math.ceil(length * growth)
    return length


def _compact(values: np.ndarray) -> np.ndarray:
    """Rows without 64-bit numbers, which a device would cut to 32 bits: whole ones would wrap."""
    return values.astype(np.float32) if values.dtype.itemsize > 4 else values


@jax.jit
def _order(lengths: Array, epoch: Array, key: PRNGKeyArray) -> Array:
    key_order = jax.random.fold_in(jax.random.fold_in(key, 0), epoch)
    return jax.random.permutation(key_order, lengths.size)


@partial(jax.jit, static_argnums=(4, 5))
def _draw(
    order: Array, lengths: Array, step: Array, key: PRNGKeyArray, batch_size: int, num_rows: int
) -> tuple[Array, Array]:
    num_batches = -(-order.size // batch_size)
    slots = jnp.arange(batch_size) + step % num_batches * batch_size
    chosen = order[slots % order.size]
    key_first = jax.random.fold_in(jax.random.fold_in(key, 1), step)
    # Whole numbers are drawn: a float32 has too few bits to reach every row of a long sequence.
    first = jax.random.randint(key_first, (batch_size,), 0, lengths[chosen] - num_rows + 1)
    return chosen, first


@eqx.filter_jit
def _windows(source: RandomWindows, step: Array, key: PRNGKeyArray) -> Batch:
    def cut(place: Array) -> Cut:
        kept = Cut(jnp.asarray(source.values), source.inputs)
        return jax.tree.map(
            lambda values: jax.lax.dynamic_slice_in_dim(values, place, source.num_rows), kept
        )

    return source.batch(jax.vmap(cut)(jnp.asarray(source.places(step, key))))


@partial(jax.jit, static_argnums=(3, 4))
def _scaled(
    rows: Array, offset: Array, scale: Array, num_steps: int, shape: tuple[int, ...]
) -> Array:
    values = rows.astype(jnp.float32)
    offset, scale = (v.reshape((1,) * (values.ndim - v.ndim) + v.shape) for v in (offset, scale))
    return ((values - offset) / scale).reshape(-1, num_steps, *shape)


def _batches(
    windows: RandomWindows,
    key: PRNGKeyArray,
    step: int,
    part: slice,
    num_workers: int,
    num_ahead: int,
) -> Generator[Batch, None, None]:
    # Only reading is left to the workers. Drawing and scaling are started here, which does not
    # wait for them: the caller's settings of jax, such as the device, hold in its own thread.
    def read(chosen: Array, first: Array) -> Cut:
        return windows.read(np.asarray(chosen)[part], np.asarray(first)[part])

    epoch, order = -1, None
    pending: deque[Future[Cut]] = deque()
    with ThreadPoolExecutor(num_workers, "varfilter-prefetch") as pool:
        try:
            while True:
                while len(pending) <= num_ahead:
                    if step // windows.num_batches != epoch:
                        epoch = step // windows.num_batches
                        order = windows.order(epoch, key)
                    pending.append(pool.submit(read, *windows.draw(step, key, order)))
                    step += 1
                yield windows.batch(pending.popleft().result())
        finally:
            for future in pending:
                future.cancel()
