"""The head of every family: a row of them all, and models of it under every kind of filter."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
from catalog import names
from varfilter.data import Family
from varfilter.data.dataset import Transform
from varfilter.distributions import (
    Bernoulli,
    Categorical,
    DiscretizedNormal,
    NegativeBinomial,
    Normal,
    Rectified,
    StudentT,
    ZeroInflated,
)
from varfilter.experiments.models import Observations, model_of_columns
from varfilter.inference import MLPPosterior, PrecisionWeightedErrors
from varfilter.models import ColumnHead
from varfilter.testing import check_filter, check_inference, check_model

KEY = jax.random.key(4)
MOVES = Transform(change_scale=0.5)
FAMILIES = (
    Family(Normal),
    Family(StudentT, freedom=4.0, transform=MOVES),
    Family(Rectified, low=-1.5, high=1.0),
    Family(Rectified, low=-2.0, transform=MOVES),
    Family(ZeroInflated),
    Family(NegativeBinomial, width=0.5, low=-1.0),
    Family(DiscretizedNormal, width=0.5, low=-1.5),
    Family(Bernoulli),
    *[Family(Categorical, group="state")] * 3,
    *[Family(Categorical, group="mode")] * 2,
    Family(StudentT, transform=Transform(log_scale=0.5, change_scale=0.3)),
)
SIZE = len(FAMILIES)


@functools.cache
def every_kind() -> vf.AbstractModel:
    """A small SRNN of a row with each family, some of them by their changes or logarithms."""
    head = functools.partial(ColumnHead, families=[family.model_family for family in FAMILIES])
    core = vf.SRNN(
        SIZE, 2, recurrent_size=4, prior_size=4, decoder_size=4, num_decoder_layers=1,
        head=head, key=KEY,
    )  # fmt: skip
    return model_of_columns(core, Observations("rows", (SIZE,), FAMILIES))


def test_a_row_has_each_family_in_its_place():
    head = ColumnHead(4, (SIZE,), families=FAMILIES, key=KEY)
    row = head(jnp.ones(4))
    for part, places in zip(row.parts, row.places, strict=True):
        assert {FAMILIES[i].distribution for i in places} == {type(part)}
    # Each categorical column is a part by itself.
    assert [places for part, places in zip(row.parts, row.places, strict=True)
            if isinstance(part, Categorical)] == [(8, 9, 10), (11, 12)]  # fmt: skip
    by_family = {type(part): part for part in row.parts}
    # Learning starts at the degrees of freedom that were fitted, or at the usual ones.
    np.testing.assert_allclose(by_family[StudentT].freedom, [4.0, 5.0], rtol=1e-5)
    # With a last layer of zeros a count has its mean of training: 0 in standardised units.
    nothing = head(jnp.zeros(4))
    events = next(part for part in nothing.parts if isinstance(part, NegativeBinomial))
    np.testing.assert_allclose(events.mean, 0.0, atol=1e-5)
    far = head(1e6 * jnp.ones(4))
    assert np.isfinite(far.mean).all()
    assert np.isfinite(far.variance).all()


def test_rows_of_the_older_families_take_the_numbers_they_took():
    """Numeric, counts, binary, one after another: so checkpoints of before mean what they did."""
    families = (Family(Bernoulli), Family(DiscretizedNormal, width=0.5), Family(Normal))
    head = ColumnHead(4, (3,), families=families, key=KEY)
    assert [leaf.shape for leaf in jax.tree.leaves(head)] == [(3, 4), (3,), (2, 4), (2,)]
    row, hidden = head(jnp.ones(4)), head.mean(jnp.ones(4))
    normal, count, binary = row.parts
    assert (normal.mean[0], count.mean[0], binary.logits[0]) == tuple(hidden)


@pytest.mark.slow
def test_a_model_of_every_kind_conforms():
    assert {"missing-all", "gradient-z"} <= set(names(check_model(every_kind(), KEY)))


INFERENCES = {
    "avf": lambda model: vf.Iterative(
        model, hidden_size=4, num_layers=1, signal=PrecisionWeightedErrors(),
        encode_observation=True, key=KEY,
    ),
    "mlp": lambda model: vf.Amortized(MLPPosterior(model, hidden_size=4, num_layers=1, key=KEY)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", INFERENCES)
def test_inferences_of_every_kind_conform(name):
    check_inference(INFERENCES[name](every_kind()), every_kind(), KEY)


@pytest.mark.slow
@pytest.mark.parametrize("filter", [vf.VariationalFilter, lambda i: vf.ParticleFilter(i, 4)])
def test_filters_of_every_kind_conform(filter):
    check_filter(filter(INFERENCES["avf"](every_kind())), every_kind(), KEY)
