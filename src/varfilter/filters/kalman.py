"""The Kalman filter: exact for linear-Gaussian models."""

from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.distributions import Gaussian
from varfilter.filters.base import AbstractFilter, Filtered
from varfilter.model import AbstractModel
from varfilter.models.linear_gaussian import LinearGaussian, kalman_predict, kalman_update
from varfilter.observation import Observation


class KalmanFilter(AbstractFilter):
    """The marginal recursion in square-root form; `bound` is exactly log p(x_t | x_<t).

    The carry is the predicted Gaussian of z_t, which is also a state of the model: no past is
    sampled. Missing elements are marginalised out exactly.
    """

    def init(self, model: AbstractModel, x0: Float[Array, " observed"] | None = None) -> Gaussian:
        """Begin at N(m_1, P_1), and refuse models that it is not exact for."""
        if not isinstance(model, LinearGaussian):
            raise TypeError(
                f"`KalmanFilter` is exact only for `LinearGaussian`; got `{type(model).__name__}`."
                " Use `VariationalFilter(...)` or `ParticleFilter(...)`."
            )
        return model.init(x0)

    def step(
        self,
        model: AbstractModel,
        carry: Gaussian,
        x: Float[Array, " observed"] | Observation,
        key: PRNGKeyArray,
        *,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> tuple[Gaussian, Filtered]:
        """Condition on the observed elements, then predict."""
        assert isinstance(model, LinearGaussian)
        x = x.x if isinstance(x, Observation) else x
        posterior, predictive, log_evidence = kalman_update(model, carry, x)
        filtered = Filtered(carry, posterior, predictive, log_evidence)
        return kalman_predict(model, posterior), filtered

    def draw(self, model: AbstractModel, carry: Gaussian, key: PRNGKeyArray) -> Gaussian:
        """Return the predicted Gaussian itself: it carries its uncertainty along."""
        return carry
