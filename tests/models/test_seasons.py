"""What comes back after a season: a model of changes beyond those of a season before."""

import jax
import jax.numpy as jnp
import numpy as np

import varfilter as vf
import worlds
from refusals import refuses

KEY = jax.random.key(4)
SEASONS, SCALE, DRIFT = (3, None), np.array([0.1, 0.4]), np.array([0.02, 0.0])


def seasonal(model: vf.AbstractModel) -> vf.Differenced:
    return vf.Differenced(
        model,
        SCALE.tolist(),
        drift=DRIFT.tolist(),
        season=SEASONS,
        season_spread=[2.0, 1.0],
    )


def test_after_a_season_it_is_the_model_of_the_changes_beyond_it():
    """p(x_t) = p(c_t) / scale, the first element from x_{t-1} + x_{t-3} - x_{t-4} on."""
    with jax.enable_x64(True):
        model = worlds.linear_gaussian()
        wrapped = seasonal(model)
        x0 = np.array([5.0, -3.0])
        # In the first season spreads are wide: whole turns of the season are in these numbers.
        xs = np.array(vf.generate(wrapped, 12, KEY, x0=x0)[0])
        steps = np.diff(np.concatenate([x0[None], xs]), axis=0)
        beyond = steps[3:, 0] - steps[:-3, 0]
        changes = np.stack([np.concatenate([np.zeros(3), (beyond - DRIFT[0]) / SCALE[0]]),
                            (steps[:, 1] - DRIFT[1]) / SCALE[1]], axis=1)  # fmt: skip
        # q = p, so that the draws of z are the same whatever was seen.
        filter = vf.VariationalFilter(vf.Prior())
        _, found = vf.run(filter, wrapped, xs, KEY, x0=x0)
        _, expected = vf.run(filter, model, changes, KEY)
        expected = np.asarray(expected.bound) - np.log(SCALE).sum()
        np.testing.assert_allclose(np.asarray(found.bound)[3:], expected[3:], atol=1e-9)
        # Before that it is the last value, wider by the spread of its changes.
        state = wrapped.init(jnp.asarray(x0))
        prediction = wrapped.emission(state, model.prior(model.init()).mean)
        assert float(prediction.variance[0]) > 2.0**2


def test_a_season_that_grows_is_predicted_by_the_one_before_it():
    """A trend and a season are known exactly, in the first step after a season and each later."""
    model = seasonal(worlds.linear_gaussian())
    turn = np.array([0.0, 4.0, -1.0])
    x = np.stack([0.5 * np.arange(12) + np.tile(turn, 4), np.zeros(12)], axis=1)
    x = jnp.asarray(x, jnp.float32)
    state = model.init(x[0])
    for t in range(1, 12):
        before, is_known = model._before(state)
        assert bool(is_known[0]) == (t > 3)
        if t > 3:
            np.testing.assert_allclose(before[0], x[t, 0], atol=1e-5)
        state = model.advance(state, model.prior(state).mean, model.embed(x[t]))


def test_a_stream_with_gaps_is_a_run():
    model, filter = seasonal(worlds.linear_gaussian()), vf.ParticleFilter(vf.Prior(), 8)
    xs = np.array(vf.generate(model, 10, KEY)[0])
    xs[5:7, 0] = np.nan
    _, found = vf.run(filter, model, xs, KEY)
    stream = vf.Stream(filter, model, KEY)
    pushed = np.array([float(stream.push(x).bound) for x in xs])
    np.testing.assert_allclose(pushed, found.bound, rtol=1e-5)


def test_seasons_that_make_no_sense_are_refused():
    model = worlds.linear_gaussian()
    one_step = lambda: vf.Differenced(model, [0.1, 0.1], season=[1, None])  # noqa: E731
    refuses(one_step, ValueError, "season[0]", "at least 2 steps", "got 1")
    of_no_change = lambda: vf.Differenced(model, [0.1, None], season=[None, 4])  # noqa: E731
    refuses(of_no_change, ValueError, "season[1]", "that has a `scale`", "got 4")
