"""A stream gives the numbers of `run`, and a refused observation costs it nothing."""

import copy
import gc
import pickle
import tracemalloc
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import varfilter as vf
from commands import script
from refusals import refuses
from varfilter import Stream
from varfilter.filters import EnsembleFilter
from varfilter.inference import Exact, LSTMPosterior
from varfilter.models import Ensemble
from worlds import (
    KEY,
    assert_same_bits,
    continued,
    deep_markov,
    linear_gaussian,
    observations,
    with_gaps,
)

pytestmark = pytest.mark.usefixtures("as_users_run_it")

MODEL = deep_markov()
XS = with_gaps(observations(MODEL, 12))


def avf(model=MODEL, **options):
    inference = vf.Iterative(model, hidden_size=8, num_iterations=2, key=jax.random.key(5))
    return vf.VariationalFilter(inference, **options)


def particles(**options):
    return vf.ParticleFilter(vf.Prior(), 16, **options)


@pytest.fixture(scope="module")
def stream():
    """One compiled stream, which each test takes back to its beginning."""
    return Stream(avf(), MODEL, KEY)


@pytest.fixture
def fresh(stream):
    stream.belief = vf.start(stream.filter, stream.model)
    return stream


def push_all(stream, xs):
    return [stream.push(x) for x in xs]


FILTERS = {
    "avf": lambda: (avf(), MODEL),
    "particles": lambda: (particles(), MODEL),
    "recurrent": lambda: (
        vf.VariationalFilter(
            vf.Recurrent(LSTMPosterior(MODEL, hidden_size=4, key=jax.random.key(6)))
        ),
        MODEL,
    ),
    "continued": lambda: (avf(continued()), continued()),
    "Kalman": lambda: (vf.KalmanFilter(), linear_gaussian(latent=3, size=4)),
    "ensemble": lambda: (
        EnsembleFilter([vf.ParticleFilter(Exact(), 3)] * 2),
        Ensemble([linear_gaussian(latent=3, size=4, seed=seed) for seed in (0, 1)]),
    ),
}


# The belief of a recurrent inference is one more tree of arrays, and so is the end of x_{t-1}.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow if n in ("recurrent", "continued") else ())
        for n in FILTERS
    ],
)
def test_push_is_run(name):
    filter, model = FILTERS[name]()
    stream = Stream(filter, model, KEY, x0=XS[0])
    pushed = jax.tree.map(lambda *leaves: np.stack(leaves), *push_all(stream, XS[1:]))
    belief, filtered = vf.run(filter, model, XS[1:], KEY, x0=XS[0])
    assert stream.t == len(XS) - 1
    assert_same_bits((pushed, stream.belief), (filtered, belief))


def test_push_is_run_of_a_complete_sequence():
    """Nothing that is computed ahead, for all of a sequence, makes `run` another filter."""
    filter, model = FILTERS["Kalman"]()
    xs = np.nan_to_num(XS)
    stream = Stream(filter, model)
    pushed = jax.tree.map(lambda *leaves: np.stack(leaves), *push_all(stream, xs))
    assert_same_bits(pushed, vf.run(filter, model, xs)[1])


@pytest.mark.slow
def test_push_is_run_as_users_compile_it():
    done = script(Path(__file__).parent / "stream_bits.py", is_optimized=True, timeout=1800)
    assert done.code == 0, done.err
    assert done.out.count("same bits") > 40
    assert "OTHER BITS" not in done.out, done.out


class TestMissing:
    def after(self, fresh, push):
        fresh.push(XS[0])
        return push(fresh), fresh.belief

    def test_skip_is_a_missing_observation(self, fresh):
        nan = self.after(fresh, lambda s: s.push(np.full(4, np.nan)))
        fresh.belief = vf.start(fresh.filter, MODEL)
        skipped = self.after(fresh, lambda s: s.skip())
        fresh.belief = vf.start(fresh.filter, MODEL)
        none = self.after(fresh, lambda s: s.push(None))
        assert_same_bits(skipped, nan)
        assert_same_bits(none, nan)
        # The step without an observation is a prediction: q = p, and nothing is scored.
        filtered, _ = nan
        assert_same_bits(filtered.posterior, filtered.prior)
        assert float(filtered.bound) == 0.0

    def test_skip_many(self, fresh):
        skipped = self.after(fresh, lambda s: s.skip(3))
        assert fresh.t == 4
        fresh.belief = vf.start(fresh.filter, MODEL)
        pushed = self.after(fresh, lambda s: push_all(s, [None] * 3)[-1])
        assert_same_bits(skipped, pushed)

    @pytest.mark.parametrize(
        ("x", "observed"),
        [
            ([0.5, None, -1.0, None], None),
            ([0.5, 7.0, -1.0, 8.0], [True, False, True, False]),
            (jnp.array([0.5, 7.0, -1.0, jnp.nan]), np.array([True, False, True, True])),
        ],
        ids=["None", "observed", "both"],
    )
    def test_missing_elements(self, fresh, x, observed):
        nan = self.after(fresh, lambda s: s.push(np.array([0.5, np.nan, -1.0, np.nan])))
        fresh.belief = vf.start(fresh.filter, MODEL)
        other = self.after(fresh, lambda s: s.push(x, observed=observed))
        assert_same_bits(other, nan)


