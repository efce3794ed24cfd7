"""Two textbook models with three parameters each, and their exact log-likelihoods.

Both have one latent, z_1 ~ N(0, 1), z_t ~ N(factor z_{t-1}, exp(log_std)^2), and differ in what is
seen of it. The likelihood of the first is a Kalman filter's; that of the second is summed over a
grid of latents, which is exact to the digits that are shown.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

import varfilter as vf
from varfilter.distributions import Normal

NAMES = ("factor", "log_std", "log_noise")


class State(eqx.Module):
    """The mean and the log-variance of z_t, as the past predicts it."""

    mean: jax.Array
    log_var: jax.Array


class NoisyAutoregression(vf.AbstractModel):
    """AR(1) with noise: x_t ~ N(z_t, exp(log_noise)^2)."""

    factor: jax.Array = eqx.field(converter=jnp.asarray)
    log_std: jax.Array = eqx.field(converter=jnp.asarray)
    log_noise: jax.Array = eqx.field(converter=jnp.asarray)

    def init(self, x0=None):
        return State(jnp.zeros(1), jnp.zeros(1))

    def embed(self, x):
        return None

    def prior(self, state):
        return Normal(state.mean, state.log_var)

    def emission(self, state, z):
        return Normal(z, jnp.full_like(z, 2.0 * self.log_noise))

    def advance(self, state, z, features):
        return State(self.factor * z, jnp.full_like(z, 2.0 * self.log_std))

    def log_likelihood(self, xs: jax.Array) -> jax.Array:
        """log p(x_1, ..., x_T) of one sequence (time, 1), by the Kalman filter."""
        model = vf.LinearGaussian(
            transition=self.factor[None, None],
            process_covariance=jnp.exp(2.0 * self.log_std)[None, None],
            loading=jnp.ones((1, 1)),
            noise_covariance=jnp.exp(2.0 * self.log_noise)[None, None],
            initial_covariance=jnp.ones((1, 1)),
        )
        return jnp.sum(vf.run(vf.KalmanFilter(), model, xs, ahead=True)[1].bound)


class StochasticVolatility(vf.AbstractModel):
    """Returns whose volatility wanders: x_t ~ N(0, exp(z_t) exp(log_noise)^2)."""

    factor: jax.Array = eqx.field(converter=jnp.asarray)
    log_std: jax.Array = eqx.field(converter=jnp.asarray)
    log_noise: jax.Array = eqx.field(converter=jnp.asarray)

    def init(self, x0=None):
        return State(jnp.zeros(1), jnp.zeros(1))

    def embed(self, x):
        return None

    def prior(self, state):
        return Normal(state.mean, state.log_var)

    def emission(self, state, z):
        return Normal(jnp.zeros_like(z), z + 2.0 * self.log_noise)

    def advance(self, state, z, features):
        return State(self.factor * z, jnp.full_like(z, 2.0 * self.log_std))

    def log_likelihood(self, xs: jax.Array) -> jax.Array:
        """log p(x_1, ..., x_T) of one sequence (time, 1), summed over a grid of latents.

        Within nine standard deviations of the stationary latent at the truth, 120 points: of a
        smooth density such a sum is exact to rounding.
        """
        grid = jnp.linspace(-8.0, 8.0, 120)
        from_z, to_z = grid[:, None], grid[None, :]
        log_step = _log_normal(to_z - self.factor * from_z, 2.0 * self.log_std)
        log_step = log_step - jax.nn.logsumexp(log_step, axis=1, keepdims=True)
        log_first = jax.nn.log_softmax(_log_normal(grid, jnp.zeros(())))
        step = jnp.exp(log_step)

        def take(predicted: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
            log_seen = _log_normal(x[0], grid + 2.0 * self.log_noise)
            most = jnp.max(log_seen)
            joint = predicted * jnp.exp(log_seen - most)
            total = jnp.sum(joint)
            return (joint / total) @ step, jnp.log(total) + most

        return jnp.sum(jax.lax.scan(take, jnp.exp(log_first), xs)[1])


MODELS = {
    "AR(1) with noise": (NoisyAutoregression(0.9, jnp.log(0.5), jnp.log(0.7)), (0.5, 0.0, 0.0)),
    "stochastic volatility": (StochasticVolatility(0.95, jnp.log(0.35), 0.0), (0.5, 0.0, 0.0)),
}


def simulated(model: vf.AbstractModel, shape: tuple[int, int, int], key: jax.Array) -> jax.Array:
    """Data of the model: (data sets, sequences, steps, 1)."""
    num_sets, num_sequences, num_steps = shape
    keys = jax.random.split(key, num_sets * num_sequences)
    xs = jax.vmap(lambda k: vf.generate(model, num_steps, k)[0])(keys)
    return xs.reshape((num_sets, num_sequences, num_steps, 1))


def mean_log_likelihood(model: vf.AbstractModel, xs: jax.Array) -> jax.Array:
    """The exact log-likelihood of sequences (sequences, steps, 1), in nats a step."""
    return jnp.sum(jax.vmap(model.log_likelihood)(xs)) / (xs.shape[0] * xs.shape[1])


def parameters(model: vf.AbstractModel) -> jax.Array:
    """The parameters, in the order of `NAMES`."""
    return ravel_pytree(model)[0]


def _log_normal(residual: jax.Array, log_var: jax.Array) -> jax.Array:
    return -0.5 * (jnp.log(2.0 * jnp.pi) + log_var + residual**2 * jnp.exp(-log_var))
