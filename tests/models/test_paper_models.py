"""VRNN, SRNN and SVG are the published ones: their sizes, and who sees what."""

import dataclasses
import inspect
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
import worlds
from varfilter.experiments import SRNNSizes, SVGSizes, VRNNSizes, published_model
from varfilter.experiments.paper import NETWORK
from varfilter.inference import SRNNPosterior, SRNNResidualPosterior, SVGPosterior, VRNNPosterior
from varfilter.observation import observe
from worlds import KEY

# Counting by hand, from the published tables.


def dense(*sizes):
    """Layers with a bias each."""
    return sum((a + 1) * b for a, b in itertools.pairwise(sizes))


def lstm(in_size, hidden):
    """Two weights, two biases, and the learned initial state."""
    return 4 * hidden * (in_size + hidden + 2) + 2 * hidden


def normal(in_size, size):
    """A mean and a log-variance."""
    return 2 * dense(in_size, size)


def convolution(in_size, size, kernel):
    """A kernel and a bias, and a scale and a shift of its normalisation.

    Group normalisation has as many of these as batch normalisation: one pair a channel.
    """
    return in_size * size * kernel**2 + size + 2 * size


def highway_network(in_size, latent, num_layers):
    """The trunk of 1,024 units and four heads."""
    later = (num_layers - 1) * 2 * dense(1024, 1024)
    return 3 * dense(in_size, 1024) + later + 4 * dense(1024, latent)


VGG_ENCODER = (
    convolution(1, 64, 3) + convolution(64, 64, 3)
    + convolution(64, 128, 3) + convolution(128, 128, 3)
    + convolution(128, 256, 3) + 2 * convolution(256, 256, 3)
    + convolution(256, 512, 3) + 2 * convolution(512, 512, 3)
    + convolution(512, 128, 4)
)  # fmt: skip
VGG_DECODER = (
    convolution(128, 512, 4)
    + convolution(1024, 512, 3) + convolution(512, 512, 3) + convolution(512, 256, 3)
    + convolution(512, 256, 3) + convolution(256, 256, 3) + convolution(256, 128, 3)
    + convolution(256, 128, 3) + convolution(128, 64, 3)
    + convolution(128, 64, 3) + 64 * 2 * 9 + 2
)  # fmt: skip

# Each preset's generative parts, the baseline's posterior and AVF's network: counted by hand,
# and the millions that the paper's sizes come to.
COUNTS = {
    "vrnn-timit": {
        "generative": (
            dense(200, *[600] * 4) + dense(200, *[500] * 4)
            + dense(2000, *[500] * 4) + normal(500, 200)
            + dense(2500, *[600] * 4) + normal(600, 200) + lstm(1100, 2000),
            31.65,
        ),
        "baseline": (dense(2600, *[500] * 4) + normal(500, 200), 2.25),
        "avf": (highway_network(800, 200, 2), 5.38),
    },
    "srnn-timit": {
        "generative": (
            lstm(200, 1024) + dense(1280, 512, 512) + normal(512, 256)
            + dense(1280, 512, 512) + normal(512, 200)
            # z_0 is a parameter in the original too, but one that nothing trains; here θ has it.
            + 256,
            7.33,
        ),
        "baseline": (dense(1224, 512, 512) + normal(512, 256), 1.15),
        "avf": (highway_network(1024, 256, 2), 6.30),
        "avf with x": (highway_network(1224, 256, 2), 6.91),
    },
    "srnn-music": {
        "generative": (
            lstm(88, 300) + dense(400, 500) + normal(500, 100) + dense(400, 500, 500, 88)
            + 100,  # z_0, as above
            1.26,
        ),
        "baseline": (dense(388, 500) + normal(500, 100), 0.29),
        "avf": (highway_network(400, 100, 2), 3.74),
    },
    "svg-kth": {
        "encoder": (VGG_ENCODER, 8.69),
        "decoder": (VGG_DECODER, 11.82),
        "prior": (lstm(128, 256) + normal(256, 512), 0.66),
        "predictor": (lstm(640, 256) + lstm(256, 256) + dense(256, 128), 1.48),
        "baseline": (lstm(128, 256) + normal(256, 512), 0.66),
        "avf": (highway_network(2048, 512, 1), 8.39),
    },
}  # fmt: skip


