"""The Kalman filter: exact for linear-Gaussian models."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from varfilter._tree import select
from varfilter.filters.base import AbstractFilter, Filtered
from varfilter.filters.recovery import (
    count_losses,
    finite_bound,
    is_lost,
    no_losses,
    started_anew,
)
from varfilter.model import AbstractModel
from varfilter.models.linear_gaussian import (
    LinearGaussian,
    LinearGaussianState,
    kalman_first,
    kalman_predict,
    kalman_update,
)
from varfilter.observation import Observation


class KalmanCarry(eqx.Module):
    """The predicted Gaussian of z_t as a state of the model.

    `num_lost` counts the observations in a row, up to the last, that could not be weighed.
    """

    state: LinearGaussianState
    num_lost: Int[Array, ""] = eqx.field(default_factory=no_losses)


class KalmanInfo(eqx.Module):
    """Whether x_t could not be weighed (1), so that the step is a prediction."""

    num_fallbacks: Int[Array, ""]


class KalmanFilter(AbstractFilter):
    """The marginal recursion in square-root form; `bound` is exactly log p(x_t | x_<t).

    What is carried is the predicted Gaussian of z_t: no past is sampled.
    Missing elements are marginalised out exactly.
    """

    def init(
        self,
        model: AbstractModel,
        x0: Float[Array, " observed"] | None = None,
        key: PRNGKeyArray | None = None,
    ) -> KalmanCarry:
        """Begin at N(m_1, P_1), and refuse models that it is not exact for."""
        if not isinstance(model, LinearGaussian):
            raise TypeError(
                f"`KalmanFilter` is exact only for `LinearGaussian`; got `{type(model).__name__}`."
                " Use `VariationalFilter(...)` or `ParticleFilter(...)`."
            )
        if x0 is not None:  # an absurd one is missing
            found, _, log_evidence = kalman_update(model, model.init(None), x0)
            x0 = jnp.where(is_lost(x0, found, log_evidence), jnp.nan, x0)
        return KalmanCarry(kalman_first(model, x0))

    def drive(
        self, model: AbstractModel, carry: KalmanCarry, u: Float[Array, " inputs"]
    ) -> KalmanCarry:
        """Move the predicted mean by B u_t, and that of x_t by D u_t."""
        return KalmanCarry(model.drive(carry.state, u), carry.num_lost)

    def step(
        self,
        model: AbstractModel,
        carry: KalmanCarry,
        x: Float[Array, " observed"] | Observation,
        key: PRNGKeyArray,
        *,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> tuple[KalmanCarry, Filtered]:
        """Condition on the observed elements, then predict."""
        assert isinstance(model, LinearGaussian)
        x = x.x if isinstance(x, Observation) else x
        prior = carry.state.latent
        found, predictive, log_evidence = kalman_update(model, carry.state, x)
        lost = is_lost(x, found, log_evidence)
        posterior = select(lost, prior, found)
        told = jnp.where(lost, jnp.nan, x)
        info = KalmanInfo(lost.astype(jnp.int32))
        filtered = Filtered(prior, posterior, predictive, finite_bound(log_evidence), info)
        state = kalman_predict(model, carry.state, posterior, told)
        after = KalmanCarry(state, count_losses(carry.num_lost, x, lost))
        return started_anew(after, lambda: self.init(model), model, x, key), filtered

    def draw(
        self, model: AbstractModel, carry: KalmanCarry, key: PRNGKeyArray
    ) -> LinearGaussianState:
        """Return the predicted Gaussian itself: it carries its uncertainty along."""
        return carry.state
