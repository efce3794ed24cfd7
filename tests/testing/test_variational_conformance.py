"""The variational filter keeps its contract with every inference on every model."""

import pytest

import varfilter as vf
from catalog import KEY, build_inference, build_model, names, pairs
from varfilter.testing import check_filter


# `filters/test_inputs.py` has another model by default, with known inputs.
@pytest.mark.parametrize(("model", "inference"), pairs({("linear-dynamics", "avf")}))
def test_variational_filters_conform(model, inference):
    filter = vf.VariationalFilter(build_inference(inference, model))
    assert "missing-all-posterior" in names(check_filter(filter, build_model(model), KEY))
