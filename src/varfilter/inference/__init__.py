"""How to refine a belief about one latent: one strategy a file."""

from varfilter.inference.amortized import Amortized, MLPPosterior
from varfilter.inference.base import AbstractInference, Inferred
from varfilter.inference.baselines import (
    SRNNPosterior,
    SRNNResidualPosterior,
    SVGPosterior,
    VRNNPosterior,
)
from varfilter.inference.exact import Exact
from varfilter.inference.gradient import GradientDescent
from varfilter.inference.iterative import Iterative
from varfilter.inference.prior import Prior
from varfilter.inference.recurrent import LSTMPosterior, Recurrent
from varfilter.inference.signal import Gradients, PairedGradients, PrecisionWeightedErrors
from varfilter.inference.update import (
    Highway,
    LayerNorm,
    LearnedStep,
    MeanNormalized,
    NormAndLog,
    Shift,
    SignedLog,
)

__all__ = [
    "AbstractInference",
    "Amortized",
    "Exact",
    "GradientDescent",
    "Gradients",
    "Highway",
    "Inferred",
    "Iterative",
    "LSTMPosterior",
    "LayerNorm",
    "LearnedStep",
    "MLPPosterior",
    "MeanNormalized",
    "NormAndLog",
    "PairedGradients",
    "PrecisionWeightedErrors",
    "Prior",
    "Recurrent",
    "SRNNPosterior",
    "SRNNResidualPosterior",
    "SVGPosterior",
    "Shift",
    "SignedLog",
    "VRNNPosterior",
]
