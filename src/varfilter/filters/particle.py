"""The particle filter: many weighted trajectories, proposed by any inference method."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from varfilter import distributions
from varfilter._arguments import kind, require_fraction, require_positive
from varfilter._batch import if_any
from varfilter._threefry import is_threefry
from varfilter._tree import all_finite, detach, select
from varfilter.distributions import Mixture, Particles, observed
from varfilter.filters.base import AbstractFilter, Filtered
from varfilter.filters.recovery import (
    PATIENCE,
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
from varfilter.inference.prior import Prior
from varfilter.model import AbstractModel, State, driven, prediction
from varfilter.observation import Observation, observe

# Folded into the key of a particle: the draws of its inference, apart from that of z_t.
INFERENCE = 0x696E6665


class ParticleCarry(eqx.Module):
    """One model state and one memory for each particle, and their log-weights (sum one).

    `num_lost` counts the observations in a row, up to the last, that particles could not weigh.
    """

    states: State
    memories: Memory
    log_weights: Float[Array, " num_particles"]
    num_lost: Int[Array, ""] = eqx.field(default_factory=no_losses)


class ParticleInfo(eqx.Module):
    """Effective sample size after weighting, and whether the particles were resampled.

    `num_fallbacks` counts the particles that could not weigh x_t, and went on as if it had not
    been seen; if most could not, by weight, none does, and all keep the weights they had.
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
        key_propose, _ = jax.random.split(key)
        seen = x.x if isinstance(x, Observation) else x

        def propose(state: State, memory: Memory, k: PRNGKeyArray) -> Any:
            observation = observe(model, state, x)
            prior = model.prior(state)
            known = model, state, prior, observation
            # Where draws are held fixed, how they came about is not the model's to learn.
            given = detach(known) if self.resampling.holds_draws else known
            inferred = self.inference.infer(
                given[0], given[1], memory, given[3], jax.random.fold_in(k, INFERENCE),
                kl_weight=kl_weight,
            )  # fmt: skip
            q = _held(select(observation.is_seen, inferred.posterior, given[2]))
            z = distributions.sample(q, k)
            gain = jnp.zeros(())
            if self.resampling.holds_draws:
                gain = _log_weight(*given, q, z)
                q, z = detach((q, z))
            if self._proposes_the_prior(prior):  # p(z_t) / q(z_t) = 1, and so is its gradient 0
                log_weight = distributions.log_prob(model.emission(state, z), observation.x)
            else:
                log_weight = _log_weight(*known, q, z)
            lost = is_lost(observation.x, (q, z), log_weight)
            weights = log_weight, gain - detach(gain)
            return z, inferred.memory, weights, lost, prior, prediction(model, state)

        keys = particle_keys(key_propose, self.num_particles)
        zs, memories, (log_w, gain), lost, priors, predictions = jax.vmap(propose)(
            carry.states, carry.memories, keys
        )

        def carefully() -> Any:
            # What most of them cannot weigh is absurd to all: else the few whose latents a
            # proposal threw far enough to explain it would be all that is left of the belief.
            is_absurd = jnp.sum(jnp.where(lost, jnp.exp(carry.log_weights), 0.0)) > 0.5
            without = lost | is_absurd

            def one(
                state: State, memory: Memory, z: Any, new: Memory, log_weight: Array, lost: Array,
                prior: Any, k: PRNGKeyArray,
            ) -> Any:  # fmt: skip
                if not isinstance(x, Observation):
                    expected = prediction(model, state)
                    log_weight = jnp.where(lost, expected.log_prob(x), log_weight)
                z, after = advance(model, state, prior, z, x, lost, k)
                return after, select(lost, memory, new), z, finite_bound(log_weight)

            before = carry.states, carry.memories
            # Counted once more: most steps do without an array of them.
            again = particle_keys(key_propose, self.num_particles)
            found = jax.vmap(one)(*before, zs, memories, log_w, without, priors, again)
            return *found, without, _total_and_size(carry.log_weights)[1]

        def quickly() -> Any:
            features = x.features if isinstance(x, Observation) else model.embed(x)
            after = jax.vmap(lambda state, z: model.advance(state, z, features))(carry.states, zs)
            # Nothing is lost, and nobody asks for the size that the weights had before.
            nothing = jnp.zeros_like(lost), jnp.zeros_like(carry.log_weights[0])
            return after, memories, zs, finite_bound(log_w), *nothing

        # What is missing, or cannot be weighed, is drawn; most steps have nothing of either.
        needs_care = jnp.any(lost) | ~jnp.all(observed(seen))
        states, memories, zs, log_w, lost, size_before = if_any(needs_care, carefully, quickly)

        # The weights sum to one but for rounding, which a step without an observation would show.
        is_seen, all_lost = jnp.any(observed(seen)), jnp.all(lost)
        joint = carry.log_weights + log_w
        total, size = _total_and_size(joint)
        # `gain` is zero: by it proposals learn from this step, and from no other.
        bound = total
        if self.resampling.holds_draws:
            bound = _total_and_size(joint + jnp.where(lost, 0.0, gain))[0]
        bound = jnp.where(is_seen, bound, bound - detach(bound))
        # What no particle can weigh says nothing of any of them.
        log_weights = jnp.where(all_lost, carry.log_weights, joint - total)
        size = jnp.where(all_lost, size_before, size)
        num_lost = count_losses(carry.num_lost, seen, all_lost)
        found = ParticleCarry(states, memories, log_weights, num_lost)
        after, resampled = self._settled(found, carry.states, model, seen, size, key)
        filtered = Filtered(
            _mixture(priors, carry.log_weights),
            Particles(zs, log_weights),
            _mixture(predictions, carry.log_weights),
            bound,
            ParticleInfo(size, resampled, jnp.sum(lost)),
        )
        return after, filtered

    def _settled(
        self,
        found: ParticleCarry,
        before: State,
        model: AbstractModel,
        x: Float[Array, " *event"],
        size: Float[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[ParticleCarry, Bool[Array, ""]]:
        """Return what is carried on, and whether the particles were resampled.

        A state that would overflow stays as it was, particles of too small a `size` are resampled,
        and a belief that finds everything absurd starts anew. Nearly all steps have none of these,
        and ask for them once.
        """
        key_propose, key_resample = jax.random.split(key)
        resampled = jnp.array(self.resample_below == 1.0)  # FIVO: also when all weights are equal
        if 0.0 < self.resample_below < 1.0:
            resampled = size < self.resample_below * self.num_particles
        is_finite = jnp.all(jax.vmap(all_finite)(found.states))

        def settle() -> ParticleCarry:
            kept: Any = _finite_ones(found.states, before), found.memories, found.log_weights

            def moved() -> Any:
                ancestors, equal = self.resampling(found.log_weights, key_resample)
                return *jax.tree.map(lambda leaf: leaf[ancestors], kept[:2]), equal

            if self.resample_below == 1.0:
                kept = moved()
            elif self.resample_below > 0.0:
                # In a batch, those that need none stay as they are.
                kept = if_any(resampled, lambda: select(resampled, moved(), kept), lambda: kept)
            states, memories, log_weights = kept
            after = ParticleCarry(states, memories, log_weights, found.num_lost)
            return started_anew(after, lambda: self.init(model), model, x, key_propose)

        is_unusual = resampled | ~is_finite | (found.num_lost >= PATIENCE)
        if self.resample_below == 1.0:
            return settle(), resampled
        return if_any(is_unusual, settle, lambda: found), resampled

    def _proposes_the_prior(self, prior: Any) -> bool:
        """Whether q is p(z_t) for the gradient, too: nothing of it is held fixed."""
        is_free = not any(map(_is_held, jax.tree.leaves(prior, is_leaf=_is_held)))
        return isinstance(self.inference, Prior) and is_free and not self.resampling.holds_draws

    def draw(self, model: AbstractModel, carry: ParticleCarry, key: PRNGKeyArray) -> State:
        """Draw the state of one particle, by weight."""
        index = jax.random.categorical(key, carry.log_weights)
        return jax.tree.map(lambda leaf: leaf[index], carry.states)

    def _spread(self, tree: Any) -> Any:
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (self.num_particles, *jnp.shape(leaf))), tree
        )


