"""The linear-Gaussian state-space model: the world in which every answer is known."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from varfilter import _linalg
from varfilter._arguments import require_input_size
from varfilter._batch import if_any
from varfilter.contracts import as_observations
from varfilter.distributions import Gaussian, fill, observed
from varfilter.distributions.normal import LOG_2PI, squared
from varfilter.model import AbstractModel


class LinearGaussianState(eqx.Module):
    """The predicted Gaussian of z_t, and the known input u_t (without inputs, an empty vector)."""

    latent: Gaussian
    u: Float[Array, " inputs"]


class LinearGaussian(AbstractModel):
    """z_1 ~ N(m_1, P_1);  z_t ~ N(A z_{t-1} + G x_{t-1} + b, Q);  x_t ~ N(C z_t + d, R).

    With known inputs u_t, B u_t is added to the mean of z_t (of z_1 too) and D u_t to that of
    x_t. `feedback` is G: what was observed enters the next latent, as in an autoregression.

    The state holds the predicted `Gaussian` of z_t. After a sampled z_{t-1} that is
    N(A z_{t-1} + b, Q); the Kalman filter carries N(A m + b, A S A^T + Q) in the same place,
    so that one model serves both recursions: with a sampled past, and with a marginal one.
    """

    initial: Gaussian
    transition: Float[Array, "latent latent"]
    process: Gaussian
    loading: Float[Array, "observed latent"]
    noise: Gaussian
    transition_input: Float[Array, "latent inputs"]
    loading_input: Float[Array, "observed inputs"]
    feedback: Float[Array, "latent observed"] | None
    input_size: int = eqx.field(static=True)

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
        input_size: int | None = None,
        transition_input: Any = None,
        loading_input: Any = None,
        feedback: Any = None,
    ):
        self.transition = _array("transition", transition, (None, None))
        latent = self.transition.shape[0]
        self.transition = _array("transition", transition, (latent, latent))
        self.loading = _array("loading", loading, (None, latent))
        size = self.loading.shape[0]
        dtype = self.transition.dtype
        zeros = jnp.zeros((latent,), dtype)
        self.process = _gaussian("process", transition_bias, process_covariance, zeros)
        self.noise = _gaussian("noise", loading_bias, noise_covariance, jnp.zeros((size,), dtype))
        covariance = process_covariance if initial_covariance is None else initial_covariance
        self.initial = _gaussian("initial", initial_mean, covariance, zeros)
        self.input_size = _input_size(input_size, transition_input, loading_input)
        self.transition_input = _inputs(
            "transition_input", transition_input, (latent, self.input_size), dtype
        )
        self.loading_input = _inputs("loading_input", loading_input, (size, self.input_size), dtype)
        self.feedback = None if feedback is None else _array("feedback", feedback, (latent, size))

    @property
    def latent_size(self) -> int:
        """The number of elements of z_t."""
        return self.transition.shape[0]

    def init(self, x0: Float[Array, " observed"] | None = None) -> LinearGaussianState:
        """Begin at N(m_1, P_1); `x0` is fed back where the model does so, else ignored."""
        latent = self.initial
        if x0 is not None and self.feedback is not None:
            latent = Gaussian(latent.mean + self.feedback @ x0, latent.factor)
        return LinearGaussianState(latent, jnp.zeros((self.input_size,), latent.mean.dtype))

    def drive(self, state: LinearGaussianState, u: Float[Array, " inputs"]) -> LinearGaussianState:
        """Add B u_t to the predicted mean of z_t, and keep u_t for x_t."""
        mean = state.latent.mean + self.transition_input @ u
        return LinearGaussianState(Gaussian(mean, state.latent.factor), u)

    def embed(self, x: Float[Array, " observed"]) -> Float[Array, " observed"] | None:
        """Return what the recurrence needs: x_t itself with feedback, else nothing."""
        return None if self.feedback is None else x

    def prior(self, state: LinearGaussianState) -> Gaussian:
        """The predicted Gaussian of z_t."""
        return state.latent

    def emission(self, state: LinearGaussianState, z: Float[Array, " latent"]) -> Gaussian:
        """p(x_t | z_t) = N(C z_t + d + D u_t, R)."""
        return Gaussian(self.loading @ z + self.offset(state), self.noise.factor)

    def advance(
        self,
        state: LinearGaussianState,
        z: Float[Array, " latent"],
        features: Float[Array, " observed"] | None,
    ) -> LinearGaussianState:
        """Predict the next latent from a sampled z_t: N(A z_t + G x_t + b, Q)."""
        mean = self.transition @ z + self.process.mean
        if self.feedback is not None and features is not None:
            mean = mean + self.feedback @ features
        return LinearGaussianState(Gaussian(mean, self.process.factor), state.u)

    def offset(self, state: LinearGaussianState) -> Float[Array, " observed"]:
        """What is added to C z_t: d + D u_t."""
        if not self.input_size:  # bit for bit the model without inputs
            return self.noise.mean
        return self.noise.mean + self.loading_input @ state.u


def _input_size(input_size: int | None, transition_input: Any, loading_input: Any) -> int:
    """The number of inputs, as it was given or as the matrices have it; 0 without any."""
    if input_size is not None:
        return require_input_size(input_size)
    given = transition_input if transition_input is not None else loading_input
    return 0 if given is None else jnp.shape(given)[-1]


def _inputs(name: str, value: Any, shape: tuple[int, int], dtype: Any) -> Array:
    return jnp.zeros(shape, dtype) if value is None else _array(name, value, shape)


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
            " square; `transition_input` is (latent, inputs), `loading_input` (observed, inputs),"
            " `feedback` (latent, observed)."
        )
    return array


def kalman_update(
    model: LinearGaussian, state: LinearGaussianState, x: Float[Array, " observed"]
) -> tuple[Gaussian, Gaussian, Float[Array, ""]]:
    """Apply Bayes' rule: (posterior of z_t, predictive of x_t, log p(x_t)).

    Square-root form: the QR decomposition of

        [ R^1/2   C P^1/2 ]^T          [ S^1/2      0     ]^T
        [   0       P^1/2 ]      into  [ K S^1/2  P+^1/2  ]

    never forms a covariance, so P+ cannot lose its symmetry or sign in float32. An
    unobserved element has its row of C put to zero and its row of R to the identity's: it
    then tells nothing, exactly.
    """
    predicted = state.latent
    seen = observed(x)
    size, latent = model.loading.shape
    both = seen[:, None] & seen[None, :]
    unit = jnp.eye(size, dtype=x.dtype)
    lacks = ~jnp.all(seen)
    noise = if_any(
        lacks,
        lambda: _linalg.cholesky(jnp.where(both, model.noise.covariance, unit)),
        lambda: model.noise.cholesky,
    )
    loading = jnp.where(seen[:, None], model.loading, 0.0)
    mean = model.loading @ predicted.mean + model.offset(state)
    residual = fill(x, mean) - mean

    prior = predicted.cholesky
    upper = jnp.concatenate([noise, loading @ prior], axis=1)
    lower = jnp.concatenate([jnp.zeros((latent, size), x.dtype), prior], axis=1)
    joint = _linalg.lower_triangular(jnp.concatenate([upper, lower], axis=0))
    innovation, gain, factor = joint[:size, :size], joint[size:, :size], joint[size:, size:]

    white = _linalg.whiten(innovation, residual)
    posterior = Gaussian.from_cholesky(predicted.mean + gain @ white, factor)
    count = jnp.sum(seen).astype(x.dtype)
    log_det = jnp.sum(jnp.log(jnp.diagonal(innovation)))
    log_evidence = -0.5 * (count * LOG_2PI + jnp.sum(squared(white))) - log_det
    full = if_any(
        lacks,
        lambda: _linalg.lower_triangular(
            jnp.concatenate([model.noise.cholesky, model.loading @ prior], axis=1)
        ),
        lambda: innovation,
    )
    return posterior, Gaussian.from_cholesky(mean, full), log_evidence


def kalman_first(
    model: LinearGaussian, x0: Float[Array, " observed"] | None
) -> LinearGaussianState:
    """The state before the first step; with feedback, what is missing of `x0` is a Gaussian too."""
    state = model.init(None)
    if x0 is None or model.feedback is None:
        return state
    latent = model.latent_size
    joint_mean, joint_root = _posterior_with_missing(model, state, x0)
    root = jnp.concatenate([state.latent.cholesky, model.feedback @ joint_root[latent:]], axis=1)
    mean = state.latent.mean + model.feedback @ joint_mean[latent:]
    first = Gaussian.from_cholesky(mean, _linalg.lower_triangular(root))
    return LinearGaussianState(first, state.u)


def kalman_predict(
    model: LinearGaussian,
    state: LinearGaussianState,
    posterior: Gaussian,
    x: Float[Array, " observed"],
) -> LinearGaussianState:
    """Predict the next latent, N(A m + b, A S A^T + Q), in square-root form.

    With feedback, what of x_t was not observed is a Gaussian too, and goes on with z_t.
    """
    if model.feedback is None:
        mean = model.transition @ posterior.mean
        root = model.transition @ posterior.cholesky
    else:
        both = jnp.concatenate([model.transition, model.feedback], axis=1)
        joint_mean, joint_root = _posterior_with_missing(model, state, x)
        mean, root = both @ joint_mean, both @ joint_root
    root = jnp.concatenate([root, model.process.cholesky], axis=1)
    latent = Gaussian.from_cholesky(mean + model.process.mean, _linalg.lower_triangular(root))
    return LinearGaussianState(latent, state.u)


def _posterior_with_missing(
    model: LinearGaussian, state: LinearGaussianState, x: Float[Array, " observed"]
) -> tuple[Array, Array]:
    """The mean of (z_t, x_t) given what was observed of x_t, and a root of their covariance.

    (z_t, x_t) is Gaussian with the root [[P^1/2, 0], [C P^1/2, R^1/2]]; its seen elements are
    then known without any noise.
    """
    prior, seen = state.latent.cholesky, observed(x)
    size, latent = model.loading.shape
    corner = jnp.zeros((latent, size), x.dtype)
    rows = jnp.concatenate([model.loading @ prior, model.noise.cholesky], axis=1)
    root = jnp.concatenate([jnp.concatenate([prior, corner], axis=1), rows], axis=0)
    mean_x = model.loading @ state.latent.mean + model.offset(state)
    mean = jnp.concatenate([state.latent.mean, mean_x])

    known = jnp.where(seen[:, None], rows, 0.0)
    unit = jnp.diag(jnp.where(seen, 0.0, 1.0))
    blank = jnp.zeros((latent + size, size), x.dtype)
    joint = _linalg.lower_triangular(
        jnp.concatenate(
            [jnp.concatenate([unit, known], axis=1), jnp.concatenate([blank, root], axis=1)],
            axis=0,
        )
    )
    innovation, gain, factor = joint[:size, :size], joint[size:, :size], joint[size:, size:]
    white = _linalg.whiten(innovation, fill(x, mean_x) - mean_x)
    return mean + gain @ white, factor
