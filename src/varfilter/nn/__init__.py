"""Small networks, written for one example; initialised as the spec of the paper's models says."""

from varfilter.nn.coders import DCGAN, VGG
from varfilter.nn.dense import Dense, linear
from varfilter.nn.highway import HighwayTrunk
from varfilter.nn.lstm import LSTM

__all__ = ["DCGAN", "LSTM", "VGG", "Dense", "HighwayTrunk", "linear"]
