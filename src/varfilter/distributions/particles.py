"""Weighted particles, and mixtures of distributions: the beliefs of a particle filter."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from varfilter.distributions.base import AbstractDistribution


class Particles(AbstractDistribution):
    """sum_i w_i delta(z - values_i); each array of `values` has the particles as first axis."""

    is_reparameterisable: ClassVar[bool] = False  # which particle is drawn is a choice
    values: PyTree
    log_weights: Float[Array, " num_particles"] = eqx.field(converter=jnp.asarray)

    @property
    def weights(self) -> Float[Array, " num_particles"]:
        """The weights, which sum to one."""
        return jax.nn.softmax(self.log_weights)

    @property
    def shape(self) -> Any:
        """The shape of one event."""
        shapes = jax.tree.map(lambda v: v.shape[1:], self.values)
        return shapes

    @property
    def mean(self) -> PyTree:
        """The mean, sum_i w_i values_i."""
        return jax.tree.map(lambda v: jnp.tensordot(self.weights, v, axes=1), self.values)

    @property
    def variance(self) -> PyTree:
        """The variance of each element, sum_i w_i (values_i - mean)^2."""
        return jax.tree.map(
            lambda v, m: jnp.tensordot(self.weights, (v - m[None]) ** 2, axes=1),
            self.values,
            self.mean,
        )

    @property
    def effective_sample_size(self) -> Float[Array, ""]:
        """How many particles of equal weight are worth as much: 1 / sum_i w_i^2."""
        return jnp.exp(-jax.nn.logsumexp(2 * jax.nn.log_softmax(self.log_weights)))

    def sample(self, key: PRNGKeyArray) -> PyTree:
        """Draw one of the particles, by weight."""
        index = jax.random.categorical(key, self.log_weights)
        return jax.tree.map(lambda v: v[index], self.values)

    def log_prob(self, x: Any) -> Float[Array, ""]:
        """Refuse: particles have no density."""
        raise TypeError(
            "`Particles.log_prob` is undefined: a set of particles has no density."
            " Use `Mixture`, or the filter's `bound`."
        )


class Mixture(AbstractDistribution):
    """sum_i w_i p_i; `components` is one distribution whose arrays have i as first axis."""

    is_reparameterisable: ClassVar[bool] = False  # which component is drawn is a choice
    components: AbstractDistribution
    log_weights: Float[Array, " num_components"] = eqx.field(converter=jnp.asarray)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""
        return eqx.filter_eval_shape(lambda: _component(self.components, 0)).shape

    @property
    def weights(self) -> Float[Array, " num_components"]:
        """The weights, which sum to one."""
        return jax.nn.softmax(self.log_weights)

    @property
    def mean(self) -> Array:
        """The mean, sum_i w_i mean_i."""
        means = jax.vmap(lambda d: d.mean)(self.components)
        return jnp.tensordot(self.weights, means, axes=1)

    @property
    def variance(self) -> Array:
        """The variance of each element, within the components plus between them."""
        means, variances = jax.vmap(lambda d: (d.mean, d.variance))(self.components)
        second = variances + (means - self.mean[None]) ** 2
        return jnp.tensordot(self.weights, second, axes=1)

    def sample(self, key: PRNGKeyArray) -> Array:
        """Draw a component by weight, and an event from it."""
        key_index, key_event = jax.random.split(key)
        index = jax.random.categorical(key_index, self.log_weights)
        return _component(self.components, index).sample(key_event)

    def complete(self, x: Array, key: PRNGKeyArray) -> Array:
        """Draw a component by its weight given the observed elements, and the others from it."""
        key_index, key_event = jax.random.split(key)
        each = jax.vmap(lambda d: d.log_prob(x))(self.components)
        index = jax.random.categorical(key_index, self.log_weights + each)
        return _component(self.components, index).complete(x, key_event)

    def tempered(self, temperature: float) -> "Mixture":
        """Scale the randomness of each component, and divide the log-weights by it."""
        components = jax.vmap(lambda d: d.tempered(temperature))(self.components)
        return Mixture(components, jax.nn.log_softmax(self.log_weights) / temperature)

    def log_prob(self, x: Array) -> Float[Array, ""]:
        """log sum_i w_i p_i(x), observed elements only."""
        each = jax.vmap(lambda d: d.log_prob(x))(self.components)
        return jax.nn.logsumexp(jax.nn.log_softmax(self.log_weights) + each)


def _component(components: AbstractDistribution, index: Any) -> AbstractDistribution:
    return jax.tree.map(lambda leaf: leaf[index], components)
