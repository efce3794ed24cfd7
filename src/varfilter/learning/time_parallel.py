"""Learning parallel over time: filter without a tape, then learn all steps at once.

AVF is local: q_t learns from F_t alone and the z_t passed on is cut from the graph. So the
gradient of the step-by-step loop (`step_by_step.py`) splits into three parts, none of which
needs a tape through the filter: memory does not grow with the iterations, and the networks
see all steps and sequences in one large product instead of T small ones.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray

from varfilter._ahead import scan_ahead
from varfilter._arguments import require_positive, require_weight
from varfilter.devices import spread
from varfilter.filtering import FIRST, Belief, scan_steps
from varfilter.filters.base import AbstractFilter
from varfilter.filters.variational import VariationalCarry, VariationalFilter
from varfilter.inference.base import AbstractInference
from varfilter.learning.dropout import Dropout, dropped
from varfilter.learning.recurrence import Transition, recurrence_gradient
from varfilter.learning.state import (
    LearnerState,
    Metrics,
    Sequences,
    finish,
    gradient_norm,
    guarded_update,
    init_state,
    masked_mean,
    require_optimizers,
    require_sequences,
)
from varfilter.model import AbstractModel, Latent, State, driven
from varfilter.objective import FreeEnergy, free_energy
from varfilter.observation import Observation, draw_missing, embed_ahead, fill_first


class TimeParallel(eqx.Module):
    """The learner for local inferences (`Iterative`, `GradientDescent`, `Prior`, `Exact`).

    - `theta`, `phi`: optax optimizers of the model and of the inference; None holds it fixed.
    - `num_phi_steps`: optimizer steps of φ per update, each on its own random slice of the
      recorded problems. φ has to keep up with a moving θ: with 1 it may never catch up, and the
      latent is given up. One for each time step is what the original code makes.
    - `complete`: a promise that no element is missing, so that frames are embedded at once.
    - `dropout`: leaves some of the model's weights out of each update.
    """

    theta: optax.GradientTransformation | None
    phi: optax.GradientTransformation | None
    num_phi_steps: int = eqx.field(static=True)
    complete: bool = eqx.field(static=True)
    dropout: Dropout | None

    def __init__(
        self,
        *,
        theta: optax.GradientTransformation | None,
        phi: optax.GradientTransformation | None,
        num_phi_steps: int = 8,
        complete: bool = False,
        dropout: Dropout | None = None,
    ):
        require_optimizers(theta, phi)
        self.theta = theta
        self.phi = phi
        self.num_phi_steps = require_positive("num_phi_steps", num_phi_steps)
        self.complete = complete
        self.dropout = dropout

    def init(self, model: AbstractModel, filter: AbstractFilter) -> LearnerState:
        """Begin, with fresh optimizers; filters that are not local are refused."""
        state = init_state(model, filter, self.theta, self.phi)
        require_local(filter)
        return state

    def update(
        self,
        state: LearnerState,
        xs: Any,
        key: PRNGKeyArray,
        *,
        mask: Any = None,
        x0: Any = None,
        us: Any = None,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> tuple[LearnerState, Metrics]:
        """Update θ once and φ `num_phi_steps` times, on a batch (batch, time, *event).

        `us`, (batch, time, inputs), are the known inputs of a model that has them.
        """
        batch = require_sequences(state, xs, mask, x0, us, key, complete=self.complete)
        return _update(self, state, batch, key, require_weight("kl_weight", kl_weight))


class Problem(eqx.Module):
    """One step of one sequence as the filter met it: all that learning it needs.

    Of x_t, `filled` is what the inference saw (missing elements as predicted), and `told` what
    the recurrence took in (missing elements as drawn).
    """

    state: State
    u: Float[Array, " inputs"] | None
    x: Float[Array, " *event"]
    filled: Float[Array, " *event"]
    told: Float[Array, " *event"]
    posterior: Any
    z: Latent
    record: Any
    key: PRNGKeyArray
    exists: Bool[Array, ""]
    is_seen: Bool[Array, ""]


class Scored(eqx.Module):
    """What learning θ found on its way at each step: the prior of z_t, and F_t at the final q_t."""

    prior: Any
    free_energy: FreeEnergy


def require_local(filter: AbstractFilter) -> VariationalFilter:
    """Refuse all but a variational filter whose inference learns from each step alone."""
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
    learner: TimeParallel,
    state: LearnerState,
    batch: Sequences,
    key: PRNGKeyArray,
    kl_weight: Array,
) -> tuple[LearnerState, Metrics]:
    model, pull_back = eqx.filter_vjp(
        lambda model: dropped(model, learner.dropout, state.num_updates, key), state.model
    )
    filter = require_local(state.filter)
    key_filter, key_slices = jax.random.split(key)
    problems, x0, free_energies = record_problems(
        model, filter, batch, key_filter, kl_weight, complete=learner.complete
    )
    theta_gradient, scored = theta_gradients(model, filter, x0, problems, kl_weight)
    (theta_gradient,) = pull_back(theta_gradient)
    model_after, theta_state, skipped = guarded_update(
        learner.theta, state.theta_state, state.model, theta_gradient
    )
    num_skipped = skipped.astype(jnp.int32)

    phi_norm = jnp.zeros(())
    phi_state = state.phi_state
    if learner.phi is not None and problems.record is not None:
        slices = _random_slices((problems, scored), learner.num_phi_steps, key_slices)

        def phi_step(carry: Any, piece: Any) -> Any:
            filter, phi_state = carry
            problems, scored = piece
            gradient = phi_gradients(filter, model, problems, scored, kl_weight)
            filter, phi_state, skipped = guarded_update(learner.phi, phi_state, filter, gradient)
            return (filter, phi_state), (gradient_norm(gradient), skipped.astype(jnp.int32))

        dynamic, static = eqx.partition((filter, phi_state), eqx.is_array)

        def scanned(dynamic: Any, piece: Any) -> Any:
            carry, outputs = phi_step(eqx.combine(dynamic, static), piece)
            return eqx.filter(carry, eqx.is_array), outputs

        dynamic, (norms, skips) = _scan(scanned, dynamic, slices)
        filter, phi_state = eqx.combine(dynamic, static)
        phi_norm, num_skipped = jnp.mean(norms), num_skipped + jnp.sum(skips)

    final = scored.free_energy
    free_energies = jnp.concatenate([free_energies, final.total[..., None]], axis=-1)
    reported = Metrics(
        free_energy=masked_mean(final.total, batch.mask),
        reconstruction=masked_mean(final.reconstruction, batch.mask),
        kl=masked_mean(final.kl, batch.mask),
        free_energies=masked_mean(free_energies, batch.mask),
        theta_gradient_norm=gradient_norm(theta_gradient),
        phi_gradient_norm=phi_norm,
        num_skipped=num_skipped,
    )
    after = finish(state, model_after, filter, theta_state, phi_state, num_skipped)
    return after, reported


def record_problems(
    model: AbstractModel,
    filter: VariationalFilter,
    batch: Sequences,
    key: PRNGKeyArray,
    kl_weight: Array,
    *,
    complete: bool,
) -> tuple[Problem, Float[Array, "batch *event"] | None, Float[Array, "batch time iterates"]]:
    """Part 1: filter without a tape; every field gets the axes (batch, time).

    Also returns the first frames with what was missing of them drawn, and F_t by iteration but
    for the last, which part 2 computes from the same draw.
    """

    def sequence(
        xs: Array, mask: Array, x0: Array | None, us: Array | None, key: PRNGKeyArray
    ) -> Any:
        def take(belief: Belief, x_and_u: Any, exists: Array, key: PRNGKeyArray) -> Any:
            x, u = x_and_u
            carry = filter.drive(model, belief.carry, u)
            trace = filter.trace(model, carry, x, key, kl_weight=kl_weight)
            seen = trace.observation
            told = draw_missing(model, carry.state, trace.z, x, trace.key)
            problem = Problem(
                belief.carry.state, u, seen.x, seen.filled, told.filled, trace.posterior, trace.z,
                trace.inferred.record, trace.key, exists, exists & seen.is_seen,
            )  # fmt: skip
            state = model.advance(carry.state, trace.z, told.features)
            after = VariationalCarry(state, trace.inferred.memory)
            return after, (problem, filter.earlier_free_energies(trace))

        first = Belief(filter.init(model, x0), jnp.zeros((), jnp.int32))
        seen = embed_ahead(model, xs) if complete else xs
        return scan_steps(take, first, (seen, us), mask, key, _scan)[1]

    keys = jax.random.split(key, batch.xs.shape[0])
    x0 = drawn_first(model, batch.x0, keys)
    problems, free_energies = jax.vmap(sequence)(batch.xs, batch.mask, x0, batch.us, keys)
    return problems, x0, free_energies


def drawn_first(
    model: AbstractModel, x0: Float[Array, "batch *event"] | None, keys: Key[Array, " batch"]
) -> Float[Array, "batch *event"] | None:
    """Draw what is missing of each sequence's first frame, as `start` does with its key."""
    if x0 is None:
        return None

    def drawn(x0: Array, key: PRNGKeyArray) -> Any:
        return fill_first(model, x0, jax.random.fold_in(jax.random.fold_in(key, 0), FIRST))

    return jax.vmap(drawn)(x0, keys)


