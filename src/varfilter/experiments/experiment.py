"""What an experiment is: a model, data, a filter, optimizers and a schedule, as a frozen object."""

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from varfilter.data.batches import RandomWindows
from varfilter.data.dataset import SPLITS, Dataset
from varfilter.experiments.filters import FilterChoice
from varfilter.experiments.models import SRNNSizes, SVGSizes, TableSizes, VRNNSizes
from varfilter.experiments.schedule import Optimizers, Schedule
from varfilter.experiments.source import Source
from varfilter.filters import AbstractFilter
from varfilter.learning import EndToEnd, TimeParallel
from varfilter.model import AbstractModel

Sizes = VRNNSizes | SRNNSizes | SVGSizes | TableSizes
# Fields that earlier runs have on record, and that said nothing of what was trained.
RETIRED = ("minutes",)


@dataclass(frozen=True)
class Published:
    """What the paper prints for an experiment, in nats per step.

    `corrected` divides by the steps that were scored, if the released evaluation made the
    printed number (spec 8); that is what our `nats` compares with.
    """

    table: str
    nats: float | int
    corrected: float | int
    num_iterations: int = 1


class Built(NamedTuple):
    """The modules of an experiment, untrained, and how they learn."""

    model: AbstractModel
    filter: AbstractFilter
    learner: TimeParallel | EndToEnd


class Keys(NamedTuple):
    """All randomness of a run: of the parameters, of training, of validation."""

    model: Any
    filter: Any
    train: Any
    valid: Any


@dataclass(frozen=True)
class Experiment:
    """A model on data, under a filter, learned by a schedule; all of it can be overridden."""

    name: str
    data: Source
    model: Sizes
    filter: FilterChoice = FilterChoice()
    optimizer: Optimizers = Optimizers()
    schedule: Schedule = Schedule()
    seed: int = 0
    published: Published | None = None

    def keys(self) -> Keys:
        """From the seed."""
        return Keys(*jax.random.split(jax.random.key(self.seed), 4))

    def windows(self, dataset: Dataset, *, on_device: bool = True) -> RandomWindows:
        """The training batches."""
        lengths = dataset.train.lengths // dataset.rows_per_step
        num_steps = self.schedule.window_steps(lengths)
        return RandomWindows(dataset, num_steps, self.schedule.batch_size, on_device=on_device)

    def build(self, dataset: Dataset, updates_per_epoch: int = 1) -> Built:
        """The model and the filter for observations like the data set's, from the seed."""
        keys = self.keys()
        model = self.model.build(dataset, keys.model)
        filter = self.filter.build(model, keys.filter)
        complete = self.schedule.thinning() is None
        complete = complete and not any(has_gaps(dataset, split) for split in SPLITS)
        learner = self.optimizer.learner(filter, updates_per_epoch, complete=complete)
        return Built(model, filter, learner)


def has_gaps(dataset: Dataset, split: str) -> bool:
    """Whether an element of the split is missing."""
    values = dataset.split(split).values
    return values.dtype.kind == "f" and bool(np.isnan(values).any())


def as_json(value: Any) -> Any:
    """Settings as plain JSON: each dataclass a dictionary with its `kind`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = {f.name: as_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **inner}
    return [as_json(v) for v in value] if isinstance(value, tuple | list) else value


def from_json(value: Any) -> Experiment:
    """What `as_json` made, back; newer fields have their defaults, retired ones are left out."""
    found = _decoded(value)
    if not isinstance(found, Experiment):
        raise ValueError(f"`value` must describe an Experiment; got {type(found).__name__}.")
    return found


def differences(first: Experiment, second: Experiment) -> dict[str, tuple[Any, Any]]:
    """The fields in which two experiments differ, by their names on the command line."""
    one, two = (dict(_flat("", as_json(e))) for e in (first, second))
    return {
        name: (one.get(name), two.get(name))
        for name in {**one, **two}
        if one.get(name) != two.get(name)
    }


def nearest(name: str, names: Iterable[str]) -> str:
    """` Did you mean ...?`, or nothing."""
    close = difflib.get_close_matches(name, list(names), 1, 0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def _kinds(root: type) -> dict[str, type]:
    """The settings' classes that an experiment may hold, by name."""
    found: dict[str, type] = {}
    pending: list[Any] = [root]
    while pending:
        annotation = pending.pop()
        if isinstance(annotation, types.UnionType) or typing.get_origin(annotation):
            pending += typing.get_args(annotation)
        elif isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
            if annotation.__name__ in found:
                continue
            found[annotation.__name__] = annotation
            pending += typing.get_type_hints(annotation).values()
    return found


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(v) for v in value)
    if not isinstance(value, dict):
        return value
    kinds = _kinds(Experiment)
    kind = value.get("kind")
    if kind not in kinds:
        raise ValueError(
            f"{kind!r} is no part of an experiment that this varfilter knows. It was written by a"
            " newer one: update varfilter."
        )
    known = {field.name for field in dataclasses.fields(kinds[kind])}
    given = {name: _decoded(v) for name, v in value.items() if name not in ("kind", *RETIRED)}
    if unknown := sorted(set(given) - known):
        raise ValueError(
            f"{kind} has no field {unknown[0]!r} in this varfilter. It was written by a newer one:"
            " update varfilter."
        )
    return kinds[kind](**given)


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield prefix, value
        return
    for name, inner in value.items():
        yield from _flat(f"{prefix}.{name}" if prefix else name, inner)
