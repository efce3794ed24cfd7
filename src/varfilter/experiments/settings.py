"""How the experiments infer, filter and learn: settings, and what each of them builds."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from varfilter._arguments import require_positive
from varfilter.filters import (
    AbstractFilter,
    ParticleFilter,
    ScoredSystematic,
    Systematic,
    VariationalFilter,
)
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
from varfilter.learning import EndToEnd, TimeParallel
from varfilter.model import AbstractModel
from varfilter.models import SRNN, SVG, VRNN
from varfilter.training.updates import Annealing, Thinning

Bound = Literal["elbo", "iwae", "fivo"]
Gradient = Literal["fixed-ancestors", "scored-ancestors"]


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
    """What the network receives about q: dF/dq, or precision-weighted errors."""
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
    gradient: Gradient = "fixed-ancestors"
    """What fivo's gradient sees of resampling. fixed-ancestors: nothing, which is cheap, steady and
    biased; scored-ancestors: all of it, which goes to the score of the data with more particles,
    and varies more."""

    def __post_init__(self):
        for name, known in (("bound", Bound), ("gradient", Gradient)):
            if (given := getattr(self, name)) not in get_args(known):
                raise ValueError(
                    f"`filter.{name}` must be one of {', '.join(get_args(known))}; got {given!r}."
                )
        require_positive("filter.num_particles", self.num_particles)

    def build(self, model: AbstractModel, key: PRNGKeyArray) -> AbstractFilter:
        """Build it for this model."""
        inference = self.inference.build(model, key)
        return filter_with(inference, self.bound, self.num_particles, self.gradient)


def filter_with(
    inference: AbstractInference,
    bound: Bound,
    num_particles: int,
    gradient: Gradient = "fixed-ancestors",
) -> VariationalFilter | ParticleFilter:
    """The filter that gives this bound, and this gradient of it where there is a choice."""
    if bound == "elbo":
        return VariationalFilter(inference)
    return ParticleFilter(
        inference,
        num_particles,
        resample_below=0.0 if bound == "iwae" else 0.5,
        resampling=Systematic() if gradient == "fixed-ancestors" else ScoredSystematic(),
    )


LONGEST_WINDOW = 64


@dataclass(frozen=True)
class Adam:
    """Adam with a learning rate that falls by a factor each epoch."""

    learning_rate: float = 1e-4
    """The learning rate of the first epoch."""
    decay: float = 0.999
    """The learning rate is multiplied by this after each epoch."""
    epsilon: float = 1e-8
    """Added to the root of the mean square gradient: what is far below it hardly moves."""
    clip_norm: float | None = None
    """Gradients of a greater norm are scaled down to it."""
    weight_decay: float = 0.0
    """Parameters shrink by this times the learning rate at each step (AdamW)."""

    def __post_init__(self):
        if not (0.0 < self.learning_rate < math.inf and 0.0 < self.decay <= 1.0):
            raise ValueError(
                "`learning_rate` must be positive and `decay` must lie in (0, 1]; got"
                f" {self.learning_rate} and {self.decay}."
            )
        if self.clip_norm is not None and not self.clip_norm > 0.0:
            raise ValueError(
                f"`clip_norm` must be positive, or None for no clipping; got {self.clip_norm}."
            )

    def build(self, steps_per_epoch: int) -> optax.GradientTransformation:
        """Build the optimizer for training that makes so many of its steps an epoch."""
        rate = optax.exponential_decay(
            self.learning_rate, steps_per_epoch, self.decay, staircase=True
        )
        adam = optax.adam(rate, eps=self.epsilon)
        if self.weight_decay > 0.0:
            adam = optax.adamw(rate, eps=self.epsilon, weight_decay=self.weight_decay)
        if self.clip_norm is None:
            return adam
        return optax.chain(optax.clip_by_global_norm(self.clip_norm), adam)


@dataclass(frozen=True)
class Optimizers:
    """The optimizer of the model (theta) and that of the inference network (phi)."""

    theta: Adam = Adam()
    """The optimizer of the model."""
    phi: Adam = Adam()
    """The optimizer of the inference network."""
    num_phi_steps: int = 24
    """AVF: steps of phi for each of theta, on slices of the recorded problems."""

    def learner(
        self, filter: AbstractFilter, updates_per_epoch: int, *, complete: bool
    ) -> TimeParallel | EndToEnd:
        """The learner that fits the filter: all steps at once where its inference is local."""
        theta = self.theta.build(updates_per_epoch)
        if isinstance(filter, VariationalFilter) and filter.inference.is_local:
            return TimeParallel(
                theta=theta,
                phi=self.phi.build(updates_per_epoch * self.num_phi_steps),
                num_phi_steps=self.num_phi_steps,
                complete=complete,
            )
        return EndToEnd(theta=theta, phi=self.phi.build(updates_per_epoch), complete=complete)


@dataclass(frozen=True)
class Schedule:
    """Epochs, batches, annealing, validation. An epoch is one window of each sequence."""

    num_epochs: int = 800
    """How long to train."""
    batch_size: int = 16
    """How many windows a batch has."""
    num_steps: int | None = 25
    """Steps in a window; the first is conditioned on, and not scored. None: 64, or fewer where
    that would leave out more than one training sequence in ten."""
    windows_per_epoch: int | None = None
    """Call so many windows an epoch, instead of one of each sequence."""
    annealing_epochs: int = 0
    """The weight of the KL rises from 0 to 1 over so many epochs."""
    annealing_power: float = 2.0
    """2: quadratically, as the paper's code; 1: linearly, as the paper says."""
    epochs_per_validation: int = 1
    """How often the validation part is scored, whole; the best checkpoint is kept."""
    patience_epochs: int | None = None
    """Stop when validation has not improved for so many epochs after annealing."""
    hidden_elements: float = 0.0
    """Hide this share of the elements of each training window."""
    hidden_gaps: float = 0.0
    """The chance that at a step of a training window a gap of 1 to 5 hidden steps begins."""

    def __post_init__(self):
        for name in ("num_epochs", "batch_size", "epochs_per_validation"):
            require_positive(f"schedule.{name}", getattr(self, name))
        for name in ("windows_per_epoch", "patience_epochs"):
            if getattr(self, name) is not None:
                require_positive(f"schedule.{name}", getattr(self, name))
        if self.num_steps is not None and self.num_steps < 2:
            raise ValueError(
                "`schedule.num_steps` must be at least 2, one to condition on; got"
                f" {self.num_steps}."
            )

    def updates_per_epoch(self, num_batches: int) -> int:
        """How many updates an epoch has, for data with so many batches in one pass."""
        if self.windows_per_epoch is None:
            return num_batches
        return max(1, -(-self.windows_per_epoch // self.batch_size))

    def window_steps(self, lengths: np.ndarray) -> int:
        """How many steps a window has, for training sequences of so many steps each."""
        if self.num_steps is not None:
            return self.num_steps
        if not lengths.size:
            return LONGEST_WINDOW
        return max(2, min(LONGEST_WINDOW, int(np.quantile(lengths, 0.1, method="lower"))))

    def thinning(self) -> Thinning | None:
        """What is hidden of each training window; None if nothing is."""
        if self.hidden_elements == self.hidden_gaps == 0.0:
            return None
        return Thinning(self.hidden_elements, self.hidden_gaps)

    def annealing(self, updates_per_epoch: int) -> Annealing:
        """The weight of the KL by the number of the update."""
        return Annealing(self.annealing_epochs, updates_per_epoch, self.annealing_power)
