"""What experiments take: parameters, time and memory, as measured and as expected on this device.

Parameters of the named experiments are counted in the built models, which takes seconds: they are
kept here, and a test compares them with the models. Times and memory were measured. A name that
ends in `-small` is the experiment by that preset.

What others take is a guess from updates that were measured: those of the same model, method and
medium that are nearest in their work, scaled by the work, and by how fast this device multiplies
matrices. The pace of the first updates is what counts; until then this tells minutes from
days.
"""

import math
import time
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from varfilter.data.dataset import Dataset
from varfilter.data.sets.registry import CATALOGUE
from varfilter.experiments.experiment import Experiment
from varfilter.experiments.models import Observations
from varfilter.experiments.paper import EXPERIMENTS
from varfilter.experiments.presets import with_preset
from varfilter.experiments.settings import AVF, LONGEST_WINDOW, Descent

# Seconds of one product of two matrices of this size on an idle core of where the times were
# measured.
PRODUCT_SIZE, PRODUCT_SECONDS = 512, 2.7e-3
# How many of them are timed together, and how often: a clock may be too coarse for one.
NUM_PRODUCTS, NUM_TIMES = 8, 5
# Of the run's time that validation takes at most: what is added to that of the updates.
VALIDATION = 0.25
# What the process takes before any model is built, in GiB.
PROCESS_GIB = 0.5
# Bytes for each parameter: itself, its gradient, two moments of Adam, the state before the update
# and the best so far.
BYTES_PER_PARAMETER = 4 * 6
# An update of hardly any work still takes this part of the time of the one measured.
LEAST_PART = 0.25


class Parameters(NamedTuple):
    """How many numbers the model and the inference network learn."""

    model: int
    inference: int

    @property
    def total(self) -> int:
        """How many parameters there are in all."""
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
    "svg-kth-baseline-small": Parameters(422_196, 65_504),
    "svg-kth-avf-small": Parameters(422_196, 33_216),
    "srnn-music-baseline-small": Parameters(204_600, 72_000),
    "srnn-music-avf-small": Parameters(204_600, 199_552),
}
# Of the model for examples/data/sensors.csv; those of other tables have other columns.
SENSORS = Parameters(8_707, 9_568)
# What the experiments that were measured learn.
KNOWN = {**PARAMETERS, "table": SENSORS}
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
    "svg-kth-avf-small": 0.69,
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
    **{"-timit-sample-": "-timit-", "-emodb-": "-timit-", "-weizmann-": "-kth-"},
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

    one = map(count, eqx.filter_eval_shape(build))
    return Parameters(*(experiment.num_members * number for number in one))


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


@dataclass(frozen=True)
class Estimate:
    """What a run is expected to take; None is not known before it is tried.

    `seconds` are of the whole run, validation at its most included.
    """

    update_seconds: float | None
    seconds: float | None
    gib: float | None


def expected(
    experiment: Experiment,
    parameters: Parameters,
    num_steps: int,
    num_updates: int,
    *,
    platform: str,
    slowness: float = 1.0,
) -> Estimate:
    """Estimate from what was measured, for windows of `num_steps` and `num_updates` updates.

    `slowness` is how much longer a product takes here than there.
    """
    if platform != "cpu":
        seconds = _on_accelerator(experiment)
        return Estimate(seconds, None if seconds is None else seconds * num_updates, None)
    work = work_of(experiment, parameters, num_steps)
    nearest = _nearest(experiment, work)
    if nearest is None:
        return Estimate(None, None, None)
    name, of_nearest = nearest
    seconds = CPU_SECONDS[name] * max(work / of_nearest, LEAST_PART) * slowness
    gib = None
    if name in CPU_GIB:
        held = PROCESS_GIB + _gib(KNOWN[name])
        beside = max(CPU_GIB[name] - held, 0.0) * work / of_nearest
        gib = PROCESS_GIB + _gib(parameters) + beside
    return Estimate(seconds, seconds * num_updates * (1.0 + VALIDATION), gib)


