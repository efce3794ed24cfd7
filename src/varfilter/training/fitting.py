"""Training: a generator of updates, many of them in one dispatch."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from varfilter._arguments import kind, require_key, require_positive
from varfilter._programs import kept_jit
from varfilter.data.batches import Batch, RandomWindows, prefetched
from varfilter.devices import (
    keep_whole,
    of_first_process,
    own_copy,
    own_places,
    replicated,
    require_agreement,
    require_mesh,
    sharded,
    spread,
    using_mesh,
)
from varfilter.learning import EndToEnd, EnsembleLearner, LearnerState, Metrics, TimeParallel
from varfilter.training.augmentation import Thinning, Transposition

Learner = TimeParallel | EndToEnd | EnsembleLearner
Weight = Callable[[Int[Array, ""]], Float[Array, ""]]


class Fitted(eqx.Module):
    """What was learned so far, and the metrics of the updates since the last time, in order.

    Of `fit_stacked`, each array has a leading axis, with an entry for each learner.
    """

    state: LearnerState
    metrics: Metrics

    @property
    def num_updates(self) -> int:
        """How many updates were made in all."""
        return int(np.max(self.state.num_updates))


class Annealing(eqx.Module):
    """The weight of the KL: ((update // updates_per_epoch) / num_epochs)^power, then 1.

    The original code raises it once an epoch, squared; the paper says linearly.
    """

    num_epochs: int = 0
    updates_per_epoch: int = 1
    power: float = 2.0

    def __check_init__(self):
        require_positive("updates_per_epoch", self.updates_per_epoch)
        if self.num_epochs < 0 or not self.power > 0.0:
            raise ValueError(
                "`num_epochs` must not be negative and `power` must be positive; got"
                f" {self.num_epochs} and {self.power}."
            )

    def __call__(self, update: Int[Array, ""]) -> Float[Array, ""]:
        """The weight in this update, counted from 0."""
        epoch = (update // self.updates_per_epoch).astype(jnp.result_type(float))
        num_epochs = jnp.asarray(self.num_epochs, epoch.dtype)
        # Without annealing the weight is 1 from the first update on, where 0 / 0 is no number.
        weight = jnp.minimum(epoch / jnp.maximum(num_epochs, 1.0), 1.0) ** self.power
        return jnp.where(num_epochs > 0, weight, 1.0)


def fit(
    learner: Learner,
    state: LearnerState,
    windows: RandomWindows,
    key: PRNGKeyArray,
    *,
    num_updates: int,
    updates_per_dispatch: int = 10,
    seconds_per_dispatch: float | None = None,
    updates_per_epoch: int | None = None,
    kl_weight: Weight | None = None,
    transposition: Transposition | None = None,
    thinning: Thinning | None = None,
    devices: Mesh | None = None,
) -> Iterator[Fitted]:
    """Learn until `num_updates` were made in all; yields after every `updates_per_dispatch`.

    With `seconds_per_dispatch` these are the most, and it yields after as many as take about so
    long by measure, which changes no number: it is one program. It also yields at the end of each
    epoch, if `updates_per_epoch` says when that is.

    Batch and randomness of an update depend on its number and the key alone: to resume, call
    it with the `state` of a checkpoint and the same key, and it gives the numbers of a run
    that was never interrupted. Everything else (progress bars, checkpoints, early stopping)
    is for the caller between two yields; to stop, leave the loop.

    Windows that lie on the device are drawn there, in the same dispatch as the updates; others
    are read ahead, one update a dispatch. The first step of a window is conditioned on, and not
    scored. `kl_weight` is a function of the number of the update, such as `Annealing`;
    `transposition` moves piano rolls to other keys; `thinning` hides some of each batch, and needs
    a learner with `complete=False`.

    With `devices`, `device_mesh(batch_size)`, each of them learns from its share of each batch;
    the numbers are those of one device to rounding. What is yielded lies on one device, in each
    process. Of several processes all begin with the `state` of the first, and all must do
    the same between two yields, but for files, which `is_first_process` writes.
    """
    require_key(key)
    epoch = _require_schedule(
        learner, windows, thinning,
        num_updates, updates_per_dispatch, seconds_per_dispatch, updates_per_epoch,
    )  # fmt: skip
    weight = Annealing() if kl_weight is None else kl_weight
    update = _Update(learner, key, weight, transposition, thinning)
    on_host = isinstance(windows.values, np.ndarray)
    if devices is not None:
        require_mesh(devices, windows.batch_size)
        settings = (update, num_updates, updates_per_dispatch, seconds_per_dispatch)
        require_agreement("The arguments of `fit`", windows.lengths, *settings)
        state = replicated(devices, of_first_process(state))
        windows = windows if on_host else replicated(devices, windows)
    first = int(state.num_updates)
    if on_host:
        dispatch = _from_host(update, windows, first, devices)
    else:
        dispatch = _on_device(update, windows, updates_per_dispatch, devices)
    pace = _Pace(updates_per_dispatch, seconds_per_dispatch, together=devices is not None)
    for after, metrics in _dispatched(dispatch, state, first, num_updates, epoch, pace):
        yield Fitted(after if devices is None else own_copy(after), metrics)


def fit_stacked(
    learners: Learner,
    states: LearnerState,
    windows: RandomWindows,
    keys: Key[Array, " members"],
    *,
    num_updates: int,
    updates_per_dispatch: int = 10,
    seconds_per_dispatch: float | None = None,
    updates_per_epoch: int | None = None,
    kl_weight: Weight | None = None,
    transposition: Transposition | None = None,
    thinning: Thinning | None = None,
) -> Iterator[Fitted]:
    """`fit` for several learners at once, in one program, each as if it learned alone.

    `learners` and `states` are `stacked`, and so are `kl_weight`, `transposition` and `thinning`
    where they differ; a learner whose numbers are the same for all need not be. Each has its own
    key, draws its own batches, and learns what `fit` teaches it with that key, to rounding. All
    states have made equally many updates. Who wants no more of one of them takes its state
    (`unstacked`), and ignores what becomes of it later.
    """
    require_key(jnp.ravel(keys)[0])
    epoch = _require_schedule(
        learners, windows, thinning,
        num_updates, updates_per_dispatch, seconds_per_dispatch, updates_per_epoch,
    )  # fmt: skip
    counts = np.asarray(states.num_updates)
    if keys.ndim != 1 or counts.shape != keys.shape:
        raise ValueError(
            "`keys` must be one for each of the `states`, which are stacked; got keys of shape"
            f" {keys.shape} and states of shape {counts.shape}."
        )
    if len(set(counts.tolist())) > 1:
        raise ValueError(
            f"`states` must have made equally many updates; got {counts.tolist()}. Give those that"
            " are behind to `fit` first."
        )
    weight = Annealing() if kl_weight is None else kl_weight
    update = _Update(learners, keys, weight, transposition, thinning)
    first = int(counts[0])
    if isinstance(windows.values, np.ndarray):
        dispatch = _stacked_from_host(update, windows, first)
    else:
        dispatch = _stacked_on_device(update, windows, updates_per_dispatch)
    pace = _Pace(updates_per_dispatch, seconds_per_dispatch, together=False)
    for after, metrics in _dispatched(dispatch, states, first, num_updates, epoch, pace):
        yield Fitted(after, metrics)


def _require_schedule(
    learner: Learner,
    windows: RandomWindows,
    thinning: Thinning | None,
    num_updates: int,
    updates_per_dispatch: int,
    seconds_per_dispatch: float | None,
    updates_per_epoch: int | None,
) -> int:
    """Refuse what cannot be learned by; returns how many updates an epoch has."""
    if not isinstance(windows, RandomWindows):
        raise TypeError(
            f"`windows` must be a `RandomWindows`; got {kind(windows)}. Of a `Dataset`:"
            " `varfilter.data.RandomWindows(dataset, num_steps, batch_size)`; a batch of arrays is"
            " learned from by `learner.update(state, xs, key)`."
        )
    require_positive("num_updates", num_updates)
    require_positive("updates_per_dispatch", updates_per_dispatch)
    if seconds_per_dispatch is not None and not seconds_per_dispatch >= 0.0:
        raise ValueError(
            f"`seconds_per_dispatch` must not be negative; got {seconds_per_dispatch}."
        )
    epoch = num_updates if updates_per_epoch is None else updates_per_epoch
    require_positive("updates_per_epoch", epoch)
    if windows.num_steps < 2:
        raise ValueError(
            f"`windows` must have at least 2 steps, one to condition on; got {windows.num_steps}."
        )
    if thinning is not None and learner.complete:
        raise ValueError(
            "`thinning` hides observations, but `learner` has `complete=True`, a promise that"
            " none is missing. Give `complete=False`."
        )
    return epoch


Dispatch = Callable[[LearnerState, int, int], tuple[LearnerState, Metrics]]


def _dispatched(
    dispatch: Dispatch, state: LearnerState, first: int, last: int, epoch: int, pace: "_Pace"
) -> Iterator[tuple[LearnerState, Metrics]]:
    """The states and metrics of one dispatch after the other, from update `first` to `last`."""
    while first < last:
        end = min(pace.end(first), first - first % epoch + epoch, last)
        with pace.timed(end - first):
            state, metrics = dispatch(state, first, end)
            if pace.seconds is not None:
                jax.block_until_ready(state.num_updates)
        yield state, metrics
        first = end


class _Pace:
    """How many updates go into a dispatch: as many as allowed, or as take `seconds`.

    Few at first, and then twice as many each time, as long as the time allows it: how long a
    dispatch takes is known when it is over. What compiles, the first, says nothing of it. Of
    several processes that work `together` each has a clock of its own; the first one's counts.
    """

    def __init__(self, most: int, seconds: float | None, *, together: bool):
        self.most, self.seconds, self.together = most, seconds, together
        self.count = most if seconds is None else 1
        self.is_compiled = False

    def end(self, first: int) -> int:
        """The update before which a dispatch that begins with `first` is to end."""
        if self.seconds is None:  # counted from 0, wherever a run was resumed
            return first - first % self.most + self.most
        return first + self.count

    @contextmanager
    def timed(self, num_updates: int) -> Iterator[None]:
        """Learn from the dispatch of so many updates inside the block."""
        begin = time.perf_counter()
        yield
        if self.seconds is None:
            return
        count = self.count
        if self.is_compiled:
            each = (time.perf_counter() - begin) / num_updates
            count = 1
            while count < min(2 * self.count, self.most) and 2 * count * each <= self.seconds:
                count = min(2 * count, self.most)
        self.is_compiled = True
        self.count = int(of_first_process(np.asarray(count))) if self.together else count


class _Update(eqx.Module):
    """One update as a function of its number and its batch; all else is fixed."""

    learner: Learner
    key: Key[Array, "..."]
    weight: Weight
    transposition: Transposition | None
    thinning: Thinning | None

    @property
    def key_windows(self) -> PRNGKeyArray:
        return jax.random.fold_in(self.key, 0)

    def __call__(self, state: LearnerState, batch: Batch, i: Any) -> tuple[LearnerState, Metrics]:
        if self.transposition is not None:
            key = jax.random.fold_in(jax.random.fold_in(self.key, 3), i)
            batch = self.transposition(batch, key)
        if self.thinning is not None:
            batch = self.thinning(batch, jax.random.fold_in(jax.random.fold_in(self.key, 2), i))
        return self.learner.update(
            state,
            batch.xs[:, 1:],
            jax.random.fold_in(jax.random.fold_in(self.key, 1), i),
            mask=batch.mask[:, 1:],
            x0=batch.xs[:, 0],
            us=None if batch.us is None else batch.us[:, 1:],
            kl_weight=self.weight(jnp.asarray(i, jnp.int32)),
        )


def _on_device(
    update: _Update, windows: RandomWindows, most: int, devices: Mesh | None
) -> Dispatch:
    # What is spread over devices is traced for these devices alone.
    dispatch = _kept_updates if devices is None else _spread_updates

    def call(state: LearnerState, first: int, end: int) -> tuple[LearnerState, Metrics]:
        arrays, static = eqx.partition(state, eqx.is_array)
        begin, stop = np.asarray(first, np.int32), np.asarray(end, np.int32)
        with using_mesh(devices):
            leaves, kept = dispatch(update, state, windows, begin, stop, most)
        state = eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), leaves), static)
        kept = kept if devices is None else own_copy(kept)
        return state, jax.tree.map(lambda m: m[: end - first], kept)

    return call


def _updates(
    update: _Update,
    state: LearnerState,
    windows: RandomWindows,
    first: Any,
    end: Any,
    most: int,
) -> tuple[list[Array], Metrics]:
    """The arrays of the state after updates `first` to `end`, and the metrics of each of them."""
    arrays, static = eqx.partition(state, eqx.is_array)

    def one(i: Array, arrays: Any) -> tuple[Any, Metrics]:
        batch = spread(windows.windows(i, update.key_windows))
        after, metrics = update(eqx.combine(arrays, static), batch, i)
        return keep_whole((eqx.filter(after, eqx.is_array), metrics))

    shapes = eqx.filter_eval_shape(one, first, arrays)[1]
    empty = jax.tree.map(lambda s: jnp.zeros((most, *s.shape), s.dtype), shapes)

    # A loop whose end is not known to the compiler: the last dispatch of a run, or the first
    # after a resumption, may be shorter, and is the same program.
    def body(i: Array, carry: Any) -> Any:
        arrays, kept = carry
        arrays, metrics = one(i, arrays)
        kept = jax.tree.map(lambda k, m: k.at[i - first].set(m), kept, metrics)
        return arrays, kept

    arrays, kept = jax.lax.fori_loop(first, end, body, (arrays, empty))
    return jax.tree.leaves(arrays), kept


_kept_updates = kept_jit(_updates)
_spread_updates = eqx.filter_jit(_updates)


def _from_host(
    update: _Update, windows: RandomWindows, first_step: int, devices: Mesh | None
) -> Dispatch:
    places = slice(None) if devices is None else own_places(devices, windows.batch_size)
    batches = prefetched(windows, update.key_windows, first_step=first_step, part=places)

    @eqx.filter_jit
    def spread_update(state: LearnerState, batch: Batch, i: Array) -> tuple[LearnerState, Metrics]:
        return keep_whole(update(state, batch, i))

    def one(state: LearnerState, batch: Batch, i: int) -> tuple[LearnerState, Metrics]:
        if devices is None:
            return update(state, batch, i)
        batch = sharded(devices, batch)
        with using_mesh(devices):
            state, metrics = spread_update(state, batch, jnp.asarray(i, jnp.int32))
        return state, own_copy(metrics)

    def call(state: LearnerState, first: int, end: int) -> tuple[LearnerState, Metrics]:
        kept = []
        for i in range(first, end):
            state, metrics = one(state, next(batches), i)
            kept.append(metrics)
        return state, jax.tree.map(lambda *each: jnp.stack(each), *kept)

    return call


def _stacked_on_device(update: _Update, windows: RandomWindows, most: int) -> Dispatch:
    def call(state: LearnerState, first: int, end: int) -> tuple[LearnerState, Metrics]:
        begin, stop = jnp.asarray(first, jnp.int32), jnp.asarray(end, jnp.int32)
        state, kept = _stacked_updates(update, state, windows, begin, stop, most)
        return state, jax.tree.map(lambda m: m[:, : end - first], kept)

    return call


# Seeds and rates are arguments, and no constants: other ones are the same program.
@eqx.filter_jit
def _stacked_updates(
    update: _Update,
    state: LearnerState,
    windows: RandomWindows,
    first: Array,
    end: Array,
    most: int,
) -> tuple[LearnerState, Metrics]:
    arrays, static = eqx.partition(state, eqx.is_array)

    def member(update: _Update, arrays: Any, i: Array) -> tuple[Any, Metrics]:
        batch = windows.windows(i, update.key_windows)
        after, metrics = update(eqx.combine(arrays, static), batch, i)
        return eqx.filter(after, eqx.is_array), metrics

    members = eqx.filter_vmap(member, in_axes=(eqx.if_array(0), eqx.if_array(0), None))
    shapes = eqx.filter_eval_shape(members, update, arrays, first)[1]
    empty = jax.tree.map(lambda s: jnp.zeros((most, *s.shape), s.dtype), shapes)

    def body(i: Array, carry: Any) -> Any:
        arrays, kept = carry
        arrays, metrics = members(update, arrays, i)
        return arrays, jax.tree.map(lambda k, m: k.at[i - first].set(m), kept, metrics)

    arrays, kept = jax.lax.fori_loop(first, end, body, (arrays, empty))
    return eqx.combine(arrays, static), jax.tree.map(lambda k: jnp.moveaxis(k, 0, 1), kept)


def _stacked_from_host(update: _Update, windows: RandomWindows, first_step: int) -> Dispatch:
    keys = [jax.random.fold_in(key, 0) for key in update.key]
    batches = [prefetched(windows, key, first_step=first_step) for key in keys]

    def call(state: LearnerState, first: int, end: int) -> tuple[LearnerState, Metrics]:
        kept = []
        for i in range(first, end):
            batch = jax.tree.map(lambda *each: jnp.stack(each), *map(next, batches))
            state, metrics = _stacked_update(update, state, batch, jnp.asarray(i, jnp.int32))
            kept.append(metrics)
        return state, jax.tree.map(lambda *each: jnp.stack(each, axis=1), *kept)

    return call


@eqx.filter_jit
def _stacked_update(
    update: _Update, state: LearnerState, batch: Batch, i: Array
) -> tuple[LearnerState, Metrics]:
    def member(update: _Update, state: LearnerState, batch: Batch, i: Array) -> Any:
        return update(state, batch, i)

    axes = (eqx.if_array(0), eqx.if_array(0), eqx.if_array(0), None)
    return eqx.filter_vmap(member, in_axes=axes)(update, state, batch, i)
