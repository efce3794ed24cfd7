"""Every wrong input is refused at the border, in words that name the argument and the fix."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import varfilter as vf
from refusals import as_users_run_it, refuses  # noqa: F401
from varfilter import LinearGaussian, VariationalFilter
from worlds import KEY, assert_same_bits, deep_markov, linear_gaussian_parameters, observations

# A model of three observed elements and two latent ones, and the plainest filter.
MODEL = LinearGaussian(**linear_gaussian_parameters(latent=2, size=3))
FILTER = VariationalFilter(vf.Prior())
XS = observations(MODEL, 4)
NONLINEAR = deep_markov(size=3, latent=2)
WIDER = deep_markov(size=5, latent=4)
ADAM = optax.adam(1e-3)
TIME_PARALLEL = vf.TimeParallel(theta=ADAM, phi=ADAM)
END_TO_END = vf.EndToEnd(theta=ADAM, phi=ADAM)


def run(xs=XS, filter=FILTER, model=MODEL, key=KEY, **options):
    return vf.run(filter, model, xs, key, **options)


def linear_gaussian(**changes):
    return LinearGaussian(**(linear_gaussian_parameters(latent=2, size=3) | changes))


def iterative(model=NONLINEAR, key=KEY, **options):
    return vf.Iterative(model, hidden_size=options.pop("hidden_size", 4), key=key, **options)


def mlp(model, **options):
    return vf.Amortized(vf.MLPPosterior(model, hidden_size=4, key=KEY, **options))


def forecast(horizon=2, belief=None, key=KEY, **options):
    belief = vf.start(FILTER, MODEL) if belief is None else belief
    return vf.forecast(FILTER, MODEL, belief, horizon, key, **options)


def update(xs=None, learner=TIME_PARALLEL, learning=None, key=KEY, **options):
    learning = learner.init(MODEL, FILTER) if learning is None else learning
    return learner.update(learning, np.stack([XS, XS]) if xs is None else xs, key, **options)


def discretized(kind=vf.DiscretizedNormal, mean=(0.0, 0.0), log_var=(0.0, 0.0), **options):
    return kind(jnp.array(mean), jnp.array(log_var), **options)


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
        lambda: run(x0=XS[0], belief=vf.start(FILTER, MODEL)),
        ValueError, "`x0`", "`belief`", "only one",
    ),
    "no belief": (lambda: run(belief=3), TypeError, "`belief`", "`start`", "`3`"),
    "belief of another filter": (
        lambda: run(belief=vf.start(vf.ParticleFilter(vf.Prior(), 5), MODEL)),
        ValueError, "`belief`", "another filter", "`state.mean`",
    ),
    "belief of another model": (
        lambda: run(belief=vf.start(FILTER, NONLINEAR)),
        ValueError, "`belief`", "`state.factor`",
    ),
    "belief of other settings": (
        lambda: run(
            filter=vf.ParticleFilter(vf.Prior(), 7),
            belief=vf.start(vf.ParticleFilter(vf.Prior(), 5), MODEL),
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
        lambda: vf.step(FILTER, MODEL, vf.start(FILTER, MODEL), XS, KEY),
        ValueError, "`x`", "(3,)", "(4, 3)",
    ),
    "step with a seed": (
        lambda: vf.step(FILTER, MODEL, vf.start(FILTER, MODEL), XS[0], 0), TypeError, "`key`",
    ),
    "step without belief": (
        lambda: vf.step(FILTER, MODEL, None, XS[0], KEY), TypeError, "`belief`",
    ),
    "step with an inference": (
        lambda: vf.step(vf.Prior(), MODEL, vf.start(FILTER, MODEL), XS[0], KEY),
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
    "generate nothing": (lambda: vf.generate(MODEL, 0, KEY), ValueError, "`num_steps`", "0"),
    "generate from nothing": (lambda: vf.generate(3, 2, KEY), TypeError, "`model`", "`3`"),
    "generate after another x0": (
        lambda: vf.generate(MODEL, 2, KEY, x0=XS), ValueError, "`x0`", "(4, 3)",
    ),
}  # fmt: skip

FITTING = {
    "Kalman, nonlinear": (
        lambda: vf.start(vf.KalmanFilter(), NONLINEAR),
        TypeError, "`KalmanFilter` is exact only for `LinearGaussian`", "`DeepMarkov`",
        "`VariationalFilter(...)`",
    ),
    "Kalman, nonlinear, run": (
        lambda: run(filter=vf.KalmanFilter(), model=NONLINEAR),
        TypeError, "`KalmanFilter`", "`DeepMarkov`",
    ),
    "Kalman, nonlinear, stream": (
        lambda: vf.Stream(vf.KalmanFilter(), NONLINEAR, KEY), TypeError, "`KalmanFilter`",
    ),
    "Kalman, nonlinear, learning": (
        lambda: END_TO_END.init(NONLINEAR, vf.KalmanFilter()), TypeError, "`KalmanFilter`",
    ),
    "Exact, nonlinear": (
        lambda: vf.start(VariationalFilter(vf.Exact()), NONLINEAR),
        TypeError, "`Exact`", "`LinearGaussian`", "`DeepMarkov`", "`Iterative(...)`",
    ),
    "Exact particles, nonlinear": (
        lambda: run(filter=vf.ParticleFilter(vf.Exact(), 5), model=NONLINEAR),
        TypeError, "`Exact`", "`DeepMarkov`",
    ),
    "AVF of another model": (
        lambda: vf.start(VariationalFilter(iterative(WIDER)), NONLINEAR),
        TypeError, "`VariationalFilter(Iterative)`", "`DeepMarkov`", "Build its networks",
    ),
    "AVF particles of another model": (
        lambda: run(filter=vf.ParticleFilter(iterative(WIDER), 5), model=NONLINEAR),
        TypeError, "`ParticleFilter(Iterative)`", "`DeepMarkov`",
    ),
    "amortized of another model": (
        lambda: run(filter=VariationalFilter(mlp(WIDER)), model=NONLINEAR),
        TypeError, "`VariationalFilter(Amortized)`", "`DeepMarkov`",
    ),
    "posterior of another family": (
        lambda: run(filter=VariationalFilter(vf.Amortized(lambda state, x: vf.Bernoulli(x.x)))),
        TypeError, "`VariationalFilter(Amortized)`", "`LinearGaussian`",
    ),
    "recurrent of another model": (
        lambda: vf.Stream(
            VariationalFilter(vf.Recurrent(vf.LSTMPosterior(WIDER, hidden_size=4, key=KEY))),
            NONLINEAR, KEY,
        ),
        TypeError, "`VariationalFilter(Recurrent)`", "`DeepMarkov`",
    ),
}  # fmt: skip

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
        lambda: iterative(update=vf.Highway(4, 4, key=KEY)), TypeError, "`update`", "a class",
    ),
    "update by name": (lambda: iterative(update="highway"), TypeError, "`update`", "'highway'"),
    "class for signal": (lambda: iterative(signal=vf.Gradients), TypeError, "`signal`", "class"),
    "class for normalize": (
        lambda: iterative(normalize=vf.LayerNorm), TypeError, "`normalize`", "class",
    ),
    "LearnedStep on errors": (
        lambda: iterative(update=vf.LearnedStep, signal=vf.PrecisionWeightedErrors()),
        ValueError, "`update`", "`signal`", "`PrecisionWeightedErrors`", "`update=Highway`",
    ),
    "normalized LearnedStep on errors": (
        lambda: iterative(
            update=vf.MeanNormalized.of(vf.LearnedStep), signal=vf.PrecisionWeightedErrors()
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
        lambda: vf.MLPPosterior(MODEL, hidden_size=0, key=KEY), ValueError, "`hidden_size`",
    ),
    "perceptron from a seed": (lambda: vf.MLPPosterior(MODEL, key=1), TypeError, "`key`"),
    "LSTM without units": (
        lambda: vf.LSTMPosterior(MODEL, hidden_size=0, key=KEY), ValueError, "`hidden_size`",
    ),
    "model for inference": (
        lambda: VariationalFilter(MODEL), TypeError, "`inference`", "`LinearGaussian`",
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
    "no piano": (lambda: vf.SRNN(0, key=KEY), ValueError, "`observation_size`", "0"),
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
        for kind in (vf.DiscretizedNormal, vf.PaperDiscretizedNormal)
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
        lambda: TIME_PARALLEL.init(NONLINEAR, VariationalFilter(mlp(NONLINEAR))),
        TypeError, "`TimeParallel`", "`VariationalFilter(Amortized)`", "`EndToEnd(...)`",
    ),
    "particles in parallel": (
        lambda: TIME_PARALLEL.init(NONLINEAR, vf.ParticleFilter(vf.Prior(), 5)),
        TypeError, "`ParticleFilter(Prior)`", "`EndToEnd(...)`",
    ),
    "Kalman in parallel": (
        lambda: TIME_PARALLEL.init(MODEL, vf.KalmanFilter()), TypeError, "`KalmanFilter`",
    ),
    "inference for filter": (
        lambda: END_TO_END.init(MODEL, vf.Prior()), TypeError, "`filter`", "`Prior`",
    ),
    "model and filter swapped": (
        lambda: TIME_PARALLEL.init(FILTER, MODEL), TypeError, "`filter`", "`LinearGaussian`",
    ),
    "another learner's state": (
        lambda: update(learning=END_TO_END.init(NONLINEAR, VariationalFilter(mlp(NONLINEAR)))),
        TypeError, "`TimeParallel`", "`VariationalFilter(Amortized)`",
    ),
    "another optimizer's state": (
        lambda: update(
            learning=vf.TimeParallel(theta=optax.sgd(0.1), phi=None).init(MODEL, FILTER)
        ),
        ValueError, "`learning`", "another optimizer",
    ),
    "no state": (lambda: update(learning=3), TypeError, "`learning`", "`init`", "`3`"),
    "one sequence": (lambda: update(XS), ValueError, "`xs`", "(batch, time, 3)", "`xs[None]`"),
    "too few elements": (
        lambda: update(XS[None, :, :2]), ValueError, "`xs`", "(batch, time, 3)", "(1, 4, 2)",
    ),
    "no sequences": (lambda: update(np.zeros((0, 4, 3))), ValueError, "`xs`", "(0, 4, 3)"),
    "no steps": (lambda: update(np.zeros((2, 0, 3))), ValueError, "`xs`", "(2, 0, 3)"),
    "infinities": (lambda: update(np.full((2, 4, 3), -np.inf)), ValueError, "`xs`", "infinities"),
    "ragged": (lambda: update([XS, XS[:2]]), TypeError, "`xs`", "length", "`mask`"),
    "words": (lambda: update("abc"), TypeError, "`xs`", "real numbers"),
    "mask of one sequence": (
        lambda: update(mask=[True] * 4), ValueError, "`mask`", "(2, 4)", "bool[4]",
    ),
    "mask of floats": (lambda: update(mask=np.ones((2, 4))), ValueError, "`mask`", "float64"),
    "one x0 for two": (lambda: update(x0=XS[0]), ValueError, "`x0`", "(2, 3)", "(3,)"),
    "seed for key": (lambda: update(key=0), TypeError, "`key`", "`0`"),
    "weight of words": (lambda: update(kl_weight="a"), TypeError, "`kl_weight`", "'a'"),
    "broken promise": (
        lambda: update(
            np.full((2, 4, 3), np.nan), vf.TimeParallel(theta=ADAM, phi=None, complete=True)
        ),
        ValueError, "`complete`", "`xs`", "NaN",
    ),
}  # fmt: skip

CASES = {
    f"{group}: {name}": case
    for group, cases in {
        "driver": DRIVERS,
        "fit": FITTING,
        "constructor": CONSTRUCTORS,
        "learner": LEARNERS,
    }.items()
    for name, case in cases.items()
}


@pytest.mark.parametrize("case", CASES)
def test_refused(case):
    refuses(*CASES[case])


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
        one = run(XS[:1], filter=vf.KalmanFilter())[1]
        many = run(filter=vf.KalmanFilter())[1]
        np.testing.assert_array_equal(one.bound, many.bound[:1])

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
        assert_same_bits(belief, vf.start(FILTER, MODEL))
        np.testing.assert_array_equal(filtered.bound, 0.0)

    def test_learning_from_nothing_changes_nothing(self):
        before = TIME_PARALLEL.init(MODEL, FILTER)
        after, metrics = update(learning=before, mask=np.zeros((2, 4), bool))
        assert_same_bits(after.model, before.model)
        assert float(metrics.free_energy) == 0.0

    def test_whole_numbers_of_numpy(self):
        assert iterative(num_iterations=np.int64(2)).num_iterations == 2

    def test_whole_parameters_become_floats(self):
        assert vf.Normal([0, 0], [1, 1]).mean.dtype == jnp.float32

    def test_levels_of_numpy_and_a_single_one(self):
        assert forecast(levels=np.array([0.25, 0.75])).levels == (0.25, 0.75)
        assert forecast(levels=0.5).quantiles.shape == (1, 2, 3)

    def test_traced_covariances_are_left_alone(self):
        # Inside a transformation no value can be looked at: the model must still be buildable.
        def log_evidence(variance):
            model = linear_gaussian(noise_covariance=variance * jnp.eye(3))
            return jnp.sum(vf.run(vf.KalmanFilter(), model, XS, KEY)[1].bound)

        slope = jax.grad(log_evidence)(0.5)
        # Central difference: error of order h^2 |f'''| + eps |f| / h, about 1e-3 at h = 0.02.
        numeric = (log_evidence(0.52) - log_evidence(0.48)) / 0.04
        np.testing.assert_allclose(slope, numeric, rtol=0.02)
