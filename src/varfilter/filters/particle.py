"""The particle filter: many weighted trajectories, proposed by any inference method."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from varfilter import distributions
from varfilter._arguments import kind, require_fraction, require_positive
from varfilter._tree import select
from varfilter.distributions import Mixture, Particles
from varfilter.filters.base import AbstractFilter, Filtered
from varfilter.inference.base import AbstractInference, Memory
from varfilter.model import AbstractModel, State, prediction
from varfilter.observation import Observation, fill_first, observe


class ParticleCarry(eqx.Module):
    """One model state and one memory for each particle, and their log-weights (sum one)."""

    states: State
    memories: Memory
    log_weights: Float[Array, " num_particles"]


class ParticleInfo(eqx.Module):
    """Effective sample size after weighting, and whether the particles were resampled."""

    effective_sample_size: Float[Array, ""]
    resampled: Bool[Array, ""]


class ParticleFilter(AbstractFilter):
    """log p-hat(x_t | x_<t) = log sum_i W_i w_i,  w_i = p(x_t | z_i) p(z_i) / q(z_i).

    Particles are resampled (systematically) when their effective sample size falls below
    `resample_below` of their number: 0 never resamples, which makes the summed bound
    IWAE's (Burda et al. 2016); 1 always does, which is FIVO's (Maddison et al. 2017); in
    between it adapts. `ParticleFilter(Prior())` is the bootstrap filter. No gradient flows
    through the choice of ancestors.
    """

    inference: AbstractInference
    num_particles: int = eqx.field(static=True)
    resample_below: float = eqx.field(static=True)

    def __init__(
        self,
        inference: AbstractInference,
        num_particles: int = 100,
        *,
        resample_below: float = 0.5,
    ):
        if not isinstance(inference, AbstractInference):
            raise TypeError(
                f"`inference` must be an inference method; got {kind(inference)}."
                " For example `ParticleFilter(Prior(), 100)`, the bootstrap filter."
            )
        self.inference = inference
        self.num_particles = require_positive("num_particles", num_particles)
        self.resample_below = require_fraction(
            "resample_below",
            resample_below,
            "It is the effective sample size, as a fraction of `num_particles`, below which to"
            " resample.",
        )

    def init(
        self, model: AbstractModel, x0: Float[Array, " *event"] | None = None
    ) -> ParticleCarry:
        """Put all particles into the model's initial state, equally weighted."""
        one = (model.init(fill_first(model, x0)), self.inference.init(model))
        states, memories = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (self.num_particles, *jnp.shape(leaf))), one
        )
        return ParticleCarry(states, memories, self._equal_weights())

    def step(
        self,
        model: AbstractModel,
        carry: ParticleCarry,
        x: Float[Array, " *event"] | Observation,
        key: PRNGKeyArray,
        *,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> tuple[ParticleCarry, Filtered]:
        """Propose and weight each particle, resample if they have degenerated, advance."""
        key_propose, key_resample = jax.random.split(key)

        def propose(state: State, memory: Memory, k: PRNGKeyArray):
            key_infer, key_sample = jax.random.split(k)
            observation = observe(model, state, x)
            inferred = self.inference.infer(
                model, state, memory, observation, key_infer, kl_weight=kl_weight
            )
            prior = model.prior(state)
            q = select(observation.is_seen, inferred.posterior, prior)
            z = distributions.sample(q, key_sample)
            log_weight = (
                distributions.log_prob(model.emission(state, z), observation.x)
                + distributions.log_prob(prior, z)
                - distributions.log_prob(q, z)
            )
            next_state = model.advance(state, z, observation.features)
            return next_state, inferred.memory, z, log_weight, prior, prediction(model, state)

        keys = jax.random.split(key_propose, self.num_particles)
        states, memories, zs, log_w, priors, predictions = jax.vmap(propose)(
            carry.states, carry.memories, keys
        )

        joint = carry.log_weights + log_w
        bound = jax.nn.logsumexp(joint)
        log_weights = joint - bound
        posterior = Particles(zs, log_weights)
        size = posterior.effective_sample_size
        resampled = size < self.resample_below * self.num_particles
        if self.resample_below == 1.0:
            resampled = jnp.array(True)  # FIVO: also when all weights happen to be equal

        ancestors = systematic(log_weights, key_resample)
        moved = jax.tree.map(lambda leaf: leaf[ancestors], (states, memories))
        states, memories = select(resampled, moved, (states, memories))
        log_weights = jnp.where(resampled, self._equal_weights(), log_weights)

        filtered = Filtered(
            _mixture(priors, carry.log_weights),
            posterior,
            _mixture(predictions, carry.log_weights),
            bound,
            ParticleInfo(size, resampled),
        )
        return ParticleCarry(states, memories, log_weights), filtered

    def draw(self, model: AbstractModel, carry: ParticleCarry, key: PRNGKeyArray) -> State:
        """Draw the state of one particle, by weight."""
        index = jax.random.categorical(key, carry.log_weights)
        return jax.tree.map(lambda leaf: leaf[index], carry.states)

    def _equal_weights(self) -> Float[Array, " num_particles"]:
        # With a dtype: a weakly typed carry would make a stream compile its step twice.
        log_weight = -jnp.log(jnp.asarray(self.num_particles, jnp.result_type(float)))
        return jnp.full((self.num_particles,), log_weight)


def systematic(
    log_weights: Float[Array, " num_particles"], key: PRNGKeyArray
) -> Int[Array, " num_particles"]:
    """Draw ancestors systematically, all by one uniform number, which keeps their variance low.

    Particle i appears floor or ceil of N w_i times, N w_i on average.
    """
    num_particles = log_weights.shape[0]
    weights = jax.nn.softmax(log_weights)
    offset = jax.random.uniform(key, (), weights.dtype)
    positions = (jnp.arange(num_particles, dtype=weights.dtype) + offset) / num_particles
    cumulative = jnp.cumsum(weights)
    # The last sum may fall short of 1 by rounding; no position may fall beyond it.
    indices = jnp.searchsorted(cumulative, positions * cumulative[-1])
    return jnp.clip(indices, 0, num_particles - 1)


def _mixture(components, log_weights):
    return jax.tree.map(
        lambda d: Mixture(d, log_weights), components, is_leaf=distributions.is_distribution
    )
