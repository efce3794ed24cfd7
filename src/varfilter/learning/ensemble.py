"""Learning an ensemble: its members side by side, as one program, each from its own draws."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.filters.base import AbstractFilter
from varfilter.filters.ensemble import EnsembleFilter
from varfilter.learning.end_to_end import EndToEnd
from varfilter.learning.state import LearnerState, Metrics
from varfilter.learning.time_parallel import TimeParallel
from varfilter.model import AbstractModel
from varfilter.models.ensemble import Ensemble


class EnsembleLearner(eqx.Module):
    """The learner of an `Ensemble` under its `EnsembleFilter`: `member` learns each of them.

    Each has its own share of a batch, of as many sequences, and its own draws: what they learn is
    what they would have learned apart.
    """

    member: TimeParallel | EndToEnd

    @property
    def complete(self) -> bool:
        """Whether no element may be missing, as the learner of a member has it."""
        return self.member.complete

    def init(self, model: AbstractModel, filter: AbstractFilter) -> LearnerState:
        """Begin, with fresh optimizers for each member."""
        if not isinstance(model, Ensemble) or not isinstance(filter, EnsembleFilter):
            raise TypeError(
                "`EnsembleLearner` learns an `Ensemble` under an `EnsembleFilter`; got"
                f" `{type(model).__name__}` under `{type(filter).__name__}`. Use the learner of a"
                " member for those."
            )
        states = eqx.filter_vmap(self.member.init)(model.members, filter.members)
        return _as_one(model, filter, states)

    def update(
        self,
        state: LearnerState,
        xs: Any,
        key: PRNGKeyArray,
        *,
        mask: Any = None,
        x0: Any = None,
        us: Any = None,
        kl_weight: float | Float[Array, ""] = 1.0,
    ) -> tuple[LearnerState, Metrics]:
        """Update all members, each on its share of the batch; the metrics are their means."""
        model, filter = state.model, state.filter
        assert isinstance(model, Ensemble)
        assert isinstance(filter, EnsembleFilter)
        num_skipped = jnp.zeros_like(state.num_skipped)

        def one(modules: Any, batch: Any, key: PRNGKeyArray) -> tuple[LearnerState, Metrics]:
            model, filter, theta_state, phi_state = modules
            own = LearnerState(
                model, filter, theta_state, phi_state,
                state.num_updates, num_skipped, state.last_skipped,
            )  # fmt: skip
            xs, mask, x0, us = batch
            return self.member.update(own, xs, key, mask=mask, x0=x0, us=us, kl_weight=kl_weight)

        modules = model.members, filter.members, state.theta_state, state.phi_state
        shares = _shares((xs, mask, x0, us), model.num_members)
        keys = jax.random.split(key, model.num_members)
        after, metrics = eqx.filter_vmap(one)(modules, shares, keys)
        found = _as_one(model, filter, after, state.num_skipped)
        skipped = jnp.sum(metrics.num_skipped)
        means = jax.tree.map(lambda values: jnp.mean(values, axis=0), metrics)
        return found, eqx.tree_at(lambda m: m.num_skipped, means, skipped)


def _shares(batch: Any, num_members: int) -> Any:
    """The batch with an axis in front: the sequences of each member, one lot after the other."""

    def shares(values: Any) -> Array:
        values = jnp.asarray(values)
        if values.shape[0] % num_members:
            raise ValueError(
                f"`xs` has {values.shape[0]} sequences, which cannot be shared equally among"
                f" {num_members} members. Give each of them as many."
            )
        return values.reshape(num_members, -1, *values.shape[1:])

    return jax.tree.map(shares, batch)


def _as_one(
    model: Ensemble, filter: EnsembleFilter, states: LearnerState, num_skipped: Array | int = 0
) -> LearnerState:
    """The states of all members as that of the ensemble; what any of them skipped counts."""
    return LearnerState(
        eqx.tree_at(lambda ensemble: ensemble.members, model, states.model),
        eqx.tree_at(lambda ensemble: ensemble.members, filter, states.filter),
        states.theta_state,
        states.phi_state,
        jnp.max(states.num_updates),
        num_skipped + jnp.sum(states.num_skipped),
        jnp.max(states.last_skipped),
    )
