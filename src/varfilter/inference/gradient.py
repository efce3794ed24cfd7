"""The E-step by gradient descent: variational filtering EM proper."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._arguments import require_optimizer, require_positive
from varfilter._tree import detach
from varfilter.distributions import stabilised
from varfilter.inference.base import AbstractInference, Inferred, Memory, require_reparameterisable
from varfilter.inference.signal import free_energy_gradient
from varfilter.model import AbstractModel, State
from varfilter.observation import Observation


class GradientDescent(AbstractInference):
    """q_0 = p; repeat `num_iterations` times: q <- optimizer(q, dF_t/dq)   (paper, algorithm 1).

    Each gradient is estimated from `num_samples` fresh draws. Any optax optimizer will do;
    with a learning rate that falls to zero it converges to the best q of the prior's family.
    With `start`, another inference, q_0 is what that finds: what the descent still gains is what
    its amortization lost.
    """

    is_local: ClassVar[bool] = True
    optimizer: optax.GradientTransformation = eqx.field(static=True)
    num_iterations: int = eqx.field(static=True)
    num_samples: int = eqx.field(static=True)
    start: AbstractInference | None

    def __init__(
        self,
        optimizer: optax.GradientTransformation | None = None,
        *,
        num_iterations: int = 20,
        num_samples: int = 1,
        start: AbstractInference | None = None,
    ):
        self.num_iterations = require_positive("num_iterations", num_iterations)
        self.num_samples = require_positive("num_samples", num_samples)
        if optimizer is None:
            optimizer = optax.adam(optax.cosine_decay_schedule(0.2, self.num_iterations))
        require_optimizer("optimizer", optimizer)
        self.optimizer = optimizer
        self.start = start

    @classmethod
    def require_fitting(cls, model: AbstractModel) -> None:
        """Refuse latents without a gradient of their draws, which is what it descends."""
        require_reparameterisable(cls.__name__, model)

    def init(self, model: AbstractModel) -> Memory:
        """The memory of the inference that it starts from, if that has one."""
        super().init(model)
        return None if self.start is None else self.start.init(model)

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
        """Descend the free energy, beginning at the prior or at what `start` finds."""
        # q is the solution of an optimisation: the model learns at q, not through the descent.
        model, state, x = detach((model, state, observation.x))
        prior = first = model.prior(state)
        if self.start is not None:
            start_key = jax.random.fold_in(key, self.num_iterations)
            found = self.start.infer(
                model, state, memory, observation, start_key, kl_weight=kl_weight
            )
            first, memory = detach((found.posterior, found.memory))

        def iterate(carry: Any, iteration: Array) -> Any:
            q, optimizer_state = carry
            gradient, value = free_energy_gradient(
                q, model, state, x, jax.random.fold_in(key, iteration),
                prior=prior, num_samples=self.num_samples, kl_weight=kl_weight,
            )  # fmt: skip
            step, optimizer_state = descend(self.optimizer, gradient, optimizer_state, q)
            return (stabilised(optax.apply_updates(q, step)), optimizer_state), value

        iterations = jnp.arange(self.num_iterations)
        (q, _), values = jax.lax.scan(iterate, (first, self.optimizer.init(first)), iterations)
        return Inferred(q, memory, values)


def descend(
    optimizer: optax.GradientTransformation, gradient: Any, state: Any, parameters: Any
) -> tuple[Any, Any]:
    """Return the step to add to the parameters, and the optimizer's state after it.

    Optax mixes integer counts with floats, which strict promotion (our tests, and the habit
    of careful users) refuses; the standard rules hold inside this call only.
    """
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return optimizer.update(gradient, state, parameters)
