"""Every filter, inference and model keeps its contract."""

import functools

import jax
import pytest

import varfilter as vf
from varfilter.models import BernoulliHead
from varfilter.testing import check_filter, check_inference, check_model

KEY = jax.random.key(11)
MODELS = ("linear-gaussian", "deep-markov", "deep-markov-bernoulli", "srnn")
# Filters are checked on three of them: the Bernoulli head is also the SRNN's.
FILTERED = ("linear-gaussian", "deep-markov", "srnn")
INFERENCES = (
    "prior", "amortized", "recurrent", "highway", "errors", "learned-step", "gradient-descent",
)  # fmt: skip


@functools.cache
def build_model(name: str) -> vf.AbstractModel:
    if name == "linear-gaussian":
        return vf.LinearGaussian(
            transition=[[0.9, 0.1, 0.0], [-0.1, 0.8, 0.2], [0.0, 0.3, 0.5]],
            process_covariance=[[0.5, 0.1, 0.0], [0.1, 0.4, 0.1], [0.0, 0.1, 0.6]],
            loading=[[1.0, 0.5, -0.3], [0.2, -1.0, 0.7]],
            noise_covariance=[[0.4, 0.1], [0.1, 0.3]],
        )
    if name == "srnn":
        return vf.SRNN(
            4, 3, recurrent_size=5, prior_size=6, decoder_size=6, num_decoder_layers=1, key=KEY
        )
    options = {"head": BernoulliHead} if name == "deep-markov-bernoulli" else {}
    return vf.DeepMarkov(4, 3, hidden_size=6, num_layers=1, key=KEY, **options)


@functools.cache
def build_inference(name: str, model_name: str) -> vf.AbstractInference:
    model = build_model(model_name)
    small = {"hidden_size": 6, "num_layers": 1, "key": KEY}
    if name == "prior":
        return vf.Prior()
    if name == "amortized":
        return vf.Amortized(vf.MLPPosterior(model, **small))
    if name == "recurrent":
        return vf.Recurrent(vf.LSTMPosterior(model, hidden_size=6, key=KEY))
    if name == "highway":
        return vf.Iterative(model, num_iterations=2, **small)
    if name == "errors":
        signal = vf.PrecisionWeightedErrors()
        return vf.Iterative(model, signal=signal, encode_observation=True, **small)
    if name == "learned-step":
        return vf.Iterative(model, update=vf.MeanNormalized.of(vf.LearnedStep), **small)
    return vf.GradientDescent(num_iterations=3, num_samples=2)


def names(results) -> list[str]:
    return [result.check for result in results]


@pytest.mark.parametrize("model", MODELS)
def test_models_conform(model):
    results = check_model(build_model(model), KEY)
    assert {"contract", "deterministic", "jit", "vmap", "missing-all", "gradient-z"} <= set(
        names(results)
    )
    # The elements of an observation are independent in all of these, but for the full covariance.
    assert ("missing-drops" in names(results)) == (model != "linear-gaussian")


@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("model", MODELS)
def test_inferences_conform(inference, model):
    results = check_inference(build_inference(inference, model), build_model(model), KEY)
    assert ("gradient-phi" in names(results)) == (inference not in ("prior", "gradient-descent"))
    assert ("revise" in names(results)) == (inference in ("highway", "errors", "learned-step"))


@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("model", FILTERED)
def test_variational_filters_conform(inference, model):
    filter = vf.VariationalFilter(build_inference(inference, model))
    assert "missing-all-posterior" in names(check_filter(filter, build_model(model), KEY))


@pytest.mark.parametrize("inference", INFERENCES)
@pytest.mark.parametrize("model", FILTERED)
def test_particle_filters_conform(inference, model):
    filter = vf.ParticleFilter(build_inference(inference, model), 4)
    assert "missing-all-bound" in names(check_filter(filter, build_model(model), KEY))


@pytest.mark.parametrize(
    "filter",
    [vf.KalmanFilter(), vf.VariationalFilter(vf.Exact()), vf.ParticleFilter(vf.Exact(), 4)],
    ids=["kalman", "exact", "optimal-particles"],
)
def test_exact_filters_conform(filter):
    check_filter(filter, build_model("linear-gaussian"), KEY)
