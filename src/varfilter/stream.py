"""A live stream: the mutable shell round one compiled step."""

import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from varfilter import _saved
from varfilter._arguments import require_positive
from varfilter.contracts import (
    as_booleans,
    as_numbers,
    observation_shape,
    require_inputs,
    tree_difference,
)
from varfilter.filtering import (
    Belief,
    kept_of,
    key_for,
    require_belief,
    require_kept,
    start,
    step,
)
from varfilter.filters.base import AbstractFilter, Filtered, require_fitting
from varfilter.model import AbstractModel
from varfilter.simulation import Forecast, forecast

STREAM = _saved.Kind("stream")
# Each array that goes into a compiled step or comes out of it costs about a microsecond. Those of
# a model up to this size (in bytes) are made part of the program, which is compiled for each
# stream anyway; a larger one would only make it slow to compile.
MOST_CONSTANT_BYTES = 2**20
# What is joined is copied: larger arrays (in numbers) of a belief travel on their own.
LARGEST_JOINED = 2**12


class Packing:
    """How the arrays of a tree are joined to few: the small ones of each dtype to one vector."""

    def __init__(self, leaves: list[jax.Array]):
        self.shapes = [leaf.shape for leaf in leaves]
        groups: dict[Any, list[int]] = {}
        for index, leaf in enumerate(leaves):
            alone = leaf.size > LARGEST_JOINED
            groups.setdefault(index if alone else leaf.dtype, []).append(index)
        self.groups = list(groups.values())

    def joined(self, leaves: list[jax.Array]) -> list[jax.Array]:
        """Join the arrays."""
        return [jnp.concatenate([jnp.ravel(leaves[i]) for i in group]) for group in self.groups]

    def parted(self, joined: list[jax.Array]) -> list[jax.Array]:
        """Take them apart again."""
        leaves: list[Any] = [None] * len(self.shapes)
        for group, vector in zip(self.groups, joined, strict=True):
            ends = np.cumsum([math.prod(self.shapes[i]) for i in group])
            for i, part in zip(group, jnp.split(vector, ends[:-1]), strict=True):
                leaves[i] = part.reshape(self.shapes[i])
        return leaves


def in_a_loop(step: Callable[[Belief], tuple[Belief, Any]], belief: Belief) -> tuple[Belief, Any]:
    """Take a step inside of a loop of one turn, whose bits are then those of `run`.

    Of a step by itself a compiler fuses other sums than of one that is the body of a loop.
    That there is one turn must not be known to it, or it would write the loop out: no belief has
    seen less than no steps, but a compiler cannot tell.
    """
    step = jax.jit(step)  # traced once, for its shapes and for the loop
    _, found = jax.eval_shape(step, belief)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), found)
    num_turns = jnp.where(belief.t < 0, 0, 1)

    def turn(state: tuple[Any, Belief, Any]) -> tuple[Any, Belief, Any]:
        return state[0] + 1, *step(state[1])

    return jax.lax.while_loop(lambda state: state[0] < num_turns, turn, (0, belief, nothing))[1:]


