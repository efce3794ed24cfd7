"""Evaluation: the bound on whole held-out sequences, by every average that is in use."""

import itertools
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray

from varfilter._arguments import require_all_positive, require_key, require_positive
from varfilter.data.dataset import Dataset, require_dataset
from varfilter.filtering import Belief, scan_steps, start
from varfilter.filters.base import AbstractFilter, driven_carry, require_fitting
from varfilter.model import AbstractModel
from varfilter.simulation import forecast
from varfilter.training.scoring import Layout, Phase, Task, chunk_length, most_sequences, scored


@dataclass(frozen=True)
class Evaluation:
    """Free energies of the sequences of a split, in nats, lower is better.

    Each array has an entry for each sequence of two steps or more: the first step is
    conditioned on, and not scored.

    - `numbers`: which sequences of the split these are.
    - `num_steps`: scored steps. `free_energy`: summed over them; minus the filter's bound.
    - `by_iteration`: the same at the prior, ..., after the last inference iteration; one
      column where the inference is one-shot, none where the filter has no such parts.
    - `square_error`: of the one-step prediction's mean, in the data's own units, summed over
      observed elements; `num_observed` counts those.
    """

    numbers: np.ndarray
    num_steps: np.ndarray
    free_energy: np.ndarray
    by_iteration: np.ndarray
    square_error: np.ndarray
    num_observed: np.ndarray

    @property
    def per_sequence(self) -> np.ndarray:
        """Nats per scored step of each sequence."""
        return self.free_energy / self.num_steps

    @property
    def nats(self) -> float:
        """Nats per scored step, every sequence with the same weight, as in the paper."""
        return float(np.mean(self.per_sequence))

    @property
    def nats_by_step(self) -> float:
        """Nats per scored step, every step with the same weight."""
        return float(np.sum(self.free_energy) / np.sum(self.num_steps))

    @property
    def nats_as_published(self) -> float:
        """As `nats`, but divided by all steps, the first too, which was not scored.

        The original code divides so, and the paper's tables are most likely its numbers.
        """
        return float(np.mean(self.free_energy / (self.num_steps + 1)))

    @property
    def standard_error(self) -> float:
        """The standard error of `nats` over sequences; NaN for a single one."""
        count = len(self.num_steps)
        return float(np.std(self.per_sequence, ddof=1) / count**0.5) if count > 1 else float("nan")

    @property
    def nats_by_iteration(self) -> np.ndarray:
        """As `nats`, at the prior, ..., after the last inference iteration."""
        return np.mean(self.by_iteration / self.num_steps[:, None], axis=0)

    @property
    def prediction_error(self) -> float:
        """Root mean square error of the one-step prediction, in the data's own units."""
        return float(np.sqrt(np.sum(self.square_error) / max(np.sum(self.num_observed), 1)))

    def as_json(self) -> dict[str, Any]:
        """The averages as plain JSON."""
        return {
            "nats": self.nats,
            "nats_by_step": self.nats_by_step,
            "nats_as_published": self.nats_as_published,
            "standard_error": None if math.isnan(self.standard_error) else self.standard_error,
            "nats_by_iteration": self.nats_by_iteration.tolist(),
            "prediction_error": self.prediction_error,
            "num_sequences": len(self.numbers),
            "num_steps": int(np.sum(self.num_steps)),
        }


def evaluate(
    filter: AbstractFilter,
    model: AbstractModel,
    dataset: Dataset,
    key: PRNGKeyArray,
    *,
    split: str = "test",
    batch_size: int | None = None,
) -> Evaluation:
    """Filter every sequence of the split whole, `batch_size` at once, or all that memory allows.

    The sequence numbered n draws from `fold_in(key, n)`: its score does not depend on the
    batch it is in.
    """
    return HeldOut(dataset, split=split, batch_size=batch_size).evaluate(filter, model, key)


