"""Models on the core's five functions, each readable beside its equations."""

from varfilter.models.columns import ColumnFamily, ColumnHead
from varfilter.models.continued import Continued
from varfilter.models.deep_markov import DeepMarkov
from varfilter.models.differenced import Differenced
from varfilter.models.ensemble import Ensemble
from varfilter.models.heads import (
    AutoregressiveHead,
    BernoulliChange,
    BernoulliHead,
    BernoulliImage,
    LatentHead,
    NormalChange,
    NormalHead,
    NormalImage,
    VaryingNormalHead,
)
from varfilter.models.linear_dynamics import LinearDynamics
from varfilter.models.linear_gaussian import LinearGaussian
from varfilter.models.logarithmic import Logarithmic
from varfilter.models.settled import Settled, settled
from varfilter.models.srnn import SRNN
from varfilter.models.svg import SVG
from varfilter.models.vrnn import VRNN
from varfilter.models.widened import Widened, widened

__all__ = [
    "SRNN",
    "SVG",
    "VRNN",
    "AutoregressiveHead",
    "BernoulliChange",
    "BernoulliHead",
    "BernoulliImage",
    "ColumnFamily",
    "ColumnHead",
    "Continued",
    "DeepMarkov",
    "Differenced",
    "Ensemble",
    "LatentHead",
    "LinearDynamics",
    "LinearGaussian",
    "Logarithmic",
    "NormalChange",
    "NormalHead",
    "NormalImage",
    "Settled",
    "VaryingNormalHead",
    "Widened",
    "settled",
    "widened",
]
