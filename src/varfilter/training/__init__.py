"""Batches of sequences to a trained model: fit, evaluate, keep checkpoints."""

from varfilter._tree import stacked, unstacked
from varfilter.training.augmentation import Thinning, Transposition
from varfilter.training.checkpoints import Checkpoint, load_checkpoint, save_checkpoint
from varfilter.training.evaluation import Coverage, Evaluation, HeldOut, evaluate, forecast_coverage
from varfilter.training.fitting import Annealing, Fitted, fit, fit_stacked
from varfilter.training.stacking import numbered

__all__ = [
    "Annealing",
    "Checkpoint",
    "Coverage",
    "Evaluation",
    "Fitted",
    "HeldOut",
    "Thinning",
    "Transposition",
    "evaluate",
    "fit",
    "fit_stacked",
    "forecast_coverage",
    "load_checkpoint",
    "numbered",
    "save_checkpoint",
    "stacked",
    "unstacked",
]