class HeldOut:
    """A split to be scored whole, again and again: after each epoch, or under several filters.

    `batch_size` sequences are filtered at once (None: as many as memory allows), the longest
    first. `numbers` are the sequences to score, if not all of them.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        split: str = "valid",
        batch_size: int | None = None,
        numbers: Sequence[int] | None = None,
    ):
        dataset = require_dataset(dataset)
        if batch_size is not None:
            require_positive("batch_size", batch_size)
        self.num_steps = dataset.split(split).lengths // dataset.rows_per_step
        wanted = np.ones(len(self.num_steps), bool)
        if numbers is not None:
            wanted = np.isin(np.arange(len(self.num_steps)), numbers)
        self.scored = np.flatnonzero(wanted & (self.num_steps > 1))
        if not self.scored.size:
            raise ValueError(
                f"`split` {split!r} of {dataset.name!r} has no sequence of two steps or more: the"
                " first is conditioned on, and there is nothing left to score."
            )
        self._dataset, self._split, self._batch_size = dataset, split, batch_size
        self._layouts: dict[int, Layout] = {}
        self._complete = not dataset.has_gaps(split)

    def evaluate(
        self, filter: AbstractFilter, model: AbstractModel, key: PRNGKeyArray
    ) -> Evaluation:
        """Score all sequences of the split."""
        require_fitting(filter, model)
        require_key(key)
        return self._evaluation(self._sums(filter, model, key))

    def evaluate_stacked(
        self, filter: AbstractFilter, model: AbstractModel, keys: Key[Array, " members"]
    ) -> list[Evaluation]:
        """Score several models at once, all arrays of which have a leading axis, by one program.

        Each has its own key, and the scores of `evaluate` to rounding.
        """
        columns = self._sums(filter, model, keys)
        return [
            self._evaluation([column[member] for column in columns]) for member in range(len(keys))
        ]

    def padded_steps(self, filter: AbstractFilter, num_members: int = 1) -> int:
        """The steps that are filtered, with those that are only there to fill batches up."""
        return self._layout(filter, num_members).padded_steps

    def seconds(
        self, filter: AbstractFilter, model: AbstractModel, key: Key[Array, "*members"]
    ) -> float:
        """About how long `evaluate` takes once its programs are compiled; of several, stacked.

        One chunk of each size of batch is filtered twice, and the second time counts.
        """
        num_members = key.shape[0] if key.ndim else None
        layout = self._layout(filter, num_members or 1)
        counts = Counter[int]()
        for phase in itertools.chain.from_iterable(layout.phases):
            counts[phase.size] += phase.end - phase.first
        _, rows, places, _ = next(layout.places())
        total = 0.0
        for size, count in counts.items():
            took = math.inf
            for _ in range(2):
                begin = time.perf_counter()
                phases = [Phase(0, 1, size)]
                jax.block_until_ready(
                    scored(filter, model, key, rows, places, phases, self._task(layout))
                )
                took = time.perf_counter() - begin
            total += took * count
        return total

    def _layout(self, filter: AbstractFilter, num_members: int) -> Layout:
        size = self._batch_size
        if size is None:
            chunk = chunk_length(int(self.num_steps[self.scored].max()) - 1)
            size = most_sequences(filter, self._dataset.num_elements, chunk, num_members)
        size = min(size, len(self.scored))
        if size not in self._layouts:
            self._layouts[size] = Layout(self._dataset, self._split, self.scored.tolist(), size)
        return self._layouts[size]

    def _task(self, layout: Layout) -> Task:
        scale = jnp.asarray(self._dataset.scaling.scale, jnp.result_type(float))
        return Task(scale, layout.chunk, self._complete)

    def _sums(self, filter: Any, model: Any, key: Key[Array, "*members"]) -> list[np.ndarray]:
        """The columns of an `Evaluation`, by the numbers of the sequences; of several, stacked."""
        layout, is_stacked = self._layout(filter, len(key) if key.ndim else 1), key.ndim > 0
        # All batches are started before the first is waited for.
        started = [
            (numbers, scored(filter, model, key, rows, places, phases, self._task(layout)))
            for numbers, rows, places, phases in layout.places()
        ]
        rank = {number: place for place, number in enumerate(self.scored.tolist())}
        columns: list[np.ndarray] = []
        for numbers, phases in started:
            ranks = np.asarray([rank[number] for number in numbers], np.intp)
            # In order: of sequences that went on, a later phase has the sums.
            for size, sums in jax.device_get(phases):
                parts = [np.asarray(part, np.float64) for part in vars(sums).values()]
                parts = [part if is_stacked else part[None] for part in parts]
                if not columns:
                    shape = (parts[0].shape[0], len(rank))
                    columns = [np.zeros((*shape, *part.shape[2:])) for part in parts]
                count = min(size, len(numbers))
                for column, part in zip(columns, parts, strict=True):
                    column[:, ranks[:count]] = part[:, :count]
        return columns if is_stacked else [column[0] for column in columns]

    def _evaluation(self, columns: list[np.ndarray]) -> Evaluation:
        return Evaluation(self.scored.astype(np.int64), *columns)


# Forecasts that are made side by side.
LOT = 16


@dataclass(frozen=True)
class Coverage:
    """How many of the observed points lay within the bands, by step ahead and element.

    `covered` and `count` are (horizon, *observation_shape); `levels` are the band's edges.
    """

    covered: np.ndarray
    count: np.ndarray
    levels: tuple[float, float]

    @property
    def share(self) -> float:
        """The share of all points that lay within the bands."""
        return float(self.covered.sum() / max(self.count.sum(), 1))

    @property
    def by_step(self) -> np.ndarray:
        """The share of each step ahead; NaN where it has no points."""
        axes = tuple(range(1, self.count.ndim))
        return _shares(self.covered.sum(axes), self.count.sum(axes))

    @property
    def by_element(self) -> np.ndarray:
        """The share of each element; NaN where it has no points."""
        return _shares(self.covered.sum(0), self.count.sum(0))


def forecast_coverage(
    filter: AbstractFilter,
    model: AbstractModel,
    dataset: Dataset,
    key: PRNGKeyArray,
    *,
    horizon: int,
    split: str = "test",
    every: int = 4,
    num_samples: int = 200,
    levels: tuple[float, float] = (0.05, 0.95),
) -> Coverage:
    """Forecast from every `every`-th step of each sequence, and count what fell within.

    A band that reaches from the 5% to the 95% quantile should hold nine points in ten. Points on
    an edge count as held: the quantiles of whole numbers are whole numbers.
    """
    require_fitting(filter, model)
    require_key(key)
    require_all_positive(horizon=horizon, every=every, num_samples=num_samples)
    shape = (horizon, *dataset.observation_shape)
    covered, count = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    longest = int(dataset.split(split).lengths.max(initial=0)) // dataset.rows_per_step
    for number, rows in enumerate(dataset.split(split)):
        xs = dataset.observations(rows)
        own_key = jax.random.fold_in(key, number)
        places = np.arange(every, len(xs) - horizon, every)
        if not places.size:
            continue
        # All of one length, or each length would be compiled.
        padded = np.full((longest, *xs.shape[1:]), np.nan, xs.dtype)
        padded[: len(xs)] = xs
        us = dataset.known(split, number)
        if us is not None:
            us = jnp.asarray(np.pad(us, ((0, longest - len(us)), (0, 0))))
        mask = jnp.arange(longest) < len(xs)
        beliefs = _beliefs(filter, model, jnp.asarray(padded), us, mask, own_key)
        for begin in range(0, len(places), LOT):
            lot = places[begin : begin + LOT]
            filled = jnp.asarray(np.resize(lot, LOT))
            quantiles = _quantiles(
                filter, model, beliefs, us, filled, own_key, horizon, num_samples, levels
            )
            for place, (low, high) in zip(lot, np.asarray(quantiles), strict=False):
                points = xs[place + 1 : place + 1 + horizon]
                seen = ~np.isnan(points)
                # Levels went through float32: what is on an edge may lie a rounding beyond it.
                slack = 1e-4
                covered += seen & (points >= low - slack) & (points <= high + slack)
                count += seen
    return Coverage(covered, count, levels)


@eqx.filter_jit
def _beliefs(
    filter: AbstractFilter,
    model: AbstractModel,
    xs: Array,
    us: Array | None,
    mask: Array,
    key: PRNGKeyArray,
) -> Belief:
    """The belief after each step of a sequence; the first step is conditioned on."""

    def take(belief: Belief, x_and_u: Any, exists: Array, key: PRNGKeyArray) -> Any:
        x, u = x_and_u
        # As it was before the step knew its input, which a forecast is given by itself.
        return filter.step(model, driven_carry(filter, model, belief.carry, u), x, key)[0], belief

    first = start(filter, model, xs[0], key)
    later = (xs[1:], None if us is None else us[1:])
    last, before = scan_steps(take, first, later, mask[1:], key)
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), before, last)


@eqx.filter_jit
def _quantiles(
    filter: AbstractFilter,
    model: AbstractModel,
    beliefs: Belief,
    us: Array | None,
    places: Array,
    key: PRNGKeyArray,
    horizon: int,
    num_samples: int,
    levels: tuple[float, float],
) -> Array:
    def ahead(place: Array) -> Array:
        belief = jax.tree.map(lambda leaf: leaf[place], beliefs)
        own_key = jax.random.fold_in(jax.random.fold_in(key, place), 1)
        future = None if us is None else jax.lax.dynamic_slice_in_dim(us, place + 1, horizon)
        return forecast(
            filter, model, belief, horizon, own_key,
            us=future, num_samples=num_samples, levels=levels,
        ).quantiles  # fmt: skip

    return jax.vmap(ahead)(places)


def _shares(covered: np.ndarray, count: np.ndarray) -> np.ndarray:
    return np.where(count > 0, covered / np.maximum(count, 1), np.nan)
