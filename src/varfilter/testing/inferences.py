"""Does an inference method keep its contract, on a given model?"""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._arguments import require_key
from varfilter.contracts import require_model, require_observations
from varfilter.inference.base import AbstractInference, Inferred, Memory
from varfilter.model import AbstractModel, State
from varfilter.objective import free_energy
from varfilter.observation import observe
from varfilter.testing.conformance import Report, Result, Rollout, half_missing, roll_out

MISSING_FIX = "Feed networks `observation.filled`, not `observation.x`."


class Answers(eqx.Module):
    """One inference at every step of a sequence, asked in several ways; time comes first."""

    alone: Inferred  # step by step, each with the memory that the last one left
    batch: Inferred  # all steps at once, with those same memories
    partly: Inferred  # with half of the elements unobserved
    nothing: Inferred  # with all of them unobserved
    revised: Any  # the posterior computed again from the last record
    gradient: Any  # of the summed free energy of `partly`, by the inference's parameters


def check_inference(
    inference: Any,
    model: AbstractModel,
    key: PRNGKeyArray,
    *,
    xs: Any = None,
    num_steps: int = 6,
) -> list[Result]:
    """Ask the inference for posteriors at several steps of the model, alone and in a batch.

    - `key`: of the data that are simulated from the model, and of the inference's own draws.
    - `xs`: optional, (time, *event): check on these observations instead.
    """
    require_key(key)
    require_model(model)
    report = Report(inference)
    report.require(
        "class",
        isinstance(inference, AbstractInference),
        f"`{type(inference).__name__}`",
        "Filters take an `AbstractInference`.",
        "Derive from `varfilter.AbstractInference` and write `infer`.",
    )
    if xs is not None:
        xs = require_observations("xs", xs, model)
    key_data, key = jax.random.split(key)
    rollout = roll_out(model, xs, num_steps, key_data)
    _check_shapes(report, inference, model, rollout.xs[0])
    _check_deterministic(report, inference, model, rollout.xs[0])
    answers = _ask(inference, model, rollout, key)

    report.require_finite(
        "finite",
        (answers.alone.posterior, answers.alone.memory, answers.alone.free_energies),
        "A posterior that is not finite ends the sequence.",
        "Hold q's parameters in range (`varfilter.distributions.stabilised`).",
    )
    report.require_equal(
        "vmap",
        answers.batch,
        answers.alone,
        "In a batch against one by one: a posterior must not depend on its neighbours.",
        "Write `infer` for one example; average nothing over a batch.",
    )
    report.require_finite(
        "missing-some",
        (answers.partly.posterior, answers.partly.memory),
        "Some elements were unobserved (NaN).",
        MISSING_FIX,
    )
    report.require_finite(
        "missing-all",
        (answers.nothing.posterior, answers.nothing.memory),
        "No element was observed. The filter then takes q = p, but a NaN here would still poison"
        " the memory and the gradient.",
        MISSING_FIX,
    )
    if answers.revised is not None:
        report.require_equal(
            "revise",
            answers.revised,
            answers.alone.posterior,
            "`TimeParallel` learns from `revise(record, observation)` in place of `infer`.",
            "Record each iteration's inputs, iterations as first axis, and let `infer` call"
            " `revise`.",
        )
    _check_gradient(report, answers.gradient)
    return report.results


