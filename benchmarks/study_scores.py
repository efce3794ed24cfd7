"""What a cell of the study is scored by: its own bound, tighter ones, and the released likelihood.

All members of a cell are scored by one program. `warm` compiles the programs while the cell still
trains, on models that have learned nothing: then the last minute of a call is not spent on it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from varfilter.distributions import PaperDiscretizedNormal
from varfilter.experiments.settings import filter_with
from varfilter.inference import GradientDescent
from varfilter.media import Inspection
from varfilter.report.inspection import inspect_sequences
from varfilter.training import HeldOut, stacked

# Iterations of the E-step that goes on from an inference: enough, and half of that, to see it.
DESCENTS = (100, 50)
TIGHTER = ("fivo-128", "iwae-128", *(f"descent-{count}" for count in DESCENTS))
# Steps, and draws of the prediction, of the sequence that is kept with a cell.
SHOWN_STEPS, SHOWN_DRAWS = 40, 16
# The released code's window for video: levels are 1/255 apart.
RELEASED_PIXEL = 1 / 256


@dataclass(frozen=True)
class Scoring:
    """What the test part of a data set is to be scored by.

    `bounds` are the names of bounds beside the model's own; with `as_released`, the likelihood of
    the released code as well; with `example`, the number of a test sequence that is kept.
    """

    dataset: Any
    part: str
    bounds: tuple[str, ...] = ()
    as_released: bool = False
    example: int | None = None

    def warm(self, built: Sequence[Any]) -> None:
        """Score models that have learned nothing, for the programs."""
        filters, models, keys = _stacks(built)
        self.own(filters, models, keys)
        for name in self.bounds:
            self.by_bound(name, filters, models, keys)
        if self.as_released:
            self.released(filters, models, keys)
        if self.example is not None:
            self.shown(built[0])

    def all(self, trained: Sequence[Any]) -> tuple[list[Any], Callable[[str], list[Any]], Any]:
        """The scores of the members by their own bound, and functions for the others."""
        filters, models, keys = _stacks(trained)
        scores = self.own(filters, models, keys)
        released = self.released(filters, models, keys) if self.as_released else None
        return scores, lambda name: self.by_bound(name, filters, models, keys), released

    def own(self, filters: Any, models: Any, keys: Any) -> list[Any]:
        """The scores by the bound that was learned."""
        return self._held_out.evaluate_stacked(filters, models, keys)

    def by_bound(self, name: str, filters: Any, models: Any, keys: Any) -> list[Any]:
        """The scores by another bound: elbo, iwae-N, fivo-N, or a descent of N iterations."""
        filters = filter_of_bound(name, filters.inference)
        return self._held_out.evaluate_stacked(filters, models, keys)

    def released(self, filters: Any, models: Any, keys: Any) -> list[Any]:
        """The scores by the likelihood of the released code, of the models as they are."""
        return self._held_out.evaluate_stacked(filters, as_released(models), keys)

    def shown(self, trained: Any) -> dict[str, np.ndarray]:
        """The data, the predictions and the reconstructions of a test sequence, as they are drawn.

        What is filtered is the beginning of the sequence, a window's length or two.
        """
        inspection = Inspection(num_steps=SHOWN_STEPS, num_samples=SHOWN_DRAWS)
        numbers = np.asarray([self.example])
        (found,) = inspect_sequences(
            trained.filter, trained.model, self.dataset, jax.random.key(0), numbers,
            split=self.part, inspection=inspection,
        )  # fmt: skip
        arrays = {
            "data": found.xs,
            "prediction": found.mean,
            "reconstruction": found.reconstruction,
        }
        restored = {name: self.dataset.scaling.restore(xs) for name, xs in arrays.items()}
        kept = {name: _in_levels(values, self.dataset) for name, values in restored.items()}
        return kept | {"name": np.asarray(found.name), "rate": np.asarray(self.dataset.rate or 0)}

    @property
    def _held_out(self) -> Any:
        return HeldOut(self.dataset, split=self.part)


def _stacks(members: Sequence[Any]) -> tuple[Any, Any, Any]:
    """The filters and the models of all members, and the key that `varfilter evaluate` has."""
    keys = jnp.stack([jax.random.key(0)] * len(members))
    filters = stacked([each.filter for each in members])
    return filters, stacked([each.model for each in members]), keys


def _in_levels(values: np.ndarray, dataset: Any) -> np.ndarray:
    """Values in the recording's units as small numbers: the levels of what was recorded."""
    if dataset.train.values.dtype.kind not in "iu":
        return np.asarray(values, np.float16)
    dtype = dataset.train.values.dtype
    limits = np.iinfo(dtype)
    return np.clip(np.rint(values), limits.min, limits.max).astype(dtype)


def keep_shown(arrays: dict[str, np.ndarray], path: Path) -> None:
    """Write what `shown` found."""
    np.savez_compressed(path, **arrays)


class ReleasedHead(eqx.Module):
    """The head of a model, with the likelihood of the released code in the place of its own."""

    head: Any

    def __call__(self, *inputs: Any) -> PaperDiscretizedNormal:
        """Return the distribution of x given what the head is given."""
        ours = self.head(*inputs)
        width = ours.width if ours.low is None else RELEASED_PIXEL
        return PaperDiscretizedNormal(ours.mean, ours.log_var, width)


def as_released(model: Any) -> Any:
    """The model with the released code's likelihood, `PaperDiscretizedNormal`, in the same head.

    The model has learned by ours; q is found with the likelihood that is scored.
    """
    return eqx.tree_at(lambda model: model.core.head, model, ReleasedHead(model.core.head))


def filter_of_bound(name: str, inference: Any) -> Any:
    """The filter of a bound by its name, with this inference."""
    bound, _, number = name.partition("-")
    if bound == "descent":
        count = int(number)
        descent = GradientDescent(
            natural_descent(count), num_iterations=count, num_samples=16, start=inference
        )
        return filter_with(descent, "elbo", 1)
    known: Any = bound
    return filter_with(inference, known, int(number or 1))


def natural_descent(num_iterations: int) -> Any:
    """Adam in units of q's own spread, at a rate that falls to zero.

    The latents that a model has learned differ in scale by many orders, so that one rate for all
    means would leave some where they are and throw others about. A mean moves by 0.1 of its own
    standard deviation at the most.
    """

    def scaled(updates: Any, q: Any) -> Any:
        return type(q)(updates.mean * jnp.exp(0.5 * q.log_var), updates.log_var)

    def in_own_units(updates: Any, state: Any, q: Any = None) -> tuple[Any, Any]:
        is_normal = lambda each: hasattr(each, "log_var")  # noqa: E731
        return jax.tree.map(scaled, updates, q, is_leaf=is_normal), state

    # d F / d (mean / spread) = spread * d F / d mean; and back, for the step that is made.
    own_units = optax.GradientTransformation(lambda _: optax.EmptyState(), in_own_units)
    rate = optax.cosine_decay_schedule(-0.1, num_iterations)
    return optax.chain(
        own_units, optax.scale_by_adam(0.9, 0.99), own_units, optax.scale_by_schedule(rate)
    )
