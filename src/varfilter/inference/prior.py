"""No inference: the posterior is the prior."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.inference.base import AbstractInference, Inferred, Memory
from varfilter.model import AbstractModel, State
from varfilter.observation import Observation


class Prior(AbstractInference):
    """q = p(z_t | x_<t, z_<t).

    In a `VariationalFilter` it predicts blindly; in a `ParticleFilter` it is the bootstrap
    filter's proposal.
    """

    is_local: ClassVar[bool] = True

    def infer(
        self,
        model: AbstractModel,
        state: State,
        memory: Memory,
        observation: Observation,
        key: PRNGKeyArray,
        *,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> Inferred:
        """Return the prior of this step."""
        return Inferred(model.prior(state), memory, jnp.zeros((0,)))
