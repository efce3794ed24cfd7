"""Experiments: what is trained on what, and how, as frozen objects; and the list of them."""

from varfilter.experiments.experiment import Experiment, Published
from varfilter.experiments.models import (
    Observations,
    SRNNSizes,
    SVGSizes,
    TableSizes,
    VRNNSizes,
    published_model,
)
from varfilter.experiments.paper import EXPERIMENTS, experiment_named, own_experiment
from varfilter.experiments.settings import (
    AVF,
    Adam,
    Baseline,
    Descent,
    FilterChoice,
    Optimizers,
    Schedule,
)

__all__ = [
    "AVF",
    "EXPERIMENTS",
    "Adam",
    "Baseline",
    "Descent",
    "Experiment",
    "FilterChoice",
    "Observations",
    "Optimizers",
    "Published",
    "SRNNSizes",
    "SVGSizes",
    "Schedule",
    "TableSizes",
    "VRNNSizes",
    "experiment_named",
    "own_experiment",
    "published_model",
]