@eqx.filter_jit
def _ask(
    inference: AbstractInference, model: AbstractModel, rollout: Rollout, key: PRNGKeyArray
) -> Answers:
    keys = jax.random.split(key, rollout.xs.shape[0])

    def one(memory: Memory, inputs: Any) -> Any:
        state, x, key = inputs
        inferred = _infer(inference, model, state, memory, x, key)
        return inferred.memory, (memory, inferred)

    inputs = (rollout.states, rollout.xs, keys)
    _, (memories, alone) = jax.lax.scan(one, inference.init(model), inputs)

    def together(inference: AbstractInference, xs: Array) -> Inferred:
        return jax.vmap(lambda *each: _infer(inference, model, *each))(
            rollout.states, memories, xs, keys
        )

    def loss(inference: AbstractInference) -> tuple[Float[Array, ""], Any]:
        nothing = jnp.full_like(rollout.xs, jnp.nan)
        xs = jnp.stack([rollout.xs, half_missing(rollout.xs), nothing])
        answers = jax.vmap(lambda xs: together(inference, xs))(xs)
        whole, partly, none = [jax.tree.map(lambda leaf, i=i: leaf[i], answers) for i in range(3)]
        values = jax.vmap(lambda q, state, x, key: free_energy(q, model, state, x, key).total)(
            partly.posterior, rollout.states, xs[1], keys
        )
        return jnp.sum(values), (whole, partly, none)

    def again(record: Any, state: State, x: Array) -> Any:
        last = jax.tree.map(lambda leaf: leaf[-1], record)
        return inference.revise(last, observe(model, state, x))

    revised = None
    if alone.record is not None:
        revised = jax.vmap(again)(alone.record, rollout.states, rollout.xs)
    gradient, answers = eqx.filter_grad(loss, has_aux=True)(inference)
    whole, partly, none = answers
    return Answers(alone, whole, partly, none, revised, gradient)


def _infer(
    inference: AbstractInference,
    model: AbstractModel,
    state: State,
    memory: Memory,
    x: Float[Array, " *event"],
    key: PRNGKeyArray,
) -> Inferred:
    return inference.infer(model, state, memory, observe(model, state, x), key)


def _check_shapes(
    report: Report, inference: AbstractInference, model: AbstractModel, x: Array
) -> None:
    def first(x: Array) -> Any:
        state, memory = model.init(None), inference.init(model)
        inferred = _infer(inference, model, state, memory, x, jax.random.key(0))
        return model.prior(state), memory, inferred

    with report.refusals(
        "infer",
        "It was called with the model's first state and one observation.",
        "See `varfilter.AbstractInference`; was it built for this model?",
    ):
        prior, memory, inferred = eqx.filter_eval_shape(first, x)
    report.require(
        "inferred",
        isinstance(inferred, Inferred),
        f"`{type(inferred).__name__}`",
        "A filter reads the posterior, the memory and the record from `Inferred`.",
        "Return `Inferred(posterior, memory, free_energies)`.",
    )
    report.require_structure(
        "posterior-structure",
        inferred.posterior,
        prior,
        "A step without an observation takes q = p, so the two must be interchangeable.",
        "Return the family that `model.prior` returns, with its shapes.",
    )
    report.require_structure(
        "memory-structure",
        inferred.memory,
        memory,
        "The memory goes round a loop over time.",
        "Return it from `infer` with the structure and shapes that `init` gives it.",
    )


def _check_deterministic(
    report: Report, inference: AbstractInference, model: AbstractModel, x: Array
) -> None:
    def program() -> Any:
        # A new function each time, or JAX would return the first trace again.
        def first(x: Array, key: PRNGKeyArray) -> Any:
            state, memory = model.init(None), inference.init(model)
            return jax.tree.leaves(_infer(inference, model, state, memory, x, key))

        closed = jax.make_jaxpr(first)(x, jax.random.key(0))
        return re.sub(r"0x[0-9a-f]+", "", str(closed.jaxpr)), closed.consts

    (text, constants), (other_text, other_constants) = program(), program()
    same = text == other_text and len(constants) == len(other_constants)
    same = same and all(
        np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True)
        for a, b in zip(constants, other_constants, strict=True)
        if eqx.is_inexact_array_like(a)
    )
    report.require(
        "deterministic",
        same,
        "another computation when it was traced a second time",
        "Given the key, a posterior is determined; the library may trace `infer` at any time.",
        "Draw all randomness from `key`, and keep no state outside the memory.",
    )


def _check_gradient(report: Report, gradient: Any) -> None:
    if not jax.tree.leaves(gradient):
        return
    report.require_finite(
        "gradient-phi",
        gradient,
        "Learning needs dF/dφ, also where elements are unobserved.",
        "Look for a square root, logarithm or norm at zero, or a `jnp.where` that hides one.",
    )
    report.require(
        "gradient-phi-nonzero",
        any(bool(np.any(np.asarray(leaf) != 0)) for leaf in jax.tree.leaves(gradient)),
        "a gradient that is zero everywhere",
        "The posterior must depend on the inference's parameters, or nothing is learned.",
        "Do not detach what the network returns.",
    )
