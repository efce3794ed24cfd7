"""How to fold observations in: one family a file."""

from varfilter.filters.base import AbstractFilter, Filtered
from varfilter.filters.kalman import KalmanFilter, KalmanInfo
from varfilter.filters.particle import ParticleFilter, ParticleInfo
from varfilter.filters.resampling import ScoredSystematic, Systematic
from varfilter.filters.variational import VariationalFilter, VariationalInfo

__all__ = [
    "AbstractFilter",
    "Filtered",
    "KalmanFilter",
    "KalmanInfo",
    "ParticleFilter",
    "ParticleInfo",
    "ScoredSystematic",
    "Systematic",
    "VariationalFilter",
    "VariationalInfo",
]
