"""The exact one-step posterior of a linear-Gaussian model: what every E-step aims at."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.inference.base import AbstractInference, Inferred, Memory
from varfilter.model import AbstractModel, State
from varfilter.models.linear_gaussian import LinearGaussian, kalman_update
from varfilter.observation import Observation


class Exact(AbstractInference):
    """q = p(z_t | x_<t, z_<t, x_t), in closed form; for `LinearGaussian` alone, or inside others.

    With it, F_t = -log p(x_t | z_{t-1}) exactly: the optimum of the recursion in which the past
    is one sampled path. In a `ParticleFilter` it is the locally optimal proposal. Inside of a
    `Differenced` the first step is exact only after an `x0`.
    """

    is_local: ClassVar[bool] = True

    @classmethod
    def require_fitting(cls, model: AbstractModel) -> None:
        """Refuse models that it is not exact for."""
        if not isinstance(model.core, LinearGaussian):
            raise TypeError(
                f"`Exact` inference needs `LinearGaussian`; got `{type(model).__name__}`."
                " Use `GradientDescent(...)` or `Iterative(...)`."
            )

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
        """Condition the predicted Gaussian on the observed elements."""
        core = model.core
        assert isinstance(core, LinearGaussian)
        posterior, _, _ = kalman_update(core, *model.inside(state, observation.x))
        return Inferred(posterior, memory, jnp.zeros((0,)))
