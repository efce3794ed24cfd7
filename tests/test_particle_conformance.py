"""The particle filter keeps its contract with every inference as its proposal on every model."""

import pytest

import varfilter as vf
from catalog import KEY, PAIRS, build_inference, build_model, names
from varfilter.testing import check_filter


@pytest.mark.parametrize(("model", "inference"), PAIRS)
def test_particle_filters_conform(model, inference):
    filter = vf.ParticleFilter(build_inference(inference, model), 4)
    assert "missing-all-bound" in names(check_filter(filter, build_model(model), KEY))
