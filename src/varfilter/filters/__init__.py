"""How to fold observations in: one family a file."""

from varfilter.filters.base import AbstractFilter, Filtered
from varfilter.filters.ensemble import EnsembleFilter, EnsembleInfo, of_each_member, share_of_member
from varfilter.filters.kalman import KalmanFilter, KalmanInfo
from varfilter.filters.particle import ParticleFilter, ParticleInfo
from varfilter.filters.resampling import ScoredSystematic, Systematic
from varfilter.filters.variational import VariationalFilter, VariationalInfo

__all__ = [
    "AbstractFilter",
    "EnsembleFilter",
    "EnsembleInfo",
    "Filtered",
    "KalmanFilter",
    "KalmanInfo",
    "ParticleFilter",
    "ParticleInfo",
    "ScoredSystematic",
    "Systematic",
    "VariationalFilter",
    "VariationalInfo",
    "of_each_member",
    "share_of_member",
]
