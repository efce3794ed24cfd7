"""What an iterative inference network receives about the free energy."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter import distributions
from varfilter.model import AbstractModel, State
from varfilter.objective import free_energy


class Gradients(eqx.Module):
    """dF_t/dq, of the structure of q: for a `Normal`, dF/dmean and dF/dlog_var (paper, eq. 13).

    It is one example's own gradient (no division by a batch size), so that the rule learned
    does not depend on the size of the batch.
    """

    is_gradient: ClassVar[bool] = True

    def __call__(
        self,
        q: Any,
        model: AbstractModel,
        state: State,
        x: Float[Array, " *event"],
        key: PRNGKeyArray,
        *,
        prior: Any,
        num_samples: int,
        kl_weight: float | Float[Array, ""],
    ) -> tuple[Any, Float[Array, ""]]:
        """Return (dF/dq, F) at q."""
        return free_energy_gradient(
            q, model, state, x, key, prior=prior, num_samples=num_samples, kl_weight=kl_weight
        )


class PairedGradients(eqx.Module):
    """dF_t/dq as `Gradients` has it, from `num_samples` pairs of draws: z and its mirror image.

    The network must tell where x_t pulls q from where the noise of a draw happened to push it.
    In a pair the noise of dF/dmean cancels: all of it where log p(x_t | z_t) is quadratic in
    z_t, and most of it where q is narrow. The price is a second evaluation of the emission.
    """

    is_gradient: ClassVar[bool] = True

    def __call__(
        self,
        q: Any,
        model: AbstractModel,
        state: State,
        x: Float[Array, " *event"],
        key: PRNGKeyArray,
        *,
        prior: Any,
        num_samples: int,
        kl_weight: float | Float[Array, ""],
    ) -> tuple[Any, Float[Array, ""]]:
        """Return (dF/dq, F) at q."""
        return free_energy_gradient(
            q, model, state, x, key,
            prior=prior, num_samples=num_samples, is_paired=True, kl_weight=kl_weight,
        )  # fmt: skip


class PrecisionWeightedErrors(eqx.Module):
    """e_x = (x - mean_x) / var_x and e_z = (z - mean_p) / var_p, averaged over the samples.

    For Gaussians dF/dmean_q = -J^T e_x + e_z with J = d mean_x / dz: the network has to learn
    the map J^T itself, and no backward pass is needed (paper, section 3.2).
    """

    is_gradient: ClassVar[bool] = False

    def __call__(
        self,
        q: Any,
        model: AbstractModel,
        state: State,
        x: Float[Array, " *event"],
        key: PRNGKeyArray,
        *,
        prior: Any,
        num_samples: int,
        kl_weight: float | Float[Array, ""],
    ) -> tuple[Any, Float[Array, ""]]:
        """Return ((e_x, e_z), F) at q."""

        def errors(k: PRNGKeyArray) -> Any:
            z = distributions.sample(q, k)
            emission = model.emission(state, z)
            return (
                emission.error(x),
                distributions.error(prior, z),
                distributions.log_prob(emission, x),
            )

        e_x, e_z, log_likelihood = jax.tree.map(
            lambda leaf: jnp.mean(leaf, axis=0),
            jax.vmap(errors)(jax.random.split(key, num_samples)),
        )
        return (e_x, e_z), kl_weight * distributions.kl(q, prior) - log_likelihood


def free_energy_gradient(
    q: Any, model: AbstractModel, state: State, x: Array, key: PRNGKeyArray, **options: Any
) -> tuple[Any, Float[Array, ""]]:
    """Return (dF/dq, F) at q."""

    def total(q: Any) -> Float[Array, ""]:
        return free_energy(q, model, state, x, key, **options).total

    value, gradient = jax.value_and_grad(total)(q)
    return gradient, value
