"""Does a model keep its contract? Its shapes, missing data, gradients and purity are checked."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter import distributions
from varfilter._arguments import require_key
from varfilter.contracts import observation_shape, require_model, require_observations
from varfilter.distributions import fill, kl
from varfilter.model import AbstractModel, Latent, State
from varfilter.testing.report import Report, Result, deviation, tolerance

PURE = "The library compiles each function once and calls it for every step, sample and sequence."
PURE_FIX = "Compute from the arguments alone: no global state, no random numbers of your own."
NAN = "NaN marks an unobserved element, which must add nothing to the score."
NAN_FIX = (
    "In `log_prob`, `fill` the missing elements before computing, and sum with"
    " `jnp.where(observed(x), terms, 0.0)`."
)


class Rollout(eqx.Module):
    """A sequence with its latents, and the model's state before each step; time comes first."""

    xs: Float[Array, "time *event"]
    zs: Latent
    states: State
    last: State

    def at(self, t: int) -> tuple[State, Latent, Float[Array, " *event"]]:
        """Return (state_t, z_t, x_t)."""
        return jax.tree.map(lambda leaf: leaf[t], (self.states, self.zs, self.xs))


def roll_out(
    model: AbstractModel,
    xs: Float[Array, "time *event"] | None,
    num_steps: int,
    key: PRNGKeyArray,
    *,
    state: State = None,
) -> Rollout:
    """Draw z_t ~ prior, and x_t ~ emission where no `xs` are given, from `state` on."""
    state = model.init(None) if state is None else state
    if xs is None:
        nothing = np.full((num_steps, *observation_shape(model)), np.nan)
        xs = jnp.asarray(nothing, jnp.result_type(float))
    return _roll_out(model, state, xs, key)


def half_missing(xs: Float[Array, "time *event"]) -> Float[Array, "time *event"]:
    """Make every other element of `xs` NaN, alternating from step to step."""
    place = np.arange(xs[0].size).reshape(xs.shape[1:])
    steps = np.arange(xs.shape[0]).reshape((-1,) + (1,) * place.ndim)
    return jnp.where(jnp.asarray((place[None] + steps) % 2 == 0), xs, jnp.nan)


