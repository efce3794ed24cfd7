"""One training update: parallel over time against one tape through the whole filter."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import subjects
from jax.flatten_util import ravel_pytree
from measure import Race, compiled

import varfilter as vf
from varfilter.experiments import AVF
from varfilter.learning import step_by_step
from varfilter.learning.state import LearnerState, Sequences, guarded_update

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
    network = AVF(hidden_size=8 if quick else 1024, num_iterations=num_iterations)
    inference = network.build(model, subjects.KEY)
    optimizer = optax.adam(1e-4)
    # One step of φ in an update, and frames embedded ahead, for both: the work is the same.
    learner = vf.TimeParallel(theta=optimizer, phi=optimizer, num_phi_steps=1, complete=True)
    state = learner.init(model, vf.VariationalFilter(inference))
    rolls = subjects.piano_rolls(model, 2 if quick else 16, 5 if quick else 25)
    x0, xs = rolls[:, 0], rolls[:, 1:]

    def parallel(state: LearnerState, xs: Any, x0: Any, key: Any) -> Any:
        after, _ = learner.update(state, xs, key, x0=x0)
        return (after.theta_state, after.phi_state), (after.model, after.filter)

    def tape(state: LearnerState, xs: Any, x0: Any, key: Any) -> Any:
        key_filter, _ = jax.random.split(key)  # as the learner does, for the same draws
        batch = Sequences(xs, jnp.ones(xs.shape[:2], bool), x0)
        theta, phi = step_by_step.gradients(
            state.model, state.filter, batch, key_filter, jnp.ones(()), complete=True
        )
        model, theta_state, _ = guarded_update(optimizer, state.theta_state, state.model, theta)
        filter, phi_state, _ = guarded_update(optimizer, state.phi_state, state.filter, phi)
        return (theta_state, phi_state), (model, filter)

    arguments = (state, xs, x0, subjects.KEY)
    contestants = {each.__name__: compiled(each, *arguments)[0] for each in (parallel, tape)}
    states = (state.theta_state, state.phi_state)
    ours, theirs = (_gradients(call(), states) for call in contestants.values())
    difference = jnp.linalg.norm(ours - theirs) / jnp.linalg.norm(theirs)
    race = Race(contestants, num_rounds=3 if quick else 11)
    return {
        "num_iterations": num_iterations,
        "parallel_ms": 1e3 * race.seconds("parallel"),
        "tape_ms": 1e3 * race.seconds("tape"),
        "ratio": race.ratio("tape", to="parallel"),
        "cpu_ratio": race.cpu_ratio("tape", to="parallel"),
        "difference": float(difference),
    }


def _gradients(leaves: list[jax.Array], states: Any) -> jax.Array:
    """Both gradients as one vector (times 0.1): Adam's first moments after its first step."""
    structure = jax.tree.structure(states)
    filled = structure.unflatten(leaves[: structure.num_leaves])
    return ravel_pytree([optax.tree.get(state, "mu") for state in filled])[0]