class TestRefused:
    @pytest.mark.parametrize(
        ("x", "observed", "error", "words"),
        [
            ([1.0, 2.0], None, ValueError, ["`x`", "(4,)", "(2,)", "`DeepMarkov`"]),
            (XS, None, ValueError, ["`x`", "(12, 4)", "one observation at a time"]),
            (1.0, None, ValueError, ["`x`", "(4,)", "()"]),
            ([1, 2, 3, np.inf], None, ValueError, ["`x` holds infinities", "NaN"]),
            ([1e300, 0, 0, 0], None, ValueError, ["`x`", "beyond"]),
            ("abcd", None, TypeError, ["`x`", "real numbers"]),
            (["1", "2", "3", "4"], None, TypeError, ["`x`", "real numbers"]),
            (np.ones(4) * 1j, None, TypeError, ["`x`", "complex"]),
            (np.zeros(4, "datetime64[s]"), None, TypeError, ["`x`", "datetime64"]),
            ([[1.0], [2.0, 3.0], 4.0, 5.0], None, TypeError, ["`x`", "length"]),
            ({"x": 1.0}, None, TypeError, ["`x`", "`dict`"]),
            (XS[0], np.ones(4), ValueError, ["`observed`", "booleans", "float64"]),
            (XS[0], True, ValueError, ["`observed`", "(4,)"]),
            (None, [True] * 4, ValueError, ["`observed`", "`x` is None"]),
        ],
        ids=lambda value: str(value)[:20] if isinstance(value, str) else None,
    )
    def test_a_refused_push_loses_nothing(self, fresh, x, observed, error, words):
        push_all(fresh, XS[:3])
        before = jax.tree.map(np.array, fresh.belief)
        refuses(lambda: fresh.push(x, observed=observed), error, *words)
        assert_same_bits(fresh.belief, before)
        assert fresh.t == 3
        # And what follows is as if nothing had been tried.
        after = fresh.push(XS[3])
        fresh.belief = before
        assert_same_bits(fresh.push(XS[3]), after)

    def test_pushed_buffers_may_be_reused(self, fresh):
        buffer = XS[0].copy()
        fresh.push(buffer)
        belief = jax.tree.map(np.array, fresh.belief)
        buffer[:] = 1e6
        assert_same_bits(fresh.belief, belief)

    def test_wrong_arguments(self, fresh):
        refuses(lambda: fresh.skip(0), ValueError, "`num_steps`", "0")
        refuses(lambda: fresh.skip(1.5), ValueError, "`num_steps`", "1.5")
        refuses(lambda: fresh.forecast(0), ValueError, "`horizon`", "0")
        refuses(lambda: fresh.forecast(2, levels=(0.5, 1.0)), ValueError, "`levels`", "1.0")
        refuses(lambda: fresh.forecast(2, key=1), TypeError, "`key`", "`1`")
        refuses(lambda: Stream(avf(), MODEL, 0), TypeError, "`key`", "`0`")
        refuses(lambda: Stream(avf(), MODEL, KEY, x0=XS), ValueError, "`x0`", "(12, 4)")
        refuses(lambda: Stream(vf.Prior(), MODEL, KEY), TypeError, "`filter`", "`Prior`")

    def test_a_belief_of_another_filter(self, fresh):
        before = fresh.belief
        with pytest.raises(ValueError, match=r"`belief`.*another filter"):
            fresh.belief = vf.start(particles(), MODEL)
        with pytest.raises(TypeError, match=r"`belief`.*`3`"):
            fresh.belief = 3
        assert_same_bits(fresh.belief, before)


class TestForecast:
    def test_it_does_not_move_the_stream(self, fresh):
        push_all(fresh, XS[:2])
        before = jax.tree.map(np.array, fresh.belief)
        expected = fresh.push(XS[2])
        fresh.belief = before
        fresh.forecast(3, num_samples=8)
        assert_same_bits(fresh.belief, before)
        assert_same_bits(fresh.push(XS[2]), expected)

    def test_it_repeats_itself_until_the_next_push(self, fresh):
        push_all(fresh, XS[:2])
        first = fresh.forecast(3, num_samples=8)
        assert_same_bits(fresh.forecast(3, num_samples=8), first)
        other = fresh.forecast(3, num_samples=8, key=jax.random.key(9))
        assert not np.array_equal(other.samples, first.samples)
        fresh.push(XS[2])
        assert not np.array_equal(fresh.forecast(3, num_samples=8).samples, first.samples)

    def test_it_is_the_forecast_of_the_belief(self, fresh):
        push_all(fresh, XS[:2])
        key = jax.random.key(9)
        options = {"num_samples": 8, "levels": (0.25, 0.75)}
        mine = fresh.forecast(3, key=key, **options)
        assert_same_bits(mine, vf.forecast(fresh.filter, MODEL, fresh.belief, 3, key, **options))
        assert mine.samples.shape == (8, 3, 4)
        assert mine.quantiles.shape == (2, 3, 4)


