"""A vector whose elements have different families: the columns of a table."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varfilter.distributions.base import AbstractDistribution, Move


class Joint(AbstractDistribution):
    """p(x) = prod_i p_i(x[places_i]): each part is over its own elements of one vector.

    `places[i]` are the elements that `parts[i]` is over, in its order. Together they are all
    elements of the vector, each once.
    """

    parts: tuple[AbstractDistribution, ...]
    places: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __check_init__(self):
        if not self.parts or len(self.parts) != len(self.places):
            raise ValueError(
                "`parts` and `places` must have as many entries, at least one; got"
                f" {len(self.parts)} and {len(self.places)}. Give the elements of each part."
            )
        every = sorted(place for places in self.places for place in places)
        if every != list(range(len(every))):
            raise ValueError(
                f"`places` must name every element of the vector once, from 0; got {self.places}."
            )
        for i, (part, places) in enumerate(zip(self.parts, self.places, strict=True)):
            if part.shape != (len(places),):
                raise ValueError(
                    f"`parts[{i}]` must be over a vector of {len(places)}, one for each of"
                    f" `places[{i}]`; got `{type(part).__name__}` of shape {part.shape}."
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one event."""
        return (*self.parts[0].shape[:-1], sum(map(len, self.places)))

    @property
    def mean(self) -> Float[Array, "..."]:
        """The mean of each element, by its own part."""
        return self._whole([part.mean for part in self.parts])

    @property
    def variance(self) -> Float[Array, "..."]:
        """The variance of each element, by its own part."""
        return self._whole([part.variance for part in self.parts])

    def sample(self, key: PRNGKeyArray) -> Float[Array, " size"]:
        """Draw from each part, and put the draws in the vector's order."""
        keys = jax.random.split(key, len(self.parts))
        return self._whole([part.sample(k) for part, k in zip(self.parts, keys, strict=True)])

    def log_prob(self, x: Float[Array, " size"]) -> Float[Array, ""]:
        """Sum log p_i(x[places_i]) over i, observed elements only.

        Densities and probabilities add up: it is a density in the continuous elements.
        """
        each = [part.log_prob(value) for part, value in self._divided(x)]
        return sum(each[1:], start=each[0])

    def complete(self, x: Float[Array, " size"], key: PRNGKeyArray) -> Float[Array, " size"]:
        """Draw the unobserved elements of each part given its others."""
        keys = jax.random.split(key, len(self.parts))
        pairs = zip(self._divided(x), keys, strict=True)
        return self._whole([part.complete(value, k) for (part, value), k in pairs])

    def error(self, x: Float[Array, " size"]) -> Float[Array, " size"]:
        """The precision-weighted error of each element, by its own part; 0 where unobserved."""
        return self._whole([part.error(value) for part, value in self._divided(x)])

    def moved(self, move: Move) -> "Joint":
        """Move each part that has a moving element; the others stay as they are."""
        moves = [move.of(places) for places in self.places]
        parts = [
            part.moved(own) if own.moving.any() else part
            for part, own in zip(self.parts, moves, strict=True)
        ]
        return Joint(tuple(parts), self.places)

    def tempered(self, temperature: float) -> "Joint":
        """Scale the randomness of each part."""
        return Joint(tuple(part.tempered(temperature) for part in self.parts), self.places)

    def stabilised(self) -> "Joint":
        """Hold each part in its numerically safe range."""
        return Joint(tuple(part.stabilised() for part in self.parts), self.places)

    def _divided(self, x: Array) -> list[tuple[AbstractDistribution, Array]]:
        """Pair each part with its own elements of `x`."""
        return [
            (part, x[np.array(places)])
            for part, places in zip(self.parts, self.places, strict=True)
        ]

    def _whole(self, values: list[Array]) -> Array:
        """Make one vector from those of the parts; axes before it (time, a batch) are kept."""
        order = np.argsort(np.concatenate([np.array(places) for places in self.places]))
        return jnp.concatenate(values, axis=-1)[..., order]
