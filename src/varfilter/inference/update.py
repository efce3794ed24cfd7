"""The pieces of an iterative update: input normalisation, and what is done to q."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._tree import flat
from varfilter.distributions import is_distribution, stabilised
from varfilter.nn import in_parts, linear

EPSILON = 1e-7
# Of a network that should leave q as it is before it has learned anything, and yet can learn.
FIRST_GAIN = 0.01


class LayerNorm(eqx.Module):
    """(v - mean(v)) / std(v) over the elements of one input term, without scale or shift.

    The paper's form. The network then sees the direction of a gradient, not its size: of a
    latent of one element nothing is left, and of one of two elements a sign.
    """

    def __call__(self, term: Float[Array, " size"]) -> Float[Array, " size"]:
        """Normalise one term; a term of one element becomes zero."""
        centred = term - jnp.mean(term)
        square = jnp.sum(centred**2) / max(term.size - 1, 1)
        # The mean of equal numbers is off by a rounding: what varies less is constant, not
        # noise to be blown up to order one. The root's derivative is finite where it is taken.
        rounding = 4 * jnp.finfo(term.dtype).eps * jnp.max(jnp.abs(term), initial=0.0)
        varies = square > rounding**2
        std = jnp.sqrt(jnp.where(varies, square, 1.0))
        return jnp.where(varies, centred / (std + EPSILON), 0.0)


class SignedLog(eqx.Module):
    """sign(v) log(1 + |v|): keeps the size of each element, and tames it."""

    def __call__(self, term: Float[Array, " size"]) -> Float[Array, " size"]:
        """Compress each element of the term."""
        return jnp.sign(term) * jnp.log1p(jnp.abs(term))


class NormAndLog(eqx.Module):
    """v / rms(v) beside sign(v) log(1 + |v|): a term's direction, and the size of its elements.

    The direction is of order one however small the gradients are, as they are while a model is
    new and its emission hardly listens to z; by their logs alone they would be next to nothing, q
    would stay at the prior and the latent be given up. The logs tell large gradients from small
    ones, and serve latents of any size: of one element the direction is a sign.
    """

    def __call__(self, term: Float[Array, " size"]) -> Float[Array, " twice"]:
        """Make two numbers of each element; of zeros alone, zeros."""
        largest = jnp.max(jnp.abs(term), initial=0.0)
        # By the largest first: the squares of the smallest and of the largest floats are none.
        scaled = term / jnp.where(largest > 0.0, largest, 1.0)
        square = jnp.sum(scaled**2) / max(term.size, 1)
        # Still none where the reciprocal of the largest is below all floats: 1e38 has no direction.
        direction = scaled / jnp.sqrt(jnp.where(square > 0.0, square, 1.0))
        return jnp.concatenate([direction, SignedLog()(term)])


class Shift(eqx.Module):
    """q' = q + offset, linear in the trunk's output.

    The offset starts close to zero: an untrained network leaves the prior as it is. What does not
    move need not be learned, however large a latent's mean.
    """

    needs_gradient: ClassVar[bool] = False
    offset: eqx.nn.Linear

    def __init__(self, hidden_size: int, parameter_size: int, *, key: PRNGKeyArray):
        self.offset = linear(hidden_size, parameter_size, gain=FIRST_GAIN, key=key)

    def __call__(self, hidden: Float[Array, " hidden"], q: Any, signal: Any) -> Any:
        """Make the next iterate from the trunk's output."""
        parameters, unravel = ravel_pytree(q)
        return stabilised(unravel(parameters + in_parts(self.offset, hidden)))


class Highway(eqx.Module):
    """q' = g * q + (1 - g) * candidate, parameter by parameter   (paper, appendix B).

    Gate and candidate are linear in the trunk's output; the gate goes through a sigmoid.
    """

    needs_gradient: ClassVar[bool] = False
    candidate: eqx.nn.Linear
    gate: eqx.nn.Linear

    def __init__(self, hidden_size: int, parameter_size: int, *, key: PRNGKeyArray):
        key_candidate, key_gate = jax.random.split(key)
        self.candidate = linear(hidden_size, parameter_size, key=key_candidate)
        self.gate = linear(hidden_size, parameter_size, key=key_gate)

    def __call__(self, hidden: Float[Array, " hidden"], q: Any, signal: Any) -> Any:
        """Make the next iterate from the trunk's output."""
        parameters, unravel = ravel_pytree(q)
        g = jax.nn.sigmoid(in_parts(self.gate, hidden))
        return stabilised(unravel(g * parameters + (1.0 - g) * in_parts(self.candidate, hidden)))


class LearnedStep(eqx.Module):
    """q' = q - g * dF/dq + offset: gradient descent with a learned step and a learned push.

    It takes the raw gradient, so its signal must be `Gradients`.
    """

    needs_gradient: ClassVar[bool] = True
    offset: eqx.nn.Linear
    gate: eqx.nn.Linear

    def __init__(self, hidden_size: int, parameter_size: int, *, key: PRNGKeyArray):
        key_offset, key_gate = jax.random.split(key)
        self.offset = linear(hidden_size, parameter_size, key=key_offset)
        self.gate = linear(hidden_size, parameter_size, key=key_gate)

    def __call__(self, hidden: Float[Array, " hidden"], q: Any, signal: Any) -> Any:
        """Make the next iterate from the trunk's output."""
        parameters, unravel = ravel_pytree(q)
        g = jax.nn.sigmoid(in_parts(self.gate, hidden))
        return stabilised(unravel(parameters - g * flat(signal) + in_parts(self.offset, hidden)))


class MeanNormalized(eqx.Module):
    """Another update, with each posterior mean brought to zero mean and unit spread after it.

    The paper reports that this steadied training. Note what it costs: q's mean can then
    never equal a prior mean of another scale.
    """

    update: Any

    @property
    def needs_gradient(self) -> bool:
        """Whether the update inside takes the raw gradient."""
        return self.update.needs_gradient

    @staticmethod
    def of(update: Callable[..., Any]) -> Callable[..., "MeanNormalized"]:
        """Wrap another update: `Iterative(update=MeanNormalized.of(Highway))`."""

        def build(hidden_size: int, parameter_size: int, *, key: PRNGKeyArray) -> MeanNormalized:
            return MeanNormalized(update(hidden_size, parameter_size, key=key))

        return build

    def __call__(self, hidden: Float[Array, " hidden"], q: Any, signal: Any) -> Any:
        """Make the next iterate, and normalise its means."""
        q = self.update(hidden, q, signal)
        normalize = LayerNorm()
        return jax.tree.map(
            lambda d: eqx.tree_at(
                lambda d: d.mean, d, normalize(jnp.ravel(d.mean)).reshape(d.mean.shape)
            ),
            q,
            is_leaf=is_distribution,
        )
