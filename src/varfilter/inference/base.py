"""What an inference method is: from the prior of one step and its observation to a posterior.

Which latents can be inferred, and learned, by the gradient of their draws is asked here, too.
"""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from varfilter._arguments import listed
from varfilter._tree import once_per_signature
from varfilter.contracts import first_step
from varfilter.distributions import not_reparameterisable
from varfilter.model import AbstractModel, State
from varfilter.observation import Observation

Memory = PyTree


class Inferred(eqx.Module):
    """What one inference found.

    - `posterior`: q(z_t | x_<=t, z_<t), of the structure of the prior.
    - `memory`: what the inference itself carries to the next step.
    - `free_energies`: F_t at the prior and at each iterate but the last (which the filter
      evaluates), as far as the method computed them.
    - `record`: what `revise` needs to compute the iterates again; None if nothing is learned.
    """

    posterior: Any
    memory: Memory
    free_energies: Float[Array, " iterates"]
    record: Any = None


class AbstractInference(eqx.Module):
    """A way to find q_t, given all that the past sent forward and the present observation."""

    # Local: q_t learns from F_t alone, so all steps can learn at once (`learning.TimeParallel`).
    is_local: ClassVar[bool] = False

    @classmethod
    def require_fitting(cls, model: AbstractModel) -> None:
        """Refuse models that the method is not made for; a method that says nothing takes all."""

    def init(self, model: AbstractModel) -> Memory:
        """The memory before the first step; None unless the method is recurrent."""
        self.require_fitting(model)
        return None

    @abstractmethod
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
        """Refine the prior of this step into a posterior."""

    def revise(self, record: Any, observation: Observation) -> Any:
        """The posterior after one recorded iteration, as a function of this method's parameters."""
        raise TypeError(f"`{type(self).__name__}` has no iterations of its own to learn from.")


def require_reparameterisable(name: str, model: Any) -> None:
    """Refuse, for what is called `name`, latents whose draws have no gradient to descend."""
    if families := draws_without_gradient(model):
        raise TypeError(
            f"`{name}` needs latents whose draws are differentiable, z = f(parameters, noise);"
            f" `{type(model).__name__}.prior` returns {listed(families)}, which cannot be"
            " reparameterised, so that dF/dq would miss what the observation says."
            " Use `ParticleFilter(Prior(), num_particles)`."
        )


def draws_without_gradient(model: Any) -> list[str]:
    """The families of a model's latents that are not reparameterisable, by name."""
    return [type(each).__name__ for each in _not_reparameterisable(model)]


def undeclared_families(model: Any) -> list[str]:
    """The families of `draws_without_gradient` that claim to be reparameterisable, by name."""
    found = _not_reparameterisable(model)
    return [type(each).__name__ for each in found if each.is_reparameterisable]


@once_per_signature
def _not_reparameterisable(model: AbstractModel) -> list[Any]:
    return not_reparameterisable(first_step(model).prior)
