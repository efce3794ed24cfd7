"""One push of a small live stream against one step of other people's Kalman filters."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import subjects
from cuthbert.gaussian import kalman as cuthbert_kalman
from filterpy.kalman import KalmanFilter as FilterpyKalman
from measure import Race

import varfilter as vf

TITLES = {"pushes": "3. One observation folded in, LinearGaussian 4 x 2"}
COLUMNS = {
    "pushes": [
        ("filter", "filter", "{}"),
        ("us", "us", "{:.1f}"),
        ("times filterpy", "times_filterpy", "{:.2f}"),
        ("times cuthbert", "times_cuthbert", "{:.2f}"),
    ]
}
Push = Callable[[np.ndarray], Any]


def measure(*, quick: bool) -> dict[str, list[dict[str, Any]]]:
    """A row for each filter; the first three compute the same beliefs, which is checked."""
    model = subjects.small()
    kalman = vf.Stream(vf.KalmanFilter(), model, subjects.KEY)
    iterative = vf.VariationalFilter(vf.Iterative(model, hidden_size=32, key=subjects.KEY))
    avf = vf.Stream(iterative, model, subjects.KEY)
    filterpy, filterpy_mean = _filterpy()
    cuthbert, cuthbert_mean = _cuthbert()
    xs = subjects.observations(64)

    for x in xs:
        filterpy(x)
        cuthbert(x)
        mean = kalman.push(x).posterior.mean
    for other in (filterpy_mean(), cuthbert_mean()):
        # Float32 against float64 and another order of operations: rounding only.
        np.testing.assert_allclose(mean, other, rtol=1e-3, atol=1e-4)

    pushes: dict[str, Push] = {
        "filterpy": filterpy,
        "cuthbert": cuthbert,
        # All results of one compiled step are ready at once, so waiting for one is enough.
        "Stream(KalmanFilter)": lambda x: kalman.push(x).bound.block_until_ready(),
        "Stream(Iterative)": lambda x: avf.push(x).bound.block_until_ready(),
    }
    calls = {name: _endless(push, xs) for name, push in pushes.items()}
    race = Race(calls, num_rounds=5 if quick else 201, num_calls=5 if quick else 20)
    return {
        "pushes": [
            {
                "filter": name,
                "us": 1e6 * race.seconds(name),
                "times_filterpy": race.ratio(name, to="filterpy"),
                "times_cuthbert": race.ratio(name, to="cuthbert"),
            }
            for name in calls
        ]
    }


def _filterpy() -> tuple[Push, Callable[[], np.ndarray]]:
    filter = FilterpyKalman(dim_x=4, dim_z=2)
    filter.F, filter.Q = subjects.TRANSITION, subjects.PROCESS
    filter.H, filter.R = subjects.LOADING, subjects.NOISE

    def push(x: np.ndarray) -> None:
        filter.predict()
        filter.update(x)

    return push, lambda: filter.x[:, 0]


def _cuthbert() -> tuple[Push, Callable[[], np.ndarray]]:
    names = ("TRANSITION", "LOADING")
    transition, loading = (jnp.asarray(getattr(subjects, name), float) for name in names)
    process, noise = (
        jnp.linalg.cholesky(jnp.asarray(each, float)) for each in (subjects.PROCESS, subjects.NOISE)
    )
    filter = cuthbert_kalman.build_filter(
        jnp.zeros(4),
        jnp.eye(4),
        lambda x: (transition, jnp.zeros(4), process),
        lambda x: (loading, jnp.zeros(2), noise, x),
    )

    @jax.jit
    def step(state: Any, x: Any) -> Any:
        return filter.filter_combine(state, filter.filter_prepare(x))

    state = filter.init_prepare()._replace(model_inputs=jnp.zeros(2))

    def push(x: np.ndarray) -> None:
        nonlocal state
        state = step(state, x)
        state.log_normalizing_constant.block_until_ready()

    return push, lambda: np.asarray(state.mean)


def _endless(push: Push, xs: np.ndarray) -> Callable[[], Any]:
    endless = itertools.cycle(xs)
    return lambda: push(next(endless))
