"""Learning parallel over time: filter without a tape, replay, learn all steps at once.

AVF is local: q_t learns from F_t alone and the z_t passed on is cut from the graph. So the
gradient of the step-by-step loop (`step_by_step.py`) splits into three parts that need no
tape through the filter: memory does not grow with the iterations, and the networks see all
steps and sequences in one large product instead of T small ones.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from varfilter._tree import detach, select
from varfilter.filtering import Belief
from varfilter.filters.base import AbstractFilter
from varfilter.filters.variational import VariationalFilter
from varfilter.inference.base import AbstractInference, require_positive
from varfilter.learning.state import (
    Learning,
    Metrics,
    Sequences,
    finish,
    gradient_norm,
    guarded_update,
    init_learning,
    masked_mean,
    require_sequences,
)
from varfilter.model import AbstractModel, Latent, State
from varfilter.objective import free_energy
from varfilter.observation import Observation, condition, embed_ahead


class TimeParallel(eqx.Module):
    """The learner for local inferences (`Iterative`, `GradientDescent`, `Prior`, `Exact`).

    - `theta`, `phi`: optax optimizers of the model and of the inference; None holds it fixed.
    - `num_phi_steps`: optimizer steps of φ per update, each on its own random slice of the
      recorded problems. φ has to keep up with a moving θ: one step for each time step, as in
      the original code, is a good choice for long training.
    - `complete`: a promise that no element is missing, so that frames are embedded at once.
    """

    theta: optax.GradientTransformation | None = eqx.field(static=True)
    phi: optax.GradientTransformation | None = eqx.field(static=True)
    num_phi_steps: int = eqx.field(static=True)
    complete: bool = eqx.field(static=True)

    def __init__(
        self,
        *,
        theta: optax.GradientTransformation | None,
        phi: optax.GradientTransformation | None,
        num_phi_steps: int = 1,
        complete: bool = False,
    ):
        self.theta = theta
        self.phi = phi
        self.num_phi_steps = require_positive("num_phi_steps", num_phi_steps)
        self.complete = complete

    def init(self, model: AbstractModel, filter: AbstractFilter) -> Learning:
        """Begin; refuses filters that are not local."""
        require_local(filter)
        return init_learning(model, filter, self.theta, self.phi)

    def update(
        self,
        learning: Learning,
        xs: Any,
        key: PRNGKeyArray,
        *,
        mask: Any = None,
        x0: Any = None,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> tuple[Learning, Metrics]:
        """One update of θ and `num_phi_steps` of φ on a batch (batch, time, *event)."""
        batch = require_sequences(learning.model, xs, mask, x0, key)
        return _update(self, learning, batch, key, jnp.asarray(kl_weight, batch.xs.dtype))


class Problem(eqx.Module):
    """One step of one sequence as the filter met it: all that learning it needs."""

    x: Float[Array, " *event"]
    filled: Float[Array, " *event"]
    posterior: Any
    z: Latent
    record: Any
    key: PRNGKeyArray
    exists: Bool[Array, ""]
    is_seen: Bool[Array, ""]


def require_local(filter: AbstractFilter) -> VariationalFilter:
    """A variational filter whose inference learns from each step alone."""
    if not isinstance(filter, VariationalFilter) or not filter.inference.is_local:
        inner = getattr(filter, "inference", None)
        name = type(filter).__name__ + (f"({type(inner).__name__})" if inner is not None else "")
        raise TypeError(
            f"`TimeParallel` needs a `VariationalFilter` with a local inference; got `{name}`."
            " Use `EndToEnd(...)`: its gradient runs through all steps."
        )
    return filter


@eqx.filter_jit
def _update(
    learner: TimeParallel, learning: Learning, batch: Sequences, key: PRNGKeyArray, kl_weight: Array
) -> tuple[Learning, Metrics]:
    model = learning.model
    filter = require_local(learning.filter)
    key_filter, key_slices = jax.random.split(key)
    problems, metrics = record_problems(
        model, filter, batch, key_filter, kl_weight, complete=learner.complete
    )
    theta_gradient, states = theta_gradients(model, filter, batch.x0, problems, kl_weight)
    model_after, theta_state, skipped = guarded_update(
        learner.theta, learning.theta_state, model, theta_gradient
    )
    num_skipped = skipped.astype(jnp.int32)

    phi_norm = jnp.zeros(())
    phi_state = learning.phi_state
    if learner.phi is not None and problems.record is not None:
        slices = _random_slices((problems, states), learner.num_phi_steps, key_slices)

        def phi_step(carry: Any, piece: Any) -> Any:
            filter, phi_state = carry
            gradient = phi_gradients(filter, model, *piece, kl_weight)
            filter, phi_state, skipped = guarded_update(learner.phi, phi_state, filter, gradient)
            return (filter, phi_state), (gradient_norm(gradient), skipped.astype(jnp.int32))

        dynamic, static = eqx.partition((filter, phi_state), eqx.is_array)

        def scanned(dynamic: Any, piece: Any) -> Any:
            carry, outputs = phi_step(eqx.combine(dynamic, static), piece)
            return eqx.filter(carry, eqx.is_array), outputs

        dynamic, (norms, skips) = jax.lax.scan(scanned, dynamic, slices)
        filter, phi_state = eqx.combine(dynamic, static)
        phi_norm, num_skipped = jnp.mean(norms), num_skipped + jnp.sum(skips)

    reported = Metrics(
        **metrics,
        theta_gradient_norm=gradient_norm(theta_gradient),
        phi_gradient_norm=phi_norm,
        num_skipped=num_skipped,
    )
    after = finish(learning, model_after, filter, theta_state, phi_state, num_skipped)
    return after, reported


def record_problems(
    model: AbstractModel,
    filter: VariationalFilter,
    batch: Sequences,
    key: PRNGKeyArray,
    kl_weight: Array,
    *,
    complete: bool,
) -> tuple[Problem, dict[str, Array]]:
    """Part 1: filter without a tape; every field gets the axes (batch, time)."""

    def sequence(xs: Array, mask: Array, x0: Array | None, key: PRNGKeyArray) -> Any:
        def step(belief: Belief, inputs: Any) -> Any:
            x, exists = inputs
            key_t = jax.random.fold_in(key, belief.t)
            trace = filter.trace(model, belief.carry, x, key_t, kl_weight=kl_weight)
            after = Belief(filter.advance(model, belief.carry, trace), belief.t + 1)
            seen = trace.observation
            problem = Problem(
                seen.x, seen.filled, trace.posterior, trace.z, trace.inferred.record,
                trace.key, exists, exists & seen.is_seen,
            )  # fmt: skip
            values = trace.free_energy
            parts = (values.total, values.reconstruction, values.kl, filter.free_energies(trace))
            return select(exists, after, belief), (problem, parts)

        start = Belief(filter.init(model, x0), jnp.zeros((), jnp.int32))
        inputs = embed_ahead(model, xs) if complete else xs
        return jax.lax.scan(step, start, (inputs, mask))[1]

    keys = jax.random.split(key, batch.xs.shape[0])
    problems, parts = jax.vmap(sequence)(batch.xs, batch.mask, batch.x0, keys)
    names = ("free_energy", "reconstruction", "kl", "free_energies")
    means = [masked_mean(part, batch.mask) for part in parts]
    return problems, dict(zip(names, means, strict=True))


def theta_gradients(
    model: AbstractModel,
    filter: VariationalFilter,
    x0: Float[Array, "batch *event"] | None,
    problems: Problem,
    kl_weight: Array,
) -> tuple[Any, State]:
    """Parts 2 and 3 for θ: replay the recurrence, then d/dθ of the mean F_t at the final q_t.

    Also returns the model's state before each step, (batch, time, ...).
    """

    def loss(model: AbstractModel) -> Any:
        states = jax.vmap(lambda x0, sequence: _replay(model, x0, sequence))(x0, problems)

        def step_loss(problem: Problem, state: State) -> Float[Array, ""]:
            return free_energy(
                problem.posterior, model, state, problem.x, problem.key,
                num_samples=filter.num_samples, kl_weight=kl_weight,
            ).total  # fmt: skip

        values = jax.vmap(jax.vmap(step_loss))(problems, states)
        return masked_mean(values, problems.exists), states

    gradient, states = eqx.filter_grad(loss, has_aux=True)(model)
    return gradient, detach(states)  # φ learns with the model fixed


def phi_gradients(
    filter: VariationalFilter,
    model: AbstractModel,
    problems: Problem,
    states: State,
    kl_weight: Array,
) -> Any:
    """Part 3 for φ: d/dφ of the mean over problems and iterations of F_t(revised q), θ fixed.

    `problems` and `states` have one leading axis: steps of any sequences, in any order.
    """

    def loss(filter: VariationalFilter) -> Float[Array, ""]:
        each = jax.vmap(lambda p, s: inference_loss(filter, model, p, s, kl_weight))
        return masked_mean(each(problems, states), problems.is_seen)

    return eqx.filter_grad(loss)(filter)


def inference_loss(
    filter: VariationalFilter,
    model: AbstractModel,
    problem: Problem,
    state: State,
    kl_weight: Array,
) -> Float[Array, ""]:
    """The mean over iterations k of F_t(revise(q_k, signal_k)): what φ minimises at one step."""
    inference: AbstractInference = filter.inference
    # Recurrent features are not the inference's to change: it sees x_t through `filled` alone.
    observation = Observation(problem.x, problem.filled, None)
    num_iterations = jax.tree.leaves(problem.record)[0].shape[0]

    def iteration_loss(record: Any, index: Array) -> Float[Array, ""]:
        q = inference.revise(record, observation)
        return free_energy(
            q, model, state, problem.x, jax.random.fold_in(problem.key, index),
            num_samples=filter.num_samples, kl_weight=kl_weight,
        ).total  # fmt: skip

    return jnp.mean(jax.vmap(iteration_loss)(problem.record, jnp.arange(num_iterations)))


def _replay(model: AbstractModel, x0: Array | None, problems: Problem) -> State:
    """The states before each step of one sequence, from the recorded z_t and x_t."""
    features = jax.vmap(model.embed)(problems.filled)

    def step(state: State, inputs: Any) -> Any:
        z, features, exists = inputs
        return select(exists, model.advance(state, z, features), state), state

    inputs = (problems.z, features, problems.exists)
    return jax.lax.scan(step, model.init(condition(model, x0)), inputs)[1]


def _random_slices(tree: Any, num_slices: int, key: PRNGKeyArray) -> Any:
    """(batch, time, ...) as (num_slices, size, ...): each problem once, in random order.

    Where the count does not divide, the last slice is filled up with further random problems.
    """
    batch, time = jax.tree.leaves(tree)[0].shape[:2]
    count = batch * time
    size = -(-count // num_slices)
    order = jnp.arange(count) if num_slices == 1 else jax.random.permutation(key, count)
    order = jnp.resize(order, (num_slices, size))

    def cut(leaf: Array) -> Array:
        return leaf.reshape(count, *leaf.shape[2:])[order]

    return jax.tree.map(cut, tree)
