"""Does a model keep its contract? Its shapes, missing data, gradients and purity are checked."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter import distributions
from varfilter._arguments import listed, require_key
from varfilter.contracts import first_step, require_model, require_observations
from varfilter.distributions import is_distribution, is_reparameterisable, kl
from varfilter.inference import Amortized, Exact, GradientDescent, Iterative, Prior, Recurrent
from varfilter.inference.base import draws_without_gradient, undeclared_families
from varfilter.model import AbstractModel, Latent, State, driven
from varfilter.testing.conformance import (
    Report,
    Result,
    Rollout,
    deviation,
    half_missing,
    on_host,
    roll_out,
    row,
    stacked,
    tolerance,
)

INFERENCES = (Iterative, GradientDescent, Amortized, Recurrent, Exact, Prior)
PURE = "The library compiles each function once and calls it for every step, sample and sequence."
PURE_FIX = "Compute from the arguments alone: no global state, no random numbers of your own."
NAN = "NaN marks an unobserved element, which must add nothing to the score."
NAN_FIX = (
    "In `log_prob`, `fill` the missing elements before computing, and sum with"
    " `jnp.where(observed(x), terms, 0.0)`."
)


def check_model(
    model: Any, key: PRNGKeyArray, *, xs: Any = None, num_steps: int = 6
) -> list[Result]:
    """Run the model's five functions through all that the library will ask of them.

    - `key`: of the data that are simulated from the model itself, and of the latents.
    - `xs`: optional, (time, *event): check on these observations instead.

    The last result, `inferences`, says in its `note` which inferences fit the model.
    """
    require_key(key)
    report = Report(model)
    with report.refusals(
        "contract",
        "A model's functions must exist and take what the others return.",
        "See `varfilter.AbstractModel`.",
    ):
        require_model(model)
    if xs is not None:
        xs = require_observations("xs", xs, model)
    _check_shapes(report, model)
    rollout = roll_out(model, xs, num_steps, key)
    _check_state(report, rollout)
    answers = _asked(model, rollout)
    _check_finite(report, answers)
    _check_pure(report, model, rollout, answers)
    _check_missing(report, answers)
    _check_draws(report, model)
    _check_gradients(report, model, rollout)
    _check_drive(report, model, rollout)
    report.note("inferences", fitting_inferences(model))
    return report.results


def fitting_inferences(model: AbstractModel) -> str:
    """List the inferences that take this model, and say why if not all variational ones do."""
    names = []
    for inference in INFERENCES:
        try:
            inference.require_fitting(model)
        except TypeError:
            continue
        names.append(inference.__name__)
    families = draws_without_gradient(model)
    reason = f" (the draws of {listed(families)} cannot be reparameterised)" if families else ""
    return ", ".join(names) + reason


def _check_drive(report: Report, model: AbstractModel, rollout: Rollout) -> None:
    if rollout.us is None:
        return
    state, _, _ = rollout.at(-1)
    u, other = (jnp.asarray(np.asarray(rollout.us)[i]) for i in (-1, 0))
    drive = eqx.filter_jit(model.drive)
    once = on_host(drive(state, u))
    report.require_equal(
        "drive-deterministic",
        on_host(model.drive(state, u)),
        once,
        f"Called twice. {PURE}",
        PURE_FIX,
    )
    changed = deviation(on_host(drive(state, other)), once)[0]
    report.require(
        "drive-effect",
        changed > 0,
        "the same state for two different inputs",
        "What `drive` folds in is all that the model knows of an input.",
        "Keep u_t in the state, or move the state by it.",
    )


def _check_shapes(report: Report, model: AbstractModel) -> None:
    def first() -> Any:
        state = model.init(None)
        prior = model.prior(state)
        z = distributions.sample(prior, jax.random.key(0))
        emission = model.emission(state, z)
        x = emission.sample(jax.random.key(0))
        target = jnp.zeros(emission.shape)
        return z, distributions.mean(prior), x, target

    with report.refusals(
        "sample",
        "The prior and the emission are sampled in every step.",
        "Give their family a `sample(key)`.",
    ):
        z, mean, x, target = eqx.filter_eval_shape(first)
    reason = "A draw stands where the mean stands: as the latent, or as an observation."
    fix = "Return floats of the distribution's `shape` from `sample`."
    report.require_structure("prior-sample", z, mean, reason, fix)
    report.require_structure("emission-sample", x, target, reason, fix)


class Answers(eqx.Module):
    """A model's functions at all steps of a sequence at once; time comes first."""

    log_probs: Any  # of each z_t and of each x_t
    divergences: Any  # KL(p || p) of each prior, where there is a formula
    functions: Any  # the four functions of a step
    embedded: Any  # the features of the observations
    beside_others: Any  # the same, of which only the first was not exchanged
    scores: Float[Array, "variants time"]  # log p(x_t | z_t) of observations with elements missing