def theta_gradients(
    model: AbstractModel,
    filter: VariationalFilter,
    x0: Float[Array, "batch *event"] | None,
    problems: Problem,
    kl_weight: Array,
) -> tuple[Any, Scored]:
    """Part 2: d/dθ of the mean F_t at the final q_t, directly and through the recurrence."""

    def loss(free: Any, fixed: Any) -> Any:
        model, states = eqx.combine(free, fixed)

        def step_loss(problem: Problem, state: State) -> Scored:
            state = driven(model, state, problem.u)
            prior = model.prior(state)
            return Scored(prior, free_energy(
                problem.posterior, model, state, problem.x, problem.key,
                prior=prior, num_samples=filter.num_samples, kl_weight=kl_weight,
            ))  # fmt: skip

        scored = jax.vmap(jax.vmap(step_loss))(problems, states)
        return masked_mean(scored.free_energy.total, problems.exists), scored

    free, fixed = eqx.partition((model, problems.state), eqx.is_inexact_array)
    (direct, of_states), scored = jax.grad(loss, has_aux=True)(free, fixed)
    transitions = Transition(problems.state, problems.u, problems.z, problems.told, problems.exists)
    through_states = recurrence_gradient(model, x0, transitions, of_states)
    return jax.tree.map(jnp.add, direct, through_states), scored


