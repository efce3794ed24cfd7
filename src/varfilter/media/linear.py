"""A linear state-space model of a table: what a model that is learned must be better than.

It is `LinearGaussian`, learned by its exact likelihood, of the columns as the run's own model is
told of them: of y, a column or its logarithm, in units of its usual change where it moves on. Each
column i has a level l and a latent s beside it, so that it starts as

    l' = f l + b + s / 2 + noise,   s' = s / 2 + noise,   y = l + noise,

with f = 1 for a column that moves on, else its autocorrelation. All else is learned: what columns
say of each other, what known inputs do to levels and values, and the noises; but not that changes
depend on the level of a column that moves on, since it soon lies where no training row did.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from varfilter._programs import kept_jit
from varfilter.data.continued import Continued
from varfilter.data.dataset import Dataset, Transform
from varfilter.inference.gradient import descend
from varfilter.media.gaussians import Gaussians
from varfilter.media.reference import level_groups
from varfilter.models import LinearGaussian
from varfilter.training.checkpoints import Checkpoint, load_checkpoint, save_checkpoint

# With more columns, an exact likelihood takes longer than all the rest.
MOST_COLUMNS = 24
# How it is learned: updates, each by so many windows of so many steps.
NUM_UPDATES, NUM_WINDOWS, WINDOW = 250, 16, 48
UPDATES_PER_DISPATCH = 25
LEARNING_RATE = 0.03
# The standard deviation of a parameter about where it starts, before the training rows are seen;
# of what columns say of each other it is less by the root of their number.
PRIOR_STD = 0.3
# Training sequences by which a learned model is held against its start.
MOST_JUDGED = 8
# Rows before the first place that it is told of.
MOST_BEFORE = 800
# Lengths that sequences are filled up to, so that few programs are compiled.
ROUNDED = 128


class Units(NamedTuple):
    """The units in which the linear model sees each column: y = log x or x, divided by `unit`."""

    is_log: np.ndarray
    moves: np.ndarray
    unit: np.ndarray
    drift: np.ndarray
    is_binary: np.ndarray

    @staticmethod
    def of(dataset: Dataset) -> "Units":
        """The units that follow from the transforms of the run's own model."""
        transforms = [family.transform or Transform() for family in dataset.families]
        moves = np.array([each.change_scale is not None for each in transforms])
        # This model knows no seasons: its changes are those from step to step.
        scale = np.array([each.season_spread or each.change_scale or 1.0 for each in transforms])
        unit = np.array([each.log_scale or 1.0 for each in transforms]) * scale
        drift = np.array([0.0 if each.season else each.drift for each in transforms]) / scale
        is_log = np.array([each.log_scale is not None for each in transforms])
        is_binary = np.array([family.is_binary for family in dataset.families])
        return Units(is_log, moves, unit, drift, is_binary)

    def transformed(self, xs: np.ndarray) -> np.ndarray:
        """Observations in the units of the linear model."""
        xs = np.asarray(xs, np.float64)
        # What is missing stays missing.
        positive = np.maximum(xs, np.finfo(np.float32).tiny)
        return np.where(self.is_log, np.log(np.where(self.is_log, positive, 1.0)), xs) / self.unit


def linear_start(dataset: Dataset) -> LinearGaussian:
    """The model before it has learned anything but autocorrelations."""
    units, size = Units.of(dataset), dataset.num_elements
    sequences = [
        units.transformed(dataset.observations(np.asarray(rows))) for rows in dataset.train
    ]
    seen = np.concatenate(sequences)
    mean, variance = np.nanmean(seen, axis=0), np.maximum(np.nanvar(seen, axis=0), 1e-3)
    factor = np.where(units.moves, 1.0, _autocorrelation(sequences, mean))
    # What a step adds: 1 to a level that moves on, in its units; else what its factor leaves.
    new = np.where(units.moves, 1.0, variance * (1.0 - factor**2))
    zeros = np.zeros((size, size))
    transition = np.block([[np.diag(factor), 0.5 * np.eye(size)], [zeros, 0.5 * np.eye(size)]])
    offset = np.where(units.moves, units.drift, mean * (1.0 - factor))
    # Compiled: one operation after another, its factorisations take seconds.
    return eqx.filter_jit(LinearGaussian)(
        transition=_floats(transition),
        process_covariance=_floats(np.diag(np.concatenate([0.5 * new, 0.3 * new]))),
        transition_bias=_floats(np.concatenate([offset, np.zeros(size)])),
        loading=_floats(np.concatenate([np.eye(size), zeros], axis=1)),
        noise_covariance=_floats(np.diag(0.25 * new)),
        initial_mean=_floats(np.concatenate([mean, np.zeros(size)])),
        initial_covariance=_floats(np.diag(np.concatenate([variance, 0.3 * new]))),
        input_size=dataset.input_size,
    )


