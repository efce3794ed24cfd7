"""Learning end to end: one tape through the whole filter, for baselines and particle bounds."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._ahead import scan_ahead
from varfilter._arguments import listed, require_weight
from varfilter.filtering import Belief, scan_steps, start
from varfilter.filters.base import AbstractFilter, Carry, Filtered
from varfilter.filters.variational import VariationalFilter, VariationalInfo
from varfilter.inference.base import draws_without_gradient, undeclared_families
from varfilter.learning.dropout import Dropout, dropped
from varfilter.learning.state import (
    LearnerState,
    Metrics,
    Sequences,
    finish,
    gradient_norm,
    guarded_update,
    init_state,
    masked_mean,
    require_optimizers,
    require_sequences,
)
from varfilter.model import AbstractModel
from varfilter.observation import embed_ahead


class EndToEnd(eqx.Module):
    """The learner for any filter: d/d(θ, φ) of the summed -bound, through every step.

    This is the true gradient of the evidence bound of `Amortized` and `Recurrent` inference, of
    the IWAE bound of a `ParticleFilter` that never resamples with one of them, and of the exact
    likelihood of a `KalmanFilter`. (The original code detached z, so that its baselines learned
    nothing from later steps.) `Iterative` and `GradientDescent` take their signal as given: θ
    learns as if their q stood still, and φ from the last update of q.

    With resampling (FIVO) it is biased, for no gradient passes the choice of ancestors, unless
    the filter has `resampling=ScoredSystematic()`: what θ learns from then goes to the score,
    d log p(x) / dθ, as the number of particles grows, at the price of a higher variance.

    Elements that are missing are drawn like latents. No gradient passes the draws of families that
    cannot be reparameterised (binary columns, counts): where a recurrence sees such elements and
    many are missing, what it learns from them is biased.

    `dropout` leaves some of the model's weights out of each update.
    """

    theta: optax.GradientTransformation | None
    phi: optax.GradientTransformation | None
    complete: bool = eqx.field(static=True)
    dropout: Dropout | None

    def __init__(
        self,
        *,
        theta: optax.GradientTransformation | None,
        phi: optax.GradientTransformation | None,
        complete: bool = False,
        dropout: Dropout | None = None,
    ):
        require_optimizers(theta, phi)
        self.theta = theta
        self.phi = phi
        self.complete = complete
        self.dropout = dropout

    def init(self, model: AbstractModel, filter: AbstractFilter) -> LearnerState:
        """Begin, with fresh optimizers; latents through which no gradient runs are refused."""
        state = init_state(model, filter, self.theta, self.phi)
        if self.theta is not None:
            _require_gradient(state.model, state.filter)
        return state

    def update(
        self,
        state: LearnerState,
        xs: Any,
        key: PRNGKeyArray,
        *,
        mask: Any = None,
        x0: Any = None,
        us: Any = None,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> tuple[LearnerState, Metrics]:
        """Update θ and φ once, on a batch (batch, time, *event); `us` are known inputs."""
        batch = require_sequences(state, xs, mask, x0, us, key, complete=self.complete)
        return _update(self, state, batch, key, require_weight("kl_weight", kl_weight))


def _require_gradient(model: AbstractModel, filter: AbstractFilter) -> None:
    """Refuse a bound whose gradient in θ would be wrong, since draws have none.

    A `ParticleFilter` holds the proposals of such draws fixed, which makes its gradient right,
    but it has to know of them.
    """
    name = type(model).__name__
    if isinstance(filter, VariationalFilter) and (families := draws_without_gradient(model)):
        raise TypeError(
            f"`EndToEnd` cannot learn `{name}` by a `VariationalFilter`: its gradient runs through"
            f" the draws of {listed(families)}, which cannot be reparameterised."
            " Use `ParticleFilter(Prior(), num_particles)`."
        )
    if families := undeclared_families(model):
        raise TypeError(
            f"`EndToEnd` cannot learn `{name}`: the draws of {listed(families)} do not move with"
            " the parameters. Say so in the class: `is_reparameterisable: ClassVar[bool] = False`."
        )


@eqx.filter_jit
def _update(
    learner: EndToEnd, state: LearnerState, batch: Sequences, key: PRNGKeyArray, kl_weight: Array
) -> tuple[LearnerState, Metrics]:
    def loss(modules: tuple[AbstractModel, AbstractFilter]) -> tuple[Float[Array, ""], Any]:
        model, filter = modules
        model = dropped(model, learner.dropout, state.num_updates, key)
        bound, info = filter_batch(model, filter, batch, key, kl_weight, complete=learner.complete)
        return masked_mean(-bound, batch.mask), averages(bound, info, batch.mask)

    modules = (state.model, state.filter)
    gradients, reported = eqx.filter_grad(loss, has_aux=True)(modules)
    theta_gradient, phi_gradient = gradients
    model, theta_state, theta_skipped = guarded_update(
        learner.theta, state.theta_state, state.model, theta_gradient
    )
    filter, phi_state, phi_skipped = guarded_update(
        learner.phi, state.phi_state, state.filter, phi_gradient
    )
    num_skipped = theta_skipped.astype(jnp.int32) + phi_skipped.astype(jnp.int32)
    metrics = Metrics(
        **reported,
        theta_gradient_norm=gradient_norm(theta_gradient),
        phi_gradient_norm=gradient_norm(phi_gradient),
        num_skipped=num_skipped,
    )
    return finish(state, model, filter, theta_state, phi_state, num_skipped), metrics


def filter_batch(
    model: AbstractModel,
    filter: AbstractFilter,
    batch: Sequences,
    key: PRNGKeyArray,
    kl_weight: float | Array = 1.0,
    *,
    complete: bool = False,
) -> tuple[Float[Array, "batch time"], Any]:
    """Filter each sequence with a key of its own; return the bound of each step, and its info."""

    def sequence(
        xs: Array, mask: Array, x0: Array | None, us: Array | None, key: PRNGKeyArray
    ) -> tuple[Array, Any]:
        def take(belief: Belief, x_and_u: Any, exists: Array, key: PRNGKeyArray) -> Any:
            x, u = x_and_u
            carry = belief.carry if u is None else filter.drive(model, belief.carry, u)
            carry, filtered = filter.follow(model, carry, x, key, kl_weight=kl_weight)
            return carry, keep(filtered)

        def keep(filtered: Filtered) -> tuple[Array, Any]:
            return filtered.bound, filtered.info

        def by_steps() -> tuple[Carry, Any]:
            seen = embed_ahead(model, xs) if complete else xs
            scan = functools.partial(scan_ahead, gradients_behind=True)
            last, kept = scan_steps(take, first, (seen, us), mask, key, scan)
            return last.carry, kept

        first = start(filter, model, x0, key)
        return filter.sweep(model, first.carry, xs, us, mask, keep=keep, by_steps=by_steps)[1]

    keys = jax.random.split(key, batch.xs.shape[0])
    return jax.vmap(sequence)(batch.xs, batch.mask, batch.x0, batch.us, keys)


def averages(bound: Float[Array, "batch time"], info: Any, mask: Array) -> dict[str, Any]:
    """Average over the steps what `Metrics` reports."""
    free_energy = masked_mean(-bound, mask)
    if not isinstance(info, VariationalInfo):
        return {
            "free_energy": free_energy,
            "reconstruction": None,
            "kl": None,
            "free_energies": free_energy[None],
        }
    return {
        "free_energy": free_energy,
        "reconstruction": masked_mean(info.reconstruction, mask),
        "kl": masked_mean(info.kl, mask),
        "free_energies": masked_mean(info.free_energies, mask),
    }
