"""A model of frames that goes on from its own: told all but how these differ from each other."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import worlds
from varfilter.models import Ensemble, Settled, settled
from varfilter.simulation import generate
from worlds import KEY


def test_of_the_past_only_the_last_change_is_left_out():
    model = worlds.svg_of_changes()
    calm = Settled(model)
    x0, x = jax.random.uniform(KEY, (2, *model.image_shape))
    state = calm.init(x0)
    z = jnp.ones(model.latent_size)
    own, after = (each.advance(state, z, each.embed(x)) for each in (model, calm))
    assert np.abs(own.last.change).max() > 0.1
    assert not np.asarray(after.last.change).any()
    same = eqx.tree_at(lambda s: s.last.change, own, after.last.change)
    assert eqx.tree_equal(same, after)
    # What was seen before is told whole: the next frame is as the model expects it.
    for each in (model, calm):
        assert eqx.tree_equal(each.emission(own, z).mean, model.emission(own, z).mean)


def test_futures_begin_as_the_model_s_own_and_go_on_without_its_changes():
    model = worlds.svg_of_changes()
    x0 = jax.random.uniform(KEY, model.image_shape)
    mean = lambda emission: emission.mean  # noqa: E731
    own, calm = (generate(each, 3, KEY, x0=x0, observe=mean)[0] for each in (model, settled(model)))
    # In one program and in another, which round differently.
    np.testing.assert_allclose(own[0], calm[0], atol=1e-6)
    assert np.abs(own[2] - calm[2]).max() > 1e-5


def test_what_is_told_no_changes_stays_as_it_is():
    for model in (worlds.deep_markov(), worlds.svg(), worlds.widened()):
        assert settled(model) is model
        with pytest.raises(TypeError, match="must be an `SVG` whose head is told the last frame"):
            Settled(model)


def test_of_an_ensemble_each_member_is_settled():
    model = Ensemble([worlds.svg_of_changes()] * 2)
    calm = settled(model)
    assert isinstance(calm.members, Settled)
    assert eqx.tree_equal(calm.member(1).model, model.member(1))
    plain = worlds.ensemble()
    assert eqx.tree_equal(settled(plain), plain)