def fit_linear(dataset: Dataset, *, num_updates: int = NUM_UPDATES) -> LinearGaussian:
    """Learn the model from the training rows, by its exact likelihood; the same each time.

    A Gaussian about the start holds the parameters of small tables back. Where the learned model
    says less of the training rows than the start, as may be after absurd ones, it is the start.
    """
    start, units = linear_start(dataset), Units.of(dataset)
    sequences = [
        units.transformed(dataset.observations(np.asarray(rows))).astype(np.float32)
        for rows in dataset.train
    ]
    # Of a Gaussian prior, as a part of the loss of a step.
    pull = 1.0 / (PRIOR_STD**2 * max(sum(map(len, sequences)), 1))
    optimizer = optax.chain(
        optax.clip_by_global_norm(10.0),
        optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, num_updates)),
    )
    model, state, free = start, optimizer.init(eqx.filter(start, eqx.is_array)), _free(start, units)
    random = np.random.default_rng(0)
    for begin in range(0, num_updates, UPDATES_PER_DISPATCH):
        count = min(UPDATES_PER_DISPATCH, num_updates - begin)
        batches = [_windows(dataset, sequences, random) for _ in range(count)]
        batches = jax.tree.map(lambda *each: np.stack(each), *batches)
        model, state = _updated(optimizer, model, state, start, free, units.moves, pull, batches)
    is_better = _evidence(model, dataset, sequences, units) > _evidence(
        start, dataset, sequences, units
    )
    return model if is_better else start


def _evidence(
    model: LinearGaussian, dataset: Dataset, sequences: list[np.ndarray], units: Units
) -> float:
    """log p of the training rows, of the longest sequences; NaN of a model that has diverged."""
    total = 0.0
    for number in np.argsort([-len(each) for each in sequences], kind="stable")[:MOST_JUDGED]:
        us = dataset.inputs["train"][int(number)] if dataset.input_names else None
        xs, us = _padded(sequences[number], us, dataset.input_size)
        scores = np.asarray(_kept_filtered(model, xs, us, units.moves)[2], np.float64)
        total += float(np.sum(scores[1:]))
    return total


def _free(start: LinearGaussian, units: Units) -> LinearGaussian:
    """1 for each parameter that is learned, and 0 for those that stay as they are.

    Changes do not depend on levels that move on, and those are seen as they are. The noise of a
    column is its own, and of a beginning nothing is learned.
    """
    ones: Any = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), start)
    levels = np.concatenate([units.moves, np.zeros(len(units.moves), bool)])
    ones = eqx.tree_at(
        lambda m: (m.transition, m.loading, m.noise.factor),
        ones,
        (
            np.where(levels, 0.0, ones.transition).astype(np.float32),
            np.where(levels, 0.0, ones.loading).astype(np.float32),
            np.eye(len(units.moves), dtype=np.float32),
        ),
    )
    return eqx.tree_at(lambda m: m.initial, ones, jax.tree.map(np.zeros_like, ones.initial))


@eqx.filter_jit
def _updated(
    optimizer: optax.GradientTransformation,
    model: LinearGaussian,
    state: Any,
    start: LinearGaussian,
    free: LinearGaussian,
    moves: Any,
    pull: float,
    batches: Any,
) -> tuple[LinearGaussian, Any]:
    """Some updates, a batch each, in one program."""

    def loss(model: LinearGaussian, batch: tuple[Any, Any, Any]) -> Array:
        xs, us, mask = batch
        evidence = jax.vmap(lambda xs, us: log_evidences(model, xs, us, moves))(xs, us)
        apart = jax.tree.map(lambda p, s: jnp.sum((p - s) ** 2), model, start)
        between = apart.transition + apart.loading + apart.process.factor
        prior = 0.5 * pull * (sum(jax.tree.leaves(apart)) + (xs.shape[-1] - 1) * between)
        # The first row of a window is conditioned on, and not scored.
        later = mask[:, 1:].astype(evidence.dtype)
        return prior - jnp.sum(later * evidence[:, 1:]) / jnp.maximum(jnp.sum(later), 1.0)

    def step(carry: tuple[Any, Any], batch: Any) -> tuple[tuple[Any, Any], None]:
        model, state = carry
        gradient = jax.grad(loss)(model, batch)
        gradient = jax.tree.map(lambda g, f: jnp.nan_to_num(g * f), gradient, free)
        updates, state = descend(optimizer, gradient, state, model)
        return (optax.apply_updates(model, updates), state), None

    return jax.lax.scan(step, (model, state), batches)[0]


