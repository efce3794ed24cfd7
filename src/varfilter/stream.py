"""A live stream: the mutable shell round one compiled step."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from varfilter.contracts import observation_shape, require_key
from varfilter.filtering import Belief, start, step
from varfilter.filters.base import AbstractFilter, Filtered
from varfilter.forecast import Forecast, forecast
from varfilter.inference.base import require_positive
from varfilter.model import AbstractModel

FORMAT = "varfilter-stream"
VERSION = 1


class Stream:
    """One sequence, filtered as it arrives.

    `push` folds in an observation, `skip` lets time pass without one, `forecast` looks
    ahead, `save` and `restore` carry the belief over a restart. The step is compiled once,
    here; its time and memory do not depend on how long the stream has run. With the same
    `key` it gives the numbers of `run`.
    """

    def __init__(
        self, filter: AbstractFilter, model: AbstractModel, key: PRNGKeyArray, *, x0: Any = None
    ):
        require_key(key)
        self.filter = filter
        self.model = model
        self.belief = start(filter, model, x0)
        self._key = key
        self._shape = observation_shape(model)
        self._dtype = np.dtype(jnp.result_type(float))
        self._missing = np.full(self._shape, np.nan, self._dtype)
        self._compile()

    @property
    def t(self) -> int:
        """How many steps the stream has seen."""
        return int(self.belief.t)

    @property
    def belief(self) -> Belief:
        """All that the past has left."""
        return jax.tree.unflatten(self._belief_tree, self._belief)

    @belief.setter
    def belief(self, belief: Belief) -> None:
        # Kept flat between steps: flattening Modules costs more than a small filter's step.
        leaves, self._belief_tree = jax.tree.flatten(belief)
        self._belief = [jnp.asarray(leaf) for leaf in leaves]

    def push(self, x: Any, *, observed: Any = None) -> Filtered:
        """Fold in one observation.

        NaN or None marks an unobserved element, or give `observed` (False: unobserved);
        `push(None)` is `skip()`. A refused observation leaves the belief as it was.
        """
        x = self._missing if x is None else self._checked(x, observed)
        self._belief, outputs = self._step(self._fixed, self._belief, x, self._key)
        return jax.tree.unflatten(self._output_tree, outputs)

    def skip(self, num_steps: int = 1) -> Filtered:
        """Let `num_steps` steps pass without an observation; returns the last of them."""
        for _ in range(require_positive("num_steps", num_steps) - 1):
            self.push(None)
        return self.push(None)

    def forecast(
        self,
        horizon: int,
        *,
        num_samples: int = 256,
        levels: Sequence[float] = (0.05, 0.5, 0.95),
        key: PRNGKeyArray | None = None,
    ) -> Forecast:
        """Futures of `horizon` steps from here; the stream itself does not move."""
        if key is None:  # its own draws, the same each time they are asked for at this step
            key = jax.random.fold_in(jax.random.fold_in(self._key, self.belief.t), 0xF0)
        return forecast(
            self.filter, self.model, self.belief, horizon, key,
            num_samples=num_samples, levels=levels,
        )  # fmt: skip

    def save(self, path: str | os.PathLike) -> None:
        """Write the belief and the key (not the model) to `path`, whole or not at all."""
        path = Path(path)
        arrays = {name: np.asarray(leaf) for name, leaf in self._named_leaves()}
        arrays["key"] = np.asarray(jax.random.key_data(self._key))
        metadata = {
            "format": FORMAT,
            "version": str(VERSION),
            "key_impl": str(jax.random.key_impl(self._key)),
            "fingerprint": fingerprint(self.filter, self.model),
        }
        partial = path.with_name(path.name + ".partial")
        try:
            save_file(arrays, partial, metadata)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def restore(
        cls, path: str | os.PathLike, filter: AbstractFilter, model: AbstractModel
    ) -> "Stream":
        """A stream that goes on where `save` left off, with the same filter and model."""
        metadata, arrays = _read(Path(path))
        if metadata["fingerprint"] != fingerprint(filter, model):
            raise ValueError(
                f"{str(path)!r} was saved with another filter or model (other classes, shapes or"
                f" parameters) than this `{type(filter).__name__}` with `{type(model).__name__}`."
                " Restore it with those it was saved with, or start a new `Stream`."
            )
        key = jax.random.wrap_key_data(arrays.pop("key"), impl=metadata["key_impl"])
        stream = cls(filter, model, key)
        stream._belief = [
            jnp.asarray(_leaf(path, arrays, name, old)) for name, old in stream._named_leaves()
        ]
        return stream

    def _compile(self) -> None:
        # Plain jit on flat lists of arrays: `eqx.filter_jit` would partition the modules anew
        # at each call, which costs more than a small filter's step.
        arrays, static = eqx.partition((self.filter, self.model), eqx.is_array)
        self._fixed, fixed_tree = jax.tree.flatten(arrays)
        belief_tree = self._belief_tree

        def flat_step(fixed: list, belief: list, x: Any, key: PRNGKeyArray) -> tuple[list, list]:
            filter, model = eqx.combine(jax.tree.unflatten(fixed_tree, fixed), static)
            before = jax.tree.unflatten(belief_tree, belief)
            after, filtered = step(filter, model, before, x, key)
            outputs, self._output_tree = jax.tree.flatten(filtered)
            return jax.tree.leaves(after), outputs

        self._step = jax.jit(flat_step)
        self._step(self._fixed, self._belief, self._missing, self._key)  # compiles; result unused

    def _checked(self, x: Any, observed: Any) -> np.ndarray:
        try:
            array = np.array(x, dtype=self._dtype)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"`x` must be numbers of shape {self._shape}; got {type(x).__name__} ({error})."
            ) from None
        if array.shape != self._shape:
            raise ValueError(
                f"`x` must have shape {self._shape} for `{type(self.model).__name__}`;"
                f" got {array.shape}. Push one observation at a time."
            )
        if np.isinf(array).any():
            raise ValueError("`x` holds infinities. Mark unobserved elements with NaN or None.")
        if observed is not None:
            seen = np.asarray(observed)
            if seen.shape != self._shape or seen.dtype != bool:
                raise ValueError(
                    f"`observed` must be a boolean array of shape {self._shape};"
                    f" got {seen.dtype} {seen.shape}."
                )
            array[~seen] = np.nan
        return array

    def _named_leaves(self) -> list[tuple[str, jax.Array]]:
        paths = jax.tree_util.tree_leaves_with_path(self.belief)
        return [(f"belief{jax.tree_util.keystr(path)}", leaf) for path, leaf in paths]


def fingerprint(*modules: Any) -> str:
    """A hash of the modules' classes and of the name, shape and value of each of their arrays."""
    digest = hashlib.sha256()
    for module in modules:
        digest.update(f"{type(module).__module__}.{type(module).__qualname__}\n".encode())
        for path, leaf in jax.tree_util.tree_leaves_with_path(eqx.filter(module, eqx.is_array)):
            array = np.asarray(leaf)
            name = jax.tree_util.keystr(path)
            digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
            digest.update(array.tobytes())
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    if not path.is_file():
        raise FileNotFoundError(f"`path`: there is no file {str(path)!r}.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{str(path)!r} is not a saved stream, or is damaged: {error}.") from None
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{str(path)!r} is a safetensors file, but not a saved `Stream`.")
    if metadata.get("version") != str(VERSION):
        raise ValueError(
            f"{str(path)!r} has version {metadata.get('version')} of the stream format; this"
            f" varfilter reads version {VERSION}. Update varfilter."
        )
    return metadata, arrays


def _leaf(path: Any, arrays: dict[str, np.ndarray], name: str, old: jax.Array) -> np.ndarray:
    new = arrays.get(name)
    if new is None or new.shape != old.shape or new.dtype != old.dtype:
        got = "nothing" if new is None else f"{new.dtype}{list(new.shape)}"
        raise ValueError(
            f"{str(path)!r} holds {got} as `{name}`, but this filter carries"
            f" {old.dtype}{list(old.shape)}. Was it saved with other settings, or in another"
            " precision?"
        )
    return new
