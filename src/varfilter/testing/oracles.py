"""Reference answers that share no code with the filters: dense Gaussian algebra in float64.

A linear-Gaussian model makes all its latents and observations jointly Gaussian. Here that
joint is written out whole, T (latent + observed) numbers on a side, and conditioned by
textbook linear algebra: slow, plain, and independent of every recursion in this library.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from varfilter.distributions import Gaussian
from varfilter.models.linear_gaussian import LinearGaussian


class Joint(NamedTuple):
    """N(mean, covariance) of the stacked vector (z_1, ..., z_T, x_1, ..., x_T)."""

    mean: Float[np.ndarray, " total"]
    covariance: Float[np.ndarray, "total total"]
    num_steps: int
    latent_size: int
    observation_size: int

    def z(self, t: int) -> slice:
        """Where z_t stands; t counts from 0."""
        return slice(t * self.latent_size, (t + 1) * self.latent_size)

    def x(self, t: int) -> slice:
        """Where x_t stands; t counts from 0."""
        start = self.num_steps * self.latent_size + t * self.observation_size
        return slice(start, start + self.observation_size)


class Reference(NamedTuple):
    """The exact answers of a linear-Gaussian model for one sequence.

    - `log_evidences`: log p(x_t | x_<t) for each t; their sum is log p(x_1, ..., x_T).
    - `means`, `covariances`: of the filtered posteriors p(z_t | x_<=t).
    """

    log_evidences: Float[np.ndarray, " time"]
    means: Float[np.ndarray, "time latent"]
    covariances: Float[np.ndarray, "time latent latent"]


def joint(
    model: LinearGaussian, num_steps: int, us: Float[np.ndarray, "time inputs"] | None = None
) -> Joint:
    """Write out the dense joint of `num_steps` steps.

    All z_t and x_t are y = M y + c + n, where M has A and G (of the step before) and C, c the
    biases and inputs, and n independent noises: so y = (I - M)^-1 (c + n).
    """
    transition, loading = _float64(model.transition), _float64(model.loading)
    latent, size = transition.shape[0], loading.shape[0]
    feedback = np.zeros((latent, size)) if model.feedback is None else _float64(model.feedback)
    us = np.zeros((num_steps, model.input_size)) if us is None else _float64(us)
    first_mean, first_covariance = _moments(model.initial)
    bias, process = _moments(model.process)
    offset, noise = _moments(model.noise)

    total = num_steps * (latent + size)
    past, constant, noises = np.zeros((total, total)), np.zeros(total), np.zeros((total, total))
    zs = [slice(t * latent, (t + 1) * latent) for t in range(num_steps)]
    begin = num_steps * latent
    xs = [slice(begin + t * size, begin + (t + 1) * size) for t in range(num_steps)]
    for t, (z, x) in enumerate(zip(zs, xs, strict=True)):
        past[x, z] = loading
        if t:
            past[z, zs[t - 1]], past[z, xs[t - 1]] = transition, feedback
        constant[z] = (bias if t else first_mean) + _float64(model.transition_input) @ us[t]
        constant[x] = offset + _float64(model.loading_input) @ us[t]
        noises[z, z] = process if t else first_covariance
        noises[x, x] = noise
    spread = np.linalg.inv(np.eye(total) - past)
    return Joint(spread @ constant, spread @ noises @ spread.T, num_steps, latent, size)


def reference(
    model: LinearGaussian,
    xs: Float[np.ndarray, "time observed"],
    us: Float[np.ndarray, "time inputs"] | None = None,
) -> Reference:
    """Compute the exact evidence and filtered posteriors of `xs`; NaN marks an unobserved element.

    An unobserved element is dropped from the joint: its row and column are never read.
    """
    xs = _float64(xs)
    dense = joint(model, xs.shape[0], us)
    cumulative, means, covariances = [0.0], [], []
    for t in range(xs.shape[0]):
        past = np.arange(dense.x(0).start, dense.x(t).stop)
        seen = ~np.isnan(xs[: t + 1].ravel())
        mean, covariance, log_evidence = gaussian_conditional(
            dense.mean, dense.covariance, dense.z(t), past[seen], xs[: t + 1].ravel()[seen]
        )
        cumulative.append(log_evidence)
        means.append(mean)
        covariances.append(covariance)
    return Reference(np.diff(cumulative), np.stack(means), np.stack(covariances))


def one_step(
    model: LinearGaussian,
    mean: Float[np.ndarray, " latent"],
    covariance: Float[np.ndarray, "latent latent"],
    x: Float[np.ndarray, " observed"],
) -> tuple[Float[np.ndarray, " latent"], Float[np.ndarray, "latent latent"], float]:
    """Condition z ~ N(mean, covariance) on one observation: (mean, covariance, log p(x))."""
    mean, covariance, x = _float64(mean), _float64(covariance), _float64(x)
    loading = _float64(model.loading)
    offset, noise = _moments(model.noise)
    cross = covariance @ loading.T
    both_mean = np.concatenate([mean, loading @ mean + offset])
    both = np.block([[covariance, cross], [cross.T, loading @ cross + noise]])
    seen = ~np.isnan(x)
    given = mean.size + np.arange(x.size)[seen]
    return gaussian_conditional(both_mean, both, slice(0, mean.size), given, x[seen])


def gaussian_conditional(
    mean: Float[np.ndarray, " total"],
    covariance: Float[np.ndarray, "total total"],
    wanted: slice,
    given: np.ndarray,
    values: Float[np.ndarray, " seen"],
) -> tuple[np.ndarray, np.ndarray, float]:
    """Condition the elements `wanted` on `given`: (mean, covariance, log p(given))."""
    across = covariance[wanted, given]
    within = covariance[np.ix_(given, given)]
    residual = values - mean[given]
    _, log_det = np.linalg.slogdet(within)
    solved = np.linalg.solve(within, np.column_stack([residual, across.T]))
    log_evidence = -0.5 * (values.size * np.log(2 * np.pi) + log_det + residual @ solved[:, 0])
    return (
        mean[wanted] + across @ solved[:, 0],
        covariance[wanted, wanted] - across @ solved[:, 1:],
        float(log_evidence),
    )


def _moments(gaussian: Gaussian) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance, read off the stored parameters rather than computed by the library."""
    factor = _float64(gaussian.factor)
    root = np.tril(factor, -1) + np.diag(np.exp(np.diag(factor)))
    return _float64(gaussian.mean), root @ root.T


def _float64(array: object) -> np.ndarray:
    return np.asarray(array, dtype=np.float64)
