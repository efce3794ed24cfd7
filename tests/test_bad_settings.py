"""Settings that make no sense are refused where they are given, and learners refuse bad batches."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
from refusals import refuses
from varfilter import LinearGaussian, VariationalFilter
from varfilter.distributions import PaperDiscretizedNormal
from varfilter.inference import (
    Gradients,
    Highway,
    LayerNorm,
    LearnedStep,
    LSTMPosterior,
    MeanNormalized,
    MLPPosterior,
    PrecisionWeightedErrors,
)
from worlds import KEY, assert_same_bits, deep_markov, linear_gaussian_parameters, observations

pytestmark = pytest.mark.usefixtures("as_users_run_it")

PARAMETERS = linear_gaussian_parameters(latent=2, size=3)
FILTER = VariationalFilter(vf.Prior())
ADAM = optax.adam(1e-3)
TIME_PARALLEL = vf.TimeParallel(theta=ADAM, phi=ADAM)
END_TO_END = vf.EndToEnd(theta=ADAM, phi=ADAM)


# Built when a test asks for one, and not by each worker that imports this file.
@functools.cache
def linear():
    return LinearGaussian(**PARAMETERS)


@functools.cache
def nonlinear():
    return deep_markov(size=3, latent=2)


@functools.cache
def data():
    return observations(linear(), 4)


def iterative(model=None, key=KEY, **options):
    model = nonlinear() if model is None else model
    return vf.Iterative(model, hidden_size=options.pop("hidden_size", 4), key=key, **options)


def mlp(model):
    return vf.Amortized(MLPPosterior(model, hidden_size=4, key=KEY))


def linear_gaussian(**changes):
    return LinearGaussian(**(PARAMETERS | changes))


def discretized(kind=vf.DiscretizedNormal, mean=(0.0, 0.0), log_var=(0.0, 0.0), **options):
    return kind(jnp.array(mean), jnp.array(log_var), **options)


def update(xs=None, learner=TIME_PARALLEL, learning=None, key=KEY, **options):
    learning = learner.init(linear(), FILTER) if learning is None else learning
    return learner.update(
        learning, np.stack([data(), data()]) if xs is None else xs, key, **options
    )


CONSTRUCTORS = {
    "K = 0": (lambda: iterative(num_iterations=0), ValueError, "`num_iterations`", "0"),
    "K = 1.5": (lambda: iterative(num_iterations=1.5), ValueError, "`num_iterations`", "1.5"),
    "K = True": (lambda: iterative(num_iterations=True), ValueError, "`num_iterations`", "True"),
    "K = '2'": (lambda: iterative(num_iterations="2"), ValueError, "`num_iterations`", "'2'"),
    "K = 0 later": (
        lambda: iterative().with_num_iterations(0), ValueError, "`num_iterations`", "0",
    ),
    "S = 0": (lambda: iterative(num_samples=0), ValueError, "`num_samples`", "0"),
    "no units": (lambda: iterative(hidden_size=0), ValueError, "`hidden_size`", "0"),
    "no layers": (lambda: iterative(num_layers=0), ValueError, "`num_layers`", "0"),
    "seed": (lambda: iterative(key=3), TypeError, "`key`", "`3`"),
    "network of no model": (lambda: iterative(3), TypeError, "`model`", "`3`"),
    "built update": (
        lambda: iterative(update=Highway(4, 4, key=KEY)), TypeError, "`update`", "a class",
    ),
    "update by name": (lambda: iterative(update="highway"), TypeError, "`update`", "'highway'"),
    "class for signal": (lambda: iterative(signal=Gradients), TypeError, "`signal`", "class"),
    "class for normalize": (
        lambda: iterative(normalize=LayerNorm), TypeError, "`normalize`", "class",
    ),
    "LearnedStep on errors": (
        lambda: iterative(update=LearnedStep, signal=PrecisionWeightedErrors()),
        ValueError, "`update`", "`signal`", "`PrecisionWeightedErrors`", "`update=Shift`",
    ),
    "normalized LearnedStep on errors": (
        lambda: iterative(
            update=MeanNormalized.of(LearnedStep), signal=PrecisionWeightedErrors()
        ),
        ValueError, "`signal=Gradients()`",
    ),
    "descent, K = 0": (
        lambda: vf.GradientDescent(num_iterations=0), ValueError, "`num_iterations`", "0",
    ),
    "descent, S = 0": (lambda: vf.GradientDescent(num_samples=0), ValueError, "`num_samples`"),
    "learning rate for optimizer": (
        lambda: vf.GradientDescent(0.1), TypeError, "`optimizer`", "optax", "`0.1`",
    ),
    "number for network": (lambda: vf.Amortized(3), TypeError, "`network`", "`3`"),
    "network without memory": (
        lambda: vf.Recurrent(lambda *inputs: None), TypeError, "`network`", "`init()`",
    ),
    "perceptron without units": (
        lambda: MLPPosterior(linear(), hidden_size=0, key=KEY), ValueError, "`hidden_size`",
    ),
    "perceptron from a seed": (lambda: MLPPosterior(linear(), key=1), TypeError, "`key`"),
    "LSTM without units": (
        lambda: LSTMPosterior(linear(), hidden_size=0, key=KEY), ValueError, "`hidden_size`",
    ),
    "model for inference": (
        lambda: VariationalFilter(linear()), TypeError, "`inference`", "`LinearGaussian`",
    ),
    "class for inference": (
        lambda: vf.ParticleFilter(vf.Prior), TypeError, "`inference`", "the class `Prior`",
    ),
    "no samples": (
        lambda: VariationalFilter(vf.Prior(), num_samples=0), ValueError, "`num_samples`", "0",
    ),
    "no particles": (lambda: vf.ParticleFilter(vf.Prior(), 0), ValueError, "`num_particles`", "0"),
    **{
        f"resample below {value!r}": (
            lambda value=value: vf.ParticleFilter(vf.Prior(), 5, resample_below=value),
            ValueError, "`resample_below`", "[0, 1]", repr(value), "`num_particles`",
        )
        for value in (-0.1, 1.5, float("nan"), "half")
    },
    "latent of size 0": (lambda: vf.DeepMarkov(3, 0, key=KEY), ValueError, "`latent_size`", "0"),
    "nothing observed": (lambda: vf.DeepMarkov(0, 2, key=KEY), ValueError, "`observation_shape`"),
    "no piano": (lambda: vf.SRNN(0, key=KEY), ValueError, "`observation_shape`", "0"),
    "piano from a seed": (lambda: vf.SRNN(key=0), TypeError, "`key`", "`0`"),
    "transition not square": (
        lambda: linear_gaussian(transition=np.ones((2, 3))),
        ValueError, "`transition`", "(2, 2)", "(2, 3)",
    ),
    "scalar transition": (lambda: linear_gaussian(transition=0.9), ValueError, "`transition`"),
    "empty transition": (
        lambda: linear_gaussian(transition=np.zeros((0, 0))), ValueError, "`transition`", "(0, 0)",
    ),
    "loading of another latent": (
        lambda: linear_gaussian(loading=np.eye(3)), ValueError, "`loading`", "(any, 2)", "(3, 3)",
    ),
    "variances for covariance": (
        lambda: linear_gaussian(process_covariance=np.ones(2)),
        ValueError, "`process_covariance`", "(2, 2)", "(2,)",
    ),
    "bias of another size": (
        lambda: linear_gaussian(loading_bias=np.zeros(2)), ValueError, "`loading_bias`", "(3,)",
    ),
    "negative covariance": (
        lambda: linear_gaussian(noise_covariance=-np.eye(3)),
        ValueError, "`noise_covariance`", "positive definite", "-1",
    ),
    "singular covariance": (
        lambda: linear_gaussian(initial_covariance=np.ones((2, 2))),
        ValueError, "`initial_covariance`", "positive definite", "identity",
    ),
    "asymmetric covariance": (
        lambda: linear_gaussian(process_covariance=[[1.0, 0.2], [0.0, 1.0]]),
        ValueError, "`process_covariance`", "symmetric", "0.2", "(S + S.T) / 2",
    ),
    "NaN parameters": (
        lambda: linear_gaussian(transition=np.full((2, 2), np.nan)),
        ValueError, "`transition` holds NaN",
    ),
    "infinite parameters": (
        lambda: linear_gaussian(loading=np.full((3, 2), np.inf)),
        ValueError, "`loading` holds infinities",
    ),
    "parameters in words": (
        lambda: linear_gaussian(transition="a"), TypeError, "`transition`", "real numbers",
    ),
    **{
        f"{kind.__name__} of width {width}": (
            lambda kind=kind, width=width: discretized(kind, width=width),
            ValueError, "`width`", "positive", repr(width), "1 / 255",
        )
        for kind in (vf.DiscretizedNormal, PaperDiscretizedNormal)
        for width in (0.0, -1.0, float("nan"), float("inf"))
    },
    "levels upside down": (
        lambda: discretized(width=0.1, low=1.0, high=0.0), ValueError, "`low`", "`high`", "1.0",
    ),
    "one log-variance for two": (
        lambda: vf.Normal(jnp.zeros(2), jnp.zeros(())),
        ValueError, "`log_var`", "(2,)", "()", "jnp.full_like",
    ),
    "factor of another size": (
        lambda: vf.Gaussian(jnp.zeros(2), jnp.eye(3)), ValueError, "`factor`", "(2, 2)", "(3, 3)",
    ),
    "complex mean": (lambda: vf.Normal(1j, 0.0), TypeError, "real", "complex64"),
}  # fmt: skip

LEARNERS = {
    "learning rate for optimizer": (
        lambda: vf.TimeParallel(theta=0.1, phi=None), TypeError, "`theta`", "optax", "`0.1`",
    ),
    "optimizer by name": (
        lambda: vf.EndToEnd(theta=None, phi="adam"), TypeError, "`phi`", "optax", "'adam'",
    ),
    "no steps of phi": (
        lambda: vf.TimeParallel(theta=None, phi=None, num_phi_steps=0),
        ValueError, "`num_phi_steps`", "0",
    ),
    "amortized in parallel": (
        lambda: TIME_PARALLEL.init(nonlinear(), VariationalFilter(mlp(nonlinear()))),
        TypeError, "`TimeParallel`", "`VariationalFilter(Amortized)`", "`EndToEnd(...)`",
    ),
    "particles in parallel": (
        lambda: TIME_PARALLEL.init(nonlinear(), vf.ParticleFilter(vf.Prior(), 5)),
        TypeError, "`ParticleFilter(Prior)`", "`EndToEnd(...)`",
    ),
    "Kalman in parallel": (
        lambda: TIME_PARALLEL.init(linear(), vf.KalmanFilter()), TypeError, "`KalmanFilter`",
    ),
    "inference for filter": (
        lambda: END_TO_END.init(linear(), vf.Prior()), TypeError, "`filter`", "`Prior`",
    ),
    "model and filter swapped": (
        lambda: TIME_PARALLEL.init(FILTER, linear()), TypeError, "`filter`", "`LinearGaussian`",
    ),
    "another learner's state": (
        lambda: update(learning=END_TO_END.init(nonlinear(), VariationalFilter(mlp(nonlinear())))),
        TypeError, "`TimeParallel`", "`VariationalFilter(Amortized)`",
    ),
    "another optimizer's state": (
        lambda: update(
            learning=vf.TimeParallel(theta=optax.sgd(0.1), phi=None).init(linear(), FILTER)
        ),
        ValueError, "`state`", "another optimizer",
    ),
    "no state": (lambda: update(learning=3), TypeError, "`state`", "`init`", "`3`"),
    "one sequence": (lambda: update(data()), ValueError, "`xs`", "(batch, time, 3)", "`xs[None]`"),
    "too few elements": (
        lambda: update(data()[None, :, :2]), ValueError, "`xs`", "(batch, time, 3)", "(1, 4, 2)",
    ),
    "no sequences": (lambda: update(np.zeros((0, 4, 3))), ValueError, "`xs`", "(0, 4, 3)"),
    "no steps": (lambda: update(np.zeros((2, 0, 3))), ValueError, "`xs`", "(2, 0, 3)"),
    "infinities": (lambda: update(np.full((2, 4, 3), -np.inf)), ValueError, "`xs`", "infinities"),
    "ragged": (lambda: update([data(), data()[:2]]), TypeError, "`xs`", "length", "`mask`"),
    "words": (lambda: update("abc"), TypeError, "`xs`", "real numbers"),
    "mask of one sequence": (
        lambda: update(mask=[True] * 4), ValueError, "`mask`", "(2, 4)", "bool[4]",
    ),
    "mask of floats": (lambda: update(mask=np.ones((2, 4))), ValueError, "`mask`", "float64"),
    "one x0 for two": (lambda: update(x0=data()[0]), ValueError, "`x0`", "(2, 3)", "(3,)"),
    "seed for key": (lambda: update(key=0), TypeError, "`key`", "`0`"),
    "weight of words": (lambda: update(kl_weight="a"), TypeError, "`kl_weight`", "'a'"),
    "broken promise": (
        lambda: update(
            np.full((2, 4, 3), np.nan), vf.TimeParallel(theta=ADAM, phi=None, complete=True)
        ),
        ValueError, "`complete`", "`xs`", "NaN",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CONSTRUCTORS)
def test_constructors(case):
    refuses(*CONSTRUCTORS[case])


@pytest.mark.parametrize("case", LEARNERS)
def test_learners(case):
    refuses(*LEARNERS[case])


class TestDefinedBehaviour:
    """Settings that look wrong and have a meaning."""

    def test_learning_from_nothing_changes_nothing(self):
        before = TIME_PARALLEL.init(linear(), FILTER)
        after, metrics = update(learning=before, mask=np.zeros((2, 4), bool))
        assert_same_bits(after.model, before.model)
        assert float(metrics.free_energy) == 0.0

    def test_whole_numbers_of_numpy(self):
        assert iterative(num_iterations=np.int64(2)).num_iterations == 2

    def test_whole_parameters_become_floats(self):
        assert vf.Normal([0, 0], [1, 1]).mean.dtype == jnp.float32

    def test_traced_covariances_are_left_alone(self):
        # Inside a transformation no value can be looked at: the model must still be buildable.
        def total(variance):
            return jnp.sum(linear_gaussian(noise_covariance=variance * jnp.eye(3)).noise.variance)

        # Through a square root and back: three roundings of 6e-8.
        np.testing.assert_allclose(jax.jit(jax.grad(total))(0.5), 3.0, rtol=1e-6)

    def test_weakly_typed_parameters_are_learned_with_one_compilation(self):
        traces = []

        class Counting(vf.AbstractModel):
            """A random walk that counts how often Python runs through it."""

            log_var: jax.Array = eqx.field(default_factory=lambda: jnp.full((3,), 0.1))

            def init(self, x0=None):
                return jnp.zeros(3)

            def embed(self, x):
                return None

            def prior(self, state):
                return vf.Normal(state, self.log_var)

            def emission(self, state, z):
                traces.append(1)
                return vf.Normal(z, self.log_var)

            def advance(self, state, z, features):
                return z

        learning, _ = update(learning=TIME_PARALLEL.init(Counting(), FILTER))
        counted = len(traces)
        for _ in range(3):
            learning, _ = update(learning=learning)
        assert len(traces) == counted
        assert int(learning.num_updates) == 4
