"""Simulated worlds, and how methods learn and are scored in them.

A tracked particle, and a pendulum filmed by a poor camera. Both become a `Dataset`, so that the
library's own `fit` learns from it. The first is linear and Gaussian, so that the best
possible answer is known exactly: `track` holds the methods against it.
"""

import functools
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray
from rich.progress import Progress

from varfilter.data import Dataset, Family, Ragged, RandomWindows
from varfilter.distributions import Normal
from varfilter.filtering import run
from varfilter.filters import (
    AbstractFilter,
    Filtered,
    KalmanFilter,
    ParticleFilter,
    VariationalFilter,
)
from varfilter.inference import (
    Amortized,
    Exact,
    GradientDescent,
    Gradients,
    Highway,
    Iterative,
    MLPPosterior,
    Prior,
    SignedLog,
)
from varfilter.learning import EndToEnd, TimeParallel
from varfilter.model import AbstractModel
from varfilter.models import LinearGaussian
from varfilter.simulation import generate
from varfilter.training import Annealing, fit

NUM_STEPS = 40
NUM_TRAIN, NUM_TEST = 512, 128
NUM_UPDATES, BATCH_SIZE, NUM_PHI_STEPS = 300, 32, 4
HIDDEN_SIZE = 64
NUM_PARTICLES = 64
# Averaging the scores over fresh draws: the sampled recursion is noisy, and 2% is a fine line.
NUM_REPEATS = 4


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


def world_dataset(name: str, train: Array | np.ndarray, test: Array | np.ndarray) -> Dataset:
    """Simulated sequences (number, time, *event) as a data set; NaN is missing.

    The test part stands for validation too: the demo stops by its number of updates alone.
    """
    parts = Ragged.of(list(np.asarray(train))), Ragged.of(list(np.asarray(test)))
    return Dataset(name, *parts, parts[1], Family(Normal))


def adam(learning_rate: float, num_steps: int) -> optax.GradientTransformation:
    """Adam with a cosine decay to zero and the gradient's norm held to 10."""
    schedule = optax.cosine_decay_schedule(learning_rate, num_steps)
    return optax.chain(optax.clip_by_global_norm(10.0), optax.adam(schedule))


def learn(
    name: str,
    learner: TimeParallel | EndToEnd,
    model: AbstractModel,
    filter: AbstractFilter,
    dataset: Dataset,
    key: PRNGKeyArray,
    *,
    num_updates: int,
    batch_size: int,
    num_annealing: int = 0,
    progress: Progress,
) -> Trained:
    """Learn from whole sequences; the weight of the KL rises to 1 over `num_annealing` updates."""
    task = progress.add_task(f"train {name}", total=num_updates)
    windows = RandomWindows(dataset, int(dataset.train.lengths[0]), batch_size)
    state, curve = learner.init(model, filter), []
    begin = time.perf_counter()
    for fitted in fit(
        learner, state, windows, key,
        num_updates=num_updates, kl_weight=Annealing(num_annealing, power=1.0),
    ):  # fmt: skip
        state = fitted.state
        curve.append(np.asarray(fitted.metrics.free_energy))
        shown = f"train {name}: {curve[-1][-1]:.2f} nats per step"
        progress.update(task, completed=fitted.num_updates, description=shown)
    seconds = time.perf_counter() - begin
    num_skipped = int(state.num_skipped)
    return Trained(state.model, state.filter, np.concatenate(curve), seconds, num_skipped)


def learn_both(
    what: str,
    model: AbstractModel,
    iterative: Iterative,
    amortized: Amortized,
    dataset: Dataset,
    key: PRNGKeyArray,
    *,
    learns_model: bool,
    num_updates: int,
    num_phi_steps: int,
    **options: Any,
) -> dict[str, Trained]:
    """Learn AVF and the amortized baseline from the same sequences, each as it is meant to learn.

    With `learns_model` each learns a model of its own beside it, from the one that is given.
    """
    theta = adam(3e-3, num_updates) if learns_model else None
    phi = adam(3e-3, num_updates * num_phi_steps)
    return {
        "avf": learn(
            f"AVF on {what}",
            TimeParallel(theta=theta, phi=phi, num_phi_steps=num_phi_steps),
            model, VariationalFilter(iterative), dataset, key, num_updates=num_updates, **options,
        ),
        "amortized": learn(
            f"the amortized baseline on {what}",
            EndToEnd(theta=theta, phi=adam(3e-3, num_updates)),
            model, VariationalFilter(amortized), dataset, key, num_updates=num_updates, **options,
        ),
    }  # fmt: skip


