"""What a filter is: a carry that folds in one observation at a time."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from varfilter.model import AbstractModel, State
from varfilter.observation import Observation

Carry = PyTree


class Filtered(eqx.Module):
    """What a reader wants to know about one step (what the next step needs is the carry).

    - `prior`: the belief about z_t before x_t; `posterior`: the belief after it.
    - `prediction`: the distribution of x_t before it was seen.
    - `bound`: a lower bound on log p(x_t | x_<t) in nats (exact for `KalmanFilter`).
    - `info`: what the family of filters adds.
    """

    prior: Any
    posterior: Any
    prediction: Any
    bound: Float[Array, ""]
    info: Any = None

    @property
    def surprise(self) -> Float[Array, ""]:
        """-bound: how unexpected x_t was, in nats."""
        return -self.bound


class AbstractFilter(eqx.Module):
    """A way to carry beliefs through time."""

    @abstractmethod
    def init(self, model: AbstractModel, x0: Float[Array, " *event"] | None = None) -> Carry:
        """The carry before the first step; `x0` is conditioned on, never scored."""

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

    @abstractmethod
    def draw(self, model: AbstractModel, carry: Carry, key: PRNGKeyArray) -> State:
        """A model state to forecast from."""
