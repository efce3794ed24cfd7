"""Is the mathematics right on this machine? Each oracle, with its tolerance, in a minute.

A compiler, a driver or an accelerator's arithmetic can be wrong in ways that no shape shows.
These checks compare what the library computes here with answers that are known.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Key, PRNGKeyArray

from varfilter import distributions
from varfilter.filtering import run
from varfilter.filters import KalmanFilter, ParticleFilter, VariationalFilter
from varfilter.filters.base import AbstractFilter
from varfilter.inference import Exact, GradientDescent, Iterative, Prior
from varfilter.learning import step_by_step, time_parallel
from varfilter.learning.state import Sequences
from varfilter.model import AbstractModel
from varfilter.models import SRNN, LinearGaussian
from varfilter.models.linear_gaussian import kalman_update
from varfilter.simulation import generate
from varfilter.stream import Stream
from varfilter.testing import oracles


@dataclass(frozen=True)
class Row:
    """One check: what was found, and how much of it is allowed.

    `value` is a deviation, to be at most `tolerance`; None where the check itself failed, and
    `note` then says how.
    """

    check: str
    value: float | None
    tolerance: float
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the value is within its tolerance (NaN is not)."""
        return self.value is not None and self.value <= self.tolerance


def examine() -> Iterator[Row]:
    """Run every oracle on this machine's hardware, one row at a time.

    Fixed seeds: the same machine gives the same rows. Two checks run at a time, since most of
    the time is spent in compiling, which keeps one core busy.
    """
    with _quick_compilation(), ThreadPoolExecutor(max_workers=2) as pool:
        for rows in pool.map(_outcome, CHECKS):
            yield from rows


def _outcome(name: str) -> list[Row]:
    try:
        # Some accelerators round the factors of a product to 10 bits by default.
        with jax.default_matmul_precision("highest"):
            return CHECKS[name]()
    except Exception as error:
        # The doctor reports a machine on which a check cannot even run; it does not stop.
        return [Row(name, None, 0.0, f"{type(error).__name__}: {error}")]


def _kalman() -> list[Row]:
    rows = []
    with jax.enable_x64(True):
        plain, fed_back, driven = _linear_gaussian(), _autoregression(), _driven()
        complete = _observations(plain, 30)
        us = np.asarray(jax.random.normal(jax.random.key(4), (30, 2)))
        for name, model, xs, inputs in (
            ("", plain, complete, None),
            (", elements missing", plain, _with_gaps(complete), None),
            (", x fed back, elements missing", fed_back, _with_gaps(complete), None),
            (", known inputs", driven, _with_gaps(complete), us),
        ):
            want = oracles.reference(model, xs, inputs)
            _, got = run(KalmanFilter(), model, xs, jax.random.key(0), us=inputs)
            covariances = jax.vmap(lambda posterior: posterior.covariance)(got.posterior)
            # A few thousand float64 operations, each good to 1e-16, on numbers of order one.
            rows += [
                Row(f"Kalman = dense joint, {what}{name} (x64)", _largest(a, b), 1e-10)
                for what, a, b in (
                    ("log evidence", got.bound, want.log_evidences),
                    ("mean", got.posterior.mean, want.means),
                    ("covariance", covariances, want.covariances),
                )
            ]
    return rows


def _particles() -> list[Row]:
    plain, fed_back = _linear_gaussian(), _autoregression()
    complete, returned = _observations(plain, 20), _with_gaps(_observations(fed_back, 20))
    bootstrap, optimal = ParticleFilter(Prior(), 2000), ParticleFilter(Exact(), 500)
    rows = []
    for name, model, filter, xs in (
        ("bootstrap particles = Kalman", plain, bootstrap, complete),
        ("optimal particles = Kalman, elements missing", plain, optimal, _with_gaps(complete)),
        # The recurrence sees x here: right only if what is missing is drawn.
        ("bootstrap particles = Kalman, x fed back, missing", fed_back, bootstrap, returned),
        ("optimal particles = Kalman, x fed back, missing", fed_back, optimal, returned),
    ):
        exact = oracles.reference(model, xs).log_evidences.sum()
        bounds = _summed_bounds(filter, model, xs, 32)
        # p-hat is unbiased and nearly log-normal, so E log p-hat = log p - var / 2. Four standard
        # errors, and never more than 0.1 nats: a filter that scatters more is broken, too.
        corrected = bounds.mean() + 0.5 * bounds.var(ddof=1)
        tolerance = min(4.0 * _standard_error(bounds), 0.1)
        rows.append(Row(f"{name}, log evidence", _largest(corrected, exact), tolerance))
    return rows


