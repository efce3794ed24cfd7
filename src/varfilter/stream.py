"""A live stream: the mutable shell round one compiled step."""

import copy
import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from varfilter import _saved
from varfilter._arguments import kind, require_positive
from varfilter._step import CompiledStep, contenders, quickest
from varfilter.contracts import (
    as_booleans,
    as_numbers,
    observation_shape,
    require_inputs,
    tree_difference,
)
from varfilter.filtering import Belief, key_for, require_belief, require_kept, start
from varfilter.filters.base import AbstractFilter, Filtered, require_fitting
from varfilter.model import AbstractModel
from varfilter.simulation import Forecast, forecast

STREAM = _saved.Kind("stream")
FEW = 32


class Stream:
    """One sequence, filtered as it arrives.

    `push` folds in an observation, `skip` lets time pass without one, `forecast` looks
    ahead, `save` and `restore` carry the belief over a restart. The step is compiled once,
    here; its time and memory do not depend on how long the stream has run. With the same
    `key` it gives the numbers of `run`, to the bit on a CPU; a `KalmanFilter` needs none.

    `keep` says what a push returns, as in `run`: each array less is a microsecond less.

    `device` is where steps are computed. Where it is None and JAX has an accelerator, a step of a
    small model is timed on it and on the processor, and the quicker one is taken: launching the
    kernels of a small step takes a GPU longer than a processor takes to compute it. What a push
    returns lies where it was computed; `belief` and forecasts are where JAX computes by itself.

    On a CPU, a step is handed to another thread, which takes longer than a small one itself.
    `jax.config.update("jax_cpu_enable_async_dispatch", False)`, before anything is computed,
    makes each `push` compute where it is called.
    """

    def __init__(
        self,
        filter: AbstractFilter,
        model: AbstractModel,
        key: PRNGKeyArray | None = None,
        *,
        x0: Any = None,
        keep: str | Sequence[str] | Callable[[Filtered], Any] | None = None,
        device: jax.Device | None = None,
    ):
        require_fitting(filter, model)
        kept = require_kept(keep)
        self._key = key_for(filter, key)
        self.filter = filter
        self.model = model
        self._shape = observation_shape(model)
        self._dtype = np.dtype(jnp.result_type(float))
        self._missing = np.full(self._shape, np.nan, self._dtype)
        belief = start(filter, model, x0, self._key)
        devices = contenders(filter, model) if device is None else [require_device(device)]
        steps = [CompiledStep(filter, model, belief, self._key, kept, each) for each in devices]
        u = np.zeros((model.input_size,), self._dtype) if model.input_size else None
        self._step = quickest(steps, belief, self._missing, u)
        # At hand for each push, which would have to look them up.
        self._call, self._fixed = self._step.call, self._step.fixed
        self._joined = self._step.joined(belief)

    @property
    def t(self) -> int:
        """How many steps the stream has seen."""
        return int(self.belief.t)

    @property
    def belief(self) -> Belief:
        """All that the past has left: a pytree, which may be set to that of another stream."""
        return self._step.parted(self._joined)

    @belief.setter
    def belief(self, belief: Belief) -> None:
        require_belief(self.filter, self.model, belief)
        # Kept flat between steps: flattening Modules costs more than a small filter's step.
        self._joined = self._step.joined(belief)

    def __repr__(self) -> str:
        names = type(self.filter).__name__, type(self.model).__name__
        return f"Stream({names[0]}, {names[1]}, t={self.t})"

    def __reduce__(self) -> Any:
        raise TypeError(
            "A `Stream` holds a compiled step, which cannot be pickled. `save` writes its belief,"
            " and `Stream.restore` goes on with it in another process; or send `belief`, a pytree"
            " of arrays, and set it there."
        )

    def __deepcopy__(self, memory: dict[int, Any]) -> "Stream":
        return copy.copy(self)  # nothing in it is ever changed in place

    def __copy__(self) -> "Stream":
        """Another stream that goes on from here by itself; the compiled step is shared."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def push(self, x: Any, u: Any = None, *, observed: Any = None) -> Any:
        """Fold in one observation, with the known input `u` of its step if the model has inputs.

        NaN or None marks an unobserved element, or give `observed` (False: unobserved);
        `push(None)` is `skip()`. A refused observation leaves the belief as it was.
        """
        x, u = self._checked(x, observed), self._checked_input(u)
        self._joined, outputs = self._call(self._fixed, self._joined, x, u)
        return self._step.unflatten(outputs)

    def skip(self, num_steps: int = 1, us: Any = None) -> Any:
        """Let `num_steps` steps pass without an observation; returns the last of them.

        A model with inputs needs those of the steps all the same: `us`, (num_steps, inputs).
        """
        num_steps = require_positive("num_steps", num_steps)
        us = require_inputs("us", us, self.model, (num_steps,))
        inputs = [None] * num_steps if us is None else list(np.asarray(us))
        for u in inputs[:-1]:
            self.push(None, u)
        return self.push(None, inputs[-1])

    def forecast(
        self,
        horizon: int,
        *,
        us: Any = None,
        num_samples: int = 256,
        levels: Sequence[float] = (0.05, 0.5, 0.95),
        key: PRNGKeyArray | None = None,
    ) -> Forecast:
        """Simulate futures of `horizon` steps from here; the stream itself does not move.

        A model with known inputs needs those of the future: `us`, (horizon, inputs).
        """
        if key is None:  # its own draws, the same each time they are asked for at this step
            key = jax.random.fold_in(jax.random.fold_in(self._key, self.belief.t), 0xF0)
        return forecast(
            self.filter, self.model, self.belief, horizon, key,
            us=us, num_samples=num_samples, levels=levels,
        )  # fmt: skip

    def save(self, path: str | os.PathLike) -> None:
        """Write the belief and the key (not the model) to `path`, whole or not at all."""
        arrays = {name: np.asarray(leaf) for name, leaf in self._named_leaves()}
        arrays["key"] = np.asarray(jax.random.key_data(self._key))
        metadata = {
            "key_impl": str(jax.random.key_impl(self._key)),
            "fingerprint": self._fingerprint,
        }
        _saved.write(path, STREAM, arrays, metadata)

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike,
        filter: AbstractFilter,
        model: AbstractModel,
        *,
        keep: str | Sequence[str] | Callable[[Filtered], Any] | None = None,
        device: jax.Device | None = None,
    ) -> "Stream":
        """Go on where `save` left off, with the same filter and model."""
        require_fitting(filter, model)
        metadata, arrays = _saved.read(path, STREAM)
        if metadata["fingerprint"] != _saved.fingerprint(filter, model):
            raise ValueError(
                f"{str(path)!r} was saved with another filter or model (other classes, settings or"
                f" parameters) than this `{type(filter).__name__}` with `{type(model).__name__}`."
                " Restore it with those it was saved with, or start a new `Stream`."
            )
        key = jax.random.wrap_key_data(jnp.asarray(arrays.pop("key")), impl=metadata["key_impl"])
        stream = cls(filter, model, key, keep=keep, device=device)
        wanted = dict(stream._named_leaves())
        if difference := tree_difference(wanted, arrays):
            raise ValueError(
                f"{str(path)!r} holds another belief than this filter's: {difference}."
            )
        tree = jax.tree.structure(stream.belief)
        stream.belief = tree.unflatten([jnp.asarray(arrays[name]) for name in wanted])
        return stream

    @functools.cached_property
    def _fingerprint(self) -> str:
        return _saved.fingerprint(self.filter, self.model)

    def _checked(self, x: Any, observed: Any) -> np.ndarray:
        if x is None:
            if observed is not None:
                raise ValueError("`observed` says what `x` shows, but `x` is None. Give only one.")
            return self._missing
        array = self._copied(x) if observed is None else None
        if array is not None:
            return array
        array = as_numbers("x", x, self._dtype)
        if array.shape != self._shape:
            raise ValueError(
                f"`x` must have shape {self._shape} for `{type(self.model).__name__}`;"
                f" got {array.shape}. Push one observation at a time."
            )
        if observed is not None:
            hint = "True: observed."
            seen = np.asarray(as_booleans("observed", observed, self._shape, hint))
            array = np.where(seen, array, np.nan).astype(self._dtype)
        return array

    def _checked_input(self, u: Any) -> np.ndarray | None:
        if u is None and not self.model.input_size:
            return None
        return np.array(require_inputs("u", u, self.model, ()))

    def _copied(self, x: Any) -> np.ndarray | None:
        """Copy `x` where it is just as it should be, which is the usual case and quick to see."""
        fits = type(x) is np.ndarray and x.dtype == self._dtype and x.shape == self._shape
        if not fits:
            return None
        if x.size <= FEW:  # numpy takes longer to begin than Python to look at them
            numbers = x.ravel().tolist()
            if math.inf in numbers or -math.inf in numbers:
                return None
        elif np.isinf(x).any():
            return None
        return x.copy()  # the step may still be reading it when the caller writes the next one

    def _named_leaves(self) -> list[tuple[str, jax.Array]]:
        paths = jax.tree_util.tree_leaves_with_path(self.belief)
        return [(f"belief{jax.tree_util.keystr(path)}", leaf) for path, leaf in paths]


def require_device(device: Any) -> jax.Device:
    """Refuse what is no device of this process."""
    if not isinstance(device, jax.Device):
        raise TypeError(
            f"`device` must be a device of JAX; got {kind(device)}. Give one of `jax.devices()`,"
            ' `jax.devices("cpu")[0]` for the processor, or None for the quickest.'
        )
    if device.process_index != jax.process_index():
        raise ValueError(
            f"`device` is {device}, which belongs to process {device.process_index}, but this is"
            f" {jax.process_index()}. Give one of `jax.local_devices()`."
        )
    return device
