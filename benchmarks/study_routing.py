"""SVG's baseline with gradients as the released code routes them, to see what they explain.

There z is cut off where it is passed on, so that q learns nothing from later steps; and the
encoder is learned with q alone: what it tells the prior and the decoder of the past teaches it
nothing.
"""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Array, PRNGKeyArray

from varfilter._tree import detach
from varfilter.data.dataset import Dataset
from varfilter.experiments import Experiment, Observations, SVGSizes
from varfilter.experiments import experiment as settings
from varfilter.model import AbstractModel, Latent, State
from varfilter.models import SVG
from varfilter.models.svg import SVGFeatures, SVGState


class Routed(AbstractModel):
    """An SVG of which no gradient passes from a step to its past's z or to its past's code."""

    model: SVG

    @property
    def core(self) -> AbstractModel:
        """The SVG inside."""
        return self.model

    def init(self, x0: Array | None = None) -> SVGState:
        """Begin as the SVG does, with what x_0 is encoded to held fixed."""
        state = self.model.init(None)
        if x0 is None:
            return state
        return self.model._next_state(  # pyright: ignore[reportPrivateUsage]
            self.model.prior_lstm.init(), state.predictor, self._cut(self.embed(x0)), None
        )

    def embed(self, x: Array) -> SVGFeatures:
        """The code of the frame, from which q learns the encoder."""
        return self.model.embed(x)

    def prior(self, state: State) -> Any:
        """The prior of the SVG."""
        return self.model.prior(state)

    def emission(self, state: State, z: Latent) -> Any:
        """The emission of the SVG."""
        return self.model.emission(state, z)

    def advance(self, state: State, z: Latent, features: SVGFeatures) -> State:
        """Advance with z and the code held fixed: the LSTMs learn to read them as they are."""
        return self.model.advance(state, detach(z), self._cut(features))

    def _cut(self, features: SVGFeatures) -> SVGFeatures:
        """The same features, through whose code no gradient passes."""
        code, (lower, _) = detach(features.code), self.model.predictor
        return SVGFeatures(
            code,
            self.model.prior_lstm.project(code),
            lower.project(code),
            detach(features.skips),
            features.frame,
        )


@dataclass(frozen=True)
class RoutedSVGSizes(SVGSizes):
    """The sizes of an SVG that is learned so."""

    def build(self, data: Dataset | Observations, key: PRNGKeyArray) -> Any:
        """Build the model for frames like those of the data."""
        return Routed(super().build(data, key))


# Checkpoints are read by their records, which may name only settings that are known.
settings._kinds(Experiment)[RoutedSVGSizes.__name__] = RoutedSVGSizes  # pyright: ignore[reportPrivateUsage]
