"""One training update: parallel over time against one tape through the whole filter."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import subjects
from measure import Race, compiled

import varfilter as vf
from varfilter.learning import step_by_step
from varfilter.learning.state import Learning, Sequences, gradient_norm, guarded_update

TITLES = {"updates": "2. One training update of SRNN: one tape against time-parallel"}
COLUMNS = {
    "updates": [
        ("K", "num_iterations", "{}"),
        ("parallel, ms", "parallel_ms", "{:.1f}"),
        ("tape, ms", "tape_ms", "{:.1f}"),
        ("ratio", "ratio", "{:.2f}"),
        ("in CPU time", "cpu_ratio", "{:.2f}"),
        ("gradients apart", "difference", "{:.0e}"),
    ]
}


def measure(*, quick: bool) -> dict[str, list[dict[str, Any]]]:
    """A row for each number of iterations."""
    return {"updates": [_row(count, quick=quick) for count in ((1,) if quick else (1, 5))]}


def _row(num_iterations: int, *, quick: bool) -> dict[str, Any]:
    model = subjects.music(quick=quick)
    inference = vf.Iterative(
        model, hidden_size=8 if quick else 1024, num_iterations=num_iterations, key=subjects.KEY
    )
    optimizer = optax.adam(1e-4)
    # One step of φ in an update, and frames embedded ahead, for both: the work is the same.
    learner = vf.TimeParallel(theta=optimizer, phi=optimizer, complete=True)
    learning = learner.init(model, vf.VariationalFilter(inference))
    rolls = subjects.piano_rolls(model, 2 if quick else 16, 5 if quick else 25)
    x0, xs = rolls[:, 0], rolls[:, 1:]

    def parallel(learning: Learning, xs: Any, x0: Any, key: Any) -> Any:
        after, metrics = learner.update(learning, xs, key, x0=x0)
        return metrics.theta_gradient_norm, metrics.phi_gradient_norm, after

    def tape(learning: Learning, xs: Any, x0: Any, key: Any) -> Any:
        key_filter, _ = jax.random.split(key)  # as the learner does, for the same draws
        batch = Sequences(xs, jnp.ones(xs.shape[:2], bool), x0)
        theta, phi = step_by_step.gradients(
            learning.model, learning.filter, batch, key_filter, jnp.ones(()), complete=True
        )
        after = (
            guarded_update(optimizer, learning.theta_state, learning.model, theta),
            guarded_update(optimizer, learning.phi_state, learning.filter, phi),
        )
        return gradient_norm(theta), gradient_norm(phi), after

    arguments = (learning, xs, x0, subjects.KEY)
    contestants = {each.__name__: compiled(each, *arguments)[0] for each in (parallel, tape)}
    norms = {name: jnp.stack(call()[:2]) for name, call in contestants.items()}
    difference = jnp.max(jnp.abs(norms["parallel"] / norms["tape"] - 1.0))
    race = Race(contestants, num_rounds=3 if quick else 11)
    return {
        "num_iterations": num_iterations,
        "parallel_ms": 1e3 * race.seconds("parallel"),
        "tape_ms": 1e3 * race.seconds("tape"),
        "ratio": race.ratio("tape", to="parallel"),
        "cpu_ratio": race.cpu_ratio("tape", to="parallel"),
        "difference": float(difference),
    }
