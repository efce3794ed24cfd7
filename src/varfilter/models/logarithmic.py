"""Positive elements that grow by proportion: a model of their logarithms, as a model of x_t."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from varfilter._arguments import kind
from varfilter.contracts import first_step, require_model
from varfilter.distributions import (
    AbstractDistribution,
    Exponentiated,
    Gaussian,
    Joint,
    Normal,
    StudentT,
)
from varfilter.distributions.base import Move
from varfilter.distributions.exponentiated import logarithms
from varfilter.model import AbstractModel, State


class Logarithmic(AbstractModel):
    """log x_t = centre + scale * y_t, and `model` is of y_t: p(x_t) = p(y_t) / (scale x_t).

    A step of a price or a population is a proportion of it. What is predicted is a distribution of
    x_t itself, the exponential of that of its logarithm: so bounds, scores and forecasts are of
    x_t, in its own units.

    - `model`: any model of vectors, of the standardised logarithms y_t; `Differenced` for those
      that move on.
    - `scale`, `centre`: the spread and the mean of log x, of each element; a scale of None: the
      element is no logarithm, but x_t as it is.

    An observation that is not positive is taken for the smallest positive number, which is as
    surprising as it should be.
    """

    model: AbstractModel
    scale: tuple[float | None, ...] = eqx.field(static=True)
    centre: tuple[float, ...] = eqx.field(static=True)
    input_size: int = eqx.field(static=True)

    def __init__(
        self,
        model: AbstractModel,
        scale: Sequence[float | None],
        *,
        centre: Sequence[float] | None = None,
    ):
        require_model(model)
        emission = first_step(model).emission
        size = emission.shape[0] if len(emission.shape) == 1 else -1
        centre = (0.0,) * len(scale) if centre is None else centre
        if not len(scale) == len(centre) == size:
            raise ValueError(
                "`scale` and `centre` must have one entry for each element of x_t, a vector; got"
                f" {kind(scale)} and {kind(centre)} for the shape {emission.shape}."
            )
        if any(value is not None and not 0 < value < float("inf") for value in scale):
            raise ValueError(f"`scale` must be positive and finite, of each element; got {scale}.")
        if all(value is None for value in scale):
            raise ValueError(
                "`scale` is None of every element, so that none would be a logarithm. Give the"
                " spread of one, or use the model as it is."
            )
        self.model = model
        self.scale = tuple(None if value is None else float(value) for value in scale)
        self.centre = tuple(float(value) for value in centre)
        self.input_size = model.input_size
        _require_logarithms(emission, self._is_log, tuple(range(size)))

    @property
    def core(self) -> AbstractModel:
        """The model of the logarithms, or what that has inside."""
        return self.model.core

    def inside(self, state: State, x: Float[Array, " size"]) -> tuple[State, Array]:
        """The state of the model of logarithms, which is all there is, and y_t."""
        return self.model.inside(state, self._logarithm(x))

    def init(self, x0: Float[Array, " size"] | None = None) -> State:
        """The state of the model of logarithms, told that of `x0`."""
        return self.model.init(None if x0 is None else self._logarithm(x0))

    def drive(self, state: State, u: Float[Array, " inputs"]) -> State:
        """Fold u_t into the state of the model of logarithms."""
        return self.model.drive(state, u)

    def embed(self, x: Float[Array, " size"]) -> Any:
        """What the model of logarithms needs of y_t."""
        return self.model.embed(self._logarithm(x))

    def prior(self, state: State) -> Any:
        """The prior of the model of logarithms."""
        return self.model.prior(state)

    def emission(self, state: State, z: Any) -> AbstractDistribution:
        """The exponential of centre + scale * y_t."""
        logs = self.model.emission(state, z)
        is_log, dtype = self._is_log, logs.mean.dtype
        centre = jnp.asarray(np.where(is_log, self.centre, 0.0), dtype)
        scale = np.array([1.0 if value is None else value for value in self.scale])
        move = Move(centre, jnp.zeros_like(centre), scale, is_log)
        return Exponentiated(logs.moved(move), tuple(is_log.tolist()))

    def advance(self, state: State, z: Any, features: Any) -> State:
        """Advance the model of logarithms."""
        return self.model.advance(state, z, features)

    @property
    def _is_log(self) -> np.ndarray:
        return np.array([value is not None for value in self.scale])

    def _logarithm(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """y_t = (log x_t - centre) / scale, of the elements that are logarithms."""
        is_log = self._is_log
        centre = jnp.asarray(np.where(is_log, self.centre, 0.0), x.dtype)
        scale = jnp.asarray([1.0 if value is None else value for value in self.scale], x.dtype)
        return (logarithms(x, is_log) - centre) / scale


def _require_logarithms(distribution: Any, is_log: np.ndarray, places: tuple[int, ...]) -> None:
    """Refuse logarithms of other families: the mean of their exponential is not known."""
    if isinstance(distribution, Joint):
        for part, own in zip(distribution.parts, distribution.places, strict=True):
            _require_logarithms(part, is_log[np.array(own)], tuple(places[i] for i in own))
        return
    if is_log.any() and not isinstance(distribution, Normal | Gaussian | StudentT):
        element = places[int(np.flatnonzero(is_log)[0])]
        raise TypeError(
            f"`scale[{element}]` is of an element with a `{type(distribution).__name__}`"
            " distribution, but only a logarithm that is Gaussian or Student's t has an exponential"
            " whose moments are known, or stood in for. Give None, so that the element is predicted"
            " as it is."
        )
