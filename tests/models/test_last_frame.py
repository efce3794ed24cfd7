"""SVG by the last frame: what it says is a proper likelihood, begins at a copy, and knows gaps."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, ndtr

import varfilter as vf
import worlds
from varfilter.experiments import EXPERIMENTS, SVGSizes, own_experiment
from varfilter.experiments.experiment import as_json, from_json
from varfilter.experiments.presets import with_preset
from varfilter.media.video import VideoSource
from varfilter.models import BernoulliChange, NormalChange
from varfilter.observation import draw_missing
from worlds import KEY

SIDE, LEVELS = 8, np.arange(256) / 255
STD, GATE = 0.01, -5.0


def frames(*shape, seed=0):
    """Frames whose pixels lie on the levels of bytes."""
    return np.random.default_rng(seed).integers(0, 256, (*shape, 1, SIDE, SIDE)) / 255


def by_hand(maps, last, *, is_known=True):
    """(mean, standard deviation) of the pixels, in numpy."""
    log_var, change, gate, new = maps
    g = expit(gate + GATE) if is_known else 1.0
    mean = (1 - g) * (last[0] + STD * change) + g * expit(new)
    variance = STD**2 * np.exp(log_var) + (0.0 if is_known else 0.3**2)
    return mean, np.sqrt(np.maximum(variance, (1 / 255 / 4) ** 2))


@pytest.mark.parametrize("is_known", [True, False])
def test_the_density_is_that_of_the_formula(is_known):
    maps = np.random.default_rng(1).normal(0, 2, (4, SIDE, SIDE))
    last = frames()
    mean, std = by_hand(maps, last, is_known=is_known)
    # All levels of all pixels, in the order of the levels: those of the edges reach to infinity.
    edges = np.concatenate([[-np.inf], LEVELS[:-1] + 0.5 / 255, [np.inf]])
    mass = np.diff(ndtr((edges[:, None, None] - mean) / std), axis=0)
    with jax.enable_x64(True):
        emission = NormalChange(std=STD)(
            jnp.asarray(maps), jnp.asarray(last), jnp.asarray(float(is_known))
        )
        xs = jnp.broadcast_to(jnp.asarray(LEVELS)[:, None, None, None], (256, 1, SIDE, SIDE))
        got = np.exp(jax.vmap(emission.log_mass)(xs))[:, 0]
    # Double precision, and a difference of two numbers of order one in the formula by hand.
    np.testing.assert_allclose(got, mass, atol=1e-12)
    np.testing.assert_allclose(got.sum(axis=0), 1.0, atol=1e-12)


def test_without_anything_to_add_it_is_the_last_frame():
    last = jnp.asarray(frames(), jnp.float32)
    emission = NormalChange(std=STD)(jnp.zeros((4, SIDE, SIDE)), last, jnp.ones(()))
    # The gate lets 1 / (1 + e^5) of grey in.
    share = expit(GATE)
    np.testing.assert_allclose(emission.mean, last + share * (0.5 - last), rtol=1e-6)
    np.testing.assert_allclose(np.exp(0.5 * emission.log_var), STD, rtol=1e-6)
    stays = BernoulliChange()(jnp.zeros((1, SIDE, SIDE)), jnp.round(last), jnp.ones(()))
    np.testing.assert_allclose(jnp.abs(stays.mean - jnp.round(last)), 1 - expit(4), rtol=1e-5)


def test_learning_starts_near_the_last_frame():
    model, x0 = worlds.svg_of_changes(), jnp.asarray(frames(), jnp.float32)
    emission = model.emission(model.init(x0), jnp.zeros(3))
    # The last layer's weights have a variance of a third over its fan-in, and what it sees is
    # normalised: a map has a variance of about a third, and the change is a map times the spread.
    # The gate is at most twice what it is at 0, of differences below 1.
    away = np.sqrt(np.mean((np.asarray(emission.mean - x0)) ** 2))
    assert away < model.head.std + 2 * expit(GATE)
    blind = worlds.svg(use_skips=False)
    other = blind.emission(blind.init(x0), jnp.zeros(3))
    assert np.sqrt(np.mean((np.asarray(other.mean - x0)) ** 2)) > 5 * away


def test_the_state_has_the_last_frame_and_its_change():
    model = worlds.svg_of_changes()
    first, second, third = jnp.asarray(frames(3), jnp.float32)
    z = jnp.zeros(3)

    def after(state, x):
        return model.advance(state, z, model.embed(x))

    begun = model.init(first)
    # Put on the levels, where they were but for a rounding of a number below 1.
    np.testing.assert_allclose(begun.last.frame, first, atol=1e-7)
    np.testing.assert_array_equal(begun.last.change, 0.0)
    went_on = after(begun, second)
    np.testing.assert_allclose(went_on.last.frame, second, atol=1e-7)
    np.testing.assert_allclose(went_on.last.change, second - first, atol=2e-7)
    # Before the first frame nothing is known, so the first change is none.
    unknown = model.init(None)
    assert unknown.last.is_known == 0.0
    once = after(unknown, second)
    np.testing.assert_array_equal(once.last.change, 0.0)
    np.testing.assert_allclose(after(once, third).last.change, third - second, atol=2e-7)
    # Nobody has seen a first frame: any is likely.
    assert np.exp(0.5 * model.emission(unknown, z).log_var).min() >= 0.3
    # What lies beyond all pixels is held at their bounds: the next prediction has it as white.
    np.testing.assert_array_equal(after(begun, jnp.full_like(first, 1e30)).last.frame, 1.0)


def test_what_changed_is_seen_and_where():
    """The same frame after another one before it: the prediction differs by the change alone."""
    model, z = worlds.svg_of_changes(), jnp.zeros(3)
    state = model.init(jnp.asarray(frames(), jnp.float32))
    moved = eqx.tree_at(
        lambda s: s.last.change, state, jnp.zeros((1, SIDE, SIDE)).at[0, 2, 2].set(1)
    )
    still, moving = (model.emission(s, z) for s in (state, moved))
    assert np.abs(moving.log_var - still.log_var).max() > 1e-4
    assert np.abs(moving.mean - still.mean).max() > 1e-4


def test_missing_pixels_are_drawn_and_then_the_last_frame():
    model = worlds.svg_of_changes()
    state = model.init(jnp.asarray(frames(seed=1), jnp.float32))
    x = jnp.asarray(frames(seed=2), jnp.float32).at[0, 3].set(jnp.nan)
    z = jnp.zeros(3)
    drawn = [draw_missing(model, state, z, x, jax.random.key(seed)) for seed in range(2)]
    lasts = [np.asarray(model.advance(state, z, each.features).last.frame) for each in drawn]
    seen = ~np.isnan(np.asarray(x))
    for last in lasts:
        # Put on the levels, where they were but for a rounding of a number below 1.
        np.testing.assert_allclose(last[seen], np.asarray(x)[seen], atol=1e-7)
        assert np.isfinite(last).all()
    assert np.abs(lasts[0] - lasts[1])[~seen].max() > 1 / 255
    # A missing pixel adds nothing: the score is that of the others.
    emission = model.emission(state, z)
    each = np.asarray(emission.log_mass(jnp.nan_to_num(x)))
    np.testing.assert_allclose(emission.log_prob(x), each[seen].sum(), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("build", [worlds.svg_of_changes, worlds.svg_of_stays])
def test_a_stream_is_a_run(build):
    model = build()
    filter = vf.VariationalFilter(vf.Iterative(model, hidden_size=6, num_layers=1, key=KEY))
    xs = jnp.asarray(worlds.with_gaps(worlds.observations(model, 6)))
    belief, together = vf.run(filter, model, xs, KEY)
    stepped, bounds = vf.start(filter, model, None, KEY), []
    for x in xs:
        stepped, filtered = vf.step(filter, model, stepped, x, KEY)
        bounds.append(filtered.bound)
    # The same sums, in another order.
    np.testing.assert_allclose(bounds, together.bound, rtol=1e-4, atol=1e-3)
    got, want = stepped.carry.state.last.frame, belief.carry.state.last.frame
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_the_papers_experiments_and_older_records_have_no_last_frame():
    for name, experiment in EXPERIMENTS.items():
        if isinstance(experiment.model, SVGSizes):
            assert not experiment.model.from_last_frame, name
            assert with_preset(experiment, "small").model.from_last_frame
    own = own_experiment(VideoSource("somewhere"))
    record = as_json(own)
    assert record["model"].pop("from_last_frame") is True
    older = from_json(record, "video")
    assert older == dataclasses.replace(
        own, model=dataclasses.replace(own.model, from_last_frame=False)
    )
