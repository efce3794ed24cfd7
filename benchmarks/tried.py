"""What was tried for the defaults of `Iterative` and is not part of the library."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from varfilter import distributions
from varfilter.distributions import is_distribution, stabilised
from varfilter.inference import Gradients, Highway, LayerNorm, LearnedStep, SignedLog
from varfilter.nn import linear


class LayerAndScale(eqx.Module):
    """Layer norm, and the mean and the spread that it took out, as signed logarithms."""

    def __call__(self, term):
        mean, std = jnp.mean(term), jnp.std(term)
        return jnp.concatenate([LayerNorm()(term), SignedLog()(jnp.stack([mean, std]))])


class LayerAndLog(eqx.Module):
    """Layer norm and the signed logarithm side by side."""

    def __call__(self, term):
        return jnp.concatenate([LayerNorm()(term), SignedLog()(term)])


class Shift(eqx.Module):
    """q' = q + offset, which starts at zero: an untrained network leaves the prior as it is."""

    needs_gradient = False
    offset: eqx.nn.Linear

    def __init__(self, hidden_size, parameter_size, *, key):
        layer = linear(hidden_size, parameter_size, key=key)
        self.offset = eqx.tree_at(lambda layer: layer.weight, layer, jnp.zeros_like(layer.weight))

    def __call__(self, hidden, q, signal):
        parameters, unravel = ravel_pytree(q)
        return stabilised(unravel(parameters + self.offset(hidden)))


class ScaledShift(eqx.Module):
    """As `Shift`, with means moved in units of q's own standard deviation."""

    needs_gradient = False
    offset: eqx.nn.Linear

    def __init__(self, hidden_size, parameter_size, *, key):
        layer = linear(hidden_size, parameter_size, key=key)
        self.offset = eqx.tree_at(lambda layer: layer.weight, layer, jnp.zeros_like(layer.weight))

    def __call__(self, hidden, q, signal):
        _, unravel = ravel_pytree(q)

        def moved(d, by):
            scaled = eqx.tree_at(lambda d: d.mean, by, jnp.sqrt(d.variance) * by.mean)
            return jax.tree.map(jnp.add, d, scaled)

        step = unravel(self.offset(hidden))
        return stabilised(jax.tree.map(moved, q, step, is_leaf=is_distribution))


class PairedGradients(eqx.Module):
    """dF/dq from pairs of draws, z and its mirror image in the mean of q.

    What is odd in the noise cancels: where log p(x | z) is quadratic, dF/dmean is exact.
    """

    is_gradient = True

    def __call__(self, q, model, state, x, key, *, prior, num_samples, kl_weight):
        def total(q):
            def one(key):
                z = distributions.sample(q, key)
                mirrored = jax.tree.map(lambda mean, z: 2.0 * mean - z, distributions.mean(q), z)
                return -0.5 * sum(
                    distributions.log_prob(model.emission(state, z), x) for z in (z, mirrored)
                )

            terms = jax.vmap(one)(jax.random.split(key, num_samples))
            return jnp.mean(terms) + kl_weight * distributions.kl(q, prior)

        value, gradient = jax.value_and_grad(total)(q)
        return gradient, value


NORMALIZATIONS = {
    "layer": LayerNorm(),
    "log": SignedLog(),
    "layer+scale": LayerAndScale(),
    "layer+log": LayerAndLog(),
}
SIGNALS = {"gradients": Gradients(), "pairs": PairedGradients()}
UPDATES = {"highway": Highway, "learned-step": LearnedStep, "shift": Shift, "scaled": ScaledShift}