def _functions(model: AbstractModel, state: State, z: Latent, x: Array) -> Any:
    features = model.embed(x)
    after = model.advance(state, z, features)
    return model.prior(state), model.emission(state, z), features, after


@eqx.filter_jit
def _ask(
    model: AbstractModel,
    rollout: Rollout,
    neighbours: Float[Array, "time *event"],
    variants: Float[Array, "variants time *event"],
) -> Answers:
    """All that is asked of a whole sequence: one program, since compiling takes all the time."""

    def score(state: State, z: Latent, x: Array) -> Float[Array, ""]:
        return distributions.log_prob(model.emission(state, z), x)

    steps = (rollout.states, rollout.zs, rollout.xs)
    priors = jax.vmap(model.prior)(rollout.states)
    divergences = None
    if distributions.has_analytic_kl(priors, priors):
        divergences = jax.vmap(lambda p: kl(p, p))(priors)
    return Answers(
        log_probs=jax.vmap(lambda s, z, x: _log_probs(model, s, z, x))(*steps),
        divergences=divergences,
        functions=jax.vmap(lambda s, z, x: _functions(model, s, z, x))(*steps),
        embedded=jax.vmap(model.embed)(rollout.xs),
        beside_others=jax.vmap(model.embed)(neighbours),
        scores=jax.vmap(lambda xs: jax.vmap(score)(rollout.states, rollout.zs, xs))(variants),
    )


def _check_state(report: Report, rollout: Rollout) -> None:
    report.require_finite(
        "state-finite",
        (rollout.states, rollout.last),
        f"The state must stay finite; it was advanced {rollout.xs.shape[0]} times.",
        "Bound what `advance` returns, or make the transition contract. Where it returns z, see"
        " `prior` too.",
    )
    has_latents = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(rollout.zs))
    name = "emission" if has_latents else "prior"
    report.require_finite(
        "sample-finite",
        {"z": rollout.zs} if name == "prior" else {"x": rollout.xs},
        f"What is drawn from `{name}` must be finite.",
        f"See `{name}`: which mean, variance or logit is NaN or infinite?",
    )


def _asked(model: AbstractModel, rollout: Rollout) -> Answers:
    xs = np.asarray(rollout.xs)
    others = np.roll(xs, 1, axis=0)
    neighbours = np.concatenate([xs[:1], others[1:]])
    odd = half_missing(xs)
    is_seen = ~np.isnan(odd)
    missing = np.asarray(np.nan, xs.dtype)
    even = np.where(is_seen, missing, xs)
    mixed = [np.where(is_seen, xs, others), np.where(is_seen, others, xs)]
    variants = np.stack([xs, others, np.full_like(xs, np.nan), odd, even, *mixed])
    return on_host(_ask(model, rollout, jnp.asarray(neighbours), jnp.asarray(variants)))


def _check_finite(report: Report, answers: Answers) -> None:
    report.require_finite(
        "log-prob-finite",
        answers.log_probs,
        "A sequence that the model itself produced must have a finite log-probability.",
        "Clip log-variances and logits (`stabilised`); check the observations' range.",
    )
    if answers.divergences is not None:
        report.require_equal(
            "kl-self",
            answers.divergences,
            np.zeros_like(answers.divergences),
            "KL(p || p) is zero: a step that learns nothing must cost nothing.",
            "Check the prior's parameters: is its variance positive and finite?",
        )


def _check_pure(report: Report, model: AbstractModel, rollout: Rollout, answers: Answers) -> None:
    one = rollout.at(-1)
    eager = _functions(model, *one)
    report.require_equal(
        "deterministic", _functions(model, *one), eager, f"Called twice. {PURE}", PURE_FIX
    )
    compiled = eqx.filter_jit(_functions)
    report.require_equal(
        "jit", compiled(model, *one), eager, f"Compiled against not compiled. {PURE}", PURE_FIX
    )
    report.require_equal(
        "vmap",
        answers.functions,
        stacked([compiled(model, *rollout.at(t)) for t in range(rollout.xs.shape[0])]),
        "Steps at once against one by one: each must depend on its own inputs alone.",
        "Write the functions for one step; use no named axes and no callbacks that mix a batch.",
    )
    report.require_equal(
        "embed-alone",
        row(answers.beside_others, 0),
        row(answers.embedded, 0),
        "`embed` sees x_t alone; here its neighbours in the batch were exchanged.",
        "Move what needs other steps to `advance`.",
    )


