"""The filter of an ensemble: the beliefs of all its members, and what they predict together."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from varfilter import distributions
from varfilter._arguments import kind
from varfilter._tree import at_place, stacked
from varfilter.distributions import Mixture
from varfilter.filters.base import AbstractFilter, Carry, Filtered
from varfilter.model import AbstractModel
from varfilter.models.ensemble import Ensemble, EnsembleState
from varfilter.observation import Observation


class EnsembleInfo(eqx.Module):
    """What the filter of each member adds, with a leading axis, and the fallbacks of all of them.

    Where the members' filters are variational, `free_energies` are F_t by iteration of what the
    members say together.
    """

    members: Any
    num_fallbacks: Int[Array, ""]

    @property
    def free_energies(self) -> Float[Array, "*steps iterates"]:
        """-log 1/M Σ_m exp(-F_t) at the prior, ..., after the last update."""
        return -pooled(-self.members.free_energies, axis=-2)


class EnsembleFilter(AbstractFilter):
    """p(x_t | x_<t) = 1/M Σ_m p_m(x_t | x_<t): a linear pool of what the members predict.

    Each member is filtered by itself, with its own filter and model, and all count the same at each
    step. Weighed by what they predicted so far, the one that was luckiest would soon be all that
    is left, and as overconfident as any of them alone. `bound` is the log of the mean of what the
    bounds of the members bound; `prior` and `posterior` are tuples, one entry a member, since the
    latents of models that were learned apart have nothing in common.

    `members` is one filter whose arrays have a leading axis, an entry for each.
    """

    members: AbstractFilter
    num_members: int = eqx.field(static=True)

    def __init__(self, filters: Sequence[AbstractFilter]):
        self.members = stacked(filters)
        self.num_members = len(filters)

    def init(
        self,
        model: AbstractModel,
        x0: Float[Array, " *event"] | None = None,
        key: PRNGKeyArray | None = None,
    ) -> Carry:
        """The carries of all members, each with its own draws of what is missing of `x0`."""
        if not isinstance(model, Ensemble) or model.num_members != self.num_members:
            got = kind(model)
            if isinstance(model, Ensemble):
                got = f"one of {model.num_members}"
            raise TypeError(
                f"`EnsembleFilter` of {self.num_members} members needs an `Ensemble` of as many"
                f" models; got {got}."
            )
        keys = None if key is None else self.keys(key)

        def one(filter: AbstractFilter, model: AbstractModel, key: PRNGKeyArray | None) -> Carry:
            return filter.init(model, x0, key)

        return eqx.filter_vmap(one)(self.members, model.members, keys)

    def drive(self, model: AbstractModel, carry: Carry, u: Float[Array, " inputs"]) -> Carry:
        """Fold u_t into what each member carries."""
        return self.each(lambda filter, model, carry: filter.drive(model, carry, u), model, carry)

    def step(
        self,
        model: AbstractModel,
        carry: Carry,
        x: Float[Array, " *event"] | Observation,
        key: PRNGKeyArray,
        *,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> tuple[Carry, Filtered]:
        """Take the step of each member, and pool what they predicted."""
        # What was embedded ahead has the features of each member.
        features = x.features if isinstance(x, Observation) else None

        def one(filter: AbstractFilter, model: AbstractModel, carry: Carry, *own: Any) -> Any:
            features, key = own
            seen = Observation(x.x, x.filled, features) if isinstance(x, Observation) else x
            return filter.step(model, carry, seen, key, kl_weight=kl_weight)

        after, each = self.each(one, model, carry, features, self.keys(key))
        alike = jnp.zeros(self.num_members)
        prediction = jax.tree.map(
            lambda d: Mixture(d, alike), each.prediction, is_leaf=distributions.is_distribution
        )
        filtered = Filtered(
            tuple(at_place(each.prior, m) for m in range(self.num_members)),
            tuple(at_place(each.posterior, m) for m in range(self.num_members)),
            prediction,
            pooled(each.bound, axis=0),
            EnsembleInfo(each.info, jnp.sum(each.info.num_fallbacks)),
        )
        return after, filtered

    def draw(self, model: AbstractModel, carry: Carry, key: PRNGKeyArray) -> EnsembleState:
        """Draw a member, and a state of that one."""
        key_member, key_state = jax.random.split(key)
        member = jax.random.randint(key_member, (), 0, self.num_members)
        states = self.each(
            lambda filter, model, carry: filter.draw(model, carry, key_state), model, carry
        )
        return EnsembleState(member, at_place(states, member))

    def each(
        self, function: Callable[..., Any], model: AbstractModel, carry: Carry, *own: Any
    ) -> Any:
        """`function(filter, model, carry, *own)` of each member; arrays of `own` have its axis."""
        assert isinstance(model, Ensemble)
        return eqx.filter_vmap(function)(self.members, model.members, carry, *own)

    def keys(self, key: PRNGKeyArray) -> Key[Array, " members"]:
        """The key of the step of each member, from that of the ensemble's."""
        return jax.random.split(key, self.num_members)


def of_each_member(
    filter: AbstractFilter, change: Callable[[AbstractFilter], AbstractFilter]
) -> AbstractFilter:
    """`change(filter)`; of an ensemble, the ensemble of its members so changed."""
    if not isinstance(filter, EnsembleFilter):
        return change(filter)
    return eqx.tree_at(lambda ensemble: ensemble.members, filter, change(filter.members))


def share_of_member(filter: AbstractFilter, count: int) -> int:
    """How many of `count` trajectories each member carries: all, where there is but one."""
    return -(-count // (filter.num_members if isinstance(filter, EnsembleFilter) else 1))


def pooled(log_values: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """log 1/M Σ_m exp(·) along an axis; exactly 0 where all are 0, as of steps without data."""
    largest = jnp.max(log_values, axis=axis, keepdims=True)
    mean = jnp.mean(jnp.exp(log_values - largest), axis=axis)
    return jnp.squeeze(largest, axis) + jnp.log(mean)
