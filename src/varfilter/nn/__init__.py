"""Small networks, written for one example; initialised as the paper's models are."""

from varfilter.nn.coders import DCGAN, VGG
from varfilter.nn.dense import Dense, HighwayTrunk, in_parts, linear
from varfilter.nn.lstm import LSTM

__all__ = ["DCGAN", "LSTM", "VGG", "Dense", "HighwayTrunk", "in_parts", "linear"]
