"""The linear-Gaussian state-space model: the world in which every answer is known."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from varfilter import _linalg
from varfilter.contracts import as_observations
from varfilter.distributions import Gaussian, fill, observed
from varfilter.distributions.normal import LOG_2PI
from varfilter.model import AbstractModel


class LinearGaussian(AbstractModel):
    """z_1 ~ N(m_1, P_1);  z_t ~ N(A z_{t-1} + b, Q);  x_t ~ N(C z_t + d, R).

    The state is the predicted `Gaussian` of z_t. After a sampled z_{t-1} that is
    N(A z_{t-1} + b, Q); the Kalman filter carries N(A m + b, A S A^T + Q) in the same place,
    so that one model serves both recursions: with a sampled past, and with a marginal one.
    """

    initial: Gaussian
    transition: Float[Array, "latent latent"]
    process: Gaussian
    loading: Float[Array, "observed latent"]
    noise: Gaussian

    def __init__(
        self,
        *,
        transition: Any,
        process_covariance: Any,
        loading: Any,
        noise_covariance: Any,
        initial_mean: Any = None,
        initial_covariance: Any = None,
        transition_bias: Any = None,
        loading_bias: Any = None,
    ):
        self.transition = _array("transition", transition, (None, None))
        latent = self.transition.shape[0]
        self.transition = _array("transition", transition, (latent, latent))
        self.loading = _array("loading", loading, (None, latent))
        size = self.loading.shape[0]
        zeros = jnp.zeros((latent,), self.transition.dtype)
        self.process = _gaussian("process", transition_bias, process_covariance, zeros)
        noise_zeros = jnp.zeros((size,), self.transition.dtype)
        self.noise = _gaussian("noise", loading_bias, noise_covariance, noise_zeros)
        covariance = process_covariance if initial_covariance is None else initial_covariance
        self.initial = _gaussian("initial", initial_mean, covariance, zeros)

    @property
    def latent_size(self) -> int:
        """The number of elements of z_t."""
        return self.transition.shape[0]

    def init(self, x0: Float[Array, " observed"] | None = None) -> Gaussian:
        """Begin at N(m_1, P_1); `x0` is ignored: the chain is Markov in z."""
        return self.initial

    def embed(self, x: Float[Array, " observed"]) -> None:
        """Return nothing: the recurrence does not need x_t."""
        return None

    def prior(self, state: Gaussian) -> Gaussian:
        """The predicted Gaussian of z_t."""
        return state

    def emission(self, state: Gaussian, z: Float[Array, " latent"]) -> Gaussian:
        """p(x_t | z_t) = N(C z_t + d, R)."""
        return Gaussian(self.loading @ z + self.noise.mean, self.noise.factor)

    def advance(self, state: Gaussian, z: Float[Array, " latent"], features: None) -> Gaussian:
        """Predict the next latent from a sampled z_t: N(A z_t + b, Q)."""
        return Gaussian(self.transition @ z + self.process.mean, self.process.factor)


def _gaussian(name: str, mean: Any, covariance: Any, zeros: Array) -> Gaussian:
    size = zeros.size
    bias = {"process": "transition_bias", "noise": "loading_bias", "initial": "initial_mean"}[name]
    mean = zeros if mean is None else _array(bias, mean, (size,))
    covariance = _array(f"{name}_covariance", covariance, (size, size))
    cholesky = _linalg.cholesky(covariance)
    if not isinstance(covariance, Tracer):  # traced values are the caller's to watch
        _require_covariance(f"{name}_covariance", np.asarray(covariance))
    return Gaussian.from_cholesky(mean, cholesky)


def _require_covariance(name: str, covariance: np.ndarray) -> None:
    # Half the digits: products such as A P A^T are symmetric only up to rounding.
    allowed = np.sqrt(np.finfo(covariance.dtype).eps) * np.abs(covariance).max()
    asymmetry = np.abs(covariance - covariance.T).max()
    if asymmetry > allowed:
        raise ValueError(
            f"`{name}` must be symmetric; it differs from its transpose by up to {asymmetry:.3g}."
            " Give (S + S.T) / 2."
        )
    try:
        np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        smallest = np.linalg.eigvalsh(covariance).min()
        raise ValueError(
            f"`{name}` must be positive definite; its smallest eigenvalue is {smallest:.3g}."
            " Add a small multiple of the identity if it is only semi-definite."
        ) from None


def _array(name: str, value: Any, shape: tuple[int | None, ...]) -> Array:
    array = as_observations(name, value)
    if not isinstance(array, Tracer) and np.isnan(np.asarray(array)).any():
        raise ValueError(f"`{name}` holds NaN: a model's parameters must be finite.")
    fits = array.ndim == len(shape) and all(
        got == want or (want is None and got > 0)
        for got, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"`{name}` must have shape {str(shape).replace('None', 'any')}; got {array.shape}."
            " `transition` is (latent, latent), `loading` is (observed, latent), covariances are"
            " square."
        )
    return array


def kalman_update(
    model: LinearGaussian, predicted: Gaussian, x: Float[Array, " observed"]
) -> tuple[Gaussian, Gaussian, Float[Array, ""]]:
    """Apply Bayes' rule: (posterior of z_t, predictive of x_t, log p(x_t)).

    Square-root form: the QR decomposition of

        [ R^1/2   C P^1/2 ]^T          [ S^1/2      0     ]^T
        [   0       P^1/2 ]      into  [ K S^1/2  P+^1/2  ]

    never forms a covariance, so P+ cannot lose its symmetry or sign in float32. An
    unobserved element has its row of C put to zero and its row of R to the identity's: it
    then tells nothing, exactly.
    """
    seen = observed(x)
    size, latent = model.loading.shape
    both = seen[:, None] & seen[None, :]
    unit = jnp.eye(size, dtype=x.dtype)
    noise = _linalg.cholesky(jnp.where(both, model.noise.covariance, unit))
    loading = jnp.where(seen[:, None], model.loading, 0.0)
    mean = model.loading @ predicted.mean + model.noise.mean
    residual = fill(x, mean) - mean

    prior = predicted.cholesky
    upper = jnp.concatenate([noise, loading @ prior], axis=1)
    lower = jnp.concatenate([jnp.zeros((latent, size), x.dtype), prior], axis=1)
    joint = _linalg.lower_triangular(jnp.concatenate([upper, lower], axis=0))
    innovation, gain, factor = joint[:size, :size], joint[size:, :size], joint[size:, size:]

    white = _linalg.solve_lower(innovation, residual)
    posterior = Gaussian.from_cholesky(predicted.mean + gain @ white, factor)
    count = jnp.sum(seen).astype(x.dtype)
    log_det = jnp.sum(jnp.log(jnp.diagonal(innovation)))
    log_evidence = -0.5 * (count * LOG_2PI + white @ white) - log_det
    full = _linalg.lower_triangular(
        jnp.concatenate([model.noise.cholesky, model.loading @ prior], axis=1)
    )
    return posterior, Gaussian.from_cholesky(mean, full), log_evidence


def kalman_predict(model: LinearGaussian, posterior: Gaussian) -> Gaussian:
    """Predict the next latent, N(A m + b, A S A^T + Q), in square-root form."""
    root = jnp.concatenate([model.transition @ posterior.cholesky, model.process.cholesky], axis=1)
    return Gaussian.from_cholesky(
        model.transition @ posterior.mean + model.process.mean, _linalg.lower_triangular(root)
    )