def _bounds() -> list[Row]:
    model = _linear_gaussian()
    xs = _observations(model, 20)
    exact = oracles.reference(model, xs).log_evidences.sum()
    iterative = Iterative(model, hidden_size=8, num_layers=1, key=jax.random.key(3))
    filters = {
        "exact step": VariationalFilter(Exact()),
        "gradient descent": VariationalFilter(GradientDescent(num_iterations=10)),
        "AVF": VariationalFilter(iterative),
        "FIVO with AVF": ParticleFilter(iterative, 8),
    }
    rows = []
    for name, filter in filters.items():
        bounds = _summed_bounds(filter, model, xs, 256)
        # The mean over keys estimates a number below the evidence: up to four standard errors.
        excess = float(bounds.mean() - exact)
        rows.append(Row(f"bound - evidence, {name}", excess, 4.0 * _standard_error(bounds)))
    return rows


def _converged() -> list[Row]:
    model = _linear_gaussian()
    xs = _with_gaps(_observations(model, 12))
    key_z, key_descend = jax.random.split(jax.random.key(4))
    zs = generate(model, len(xs), key_z)[1]
    states = jax.vmap(lambda z: model.advance(model.init(None), z, None))(zs)
    num_iterations = 1500
    descend = GradientDescent(
        optax.adam(optax.cosine_decay_schedule(0.1, num_iterations)),
        num_iterations=num_iterations,
        num_samples=32,
    )
    filter = VariationalFilter(descend)
    carry = filter.init(model)

    @jax.jit
    @jax.vmap
    def gap(state: Any, x: Array, key: PRNGKeyArray) -> Array:
        at_state = eqx.tree_at(lambda c: c.state, carry, state)
        found = filter.trace(model, at_state, x, key).posterior
        exact, _, _ = kalman_update(model, state, x)
        return distributions.kl(found, exact)

    keys = jax.random.split(key_descend, len(xs))
    gaps = gap(states, jnp.asarray(xs, jnp.result_type(float)), keys)
    # KL(q || exact) is how far F lies above its minimum. It is a sum of 9 squared errors of
    # parameters, each left at some 1e-2 standard deviations by the noise of the last steps.
    return [Row("converged E-step = exact posterior, KL", _largest(gaps, 0.0), 2e-3)]


def _exact_step() -> list[Row]:
    with jax.enable_x64(True):
        model = _linear_gaussian()
        xs = _with_gaps(_observations(model, 12))
        found, _, log_evidences = jax.jit(
            jax.vmap(lambda x: kalman_update(model, model.init(None), x))
        )(xs)
        covariances = jax.vmap(lambda posterior: posterior.covariance)(found)
        initial = model.initial
        first = (np.asarray(initial.mean), np.asarray(initial.covariance))
        means, wanted, evidences = zip(
            *(oracles.one_step(model, *first, x) for x in xs), strict=True
        )
        deviations = [
            _largest(found.mean, means),
            _largest(covariances, wanted),
            _largest(log_evidences, evidences),
        ]
    return [Row("exact step = closed form, elements missing (x64)", max(deviations), 1e-10)]


def _gradients(digits: str, tolerance: float) -> list[Row]:
    rows = []
    for num_iterations in (1, 3):
        with jax.enable_x64(digits == "x64"):
            values = _gradient_differences(num_iterations)
        rows += [
            Row(
                f"time-parallel = step-by-step, {name}, K={num_iterations} ({digits})",
                value,
                tolerance,
            )
            for name, value in values.items()
        ]
    return rows


def _gradient_differences(num_iterations: int) -> dict[str, float]:
    """Compute |g - g'| / |g'| for θ and φ, on a ragged batch with missing elements and steps."""
    model, filter = _srnn(num_iterations)
    xs = jnp.stack([jnp.asarray(_with_gaps(_observations(model, 6, seed))) for seed in (5, 6)])
    batch = Sequences(xs, jnp.stack([jnp.ones(6, bool), jnp.arange(6) < 4]), None)
    key, weight = jax.random.key(7), jnp.ones(())

    @eqx.filter_jit
    def parallel(model: AbstractModel, filter: VariationalFilter) -> tuple[Any, Any]:
        problems, _, _ = time_parallel.record_problems(
            model, filter, batch, key, weight, complete=False
        )
        theta, states = time_parallel.theta_gradients(model, filter, None, problems, weight)
        flat = jax.tree.map(lambda leaf: leaf.reshape(12, *leaf.shape[2:]), (problems, states))
        return theta, time_parallel.phi_gradients(filter, model, flat[0], flat[1], weight)

    got = parallel(model, filter)
    want = step_by_step.gradients(model, filter, batch, key, weight)
    return {name: _relative(a, b) for name, a, b in zip(("θ", "φ"), got, want, strict=True)}


