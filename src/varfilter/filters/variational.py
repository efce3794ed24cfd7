"""The variational filter: a sampled trajectory, and a posterior q_t at each of its steps."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._arguments import kind, require_positive
from varfilter._tree import select
from varfilter.filters.base import AbstractFilter, Filtered
from varfilter.inference.base import AbstractInference, Inferred, Memory
from varfilter.model import AbstractModel, Latent, State, prediction
from varfilter.objective import FreeEnergy, free_energy
from varfilter.observation import Observation, fill_first, observe


class VariationalCarry(eqx.Module):
    """The model's state after the sampled past, and the inference's own memory."""

    state: State
    memory: Memory


class VariationalInfo(eqx.Module):
    """F_t with its parts, and F_t by iteration: at the prior, ..., after the last update."""

    free_energy: Float[Array, ""]
    reconstruction: Float[Array, ""]
    kl: Float[Array, ""]
    free_energies: Float[Array, " iterates"]


class Trace(eqx.Module):
    """One step opened up for learning: the inputs and outputs of each of its three parts."""

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
    without any observation has q = p and adds nothing.
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
        self, model: AbstractModel, x0: Float[Array, " *event"] | None = None
    ) -> VariationalCarry:
        """Begin in the model's initial state."""
        return VariationalCarry(model.init(fill_first(model, x0)), self.inference.init(model))

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
        values = trace.free_energy
        info = VariationalInfo(
            values.total, values.reconstruction, values.kl, self.free_energies(trace)
        )
        filtered = Filtered(
            model.prior(carry.state),
            trace.posterior,
            prediction(model, carry.state),
            -values.total,
            info,
        )
        return self.advance(model, carry, trace), filtered

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
        posterior = select(observation.is_seen, inferred.posterior, prior)
        values = free_energy(
            posterior, model, carry.state, observation.x, key_sample,
            prior=prior, num_samples=self.num_samples, kl_weight=kl_weight,
        )  # fmt: skip
        return Trace(observation, inferred, posterior, values.z, values, key_sample)

    def free_energies(self, trace: Trace) -> Float[Array, " iterates"]:
        """List F_t at the prior, after each iteration and at the end: what inference gained."""
        last = trace.free_energy.total
        # Without an observation q = p throughout, and F = 0.
        before = jnp.where(trace.observation.is_seen, trace.inferred.free_energies, 0.0)
        return jnp.concatenate([before, last[None]])

    def advance(
        self, model: AbstractModel, carry: VariationalCarry, trace: Trace
    ) -> VariationalCarry:
        """Fold (x_t, z_t) into the state."""
        state = model.advance(carry.state, trace.z, trace.observation.features)
        return VariationalCarry(state, trace.inferred.memory)

    def draw(self, model: AbstractModel, carry: VariationalCarry, key: PRNGKeyArray) -> State:
        """Return the state of the one sampled trajectory."""
        return carry.state