def test_beliefs_are_pytrees(fresh):
    """Many beliefs stacked and stepped at once are the streams stepped one by one."""
    beliefs, expected = [], []
    for k in range(3):
        fresh.belief = vf.start(fresh.filter, MODEL)
        push_all(fresh, XS[: k + 1])
        beliefs.append(fresh.belief)
        expected.append(fresh.push(XS[5]).bound)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *beliefs)
    _, filtered = eqx.filter_jit(
        jax.vmap(lambda belief: vf.step(fresh.filter, MODEL, belief, XS[5], KEY))
    )(stacked)
    # Matrix products in a batch sum in another order: a few units in the last place.
    np.testing.assert_allclose(filtered.bound, jnp.stack(expected), rtol=1e-5)


def test_one_belief_moves_to_another_stream(fresh):
    push_all(fresh, XS[:3])
    belief, expected = fresh.belief, fresh.push(XS[3])
    other = Stream(fresh.filter, MODEL, KEY)
    other.belief = belief
    assert other.t == 3
    assert_same_bits(other.push(XS[3]), expected)


def test_a_copy_goes_on_by_itself_and_a_pickle_is_refused(fresh):
    push_all(fresh, XS[:2])
    assert repr(fresh) == "Stream(VariationalFilter, DeepMarkov, t=2)"
    for other in (copy.copy(fresh), copy.deepcopy(fresh)):
        after = push_all(other, XS[2:4])
        assert (other.t, fresh.t) == (4, 2)
    assert_same_bits(push_all(fresh, XS[2:4]), after)
    refuses(lambda: pickle.dumps(fresh), TypeError, "`Stream`", "`save`", "`Stream.restore`")


class Counting(vf.AbstractModel):
    """A random walk that counts how often Python runs through it: once for each trace."""

    calls: list = eqx.field(static=True)

    def init(self, x0=None):
        return jnp.full((2,), 0.0)  # weakly typed, unlike what a step returns

    def embed(self, x):
        return None

    def prior(self, state):
        return vf.Normal(state, jnp.zeros(2))

    def emission(self, state, z):
        return vf.Normal(z, jnp.zeros(2))

    def advance(self, state, z, features):
        self.calls.append(1)
        return z


def test_compiled_once():
    calls = []
    stream = Stream(particles(), Counting(calls), KEY)
    built = len(calls)
    assert built > 0
    for x in ([1, 2], [1.0, None], np.ones(2), jnp.ones(2), np.array([True, False]), None):
        stream.push(x)
    stream.push([1.0, 2.0], observed=[True, False])
    stream.skip(2)
    assert stream.t == 9
    assert len(calls) == built


# By default a single model and several, of which each has its own arrays.
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in ("avf", "ensemble") else pytest.mark.slow) for n in FILTERS],
)
def test_a_large_model_is_no_part_of_the_program(name, monkeypatch):
    """Its arrays are passed at each step, those of a small one are constants: the same bits."""
    filter, model = FILTERS[name]()
    small = push_all(Stream(filter, model, KEY), XS[:4])
    monkeypatch.setattr("varfilter._step.MOST_CONSTANT_BYTES", 0)
    monkeypatch.setattr("varfilter._step.LARGEST_JOINED", 0)
    large = Stream(filter, model, KEY)
    assert large._fixed
    assert_same_bits(push_all(large, XS[:4]), small)


def test_a_model_may_hold_a_key(tmp_path):
    """Such as that of random features: it is an array that no program can hold as a constant."""

    class Featured(Counting):
        key: jax.Array

        def emission(self, state, z):
            return vf.Normal(z + jax.random.normal(self.key, z.shape), jnp.zeros(2))

    filter, model = particles(), Featured([], jax.random.key(5))
    xs = np.float32([[0.1, 0.2], [0.3, np.nan], [0.5, 0.6]])
    _, whole = vf.run(filter, model, xs, KEY)
    stream = Stream(filter, model, KEY)
    pushed = push_all(stream, xs[:2])
    stream.save(tmp_path / "featured.stream")
    pushed.append(Stream.restore(tmp_path / "featured.stream", filter, model).push(xs[2]))
    # Rounding of float32: what depends on the key alone is computed before the loop of `run`.
    np.testing.assert_allclose([each.bound for each in pushed], whole.bound, rtol=1e-5)


def test_memory_is_flat():
    stream = Stream(particles(), deep_markov(), KEY)
    xs = np.asarray(observations(MODEL, 50))

    def push_many(count):
        for index in range(count):
            stream.push(xs[index % 50])
        stream.belief.t.block_until_ready()
        gc.collect()
        return len(jax.live_arrays())

    before = push_many(50)
    tracemalloc.start()
    memory = tracemalloc.get_traced_memory()[0]
    after = push_many(1000)
    grown = tracemalloc.get_traced_memory()[0] - memory
    tracemalloc.stop()
    assert stream.t == 1050
    assert after == before
    # One kept Python float for each push would be 24 kB.
    assert grown < 16_000
