"""What a model's five functions take and return, found without computing anything."""

import math
from typing import Any

import equinox as eqx
import jax

from varfilter._tree import flat_size
from varfilter.contracts import require_model
from varfilter.distributions import mean
from varfilter.model import AbstractModel


class Shapes:
    """The shapes of a model's state, prior and observation, for building networks to fit it."""

    def __init__(self, model: AbstractModel):
        require_model(model)

        def first_step() -> Any:
            state = model.init(None)
            prior = model.prior(state)
            return state, prior, model.emission(state, mean(prior))

        self.state, self.prior, self.emission = eqx.filter_eval_shape(first_step)
        self.observation_shape: tuple[int, ...] = self.emission.shape
        self.observation_size = math.prod(self.observation_shape)
        self.parameter_size = flat_size(self.prior)

    @property
    def frozen_prior(self) -> "Frozen":
        """The prior's structure, hashable, to be kept as a static field."""
        return Frozen(self.prior)


class Frozen:
    """A pytree of shapes that can be compared and hashed."""

    def __init__(self, tree: Any):
        leaves, self.treedef = jax.tree.flatten(tree)
        self.leaves = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)

    def thaw(self) -> Any:
        """The tree of shapes again."""
        return self.treedef.unflatten([jax.ShapeDtypeStruct(s, d) for s, d in self.leaves])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and (self.treedef, self.leaves) == (
            other.treedef,
            other.leaves,
        )

    def __hash__(self) -> int:
        return hash((self.treedef, self.leaves))
