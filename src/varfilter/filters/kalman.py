"""The Kalman filter: exact for linear-Gaussian models."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from varfilter._batch import all_of_batch
from varfilter._tree import select
from varfilter.distributions import observed
from varfilter.filters.base import AbstractFilter, Filtered
from varfilter.filters.recovery import (
    FARTHEST,
    count_losses,
    finite_bound,
    is_lost,
    no_losses,
    started_anew_if,
)
from varfilter.filters.riccati import sweep
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

    What is carried is the predicted Gaussian of z_t: no past is sampled, and no key is needed.
    Missing elements are marginalised out exactly.
    """

    needs_key: ClassVar[bool] = False

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
        key: PRNGKeyArray | None = None,
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
        begins = functools.partial(_can_begin_with, model, x)
        return started_anew_if(begins, after, lambda: self.init(model)), filtered

    def sweep(
        self,
        model: AbstractModel,
        carry: KalmanCarry,
        xs: Float[Array, "time observed"],
        us: Float[Array, "time inputs"] | None,
        mask: Bool[Array, " time"],
        *,
        keep: Callable[[Filtered], Any],
        by_steps: Callable[[], tuple[KalmanCarry, Any]],
    ) -> tuple[KalmanCarry, Any]:
        """Share one covariance recursion among all sequences, where all of them are complete.

        Complete is a batch of which nothing is missing but padding at the end, nothing is absurd,
        and no covariance would lose its digits; any other takes one step after another.
        """
        assert isinstance(model, LinearGaussian)

        def at_once() -> tuple[tuple[KalmanCarry, Any], Bool[Array, ""]]:
            swept = sweep(model, carry.state, xs, us, mask)
            lost = jax.vmap(is_lost)(xs, swept.posteriors.mean, swept.log_evidences)

            def kept(prior: Any, posterior: Any, predicted: Any, bound: Array) -> Any:
                return keep(Filtered(prior, posterior, predicted, bound, KalmanInfo(no_losses())))

            bounds = jnp.where(mask, finite_bound(swept.log_evidences), 0.0)
            beliefs = swept.priors, swept.posteriors, swept.predictions
            after = KalmanCarry(swept.last, jnp.where(mask[0], no_losses(), carry.num_lost))
            holds = swept.holds & ~jnp.any(lost & mask)
            return (after, jax.vmap(kept)(*beliefs, bounds)), holds

        def nothing() -> tuple[tuple[KalmanCarry, Any], Bool[Array, ""]]:
            shapes = jax.eval_shape(at_once)
            return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        is_whole = ~jnp.any(jnp.isnan(xs) & mask[:, None]) & ~jnp.any(mask[1:] & ~mask[:-1])
        found, holds = jax.lax.cond(all_of_batch(is_whole), at_once, nothing)
        return jax.lax.cond(all_of_batch(holds), lambda: found, by_steps)

    def draw(
        self, model: AbstractModel, carry: KalmanCarry, key: PRNGKeyArray
    ) -> LinearGaussianState:
        """Return the predicted Gaussian itself: it carries its uncertainty along."""
        return carry.state


def _can_begin_with(model: LinearGaussian, x: Float[Array, " observed"]) -> Bool[Array, ""]:
    """Whether a belief without a past could weigh `x`."""
    mean = model.loading @ model.initial.mean + model.noise.mean
    spread = jnp.sum((model.loading @ model.initial.cholesky) ** 2, axis=1) + model.noise.variance
    distance = jnp.where(observed(x), jnp.abs(x - mean), 0.0)
    return jnp.all(distance <= FARTHEST * jnp.sqrt(spread))