def check_model(
    model: Any, key: PRNGKeyArray, *, xs: Any = None, num_steps: int = 6
) -> list[Result]:
    """Run the model's five functions through all that the library will ask of them.

    - `key`: of the data that are simulated from the model itself, and of the latents.
    - `xs`: optional, (time, *event): check on these observations instead.
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
    _check_finite(report, model, rollout)
    _check_pure(report, model, rollout)
    _check_missing(report, model, rollout)
    _check_gradients(report, model, rollout)
    return report.results


@eqx.filter_jit
def _roll_out(model: AbstractModel, state: State, xs: Array, key: PRNGKeyArray) -> Rollout:
    def step(state: State, inputs: Any) -> Any:
        x, t = inputs
        key_z, key_x = jax.random.split(jax.random.fold_in(key, t))
        z = distributions.sample(model.prior(state), key_z)
        # Where an element is missing the model draws it, so that nothing given draws all.
        x = fill(x, model.emission(state, z).sample(key_x))
        return model.advance(state, z, model.embed(x)), (x, z, state)

    last, (xs, zs, states) = jax.lax.scan(step, state, (xs, jnp.arange(xs.shape[0])))
    return Rollout(xs, zs, states, last)


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


def _check_finite(report: Report, model: AbstractModel, rollout: Rollout) -> None:
    report.require_finite(
        "state-finite",
        (rollout.states, rollout.last),
        f"The state must stay finite; it was advanced {rollout.xs.shape[0]} times.",
        "Bound what `advance` returns, or make the transition contract.",
    )
    report.require_finite("sample-finite", (rollout.zs, rollout.xs), "Own samples.", "See `prior`.")
    log_probs = jax.vmap(lambda s, z, x: _log_probs(model, s, z, x))(
        rollout.states, rollout.zs, rollout.xs
    )
    report.require_finite(
        "log-prob-finite",
        log_probs,
        "A sequence that the model itself produced must have a finite log-probability.",
        "Clip log-variances and logits (`stabilised`); check the observations' range.",
    )
    priors = jax.vmap(model.prior)(rollout.states)
    if distributions.has_analytic_kl(priors, priors):
        report.require_equal(
            "kl-self",
            jax.vmap(lambda p: kl(p, p))(priors),
            jnp.zeros(rollout.xs.shape[0]),
            "KL(p || p) is zero: a step that learns nothing must cost nothing.",
            "Check the prior's parameters: is its variance positive and finite?",
        )


def _check_pure(report: Report, model: AbstractModel, rollout: Rollout) -> None:
    def functions(model: AbstractModel, state: State, z: Latent, x: Array) -> Any:
        features = model.embed(x)
        after = model.advance(state, z, features)
        return model.prior(state), model.emission(state, z), features, after

    one = rollout.at(-1)
    eager = functions(model, *one)
    report.require_equal(
        "deterministic", functions(model, *one), eager, f"Called twice. {PURE}", PURE_FIX
    )
    compiled = eqx.filter_jit(functions)
    report.require_equal(
        "jit", compiled(model, *one), eager, f"Compiled against not compiled. {PURE}", PURE_FIX
    )
    each = [compiled(model, *rollout.at(t)) for t in range(rollout.xs.shape[0])]
    batched = jax.vmap(lambda *step: functions(model, *step))(
        rollout.states, rollout.zs, rollout.xs
    )
    report.require_equal(
        "vmap",
        batched,
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *each),
        "Steps at once against one by one: each must depend on its own inputs alone.",
        "Write the functions for one step; use no named axes and no callbacks that mix a batch.",
    )
    neighbours = jnp.roll(rollout.xs, 1, axis=0).at[0].set(rollout.xs[0])
    report.require_equal(
        "embed-alone",
        jax.tree.map(lambda leaf: leaf[0], jax.vmap(model.embed)(neighbours)),
        jax.tree.map(lambda leaf: leaf[0], jax.vmap(model.embed)(rollout.xs)),
        "`embed` sees x_t alone; here its neighbours in the batch were exchanged.",
        "Move what needs other steps to `advance`.",
    )


def _check_missing(report: Report, model: AbstractModel, rollout: Rollout) -> None:
    def score(state: State, z: Latent, x: Array) -> Float[Array, ""]:
        return distributions.log_prob(model.emission(state, z), x)

    scores = jax.jit(jax.vmap(lambda x: jax.vmap(score)(rollout.states, rollout.zs, x)))
    xs = rollout.xs
    others = jnp.roll(xs, 1, axis=0)
    odd = half_missing(xs)
    seen = ~jnp.isnan(odd)
    even = jnp.where(seen, jnp.nan, xs)
    mixed = jnp.stack([jnp.where(seen, xs, others), jnp.where(seen, others, xs)])
    nothing = jnp.full(xs.shape, jnp.nan)
    values = scores(jnp.concatenate([jnp.stack([xs, others, nothing, odd, even]), mixed]))
    whole, other, none, some, rest, left, right = np.asarray(values)
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
    @eqx.filter_jit
    def gradients(model: AbstractModel, zs: Latent, xs: Array) -> Any:
        def joint(model: AbstractModel) -> Float[Array, ""]:
            latent, observed = _log_probs_summed(model, zs, rollout.xs, xs)
            return latent + observed

        def likelihood(zs: Latent) -> Float[Array, ""]:
            return _log_probs_summed(model, zs, rollout.xs, xs)[1]

        return eqx.filter_grad(joint)(model), jax.grad(likelihood)(zs)

    theta, z = gradients(model, rollout.zs, rollout.xs)
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
    report.require(
        "gradient-z-nonzero",
        _any_nonzero(z),
        "a gradient that is zero everywhere",
        f"{reason}; without it an observation says nothing about the latent.",
        "Use z in `emission` and `advance`, through differentiable functions.",
    )
    missing = gradients(model, rollout.zs, half_missing(rollout.xs))
    report.require_finite(
        "gradient-missing",
        missing,
        "With unobserved elements the gradient must stay finite, too: the derivative of the branch"
        " of a `jnp.where` that is not taken is still computed.",
        NAN_FIX,
    )


def _log_probs_summed(
    model: AbstractModel, zs: Latent, filled: Array, xs: Array
) -> tuple[Array, Array]:
    """Sum (log p(zs), log p(xs | zs)), differentiable through the recurrence over `filled`."""

    def step(state: State, inputs: Any) -> Any:
        z, full, x = inputs
        return model.advance(state, z, model.embed(full)), _log_probs(model, state, z, x)

    _, (prior, likelihood) = jax.lax.scan(step, model.init(None), (zs, filled, xs))
    return jnp.sum(prior), jnp.sum(likelihood)


def _log_probs(model: AbstractModel, state: State, z: Latent, x: Array) -> tuple[Array, Array]:
    return (
        distributions.log_prob(model.prior(state), z),
        distributions.log_prob(model.emission(state, z), x),
    )


def _any_nonzero(tree: Any) -> bool:
    return any(bool(np.any(np.asarray(leaf) != 0)) for leaf in jax.tree.leaves(tree))
