"""Experiments: named, typed objects; and runs of them, trained, resumed and loaded."""

from varfilter.experiments.experiment import Experiment, Published
from varfilter.experiments.filters import AVF, Baseline, Descent, FilterChoice
from varfilter.experiments.folders import recordings_experiment
from varfilter.experiments.models import SRNNSizes, SVGSizes, TableSizes, VRNNSizes
from varfilter.experiments.names import EXPERIMENTS, named
from varfilter.experiments.schedule import Adam, Optimizers, Schedule
from varfilter.experiments.source import Source
from varfilter.experiments.tables import table_experiment
from varfilter.runs.applied import (
    Ready,
    filter_input,
    forecast_input,
    ready,
    sample_run,
)
from varfilter.runs.estimator import TableFilter
from varfilter.runs.inputs import Recorded, read_input
from varfilter.runs.live import LineFilter
from varfilter.runs.run import Run, Trained
from varfilter.runs.training import train

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
    "recordings_experiment",
    "sample_run",
    "table_experiment",
    "train",
]
