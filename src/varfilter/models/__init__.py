"""Models on the core's five functions, each readable beside its equations."""

from varfilter.models.deep_markov import DeepMarkov
from varfilter.models.heads import BernoulliHead, NormalHead
from varfilter.models.linear_gaussian import LinearGaussian
from varfilter.models.srnn import SRNN

__all__ = ["SRNN", "BernoulliHead", "DeepMarkov", "LinearGaussian", "NormalHead"]
