"""A model of changes, or of logarithms, is one of levels: by exact answers and by identities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import varfilter as vf
import worlds
from refusals import refuses
from varfilter.distributions import Bernoulli, DiscretizedNormal, Joint, Normal
from varfilter.inference import Exact, LSTMPosterior, MLPPosterior
from varfilter.models import BernoulliHead, ColumnHead, Logarithmic, NormalHead, VaryingNormalHead

KEY = jax.random.key(11)
SCALE, DRIFT = np.array([0.1, 0.02]), np.array([0.05, -0.01])
X0 = np.array([5.0, -3.0])


def moving(model: vf.AbstractModel) -> vf.Differenced:
    return vf.Differenced(model, SCALE.tolist(), drift=DRIFT.tolist())


def changes_of(xs: np.ndarray, x0: np.ndarray = X0) -> np.ndarray:
    """(x_t - x_{t-1} - drift) / scale."""
    return (np.diff(np.concatenate([x0[None], xs]), axis=0) - DRIFT) / SCALE


def levels(model: vf.AbstractModel, num_steps: int = 12) -> np.ndarray:
    us = worlds.known_inputs(model, num_steps)
    return np.array(vf.generate(model, num_steps, KEY, x0=X0, us=us)[0])


def written_out(model: vf.LinearGaussian, first: np.ndarray) -> vf.LinearGaussian:
    """The linear-Gaussian model of the levels: its latent is (z_t, x_{t-1}), by feedback."""
    latent, size = model.latent_size, 2
    parameters = worlds.linear_gaussian_parameters(latent, size)
    nothing, eye = np.zeros((latent, size)), np.eye(size)

    def beside(covariance, own):
        return np.block([[covariance, nothing], [nothing.T, own * eye]])

    return vf.LinearGaussian(
        transition=beside(parameters["transition"], 0.0),
        transition_bias=np.concatenate([parameters["transition_bias"], np.zeros(size)]),
        feedback=np.concatenate([nothing, eye]),
        # A last value has no noise; what is positive definite has a little.
        process_covariance=beside(parameters["process_covariance"], 1e-13),
        loading=np.concatenate([SCALE[:, None] * parameters["loading"], eye], axis=1),
        loading_bias=DRIFT + SCALE * parameters["loading_bias"],
        noise_covariance=np.outer(SCALE, SCALE) * parameters["noise_covariance"],
        initial_mean=np.concatenate([parameters["initial_mean"], first]),
        initial_covariance=beside(parameters["initial_covariance"], 1e-13),
    )


def test_with_a_linear_model_inside_it_is_the_linear_model_written_out():
    """Of complete levels: the exact evidence of changes, in the units of levels."""
    with jax.enable_x64(True):
        model = worlds.linear_gaussian()
        xs = levels(moving(model))
        _, of_levels = vf.run(vf.KalmanFilter(), written_out(model, X0), xs, KEY)
        _, of_changes = vf.run(vf.KalmanFilter(), model, changes_of(xs), KEY)
        evidence = np.asarray(of_changes.bound) - np.log(SCALE).sum()
        # The noise that the last value had to have, 1e-13, beside variances of 1e-5.
        np.testing.assert_allclose(of_levels.bound, evidence, atol=1e-5)


def test_particles_of_it_come_to_the_exact_evidence_with_gaps():
    """Missing elements are drawn, each trajectory its own, and weighed by what comes after."""
    with jax.enable_x64(True):
        model = worlds.linear_gaussian()
        xs = levels(moving(model))  # as many as above: the same programs
        xs[2, 0] = xs[7, 1] = np.nan
        xs[4:6] = np.nan
        _, exact = vf.run(vf.KalmanFilter(), written_out(model, X0), xs, KEY)
        filter = vf.ParticleFilter(Exact(), 4000)
        sums = [
            float(vf.run(filter, moving(model), xs, jax.random.key(seed), x0=X0)[1].bound.sum())
            for seed in range(4)
        ]
        # After a gap of two steps one in some tens of trajectories is near what comes: with 4000
        # the log of their mean weight is off by about 0.1, the mean of four runs by half of that.
        assert abs(np.mean(sums) - float(exact.bound.sum())) < 0.2


INFERENCES = {
    "avf": lambda model: vf.Iterative(
        model, hidden_size=6, num_layers=1, encode_observation=True, key=KEY
    ),
    "exact": lambda model: Exact(),
    "mlp": lambda model: vf.Amortized(MLPPosterior(model, hidden_size=5, key=KEY)),
    "lstm": lambda model: vf.Recurrent(LSTMPosterior(model, hidden_size=5, key=KEY)),
}


# Each inference once by default, under one of the filters; two programs of two seconds each.
USUAL = {
    ("avf", "variational"),
    ("exact", "particle"),
    ("mlp", "variational"),
    ("lstm", "variational"),
}
PAIRS = [
    pytest.param(name, filter, marks=() if (name, filter) in USUAL else pytest.mark.slow)
    for name in INFERENCES
    for filter in ("variational", "particle")
]


@pytest.mark.parametrize(("name", "filter"), PAIRS)
def test_every_inference_sees_the_changes_alone(name, filter):
    """On levels it says what it says on changes, in units of levels, for each step and draw."""
    with jax.enable_x64(True):
        model = worlds.driven_gaussian()
        wrapped, xs, us = moving(model), levels(moving(model)), worlds.known_inputs(model, 12)
        around = {
            "variational": vf.VariationalFilter,
            "particle": lambda inference: vf.ParticleFilter(inference, 5),
        }[filter]
        outer, inner = (around(INFERENCES[name](each)) for each in (wrapped, model))
        _, of_levels = vf.run(outer, wrapped, xs, KEY, x0=X0, us=us)
        _, of_changes = vf.run(inner, model, changes_of(xs), KEY, us=us)
        # Differences of levels of order 10 lose a digit; the rest is double precision.
        np.testing.assert_allclose(
            of_levels.bound, np.asarray(of_changes.bound) - np.log(SCALE).sum(), atol=1e-9
        )


# A logarithm remembers no level: it begins as the model inside does.
@pytest.mark.parametrize(
    "build", [worlds.differenced, pytest.param(worlds.logarithmic, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("begins", ["seen", "partly", "missing"])
def test_a_stream_is_a_run_with_gaps_and_wherever_it_begins(build, begins):
    model = build()
    xs = worlds.with_gaps(worlds.observations(model, 8))
    x0 = np.array(worlds.observations(model, 8, seed=4)[0])
    x0[: {"seen": 0, "partly": 2, "missing": 4}[begins]] = np.nan
    filter = vf.ParticleFilter(vf.Prior(), 4)
    belief, filtered = vf.run(filter, model, xs, KEY, x0=x0)
    stream = vf.Stream(filter, model, KEY, x0=x0)
    bounds = [float(stream.push(x).bound) for x in xs]
    assert np.isfinite(bounds).all()
    # As in `test_stream.py`: programs that are compiled apart round apart.
    np.testing.assert_allclose(bounds, filtered.bound, rtol=1e-3, atol=1e-3)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(belief))


def test_where_nothing_came_before_the_level_may_be_anything():
    """x_1 = x_0 + drift + scale c_1 with x_0 ~ N(first_mean, first_std^2), marginalised."""
    with jax.enable_x64(True):
        model = worlds.linear_gaussian()
        wrapped = vf.Differenced(
            model, SCALE.tolist(), drift=DRIFT.tolist(), first_mean=(2.0, 1.0), first_std=(3.0, 0.5)
        )
        z = jnp.asarray([0.3, -0.2, 0.1])
        inner = model.emission(model.init(None), z)
        found = wrapped.emission(wrapped.init(None), z)
        cov = np.outer(SCALE, SCALE) * np.asarray(inner.covariance) + np.diag([9.0, 0.25])
        mean = np.array([2.0, 1.0]) + DRIFT + SCALE * np.asarray(inner.mean)
        np.testing.assert_allclose(found.mean, mean, atol=1e-12)
        np.testing.assert_allclose(found.covariance, cov, atol=1e-12)
        # Once a level is known, the next is where it was.
        after = wrapped.advance(wrapped.init(None), z, wrapped.embed(jnp.asarray(X0)))
        np.testing.assert_allclose(wrapped.prior(after).mean, model.prior(after.changes).mean)
        np.testing.assert_allclose(np.asarray(after.last), X0)


def column_model(families, latent: int = 2) -> vf.SRNN:
    head = functools.partial(ColumnHead, families=families)
    return vf.SRNN(
        len(families), latent,
        recurrent_size=4, prior_size=4, decoder_size=4, num_decoder_layers=1, head=head, key=KEY,
    )  # fmt: skip


class Family:
    def __init__(self, distribution, width=None, low=None, high=None):
        self.distribution, self.width, self.low, self.high = distribution, width, low, high


def test_densities_and_probabilities_of_levels_add_up_to_one():
    """A numeric column, a count from 0 on that moves, another that does not, and a binary one."""
    count, still = Family(DiscretizedNormal, 0.5), Family(DiscretizedNormal, 0.5, low=-1.0)
    inner = column_model((Family(Normal), count, still, Family(Bernoulli)))
    model = vf.Differenced(inner, (0.2, 0.4, None, None), low=(None, -1.0, None, None))
    state = model.init(jnp.array([1.0, -0.6, 0.0, 1.0]))
    emission = model.emission(state, jnp.array([0.4, -0.3]))
    assert isinstance(emission, Joint)
    log_probs = jax.jit(jax.vmap(emission.log_prob))
    grid = np.linspace(-3.0, 5.0, 4001)

    def mass(element: int, values: np.ndarray) -> np.ndarray:
        # As many rows each time, so that it is one program.
        rows = np.full((grid.size, 4), np.nan, np.float32)
        rows[: values.size, element] = values
        return np.exp(np.asarray(log_probs(rows)))[: values.size]

    # The trapezoids of a smooth density on a fine grid; counts and bits are sums of float32.
    assert np.trapezoid(mass(0, grid), grid) == pytest.approx(1.0, abs=1e-4)
    assert mass(1, -1.0 + 0.2 * np.arange(60)).sum() == pytest.approx(1.0, abs=1e-4)
    assert mass(2, -1.0 + 0.5 * np.arange(60)).sum() == pytest.approx(1.0, abs=1e-4)
    assert mass(3, np.array([0.0, 1.0])).sum() == pytest.approx(1.0, abs=1e-6)
    draws = np.asarray(jax.jit(jax.vmap(emission.sample))(jax.random.split(KEY, 200)))[:, 1]
    steps = (draws + 1.0) / 0.2
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-4)  # on the levels of x
    assert draws.min() >= -1.0


def test_a_level_that_moves_on_moves_what_is_expected_and_nothing_else():
    """p(x + a | last + a) = p(x | last), for any a."""
    model = worlds.differenced()
    z, shift = jnp.array([0.2, -0.1, 0.4]), jnp.array([4.0, 0.0, -2.0, 8.0])
    x, x0 = jnp.array([0.3, -0.2, 0.6, 0.1]), jnp.array([0.2, 0.5, 0.5, 0.0])
    near = model.emission(model.init(x0), z)
    far = model.emission(model.init(x0 + shift), z)
    np.testing.assert_allclose(far.log_prob(x + shift), near.log_prob(x), rtol=1e-4)
    np.testing.assert_allclose(far.variance, near.variance, rtol=1e-6)
    after_near = model.advance(model.init(x0), z, model.embed(x))
    after_far = model.advance(model.init(x0 + shift), z, model.embed(x + shift))
    # Differences of numbers of order 10, divided by 0.1, in single precision.
    for a, b in zip(
        jax.tree.leaves(after_near.changes), jax.tree.leaves(after_far.changes), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_a_logarithm_is_a_log_normal():
    with jax.enable_x64(True):
        inner = worlds.linear_gaussian()
        model = Logarithmic(inner, (0.5, None), centre=(1.2, 0.0))
        z = jnp.array([0.3, -0.2, 0.1])
        own, found = (m.emission(m.init(None), z) for m in (inner, model))
        std = 0.5 * np.sqrt(own.variance[0])
        wanted = scipy.stats.lognorm(s=std, scale=np.exp(1.2 + 0.5 * own.mean[0]))
        np.testing.assert_allclose(found.mean[0], wanted.mean(), rtol=1e-10)
        np.testing.assert_allclose(found.variance[0], wanted.var(), rtol=1e-10)
        x = jnp.array([2.7, jnp.nan])
        np.testing.assert_allclose(found.log_prob(x), wanted.logpdf(2.7), rtol=1e-10)
        # Of both at once: the joint density of (log x_1, x_2), over x_1 and the scale.
        both = jnp.array([2.7, -0.4])
        y = jnp.array([(np.log(2.7) - 1.2) / 0.5, -0.4])
        np.testing.assert_allclose(
            found.log_prob(both), own.log_prob(y) - np.log(0.5) - np.log(2.7), rtol=1e-10
        )
        # What is missing is drawn given what is not, and what is not positive is finite.
        draw = found.complete(jnp.array([jnp.nan, -0.4]), KEY)
        assert draw[0] > 0
        assert draw[1] == -0.4
        assert np.isfinite(found.log_prob(jnp.array([-1.0, 0.0])))
        assert found.log_prob(jnp.array([-1.0, 0.0])) < -1e3


def test_an_absurd_level_costs_a_belief_nothing_for_good():
    """After what cannot be, a filter goes on from the last value that could."""
    model = worlds.differenced()
    xs = np.array(worlds.observations(model, 8))
    filter = vf.ParticleFilter(vf.Prior(), 4)  # as above: the same program
    _, plain = vf.run(filter, model, xs, KEY, x0=np.zeros(4))
    xs[3] = 1e37
    belief, filtered = vf.run(filter, model, xs, KEY, x0=np.zeros(4))
    assert np.isfinite(filtered.bound).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(belief))
    assert np.abs(np.asarray(belief.carry.states.last)).max() < 100
    np.testing.assert_array_equal(filtered.bound[:3], plain.bound[:3])


@pytest.mark.parametrize("absurd", [1e15, 3.4e38])
def test_an_absurd_element_is_no_level_to_go_on_from(absurd):
    """A family with heavy tails gives it a finite density, so that the filter takes it in."""
    model = worlds.differenced()
    state, z = model.init(jnp.array([0.2, 0.5, 0.5, 0.0])), jnp.array([0.2, -0.1, 0.4])
    x = jnp.array([0.3, 0.4, 0.6, 0.1])
    for sign in (1.0, -1.0):
        after = model.advance(state, z, model.embed(x.at[0].set(sign * absurd)))
        np.testing.assert_array_equal(after.last, jnp.array([0.2, 0.4, 0.6, 0.1]))
        assert np.isfinite(model.emission(after, z).log_prob(x))
        assert np.abs(model.emission(after, z).mean).max() < 100
    far = model.advance(state, z, model.embed(x.at[0].set(1e6)))  # a level may jump for good
    assert far.last[0] == 1e6


def test_what_cannot_move_is_refused():
    bits = vf.SRNN(
        2, 2, recurrent_size=3, prior_size=3, decoder_size=3, head=BernoulliHead, key=KEY
    )
    plain = vf.SRNN(2, 2, recurrent_size=3, prior_size=3, decoder_size=3, head=NormalHead, key=KEY)
    refuses(lambda: vf.Differenced(bits, (0.1, None)), TypeError, "`scale[0]`", "Bernoulli", "None")
    refuses(lambda: vf.Differenced(plain, (None, None)), ValueError, "`scale`", "None of every")
    refuses(lambda: vf.Differenced(plain, (0.1,)), ValueError, "`scale`", "2 elements")
    refuses(lambda: vf.Differenced(plain, (0.1, -1.0)), ValueError, "`scale`", "positive")
    refuses(lambda: vf.Differenced(plain, (0.1, 1.0), drift=(0.0,)), ValueError, "`drift`")
    bounded = column_model((Family(DiscretizedNormal, 0.5, low=0.0), Family(Normal)))
    refuses(lambda: vf.Differenced(bounded, (0.1, None)), ValueError, "lowest", "`low`")
    vf.Differenced(bounded, (None, 0.1))
    quantised = functools.partial(VaryingNormalHead, width=0.1)
    counts = vf.SRNN(2, 2, recurrent_size=3, prior_size=3, decoder_size=3, head=quantised, key=KEY)
    vf.Differenced(counts, (0.1, None))
    refuses(lambda: Logarithmic(counts, (0.1, None)), TypeError, "`scale[0]`", "Gaussian", "None")
    refuses(lambda: Logarithmic(plain, (None, None)), ValueError, "`scale`", "None of every")
    refuses(lambda: Logarithmic(plain, (0.1,)), ValueError, "`scale`", "each element")
    refuses(lambda: Logarithmic(plain, (0.0, None)), ValueError, "`scale`", "positive")
    kalman, wrapped = vf.KalmanFilter(), moving(worlds.linear_gaussian())
    refuses(lambda: vf.start(kalman, wrapped), TypeError, "`KalmanFilter`", "`Differenced`")
