"""What every distribution can do, and the same for pytrees of distributions.

Some draws are differentiable functions of the parameters, z = f(parameters, noise); which ones, the
end of this file finds out.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree


class AbstractDistribution(eqx.Module):
    """A distribution over one event; its array leaves are its unconstrained parameters.

    Because it is a pytree, the gradient of a scalar with respect to a distribution is
    again a distribution: this is what lets an inference method write dF/dq.

    `is_reparameterisable` says whether `sample` is a differentiable function of the parameters
    and of noise that does not depend on them. It is True unless a family says otherwise; a
    discrete one must (`is_reparameterisable: ClassVar[bool] = False`), for the gradient through
    its draws is zero where that of their expectation is not. A family that is made of others,
    as `Joint` is, speaks for itself alone: its parts are asked, too.

    `is_symmetric` says whether 2 mean - z is as likely as z, and is what the opposite noise would
    have drawn; it is False unless a family says otherwise.
    """

    is_reparameterisable: ClassVar[bool] = True
    is_symmetric: ClassVar[bool] = False

    if not TYPE_CHECKING:  # a type checker would take these for arguments of every subclass
        mean: eqx.AbstractVar[Any]
        variance: eqx.AbstractVar[Any]
    else:
        mean: Any = eqx.field(init=False)
        variance: Any = eqx.field(init=False)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray) -> Any:
        """Draw one event, differentiable in the parameters if `is_reparameterisable`."""

    @abstractmethod
    def log_prob(self, x: Any) -> Float[Array, ""]:
        """log p(x), summed over the observed elements of `x` alone (NaN: unobserved)."""

    def complete(self, x: Float[Array, " *event"], key: PRNGKeyArray) -> Float[Array, " *event"]:
        """Draw the unobserved elements of `x` (NaN) given the others, which stay as they are.

        For families whose elements are independent; others must say how theirs depend.
        """
        return fill(x, self.sample(key))

    def error(self, x: Float[Array, " *event"]) -> Float[Array, " *event"]:
        """The precision-weighted error (x - mean) / variance; 0 where `x` is unobserved."""
        return jnp.where(observed(x), fill(x, self.mean) - self.mean, 0.0) / self.variance

    def moved(self, move: "Move") -> "AbstractDistribution":
        """The distribution of offset + scale * x + spread * noise, for x of this one.

        For families that have it; a family that is not closed under such moves has none.
        """
        raise TypeError(f"`{type(self).__name__}` cannot be moved: no member of it is the result.")

    def bounded(
        self, low: tuple[float | None, ...], high: tuple[float | None, ...]
    ) -> "AbstractDistribution":
        """The distribution with a lowest and a highest value, one or None an element.

        For families that can have them; the others stay as they are.
        """
        return self

    def widened(self, factor: float) -> "AbstractDistribution":
        """The distribution with a standard deviation that is `factor` times as large.

        A family whose spread is no parameter of its own, such as `Bernoulli`, stays as it is.
        """
        return self

    def tempered(self, temperature: float) -> "AbstractDistribution":
        """The distribution with its randomness scaled: p(x)^(1 / temperature), made to sum to 1.

        1 leaves it as it is, less is surer of its mode, more is wilder. A Gaussian has
        `temperature` times the variance; the log-odds of what is chosen (`Bernoulli`,
        `Categorical`, zero or not, which component) are divided by it. Families that have no such
        member of their own say what they do instead; one of somebody's own that says nothing is
        `widened` by the root of it.
        """
        return self.widened(math.sqrt(temperature))

    def stabilised(self) -> "AbstractDistribution":
        """Hold the parameters in a numerically safe range."""
        return self


@dataclass(frozen=True)
class Move:
    """x' = offset + scale * x + spread * noise, noise ~ N(0, 1), for each element of an event.

    Elements that are not `moving` stay as they are: their offset is 0, their scale 1, and their
    spread 0. `scale` and `moving` are known when a program is compiled, as the width of a bin is.
    """

    offset: Float[Array, " *event"]
    spread: Float[Array, " *event"]
    scale: np.ndarray
    moving: np.ndarray

    def of(self, places: tuple[int, ...]) -> "Move":
        """The move of some elements of a vector."""
        where = np.array(places)
        return Move(self.offset[where], self.spread[where], self.scale[where], self.moving[where])

    def mean(self, mean: Float[Array, " *event"]) -> Float[Array, " *event"]:
        """The mean of x', from that of x."""
        return self.offset + jnp.asarray(self.scale, mean.dtype) * mean

    def log_var(self, log_var: Float[Array, " *event"]) -> Float[Array, " *event"]:
        """The log-variance of x', from that of x; without spread it is only shifted."""
        scaled = log_var + jnp.asarray(2.0 * np.log(self.scale), log_var.dtype)
        spread = jnp.where(self.spread > 0, self.spread, 1.0)  # a logarithm with a gradient
        return jnp.where(self.spread > 0, jnp.logaddexp(scaled, 2.0 * jnp.log(spread)), scaled)


