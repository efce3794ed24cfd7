"""The Gaussian with full covariance: exact filters and linear-Gaussian models."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter import _linalg
from varfilter.distributions.base import (
    AbstractDistribution,
    Move,
    fill,
    observed,
    parameter,
    require_shape,
)
from varfilter.distributions.normal import LOG_2PI, Normal, squared

LARGEST_STD = 12.18  # exp(2.5): the largest standard deviation that `stabilised` admits


class Gaussian(AbstractDistribution):
    """N(x; mean, L L^T), L lower triangular with the exponential of `factor`'s diagonal.

    `factor` is unconstrained: its strict lower triangle is L's, its diagonal is log diag(L),
    and what lies above the diagonal is ignored.
    """

    is_symmetric: ClassVar[bool] = True
    mean: Float[Array, " size"] = eqx.field(converter=parameter)
    factor: Float[Array, "size size"] = eqx.field(converter=parameter)

    def __check_init__(self):
        shape = (*self.mean.shape, *self.mean.shape[-1:])
        require_shape("factor", self.factor, shape, "It is a square matrix.")

    @staticmethod
    def from_cholesky(
        mean: Float[Array, " size"], cholesky: Float[Array, "size size"]
    ) -> "Gaussian":
        """Build one from a lower-triangular root of the covariance, its diagonal positive."""
        diagonal = jnp.diagonal(cholesky)
        # A direction of exactly zero variance keeps a finite logarithm.
        safe = jnp.maximum(diagonal, jnp.finfo(cholesky.dtype).tiny)
        return Gaussian(mean, jnp.tril(cholesky, -1) + jnp.diag(jnp.log(safe)))

    @staticmethod
    def from_covariance(
        mean: Float[Array, " size"], covariance: Float[Array, "size size"]
    ) -> "Gaussian":
        """Build one from a positive definite covariance."""
        return Gaussian.from_cholesky(mean, _linalg.cholesky(covariance))

    @staticmethod
    def from_normal(normal: Normal) -> "Gaussian":
        """Build the same distribution as a diagonal one."""
        return Gaussian(normal.mean, jnp.diag(0.5 * normal.log_var))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""
        return self.mean.shape

    def widened(self, factor: float) -> "Gaussian":
        """N(mean, factor^2 L L^T)."""
        return Gaussian.from_cholesky(self.mean, factor * self.cholesky)

    @property
    def cholesky(self) -> Float[Array, "size size"]:
        """The lower-triangular root L of the covariance."""
        return jnp.tril(self.factor, -1) + jnp.diag(jnp.exp(jnp.diagonal(self.factor)))

    @property
    def covariance(self) -> Float[Array, "size size"]:
        """The covariance L L^T."""
        return self.cholesky @ self.cholesky.T

    @property
    def variance(self) -> Float[Array, " size"]:
        """The diagonal of the covariance."""
        return jnp.sum(self.cholesky**2, axis=-1)

    def sample(self, key: PRNGKeyArray) -> Float[Array, " size"]:
        """Draw mean + L eps (reparameterised)."""
        return self.mean + self.cholesky @ jax.random.normal(key, self.shape, self.mean.dtype)

    def log_prob(self, x: Float[Array, " size"]) -> Float[Array, ""]:
        """The log-density of the observed elements: the others are marginalised out exactly."""
        seen = observed(x)
        cholesky = self._marginal_cholesky(seen)
        white = _linalg.whiten(cholesky, fill(x, self.mean) - self.mean)
        log_det = jnp.sum(jnp.log(jnp.diagonal(cholesky)))
        count = jnp.sum(seen).astype(self.mean.dtype)
        return -0.5 * (count * LOG_2PI + jnp.sum(squared(white))) - log_det

    def complete(self, x: Float[Array, " size"], key: PRNGKeyArray) -> Float[Array, " size"]:
        """Draw the unobserved elements given the others: y + cov(y, x) cov(x)^-1 (x - y).

        A draw y of the whole, moved by what it misses of the observed elements, has the
        conditional distribution (Matheron's rule).
        """
        seen, draw = observed(x), self.sample(key)
        cholesky = self._marginal_cholesky(seen)
        white = _linalg.whiten(cholesky, jnp.where(seen, fill(x, draw) - draw, 0.0))
        return fill(x, draw + self.covariance @ _linalg.solve_lower_transposed(cholesky, white))

    def error(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """The precision-weighted error of the observed elements: covariance^-1 (x - mean)."""
        cholesky = self._marginal_cholesky(observed(x))
        residual = fill(x, self.mean) - self.mean
        return _linalg.solve_lower_transposed(cholesky, _linalg.solve_lower(cholesky, residual))

    def _marginal_cholesky(self, seen: Array) -> Float[Array, "size size"]:
        """The Cholesky factor of the covariance with unseen rows and columns put to the identity's.

        Such an element then adds nothing: its residual is zero and its log-determinant is zero.
        """
        both = seen[:, None] & seen[None, :]
        unit = jnp.eye(self.mean.size, dtype=self.mean.dtype)
        # With nothing unseen L is known; squaring and factoring it again loses half its digits.
        whole = jnp.all(seen)
        partial = _linalg.cholesky(jnp.where(both & ~whole, self.covariance, unit))
        return jnp.where(whole, self.cholesky, partial)

    def moved(self, move: Move) -> "Gaussian":
        """N(offset + scale mean, (scale L) (scale L)^T + spread^2), the scale by rows of L."""
        root = jnp.asarray(move.scale, self.mean.dtype)[:, None] * self.cholesky
        both = jnp.concatenate([root, jnp.diag(move.spread)], axis=1)
        spread = jnp.any(move.spread > 0)
        cholesky = jnp.where(spread, _linalg.lower_triangular(both), root)
        return Gaussian.from_cholesky(move.mean(self.mean), cholesky)

    def stabilised(self) -> "Gaussian":
        """Hold diag(L) to [exp(-7.5), exp(2.5)], and what lies below it to ±exp(2.5)."""
        lower = jnp.clip(jnp.tril(self.factor, -1), -LARGEST_STD, LARGEST_STD)
        diagonal = jnp.clip(jnp.diagonal(self.factor), -7.5, 2.5)
        return Gaussian(self.mean, lower + jnp.diag(diagonal))
