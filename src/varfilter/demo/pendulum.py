"""The second world: a pendulum in small noisy images, with a model learned from nothing."""

import functools
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from rich.progress import Progress

from varfilter.demo.worlds import (
    Score,
    Trained,
    bob,
    filtered,
    learn_both,
    pendulum_video,
    score,
    world_dataset,
)
from varfilter.distributions import Particles
from varfilter.filters import ParticleFilter, VariationalFilter
from varfilter.inference import (
    Amortized,
    GradientDescent,
    Gradients,
    Highway,
    Iterative,
    LayerNorm,
    MLPPosterior,
    Prior,
)
from varfilter.models import SRNN, NormalHead
from varfilter.stream import Stream

IMAGE_SIZE, LATENT_SIZE, HIDDEN_SIZE = 16, 6, 64
NUM_STEPS = 30
NUM_PARTICLES = 16
NUM_TRAIN, NUM_TEST = 1024, 64
NUM_UPDATES, BATCH_SIZE, NUM_PHI_STEPS = 400, 16, 6
NUM_ANNEALING = 130
SHOWN_STEPS = 60
MIDDLE, HORIZON = 30, 10
FAULT, FAULT_STEPS, FAULT_ANGLE = 45, 2, 1.6
# The first steps are surprising because nothing is known yet, not because of a fault.
BURN_IN = 5
ALARM_QUANTILE = 0.999


@dataclass(frozen=True)
class Watched:
    """One held-out video, filtered as a stream with many trajectories, with a fault in it."""

    frames: np.ndarray
    predictions: np.ndarray
    updates: np.ndarray
    future: np.ndarray
    forecast_mean: np.ndarray
    forecast_sample: np.ndarray
    surprise: np.ndarray
    alarm_level: float

    @property
    def alarms(self) -> list[int]:
        """The steps whose surprise is above the alarm level."""
        steps = np.flatnonzero(self.surprise > self.alarm_level)
        return [int(t) for t in steps if t >= BURN_IN]

    @property
    def is_fault_found(self) -> bool:
        """Whether the most surprising step (after the first few) is one of the fault's."""
        peak = BURN_IN + int(np.argmax(self.surprise[BURN_IN:]))
        return FAULT <= peak < FAULT + FAULT_STEPS and peak in self.alarms


@dataclass(frozen=True)
class PendulumResult:
    """Scores by method, the two training runs, and the watched video."""

    scores: dict[str, Score]
    trained: dict[str, Trained]
    watched: Watched


def swing(key: PRNGKeyArray, progress: Progress, effort: float = 1.0) -> PendulumResult:
    """Train model and inference from images alone; score; then watch a video with a fault."""
    num_updates = max(10, round(effort * NUM_UPDATES))
    key_videos, key_model, key_avf, key_amortized, key_rest = jax.random.split(key, 5)
    key_fit, key_score, key_watch, key_video = jax.random.split(key_rest, 4)
    videos = pendulum_video(NUM_TRAIN + NUM_TEST, NUM_STEPS, key_videos)
    test_xs, test_clean = videos.videos[NUM_TRAIN:], videos.clean[NUM_TRAIN:]
    dataset = world_dataset("pendulum", videos.videos[:NUM_TRAIN], test_xs)
    # A model with a deterministic recurrence: what z_t is worth for later steps (here, the speed
    # of the pendulum) is no part of F_t, so a local inference would not learn to store it there.
    model = SRNN(
        (IMAGE_SIZE, IMAGE_SIZE),
        LATENT_SIZE,
        recurrent_size=HIDDEN_SIZE,
        prior_size=HIDDEN_SIZE,
        decoder_size=HIDDEN_SIZE,
        head=functools.partial(NormalHead, std=0.3),
        key=key_model,
    )
    iterative = Iterative(
        model,
        normalize=LayerNorm(),
        signal=Gradients(),
        update=Highway,
        encode_observation=True,
        hidden_size=HIDDEN_SIZE,
        num_iterations=2,
        key=key_avf,
    )
    amortized = Amortized(MLPPosterior(model, hidden_size=HIDDEN_SIZE, key=key_amortized))
    trained = learn_both(
        "the pendulum", model, iterative, amortized, dataset, key_fit,
        learns_model=True, num_updates=num_updates, num_phi_steps=NUM_PHI_STEPS,
        batch_size=BATCH_SIZE, num_annealing=NUM_ANNEALING, progress=progress,
    )  # fmt: skip
    learned, avf = trained["avf"].model, trained["avf"].filter
    assert isinstance(avf, VariationalFilter)
    assert isinstance(learned, SRNN)
    # What a user filters with: one sampled past, which training takes, is too sure of itself.
    many = ParticleFilter(avf.inference, NUM_PARTICLES)
    methods = {
        "particles": (f"AVF, {NUM_PARTICLES} trajectories", many),
        "avf": ("AVF, 2 iterations, one trajectory", avf),
        "gradient": (
            "gradient E-step, 30 iterations, AVF's model",
            VariationalFilter(GradientDescent(num_iterations=30)),
        ),
        "amortized": ("amortized baseline, its own model", trained["amortized"].filter),
        "prior": ("no inference (q = prior), AVF's model", VariationalFilter(Prior())),
    }
    scores = {}
    for short, (name, filter) in methods.items():
        of = trained["amortized"].model if short == "amortized" else learned
        seconds = trained[short].seconds if short in trained else None
        # The camera's noise is nobody's to predict: the error is that to the image without it.
        scores[short] = score(
            name, of, filter, test_xs, key_score,
            truth=test_clean, train_seconds=seconds, progress=progress,
        )  # fmt: skip
    level = _alarm_level(learned, many, test_xs, key_watch)
    return PendulumResult(
        scores, trained, _watch(learned, many, key_video, key_watch, level, progress)
    )