def parts(preset):
    """The modules of a preset, as shapes: nothing is computed."""

    def shapes(build, *arguments, **options):
        return eqx.filter_eval_shape(build, *arguments, key=KEY, **options)

    model = shapes(published_model, preset)
    network = dataclasses.replace(NETWORK, num_layers=1) if preset == "svg-kth" else NETWORK
    built = {"avf": shapes(network.build, model)}
    match preset:
        case "vrnn-timit":
            built |= {"generative": model, "baseline": shapes(VRNNPosterior, model)}
        case "srnn-timit":
            built |= {
                "generative": model,
                "baseline": shapes(SRNNPosterior, model, hidden_size=512, num_layers=2),
                "avf with x": shapes(
                    dataclasses.replace(NETWORK, encode_observation=True).build, model
                ),
            }
        case "srnn-music":
            built |= {"generative": model, "baseline": shapes(SRNNPosterior, model)}
        case "svg-kth":
            built |= {
                "encoder": model.encoder,
                "decoder": model.decoder,
                "prior": (model.prior_lstm, model.prior_head),
                "predictor": (model.predictor, model.predictor_out),
                "baseline": shapes(SVGPosterior, model),
            }
    return built


@pytest.mark.parametrize("preset", COUNTS)
def test_parameter_counts_are_those_published(preset):
    built = parts(preset)
    for name, (by_hand, millions) in COUNTS[preset].items():
        leaves = jax.tree.leaves(eqx.filter(built[name], lambda leaf: hasattr(leaf, "dtype")))
        count = sum(leaf.size for leaf in leaves)
        assert count == by_hand, name
        assert round(count / 1e6, 2) == pytest.approx(millions, abs=0.0101), name
    assert set(built) == set(COUNTS[preset])


@pytest.mark.parametrize(
    ("preset", "shape", "latent_size"),
    [
        ("vrnn-timit", (200,), 200),
        ("vrnn-blizzard", (200,), 200),
        ("vrnn-handwriting", (3,), 50),
        ("srnn-timit", (200,), 256),
        ("srnn-music", (88,), 100),
        ("svg-kth", (1, 64, 64), 512),
        ("svg-bair", (3, 64, 64), 64),
        ("svg-digits", (1, 64, 64), 10),
    ],
)
def test_every_preset_has_its_observations_and_latents(preset, shape, latent_size):
    model = eqx.filter_eval_shape(published_model, preset, KEY)

    @eqx.filter_eval_shape
    def first_step():
        built = published_model(preset, KEY)
        state = built.init(jnp.zeros(shape))
        prior = built.prior(state)
        return prior, built.emission(state, prior.mean)

    prior, emission = first_step
    assert isinstance(model, vf.AbstractModel)
    assert prior.shape == (latent_size,)
    assert emission.shape == shape


@pytest.mark.parametrize(
    ("model", "sizes"), [(vf.VRNN, VRNNSizes), (vf.SRNN, SRNNSizes), (vf.SVG, SVGSizes)]
)
def test_a_model_without_sizes_has_those_of_the_paper(model, sizes):
    defaults = {name: p.default for name, p in inspect.signature(model).parameters.items()}
    fields = dataclasses.fields(sizes)
    shared = [f for f in fields if f.name in defaults and f.name.endswith(("_size", "_layers"))]
    assert len(shared) >= 3
    for field in shared:
        assert defaults[field.name] == field.default, field.name


# Who sees what.


