"""What an experiment is: a model, data, a filter, optimizers and a schedule, as a frozen object."""

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from varfilter._arguments import require_positive
from varfilter.data.batches import RandomWindows
from varfilter.data.dataset import SPLITS, Dataset
from varfilter.experiments.models import SRNNSizes, SVGSizes, TableSizes, VRNNSizes
from varfilter.experiments.settings import FilterChoice, Optimizers, Schedule
from varfilter.filters import AbstractFilter, EnsembleFilter
from varfilter.learning import EndToEnd, EnsembleLearner, TimeParallel
from varfilter.media import Source, medium_named, medium_of
from varfilter.model import AbstractModel
from varfilter.models import Ensemble

Sizes = VRNNSizes | SRNNSizes | SVGSizes | TableSizes
# Fields that earlier runs have on record, and that said nothing of what was trained.
RETIRED = ("minutes",)


@dataclass(frozen=True)
class Published:
    """What the paper prints for an experiment, in nats per step.

    `corrected` divides by the steps that were scored, if the released evaluation made the
    printed number; that is what our `nats` compares with.
    """

    table: str
    nats: float | int
    corrected: float | int
    num_iterations: int = 1


class Built(NamedTuple):
    """The modules of an experiment, untrained, and how they learn."""

    model: AbstractModel
    filter: AbstractFilter
    learner: TimeParallel | EndToEnd | EnsembleLearner


class Keys(NamedTuple):
    """The random keys of a run: of its parameters, of training, of validation."""

    model: Any
    filter: Any
    train: Any
    valid: Any


@dataclass(frozen=True)
class Experiment:
    """A model on data, under a filter, learned by a schedule; all of it can be overridden.

    `preset` is the name of the settings that it began from (`experiments/presets.py`).
    """

    name: str
    data: Source
    model: Sizes
    filter: FilterChoice = FilterChoice()
    optimizer: Optimizers = Optimizers()
    schedule: Schedule = Schedule()
    num_members: int = 1
    """Models that are learned side by side and predict together; each is one more to train."""
    seed: int = 0
    published: Published | None = None
    preset: str = "paper"

    def __post_init__(self):
        require_positive("num_members", self.num_members)

    def keys(self) -> Keys:
        """The random keys of a run, all from its seed."""
        return Keys(*jax.random.split(jax.random.key(self.seed), 4))

    def windows(self, dataset: Dataset, *, on_device: bool = True) -> RandomWindows:
        """The source of the training batches: random windows, as many for each member."""
        lengths = dataset.train.lengths // dataset.rows_per_step
        transforms = [family.transform for family in dataset.families]
        seasons = [each.season for each in transforms if each is not None and each.season]
        num_before = max(seasons, default=-1) + 1  # a season and a step, where there is one
        num_steps = self.schedule.window_steps(lengths, num_before)
        batch_size = self.schedule.batch_size * self.num_members
        return RandomWindows(dataset, num_steps, batch_size, on_device=on_device)

    def updates_per_epoch(self, windows: RandomWindows) -> int:
        """How many updates an epoch has, in which each member goes through the data once."""
        return self.schedule.updates_per_epoch(windows.num_batches * self.num_members)

    def build(
        self, dataset: Dataset, updates_per_epoch: int = 1, *, can_be_stacked: bool = False
    ) -> Built:
        """The model and the filter for observations like the data set's, from the seed.

        Learners that `can_be_stacked` have the numbers of their optimizers as arrays.
        """
        if self.schedule.semitones and not medium_of(dataset).has_keys:
            raise ValueError(
                f"`schedule.semitones` is {self.schedule.semitones}, but {dataset.name!r} is no"
                " music: only piano rolls can be moved to another key. Give 0."
            )
        built = [self._member(dataset, *keys) for keys in self._keys_of_members()]
        filter = built[0][1]
        complete = self.schedule.thinning() is None
        complete = complete and not any(dataset.has_gaps(split) for split in SPLITS)
        learner = self.optimizer.learner(
            filter, updates_per_epoch, complete=complete, can_be_stacked=can_be_stacked
        )
        if len(built) == 1:
            return Built(*built[0], learner)
        models, filters = zip(*built, strict=True)
        return Built(Ensemble(models), EnsembleFilter(filters), EnsembleLearner(learner))

    def _member(
        self, dataset: Dataset, key_model: Any, key_filter: Any
    ) -> tuple[AbstractModel, AbstractFilter]:
        model = self.model.build(dataset, key_model)
        return model, self.filter.build(model, key_filter)

    def _keys_of_members(self) -> list[tuple[Any, Any]]:
        """The keys of the parameters of each member; a single one has those of the run."""
        keys = self.keys()
        if self.num_members == 1:
            return [(keys.model, keys.filter)]
        own = (jax.random.split(key, self.num_members) for key in (keys.model, keys.filter))
        return list(zip(*own, strict=True))


def as_json(value: Any) -> Any:
    """Settings as plain JSON: each dataclass a dictionary with its `kind`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = {f.name: as_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **inner}
    return [as_json(v) for v in value] if isinstance(value, tuple | list) else value


def from_json(value: Any, medium: str) -> Experiment:
    """What `as_json` made, as an experiment again.

    Newer fields have their defaults, and retired ones are left out. `medium` is that of the data:
    records of version 0.1.0 call every source alike.
    """
    found = _decoded(value, medium)
    if not isinstance(found, Experiment):
        raise ValueError(f"`value` must describe an Experiment; got {type(found).__name__}.")
    for name in ("model", "filter", "optimizer", "schedule", "data"):
        if not dataclasses.is_dataclass(getattr(found, name)):
            raise TypeError(f"`{name}` must be settings; got {getattr(found, name)!r}.")
    return found


def differences(first: Experiment, second: Experiment) -> dict[str, tuple[Any, Any]]:
    """The fields in which two experiments differ, by their names on the command line."""
    one, two = (dict(_flat("", as_json(e))) for e in (first, second))
    return {
        name: (one.get(name), two.get(name))
        for name in {**one, **two}
        if one.get(name) != two.get(name)
    }


@functools.cache
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


def _decoded(value: Any, medium: str) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(v, medium) for v in value)
    if not isinstance(value, dict):
        return value
    source = medium_named(medium).source
    kinds = _kinds(Experiment) | {source.__name__: source}
    kind = value.get("kind")
    if kind == Source.__name__:
        # It had the options of all media, of which the others are None.
        names = {field.name for field in dataclasses.fields(source)}
        value = {name: v for name, v in value.items() if name in names or v is not None}
        kind = source.__name__
    if kind not in kinds:
        raise ValueError(
            f"{kind!r} is no part of an experiment that this varfilter knows. It was written by a"
            " newer one: update varfilter."
        )
    known = {field.name for field in dataclasses.fields(kinds[kind])}
    given = {
        name: _decoded(v, medium) for name, v in value.items() if name not in ("kind", *RETIRED)
    }
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
