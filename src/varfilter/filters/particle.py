"""The particle filter: many weighted trajectories, proposed by any inference method."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from varfilter import distributions
from varfilter._arguments import kind, require_fraction, require_positive
from varfilter._tree import detach, select
from varfilter.distributions import Mixture, Particles
from varfilter.filters.base import AbstractFilter, Filtered
from varfilter.filters.recovery import (
    advance,
    count_losses,
    finite_bound,
    first_state,
    is_lost,
    no_losses,
    started_anew,
)
from varfilter.filters.resampling import AbstractResampling, Systematic, equal_weights
from varfilter.inference.base import AbstractInference, Memory
from varfilter.model import AbstractModel, State, driven, prediction
from varfilter.observation import Observation, observe


class ParticleCarry(eqx.Module):
    """One model state and one memory for each particle, and their log-weights (sum one).

    `num_lost` counts the observations in a row, up to the last, that no particle could weigh.
    """

    states: State
    memories: Memory
    log_weights: Float[Array, " num_particles"]
    num_lost: Int[Array, ""] = eqx.field(default_factory=no_losses)


class ParticleInfo(eqx.Module):
    """Effective sample size after weighting, and whether the particles were resampled.

    `num_fallbacks` counts the particles that could not weigh x_t, and went on as if it had not
    been seen; if none could, all keep the weights they had.
    """

    effective_sample_size: Float[Array, ""]
    resampled: Bool[Array, ""]
    num_fallbacks: Int[Array, ""]


class ParticleFilter(AbstractFilter):
    """log p-hat(x_t | x_<t) = log sum_i W_i w_i,  w_i = p(x_t | z_i) p(z_i) / q(z_i).

    Particles are resampled when their effective sample size falls below `resample_below` of
    their number: 0 never resamples, which makes the summed bound IWAE's (Burda et al. 2016);
    1 always does, which is FIVO's (Maddison et al. 2017); in between it adapts.
    `ParticleFilter(Prior())` is the bootstrap filter. `resampling` says how ancestors are chosen,
    and what a gradient sees of particles: `Systematic()`, how draws move with the parameters, but
    nothing of the choice; `ScoredSystematic()`, the draws as they are, and all of the choice.
    Elements that are missing are drawn for each particle.
    """

    inference: AbstractInference
    num_particles: int = eqx.field(static=True)
    resample_below: float = eqx.field(static=True)
    resampling: AbstractResampling

    def __init__(
        self,
        inference: AbstractInference,
        num_particles: int = 100,
        *,
        resample_below: float = 0.5,
        resampling: AbstractResampling | None = None,
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
        self.resampling = Systematic() if resampling is None else resampling
        if not isinstance(self.resampling, AbstractResampling):
            raise TypeError(
                "`resampling` must be `Systematic()` or `ScoredSystematic()`; got"
                f" {kind(self.resampling)}."
            )

    def init(
        self,
        model: AbstractModel,
        x0: Float[Array, " *event"] | None = None,
        key: PRNGKeyArray | None = None,
    ) -> ParticleCarry:
        """Put all particles into the model's initial state, equally weighted."""
        memory = self.inference.init(model)
        if x0 is None or key is None:
            state = first_state(model, x0, None)
            states, memories = self._spread((state, memory))
        else:  # each has drawn what is missing of x0 for itself
            keys = jax.random.split(key, self.num_particles)
            states = jax.vmap(lambda k: first_state(model, x0, k))(keys)
            memories = self._spread(memory)
        return ParticleCarry(states, memories, equal_weights(self.num_particles))

    def drive(
        self, model: AbstractModel, carry: ParticleCarry, u: Float[Array, " inputs"] | None
    ) -> ParticleCarry:
        """Fold u_t into the state of each particle."""
        states = jax.vmap(lambda state: driven(model, state, u))(carry.states)
        return ParticleCarry(states, carry.memories, carry.log_weights, carry.num_lost)

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

        def propose(state: State, memory: Memory, k: PRNGKeyArray) -> Any:
            key_infer, key_sample = jax.random.split(k)
            observation = observe(model, state, x)
            prior, expected = model.prior(state), prediction(model, state)
            known = model, state, prior, observation
            # Where draws are held fixed, how they came about is not the model's to learn.
            given = detach(known) if self.resampling.holds_draws else known
            inferred = self.inference.infer(
                given[0], given[1], memory, given[3], key_infer, kl_weight=kl_weight
            )
            q = _held(select(observation.is_seen, inferred.posterior, given[2]))
            z = distributions.sample(q, key_sample)
            gain = jnp.zeros(())
            if self.resampling.holds_draws:
                gain = _log_weight(*given, q, z)
                q, z = detach((q, z))
            log_weight = _log_weight(*known, q, z)
            lost = is_lost(observation.x, (q, z), log_weight)
            gain = jnp.where(lost, 0.0, gain)
            if not isinstance(x, Observation):
                log_weight = jnp.where(lost, expected.log_prob(x), log_weight)
            z, next_state = advance(model, state, prior, z, x, lost, key_sample)
            next_memory = select(lost, memory, inferred.memory)
            log_weights = finite_bound(log_weight), gain - detach(gain)
            return next_state, next_memory, z, log_weights, lost, prior, expected

        keys = jax.random.split(key_propose, self.num_particles)
        states, memories, zs, (log_w, gain), lost, priors, predictions = jax.vmap(propose)(
            carry.states, carry.memories, keys
        )

        # `gain` is zero: by it proposals learn from this step, and from no other.
        bound = jax.nn.logsumexp(carry.log_weights + log_w + gain)
        # The weights sum to one but for rounding, which a step without an observation would show.
        bound = bound - jax.lax.stop_gradient(jax.nn.logsumexp(carry.log_weights))
        # What no particle can weigh says nothing of any of them.
        joint = carry.log_weights + jnp.where(jnp.all(lost), 0.0, log_w)
        log_weights = joint - jax.nn.logsumexp(joint)
        posterior = Particles(zs, log_weights)
        size = posterior.effective_sample_size
        resampled = size < self.resample_below * self.num_particles
        if self.resample_below == 1.0:
            resampled = jnp.array(True)  # FIVO: also when all weights happen to be equal

        ancestors, equal = self.resampling(log_weights, key_resample)
        moved = jax.tree.map(lambda leaf: leaf[ancestors], (states, memories))
        states, memories = select(resampled, moved, (states, memories))
        log_weights = jnp.where(resampled, equal, log_weights)

        filtered = Filtered(
            _mixture(priors, carry.log_weights),
            posterior,
            _mixture(predictions, carry.log_weights),
            bound,
            ParticleInfo(size, resampled, jnp.sum(lost)),
        )
        seen = x.x if isinstance(x, Observation) else x
        num_lost = count_losses(carry.num_lost, seen, jnp.all(lost))
        after = ParticleCarry(states, memories, log_weights, num_lost)
        return started_anew(after, lambda: self.init(model), model, seen, key_propose), filtered

    def draw(self, model: AbstractModel, carry: ParticleCarry, key: PRNGKeyArray) -> State:
        """Draw the state of one particle, by weight."""
        index = jax.random.categorical(key, carry.log_weights)
        return jax.tree.map(lambda leaf: leaf[index], carry.states)

    def _spread(self, tree: Any) -> Any:
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (self.num_particles, *jnp.shape(leaf))), tree
        )


def _log_weight(
    model: AbstractModel, state: State, prior: Any, observation: Observation, q: Any, z: Any
) -> Float[Array, ""]:
    """log p(x_t | z_t) p(z_t) / q(z_t), given the past."""
    return (
        distributions.log_prob(model.emission(state, z), observation.x)
        + distributions.log_prob(prior, z)
        - distributions.log_prob(q, z)
    )


def _held(q: Any) -> Any:
    """Cut the parameters of what is not reparameterisable from the gradient, leaf by leaf.

    Such a draw has no path for the gradient. With q held fixed that of its weight is
    ∇p(x, z) / q(z), whose mean over draws is ∇p(x); with q moving, that of the bootstrap
    filter's weight would be blind to how the latent is predicted, for p(z) / q(z) = 1.
    """

    def is_held(node: Any) -> bool:
        return distributions.is_distribution(node) and not node.is_reparameterisable

    return jax.tree.map(lambda node: detach(node) if is_held(node) else node, q, is_leaf=is_held)


def _mixture(components, log_weights):
    return jax.tree.map(
        lambda d: Mixture(d, log_weights), components, is_leaf=distributions.is_distribution
    )
