"""What an experiment is expected to take on this device, before anything is compiled.

A guess from updates that were measured elsewhere: those of the same model, method and medium that
are nearest in their work, scaled by the work, and by how fast this device multiplies matrices just
now. The pace of the first updates is what counts; until then this tells minutes from days.
"""

import math
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from varfilter.experiments.costs import (
    CPU_GIB,
    CPU_SECONDS,
    H200_MINUTES,
    PARAMETERS,
    SENSORS,
    Parameters,
    name_of_shape,
)
from varfilter.experiments.costs import num_updates as num_updates_of
from varfilter.experiments.experiment import Experiment
from varfilter.experiments.paper import EXPERIMENTS
from varfilter.experiments.presets import with_preset
from varfilter.experiments.settings import AVF, LONGEST_WINDOW, Descent

# Seconds of one product of two matrices of this size on an idle core of where the times were
# measured.
PRODUCT_SIZE, PRODUCT_SECONDS, NUM_PRODUCTS = 512, 2.7e-3, 15
# Of the run's time that validation takes at most: what is added to that of the updates.
VALIDATION = 0.25
# What the process takes before any model is built, in GiB.
PROCESS_GIB = 0.5
# Bytes for each parameter: itself, its gradient, two moments of Adam, the state before the update
# and the best so far.
BYTES_PER_PARAMETER = 4 * 6
# An update of hardly any work still takes this part of the time of the one measured.
LEAST_PART = 0.25
# What the experiments that were measured learn.
KNOWN = {**PARAMETERS, "table": SENSORS}


@dataclass(frozen=True)
class Expected:
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
) -> Expected:
    """Guess from what was measured, for windows of `num_steps` and so many updates.

    `slowness` is how much longer a product takes here than there.
    """
    if platform != "cpu":
        seconds = _on_accelerator(experiment)
        return Expected(seconds, None if seconds is None else seconds * num_updates, None)
    work = work_of(experiment, parameters, num_steps)
    nearest = _nearest(experiment, work)
    if nearest is None:
        return Expected(None, None, None)
    name, of_nearest = nearest
    seconds = CPU_SECONDS[name] * max(work / of_nearest, LEAST_PART) * slowness
    gib = None
    if name in CPU_GIB:
        held = PROCESS_GIB + _gib(KNOWN[name])
        beside = max(CPU_GIB[name] - held, 0.0) * work / of_nearest
        gib = PROCESS_GIB + _gib(parameters) + beside
    return Expected(seconds, seconds * num_updates * (1.0 + VALIDATION), gib)


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
    """How much longer a product takes on this device, just now, than where times were measured."""
    matrix = jnp.ones((PRODUCT_SIZE, PRODUCT_SIZE), jnp.float32)
    product = jax.jit(jnp.matmul)
    product(matrix, matrix).block_until_ready()
    seconds = []
    for _ in range(NUM_PRODUCTS):
        begin = time.perf_counter()
        product(matrix, matrix).block_until_ready()
        seconds.append(time.perf_counter() - begin)
    return float(np.median(seconds)) / PRODUCT_SECONDS


def duration(seconds: float) -> str:
    """A length of time, such as 45 ms, 2.5 s, 40 min or 3 d."""
    if seconds < 1.0:
        return f"{max(seconds * 1000, 1):.0f} ms"
    if seconds < 10.0:
        return f"{seconds:.1f} s"
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _gib(parameters: Parameters) -> float:
    return parameters.total * BYTES_PER_PARAMETER / 2**30


def _nearest(experiment: Experiment, work: float) -> tuple[str, float] | None:
    """The measured one of this model, method and medium that is nearest in its work, and that."""
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
            return minutes * 60 / num_updates_of(known)
    return None
