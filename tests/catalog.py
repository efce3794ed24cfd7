"""Every kind of model, inference and filter, small, by name: the conformance tests go through them.

A class of the library without an example here fails `test_every_class_has_an_example`.
"""

import functools
import importlib
import inspect
import pkgutil

import pytest

import varfilter as vf
import worlds
from varfilter.filters import EnsembleFilter
from varfilter.inference import (
    Exact,
    LearnedStep,
    LSTMPosterior,
    MeanNormalized,
    MLPPosterior,
    PrecisionWeightedErrors,
    SRNNResidualPosterior,
)
from worlds import KEY

MODELS = {
    "linear-gaussian": worlds.linear_gaussian,
    "linear-dynamics": worlds.linear_dynamics,
    "deep-markov": worlds.deep_markov,
    "vrnn": worlds.vrnn,
    "srnn": worlds.srnn,
    "svg": worlds.svg,
    "differenced": worlds.differenced,
    "logarithmic": worlds.logarithmic,
    "ensemble": worlds.ensemble,
    "widened": worlds.widened,
    "continued": worlds.continued,
    "settled": worlds.settled,
}
# How a filter is made of an inference; `KalmanFilter` needs none.
FILTERS = {
    "variational": vf.VariationalFilter,
    "particle": lambda inference: vf.ParticleFilter(inference, 4),
    "kalman": lambda inference: vf.KalmanFilter(),
    "ensemble": lambda inference: EnsembleFilter([vf.VariationalFilter(inference)] * 2),
}
INFERENCES = ("prior", "baseline", "avf", "avf-errors", "gradient-descent")
# Variants that touch nothing of the model: one model is enough for them.
VARIANTS = ("generic", "recurrent", "residual", "learned-step")
# Only for a linear-Gaussian model.
EXACT = ("exact",)
SLOW = [pytest.mark.slow]


def classes(base: type) -> set[type]:
    """Every class of the library that can be made, is public and derives from `base`."""
    for name in ("models", "inference", "filters"):
        package = importlib.import_module(f"varfilter.{name}")
        for module in pkgutil.iter_modules(package.__path__, f"varfilter.{name}."):
            importlib.import_module(module.name)
    found, ahead = set(), [base]
    while ahead:
        derived = ahead.pop().__subclasses__()
        ahead += derived
        found |= {
            each
            for each in derived
            if each.__module__.startswith("varfilter.")
            and not (inspect.isabstract(each) or each.__name__.startswith("_"))
        }
    return found


# Every inference once, each on another model. Those around a model, and SVG, have inferences in
# tests of their own: of members, moving levels, wider priors and reports of films.
EACH_ONCE = set(zip(MODELS, INFERENCES, strict=False)) | {("srnn", each) for each in VARIANTS}


def pairs(usual: set[tuple[str, str]]) -> list:
    """All pairs of model and inference, of which the default run goes through `usual`.

    A pair under a filter is ten to forty seconds of compiling (that of SVG a minute): `pytest -m
    slow` goes through the rest.
    """
    every = [(model, inference) for model in MODELS for inference in INFERENCES]
    every += [("srnn", variant) for variant in VARIANTS]
    return [pytest.param(*pair, marks=[] if pair in usual else SLOW) for pair in every]


@functools.cache
def build_model(name: str) -> vf.AbstractModel:
    return MODELS[name]()


@functools.cache
def build_inference(name: str, model_name: str) -> vf.AbstractInference:
    model = build_model(model_name)
    small = {"hidden_size": 6, "num_layers": 1, "key": KEY}
    match name:
        case "prior":
            return vf.Prior()
        case "baseline":
            return worlds.baseline(model)
        case "avf":
            return vf.Iterative(model, num_iterations=2, **small)
        case "avf-errors":
            signal = PrecisionWeightedErrors()
            return vf.Iterative(model, signal=signal, encode_observation=True, **small)
        case "exact":
            return Exact()
        case "gradient-descent":
            return vf.GradientDescent(num_iterations=3, num_samples=2)
        case "generic":
            return vf.Amortized(MLPPosterior(model, **small))
        case "recurrent":
            return vf.Recurrent(LSTMPosterior(model, hidden_size=6, key=KEY))
        case "residual":
            network = SRNNResidualPosterior(model, trunk_size=5, hidden_size=6, key=KEY)
            return vf.Amortized(network)
        case "learned-step":
            return vf.Iterative(model, update=MeanNormalized.of(LearnedStep), **small)
    raise ValueError(name)


def names(results) -> list[str]:
    return [result.check for result in results]
