"""Which draws are differentiable functions of the parameters, z = f(parameters, noise)."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from varfilter.distributions.base import AbstractDistribution, is_distribution


def is_reparameterisable(tree: PyTree) -> bool:
    """Whether each distribution of `tree`, and each that it is made of, says so of its family."""
    return all(distribution.is_reparameterisable for distribution in _each(tree))


def not_reparameterisable(tree: PyTree) -> list[AbstractDistribution]:
    """The distributions of `tree` whose draws have no gradient, or not the whole of it.

    These are the families that say so, and those that claim the gradient while their draws do
    not move with their parameters. `tree` may hold shapes in place of arrays.
    """
    return [each for each in _each(tree) if not (each.is_reparameterisable and _moves(each))]


def _each(tree: PyTree) -> Iterator[AbstractDistribution]:
    """Each distribution of `tree`, followed by those that it holds itself."""
    for node in jax.tree.leaves(tree, is_leaf=is_distribution):
        if is_distribution(node):
            yield node
            yield from _each(_contents(node))


def _contents(distribution: AbstractDistribution) -> list:
    return jax.tree.leaves(
        distribution, is_leaf=lambda node: node is not distribution and is_distribution(node)
    )


def _moves(distribution: AbstractDistribution) -> bool:
    """Whether a draw depends differentiably on any parameter; it is traced, not computed.

    True where there are no parameters that it could depend on; False where the draw is made by
    something that has no derivative, such as a callback.
    """
    seen = []

    @jax.custom_jvp
    def look(z: Any) -> Any:
        return z

    @look.defjvp
    def rule(primals: Any, tangents: Any) -> Any:  # not called where the tangent is zero for sure
        seen.append(True)
        return primals[0], tangents[0]

    def tangent(distribution: AbstractDistribution, key: Any) -> Any:
        parameters, rest = eqx.partition(distribution, eqx.is_inexact_array)
        seen.extend([] if jax.tree.leaves(parameters) else [True])

        def draw(parameters: Any) -> Any:
            return jax.tree.map(look, eqx.combine(parameters, rest).sample(key))

        return jax.jvp(draw, (parameters,), (jax.tree.map(jnp.ones_like, parameters),))[0]

    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        eqx.filter_eval_shape(tangent, distribution, key)
    except Exception:  # JAX has many for what cannot be differentiated
        eqx.filter_eval_shape(lambda d, k: d.sample(k), distribution, key)  # is it that, or worse?
        return False
    return bool(seen)
