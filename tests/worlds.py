"""Small models, data and tools that several test files share."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import varfilter as vf
from varfilter.distributions import AbstractDistribution
from varfilter.inference import MLPPosterior, SRNNPosterior, SVGPosterior, VRNNPosterior
from varfilter.models import (
    AutoregressiveHead,
    BernoulliChange,
    BernoulliImage,
    Continued,
    Ensemble,
    LinearDynamics,
    Logarithmic,
    NormalChange,
    NormalHead,
    Settled,
    VaryingNormalHead,
    Widened,
)
from varfilter.nn import DCGAN, VGG

KEY = jax.random.key(20)


def once(build):
    """Each model is built once in a process and a precision; modules cannot be changed."""

    @functools.cache
    def built(precision, *sizes, **named):
        return build(*sizes, **named)

    @functools.wraps(build)
    def call(*sizes, **named):
        return built(jnp.result_type(float), *sizes, **named)

    return call


def covariance(random: np.random.Generator, size: int) -> np.ndarray:
    """A well-conditioned full covariance with correlations of both signs."""
    root = random.normal(size=(size, size))
    return 0.3 * root @ root.T / size + 0.3 * np.eye(size)


def linear_gaussian_parameters(latent: int = 3, size: int = 2, seed: int = 0) -> dict:
    """Full covariances, biases, a loading that is not square, a rotation with radius 0.9."""
    random = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(random.normal(size=(latent, latent)))
    return {
        "transition": 0.9 * rotation,
        "process_covariance": covariance(random, latent),
        "loading": random.normal(size=(size, latent)),
        "noise_covariance": covariance(random, size),
        "initial_mean": random.normal(size=latent),
        "initial_covariance": 2.0 * covariance(random, latent),
        "transition_bias": 0.3 * random.normal(size=latent),
        "loading_bias": random.normal(size=size),
    }


@once
def linear_gaussian(latent: int = 3, size: int = 2, seed: int = 0) -> vf.LinearGaussian:
    """The model of `linear_gaussian_parameters`, in the precision in force."""
    return vf.LinearGaussian(**linear_gaussian_parameters(latent, size, seed))


@once
def driven_gaussian(latent: int = 3, size: int = 2, inputs: int = 2) -> vf.LinearGaussian:
    """The same with known inputs, which move both the latents and the observations."""
    random = np.random.default_rng(1)
    return vf.LinearGaussian(
        **linear_gaussian_parameters(latent, size),
        transition_input=random.normal(size=(latent, inputs)),
        loading_input=random.normal(size=(size, inputs)),
    )


@once
def scalar_world() -> vf.LinearGaussian:
    """A scalar model: A = 0.9, C = 1.3, Q = 0.5, R = 0.4."""
    return vf.LinearGaussian(
        transition=[[0.9]], process_covariance=[[0.5]], loading=[[1.3]], noise_covariance=[[0.4]]
    )


class PlainNormal(AbstractDistribution):
    """A unit Gaussian as a user might write it: the square of a large distance overflows."""

    mean: jax.Array

    @property
    def variance(self):
        return jnp.ones_like(self.mean)

    @property
    def shape(self):
        return self.mean.shape

    def sample(self, key):
        return self.mean + jax.random.normal(key, self.shape)

    def log_prob(self, x):
        residual = jnp.where(jnp.isnan(x), 0.0, x - self.mean)
        return -0.5 * jnp.sum(residual**2)


@once
def deep_markov(size: int = 4, latent: int = 2, inputs: int = 0) -> vf.DeepMarkov:
    """A small non-linear model with a Gaussian output."""
    return vf.DeepMarkov(
        size, latent, hidden_size=8, num_layers=1, input_size=inputs, key=jax.random.key(1)
    )


@once
def srnn(size: int = 4, latent: int = 3, inputs: int = 0) -> vf.SRNN:
    """A small model whose state depends on past observations, with a Bernoulli output."""
    return vf.SRNN(
        size, latent,
        recurrent_size=5, prior_size=6, decoder_size=6, num_decoder_layers=1, input_size=inputs,
        key=jax.random.key(2),
    )  # fmt: skip


@once
def srnn_normal(size: int = 4, latent: int = 3) -> vf.SRNN:
    """The same with a Gaussian output: what is observed, however large, enters the LSTM."""
    return vf.SRNN(
        size, latent,
        recurrent_size=5, prior_size=6, decoder_size=6, num_decoder_layers=1, head=NormalHead,
        key=jax.random.key(2),
    )  # fmt: skip


@once
def vrnn(size: int = 4, latent: int = 3, inputs: int = 0) -> vf.VRNN:
    """A small model whose recurrence sees both x and z, with a quantised Gaussian output."""
    return vf.VRNN(
        size, latent,
        recurrent_size=5, data_feature_size=6, latent_feature_size=4, prior_size=5,
        decoder_size=6, num_layers=1, input_size=inputs,
        head=functools.partial(VaryingNormalHead, width=0.01),
        key=jax.random.key(4),
    )  # fmt: skip


@once
def continued(size: int = 4, latent: int = 3, inputs: int = 0) -> Continued:
    """The same, in which each sample depends on the two before it, over the edges of steps too."""
    head = functools.partial(VaryingNormalHead, width=0.01)
    core = vf.VRNN(
        size, latent,
        recurrent_size=5, data_feature_size=6, latent_feature_size=4, prior_size=5,
        decoder_size=6, num_layers=1, input_size=inputs,
        head=functools.partial(AutoregressiveHead, order=2, head=head),
        key=jax.random.key(10),
    )  # fmt: skip
    return Continued(eqx.tree_at(lambda model: model.head, core, coloured(core.head)))


def coloured(head: AutoregressiveHead) -> AutoregressiveHead:
    """The head with a filter that depends on the hidden layer, as after some learning."""
    weight = head.reflections.weight
    random = jax.random.normal(jax.random.key(11), weight.shape, weight.dtype)
    scale = (2.0 / sum(weight.shape)) ** 0.5
    return eqx.tree_at(lambda each: each.reflections.weight, head, scale * random)


def svg(latent: int = 3, **options) -> vf.SVG:
    """A small model of 8x8 images: the coders have one stage."""
    return vf.SVG(
        1, latent,
        coder=VGG(widths=((4, 3),)), code_size=5, recurrent_size=4,
        key=jax.random.key(5), **options,
    )  # fmt: skip


def svg_bernoulli(latent: int = 3) -> vf.SVG:
    """The same with DCGAN coders and black and white pixels."""
    return vf.SVG(
        2, latent,
        coder=DCGAN(widths=(4,)), code_size=5, recurrent_size=4, head=BernoulliImage(),
        key=jax.random.key(6),
    )  # fmt: skip


def svg_of_changes(latent: int = 3) -> vf.SVG:
    """The first of them, that says what changes from the last frame."""
    return svg(latent, use_skips=False, head=NormalChange())


def svg_of_stays(latent: int = 3) -> vf.SVG:
    """The second, whose pixels stay black or white for the most part."""
    return vf.SVG(
        2, latent,
        coder=DCGAN(widths=(4,)), code_size=5, recurrent_size=4, head=BernoulliChange(),
        key=jax.random.key(6),
    )  # fmt: skip


@once
def linear_dynamics(size: int = 4, latent: int = 2) -> LinearDynamics:
    """Linear latents under a small network."""
    return LinearDynamics(size, latent, hidden_size=6, num_layers=1, key=jax.random.key(7))


@once
def differenced(size: int = 4, latent: int = 3, inputs: int = 0) -> vf.Differenced:
    """A small model of levels that move, but for the second element, which is as it is."""
    changes = vf.SRNN(
        size, latent,
        recurrent_size=5, prior_size=6, decoder_size=6, num_decoder_layers=1, head=NormalHead,
        input_size=inputs, key=jax.random.key(8),
    )  # fmt: skip
    scale = (0.3, None, *(0.1 for _ in range(size - 2)))
    return vf.Differenced(changes, scale, drift=(0.05,) * size)


@once
def logarithmic(size: int = 4, latent: int = 3, inputs: int = 0) -> Logarithmic:
    """The same, of which the first and the second element are positive."""
    scale = (0.5, 0.2, *(None for _ in range(size - 2)))
    return Logarithmic(differenced(size, latent, inputs), scale, centre=(0.3,) * size)


@once
def ensemble(num_members: int = 2) -> Ensemble:
    """Small deep Markov models that were never trained, each from its own start."""
    keys = jax.random.split(jax.random.key(9), num_members)
    sizes = {"hidden_size": 6, "num_layers": 1}
    return Ensemble([vf.DeepMarkov(3, 2, key=key, **sizes) for key in keys])


@once
def widened() -> Widened:
    """A small model whose prior is wider than it was made."""
    return Widened(deep_markov(), 1.3)


@once
def settled() -> Settled:
    """A small model of frames that goes on from its own."""
    return Settled(svg_of_changes())


def baseline(model: vf.AbstractModel, key=KEY) -> vf.AbstractInference:
    """The hand-made inference of a model, or the generic one, small."""
    small = {"hidden_size": 6, "key": key}
    match model.core:
        case vf.VRNN():
            return vf.Amortized(VRNNPosterior(model, num_layers=1, **small))
        case vf.SRNN():
            return vf.Amortized(SRNNPosterior(model, num_layers=1, **small))
        case vf.SVG():
            return vf.Recurrent(SVGPosterior(model, **small))
    return vf.Amortized(MLPPosterior(model, num_layers=1, **small))


def observations(model: vf.AbstractModel, num_steps: int, seed: int = 3) -> np.ndarray:
    """A complete sequence drawn from the model.

    The start of a longer one, so that sequences of many lengths are drawn by one program.
    """
    length = 16 * math.ceil(num_steps / 16)
    us = known_inputs(model, length, seed)
    return np.asarray(vf.generate(model, length, jax.random.key(seed), us=us)[0])[:num_steps]


def known_inputs(model: vf.AbstractModel, num_steps: int, seed: int = 3) -> np.ndarray | None:
    """Known inputs of order one, for a model that has them; those of `observations`."""
    if not model.input_size:
        return None
    random = np.random.default_rng(seed)
    return random.normal(size=(num_steps, model.input_size)).astype(jnp.result_type(float))


def with_gaps(xs: np.ndarray) -> np.ndarray:
    """`xs` (time, *event) with single elements missing and two whole steps missing in a row."""
    xs = np.array(xs)
    xs[1].flat[0] = np.nan
    xs[4].flat[-1] = np.nan
    xs[2:4] = np.nan
    return xs


def vector(tree) -> np.ndarray:
    """All float arrays of `tree` as one float64 vector."""
    # By NumPy, which compiles nothing.
    floats = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
    return np.concatenate([np.zeros(0), *(np.asarray(leaf, np.float64).ravel() for leaf in floats)])


def relative_distance(a, b) -> float:
    """|a - b| / |b| over all float arrays of two trees."""
    a, b = vector(a), vector(b)
    assert a.shape == b.shape
    assert np.linalg.norm(b) > 0
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def assert_same_bits(a, b) -> None:
    """Every array of the two trees is bitwise equal (NaN equals NaN)."""
    left, right = (jax.tree.leaves(eqx.filter(tree, eqx.is_array)) for tree in (a, b))
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def standard_error(values) -> float:
    """The standard error of the mean of independent `values`."""
    values = np.asarray(values, dtype=np.float64)
    return float(values.std(ddof=1) / np.sqrt(values.size))


def many_bounds(
    filter, model, xs, num_keys: int, *, seed: int = 7, batch_size: int = 50
) -> np.ndarray:
    """The summed bound of `xs` for each of `num_keys` independent keys.

    Not all keys at once: on a CPU, jaxlib 0.10 can wait for itself for ever when it factorises
    several large batches of small matrices at the same time.
    """
    keys = jax.random.split(jax.random.key(seed), num_keys)
    xs = jnp.asarray(xs, jnp.result_type(float))

    def one(filter, model, key):
        return jnp.sum(vf.run(filter, model, xs, key)[1].bound)

    @eqx.filter_jit
    def all_keys(filter, model):
        return jax.lax.map(lambda key: one(filter, model, key), keys, batch_size=batch_size)

    return np.asarray(all_keys(filter, model), dtype=np.float64)
