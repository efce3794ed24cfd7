"""Distributions as pytrees of unconstrained parameters; NaN marks an unobserved element."""

from varfilter.distributions.autoregressive import Autoregressive, step_up
from varfilter.distributions.base import (
    AbstractDistribution,
    error,
    event_shape,
    fill,
    is_distribution,
    is_reparameterisable,
    log_prob,
    mean,
    not_reparameterisable,
    observed,
    sample,
    sample_pair,
    stabilised,
    tempered,
)
from varfilter.distributions.bernoulli import Bernoulli
from varfilter.distributions.categorical import Categorical
from varfilter.distributions.discretized import DiscretizedNormal, PaperDiscretizedNormal
from varfilter.distributions.divergence import has_analytic_kl, kl
from varfilter.distributions.exponentiated import Exponentiated
from varfilter.distributions.gaussian import Gaussian
from varfilter.distributions.joint import Joint
from varfilter.distributions.negative_binomial import NegativeBinomial
from varfilter.distributions.normal import Normal
from varfilter.distributions.particles import Mixture, Particles
from varfilter.distributions.rectified import Rectified
from varfilter.distributions.student import StudentT
from varfilter.distributions.zero_inflated import ZeroInflated

__all__ = [
    "AbstractDistribution",
    "Autoregressive",
    "Bernoulli",
    "Categorical",
    "DiscretizedNormal",
    "Exponentiated",
    "Gaussian",
    "Joint",
    "Mixture",
    "NegativeBinomial",
    "Normal",
    "PaperDiscretizedNormal",
    "Particles",
    "Rectified",
    "StudentT",
    "ZeroInflated",
    "error",
    "event_shape",
    "fill",
    "has_analytic_kl",
    "is_distribution",
    "is_reparameterisable",
    "kl",
    "log_prob",
    "mean",
    "not_reparameterisable",
    "observed",
    "sample",
    "sample_pair",
    "stabilised",
    "step_up",
    "tempered",
]
