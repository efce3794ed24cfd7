"""Our own factorisations agree with LAPACK's, small (unrolled) and large (in a loop)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from varfilter import _linalg

SIZES = (1, 4, _linalg.UNROLLED_SIZE + 4)


@pytest.fixture(params=SIZES, ids=lambda size: f"{size}x{size}")
def matrix(request):
    root = np.random.default_rng(request.param).normal(size=(request.param, request.param + 2))
    return root @ root.T + 0.1 * np.eye(request.param)


def test_cholesky_and_both_solves(matrix):
    with jax.enable_x64(True):
        lower = _linalg.cholesky(jnp.asarray(matrix))
        np.testing.assert_allclose(lower, np.linalg.cholesky(matrix), rtol=1e-10, atol=1e-12)
        right = np.random.default_rng(0).normal(size=(len(matrix), 3))
        solved = _linalg.solve_lower(lower, jnp.asarray(right))
        np.testing.assert_allclose(lower @ solved, right, atol=1e-10)
        both = _linalg.solve_lower_transposed(lower, solved[:, 0])
        np.testing.assert_allclose(both, np.linalg.solve(matrix, right[:, 0]), rtol=1e-7)


def test_a_root_is_made_triangular_without_forming_the_product(matrix):
    with jax.enable_x64(True):
        root = np.random.default_rng(1).normal(size=(len(matrix), len(matrix) + 3))
        lower = _linalg.lower_triangular(jnp.asarray(root))
        np.testing.assert_allclose(lower @ lower.T, root @ root.T, atol=1e-10)
        np.testing.assert_array_equal(np.triu(lower, 1), 0.0)
        assert (np.diag(lower) >= 0).all()


def test_a_matrix_that_is_not_positive_definite_gives_nan():
    assert np.isnan(_linalg.cholesky(jnp.array([[1.0, 2.0], [2.0, 1.0]]))).any()
