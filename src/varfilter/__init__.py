"""varfilter: learn deep state-space models from sequences, and filter with them online."""

from varfilter.distributions import (
    AbstractDistribution,
    Bernoulli,
    DiscretizedNormal,
    Gaussian,
    Mixture,
    Normal,
    PaperDiscretizedNormal,
    Particles,
    kl,
)
from varfilter.filtering import Belief, run, start, step
from varfilter.filters import (
    AbstractFilter,
    Filtered,
    KalmanFilter,
    ParticleFilter,
    VariationalFilter,
)
from varfilter.forecast import Forecast, forecast, generate
from varfilter.inference import (
    AbstractInference,
    Amortized,
    Exact,
    GradientDescent,
    Gradients,
    Highway,
    Inferred,
    Iterative,
    LayerNorm,
    LearnedStep,
    LSTMPosterior,
    MeanNormalized,
    MLPPosterior,
    PrecisionWeightedErrors,
    Prior,
    Recurrent,
    SignedLog,
)
from varfilter.learning import EndToEnd, Learning, Metrics, TimeParallel
from varfilter.model import AbstractModel
from varfilter.models import SRNN, DeepMarkov, LinearGaussian
from varfilter.objective import FreeEnergy, free_energy
from varfilter.observation import Observation
from varfilter.stream import Stream

__version__ = "0.1.0"

__all__ = [
    "SRNN",
    "AbstractDistribution",
    "AbstractFilter",
    "AbstractInference",
    "AbstractModel",
    "Amortized",
    "Belief",
    "Bernoulli",
    "DeepMarkov",
    "DiscretizedNormal",
    "EndToEnd",
    "Exact",
    "Filtered",
    "Forecast",
    "FreeEnergy",
    "Gaussian",
    "GradientDescent",
    "Gradients",
    "Highway",
    "Inferred",
    "Iterative",
    "KalmanFilter",
    "LSTMPosterior",
    "LayerNorm",
    "LearnedStep",
    "Learning",
    "LinearGaussian",
    "MLPPosterior",
    "MeanNormalized",
    "Metrics",
    "Mixture",
    "Normal",
    "Observation",
    "PaperDiscretizedNormal",
    "ParticleFilter",
    "Particles",
    "PrecisionWeightedErrors",
    "Prior",
    "Recurrent",
    "SignedLog",
    "Stream",
    "TimeParallel",
    "VariationalFilter",
    "__version__",
    "forecast",
    "free_energy",
    "generate",
    "kl",
    "run",
    "start",
    "step",
]
