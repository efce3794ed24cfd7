"""What all checks of the conformance suite share: how they compare, record and complain.

They start from a rollout: a model that is run on its own data.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from varfilter import distributions
from varfilter.contracts import observation_shape
from varfilter.distributions import fill
from varfilter.model import AbstractModel, Latent, State, driven

# Folded into the key of a sequence: its known inputs, apart from the draws of its steps.
INPUTS = 0x75000000


class Result(NamedTuple):
    """One check that held: the largest deviation found, and how much was allowed.

    `note` is what was found out beside it, such as the inferences that fit a model.
    """

    check: str
    value: float
    tolerance: float
    note: str = ""


class ConformanceError(AssertionError):
    """A module breaks its contract; `check` is the name of the check that found it."""

    def __init__(self, check: str, subject: str, got: str, reason: str, fix: str):
        super().__init__(f"[{check}] `{subject}`: got {got}. {reason} {fix}")
        self.check = check
        self.subject = subject


class Report:
    """The checks of one module as they are made; the first that fails raises."""

    def __init__(self, subject: Any):
        self.subject = type(subject).__name__
        self.results: list[Result] = []

    @contextmanager
    def refusals(self, check: str, reason: str, fix: str) -> Iterator[None]:
        """Turn an exception raised inside into a `ConformanceError` of this check."""
        try:
            yield
        except ConformanceError:
            raise
        except Exception as error:
            got = f"{type(error).__name__}: {str(error).rstrip('.')}"
            raise ConformanceError(check, self.subject, got, reason, fix) from error
        self.results.append(Result(check, 0.0, 0.0))

    def require(self, check: str, holds: bool, got: str, reason: str, fix: str) -> None:
        """Require a condition that has no tolerance."""
        if not holds:
            raise ConformanceError(check, self.subject, got, reason, fix)
        self.results.append(Result(check, 0.0, 0.0))

    def note(self, check: str, text: str) -> None:
        """Record something found out that cannot fail."""
        self.results.append(Result(check, 0.0, 0.0, text))

    def require_equal(self, check: str, got: PyTree, want: PyTree, reason: str, fix: str) -> None:
        """Require two trees of one structure with the same numbers, up to rounding."""
        value, where = deviation(got, want)
        allowed = tolerance()
        if not value <= allowed:
            described = f"a relative difference of {value:.3g} at `{where}`, allowed {allowed:.3g}"
            raise ConformanceError(check, self.subject, described, reason, fix)
        self.results.append(Result(check, value, allowed))

    def require_finite(self, check: str, tree: PyTree, reason: str, fix: str) -> None:
        """Require that no float of the tree is NaN or infinite."""
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            array = _numbers(leaf)
            if not np.isfinite(array).all():
                bad = array[~np.isfinite(array)].flat[0]
                got = f"{bad} at `{_name(path)}`"
                raise ConformanceError(check, self.subject, got, reason, fix)
        self.results.append(Result(check, 0.0, 0.0))

    def require_structure(
        self, check: str, got: PyTree, want: PyTree, reason: str, fix: str
    ) -> None:
        """Require one structure, and for each leaf one shape and dtype; values are not read."""
        left, right = jax.tree.structure(got), jax.tree.structure(want)
        if left != right:
            described = f"{left}, wanted {right}"
            raise ConformanceError(check, self.subject, described, reason, fix)
        leaves = zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True)
        for (path, a), b in leaves:
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                described = (
                    f"{a.dtype}{list(a.shape)} at `{_name(path)}`, wanted {b.dtype}{list(b.shape)}"
                )
                raise ConformanceError(check, self.subject, described, reason, fix)
        self.results.append(Result(check, 0.0, 0.0))


def tolerance() -> float:
    """The square root of the machine's precision: half the digits must agree.

    Compiling differently (jit, vmap, scan) reorders sums, and networks and time steps amplify
    that rounding by a few orders of magnitude; an error of logic shows in the leading digits.
    """
    return math.sqrt(float(jnp.finfo(jnp.result_type(float)).eps))


def deviation(got: PyTree, want: PyTree) -> tuple[float, str]:
    """Find the largest |got - want| / max(1, |want|) over all leaves, and its leaf.

    Infinite where the trees differ in structure or shape, or where one alone is not a number.
    """
    if jax.tree.structure(got) != jax.tree.structure(want):
        return math.inf, "structure"
    worst, where = 0.0, "everywhere"
    pairs = zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True)
    for (path, left), right in pairs:
        a, b = _numbers(left), _numbers(right)
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return math.inf, _name(path)
        finite = np.isfinite(b)
        if not finite.any():
            continue
        scale = max(1.0, float(np.abs(b[finite]).max()))
        value = float(np.abs(a[finite] - b[finite]).max()) / scale
        if value > worst:
            worst, where = value, _name(path)
    return worst, where


class Rollout(eqx.Module):
    """A sequence with its latents, and the model's state before each step; time comes first.

    `us` are the known inputs of a model that has them, else None; each state knows its own.
    """

    xs: Float[Array, "time *event"]
    us: Float[Array, "time inputs"] | None
    zs: Latent
    states: State
    last: State

    def at(self, t: int) -> tuple[State, Latent, Float[Array, " *event"]]:
        """(state_t, z_t, x_t)."""
        return on_device(row((self.states, self.zs, self.xs), t))


def roll_out(
    model: AbstractModel,
    xs: Float[Array, "time *event"] | None,
    num_steps: int,
    key: PRNGKeyArray,
    *,
    state: State = None,
) -> Rollout:
    """z_t ~ prior, and x_t ~ emission where no `xs` are given; from `state` if there is one.

    Known inputs, of a model that has them, are drawn from N(0, I).
    """
    state = model.init(None) if state is None else state
    if xs is None:
        nothing = np.full((num_steps, *observation_shape(model)), np.nan, jnp.result_type(float))
        xs = jnp.asarray(nothing)
    us = None
    if model.input_size:
        us = jax.random.normal(jax.random.fold_in(key, INPUTS), (xs.shape[0], model.input_size))
    return _roll_out(model, state, xs, us, key)


def half_missing(xs: Any) -> Any:
    """`xs` with every other element NaN, alternating from step to step."""
    place = np.arange(math.prod(xs.shape[1:])).reshape(xs.shape[1:])
    steps = np.arange(xs.shape[0]).reshape((-1,) + (1,) * place.ndim)
    is_seen = (place[None] + steps) % 2 == 0
    if isinstance(xs, np.ndarray):
        return np.where(is_seen, xs, np.asarray(np.nan, xs.dtype))
    return jnp.where(jnp.asarray(is_seen), xs, jnp.nan)


# Slicing and stacking on the device compiles a program for each shape; numpy's does not.


def on_host(tree: Any) -> Any:
    """Turn the arrays of a tree into numpy arrays (random keys stay as they are)."""
    return jax.tree.map(lambda leaf: leaf if _is_key(leaf) else np.asarray(leaf), tree)


def on_device(tree: Any) -> Any:
    """Turn the arrays of a tree into JAX arrays, as a module expects them."""
    return jax.tree.map(lambda leaf: leaf if _is_key(leaf) else jnp.asarray(leaf), tree)


def row(tree: Any, index: int) -> Any:
    """The numbers at one place of the first axis, as numpy arrays."""
    return jax.tree.map(lambda leaf: leaf[index], on_host(tree))


def stacked(trees: list) -> Any:
    """Trees of one structure as one tree, with a new first axis, as numpy arrays."""

    def stack(*leaves: Any) -> Any:
        return jnp.stack(leaves) if _is_key(leaves[0]) else np.stack(leaves)

    return jax.tree.map(stack, *map(on_host, trees))


def _numbers(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, dtype=np.float64)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path) or "the value"


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


@eqx.filter_jit
def _roll_out(
    model: AbstractModel, state: State, xs: Array, us: Array | None, key: PRNGKeyArray
) -> Rollout:
    def step(state: State, inputs: Any) -> Any:
        x, u, t = inputs
        state = driven(model, state, u)
        key_z, key_x = jax.random.split(jax.random.fold_in(key, t))
        z = distributions.sample(model.prior(state), key_z)
        # Where an element is missing the model draws it, so that nothing given draws all.
        x = fill(x, model.emission(state, z).sample(key_x))
        return model.advance(state, z, model.embed(x)), (x, z, state)

    last, (xs, zs, states) = jax.lax.scan(step, state, (xs, us, jnp.arange(xs.shape[0])))
    return Rollout(xs, us, zs, states, last)
