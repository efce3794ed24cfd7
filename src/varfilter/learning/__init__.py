"""Learning θ (the model) and φ (the inference): all steps at once, or end to end."""

from varfilter.learning.dropout import Dropout
from varfilter.learning.end_to_end import EndToEnd
from varfilter.learning.ensemble import EnsembleLearner
from varfilter.learning.state import LearnerState, Metrics
from varfilter.learning.time_parallel import TimeParallel

__all__ = ["Dropout", "EndToEnd", "EnsembleLearner", "LearnerState", "Metrics", "TimeParallel"]
