"""The first world: linear and Gaussian, so that the best possible answer is known exactly."""

from dataclasses import dataclass

import equinox as eqx
import jax
import optax
from jaxtyping import Array, PRNGKeyArray
from rich.progress import Progress

from varfilter.demo.worlds import Score, Trained, adam, score, tracker, train, world_dataset
from varfilter.filters import KalmanFilter, VariationalFilter
from varfilter.inference import (
    Amortized,
    Exact,
    GradientDescent,
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
# Averaging the scores over fresh draws: the sampled recursion is noisy, and 2% is a fine line.
NUM_REPEATS = 4


@dataclass(frozen=True)
class TrackerResult:
    """The scores of all methods, and the two that were trained, by their short names."""

    scores: dict[str, Score]
    trained: dict[str, Trained]

    @property
    def gap(self) -> float:
        """How far AVF is above the exact optimum of the sampled recursion, as a fraction."""
        optimum = self.scores["exact"].free_energy
        return self.scores["avf"].free_energy / optimum - 1.0


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
    methods = {
        "kalman": ("Kalman filter (exact evidence)", KalmanFilter()),
        "exact": ("exact optimum of the sampled recursion", VariationalFilter(Exact())),
        "gradient": ("gradient E-step, 60 iterations", VariationalFilter(descent)),
        "avf": ("AVF, 2 iterations", trained["avf"].filter),
        "amortized": ("amortized baseline", trained["amortized"].filter),
        "prior": ("no inference (q = prior)", VariationalFilter(Prior())),
    }
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
