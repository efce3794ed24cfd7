"""What a filter is: a carry that folds in one observation at a time."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from varfilter._arguments import kind
from varfilter._tree import all_finite, once_per_signature, select
from varfilter.contracts import (
    first_line,
    mixed_dtypes,
    observation_shape,
    require_model,
    tree_difference,
)
from varfilter.model import AbstractModel, State
from varfilter.observation import Observation

Carry = PyTree


def driven_carry(
    filter: "AbstractFilter", model: AbstractModel, carry: Carry, u: Float[Array, " inputs"] | None
) -> Carry:
    """Fold u_t into what a filter carries; None is the input of models without any.

    One so absurd that a state would overflow is left out.
    """
    if u is None:
        return carry
    after = filter.drive(model, carry, u)
    return select(all_finite(after), after, carry)


class Filtered(eqx.Module):
    """What a reader wants to know about one step (what the next step needs is the carry).

    - `prior`: the belief about z_t before x_t; `posterior`: the belief after it.
    - `prediction`: the distribution of x_t before it was seen.
    - `bound`: a lower bound on log p(x_t | x_<t) in nats (exact for `KalmanFilter`).
    - `info`: what the family of filters adds; its `num_fallbacks` counts the trajectories that
      could not weigh x_t, however absurd it was, and went on as if it had not been seen.
    """

    prior: Any
    posterior: Any
    prediction: Any
    bound: Float[Array, ""]
    info: Any = None

    @property
    def surprise(self) -> Float[Array, "..."]:
        """-bound: how unexpected x_t was, in nats (of each step, where there are many)."""
        return -self.bound


class AbstractFilter(eqx.Module):
    """A way to carry beliefs through time, one observation after another.

    `needs_key` says whether anything is drawn; where nothing is, `run`, `step` and `Stream` need
    no key.
    """

    needs_key: ClassVar[bool] = True

    @abstractmethod
    def init(
        self,
        model: AbstractModel,
        x0: Float[Array, " *event"] | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Carry:
        """The carry before the first step; `x0` is conditioned on, never scored.

        What is missing of `x0` is drawn by `key`, for each trajectory by itself.
        """

    def drive(self, model: AbstractModel, carry: Carry, u: Float[Array, " inputs"]) -> Carry:
        """Fold the known input u_t into every state that is carried, before the step."""
        raise TypeError(
            f"`{type(self).__name__}` takes no known inputs, but `{type(model).__name__}` has"
            f" {model.input_size}. Write its `drive`, or use `VariationalFilter` or"
            " `ParticleFilter`."
        )

    @abstractmethod
    def step(
        self,
        model: AbstractModel,
        carry: Carry,
        x: Float[Array, " *event"] | Observation,
        key: PRNGKeyArray,
        *,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> tuple[Carry, Filtered]:
        """Predict, update, advance."""

    def sweep(
        self,
        model: AbstractModel,
        carry: Carry,
        xs: Float[Array, "time *event"],
        us: Float[Array, "time inputs"] | None,
        mask: Bool[Array, " time"],
        *,
        keep: Callable[[Filtered], Any],
        by_steps: Callable[[], tuple[Carry, Any]],
    ) -> tuple[Carry, Any]:
        """Return the carry after a whole sequence, and what `keep` keeps of each step.

        One step after another, unless a filter knows a quicker way to the same numbers.
        """
        return by_steps()

    @abstractmethod
    def draw(self, model: AbstractModel, carry: Carry, key: PRNGKeyArray) -> State:
        """Draw a model state to forecast from."""


def require_fitting(filter: Any, model: Any) -> None:
    """Refuse a filter that cannot take a step with this model, before anything is compiled."""
    if not isinstance(filter, AbstractFilter):
        raise TypeError(
            f"`filter` must be a filter; got {kind(filter)}."
            " For example `VariationalFilter(Iterative(model, key=key))`."
        )
    require_model(model)
    _first_carry(filter, model)


def carry_shapes(filter: AbstractFilter, model: AbstractModel) -> Carry:
    """The shapes of what the filter carries with this model; what does not fit is refused."""
    return _first_carry(filter, model)


@once_per_signature
def _first_carry(filter: AbstractFilter, model: AbstractModel) -> Carry:
    # `init` goes first and unwrapped: a filter that refuses a model says so there.
    carry = eqx.filter_eval_shape(filter.init, model)
    x = jax.ShapeDtypeStruct(observation_shape(model), jnp.result_type(float))
    key = jax.eval_shape(lambda: jax.random.key(0))
    inner = getattr(filter, "inference", None)
    name = type(filter).__name__ + (f"({type(inner).__name__})" if inner is not None else "")
    if model.input_size:
        u = jax.ShapeDtypeStruct((model.input_size,), jnp.result_type(float))
        before = eqx.filter_eval_shape(filter.drive, model, carry, u)
        if difference := tree_difference(carry, before):
            raise TypeError(f"`{name}.drive` must keep the carry that `init` makes: {difference}.")
    try:
        after, filtered = eqx.filter_eval_shape(filter.step, model, carry, x, key)
    except Exception as error:
        mixture = mixed_dtypes(model)
        raise TypeError(
            f"`{name}` does not fit `{type(model).__name__}`: its step fails on the shapes of this"
            f" model ({first_line(error)}). Build its networks for this model."
            if mixture is None
            else f"{mixture} The step of `{name}` fails on it ({first_line(error)})."
        ) from error
    if difference := tree_difference(carry, after):
        kept = f"`{name}.step` must keep the carry that `init` makes: {difference}."
        mixture = mixed_dtypes(model)
        raise TypeError(kept if mixture is None else f"{mixture} With it {kept}")
    if not isinstance(filtered, Filtered) or filtered.bound.shape != ():
        raise TypeError(f"`{name}.step` must return a `Filtered` whose `bound` is one number.")
    return carry
