"""The Kalman filter: exact for linear-Gaussian models."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from varfilter._tree import select
from varfilter.filters.base import AbstractFilter, Filtered
from varfilter.filters.recovery import finite_bound, is_lost
from varfilter.model import AbstractModel
from varfilter.models.linear_gaussian import (
    LinearGaussian,
    LinearGaussianState,
    kalman_predict,
    kalman_update,
)
from varfilter.observation import Observation


class KalmanInfo(eqx.Module):
    """Whether x_t could not be weighed (1), so that the step is a prediction."""

    num_fallbacks: Int[Array, ""]


class KalmanFilter(AbstractFilter):
    """The marginal recursion in square-root form; `bound` is exactly log p(x_t | x_<t).

    The carry is the predicted Gaussian of z_t as a state of the model: no past is sampled.
    Missing elements are marginalised out exactly.
    """

    def init(
        self,
        model: AbstractModel,
        x0: Float[Array, " observed"] | None = None,
        key: PRNGKeyArray | None = None,
    ) -> LinearGaussianState:
        """Begin at N(m_1, P_1), and refuse models that it is not exact for."""
        if not isinstance(model, LinearGaussian):
            raise TypeError(
                f"`KalmanFilter` is exact only for `LinearGaussian`; got `{type(model).__name__}`."
                " Use `VariationalFilter(...)` or `ParticleFilter(...)`."
            )
        return model.init(x0)

    def drive(
        self, model: AbstractModel, carry: LinearGaussianState, u: Float[Array, " inputs"]
    ) -> LinearGaussianState:
        """Move the predicted mean by B u_t, and that of x_t by D u_t."""
        return model.drive(carry, u)

    def step(
        self,
        model: AbstractModel,
        carry: LinearGaussianState,
        x: Float[Array, " observed"] | Observation,
        key: PRNGKeyArray,
        *,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> tuple[LinearGaussianState, Filtered]:
        """Condition on the observed elements, then predict."""
        assert isinstance(model, LinearGaussian)
        x = x.x if isinstance(x, Observation) else x
        found, predictive, log_evidence = kalman_update(model, carry, x)
        lost = is_lost(x, found, log_evidence)
        posterior = select(lost, carry.latent, found)
        told = jnp.where(lost, jnp.nan, x)
        info = KalmanInfo(lost.astype(jnp.int32))
        filtered = Filtered(carry.latent, posterior, predictive, finite_bound(log_evidence), info)
        return kalman_predict(model, carry, posterior, told), filtered

    def draw(
        self, model: AbstractModel, carry: LinearGaussianState, key: PRNGKeyArray
    ) -> LinearGaussianState:
        """Return the predicted Gaussian itself: it carries its uncertainty along."""
        return carry
