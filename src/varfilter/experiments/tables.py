"""The experiment for the user's own table."""

from pathlib import Path

from varfilter.experiments.experiment import Experiment
from varfilter.experiments.filters import AVF, FilterChoice
from varfilter.experiments.models import TableSizes
from varfilter.experiments.schedule import Adam, Optimizers, Schedule
from varfilter.experiments.source import Source


def table_experiment(source: Source) -> Experiment:
    """A small SRNN under AVF; its sizes and windows are chosen by what the table holds.

    Some of each window is hidden: a model that is always shown all of the past learns to
    predict one step ahead, and is too sure of itself further on.
    """
    adam = Adam(5e-3, decay=0.9, clip_norm=5.0)
    return Experiment(
        Path(source.source).name.split(".")[0] or "table",
        source,
        TableSizes(),
        FilterChoice(AVF(encode_observation=True, hidden_size=64, num_layers=1)),
        Optimizers(Adam(5e-3, decay=0.9, clip_norm=5.0, weight_decay=0.1), adam, num_phi_steps=4),
        Schedule(
            num_epochs=30,
            batch_size=48,
            num_steps=None,
            windows_per_epoch=2400,
            hidden_elements=0.1,
            hidden_gaps=0.04,
        ),
    )
