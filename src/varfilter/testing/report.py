"""How the conformance suite compares, records and complains."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree


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


def _numbers(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf, dtype=np.float64)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path) or "the value"