def log_evidences(
    model: LinearGaussian,
    xs: Array,
    us: Array,
    moves: Any,
) -> Array:
    """log p(x_t | x_<t) of each step, by the Kalman filter in its form for one column at a time.

    The noise of each column is its own, so that they can be taken in one after another (Durbin and
    Koopman 2012, 6.4): nothing is factorised, what is missing is left out, and the program is
    small. `KalmanFilter` says the same, and takes a minute to compile with its gradient.
    """
    return _filtered(model, xs, us, moves)[2]


def _filtered(model: LinearGaussian, xs: Array, us: Array, moves: Any) -> tuple[Array, ...]:
    """(mean and covariance of z_t before x_t was seen, log p(x_t | x_<t)) of each step."""
    noise, process = model.noise.variance, model.process.covariance

    def take(carry: tuple[Array, Array], part: tuple[Array, ...]) -> Any:
        mean, covariance = carry
        x, offset, row, variance = part
        seen = ~jnp.isnan(x)
        along = covariance @ row
        spread = row @ along + variance
        error = jnp.where(seen, x, 0.0) - row @ mean - offset
        gain = jnp.where(seen, along / spread, 0.0)
        score = -0.5 * (error**2 / spread + jnp.log(2 * np.pi * spread))
        after = mean + gain * error, covariance - gain[:, None] * along[None, :]
        return after, jnp.where(seen, score, 0.0)

    def step(carry: tuple[Array, Array], x_and_u: tuple[Array, Array]) -> Any:
        x, u = x_and_u
        mean, covariance = carry
        mean = mean + model.transition_input @ u
        offset = model.noise.mean + model.loading_input @ u
        parts = x, offset, model.loading, noise
        (after, left), scores = jax.lax.scan(take, (mean, covariance), parts)
        after = model.transition @ after + model.process.mean
        left = model.transition @ left @ model.transition.T
        left = 0.5 * (left + left.T) + process
        return (after, left), (mean, covariance, jnp.sum(scores))

    # A level that moves on begins where it was first seen.
    first, size = xs[0], xs.shape[1]
    begins = moves & ~jnp.isnan(first)
    mean = model.initial.mean.at[:size].set(
        jnp.where(begins, jnp.where(begins, first, 0.0), model.initial.mean[:size])
    )
    kept = jnp.concatenate([~begins, jnp.ones_like(begins)])
    covariance = jnp.where(kept[:, None] & kept[None, :], model.initial.covariance, 0.0)
    covariance = covariance + jnp.diag(jnp.where(kept, 0.0, jnp.diagonal(process)))
    return jax.lax.scan(step, (mean, covariance), (xs, us))[1]


