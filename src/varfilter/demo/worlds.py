"""Simulated worlds: a tracked particle, and a pendulum filmed by a poor camera."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.models import LinearGaussian


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
    """Films of a pendulum: `videos` with NaN for missing pixels, `clean` as they should be."""

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
