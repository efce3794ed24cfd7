"""Linear-Gaussian latents seen through a network."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter._arguments import require_all_positive, require_key
from varfilter.distributions import Normal
from varfilter.model import AbstractModel
from varfilter.models.heads import NormalHead, as_shape
from varfilter.nn import Dense


class LinearDynamics(AbstractModel):
    """z_t = A z_{t-1} + a + w, w ~ N(0, diag exp(l));  x_t ~ head(decoder(z_t)).

    All that is hard about the world is put into the emission, so the latents can be read:
    the eigenvalues of A are the world's rates and frequencies. A starts near the identity.
    """

    transition: Float[Array, "latent latent"]
    offset: Float[Array, " latent"]
    log_var: Float[Array, " latent"]
    initial: Normal
    decoder: Dense
    head: Any
    latent_size: int = eqx.field(static=True)

    def __init__(
        self,
        observation_shape: tuple[int, ...] | int,
        latent_size: int,
        *,
        hidden_size: int = 64,
        num_layers: int = 2,
        head: Callable[..., Any] = NormalHead,
        key: PRNGKeyArray,
    ):
        shape = as_shape(observation_shape)
        require_all_positive(
            latent_size=latent_size, hidden_size=hidden_size, num_layers=num_layers
        )
        require_key(key)
        key_decoder, key_head = jax.random.split(key)
        self.transition = 0.95 * jnp.eye(latent_size)
        self.offset = jnp.zeros((latent_size,))
        # The stationary variance under this A is one, that of the first latent.
        self.log_var = jnp.zeros((latent_size,)) + jnp.log(1.0 - 0.95**2)
        self.initial = Normal(jnp.zeros((latent_size,)), jnp.zeros((latent_size,)))
        self.decoder = Dense(latent_size, hidden_size, num_layers, key=key_decoder)
        self.head = head(hidden_size, shape, key=key_head)
        self.latent_size = latent_size

    def init(self, x0: Float[Array, " *event"] | None = None) -> Normal:
        """The (learned) prior of the first latent; `x0` is ignored: the chain is Markov in z."""
        return self.initial.stabilised()

    def embed(self, x: Float[Array, " *event"]) -> None:
        """Return nothing: the recurrence does not need x_t."""
        return None

    def prior(self, state: Normal) -> Normal:
        """p(z_t | z_{t-1})."""
        return state

    def emission(self, state: Normal, z: Float[Array, " latent"]) -> Any:
        """p(x_t | z_t)."""
        return self.head(self.decoder(z))

    def advance(self, state: Normal, z: Float[Array, " latent"], features: None) -> Normal:
        """Predict the next latent: p(z_{t+1} | z_t)."""
        return Normal(self.transition @ z + self.offset, self.log_var).stabilised()
