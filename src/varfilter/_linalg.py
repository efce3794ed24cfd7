"""Factorisations of small matrices, in operations that vectorise over particles and sequences.

Not LAPACK's: on a CPU, JAX runs a batch of LAPACK calls on the thread pool that the program
itself runs on, and two of them at once can wait for each other for ever (seen in jaxlib 0.10.2
with two threads: a particle filter of a linear-Gaussian model stops). A loop over columns whose
body is elementwise has no such calls, and is much faster for thousands of 3 x 3 matrices.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

UNROLLED_SIZE = 16  # up to here a loop costs more than it saves in program size


def cholesky(matrix: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """Find L, lower triangular, with L L^T = matrix; NaN where it is not positive definite."""
    places = jnp.arange(matrix.shape[0])

    def column(rest: Array, j: Int[Array, ""]) -> tuple[Array, Array]:
        found = jnp.where(places >= j, rest[:, j], 0.0) / jnp.sqrt(rest[j, j])
        return rest - found[:, None] * found[None, :], found

    return _for_each(matrix.shape[0], column, matrix)[1].T


def solve_lower(
    lower: Float[Array, "size size"], right: Float[Array, "size *columns"]
) -> Float[Array, "size *columns"]:
    """Find x with lower x = right, by forward substitution."""

    def row(rest: Array, j: Int[Array, ""]) -> tuple[Array, Array]:
        found = rest[j] / lower[j, j]
        # Rows above j are solved; what this adds to them is never read again.
        return rest - jnp.tensordot(lower[:, j], found, axes=0), found

    return _for_each(lower.shape[0], row, right)[1]


def whiten(root: Array, residual: Array) -> Array:
    """Solve root w = residual for finite residuals of any size; w may be infinite, never NaN."""
    # The largest floats overflow on the way, and the difference of two infinities is NaN.
    size = jax.lax.stop_gradient(jnp.max(jnp.abs(residual), initial=0.0))
    scale = jnp.maximum(size / 1e18, 1.0)
    return solve_lower(root, residual / scale) * scale


def solve_lower_transposed(
    lower: Float[Array, "size size"], right: Float[Array, " size"]
) -> Float[Array, " size"]:
    """Find x with lower^T x = right: the second half of solving with L L^T."""
    # Turned end for end, an upper triangular system is a lower triangular one.
    return solve_lower(lower[::-1, ::-1].T, right[::-1])[::-1]


def lower_triangular(root: Float[Array, "rows columns"]) -> Float[Array, "rows rows"]:
    """Find L, lower triangular with no negative diagonal, with L L^T = root root^T.

    By Householder reflections of the rows; the product is never formed, so nothing is squared
    and no digits are lost.
    """
    rows, columns = root.shape
    places = jnp.arange(columns)

    def reflect(rest: Array, j: Int[Array, ""]) -> tuple[Array, Array]:
        tail = jnp.where(places >= j, rest[j], 0.0)
        square = tail @ tail
        # A row of zeros needs no reflection; its root is taken where the derivative is finite.
        norm = jnp.sqrt(jnp.where(square > 0, square, 1.0))
        towards = jnp.where(tail[j] < 0, -norm, norm).astype(root.dtype)
        normal = tail + jnp.where(places == j, towards, 0.0)
        scale = jnp.where(square > 0, 1.0 / (norm * (norm + jnp.abs(tail[j]))), 0.0)
        rest = rest - scale * (rest @ normal)[:, None] * normal[None, :]
        return rest, jnp.where(towards < 0, rest[:, j], -rest[:, j])

    _, found = _for_each(rows, reflect, root)
    return jnp.tril(found.T)


def _for_each(size: int, step: Callable[[Any, Any], Any], start: Array) -> tuple[Array, Array]:
    return jax.lax.scan(step, start, jnp.arange(size), unroll=size <= UNROLLED_SIZE)