def problem(model):
    """(prior, state, observation) of the second step of a sequence."""
    xs = worlds.observations(model, 2)
    state = model.init(None)
    first = observe(model, state, jnp.asarray(xs[0]))
    state = model.advance(state, model.prior(state).mean, first.features)
    return model.prior(state), state, observe(model, state, jnp.asarray(xs[1]))


def test_the_baseline_of_srnn_sees_neither_the_last_latent_nor_the_prior():
    model = worlds.srnn()
    prior, state, observation = problem(model)
    other_prior = vf.Normal(prior.mean + 1.0, prior.log_var)
    other_state = eqx.tree_at(lambda s: s.z, state, state.z + 1.0)
    plain = SRNNPosterior(model, hidden_size=6, key=KEY)
    want = plain(prior, state, observation)
    worlds.assert_same_bits(plain(other_prior, other_state, observation), want)
    # The original's sees both: its mean is the prior's, and a correction.
    residual = SRNNResidualPosterior(model, trunk_size=5, hidden_size=6, key=KEY)
    got = residual(prior, state, observation)
    moved = residual(other_prior, state, observation)
    np.testing.assert_allclose(moved.mean - got.mean, 1.0, atol=1e-6)
    assert np.abs(residual(prior, other_state, observation).mean - got.mean).max() > 1e-3


@pytest.mark.parametrize(
    "build",
    [worlds.vrnn, pytest.param(worlds.svg, marks=pytest.mark.slow)],
    ids=["vrnn", "svg"],
)
def test_the_models_features_learn_to_serve_the_posterior(build):
    """End to end, the reconstruction reaches the features through q: the original cut it off."""
    model = build()
    network = worlds.baseline(model).network
    x = jnp.asarray(worlds.observations(model, 1)[0])
    state = model.init(None)

    def fit(model):
        observation = observe(model, state, x)
        arguments = (model.prior(state), state, observation)
        q = (
            network(*arguments)
            if isinstance(model, vf.VRNN)
            else network(network.init(), *arguments)[1]
        )
        return vf.free_energy(q, build(), state, x, KEY).reconstruction

    gradient = eqx.filter_jit(eqx.filter_grad(fit))(model)
    features = gradient.data_features if isinstance(model, vf.VRNN) else gradient.encoder
    assert np.linalg.norm(worlds.vector(features)) > 1e-6


def test_a_posterior_of_another_model_is_refused():
    with pytest.raises(TypeError, match=r"must be a `VRNN`.*got `SRNN`.*`MLPPosterior"):
        VRNNPosterior(worlds.srnn(), key=KEY)


@pytest.mark.parametrize("build", [worlds.vrnn, worlds.srnn, worlds.svg, worlds.deep_markov])
def test_log_variances_stay_in_their_range_under_any_input(build):
    model = build()
    inference = worlds.baseline(model)
    shape = worlds.observations(model, 1)[0].shape
    for size in (0.0, 1.0, 1e6, -1e30):
        filter = vf.VariationalFilter(inference)
        xs = jnp.full((3, *shape), size)
        _, filtered = vf.run(filter, model, xs, KEY)
        for distribution in (filtered.prior, filtered.posterior):
            assert np.isfinite(distribution.log_var).all()
            assert distribution.log_var.min() >= -15
            assert distribution.log_var.max() <= 5


def test_skips_carry_the_last_frame_and_can_be_zeroed():
    frame = jax.random.uniform(KEY, (1, 8, 8))
    with_skips, without = worlds.svg(), worlds.svg(use_skips=False)
    worlds.assert_same_bits(with_skips, without)  # the same weights
    state, blind = with_skips.init(frame), without.init(frame)
    assert blind.skips is None
    z = jnp.zeros((3,))
    zeroed = eqx.tree_at(lambda s: s.skips, state, jax.tree.map(jnp.zeros_like, state.skips))
    got = with_skips.emission(zeroed, z).mean
    np.testing.assert_allclose(got, without.emission(blind, z).mean, rtol=1e-6)
    assert np.abs(with_skips.emission(state, z).mean - got).max() > 1e-4
