"""KL(q || p), analytic where a closed form exists."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from varfilter._linalg import solve_lower
from varfilter.distributions.base import AbstractDistribution, is_distribution
from varfilter.distributions.bernoulli import Bernoulli
from varfilter.distributions.gaussian import Gaussian
from varfilter.distributions.normal import Normal


def kl(q: PyTree, p: PyTree) -> Float[Array, ""]:
    """KL(q || p) in nats, summed over the distributions of the tree `q` (same tree as `p`)."""
    return sum((_closed_form(a, b)(a, b) for a, b in _pairs(q, p)), start=jnp.zeros(()))


def has_analytic_kl(q: PyTree, p: PyTree) -> bool:
    """Whether `kl` knows a closed form for every pair of families in the two trees."""
    return all((type(a), type(b)) in _CLOSED_FORMS for a, b in _pairs(q, p))


def _normal(q: Normal, p: Normal) -> Float[Array, ""]:
    # 1/2 sum of exp(l_q - l_p) + (m_q - m_p)^2 exp(-l_p) - 1 - (l_q - l_p)
    log_ratio = q.log_var - p.log_var
    square = (q.mean - p.mean) ** 2 * jnp.exp(-p.log_var)
    # expm1(r) - r keeps its digits when q is close to p, where KL is a small difference.
    return 0.5 * jnp.sum(jnp.expm1(log_ratio) - log_ratio + square)


def _gaussian(q: Gaussian, p: Gaussian) -> Float[Array, ""]:
    # With W = L_p^-1 L_q: 1/2 (|W|^2 - size + |L_p^-1 (m_q - m_p)|^2) + log det L_p - log det L_q
    right = jnp.concatenate([q.cholesky, (q.mean - p.mean)[:, None]], axis=1)
    white = solve_lower(p.cholesky, right)
    log_det = jnp.trace(p.factor) - jnp.trace(q.factor)
    return 0.5 * (jnp.sum(white**2) - q.mean.size) + log_det


def _bernoulli(q: Bernoulli, p: Bernoulli) -> Float[Array, ""]:
    # sum of q (a - b) + log(1 - q) - log(1 - p), with logits a of q and b of p
    return jnp.sum(
        q.mean * (q.logits - p.logits) + jax.nn.softplus(p.logits) - jax.nn.softplus(q.logits)
    )


_CLOSED_FORMS: dict[tuple[type, type], Callable[..., Float[Array, ""]]] = {
    (Normal, Normal): _normal,
    (Gaussian, Gaussian): _gaussian,
    (Normal, Gaussian): lambda q, p: _gaussian(Gaussian.from_normal(q), p),
    (Gaussian, Normal): lambda q, p: _gaussian(q, Gaussian.from_normal(p)),
    (Bernoulli, Bernoulli): _bernoulli,
}


def _pairs(q: PyTree, p: PyTree) -> list[tuple[AbstractDistribution, AbstractDistribution]]:
    left, treedef = jax.tree.flatten(q, is_leaf=is_distribution)
    right, other = jax.tree.flatten(p, is_leaf=is_distribution)
    if treedef != other:
        raise TypeError(
            f"`kl(q, p)` needs two trees of one structure; got q with {treedef} and p with {other}."
            " Return the same structure from the inference as from `model.prior`."
        )
    return list(zip(left, right, strict=True))


def _closed_form(
    q: AbstractDistribution, p: AbstractDistribution
) -> Callable[..., Float[Array, ""]]:
    form = _CLOSED_FORMS.get((type(q), type(p)))
    if form is None:
        raise TypeError(
            f"`kl(q, p)` has no closed form for q `{type(q).__name__}` and p `{type(p).__name__}`."
            " Estimate E_q[log q(z) - log p(z)] from samples; `free_energy` does so by itself."
        )
    return form
