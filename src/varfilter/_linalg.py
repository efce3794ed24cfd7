"""Factorisations of small matrices, in operations that vectorise over particles and sequences.

Not LAPACK's for batches: on a CPU, JAX runs a batch of LAPACK calls on the thread pool that the
program itself runs on, and two of them at once can wait for each other for ever (seen in jaxlib
0.10.2 with two threads: a particle filter of a linear-Gaussian model stops). A loop over columns
whose body is elementwise has no such calls, and is much faster for thousands of 3 x 3 matrices.
A single larger matrix is LAPACK's on a CPU: `factor_and_inverse`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

UNROLLED_SIZE = 16  # up to here a loop costs more than it saves in program size
SMALL_SIZE = 4  # up to here the elementwise loop is faster than a call of LAPACK


def cholesky(matrix: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """Find L, lower triangular, with L L^T = matrix; NaN where it is not positive definite."""
    places = jnp.arange(matrix.shape[0])

    def column(rest: Array, j: Int[Array, ""]) -> tuple[Array, Array]:
        found = jnp.where(places >= j, rest[:, j], 0.0) / jnp.sqrt(rest[j, j])
        return rest - found[:, None] * found[None, :], found

    return _for_each(matrix.shape[0], column, matrix)[1].T


@jax.custom_jvp
def factor_and_inverse(
    matrix: Float[Array, "size size"],
) -> tuple[Float[Array, "size size"], Float[Array, "size size"]]:
    """Find L, lower triangular, with L L^T = matrix, and L^-1; NaN if not positive definite."""
    if matrix.shape[0] <= SMALL_SIZE:
        return _factor_and_inverse_by_columns(matrix)
    return _large_factor_and_inverse(matrix)


@factor_and_inverse.defjvp
def _factor_and_inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> Any:
    # dL = L phi(L^-1 dM L^-T), phi: the lower triangle with half the diagonal (Murray 2016).
    (matrix,), (change,) = primals, tangents
    lower, inverse = factor_and_inverse(matrix)
    white = inverse @ change @ inverse.T
    phi = jnp.tril(white, -1) + 0.5 * jnp.diag(jnp.diagonal(white))
    return (lower, inverse), (lower @ phi, -phi @ inverse)


def _factor_and_inverse_by_columns(matrix: Array) -> tuple[Array, Array]:
    lower = cholesky(matrix)
    return lower, solve_lower(lower, jnp.eye(matrix.shape[0], dtype=matrix.dtype))


def _factor_and_inverse_by_lapack(matrix: Array) -> tuple[Array, Array]:
    lower = jnp.linalg.cholesky(matrix)
    unit = jnp.eye(matrix.shape[0], dtype=matrix.dtype)
    return lower, jax.scipy.linalg.solve_triangular(lower, unit, lower=True)


@jax.custom_batching.custom_vmap
def _large_factor_and_inverse(matrix: Array) -> tuple[Array, Array]:
    return jax.lax.platform_dependent(
        matrix, cpu=_factor_and_inverse_by_lapack, default=_factor_and_inverse_by_columns
    )


@_large_factor_and_inverse.def_vmap
def _batched_factor_and_inverse(axis_size: int, in_batched: list[bool], matrix: Array) -> Any:
    return jax.vmap(_factor_and_inverse_by_columns)(matrix), (True, True)


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
