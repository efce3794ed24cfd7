"""The variational filter: a sampled trajectory, and a posterior q_t at each of its steps."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from varfilter._arguments import kind, require_positive
from varfilter._tree import select
from varfilter.filters.base import AbstractFilter, Filtered
from varfilter.filters.recovery import (
    advance,
    count_losses,
    finite_bound,
    first_state,
    is_lost,
    no_losses,
    started_anew,
)
from varfilter.inference.base import AbstractInference, Inferred, Memory
from varfilter.model import AbstractModel, Latent, State, driven, prediction
from varfilter.objective import FreeEnergy, free_energy
from varfilter.observation import Observation, draw_missing, observe


class VariationalCarry(eqx.Module):
    """The model's state after the sampled past, and the inference's own memory.

    `num_lost` counts the observations in a row, up to the last, that could not be weighed.
    """

    state: State
    memory: Memory
    num_lost: Int[Array, ""] = eqx.field(default_factory=no_losses)


class VariationalInfo(eqx.Module):
    """F_t with its parts, and F_t by iteration: at the prior, ..., after the last update.

    `num_fallbacks` is 1 where x_t could not be weighed: the posterior is then the prior.
    """

    free_energy: Float[Array, ""]
    reconstruction: Float[Array, ""]
    kl: Float[Array, ""]
    free_energies: Float[Array, " iterates"]
    num_fallbacks: Int[Array, ""]


class Trace(eqx.Module):
    """One step opened up for learning: what inference saw and found, and the draw z_t."""

    observation: Observation
    inferred: Inferred
    posterior: Any
    z: Latent
    free_energy: FreeEnergy
    key: PRNGKeyArray


class VariationalFilter(AbstractFilter):
    """Variational filtering EM with any inference method (paper, algorithm 1).

    At each step: p = prior(state); q = inference(p, x_t); F_t estimated from `num_samples`
    draws of q, the first of which is the z_t that is passed on. `bound` is -F_t. A step
    without any observation has q = p and adds nothing; elements that are missing are drawn
    from the emission at z_t before the recurrence takes them in.
    """

    inference: AbstractInference
    num_samples: int = eqx.field(static=True)

    def __init__(self, inference: AbstractInference, *, num_samples: int = 1):
        if not isinstance(inference, AbstractInference):
            raise TypeError(
                f"`inference` must be an inference method; got {kind(inference)}."
                " For example `VariationalFilter(Iterative(model, key=key))`."
            )
        self.inference = inference
        self.num_samples = require_positive("num_samples", num_samples)

    def init(
        self,
        model: AbstractModel,
        x0: Float[Array, " *event"] | None = None,
        key: PRNGKeyArray | None = None,
    ) -> VariationalCarry:
        """Begin in the model's initial state."""
        return VariationalCarry(first_state(model, x0, key), self.inference.init(model))

    def drive(
        self, model: AbstractModel, carry: VariationalCarry, u: Float[Array, " inputs"] | None
    ) -> VariationalCarry:
        """Fold u_t into the state of the one trajectory."""
        return VariationalCarry(driven(model, carry.state, u), carry.memory, carry.num_lost)

    def step(
        self,
        model: AbstractModel,
        carry: VariationalCarry,
        x: Float[Array, " *event"] | Observation,
        key: PRNGKeyArray,
        *,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> tuple[VariationalCarry, Filtered]:
        """Predict, update, advance."""
        trace = self.trace(model, carry, x, key, kl_weight=kl_weight)
        prior, expected = model.prior(carry.state), prediction(model, carry.state)
        values, seen = trace.free_energy, trace.observation.x
        lost = is_lost(seen, (trace.posterior, trace.z), -values.total)

        bound = -values.total
        if not isinstance(x, Observation):
            bound = jnp.where(lost, expected.log_prob(seen), bound)
        bound = finite_bound(bound)
        _, state = advance(model, carry.state, prior, trace.z, x, lost, trace.key)
        memory = select(lost, carry.memory, trace.inferred.memory)
        posterior = select(lost, prior, trace.posterior)
        info = VariationalInfo(
            -bound,
            jnp.where(lost, -bound, values.reconstruction),
            jnp.where(lost, 0.0, values.kl),
            jnp.where(lost, -bound, self.free_energies(trace)),
            lost.astype(jnp.int32),
        )
        filtered = Filtered(prior, posterior, expected, bound, info)
        num_lost = count_losses(carry.num_lost, seen, lost)
        after = VariationalCarry(state, memory, num_lost)
        return started_anew(after, lambda: self.init(model), model, seen, trace.key), filtered

    def follow(
        self,
        model: AbstractModel,
        carry: VariationalCarry,
        x: Float[Array, " *event"] | Observation,
        key: PRNGKeyArray,
        *,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> tuple[VariationalCarry, Filtered]:
        """Predict, update, advance; without a prediction of x_t, which learning does not read."""
        trace = self.trace(model, carry, x, key, kl_weight=kl_weight)
        told = draw_missing(model, carry.state, trace.z, x, trace.key)
        state = model.advance(carry.state, trace.z, told.features)
        values = trace.free_energy
        info = VariationalInfo(
            values.total, values.reconstruction, values.kl, self.free_energies(trace), no_losses()
        )
        prior = model.prior(carry.state)
        filtered = Filtered(prior, trace.posterior, None, -values.total, info)
        return VariationalCarry(state, trace.inferred.memory, carry.num_lost), filtered

    def trace(
        self,
        model: AbstractModel,
        carry: VariationalCarry,
        x: Float[Array, " *event"] | Observation,
        key: PRNGKeyArray,
        *,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> Trace:
        """Predict and update, keeping all that learning needs."""
        key_infer, key_sample = jax.random.split(key)
        observation = observe(model, carry.state, x)
        inferred = self.inference.infer(
            model, carry.state, carry.memory, observation, key_infer, kl_weight=kl_weight
        )
        prior = model.prior(carry.state)
        posterior = inferred.posterior
        if not isinstance(x, Observation):  # which is complete
            posterior = select(observation.is_seen, posterior, prior)
        values = free_energy(
            posterior, model, carry.state, observation.x, key_sample,
            prior=prior, num_samples=self.num_samples, kl_weight=kl_weight,
        )  # fmt: skip
        return Trace(observation, inferred, posterior, values.z, values, key_sample)

    def free_energies(self, trace: Trace) -> Float[Array, " iterates"]:
        """List F_t at the prior, after each iteration and at the end: what inference gained."""
        last = trace.free_energy.total
        return jnp.concatenate([self.earlier_free_energies(trace), last[None]])

    def earlier_free_energies(self, trace: Trace) -> Float[Array, " iterations"]:
        """List F_t at the prior and after each iteration but the last."""
        # Without an observation q = p throughout, and F = 0.
        return jnp.where(trace.observation.is_seen, trace.inferred.free_energies, 0.0)

    def draw(self, model: AbstractModel, carry: VariationalCarry, key: PRNGKeyArray) -> State:
        """Return the state of the one sampled trajectory."""
        return carry.state
