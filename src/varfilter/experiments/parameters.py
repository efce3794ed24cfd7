"""How large an experiment is, told without its data and without allocating anything."""

import functools
import math
from typing import Any

import equinox as eqx
import jax
import numpy as np

from varfilter.data.dataset import Dataset, Family
from varfilter.data.ragged import Ragged
from varfilter.distributions import Bernoulli, DiscretizedNormal
from varfilter.experiments.experiment import Experiment, Sizes
from varfilter.experiments.filters import FilterChoice

# One observation of the data sets of the named experiments; the width of a level does not matter.
_MUSIC = (88,), Family(Bernoulli)
_SPEECH = (200,), Family(DiscretizedNormal, width=1.0)
_FILM = (1, 64, 64), Family(DiscretizedNormal, width=1.0)
OBSERVATIONS: dict[str, tuple[tuple[int, ...], Family]] = {
    "piano-midi": _MUSIC,
    "musedata": _MUSIC,
    "jsb": _MUSIC,
    "nottingham": _MUSIC,
    "timit": _SPEECH,
    "timit-sample": _SPEECH,
    "kth": _FILM,
    "kth-sample": _FILM,
    "weizmann": _FILM,
}


def num_parameters(experiment: Experiment) -> int | None:
    """Of the model and the inference network together; None if the data are not known here."""
    if experiment.data.source not in OBSERVATIONS:
        return None
    shape, family = OBSERVATIONS[experiment.data.source]
    return _counted(experiment.model, experiment.filter, shape, family)


# Many experiments are the same model on other data.
@functools.cache
def _counted(sizes: Sizes, choice: FilterChoice, shape: tuple[int, ...], family: Family) -> int:
    empty = Ragged(np.zeros((0, *shape), np.float32), np.zeros(0, np.int64))
    dataset = Dataset("stand-in", empty, empty, empty, family)

    def build() -> Any:
        key = jax.random.key(0)
        model = sizes.build(dataset, key)
        return model, choice.build(model, key)

    leaves = jax.tree.leaves(eqx.filter_eval_shape(build))
    arrays = (leaf for leaf in leaves if isinstance(leaf, jax.ShapeDtypeStruct))
    return sum(math.prod(leaf.shape) for leaf in arrays)
