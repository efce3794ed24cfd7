"""The first world: linear and Gaussian, so that the best possible answer is known exactly."""

from dataclasses import dataclass

import equinox as eqx
import jax
import optax
from jaxtyping import Array, PRNGKeyArray
from rich.progress import Progress

from varfilter.demo.worlds import Score, Trained, adam, score, tracker, train, world_dataset
from varfilter.filters import KalmanFilter, ParticleFilter, VariationalFilter
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
from varfilter.prediction import generate

NUM_STEPS = 40
NUM_TRAIN, NUM_TEST = 512, 128
NUM_UPDATES, BATCH_SIZE, NUM_PHI_STEPS = 300, 32, 4
HIDDEN_SIZE = 64
NUM_PARTICLES = 64
# Averaging the scores over fresh draws: the sampled recursion is noisy, and 2% is a fine line.
NUM_REPEATS = 4


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

    dataset = world_dataset(
        "tracker", sequences(key_train, NUM_TRAIN), sequences(key_test, NUM_TEST)
    )
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
    # The model is the true one and stays fixed (theta=None): only inference is learned here.
    trained = {
        "avf": train(
            "AVF on the tracker",
            TimeParallel(
                theta=None,
                phi=adam(3e-3, num_updates * NUM_PHI_STEPS),
                num_phi_steps=NUM_PHI_STEPS,
            ),
            model, VariationalFilter(iterative), dataset, key_fit,
            num_updates=num_updates, batch_size=BATCH_SIZE, progress=progress,
        ),
        "amortized": train(
            "the amortized baseline on the tracker",
            EndToEnd(theta=None, phi=adam(3e-3, num_updates)),
            model, VariationalFilter(amortized), dataset, key_fit,
            num_updates=num_updates, batch_size=BATCH_SIZE, progress=progress,
        ),
    }  # fmt: skip
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
            name, model, filter, dataset, key_score,
            num_repeats=1 if short == "kalman" else NUM_REPEATS,
            train_seconds=trained[short].seconds if short in trained else None,
            progress=progress,
        )
        for short, (name, filter) in methods.items()
    }  # fmt: skip
    return TrackerResult(scores, trained)