def observed(x: Float[Array, " *event"]) -> Bool[Array, " *event"]:
    """Say which elements of `x` were observed."""
    return ~jnp.isnan(x)


def fill(x: Float[Array, " *event"], value: Float[Array, " *event"]) -> Float[Array, " *event"]:
    """Take the unobserved elements of `x` from `value`."""
    return jnp.where(observed(x), x, value)


def parameter(value: Any) -> Float[Array, "..."]:
    """Make `value` an array of floats: the type of every unconstrained parameter."""
    array = jnp.asarray(value)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise TypeError(f"A distribution's parameters must be real; got dtype {array.dtype}.")
    is_float = jnp.issubdtype(array.dtype, jnp.floating)
    return array if is_float else array.astype(jnp.result_type(float))


def require_shape(name: str, value: Array, shape: tuple[int, ...], fix: str) -> None:
    """Refuse a parameter whose shape does not go with that of `mean`."""
    if value.shape != shape:
        raise ValueError(
            f"`{name}` must have shape {shape} to go with `mean`; got {value.shape}. {fix}"
        )


def require_width(width: Any) -> None:
    """Refuse a width of a quantised distribution's bins that is not positive and finite."""
    if not isinstance(width, float | int | np.number) or not 0 < width < float("inf"):
        raise ValueError(
            f"`width` must be positive and finite; got {width!r}. It is the distance of two"
            " neighbouring levels of the data, e.g. 1 / 255 for 8-bit images in [0, 1]."
        )


# Below, `tree` is one distribution or any pytree of them (a hierarchy of latents).


def sample(tree: PyTree, key: PRNGKeyArray) -> PyTree:
    """Draw from each distribution of `tree`."""
    leaves, treedef = jax.tree.flatten(tree, is_leaf=is_distribution)
    if len(leaves) == 1:
        return treedef.unflatten([leaves[0].sample(key)])
    keys = jax.random.split(key, len(leaves))
    return treedef.unflatten([leaf.sample(k) for leaf, k in zip(leaves, keys, strict=True)])


def sample_pair(tree: PyTree, key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
    """Draw twice from each distribution; the second draw mirrors the first where that is a draw.

    What is odd in the noise cancels in the mean over such a pair: of any linear function of z,
    it is exact. From families that are not symmetric the two draws are independent.
    """
    key_first, key_second = jax.random.split(key)
    first, second = sample(tree, key_first), sample(tree, key_second)
    leaves, treedef = jax.tree.flatten(tree, is_leaf=is_distribution)
    draws = zip(leaves, treedef.flatten_up_to(first), treedef.flatten_up_to(second), strict=True)
    return first, treedef.unflatten(
        [2.0 * d.mean - one if d.is_symmetric else other for d, one, other in draws]
    )


def log_prob(tree: PyTree, value: PyTree) -> Float[Array, ""]:
    """The joint log-probability of `value`: a sum over the distributions of `tree`."""
    leaves, treedef = jax.tree.flatten(tree, is_leaf=is_distribution)
    values = treedef.flatten_up_to(value)
    return sum((d.log_prob(v) for d, v in zip(leaves, values, strict=True)), start=jnp.zeros(()))


def mean(tree: PyTree) -> PyTree:
    """The mean of each distribution of `tree`."""
    return jax.tree.map(lambda d: d.mean, tree, is_leaf=is_distribution)


def error(tree: PyTree, value: PyTree) -> PyTree:
    """The precision-weighted error of `value` under each distribution of `tree`."""
    leaves, treedef = jax.tree.flatten(tree, is_leaf=is_distribution)
    values = treedef.flatten_up_to(value)
    return treedef.unflatten([d.error(v) for d, v in zip(leaves, values, strict=True)])


def stabilised(tree: PyTree) -> PyTree:
    """Hold each distribution of `tree` in its numerically safe range."""
    return jax.tree.map(lambda d: d.stabilised(), tree, is_leaf=is_distribution)


def tempered(tree: PyTree, temperature: float) -> PyTree:
    """Scale the randomness of each distribution of `tree`; 1 leaves them as they are."""
    if temperature == 1.0:
        return tree
    return jax.tree.map(lambda d: d.tempered(temperature), tree, is_leaf=is_distribution)


def event_shape(tree: PyTree) -> PyTree:
    """The event shape of each distribution of `tree`."""
    return jax.tree.map(lambda d: d.shape, tree, is_leaf=is_distribution)


def is_distribution(node: Any) -> bool:
    """Whether `node` is a distribution (and so a leaf of a tree of distributions)."""
    return isinstance(node, AbstractDistribution)


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
