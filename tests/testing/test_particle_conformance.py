"""The particle filter keeps its contract with every inference as its proposal on every model."""

import pytest

import varfilter as vf
from catalog import KEY, build_inference, build_model, names, pairs
from varfilter.testing import check_filter


# A model around another, which is told errors; `test_conformance.py` has exact proposals.
@pytest.mark.parametrize(("model", "inference"), pairs({("differenced", "avf-errors")}))
def test_particle_filters_conform(model, inference):
    filter = vf.ParticleFilter(build_inference(inference, model), 4)
    assert "missing-all-bound" in names(check_filter(filter, build_model(model), KEY))
