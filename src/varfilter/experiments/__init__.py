"""Experiments: named, typed objects; and runs of them, trained, resumed and loaded."""

from varfilter.experiments.choices import AVF, Baseline, Descent, FilterChoice
from varfilter.experiments.experiment import Experiment, Published
from varfilter.experiments.names import EXPERIMENTS, named
from varfilter.experiments.run import Run, Trained
from varfilter.experiments.schedule import Adam, Optimizers, Schedule
from varfilter.experiments.sizes import SRNNSizes, SVGSizes, TableSizes, VRNNSizes
from varfilter.experiments.source import Source
from varfilter.experiments.tables import table_experiment
from varfilter.experiments.training import train

__all__ = [
    "AVF",
    "EXPERIMENTS",
    "Adam",
    "Baseline",
    "Descent",
    "Experiment",
    "FilterChoice",
    "Optimizers",
    "Published",
    "Run",
    "SRNNSizes",
    "SVGSizes",
    "Schedule",
    "Source",
    "TableSizes",
    "Trained",
    "VRNNSizes",
    "named",
    "table_experiment",
    "train",
]
