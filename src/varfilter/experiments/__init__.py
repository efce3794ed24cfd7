"""Experiments: named, typed objects; and runs of them, trained, resumed and loaded."""

from varfilter.experiments.choices import AVF, Baseline, Descent, FilterChoice
from varfilter.experiments.estimator import TableFilter
from varfilter.experiments.experiment import Experiment, Published
from varfilter.experiments.inputs import Recorded, read_input
from varfilter.experiments.lines import LineFilter
from varfilter.experiments.names import EXPERIMENTS, named
from varfilter.experiments.online import (
    Ready,
    filter_input,
    forecast_input,
    ready,
    sample_run,
)
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
    "LineFilter",
    "Optimizers",
    "Published",
    "Ready",
    "Recorded",
    "Run",
    "SRNNSizes",
    "SVGSizes",
    "Schedule",
    "Source",
    "TableFilter",
    "TableSizes",
    "Trained",
    "VRNNSizes",
    "filter_input",
    "forecast_input",
    "named",
    "read_input",
    "ready",
    "sample_run",
    "table_experiment",
    "train",
]