def _windows(
    dataset: Dataset, sequences: list[np.ndarray], random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(xs, us, mask) of windows, each as likely to hold one training step as another."""
    lengths = np.array([len(each) for each in sequences])
    chosen = random.choice(len(sequences), NUM_WINDOWS, p=lengths / lengths.sum())
    size = dataset.num_elements
    xs = np.full((NUM_WINDOWS, WINDOW, size), np.nan, np.float32)
    us = np.zeros((NUM_WINDOWS, WINDOW, dataset.input_size), np.float32)
    mask = np.zeros((NUM_WINDOWS, WINDOW), bool)
    for row, number in enumerate(chosen):
        begin = int(random.integers(0, max(lengths[number] - WINDOW, 0) + 1))
        part = sequences[number][begin : begin + WINDOW]
        xs[row, : len(part)], mask[row, : len(part)] = part, True
        if dataset.input_names:
            us[row, : len(part)] = dataset.inputs["train"][int(number)][begin : begin + WINDOW]
    return xs, us, mask


def linear_predictions(
    model: LinearGaussian,
    dataset: Dataset,
    sequence: Continued,
    places: np.ndarray,
    horizon: int,
) -> Gaussians:
    """What the model says of the steps from each place on, exactly, up to `horizon` of them."""
    units = Units.of(dataset)
    mean, variance = _ahead(model, units, sequence, places, horizon)
    mean, spread = mean * units.unit, np.sqrt(variance) * units.unit
    # Of a line, the share of ones is a guess near its ends.
    mean = np.where(units.is_binary, np.clip(mean, 0.02, 0.98), mean)
    found = Gaussians.of(mean, spread)._replace(is_log=units.is_log)
    return found.summing_to_one(level_groups(dataset))


def _ahead(
    model: LinearGaussian,
    units: Units,
    sequence: Continued,
    places: np.ndarray,
    horizon: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the variance of y, (places, horizon, columns)."""
    # What lies further back than this says nothing more, and takes its time.
    first = max(min(places.min(initial=len(sequence)), sequence.begin) - MOST_BEFORE, 0)
    places = places - first
    own = None if sequence.us is None else sequence.us[first:]
    xs, known = _padded(units.transformed(sequence.xs[first:]), own, model.input_size)
    means, covariances, _ = _kept_filtered(model, xs, known, units.moves)
    us = np.zeros((len(xs) + horizon, model.input_size), np.float32)
    if own is not None:
        us[: len(own)] = own[: len(us)]
    mean = np.asarray(means, np.float64)[places]
    covariance = np.asarray(covariances, np.float64)[places]
    parameters = [model.transition, model.process.covariance, model.loading, model.noise.covariance]
    a, q, c, r = (np.asarray(each, np.float64) for each in parameters)
    b, d = np.asarray(model.process.mean, np.float64), np.asarray(model.noise.mean, np.float64)
    by_input = np.asarray(model.transition_input, np.float64)
    seen_by_input = np.asarray(model.loading_input, np.float64)
    expected, variances = [], []
    for step in range(horizon):
        u = us[places + step].astype(np.float64)
        if step:
            mean = mean @ a.T + b + u @ by_input.T
            covariance = a @ covariance @ a.T + q
        expected.append(mean @ c.T + d + u @ seen_by_input.T)
        variances.append(np.einsum("ij,njk,ik->ni", c, covariance, c) + np.diagonal(r))
    return np.stack(expected, axis=1), np.stack(variances, axis=1)


def _padded(xs: np.ndarray, us: np.ndarray | None, input_size: int) -> tuple[Array, Array]:
    """Rows and their inputs, filled up to a length that others have too.

    What is believed before a step that is yet to come needs a row for it, which is missing.
    """
    length = -(-(len(xs) + 1) // ROUNDED) * ROUNDED
    rows = np.full((length, xs.shape[1]), np.nan, np.float32)
    rows[: len(xs)] = xs
    known = np.zeros((length, input_size), np.float32)
    if us is not None:
        known[: len(us)] = us[:length]
    return jnp.asarray(rows), jnp.asarray(known)


@dataclass(frozen=True)
class LinearReference:
    """The predictions of a linear model of `dataset`, of which no rows are needed."""

    model: LinearGaussian
    dataset: Dataset

    def __call__(self, sequence: Continued, places: np.ndarray, horizon: int) -> Gaussians:
        """What is said of the steps from each place on, up to `horizon` of them."""
        return linear_predictions(self.model, self.dataset, sequence, places, horizon)

    @property
    def sha256(self) -> str:
        """What tells one learned model from another."""
        leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(self.model)]
        return hashlib.sha256(b"".join(leaf.tobytes() for leaf in leaves)).hexdigest()


def kept_linear(path: Path, dataset: Dataset) -> LinearGaussian:
    """The model that was learned before and is at `path`; or learned now, and put there.

    One of other data than these, or a damaged one, is learned anew. Where nothing can be written it
    is not kept, and learned again when it is needed.
    """
    data = dataset.sha256()
    try:
        found = load_checkpoint(path, linear_start(dataset))
        if found.manifest.get("data_sha256") == data:
            return found.state
    except (ValueError, OSError):
        pass
    model = fit_linear(dataset)
    with suppress(OSError):
        save_checkpoint(path, Checkpoint(model, NUM_UPDATES, {"data_sha256": data}))
    return model


def load_linear(path: Path, dataset: Dataset) -> LinearGaussian:
    """The model at `path`, of data with the columns and inputs of `dataset`; no rows are needed."""
    size = dataset.num_elements
    like = eqx.filter_eval_shape(
        LinearGaussian,
        transition=jnp.zeros((2 * size, 2 * size)),
        process_covariance=jnp.eye(2 * size),
        loading=jnp.zeros((size, 2 * size)),
        noise_covariance=jnp.eye(size),
        input_size=dataset.input_size,
    )
    like = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)
    return load_checkpoint(path, like).state


def _autocorrelation(sequences: list[np.ndarray], mean: np.ndarray) -> np.ndarray:
    """What is left of a deviation from the mean a step later, by column."""
    before = np.concatenate([xs[:-1] - mean for xs in sequences])
    after = np.concatenate([xs[1:] - mean for xs in sequences])
    both = ~np.isnan(before) & ~np.isnan(after)
    product = np.sum(np.where(both, before * after, 0.0), axis=0)
    square = np.sum(np.where(both, before**2, 0.0), axis=0)
    return np.clip(product / np.maximum(square, 1e-12), -0.9, 0.98)


def _floats(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32)


_kept_filtered = kept_jit(_filtered)