def particle_keys(key: PRNGKeyArray, num_particles: int) -> Key[Array, " num_particles"]:
    """A key for each particle: that of the step, counted on.

    Threefry's streams are independent for any two keys that differ (Salmon et al. 2011), so that
    counting is enough, and costs nothing beside the draws; `split` would hash each of them. Keys
    of other kinds, in which part of the key is a place in a stream, are split.
    """
    if not is_threefry(key):
        return jax.random.split(key, num_particles)
    first, second = jax.random.key_data(key)
    count = jnp.arange(num_particles, dtype=second.dtype)
    data = jnp.stack([jnp.broadcast_to(first, count.shape), second + count], axis=1)
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(key))


def _total_and_size(
    log_weights: Float[Array, " num_particles"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The logarithm of the sum of the weights, and the effective sample size, by one pass."""
    largest = jax.lax.stop_gradient(jnp.max(log_weights))
    weights = jnp.exp(log_weights - largest)
    total = jnp.sum(weights)
    # A product: of squares that are summed a compiler makes a second exponential for each.
    squares = jnp.dot(weights, weights, precision=jax.lax.Precision.HIGHEST)
    return largest + jnp.log(total), jax.lax.stop_gradient(total**2 / squares)


def _finite_ones(after: State, before: State) -> State:
    """The states after a step; those of particles that would overflow stay as they were."""
    return jax.vmap(lambda new, old: select(all_finite(new), new, old))(after, before)


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
    return jax.tree.map(lambda node: detach(node) if _is_held(node) else node, q, is_leaf=_is_held)


def _is_held(node: Any) -> bool:
    return distributions.is_distribution(node) and not node.is_reparameterisable


def _mixture(components, log_weights):
    return jax.tree.map(
        lambda d: Mixture(d, log_weights), components, is_leaf=distributions.is_distribution
    )
