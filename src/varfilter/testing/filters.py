"""Does a filter keep its contract, on a given model? One answer, however it is asked."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from varfilter._arguments import require_key
from varfilter.contracts import require_model, require_observations
from varfilter.filtering import Belief, run, start
from varfilter.filters.base import AbstractFilter, Carry, Filtered, require_fitting
from varfilter.model import AbstractModel, State
from varfilter.observation import Observation
from varfilter.stream import Stream
from varfilter.testing.conformance import (
    Report,
    Result,
    half_missing,
    on_device,
    on_host,
    roll_out,
    row,
    stacked,
)

PURE_FIX = "Keep all that a step needs in the carry, and draw all randomness from `key`."
MISSING_FIX = "Fill missing elements before they are embedded, and score observed elements only."
# The rows of the batch: the sequence itself, its first half padded with numbers that must not
# matter, the sequence with half of its elements missing, and one without any observation.
WHOLE, PADDED, PARTLY, NOTHING = range(4)


def check_filter(
    filter: Any,
    model: AbstractModel,
    key: PRNGKeyArray,
    *,
    xs: Any = None,
    num_steps: int = 6,
) -> list[Result]:
    """Filter one sequence in every way there is, and require one answer.

    - `key`: of the data that are simulated from the model, and of the filter's own draws.
    - `xs`: optional, (time, *event), at least two steps: check on these observations instead.
    """
    require_key(key)
    require_model(model)
    report = Report(filter)
    with report.refusals(
        "fits",
        "A filter must accept the model it is given, and keep its carry's structure.",
        "See `varfilter.AbstractFilter`; were its networks built for this model?",
    ):
        require_fitting(filter, model)
    if xs is not None:
        xs = require_observations("xs", xs, model)
        if xs.shape[0] < 2:
            raise ValueError(f"`xs` must have at least 2 steps to be cut; got {xs.shape[0]}.")
    key_data, key = jax.random.split(key)
    rollout = roll_out(model, xs, num_steps, key_data)
    xs = np.asarray(rollout.xs)
    us = None if rollout.us is None else np.asarray(rollout.us)
    time, half = xs.shape[0], xs.shape[0] // 2

    padded = np.concatenate([xs[:half], np.zeros_like(xs[half:])])
    sequences = np.stack([xs, padded, half_missing(xs), np.full_like(xs, np.nan)])
    masks = np.ones((4, time), bool)
    masks[PADDED, half:] = False
    first = stacked([start(filter, model)] * 4)
    (beliefs, results), gradient = _filtered(filter, model, first, sequences, us, masks, key)

    report.require_finite(
        "finite",
        (results.bound[WHOLE], row(beliefs, WHOLE)),
        "The bound and the carry must stay finite on the model's own data.",
        "Compute in logarithms; hold variances away from zero.",
    )
    middle = _check_stream(report, filter, model, xs, us, key, row(results, WHOLE))
    _check_padding(report, (beliefs, results), middle, half)
    _check_chunks(report, filter, model, (beliefs, results), sequences, us, key)
    _check_missing(report, (beliefs, results))
    _check_draw(report, filter, model, row(beliefs, WHOLE), time, key)
    report.require_finite(
        "gradient",
        gradient,
        "`EndToEnd` learning needs the gradient of the bound, also where elements are missing.",
        "Look for a square root, logarithm or norm at zero, or a `jnp.where` that hides one.",
    )
    return report.results


def _filtered(
    filter: AbstractFilter,
    model: AbstractModel,
    beliefs: Belief,
    sequences: np.ndarray,
    us: np.ndarray | None,
    masks: np.ndarray,
    key: PRNGKeyArray,
) -> tuple[tuple[Belief, Filtered], Any]:
    """What `_run_batch` says, from and to numpy arrays; all sequences have the same inputs."""
    inputs = None if us is None else jnp.asarray(us)
    batch = on_device(beliefs), jnp.asarray(sequences), inputs, jnp.asarray(masks)
    return on_host(_run_batch(filter, model, *batch, key))


@eqx.filter_jit
def _run_batch(
    filter: AbstractFilter,
    model: AbstractModel,
    beliefs: Belief,
    sequences: Float[Array, "batch time *event"],
    us: Float[Array, "time inputs"] | None,
    masks: Bool[Array, "batch time"],
    key: PRNGKeyArray,
) -> tuple[tuple[Belief, Filtered], Any]:
    """Return ((beliefs, results), d(summed bound)/d(model, filter)) of a batch."""

    def total(modules: tuple[AbstractModel, AbstractFilter]) -> Any:
        model, filter = modules

        def one(belief: Belief, xs: Array, mask: Array) -> tuple[Belief, Filtered]:
            return run(filter, model, xs, key, us=us, mask=mask, belief=belief)

        after, results = jax.vmap(one)(beliefs, sequences, masks)
        return jnp.sum(results.bound), (after, results)

    gradient, outcome = eqx.filter_grad(total, has_aux=True)((model, filter))
    return outcome, gradient


def _check_stream(
    report: Report,
    filter: AbstractFilter,
    model: AbstractModel,
    xs: np.ndarray,
    us: np.ndarray | None,
    key: PRNGKeyArray,
    whole: Filtered,
) -> Belief:
    """Push the observations one by one, and return the belief at half time."""
    counter = _Counter()
    stream = Stream(_Counting(filter, counter), model, key)
    counted, half = counter.count, xs.shape[0] // 2
    pushed, middle = [], stream.belief
    for t, x in enumerate(xs):
        middle = stream.belief if t == half else middle
        pushed.append(stream.push(x, None if us is None else us[t]))
    report.require_equal(
        "stream",
        stacked(pushed),
        whole,
        "A stream, alone and step by step, against one run in a batch.",
        f"{PURE_FIX} Write `step` for one sequence.",
    )
    stream.push(half_missing(xs)[0], None if us is None else us[0])
    stream.skip(us=None if us is None else us[:1])
    report.require(
        "traced-once",
        counter.count == counted,
        f"{counter.count - counted} more compilations in {stream.t} steps",
        "A stream compiles its step once; each further compilation stalls it.",
        "Return the carry with the dtypes of `init`'s, weak types included (give `jnp.full` and"
        " `jnp.asarray` a dtype), and branch on no Python value that changes.",
    )
    return middle


def _check_padding(report: Report, batch: tuple[Belief, Filtered], middle: Belief, half: int):
    beliefs, results = batch
    is_scored = np.arange(results.bound.shape[1]) < half
    report.require_equal(
        "padding",
        (row(beliefs, PADDED), results.bound[PADDED]),
        (middle, np.where(is_scored, results.bound[WHOLE], 0.0)),
        "Padded, with a time mask, against unpadded: a step that does not exist changes nothing.",
        PURE_FIX,
    )


def _check_chunks(
    report: Report,
    filter: AbstractFilter,
    model: AbstractModel,
    batch: tuple[Belief, Filtered],
    sequences: np.ndarray,
    us: np.ndarray | None,
    key: PRNGKeyArray,
) -> None:
    """Filter the second half from the belief that the first half left, beside other rows."""
    beliefs, results = batch
    time, half = sequences.shape[1], sequences.shape[1] // 2
    start_at = stacked([row(beliefs, PADDED)] * 4)
    rest = np.concatenate([sequences[:, half:], np.zeros_like(sequences[:, :half])], axis=1)
    masks = np.ones((4, time), bool)
    masks[:, time - half :] = False
    # In the place of the whole sequence stands its second half; the others change as well.
    rest_us = None if us is None else np.roll(us, -half, axis=0)
    (ends, seconds), _ = _filtered(filter, model, start_at, rest, rest_us, masks, key)
    bounds = np.concatenate([results.bound[PADDED, :half], seconds.bound[WHOLE, : time - half]])
    report.require_equal(
        "chunks",
        (row(ends, WHOLE), bounds),
        (row(beliefs, WHOLE), results.bound[WHOLE]),
        "Two chunks, the second going on from the belief of the first, against one run.",
        PURE_FIX,
    )


def _check_missing(report: Report, batch: tuple[Belief, Filtered]) -> None:
    beliefs, results = batch
    report.require_finite(
        "missing-some",
        (row(beliefs, PARTLY), results.bound[PARTLY]),
        "Half of the elements were unobserved (NaN).",
        MISSING_FIX,
    )
    report.require_equal(
        "missing-all-bound",
        results.bound[NOTHING],
        np.zeros_like(results.bound[NOTHING]),
        "Without any observation there is nothing to score: log p of nothing is 0.",
        MISSING_FIX,
    )
    prior, posterior = row((results.prior, results.posterior), NOTHING)
    # Beliefs of one family can be compared; particles and the mixture they came from cannot.
    if jax.tree.structure(prior) == jax.tree.structure(posterior):
        report.require_equal(
            "missing-all-posterior",
            posterior,
            prior,
            "Without any observation a step is a prediction: the posterior is the prior.",
            "Select the prior where `observation.is_seen` is False.",
        )


def _check_draw(
    report: Report,
    filter: AbstractFilter,
    model: AbstractModel,
    belief: Belief,
    num_steps: int,
    key: PRNGKeyArray,
) -> None:
    with report.refusals(
        "draw", "A forecast starts from the state that `draw` gives.", "Write `draw`."
    ):
        state = eqx.filter_jit(filter.draw)(model, on_device(belief.carry), key)
    report.require_structure(
        "draw-structure",
        state,
        eqx.filter_eval_shape(model.init, None),
        "`draw` gives the model one state to go on from.",
        "Return a state of the structure that `model.init` returns; of one particle, not of all.",
    )
    report.require_finite(
        "forecast",
        roll_out(model, None, num_steps, key, state=state),
        "The state that `draw` gives must advance.",
        "Return from `draw` the state that the next step would start from.",
    )


class _Counter:
    """How often a step was traced."""

    def __init__(self) -> None:
        self.count = 0


class _Counting(AbstractFilter):
    """A filter that counts how often its step is traced, and else is the one it holds."""

    filter: AbstractFilter
    counter: _Counter = eqx.field(static=True)

    def init(
        self,
        model: AbstractModel,
        x0: Float[Array, " *event"] | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Carry:
        return self.filter.init(model, x0, key)

    def drive(self, model: AbstractModel, carry: Carry, u: Float[Array, " inputs"]) -> Carry:
        return self.filter.drive(model, carry, u)

    def step(
        self,
        model: AbstractModel,
        carry: Carry,
        x: Float[Array, " *event"] | Observation,
        key: PRNGKeyArray,
        *,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> tuple[Carry, Filtered]:
        self.counter.count += 1
        return self.filter.step(model, carry, x, key, kl_weight=kl_weight)

    def draw(self, model: AbstractModel, carry: Carry, key: PRNGKeyArray) -> State:
        return self.filter.draw(model, carry, key)
