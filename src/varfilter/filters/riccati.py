"""The Riccati recursion: the covariances of complete sequences, which no observation changes.

All sequences of one model share it, so that a batch costs one recursion of matrices, and one of
vectors for each sequence. The filter's own steps, in square-root form, cannot: what is missing, or
absurd, makes the covariance of a sequence its own.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from varfilter import _linalg
from varfilter.distributions import Gaussian
from varfilter.distributions.normal import LOG_2PI, squared
from varfilter.models.linear_gaussian import LinearGaussian, LinearGaussianState

# A covariance is rounded where it is largest, and read where it is smallest. With this ratio of
# the two, one rounding is 2e-11 of the smallest in float64, and 1e-2 in float32. Beyond it square
# roots keep what a covariance would lose.
LARGEST_SPREAD = 1e5


class Covariances(NamedTuple):
    """What the recursion leaves of each step, time first.

    - `predicted`: P, the covariance of z_t before x_t is seen;
    - `innovation`: S^1/2, the root of the covariance of x_t, and `inverse`, its inverse;
    - `cross`: W = S^-1/2 C P, by which P+ = P - W^T W, and a mean moves by W^T S^-1/2 (x - C m).
    """

    predicted: Float[Array, "time latent latent"]
    innovation: Float[Array, "time observed observed"]
    inverse: Float[Array, "time observed observed"]
    cross: Float[Array, "time observed latent"]

    @property
    def posterior(self) -> Float[Array, "time latent latent"]:
        """P+, the covariance of z_t after x_t was seen."""
        return self.predicted - jnp.swapaxes(self.cross, 1, 2) @ self.cross


class Swept(NamedTuple):
    """A complete sequence, filtered: of each step, time first, and what comes after the last.

    `holds` says whether these are the numbers of the filter's own steps.
    """

    priors: Gaussian
    posteriors: Gaussian
    predictions: Gaussian
    log_evidences: Float[Array, " time"]
    last: LinearGaussianState
    holds: Bool[Array, ""]


def covariances(
    model: LinearGaussian, first: Float[Array, "latent latent"], num_steps: int
) -> tuple[Covariances, Float[Array, "latent latent"]]:
    """Return those of `num_steps` steps from the covariance `first` on, and the one after them."""
    noise, process = model.noise.covariance, model.process.covariance
    loading, transition = model.loading, model.transition

    def step(predicted: Array, _: None) -> tuple[Array, Covariances]:
        seen = loading @ predicted
        root, inverse = _linalg.factor_and_inverse(seen @ loading.T + noise)
        cross = inverse @ seen
        after = transition @ (predicted - cross.T @ cross) @ transition.T
        # Rounding would let the two halves drift apart.
        after = 0.5 * (after + after.T) + process
        return after, Covariances(predicted, root, inverse, cross)

    last, found = jax.lax.scan(step, first, None, length=num_steps)
    return found, last


def sweep(
    model: LinearGaussian,
    state: LinearGaussianState,
    xs: Float[Array, "time observed"],
    us: Float[Array, "time inputs"] | None,
    mask: Bool[Array, " time"],
) -> Swept:
    """Filter a sequence of which no step lacks anything, up to the padding at its end."""
    num_steps = xs.shape[0]
    found, last = covariances(model, state.latent.covariance, num_steps)
    xs = jnp.where(mask[:, None], xs, 0.0)
    means, residuals, updated, last_mean = _means(model, state.latent.mean, found, xs, us, mask)
    expected = means @ model.loading.T + model.noise.mean[None]
    if us is not None:
        expected = expected + us @ model.loading_input.T
    white = _each(found.inverse, residuals)
    log_dets = jnp.sum(jnp.log(jnp.diagonal(found.innovation, axis1=1, axis2=2)), axis=1)
    size = xs.shape[1]
    log_evidences = -0.5 * (size * LOG_2PI + jnp.sum(squared(white), axis=1)) - log_dets

    count = jnp.sum(mask)
    after = jnp.where(count < num_steps, found.predicted[jnp.minimum(count, num_steps - 1)], last)
    u = state.u
    if us is not None:
        u = jnp.where(count > 0, us[jnp.maximum(count - 1, 0)], u)
    ends = jnp.isfinite(last_mean).all() & jnp.isfinite(after).all()
    return Swept(
        _gaussians(means, found.predicted),
        _gaussians(updated, found.posterior),
        jax.vmap(Gaussian.from_cholesky)(expected, found.innovation),
        log_evidences,
        LinearGaussianState(Gaussian.from_covariance(last_mean, after), u),
        ends & _keeps_its_digits(model, state, found.predicted),
    )


def _means(
    model: LinearGaussian,
    first: Float[Array, " latent"],
    found: Covariances,
    xs: Float[Array, "time observed"],
    us: Float[Array, "time inputs"] | None,
    mask: Bool[Array, " time"],
) -> tuple[Array, Array, Array, Array]:
    """Return of each step the predicted mean, x_t less its prediction, and the mean given x_t.

    The last is the predicted mean of the step after the last one that exists.
    """
    # m+ = m + W^T S^-1/2 (x - C m - d), and m' = A m+ + b.
    gains = jnp.swapaxes(found.inverse, 1, 2) @ found.cross
    added = jnp.broadcast_to(model.process.mean, (xs.shape[0], model.latent_size))
    centred, driven = xs - model.noise.mean[None], None
    if us is not None:
        centred = centred - us @ model.loading_input.T
        driven = us @ model.transition_input.T
    if model.feedback is not None:
        added = added + xs @ model.feedback.T

    def step(mean: Array, given: tuple) -> tuple[Array, tuple[Array, Array, Array]]:
        gain, seen, add, drive, exists = given
        before = mean if drive is None else mean + drive
        residual = seen - model.loading @ before
        updated = before + residual @ gain
        after = jnp.where(exists, model.transition @ updated + add, mean)
        return after, (before, residual, updated)

    last, kept = jax.lax.scan(step, first, (gains, centred, added, driven, mask))
    return *kept, last


def _keeps_its_digits(
    model: LinearGaussian, state: LinearGaussianState, predicted: Float[Array, "time latent latent"]
) -> Bool[Array, ""]:
    """Whether every covariance is even enough in its directions for the precision of its numbers.

    P+^-1 = P^-1 + C^T R^-1 C, and P is at least Q, or the first covariance: the smallest P+ is
    known beforehand.
    """
    largest = jnp.max(jnp.diagonal(predicted, axis1=1, axis2=2))
    precisions = [_precision(g.cholesky) for g in (model.process, state.latent)]
    told = _linalg.solve_lower(model.noise.cholesky, model.loading)
    smallest = jnp.maximum(*precisions) + jnp.max(jnp.sum(told**2, axis=0))
    return largest * smallest < LARGEST_SPREAD


def _precision(root: Float[Array, "size size"]) -> Float[Array, ""]:
    """The largest element of the diagonal of (L L^T)^-1."""
    inverse = _linalg.solve_lower(root, jnp.eye(root.shape[0], dtype=root.dtype))
    return jnp.max(jnp.sum(inverse**2, axis=0))


def _gaussians(
    means: Float[Array, "time size"], matrices: Float[Array, "time size size"]
) -> Gaussian:
    if means.shape[1] <= _linalg.UNROLLED_SIZE:
        roots = jax.vmap(_linalg.cholesky)(matrices)
    else:  # one after another, each by LAPACK where that is faster
        roots = jax.lax.map(lambda matrix: _linalg.factor_and_inverse(matrix)[0], matrices)
    return jax.vmap(Gaussian.from_cholesky)(means, roots)


def _each(
    matrices: Float[Array, "time rows columns"], vectors: Float[Array, "time columns"]
) -> Float[Array, "time rows"]:
    return jnp.einsum("tij,tj->ti", matrices, vectors)