def _alarm_level(model: SRNN, filter: ParticleFilter, xs: Array, key: PRNGKeyArray) -> float:
    """The surprise that one step in a thousand of undisturbed videos exceeds."""
    surprise = filtered(filter, model, xs, key).surprise
    return float(jnp.quantile(surprise[:, BURN_IN:], ALARM_QUANTILE))


def _watch(
    model: SRNN,
    filter: ParticleFilter,
    key_video: PRNGKeyArray,
    key: PRNGKeyArray,
    alarm_level: float,
    progress: Progress,
) -> Watched:
    """Push a video frame by frame; in the middle, forecast."""
    video = pendulum_video(1, SHOWN_STEPS + 1, key_video)
    # As in training, the first frame is conditioned on; those that are shown come after it.
    x0, angles = np.asarray(video.videos[0, 0]), video.angles[0, 1:]
    clean = np.asarray(video.clean[0, 1:])
    # The fault: for two frames the camera shows the bob somewhere else; its noise and its lost
    # pixels stay as they were, so that only the content of the image is wrong.
    faulty = angles.at[FAULT : FAULT + FAULT_STEPS].add(FAULT_ANGLE)
    shown = np.asarray(jax.vmap(lambda angle: bob(angle, IMAGE_SIZE))(faulty))
    frames = np.asarray(video.videos[0, 1:]) - clean + shown

    task = progress.add_task("watch a video, frame by frame", total=SHOWN_STEPS)
    stream = Stream(filter, model, key, x0=x0)
    predictions, updates, surprise = [], [], []
    forecast = None

    @eqx.filter_jit
    def reconstruct(states: Any, posterior: Particles) -> Array:
        """What the trajectories show of this frame, averaged by their weights after it."""
        images = jax.vmap(lambda state, z: model.emission(state, z).mean)(states, posterior.values)
        return jnp.tensordot(posterior.weights, images, axes=1)

    for t, frame in enumerate(frames):
        if t == MIDDLE:
            forecast = stream.forecast(HORIZON)
        states = stream.belief.carry.states
        step = stream.push(frame)
        predictions.append(np.asarray(step.prediction.mean))
        updates.append(np.asarray(reconstruct(states, step.posterior)))
        surprise.append(float(step.surprise))
        progress.advance(task)
    assert forecast is not None
    return Watched(
        frames,
        np.stack(predictions),
        np.stack(updates),
        clean[MIDDLE : MIDDLE + HORIZON],
        np.asarray(forecast.mean),
        np.asarray(forecast.samples[0]),
        np.array(surprise),
        alarm_level,
    )
