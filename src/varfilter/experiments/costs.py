"""How large the named experiments are and how long they train: `varfilter list` says it first.

Parameters are counted in the built models, which takes seconds: they are kept here, and a test
compares them with the models. Times and memory were measured.
"""

import math
from typing import Any

import equinox as eqx
import jax

from varfilter.data.sets.registry import CATALOGUE
from varfilter.experiments.experiment import Experiment
from varfilter.experiments.models import Observations

# Of the model and the inference network together (`num_parameters`).
PARAMETERS = {
    "vrnn-timit-baseline": 33_902_000,
    "vrnn-timit-avf": 37_029_472,
    "srnn-timit-baseline": 8_481_424,
    "srnn-timit-avf": 14_240_912,
    "svg-kth-baseline": 23_308_226,
    "svg-kth-avf": 31_043_010,
    "srnn-music-baseline": 1_559_188,
    "srnn-music-avf": 5_005_560,
}
# Seconds of one update on two cores of a CPU: `python benchmarks/experiments.py`. SVG's batch of
# 20 did not fit; this is ten times the time of 2.
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
}
# GiB that an update asked for on a CPU, where that was more than there was.
CPU_GIB = {"svg-kth-baseline": 43, "svg-kth-avf": 50}
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
    return PARAMETERS.get(_with_shape(name))


def cpu_minutes(name: str, num_updates: int) -> float | None:
    """Minutes of so many updates on two cores, without validations; None if not measured."""
    seconds = CPU_SECONDS.get(_with_shape(name))
    return None if seconds is None else seconds * num_updates / 60


def cpu_gib(name: str) -> int | None:
    """The memory in GiB that an update asks for on a CPU, where it is large."""
    return CPU_GIB.get(_with_shape(name))


def h200_minutes(name: str) -> float | None:
    """Minutes of the whole run on one H200; None where there was none."""
    return H200_MINUTES.get(name)


def num_parameters(experiment: Experiment) -> int | None:
    """Count the parameters of the model and the inference network, without allocating any.

    None if the data are not a set that has a name, of which the observations are known.
    """
    entry = CATALOGUE.get(experiment.data.source)
    if entry is None:
        return None
    data = Observations(entry.name, entry.observation, entry.family)

    def build() -> Any:
        key = jax.random.key(0)
        model = experiment.model.build(data, key)
        return model, experiment.filter.build(model, key)

    leaves = jax.tree.leaves(eqx.filter_eval_shape(build))
    arrays = (leaf for leaf in leaves if isinstance(leaf, jax.ShapeDtypeStruct))
    return sum(math.prod(leaf.shape) for leaf in arrays)


def _with_shape(name: str) -> str:
    for data, shape in _SHAPES.items():
        name = name.replace(data, shape)
    return name
