"""Training: a generator of updates, many of them in one dispatch."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from varfilter._arguments import require_key, require_positive
from varfilter.data.batches import Batch, RandomWindows
from varfilter.data.prefetch import prefetched
from varfilter.data.thinned import Thinning
from varfilter.learning import EndToEnd, Learning, Metrics, TimeParallel

Learner = TimeParallel | EndToEnd
Weight = Callable[[Int[Array, ""]], Float[Array, ""]]


class Fitted(eqx.Module):
    """What was learned so far, and the metrics of the updates since the last time, in order."""

    learning: Learning
    metrics: Metrics

    @property
    def num_updates(self) -> int:
        """All updates that were made."""
        return int(self.learning.num_updates)


class Annealing(eqx.Module):
    """The weight of the KL: ((update // updates_per_epoch) / num_epochs)^power, then 1.

    The original's code raises it once an epoch, squared; the paper says linearly.
    """

    num_epochs: int = eqx.field(static=True, default=0)
    updates_per_epoch: int = eqx.field(static=True, default=1)
    power: float = eqx.field(static=True, default=2.0)

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
        if self.num_epochs == 0:
            return jnp.ones_like(epoch)
        return jnp.minimum(epoch / self.num_epochs, 1.0) ** self.power


def fit(
    learner: Learner,
    learning: Learning,
    windows: RandomWindows,
    key: PRNGKeyArray,
    *,
    num_updates: int,
    updates_per_dispatch: int = 10,
    kl_weight: Weight | None = None,
    thinning: Thinning | None = None,
) -> Iterator[Fitted]:
    """Learn until `num_updates` were made in all; yields after every `updates_per_dispatch`.

    Batch and randomness of an update depend on its number and the key alone: to resume, call
    it with the `learning` of a checkpoint and the same key, and it gives the numbers of a run
    that was never interrupted. Everything else (progress bars, checkpoints, early stopping)
    is for the caller between two yields; to stop, leave the loop.

    Windows that lie on the device are drawn there, in the same dispatch as the updates; others
    are read ahead, one update a dispatch. The first step of a window is conditioned on, and not
    scored. `kl_weight` is a function of the number of the update, such as `Annealing`;
    `thinning` hides some of each batch, and needs a learner with `complete=False`.
    """
    require_key(key)
    require_positive("num_updates", num_updates)
    require_positive("updates_per_dispatch", updates_per_dispatch)
    if windows.num_steps < 2:
        raise ValueError(
            f"`windows` must have at least 2 steps, one to condition on; got {windows.num_steps}."
        )
    if thinning is not None and learner.complete:
        raise ValueError(
            "`thinning` hides observations, but `learner` has `complete=True`, a promise that"
            " none is missing. Give `complete=False`."
        )
    weight = Annealing() if kl_weight is None else kl_weight
    first = int(learning.num_updates)
    if isinstance(windows.values, np.ndarray):
        dispatch = _from_host(learner, windows, key, weight, thinning, first)
    else:
        dispatch = _on_device(learner, windows, key, weight, thinning, updates_per_dispatch)
    while first < num_updates:
        # The grid is counted from 0: a resumed run makes the dispatches of an unbroken one.
        end = min(first - first % updates_per_dispatch + updates_per_dispatch, num_updates)
        learning, metrics = dispatch(learning, first, end)
        yield Fitted(learning, metrics)
        first = end


def _update(
    learner: Learner,
    learning: Learning,
    batch: Batch,
    key: PRNGKeyArray,
    weight: Weight,
    thinning: Thinning | None,
    i: Any,
) -> tuple[Learning, Metrics]:
    if thinning is not None:
        batch = thinning(batch, jax.random.fold_in(jax.random.fold_in(key, 2), i))
    return learner.update(
        learning,
        batch.xs[:, 1:],
        jax.random.fold_in(jax.random.fold_in(key, 1), i),
        mask=batch.mask[:, 1:],
        x0=batch.xs[:, 0],
        kl_weight=weight(jnp.asarray(i, jnp.int32)),
    )


def _on_device(
    learner: Learner,
    windows: RandomWindows,
    key: PRNGKeyArray,
    weight: Weight,
    thinning: Thinning | None,
    most: int,
) -> Callable[[Learning, int, int], tuple[Learning, Metrics]]:
    @eqx.filter_jit
    def dispatch(learning: Learning, windows: RandomWindows, first: Array, end: Array) -> Any:
        arrays, static = eqx.partition(learning, eqx.is_array)

        def update(i: Array, arrays: Any) -> tuple[Any, Metrics]:
            batch = windows.windows(i, jax.random.fold_in(key, 0))
            learning = eqx.combine(arrays, static)
            after, metrics = _update(learner, learning, batch, key, weight, thinning, i)
            return eqx.filter(after, eqx.is_array), metrics

        shapes = eqx.filter_eval_shape(update, first, arrays)[1]
        empty = jax.tree.map(lambda s: jnp.zeros((most, *s.shape), s.dtype), shapes)

        # A loop whose end is not known to the compiler: the last dispatch of a run, or the first
        # after a resumption, may be shorter, and is the same program.
        def body(i: Array, carry: Any) -> Any:
            arrays, kept = carry
            arrays, metrics = update(i, arrays)
            kept = jax.tree.map(lambda k, m: k.at[i - first].set(m), kept, metrics)
            return arrays, kept

        arrays, kept = jax.lax.fori_loop(first, end, body, (arrays, empty))
        return eqx.combine(arrays, static), kept

    def call(learning: Learning, first: int, end: int) -> tuple[Learning, Metrics]:
        bounds = (jnp.asarray(n, jnp.int32) for n in (first, end))
        learning, kept = dispatch(learning, windows, *bounds)
        return learning, jax.tree.map(lambda m: m[: end - first], kept)

    return call


def _from_host(
    learner: Learner,
    windows: RandomWindows,
    key: PRNGKeyArray,
    weight: Weight,
    thinning: Thinning | None,
    first_step: int,
) -> Callable[[Learning, int, int], tuple[Learning, Metrics]]:
    batches = prefetched(windows, jax.random.fold_in(key, 0), first_step=first_step)

    def call(learning: Learning, first: int, end: int) -> tuple[Learning, Metrics]:
        kept = []
        for i in range(first, end):
            batch = next(batches)
            learning, metrics = _update(learner, learning, batch, key, weight, thinning, i)
            kept.append(metrics)
        return learning, jax.tree.map(lambda *each: jnp.stack(each), *kept)

    return call
