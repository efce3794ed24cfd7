"""How the experiments infer and filter: the words of the command line, and what they build."""

from dataclasses import dataclass
from typing import Literal

import optax
from jaxtyping import PRNGKeyArray

from varfilter.filters import AbstractFilter, ParticleFilter, VariationalFilter
from varfilter.inference import (
    AbstractInference,
    Amortized,
    GradientDescent,
    Gradients,
    Highway,
    Iterative,
    LayerNorm,
    LearnedStep,
    MeanNormalized,
    MLPPosterior,
    PrecisionWeightedErrors,
    Recurrent,
    SignedLog,
    SRNNPosterior,
    SRNNResidualPosterior,
    SVGPosterior,
    VRNNPosterior,
)
from varfilter.model import AbstractModel
from varfilter.models import SRNN, SVG, VRNN

Bound = Literal["elbo", "iwae", "fivo"]


@dataclass(frozen=True)
class AVF:
    """Amortized variational filtering: K learned updates of q from the prior on."""

    num_iterations: int = 1
    """K, the updates of q at each step."""
    update: Literal["highway", "learned-step"] = "highway"
    """What an update does to q: mix it with a candidate, or descend its gradient."""
    normalize_mean: bool = False
    """Bring the posterior mean to zero mean and unit spread after each update."""
    signal: Literal["gradients", "errors"] = "gradients"
    """What the network is told of q: dF/dq, or precision-weighted errors."""
    normalize: Literal["layer", "log"] = "layer"
    """How each input is normalised; log for latents of one or two elements."""
    encode_observation: bool = False
    """Feed x_t to the network too."""
    hidden_size: int = 1024
    """Units of each layer of the network."""
    num_layers: int = 2
    """Layers of the network."""
    num_samples: int = 1
    """Draws of z_t for each free energy."""

    def build(self, model: AbstractModel, key: PRNGKeyArray) -> AbstractInference:
        """Build it for this model."""
        update = Highway if self.update == "highway" else LearnedStep
        return Iterative(
            model,
            update=MeanNormalized.of(update) if self.normalize_mean else update,
            signal=Gradients() if self.signal == "gradients" else PrecisionWeightedErrors(),
            normalize=LayerNorm() if self.normalize == "layer" else SignedLog(),
            encode_observation=self.encode_observation,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            num_iterations=self.num_iterations,
            num_samples=self.num_samples,
            key=key,
        )


@dataclass(frozen=True)
class Baseline:
    """The hand-made posterior network of the model: q in one shot, learned end to end."""

    hidden_size: int = 500
    """Units of each layer of the network (of SVG's LSTM)."""
    num_layers: int = 1
    """Layers of the network (SVG's has one)."""
    residual: bool = False
    """SRNN: q sees z_{t-1} too, and its mean is added to the prior's (Fraccaro et al.)."""

    def build(self, model: AbstractModel, key: PRNGKeyArray) -> AbstractInference:
        """Build it for this model."""
        if self.residual and not isinstance(model, SRNN):
            raise ValueError(
                "`filter.inference.residual` is for SRNN alone; the model is a"
                f" {type(model).__name__}."
            )
        if isinstance(model, SVG):
            return Recurrent(SVGPosterior(model, hidden_size=self.hidden_size, key=key))
        if isinstance(model, VRNN):
            posterior = VRNNPosterior
        elif isinstance(model, SRNN):
            posterior = SRNNResidualPosterior if self.residual else SRNNPosterior
        else:
            posterior = MLPPosterior
        return Amortized(
            posterior(model, hidden_size=self.hidden_size, num_layers=self.num_layers, key=key)
        )


@dataclass(frozen=True)
class Descent:
    """Variational filtering EM without amortization: Adam on q at each step, no network."""

    num_iterations: int = 20
    """Steps of Adam at each time step."""
    learning_rate: float = 0.2
    """Adam's learning rate; it falls to zero over the iterations."""
    num_samples: int = 1
    """Draws of z_t for each free energy."""

    def build(self, model: AbstractModel, key: PRNGKeyArray) -> AbstractInference:
        """Build it for any model; nothing is drawn from `key`."""
        schedule = optax.cosine_decay_schedule(self.learning_rate, self.num_iterations)
        return GradientDescent(
            optax.adam(schedule), num_iterations=self.num_iterations, num_samples=self.num_samples
        )


@dataclass(frozen=True)
class FilterChoice:
    """The inference of each step, and the bound that is learned and scored."""

    inference: AVF | Baseline | Descent = AVF()
    """How q is found."""
    bound: Bound = "elbo"
    """elbo: the free energy; iwae and fivo: particles, without and with resampling."""
    num_particles: int = 16
    """How many particles iwae and fivo have."""

    def build(self, model: AbstractModel, key: PRNGKeyArray) -> AbstractFilter:
        """Build it for this model."""
        return filter_with(self.inference.build(model, key), self.bound, self.num_particles)


def filter_with(
    inference: AbstractInference, bound: Bound, num_particles: int
) -> VariationalFilter | ParticleFilter:
    """The filter that gives this bound."""
    if bound == "elbo":
        return VariationalFilter(inference)
    resample_below = 0.0 if bound == "iwae" else 0.5
    return ParticleFilter(inference, num_particles, resample_below=resample_below)