def phi_gradients(
    filter: VariationalFilter,
    model: AbstractModel,
    problems: Problem,
    scored: Scored,
    kl_weight: Array,
) -> Any:
    """Part 3: d/dφ of the mean over problems and iterations of F_t(revised q), θ fixed.

    `problems` and `scored` have one leading axis: steps of any sequences, in any order.
    """

    def loss(filter: VariationalFilter) -> Float[Array, ""]:
        each = jax.vmap(lambda p, prior: inference_loss(filter, model, p, prior, kl_weight))
        return masked_mean(each(problems, scored.prior), problems.is_seen)

    return eqx.filter_grad(loss)(filter)


def inference_loss(
    filter: VariationalFilter,
    model: AbstractModel,
    problem: Problem,
    prior: Any,
    kl_weight: Array,
) -> Float[Array, ""]:
    """The mean over iterations k of F_t(revise(q_k, signal_k)): what φ minimises at one step."""
    inference: AbstractInference = filter.inference
    # Recurrent features are not the inference's to change: it sees x_t through `filled` alone.
    observation = Observation(problem.x, problem.filled, None)
    state = driven(model, problem.state, problem.u)
    num_iterations = jax.tree.leaves(problem.record)[0].shape[0]

    def iteration_loss(record: Any, index: Array) -> Float[Array, ""]:
        q = inference.revise(record, observation)
        return free_energy(
            q, model, state, problem.x, jax.random.fold_in(problem.key, index),
            prior=prior, num_samples=filter.num_samples, kl_weight=kl_weight,
        ).total  # fmt: skip

    return jnp.mean(jax.vmap(iteration_loss)(problem.record, jnp.arange(num_iterations)))


def _scan(step: Any, init: Any, xs: Any) -> Any:
    """Loop without a tape: what is to be learned of the steps is learned from what they leave."""
    return scan_ahead(step, init, xs, has_gradient=False)


def _random_slices(tree: Any, num_slices: int, key: PRNGKeyArray) -> Any:
    """Cut (batch, time, ...) into (num_slices, size, ...): each problem once, at random.

    Where the count does not divide, the last slice is filled up with further random problems.
    """
    batch, time = jax.tree.leaves(tree)[0].shape[:2]
    count = batch * time
    size = -(-count // num_slices)
    order = jnp.resize(jax.random.permutation(key, count), (num_slices, size))

    def cut(leaf: Array) -> Array:
        flat = leaf.reshape(count, *leaf.shape[2:])
        return flat[None] if num_slices == 1 else flat[order]

    # A slice takes problems from all devices: unless told otherwise, each would learn all of it.
    return spread(jax.tree.map(cut, tree), axis=1)
