"""The step free energy: the one place where the evidence bound is written."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter import distributions
from varfilter.model import AbstractModel, Latent, State


class FreeEnergy(eqx.Module):
    """F_t and its two parts, in nats; `z` is the first of the samples that estimated it."""

    total: Float[Array, ""]
    reconstruction: Float[Array, ""]
    kl: Float[Array, ""]
    z: Latent


def free_energy(
    q: Any,
    model: AbstractModel,
    state: State,
    x: Float[Array, " *event"],
    key: PRNGKeyArray,
    *,
    prior: Any = None,
    num_samples: int = 1,
    is_paired: bool = False,
    kl_weight: float | Float[Array, ""] = 1.0,
) -> FreeEnergy:
    """F_t = -E_q[log p(x_t | x_<t, z_<=t)] + KL(q(z_t) || p(z_t | x_<t, z_<t))   (paper, eq. 9).

    The expectation is a mean over `num_samples` reparameterised draws; the KL is analytic
    where a closed form exists and estimated from the same draws otherwise. With `is_paired`
    each draw is joined by its mirror image in the mean of q (`distributions.sample_pair`): twice
    the draws, and far less noise. `q` comes first because it is what we differentiate. `prior`
    saves computing `model.prior(state)` again. `kl_weight` anneals the KL during training; at 1,
    F_t bounds -log p(x_t | x_<t, z_<t).
    """
    p = model.prior(state) if prior is None else prior
    keys = jax.random.split(key, num_samples)
    if is_paired:
        pairs = jax.vmap(lambda k: distributions.sample_pair(q, k))(keys)
        zs = jax.tree.map(lambda one, other: jnp.concatenate([one, other]), *pairs)
        z = jax.tree.map(lambda leaf: leaf[0], zs)
    else:
        zs = jax.vmap(lambda k: distributions.sample(q, k))(keys)
        # By itself: who needs no more than the one draw does not pay for the others, and what the
        # emission and the recurrence both make of it is computed once.
        z = distributions.sample(q, keys[0])

    def mean_over_draws(function: Callable[[Latent], Array]) -> Float[Array, ""]:
        if num_samples == 1 and not is_paired:
            return function(z)
        return jnp.mean(jax.vmap(function)(zs))

    reconstruction = -mean_over_draws(
        lambda z: distributions.log_prob(model.emission(state, z), x),
    )
    if distributions.has_analytic_kl(q, p):
        kl = distributions.kl(q, p)
    else:
        kl = mean_over_draws(
            lambda z: distributions.log_prob(q, z) - distributions.log_prob(p, z),
        )
    return FreeEnergy(reconstruction + kl_weight * kl, reconstruction, kl, z)
