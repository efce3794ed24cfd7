"""Output heads: from a decoder's last layer to the distribution of an observation."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._arguments import require_positive
from varfilter.distributions import Bernoulli, Normal
from varfilter.nn import linear


class NormalHead(eqx.Module):
    """N(W h + b, exp(l)) with one learned log-variance for each element.

    `std` is where exp(l / 2) starts. Give a guess of the noise of the data: it scales how
    much the latents are worth learning (`head=functools.partial(NormalHead, std=0.3)`).
    """

    mean: eqx.nn.Linear
    log_var: Float[Array, " size"]
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self, hidden_size: int, shape: tuple[int, ...], *, std: float = 1.0, key: PRNGKeyArray
    ):
        size = num_elements(shape)
        self.mean = linear(hidden_size, size, key=key)
        self.log_var = jnp.full((size,), 2.0 * jnp.log(std))
        self.shape = shape

    def __call__(self, hidden: Float[Array, " hidden"]) -> Normal:
        """The distribution of x given the decoder's last layer."""
        mean = self.mean(hidden).reshape(self.shape)
        return Normal(mean, self.log_var.reshape(self.shape)).stabilised()


class BernoulliHead(eqx.Module):
    """P(x = 1) = sigmoid(W h + b)."""

    logits: eqx.nn.Linear
    shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, hidden_size: int, shape: tuple[int, ...], *, key: PRNGKeyArray):
        self.logits = linear(hidden_size, num_elements(shape), key=key)
        self.shape = shape

    def __call__(self, hidden: Float[Array, " hidden"]) -> Bernoulli:
        """The distribution of x given the decoder's last layer."""
        return Bernoulli(self.logits(hidden).reshape(self.shape))


def as_shape(shape: tuple[int, ...] | int) -> tuple[int, ...]:
    """The shape of an observation; a whole number means a vector."""
    sizes = shape if isinstance(shape, tuple) else (shape,)
    return tuple(require_positive("observation_shape", size) for size in sizes)


def num_elements(shape: tuple[int, ...]) -> int:
    """How many elements an array of this shape has."""
    size = 1
    for length in shape:
        size *= length
    return size