class Seen(NamedTuple):
    """What is kept of a filtered step: its surprise, F_t by iteration, and the prediction."""

    surprise: Array
    free_energies: Array
    prediction: Array


@eqx.filter_jit
def filtered(
    filter: AbstractFilter, model: AbstractModel, xs: Float[Array, "batch time *event"], key: Array
) -> Seen:
    """Filter each sequence after its first step, on which it is conditioned."""

    def sequence(xs: Array, key: PRNGKeyArray) -> Seen:
        return run(filter, model, xs[1:], key, x0=xs[0], keep=_seen)[1]

    return jax.vmap(sequence)(xs, jax.random.split(key, xs.shape[0]))


def _seen(filtered: Filtered) -> Seen:
    # A filter that has no inference iterations has the one number.
    iterates = getattr(filtered.info, "free_energies", filtered.surprise[None])
    return Seen(filtered.surprise, iterates, filtered.prediction.mean)


def score(
    name: str,
    model: AbstractModel,
    filter: AbstractFilter,
    xs: Array | np.ndarray,
    key: PRNGKeyArray,
    *,
    truth: Array | np.ndarray | None = None,
    num_repeats: int = 1,
    train_seconds: float | None = None,
    progress: Progress,
) -> Score:
    """Filter the sequences `num_repeats` times with fresh draws, and average.

    The predictions are held against `truth`, which is what was observed unless it is given.
    """
    task = progress.add_task(f"filter with {name}", total=num_repeats)
    truth = np.asarray(xs if truth is None else truth)[:, 1:]
    found = []
    for repeat in range(num_repeats):
        seen = filtered(filter, model, jnp.asarray(xs), jax.random.fold_in(key, repeat))
        square_error = np.mean((np.asarray(seen.prediction) - truth) ** 2)
        by_iteration = np.asarray(seen.free_energies).mean(axis=(0, 1))
        found.append((float(jnp.mean(seen.surprise)), by_iteration, square_error))
        progress.advance(task)
    nats, by_iteration, square_error = (np.mean(each, axis=0) for each in zip(*found, strict=True))
    free_energies = tuple(map(float, by_iteration))
    return Score(name, float(nats), free_energies, float(square_error**0.5), train_seconds)


def tracker() -> LinearGaussian:
    """A particle on a weak spring, pushed about at random and seen through noise.

    z = (x, y, velocity of x, velocity of y) and two noisy coordinates are observed; a step
    is 0.3 of a time unit. It is stationary, so that sequences of any length look alike.
    """
    dt, spring, damping = 0.3, 0.6, 0.3
    one_axis = np.array([[1.0, dt], [-spring * dt, 1.0 - damping * dt]])
    transition = np.kron(one_axis, np.eye(2))
    push = np.kron(np.diag([0.3, 0.1]), np.eye(2))
    stationary = push
    for _ in range(500):
        stationary = transition @ stationary @ transition.T + push
    return LinearGaussian(
        transition=transition,
        process_covariance=push,
        loading=np.eye(2, 4),
        noise_covariance=0.1 * np.eye(2),
        initial_covariance=stationary,
    )


class Pendulum(NamedTuple):
    """Videos of a pendulum: `videos` with NaN for missing pixels, `clean` as they should be."""

    videos: Float[Array, "num_sequences num_steps height width"]
    clean: Float[Array, "num_sequences num_steps height width"]
    angles: Float[Array, "num_sequences num_steps"]


@functools.partial(jax.jit, static_argnums=(0, 1), static_argnames=("image_size",))
def pendulum_video(
    num_sequences: int,
    num_steps: int,
    key: PRNGKeyArray,
    *,
    image_size: int = 16,
    noise: float = 0.2,
    missing: float = 0.2,
) -> Pendulum:
    """A swinging bob as a bright spot in small noisy images of which a part of the pixels is lost.

    The pendulum is damped and kicked at random, so its future is uncertain. `noise` is the
    standard deviation added to each pixel (the spot has height 1) and `missing` the fraction
    of pixels lost, independently in every frame.
    """
    key_start, key_kicks, key_noise, key_missing = jax.random.split(key, 4)
    shape = (num_sequences, num_steps)
    dt, gravity, damping, kick = 0.1, 9.8, 0.1, 0.3
    substeps = 4

    def swing(start: Array, kicks: Array) -> Array:
        def step(state: Array, kick: Array) -> tuple[Array, Array]:
            angle, speed = state
            for _ in range(substeps):
                speed = speed + dt / substeps * (-gravity * jnp.sin(angle) - damping * speed)
                angle = angle + dt / substeps * speed
            return jnp.stack([angle, speed + kick]), angle

        return jax.lax.scan(step, start, kicks)[1]

    starts = jax.random.uniform(key_start, (num_sequences, 2), minval=-1.0, maxval=1.0)
    starts = starts * jnp.array([[2.2, 4.0]])
    kicks = kick * jax.random.normal(key_kicks, shape)
    angles = jax.vmap(swing)(starts, kicks)
    clean = jax.vmap(jax.vmap(lambda angle: bob(angle, image_size)))(angles)
    noisy = clean + noise * jax.random.normal(key_noise, clean.shape)
    lost = jax.random.bernoulli(key_missing, missing, clean.shape)
    return Pendulum(jnp.where(lost, jnp.nan, noisy), clean, angles)


