"""What an inference method is: from the prior of one step and its observation to a posterior."""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

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