class Stream:
    """One sequence, filtered as it arrives.

    `push` folds in an observation, `skip` lets time pass without one, `forecast` looks
    ahead, `save` and `restore` carry the belief over a restart. The step is compiled once,
    here; its time and memory do not depend on how long the stream has run. With the same
    `key` it gives the numbers of `run`, to the bit on a CPU; a `KalmanFilter` needs none.

    `keep` says what a push returns, as in `run`: each array less is a microsecond less.

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
    ):
        require_fitting(filter, model)
        self._kept = require_kept(keep)
        self._key = key_for(filter, key)
        self.filter = filter
        self.model = model
        belief = start(filter, model, x0, self._key)
        leaves, self._belief_tree = jax.tree.flatten(belief)
        self._packing = Packing(leaves)
        self.belief = belief
        self._shape = observation_shape(model)
        self._dtype = np.dtype(jnp.result_type(float))
        self._output_tree: Any = None  # known once the step is traced
        self._missing = np.full(self._shape, np.nan, self._dtype)
        self._compile()

    @property
    def t(self) -> int:
        """How many steps the stream has seen."""
        return int(self.belief.t)

    @property
    def belief(self) -> Belief:
        """All that the past has left: a pytree, which may be set to that of another stream."""
        return jax.tree.unflatten(self._belief_tree, self._packing.parted(self._belief))

    @belief.setter
    def belief(self, belief: Belief) -> None:
        require_belief(self.filter, self.model, belief)
        # Kept flat between steps: flattening Modules costs more than a small filter's step.
        self._belief = self._packing.joined(jax.tree.leaves(belief))

    def push(self, x: Any, u: Any = None, *, observed: Any = None) -> Any:
        """Fold in one observation, with the known input `u` of its step if the model has inputs.

        NaN or None marks an unobserved element, or give `observed` (False: unobserved);
        `push(None)` is `skip()`. A refused observation leaves the belief as it was.
        """
        x, u = self._checked(x, observed), self._checked_input(u)
        self._belief, outputs = self._step(self._fixed, self._belief, x, u)
        return self._output_tree.unflatten(outputs)

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
        stream = cls(filter, model, key, keep=keep)
        wanted = dict(stream._named_leaves())
        if difference := tree_difference(wanted, arrays):
            raise ValueError(
                f"{str(path)!r} holds another belief than this filter's: {difference}."
            )
        stream._belief = stream._packing.joined([jnp.asarray(arrays[name]) for name in wanted])
        return stream

    @functools.cached_property
    def _fingerprint(self) -> str:
        return _saved.fingerprint(self.filter, self.model)

    def _compile(self) -> None:
        # Plain jit on flat lists of plain arrays: `eqx.filter_jit` would partition the modules
        # anew at each call, and a typed key leaves jit's fast path; either costs as much as a
        # small filter's step.
        arrays, static = eqx.partition((self.filter, self.model), eqx.is_array)
        fixed, fixed_tree = jax.tree.flatten(arrays)
        fixed.append(jax.random.key_data(self._key))
        key_impl = jax.random.key_impl(self._key)
        belief_tree, packing = self._belief_tree, self._packing
        is_constant = sum(leaf.nbytes for leaf in fixed) <= MOST_CONSTANT_BYTES
        constants = [np.asarray(leaf) for leaf in fixed] if is_constant else []
        self._fixed = [] if is_constant else fixed

        def flat_step(fixed: list, belief: list, x: Any, u: Any) -> tuple[list, list]:
            # What is computed of constants would be rounded by the compiler, in its own way.
            *fixed, key_data = jax.lax.optimization_barrier(constants) if is_constant else fixed
            filter, model = eqx.combine(jax.tree.unflatten(fixed_tree, fixed), static)
            before = jax.tree.unflatten(belief_tree, packing.parted(belief))
            key = jax.random.wrap_key_data(key_data, impl=key_impl)
            after, filtered = in_a_loop(lambda b: step(filter, model, b, x, key, u=u), before)
            outputs, self._output_tree = jax.tree.flatten(kept_of(filtered, self._kept))
            return packing.joined(jax.tree.leaves(after)), outputs

        self._step = jax.jit(flat_step)
        # Compiles; the result is not used.
        u = np.zeros((self.model.input_size,), self._dtype) if self.model.input_size else None
        self._step(self._fixed, self._belief, self._missing, u)

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
        if not fits or np.isinf(x).any():
            return None
        return x.copy()  # the step may still be reading it when the caller writes the next one

    def _named_leaves(self) -> list[tuple[str, jax.Array]]:
        paths = jax.tree_util.tree_leaves_with_path(self.belief)
        return [(f"belief{jax.tree_util.keystr(path)}", leaf) for path, leaf in paths]
