"""How large an experiment is, told without its data and without allocating anything."""

import math

import equinox as eqx
import jax
import numpy as np

from varfilter.data.dataset import Dataset, Family
from varfilter.data.ragged import Ragged
from varfilter.distributions import Bernoulli, DiscretizedNormal
from varfilter.experiments.experiment import Experiment

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


def num_parameters(experiment: Experiment, dataset: Dataset | None = None) -> int | None:
    """Of the model and the inference network together; None if the data are not known.

    Without a data set: for observations such as those of the experiment's.
    """
    dataset = _stand_in(experiment.data.source) if dataset is None else dataset
    if dataset is None:
        return None
    built = eqx.filter_eval_shape(lambda: experiment.build(dataset)[:2])
    leaves = (leaf for leaf in jax.tree.leaves(built) if isinstance(leaf, jax.ShapeDtypeStruct))
    return sum(math.prod(leaf.shape) for leaf in leaves)


def _stand_in(source: str) -> Dataset | None:
    if source not in OBSERVATIONS:
        return None
    shape, family = OBSERVATIONS[source]
    empty = Ragged(np.zeros((0, *shape), np.float32), np.zeros(0, np.int64))
    return Dataset(source, empty, empty, empty, family)
