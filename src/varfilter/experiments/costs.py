"""How large the named experiments are and how long they train: `varfilter list` says it first.

Parameters are counted in the built models, which takes seconds: they are kept here, and a test
compares them with the models. Times and memory were measured. A name that ends in `-small` is the
experiment by that preset.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax

from varfilter.data.dataset import Dataset
from varfilter.data.sets.registry import CATALOGUE
from varfilter.experiments.experiment import Experiment
from varfilter.experiments.models import Observations


class Parameters(NamedTuple):
    """How many numbers the model and the inference network learn."""

    model: int
    inference: int

    @property
    def total(self) -> int:
        """Of both together."""
        return self.model + self.inference


PARAMETERS = {
    "vrnn-timit-baseline": Parameters(31_649_600, 2_252_400),
    "vrnn-timit-avf": Parameters(31_649_600, 5_379_872),
    "srnn-timit-baseline": Parameters(7_328_912, 1_152_512),
    "srnn-timit-avf": Parameters(7_328_912, 6_912_000),
    "svg-kth-baseline": Parameters(22_649_282, 658_944),
    "svg-kth-avf": Parameters(22_649_282, 8_393_728),
    "srnn-music-baseline": Parameters(1_264_488, 294_700),
    "srnn-music-avf": Parameters(1_264_488, 3_741_072),
    "vrnn-timit-baseline-small": Parameters(643_792, 74_048),
    "vrnn-timit-avf-small": Parameters(643_792, 142_848),
    "srnn-timit-baseline-small": Parameters(342_128, 100_672),
    "srnn-timit-avf-small": Parameters(342_128, 285_568),
    "svg-kth-baseline-small": Parameters(420_898, 65_504),
    "svg-kth-avf-small": Parameters(420_898, 33_216),
    "srnn-music-baseline-small": Parameters(204_600, 72_000),
    "srnn-music-avf-small": Parameters(204_600, 199_552),
}
# Of the model for examples/data/sensors.csv; those of other tables have other columns.
SENSORS = Parameters(8_707, 9_568)
# Seconds of one update on two cores of a CPU: `python benchmarks/experiments.py`; of the small ones
# with `--preset small`, on a machine that was busy with other things: the seconds of all cores
# together, which two idle ones need at most. SVG's batch of 20 did not fit; this is ten times the
# time of 2.
CPU_SECONDS = {
    "vrnn-timit-baseline": 4.9,
    "vrnn-timit-avf": 8.6,
    "srnn-timit-baseline": 1.4,
    "srnn-timit-avf": 3.7,
    "svg-kth-baseline": 99.0,
    "svg-kth-avf": 204.0,
    "srnn-music-baseline": 0.086,
    "srnn-music-avf": 0.78,
    "table": 0.044,  # of examples/data/sensors.csv
    "vrnn-timit-baseline-small": 0.207,
    "vrnn-timit-avf-small": 0.156,
    "srnn-timit-baseline-small": 0.195,
    "srnn-timit-avf-small": 0.206,
    "svg-kth-avf-small": 1.3,
    "srnn-music-baseline-small": 0.031,
    "srnn-music-avf-small": 0.046,
}
# GiB that an update asked for on a CPU; SVG's was more than there was.
CPU_GIB = {
    "svg-kth-baseline": 43.0,
    "svg-kth-avf": 50.0,
    "vrnn-timit-baseline-small": 1.1,
    "vrnn-timit-avf-small": 1.2,
    "srnn-timit-baseline-small": 1.0,
    "srnn-timit-avf-small": 1.1,
    "srnn-music-baseline-small": 0.84,
    "srnn-music-avf-small": 0.88,
}
# Minutes of whole runs on one H200, compiling and validations included: those in `results/`.
# Nottingham's were stopped short; this is what all epochs would take at their pace.
H200_MINUTES = {
    "srnn-jsb-baseline": 1.9,
    "srnn-jsb-avf": 3.3,
    "srnn-nottingham-baseline": 3.9,
    "srnn-nottingham-avf": 7.1,
}
# Data of the same shape cost the same.
_SHAPES = {
    **dict.fromkeys(("-piano-", "-musedata-", "-jsb-", "-nottingham-"), "-music-"),
    **{"-timit-sample-": "-timit-", "-weizmann-": "-kth-"},
}


def parameters(name: str) -> int | None:
    """The parameters of a named experiment; None if they depend on the user's data."""
    found = PARAMETERS.get(name_of_shape(name))
    return None if found is None else found.total


def cpu_minutes(name: str, num_updates: int) -> float | None:
    """Minutes of so many updates on two cores, without validations; None if not measured."""
    seconds = CPU_SECONDS.get(name_of_shape(name))
    return None if seconds is None else seconds * num_updates / 60


def cpu_gib(name: str) -> float | None:
    """The memory in GiB that an update asks for on a CPU; None if not measured."""
    return CPU_GIB.get(name_of_shape(name))


def h200_minutes(name: str) -> float | None:
    """Minutes of the whole run on one H200; None where there was none."""
    return H200_MINUTES.get(name)


def num_parameters(
    experiment: Experiment, data: Dataset | Observations | None = None
) -> Parameters | None:
    """Count what is learned, without allocating any of it.

    `data` may be left out where they are a set that has a name, of which the observations are
    known; else the answer is None.
    """
    entry = CATALOGUE.get(experiment.data.source)
    if data is None and entry is None:
        return None
    if data is None:
        assert entry is not None
        data = Observations(entry.name, entry.observation, entry.family)

    def build() -> Any:
        key = jax.random.key(0)
        model = experiment.model.build(data, key)
        return model, experiment.filter.build(model, key)

    def count(tree: Any) -> int:
        leaves = jax.tree.leaves(tree)
        return sum(math.prod(x.shape) for x in leaves if isinstance(x, jax.ShapeDtypeStruct))

    return Parameters(*map(count, eqx.filter_eval_shape(build)))


def num_updates(experiment: Experiment) -> int:
    """How many updates an experiment makes on a set that has a name; of other data, one batch's."""
    entry, schedule = CATALOGUE.get(experiment.data.source), experiment.schedule
    num_sequences = 1 if entry is None else entry.expected.sequences[0]
    num_batches = -(-num_sequences // schedule.batch_size)
    return schedule.num_epochs * schedule.updates_per_epoch(num_batches)


def name_of_shape(name: str) -> str:
    """The name under which an experiment's costs are kept: of the shape of its data."""
    for data, shape in _SHAPES.items():
        name = name.replace(data, shape)
    return name