def _check_missing(report: Report, answers: Answers) -> None:
    whole, other, none, some, rest, left, right = answers.scores
    report.require_equal("missing-all", none, np.zeros_like(none), NAN, NAN_FIX)
    report.require_finite("missing-some", (some, rest), NAN, NAN_FIX)
    # Whether the family scores element by element is found, not asked: exchanging elements
    # between two observations then leaves the sum of their scores as it was.
    if deviation(left + right, whole + other)[0] <= tolerance():
        report.require_equal(
            "missing-drops",
            some + rest,
            whole,
            "The elements are independent, so the scores of two halves must sum to the whole's."
            f" {NAN}",
            NAN_FIX,
        )


def _check_gradients(report: Report, model: AbstractModel, rollout: Rollout) -> None:
    theta, z = _gradients(model, rollout.zs, rollout.us, rollout.xs, rollout.xs)
    fix = "Look for a square root, logarithm or norm at zero, or a `jnp.where` that hides one."
    reason = "Learning needs d log p(x, z) / dθ"
    report.require_finite("gradient-theta", theta, f"{reason}.", fix)
    if jax.tree.leaves(theta):
        report.require(
            "gradient-theta-nonzero",
            _any_nonzero(theta),
            "a gradient that is zero everywhere",
            f"{reason}; a model without it cannot learn.",
            "Hold parameters as arrays, not static fields, and do not detach them.",
        )
    reason = "Inference needs d log p(x | z) / dz"
    report.require_finite("gradient-z", z, f"{reason}.", fix)
    smooth = _reparameterisable_parts(model, z)
    if jax.tree.leaves(smooth):
        report.require(
            "gradient-z-nonzero",
            _any_nonzero(smooth),
            "a gradient that is zero everywhere",
            f"{reason}; without it an observation says nothing about the latent.",
            "Use z in `emission` and `advance`, through differentiable functions.",
        )
    partly = jnp.asarray(half_missing(np.asarray(rollout.xs)))
    missing = _gradients(model, rollout.zs, rollout.us, rollout.xs, partly)
    report.require_finite(
        "gradient-missing",
        missing,
        "With unobserved elements the gradient must stay finite, too: the derivative of the branch"
        " of a `jnp.where` that is not taken is still computed.",
        NAN_FIX,
    )


def _check_draws(report: Report, model: AbstractModel) -> None:
    undeclared = undeclared_families(model)
    report.require(
        "reparameterisable",
        not undeclared,
        f"draws of {listed(undeclared)} that do not move with their parameters",
        "Inferences and learners that need the gradient of draws have to know.",
        "Say so in the class, `is_reparameterisable: ClassVar[bool] = False`, or draw"
        " z = f(parameters, noise).",
    )


def _reparameterisable_parts(model: AbstractModel, zs: Latent) -> Latent:
    """The latents that an inference may descend; a discrete one may enter by `jnp.where`."""
    return jax.tree.map(
        lambda family, z: z if is_reparameterisable(family) else None,
        first_step(model).prior,
        zs,
        is_leaf=is_distribution,
    )


@eqx.filter_jit
def _gradients(
    model: AbstractModel, zs: Latent, us: Array | None, filled: Array, xs: Array
) -> tuple[Any, Latent]:
    """(d log p(xs, zs) / dθ, d log p(xs | zs) / dz), by one pass back through the recurrence."""
    parameters, static = eqx.partition(model, eqx.is_inexact_array)

    def log_probs(parameters: Any, zs: Latent) -> tuple[Array, Array]:
        return _log_probs_summed(eqx.combine(parameters, static), zs, us, filled, xs)

    (latent, observed), pull = jax.vjp(log_probs, parameters, zs)
    # In the first row both count, which is the joint; in the second the likelihood alone.
    weights = jnp.asarray([1, 0], latent.dtype), jnp.asarray([1, 1], observed.dtype)
    theta, z = jax.vmap(pull)(weights)
    return jax.tree.map(lambda leaf: leaf[0], theta), jax.tree.map(lambda leaf: leaf[1], z)


def _log_probs_summed(
    model: AbstractModel, zs: Latent, us: Array | None, filled: Array, xs: Array
) -> tuple[Array, Array]:
    """Sum (log p(zs), log p(xs | zs)), differentiable through the recurrence over `filled`."""

    def step(state: State, inputs: Any) -> Any:
        z, u, full, x = inputs
        state = driven(model, state, u)
        return model.advance(state, z, model.embed(full)), _log_probs(model, state, z, x)

    _, (prior, likelihood) = jax.lax.scan(step, model.init(None), (zs, us, filled, xs))
    return jnp.sum(prior), jnp.sum(likelihood)


def _log_probs(model: AbstractModel, state: State, z: Latent, x: Array) -> tuple[Array, Array]:
    return (
        distributions.log_prob(model.prior(state), z),
        distributions.log_prob(model.emission(state, z), x),
    )


def _any_nonzero(tree: Any) -> bool:
    return any(bool(np.any(np.asarray(leaf) != 0)) for leaf in jax.tree.leaves(tree))