def _drivers() -> list[Row]:
    model, filter = _srnn(1)
    xs = _with_gaps(_observations(model, 8))
    key = jax.random.key(8)
    belief, whole = run(filter, model, xs, key)
    stream = Stream(filter, model, key)
    pushed = [stream.push(x).bound for x in xs]
    padded = np.concatenate([xs, np.zeros_like(xs)])
    belief_padded, scored = run(filter, model, padded, key, mask=np.arange(16) < 8)
    scale = float(jnp.abs(whole.bound).max())
    # Eight steps of float32 sums in another order; 1e-5 is about 100 roundings. A processor sums in
    # one order wherever the step stands; an accelerator may choose another kernel.
    streamed = 0.0 if jax.default_backend() == "cpu" else 1e-5
    return [
        Row("stream = run, bound", _largest(jnp.stack(pushed), whole.bound) / scale, streamed),
        Row("stream = run, belief", _relative(stream.belief, belief), streamed),
        Row("padded = unpadded, bound", _largest(scored.bound[:8], whole.bound) / scale, 1e-5),
        Row("padded = unpadded, belief", _relative(belief_padded, belief), 1e-5),
        Row("padded steps, bound", _largest(scored.bound[8:], 0.0), 0.0),
    ]


@contextmanager
def _quick_compilation() -> Iterator[None]:
    """Compile with less care: nearly all the time goes into programs that run once."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


CHECKS: dict[str, Callable[[], list[Row]]] = {
    "Kalman = dense joint": _kalman,
    "particles = Kalman": _particles,
    "bound - evidence": _bounds,
    "converged E-step = exact posterior": _converged,
    "exact step = closed form": _exact_step,
    # Sums over steps and parameters in another order: some 100 roundings of either precision.
    "time-parallel = step-by-step (float32)": partial(_gradients, "float32", 1e-5),
    "time-parallel = step-by-step (x64)": partial(_gradients, "x64", 1e-10),
    "stream = run, padded = unpadded": _drivers,
}


def _autoregression() -> LinearGaussian:
    """The same, with what was observed fed back into the next latent."""
    return _linear_gaussian(feedback=[[0.15, 0.05], [0.0, -0.1]])


def _driven() -> LinearGaussian:
    """The same, with two known inputs that move both the latents and the observations."""
    return _linear_gaussian(
        transition_input=[[0.5, 0.0], [0.3, -0.7]], loading_input=[[0.0, 0.4], [0.6, 0.0]]
    )


def _linear_gaussian(**more: Any) -> LinearGaussian:
    """A damped rotation, seen through two correlated sensors."""
    return LinearGaussian(
        transition=[[0.8, 0.4], [-0.4, 0.8]],
        process_covariance=[[0.5, 0.1], [0.1, 0.4]],
        loading=[[1.0, 0.3], [0.2, -0.8]],
        noise_covariance=[[0.4, 0.15], [0.15, 0.5]],
        initial_mean=[0.5, -0.3],
        initial_covariance=[[1.0, 0.2], [0.2, 0.8]],
        transition_bias=[0.1, -0.2],
        loading_bias=[0.3, -0.4],
        **more,
    )


def _srnn(num_iterations: int) -> tuple[SRNN, VariationalFilter]:
    """A small recurrent model with Bernoulli outputs, and AVF for it."""
    key_model, key_inference = jax.random.split(jax.random.key(9))
    model = SRNN(
        4, 3, recurrent_size=6, prior_size=6, decoder_size=6, num_decoder_layers=1, key=key_model
    )
    inference = Iterative(
        model, hidden_size=8, num_layers=1, num_iterations=num_iterations, key=key_inference
    )
    return model, VariationalFilter(inference)


def _observations(model: AbstractModel, num_steps: int, seed: int = 1) -> np.ndarray:
    return np.asarray(generate(model, num_steps, jax.random.key(seed))[0])


def _with_gaps(xs: np.ndarray) -> np.ndarray:
    """Hide some single elements of `xs`, and one whole step."""
    xs = np.array(xs)
    xs[1, 0] = xs[3, -1] = xs[-1, 0] = np.nan
    xs[2] = np.nan
    return xs


def _summed_bounds(
    filter: AbstractFilter, model: AbstractModel, xs: np.ndarray, num_keys: int
) -> np.ndarray:
    @eqx.filter_jit
    def bounds(filter: AbstractFilter, model: AbstractModel, keys: Key[Array, " num"]) -> Array:
        return jax.vmap(lambda key: jnp.sum(run(filter, model, xs, key)[1].bound))(keys)

    keys = jax.random.split(jax.random.key(2), num_keys)
    return np.asarray(bounds(filter, model, keys), np.float64)


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size))


def _largest(got: Any, want: Any) -> float:
    return float(np.max(np.abs(np.asarray(got, np.float64) - np.asarray(want, np.float64))))


def _relative(got: Any, want: Any) -> float:
    a, b = (
        np.asarray(ravel_pytree(eqx.filter(tree, eqx.is_inexact_array))[0], np.float64)
        for tree in (got, want)
    )
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))