def work_of(experiment: Experiment, parameters: Parameters, num_steps: int) -> float:
    """Products of an update, about: every parameter once for each step, forth and twice back.

    AVF goes through the model for the gradient of each draw, while it filters and once more while
    its network learns.
    """
    inference, choice = experiment.filter.inference, experiment.filter
    model, network = parameters
    if isinstance(inference, AVF):
        each = 6 * inference.num_samples * model + 4 * network
        passes = 3 * model + inference.num_iterations * each
    elif isinstance(inference, Descent):
        passes = 3 * model * (1 + inference.num_iterations * inference.num_samples)
    else:
        passes = 3 * (model + network)
    particles = 1 if choice.bound == "elbo" else choice.num_particles
    return float(experiment.schedule.batch_size * (num_steps - 1) * particles * passes)


def slowness() -> float:
    """How much longer a product takes on this processor than where times were measured.

    By the time of its cores, not by the clock: that is the same whether one of them or several
    share a product, and whatever else the machine is busy with at the moment.
    """
    matrix = jnp.ones((PRODUCT_SIZE, PRODUCT_SIZE), jnp.float32)
    product = jax.jit(jnp.matmul)
    product(matrix, matrix).block_until_ready()
    seconds: list[float] = []
    for _ in range(NUM_TIMES):
        begin = time.process_time()
        for _ in range(NUM_PRODUCTS):
            product(matrix, matrix).block_until_ready()
        seconds.append(time.process_time() - begin)
    # The first ones take a little longer.
    return median(seconds) / NUM_PRODUCTS / PRODUCT_SECONDS


def duration(seconds: float) -> str:
    """A length of time, such as 45 ms, 2.5 s, 40 min or 3 d."""
    number, unit = _in_unit(seconds)
    return f"{number:.1f} s" if unit == "s" and number < 10.0 else f"{number:.0f} {unit}"


def rough_duration(seconds: float) -> str:
    """A length of time that is a guess, to one digit: 40 ms, 2 s, 3 h."""
    number, unit = _in_unit(_rounded(seconds) if seconds < 10.0 else seconds)
    return f"{_rounded(number):g} {unit}"


def _rounded(number: float) -> float:
    """The number of one significant digit that is nearest."""
    return float(f"{number:.0e}")


def _in_unit(seconds: float) -> tuple[float, str]:
    """The number and its unit, which is such that the number is neither small nor large."""
    if seconds < 1.0:
        return max(seconds * 1000, 1.0), "ms"
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return seconds / length, unit
    return seconds, "s"


def _gib(parameters: Parameters) -> float:
    return parameters.total * BYTES_PER_PARAMETER / 2**30


def _nearest(experiment: Experiment, work: float) -> tuple[str, float] | None:
    """The name and work of the measured experiment, alike in kind, whose work is nearest."""
    kind, method = type(experiment.model), type(experiment.filter.inference)
    found: list[tuple[float, str, float]] = []
    for name, each in _measured().items():
        is_alike = type(each.model) is kind and type(each.filter.inference) is method
        # A step of another medium takes another time, for as many products.
        if is_alike and type(each.data) is type(experiment.data):
            of_each = work_of(each, KNOWN[name], each.schedule.num_steps or LONGEST_WINDOW)
            found.append((abs(math.log(work / of_each)), name, of_each))
    return min(found)[1:] if found else None


def _measured() -> dict[str, Experiment]:
    """The experiments whose updates were timed, by the names under which that is kept."""
    found: dict[str, Experiment] = {}
    for name, experiment in EXPERIMENTS.items():
        kept = name_of_shape(name)
        if kept in CPU_SECONDS and kept in KNOWN:
            found.setdefault(kept, experiment)
        if f"{kept}-small" in CPU_SECONDS:
            found.setdefault(f"{kept}-small", with_preset(experiment, "small"))
    return found


def _on_accelerator(experiment: Experiment) -> float | None:
    """Seconds of an update on one H200, where a run of these very settings was made."""
    for name, minutes in H200_MINUTES.items():
        known = EXPERIMENTS[name]
        if (known.model, known.filter) == (experiment.model, experiment.filter):
            return minutes * 60 / num_updates(known)
    return None
