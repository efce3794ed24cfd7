"""How to fold observations in: one family a file."""

from varfilter.filters.base import AbstractFilter, Filtered
from varfilter.filters.kalman import KalmanFilter
from varfilter.filters.particle import ParticleFilter, ParticleInfo
from varfilter.filters.variational import VariationalFilter, VariationalInfo

__all__ = [
    "AbstractFilter",
    "Filtered",
    "KalmanFilter",
    "ParticleFilter",
    "ParticleInfo",
    "VariationalFilter",
    "VariationalInfo",
]