def bob(angle: Float[Array, ""], image_size: int) -> Float[Array, "height width"]:
    """The image of the bob at `angle` from hanging down: a Gaussian spot of height 1."""
    grid = (jnp.arange(image_size, dtype=angle.dtype) + 0.5) / image_size * 2.0 - 1.0
    x, y = 0.65 * jnp.sin(angle), 0.65 * jnp.cos(angle)
    square = (grid[None, :] - x) ** 2 + (grid[:, None] - y) ** 2
    return jnp.exp(-0.5 * square / 0.17**2)


@dataclass(frozen=True)
class TrackerResult:
    """The scores of all methods, and the two that were trained, by their short names."""

    scores: dict[str, Score]
    trained: dict[str, Trained]

    @property
    def gap(self) -> float:
        """How far the learned filter, with many trajectories, is from the exact answer, in nats."""
        return self.scores["particles"].free_energy - self.scores["kalman"].free_energy


def track(key: PRNGKeyArray, progress: Progress, effort: float = 1.0) -> TrackerResult:
    """Train the inferences for the known model, and score every method."""
    num_updates = max(10, round(effort * NUM_UPDATES))
    model = tracker()
    key_train, key_test, key_avf, key_amortized, key_fit, key_score = jax.random.split(key, 6)

    @eqx.filter_jit
    def sequences(key: PRNGKeyArray, count: int) -> Array:
        return jax.vmap(lambda k: generate(model, NUM_STEPS, k)[0])(jax.random.split(key, count))

    test_xs = sequences(key_test, NUM_TEST)
    dataset = world_dataset("tracker", sequences(key_train, NUM_TRAIN), test_xs)
    iterative = Iterative(
        model,
        normalize=SignedLog(),  # layer norm hides the size of a gradient of four numbers
        signal=Gradients(),
        update=Highway,
        encode_observation=True,
        hidden_size=HIDDEN_SIZE,
        num_iterations=2,
        key=key_avf,
    )
    amortized = Amortized(MLPPosterior(model, hidden_size=HIDDEN_SIZE, key=key_amortized))
    # The model is the true one and stays fixed: only inference is learned here.
    trained = learn_both(
        "the tracker", model, iterative, amortized, dataset, key_fit,
        learns_model=False, num_updates=num_updates, num_phi_steps=NUM_PHI_STEPS,
        batch_size=BATCH_SIZE, progress=progress,
    )  # fmt: skip
    descent = GradientDescent(
        optax.adam(optax.cosine_decay_schedule(0.3, 60)), num_iterations=60, num_samples=4
    )
    avf, amortized = trained["avf"].filter, trained["amortized"].filter
    assert isinstance(avf, VariationalFilter)
    methods = {
        "kalman": ("the exact answer (Kalman filter)", KalmanFilter()),
        "particles": (
            f"AVF, {NUM_PARTICLES} trajectories", ParticleFilter(avf.inference, NUM_PARTICLES)
        ),
        "exact": ("exact posterior of each step, one trajectory", VariationalFilter(Exact())),
        "gradient": (
            "gradient E-step, 60 iterations, one trajectory", VariationalFilter(descent)
        ),
        "avf": ("AVF, 2 iterations, one trajectory", avf),
        "amortized": ("amortized baseline, one trajectory", amortized),
        "prior": ("no inference (q = prior), one trajectory", VariationalFilter(Prior())),
    }  # fmt: skip
    scores = {
        short: score(
            name, model, filter, test_xs, key_score,
            num_repeats=1 if short == "kalman" else NUM_REPEATS,
            train_seconds=trained[short].seconds if short in trained else None,
            progress=progress,
        )
        for short, (name, filter) in methods.items()
    }  # fmt: skip
    return TrackerResult(scores, trained)
