"""The same learning as `time_parallel.py`, written the plain way: one tape through the scan.

It is the definition that the time-parallel gradients are tested against, and the peer they
are timed against. It keeps every step's inference on the tape, so it is slower and larger.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._tree import detach
from varfilter.filtering import Belief, scan_steps
from varfilter.filters.variational import VariationalCarry, VariationalFilter
from varfilter.learning.state import Sequences, masked_mean
from varfilter.learning.time_parallel import Problem, drawn_first, inference_loss
from varfilter.model import AbstractModel
from varfilter.objective import free_energy
from varfilter.observation import draw_missing, embed_ahead


@eqx.filter_jit
def gradients(
    model: AbstractModel,
    filter: VariationalFilter,
    batch: Sequences,
    key: PRNGKeyArray,
    kl_weight: Float[Array, ""],
    *,
    complete: bool = False,
) -> tuple[Any, Any]:
    """Compute (dF/dθ, dF/dφ) of a batch, by back-propagation through the whole loop.

    `complete` promises that nothing is missing: frames are then embedded at once, before the scan.
    """

    def loss(modules: tuple[AbstractModel, VariationalFilter]) -> Float[Array, ""]:
        model, filter = modules

        def sequence(
            xs: Array, mask: Array, x0: Array | None, us: Array | None, key: PRNGKeyArray
        ) -> Any:
            def take(belief: Belief, x_and_u: Any, exists: Array, key: PRNGKeyArray) -> Any:
                x, u = x_and_u
                carry = filter.drive(model, belief.carry, u)
                # Inference is local: nothing flows back through how q_t was found.
                frozen_model, frozen_filter, frozen, frozen_x = detach((model, filter, carry, x))
                trace = frozen_filter.trace(
                    frozen_model, frozen, frozen_x, key, kl_weight=kl_weight
                )
                q, z, seen = trace.posterior, trace.z, trace.observation
                theta_loss = free_energy(
                    q, model, carry.state, seen.x, trace.key,
                    num_samples=filter.num_samples, kl_weight=kl_weight,
                ).total  # fmt: skip
                problem = Problem(
                    frozen.state, None, seen.x, seen.filled, seen.filled, q, z,
                    trace.inferred.record, trace.key, exists, exists & seen.is_seen,
                )  # fmt: skip
                phi_loss = jnp.zeros(())
                if problem.record is not None:
                    phi_loss = inference_loss(
                        filter, frozen_model, problem, frozen_model.prior(frozen.state), kl_weight
                    )
                # A missing element is drawn, and is then as good as seen: nothing flows through it.
                told = draw_missing(frozen_model, frozen.state, z, frozen_x, trace.key)
                features = x.features if complete else model.embed(told.filled)
                state = model.advance(carry.state, z, features)
                after = VariationalCarry(state, trace.inferred.memory)
                return after, (theta_loss, phi_loss, exists & seen.is_seen)

            first = Belief(filter.init(model, x0), jnp.zeros((), jnp.int32))
            seen = embed_ahead(model, xs) if complete else xs
            return scan_steps(take, first, (seen, us), mask, key)[1]

        keys = jax.random.split(key, batch.xs.shape[0])
        x0 = detach(drawn_first(model, batch.x0, keys))
        theta, phi, seen = jax.vmap(sequence)(batch.xs, batch.mask, x0, batch.us, keys)
        return masked_mean(theta, batch.mask) + masked_mean(phi, seen)

    return eqx.filter_grad(loss)((model, filter))
