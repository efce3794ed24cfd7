"""Every wrong input is refused at the border, in words that name the argument and the fix."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
from refusals import refuses
from varfilter import LinearGaussian, VariationalFilter
from varfilter.data import RandomWindows
from varfilter.inference import Exact, LSTMPosterior, MLPPosterior
from worlds import KEY, assert_same_bits, deep_markov, linear_gaussian_parameters

pytestmark = pytest.mark.usefixtures("as_users_run_it")

# The sizes of a model of three observed elements and two latent ones, and the plainest filter.
PARAMETERS = linear_gaussian_parameters(latent=2, size=3)
FILTER = VariationalFilter(vf.Prior())
XS = np.random.default_rng(4).normal(size=(4, 3)).astype(np.float32)


# Models are built when a test asks for one, and not by each worker that imports this file.
@functools.cache
def linear():
    return LinearGaussian(**PARAMETERS)


@functools.cache
def nonlinear():
    return deep_markov(size=3, latent=2)


@functools.cache
def wider():
    return deep_markov(size=5, latent=4)


def run(xs=XS, filter=FILTER, model=None, key=KEY, **options):
    return vf.run(filter, linear() if model is None else model, xs, key, **options)


def iterative(model=None, key=KEY, **options):
    model = nonlinear() if model is None else model
    return vf.Iterative(model, hidden_size=options.pop("hidden_size", 4), key=key, **options)


def mlp(model, **options):
    return vf.Amortized(MLPPosterior(model, hidden_size=4, key=KEY, **options))


def forecast(horizon=2, belief=None, key=KEY, **options):
    belief = vf.start(FILTER, linear()) if belief is None else belief
    return vf.forecast(FILTER, linear(), belief, horizon, key, **options)


def fit(windows):
    learner = vf.EndToEnd(theta=None, phi=None)
    return vf.fit(learner, learner.init(linear(), FILTER), windows, KEY, num_updates=1)


OBSERVATIONS = {
    "too few elements": (XS[:, :2], ValueError, "`xs`", "(time, 3)", "(4, 2)", "LinearGaussian"),
    "one observation": (XS[0], ValueError, "`xs`", "(time, 3)", "(3,)"),
    "a batch": (XS[None], ValueError, "`xs`", "(1, 4, 3)", "jax.vmap"),
    "a number": (1.0, ValueError, "`xs`", "()"),
    "no steps": (XS[:0], ValueError, "`xs` is empty", "at least one step"),
    "an empty list": ([], ValueError, "`xs` is empty"),
    "nothing": (None, TypeError, "`xs`", "`None`"),
    "infinities": (np.where(XS > 0, np.inf, XS), ValueError, "`xs` holds infinities", "NaN"),
    "beyond float32": (np.full((4, 3), 1e300), ValueError, "`xs`", "beyond 3.4e+38"),
    "beyond any float": ([[10**400, 1, 1]], TypeError, "`xs`", "range"),
    "a word": ("hello", TypeError, "`xs`", "real numbers", "<U5"),
    "numbers as words": ([["1", "2", "3"]], TypeError, "`xs`", "real numbers"),
    "words among numbers": ([[1.0, None, "3"]], TypeError, "`xs`", "`'3'`"),
    "complex numbers": (XS + 1j, TypeError, "`xs`", "complex"),
    "complex jax numbers": (jnp.asarray(XS + 1j), TypeError, "`xs`", "complex64"),
    "dates": (np.zeros((4, 3), "datetime64[s]"), TypeError, "`xs`", "datetime64"),
    "a dictionary": ({"x": 1.0}, TypeError, "`xs`", "`dict`"),
    "ragged rows": ([[1.0, 2.0, 3.0], [1.0]], TypeError, "`xs`", "length", "`mask`"),
    "ragged sequences": ([XS, XS[:2]], TypeError, "`xs`", "length", "Pad", "`mask`"),
}


@pytest.mark.parametrize("case", OBSERVATIONS)
def test_observations(case):
    xs, *expected = OBSERVATIONS[case]
    refuses(lambda: run(xs), *expected)


DRIVERS = {
    "short mask": (lambda: run(mask=[True] * 3), ValueError, "`mask`", "(4,)", "bool[3]"),
    "mask of floats": (lambda: run(mask=np.ones(4)), ValueError, "`mask`", "float64[4]"),
    "mask per element": (lambda: run(mask=XS > 0), ValueError, "`mask`", "`observed`"),
    "ragged mask": (lambda: run(mask=[[True], [True, False]]), ValueError, "`mask`", "list"),
    "mask of words": (lambda: run(mask="yes"), ValueError, "`mask`", "booleans"),
    "observed of floats": (lambda: run(observed=XS), ValueError, "`observed`", "float32[4, 3]"),
    "observed per step": (lambda: run(observed=[True] * 4), ValueError, "`observed`", "`mask`"),
    "broken promise": (lambda: run(XS * np.nan, complete=True), ValueError, "`complete`", "NaN"),
    "seed for key": (lambda: run(key=0), TypeError, "`key`", "jax.random.key(seed)", "`0`"),
    "no key": (lambda: run(key=None), TypeError, "`key`", "`None`"),
    "old key": (lambda: run(key=jax.random.PRNGKey(0)), TypeError, "`key`", "Old-style"),
    "many keys": (lambda: run(key=jax.random.split(KEY)), ValueError, "`key`", "(2,)", "vmap"),
    "x0 of another shape": (lambda: run(x0=XS[0, :2]), ValueError, "`x0`", "(3,)", "(2,)"),
    "x0 infinite": (lambda: run(x0=[1, 2, np.inf]), ValueError, "`x0` holds infinities"),
    "x0 and belief": (
        lambda: run(x0=XS[0], belief=vf.start(FILTER, linear())),
        ValueError, "`x0`", "`belief`", "only one",
    ),
    "no belief": (lambda: run(belief=3), TypeError, "`belief`", "`start`", "`3`"),
    "belief of another filter": (
        lambda: run(belief=vf.start(vf.ParticleFilter(vf.Prior(), 5), linear())),
        ValueError, "`belief`", "another filter", "`state.latent.mean`",
    ),
    "belief of another model": (
        lambda: run(belief=vf.start(FILTER, nonlinear())),
        ValueError, "`belief`", "`state.latent.factor`",
    ),
    "belief of other settings": (
        lambda: run(
            filter=vf.ParticleFilter(vf.Prior(), 7),
            belief=vf.start(vf.ParticleFilter(vf.Prior(), 5), linear()),
        ),
        ValueError, "`belief`", "[5, 2]", "[7, 2]",
    ),
    "weight of words": (lambda: run(kl_weight="1"), TypeError, "`kl_weight`", "one number"),
    "weights": (lambda: run(kl_weight=jnp.ones(3)), TypeError, "`kl_weight`", "float32[3]"),
    "negative weight": (lambda: run(kl_weight=-1.0), ValueError, "`kl_weight`", "-1.0"),
    "weight NaN": (lambda: run(kl_weight=np.nan), ValueError, "`kl_weight`", "nan"),
    "inference for filter": (lambda: run(filter=vf.Prior()), TypeError, "`filter`", "`Prior`"),
    "class for filter": (
        lambda: run(filter=vf.KalmanFilter), TypeError, "`filter`", "the class `KalmanFilter`",
    ),
    "no model": (lambda: run(model=object()), TypeError, "`model`", "`object`", "five functions"),
    "class for model": (lambda: run(model=vf.SRNN), TypeError, "`model`", "the class `SRNN`"),
    "step of another shape": (
        lambda: vf.step(FILTER, linear(), vf.start(FILTER, linear()), XS, KEY),
        ValueError, "`x`", "(3,)", "(4, 3)",
    ),
    "step with a seed": (
        lambda: vf.step(FILTER, linear(), vf.start(FILTER, linear()), XS[0], 0), TypeError, "`key`",
    ),
    "step without belief": (
        lambda: vf.step(FILTER, linear(), None, XS[0], KEY), TypeError, "`belief`",
    ),
    "step with an inference": (
        lambda: vf.step(vf.Prior(), linear(), vf.start(FILTER, linear()), XS[0], KEY),
        TypeError, "`filter`", "`Prior`",
    ),
    "horizon 0": (lambda: forecast(0), ValueError, "`horizon`", "at least 1", "0"),
    "horizon 1.5": (lambda: forecast(1.5), ValueError, "`horizon`", "1.5"),
    "level 0": (lambda: forecast(levels=(0.0, 0.5)), ValueError, "`levels`", "(0, 1)", "0.0"),
    "level 1": (lambda: forecast(levels=(1.0,)), ValueError, "`levels`", "1.0"),
    "no levels": (lambda: forecast(levels=()), ValueError, "`levels`", "()"),
    "levels of words": (lambda: forecast(levels="abc"), ValueError, "`levels`", "abc"),
    "no samples": (lambda: forecast(num_samples=0), ValueError, "`num_samples`", "0"),
    "forecast with a seed": (lambda: forecast(key=0), TypeError, "`key`"),
    "forecast from a number": (lambda: forecast(belief=3), TypeError, "`belief`", "`3`"),
    "forecast of the word": (
        lambda: forecast(observe="mean"), TypeError, "`observe`", "a function", "`'mean'`",
    ),
    "forecast of one element": (
        lambda: forecast(observe=lambda emission: emission.mean[0]),
        TypeError, "`observe`", "(3,)", "`LinearGaussian`", "`float32[]`",
    ),
    "generate flags": (
        lambda: vf.generate(linear(), 2, KEY, observe=lambda emission: emission.mean > 0),
        TypeError, "`observe`", "floats", "`bool[3]`",
    ),
    "generate the distribution": (
        lambda: vf.generate(linear(), 2, KEY, observe=lambda emission: emission),
        TypeError, "`observe`", "`Gaussian`",
    ),
    "generate what there is not": (
        lambda: vf.generate(linear(), 2, KEY, observe=lambda emission: emission.median),
        TypeError, "`observe`", "failed", "`Gaussian`", "median",
    ),
    "evaluate an array": (
        lambda: vf.evaluate(FILTER, linear(), XS[None], KEY),
        TypeError, "`dataset`", "`float32[1, 4, 3]`", "`varfilter.load(path)`", "Ragged.of",
    ),
    "windows of an array": (
        lambda: RandomWindows(XS[None], 2, 2), TypeError, "`dataset`", "`float32[1, 4, 3]`",
    ),
    "fit to an array": (
        lambda: next(fit(XS[None])), TypeError, "`windows`", "`RandomWindows`", "learner.update",
    ),
    "generate nothing": (lambda: vf.generate(linear(), 0, KEY), ValueError, "`num_steps`", "0"),
    "generate from nothing": (lambda: vf.generate(3, 2, KEY), TypeError, "`model`", "`3`"),
    "generate after another x0": (
        lambda: vf.generate(linear(), 2, KEY, x0=XS), ValueError, "`x0`", "(4, 3)",
    ),
}  # fmt: skip

FITTING = {
    "Kalman, nonlinear": (
        lambda: vf.start(vf.KalmanFilter(), nonlinear()),
        TypeError, "`KalmanFilter` is exact only for `LinearGaussian`", "`DeepMarkov`",
        "`VariationalFilter(...)`",
    ),
    "Kalman, nonlinear, run": (
        lambda: run(filter=vf.KalmanFilter(), model=nonlinear()),
        TypeError, "`KalmanFilter`", "`DeepMarkov`",
    ),
    "Kalman, nonlinear, stream": (
        lambda: vf.Stream(vf.KalmanFilter(), nonlinear(), KEY), TypeError, "`KalmanFilter`",
    ),
    "Kalman, nonlinear, learning": (
        lambda: vf.EndToEnd(theta=None, phi=None).init(nonlinear(), vf.KalmanFilter()),
        TypeError, "`KalmanFilter`",
    ),
    "Exact, nonlinear": (
        lambda: vf.start(VariationalFilter(Exact()), nonlinear()),
        TypeError, "`Exact`", "`LinearGaussian`", "`DeepMarkov`", "`Iterative(...)`",
    ),
    "Exact particles, nonlinear": (
        lambda: run(filter=vf.ParticleFilter(Exact(), 5), model=nonlinear()),
        TypeError, "`Exact`", "`DeepMarkov`",
    ),
    "AVF of another model": (
        lambda: vf.start(VariationalFilter(iterative(wider())), nonlinear()),
        TypeError, "`VariationalFilter(Iterative)`", "`DeepMarkov`", "Build its networks",
    ),
    "AVF particles of another model": (
        lambda: run(filter=vf.ParticleFilter(iterative(wider()), 5), model=nonlinear()),
        TypeError, "`ParticleFilter(Iterative)`", "`DeepMarkov`",
    ),
    "amortized of another model": (
        lambda: run(filter=VariationalFilter(mlp(wider())), model=nonlinear()),
        TypeError, "`VariationalFilter(Amortized)`", "`DeepMarkov`",
    ),
    "posterior of another family": (
        lambda: run(filter=VariationalFilter(vf.Amortized(lambda p, state, x: vf.Bernoulli(x.x)))),
        TypeError, "`VariationalFilter(Amortized)`", "`LinearGaussian`",
    ),
    "recurrent of another model": (
        lambda: vf.Stream(
            VariationalFilter(vf.Recurrent(LSTMPosterior(wider(), hidden_size=4, key=KEY))),
            nonlinear(), KEY,
        ),
        TypeError, "`VariationalFilter(Recurrent)`", "`DeepMarkov`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DRIVERS)
def test_drivers(case):
    refuses(*DRIVERS[case])


@pytest.mark.parametrize("case", FITTING)
def test_filters_that_do_not_fit_the_model(case):
    refuses(*FITTING[case])


class TestDefinedBehaviour:
    """Input that looks wrong and has a meaning."""

    @pytest.mark.parametrize(
        "given",
        [
            XS.astype(np.float64),
            jnp.asarray(XS),
            XS.tolist(),
            [list(map(np.float64, x)) for x in XS],
        ],
        ids=["float64", "jax", "lists", "lists of numpy numbers"],
    )
    def test_numbers_of_any_kind(self, given):
        assert_same_bits(run(given)[1], run(XS)[1])

    @pytest.mark.parametrize("dtype", [bool, np.int64, np.uint8, np.float16])
    def test_other_dtypes_become_floats(self, dtype):
        given = (XS > 0).astype(dtype)
        assert_same_bits(run(given)[1], run(given.astype(np.float32))[1])

    def test_none_among_numbers_is_missing(self):
        missing = XS.copy()
        missing[1, 2] = np.nan
        given = XS.tolist()
        given[1][2] = None
        assert_same_bits(run(given)[1], run(missing)[1])

    def test_observed_marks_missing_elements(self):
        seen = np.ones(XS.shape, bool)
        seen[1, 2] = False
        assert_same_bits(run(observed=seen)[1], run(np.where(seen, XS, np.nan))[1])

    def test_one_step_is_the_first_of_many(self):
        # The same step compiled for one and for four: a few units in the last place.
        np.testing.assert_allclose(run(XS[:1])[1].bound, run()[1].bound[:1], rtol=1e-6)

    @pytest.mark.parametrize(
        "filter",
        [FILTER, VariationalFilter(vf.GradientDescent(num_iterations=2)),
         vf.ParticleFilter(vf.Prior(), 5), vf.KalmanFilter()],
        ids=["prior", "descent", "particles", "Kalman"],
    )  # fmt: skip
    def test_all_missing_predicts_and_scores_nothing(self, filter):
        belief, filtered = run(np.full((4, 3), np.nan), filter)
        assert int(belief.t) == 4
        # Zero up to rounding: weights that sum to one, logarithms of one.
        np.testing.assert_allclose(filtered.bound, 0.0, atol=1e-6)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(belief))

    def test_nothing_exists(self):
        belief, filtered = run(mask=[False] * 4)
        assert_same_bits(belief, vf.start(FILTER, linear()))
        np.testing.assert_array_equal(filtered.bound, 0.0)

    def test_levels_of_numpy_and_a_single_one(self):
        assert forecast(levels=np.array([0.25, 0.75])).levels == (0.25, 0.75)
        assert forecast(levels=0.5).quantiles.shape == (1, 2, 3)

    def test_constants_inside_a_compiled_function(self):
        # Inside `jit` what is checked is a constant, but what is computed of it is not.
        @jax.jit
        def bounds(scale):
            model = LinearGaussian(**(PARAMETERS | {"transition": scale * jnp.eye(2)}))
            options = {"observed": XS < 100, "mask": [True] * 4, "kl_weight": 1.0, "x0": XS[0]}
            return vf.run(FILTER, model, jnp.asarray(XS), KEY, complete=True, **options)[1].bound

        model = LinearGaussian(**(PARAMETERS | {"transition": 0.5 * np.eye(2)}))
        # Compiled in one piece or in two: a few units in the last place of sums of order 10.
        np.testing.assert_allclose(bounds(0.5), run(model=model)[1].bound, rtol=1e-5, atol=1e-5)
