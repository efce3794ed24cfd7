"""The models that are measured, and observations for them."""

import jax
import jax.numpy as jnp
import numpy as np

import varfilter as vf

KEY = jax.random.key(0)
TRANSITION = 0.9 * np.eye(4) + 0.05 * np.eye(4, k=1)
PROCESS = 0.1 * np.eye(4)
LOADING = np.random.default_rng(0).normal(size=(2, 4))
NOISE = 0.2 * np.eye(2)


def small() -> vf.LinearGaussian:
    """Four latents, two observed: a tracker. It starts from N(0, I) one step before the first."""
    return vf.LinearGaussian(
        transition=TRANSITION,
        process_covariance=PROCESS,
        loading=LOADING,
        noise_covariance=NOISE,
        initial_covariance=TRANSITION @ TRANSITION.T + PROCESS,
    )


def music(*, quick: bool) -> vf.SRNN:
    """SRNN at the sizes of the paper's music experiments."""
    if quick:
        return vf.SRNN(8, 4, recurrent_size=8, prior_size=8, decoder_size=8, key=KEY)
    return vf.SRNN(key=KEY)


def piano_rolls(model: vf.SRNN, num_sequences: int, num_steps: int) -> jax.Array:
    """Random notes, as sparse as music: (sequences, steps, notes)."""
    shape = (num_sequences, num_steps, model.lstm.in_size)
    return jax.random.bernoulli(jax.random.key(1), 0.05, shape).astype(jnp.result_type(float))


def observations(num_steps: int) -> np.ndarray:
    """A sequence drawn from the small model."""
    return np.asarray(vf.generate(small(), num_steps, jax.random.key(2))[0])
