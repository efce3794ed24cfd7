"""Every model and every inference on it keeps its contract."""

import pytest

import varfilter as vf
import worlds
from catalog import (
    EACH_ONCE,
    EXACT,
    FILTERS,
    INFERENCES,
    KEY,
    MODELS,
    SLOW,
    VARIANTS,
    build_inference,
    build_model,
    classes,
    names,
    pairs,
)
from varfilter.inference import Exact
from varfilter.models import BernoulliHead
from varfilter.testing import check_filter, check_inference, check_model


def bernoulli_deep_markov() -> vf.DeepMarkov:
    return vf.DeepMarkov(4, 3, hidden_size=6, num_layers=1, head=BernoulliHead, key=KEY)


# Half a minute of compiling each.
FILMS = (worlds.svg, worlds.settled)


def svg_without_skips() -> vf.SVG:
    return worlds.svg(use_skips=False)


@pytest.mark.parametrize(
    "build",
    [
        *(pytest.param(m, marks=SLOW if m in FILMS else ()) for m in MODELS.values()),
        bernoulli_deep_markov,
        pytest.param(worlds.svg_bernoulli, marks=SLOW),
        pytest.param(svg_without_skips, marks=SLOW),
        pytest.param(worlds.svg_of_changes, marks=SLOW),
        pytest.param(worlds.svg_of_stays, marks=SLOW),
    ],
    ids=lambda build: build.__name__,
)
def test_models_conform(build):
    results = check_model(build(), KEY)
    assert {"contract", "deterministic", "jit", "vmap", "missing-all", "gradient-z"} <= set(
        names(results)
    )
    # The elements of an observation are independent in all of these, but for the full covariance
    # and for samples that go on from each other.
    depend = (worlds.linear_gaussian, worlds.continued)
    assert ("missing-drops" in names(results)) == (build not in depend)


@pytest.mark.parametrize(("model", "inference"), pairs(EACH_ONCE))
def test_inferences_conform(model, inference):
    results = check_inference(build_inference(inference, model), build_model(model), KEY)
    assert ("gradient-phi" in names(results)) == (inference not in ("prior", "gradient-descent"))
    assert ("revise" in names(results)) == (inference in ("avf", "avf-errors", "learned-step"))


def test_every_class_has_an_example():
    """A model, inference or filter that is added to the library is checked, or this fails."""
    models = {type(build_model(name)) for name in MODELS}
    inferences = {type(build_inference(name, "srnn")) for name in (*INFERENCES, *VARIANTS, *EXACT)}
    filters = {type(build(vf.Prior())) for build in FILTERS.values()}
    assert models == classes(vf.AbstractModel)
    assert inferences == classes(vf.AbstractInference)
    assert filters == classes(vf.AbstractFilter)


@pytest.mark.parametrize(
    "filter",
    [
        pytest.param(vf.KalmanFilter(), id="kalman"),
        pytest.param(vf.VariationalFilter(Exact()), id="exact", marks=SLOW),
        # Particles by default with a proposal that learns (`test_particle_conformance.py`).
        pytest.param(vf.ParticleFilter(Exact(), 4), id="optimal-particles", marks=SLOW),
    ],
)
def test_exact_filters_conform(filter):
    check_filter(filter, build_model("linear-gaussian"), KEY)
