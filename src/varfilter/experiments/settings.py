"""How the experiments infer, filter and learn: settings, and what each of them builds."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from varfilter._arguments import require_positive
from varfilter.data.dataset import Family
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
    NormAndLog,
    PairedGradients,
    PrecisionWeightedErrors,
    Recurrent,
    Shift,
    SignedLog,
    SRNNPosterior,
    SRNNResidualPosterior,
    SVGPosterior,
    VRNNPosterior,
)
from varfilter.learning import EndToEnd, TimeParallel
from varfilter.learning.dropout import Dropout, require_rate
from varfilter.model import AbstractModel
from varfilter.models import SRNN, SVG, VRNN
from varfilter.training.augmentation import Thinning, Transposition
from varfilter.training.fitting import Annealing
from varfilter.training.stacking import numbered

Bound = Literal["elbo", "iwae", "fivo"]
Gradient = Literal["fixed-ancestors", "scored-ancestors"]


@dataclass(frozen=True)
class AVF:
    """Amortized variational filtering: K learned updates of q from the prior on.

    The defaults are the paper's network; those of `Iterative`, which serve latents of any size,
    are shift, paired-gradients, norm-and-log and a hidden_size of None.
    """

    num_iterations: int = 1
    """K, the updates of q at each step."""
    update: Literal["highway", "learned-step", "shift"] = "highway"
    """What an update does to q: mix it with a candidate, descend its gradient, or move it."""
    normalize_mean: bool = False
    """Bring the posterior mean to zero mean and unit spread after each update."""
    signal: Literal["gradients", "paired-gradients", "errors"] = "gradients"
    """What the network receives about q: dF/dq, the same from pairs of opposite draws, or
    precision-weighted errors."""
    normalize: Literal["layer", "log", "norm-and-log"] = "layer"
    """How each input is normalised; layer is not for latents of one or two elements."""
    encode_observation: bool = False
    """Feed x_t to the network too."""
    hidden_size: int | None = 1024
    """Units of each layer of the network; None: by the size of the model's latent."""
    num_layers: int = 2
    """Layers of the network."""
    num_samples: int = 1
    """Draws of z_t, or pairs of them, that the network's signal is averaged over."""

    def build(self, model: AbstractModel, key: PRNGKeyArray) -> AbstractInference:
        """Build the AVF inference with these settings for a model."""
        update = {"highway": Highway, "learned-step": LearnedStep, "shift": Shift}[self.update]
        normalizations = {"layer": LayerNorm, "log": SignedLog, "norm-and-log": NormAndLog}
        signals = {
            "gradients": Gradients,
            "paired-gradients": PairedGradients,
            "errors": PrecisionWeightedErrors,
        }
        return Iterative(
            model,
            update=MeanNormalized.of(update) if self.normalize_mean else update,
            signal=signals[self.signal](),
            normalize=normalizations[self.normalize](),
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
        """Build the baseline's inference, which is that of the model's own paper."""
        core = model.core
        if self.residual and not isinstance(core, SRNN):
            raise ValueError(
                "`filter.inference.residual` is for SRNN alone; the model is a"
                f" {type(core).__name__}."
            )
        if isinstance(core, SVG):
            return Recurrent(SVGPosterior(model, hidden_size=self.hidden_size, key=key))
        if isinstance(core, VRNN):
            posterior = VRNNPosterior
        elif isinstance(core, SRNN):
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
    """Draws of z_t that each gradient is averaged over."""

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
    """elbo: the free energy of one path; iwae, fivo: many paths, without and with resampling."""
    num_particles: int = 16
    """How many particles iwae and fivo have."""
    gradient: Gradient = "fixed-ancestors"
    """Of fivo. fixed-ancestors: the usual one, biased; scored-ancestors: goes to the score."""
    num_samples: int = 1
    """elbo: draws of z_t for each free energy that is learned and scored."""

    def __post_init__(self):
        for name, known in (("bound", Bound), ("gradient", Gradient)):
            if (given := getattr(self, name)) not in get_args(known):
                raise ValueError(
                    f"`filter.{name}` must be one of {', '.join(get_args(known))}; got {given!r}."
                )
        require_positive("filter.num_particles", self.num_particles)
        require_positive("filter.num_samples", self.num_samples)
        if self.num_samples > 1 and self.bound != "elbo":
            raise ValueError(
                f"`filter.num_samples` is {self.num_samples}, but the bound is {self.bound}, which"
                " takes one draw for each particle. Give `filter.num_particles` instead."
            )

    def build(self, model: AbstractModel, key: PRNGKeyArray) -> AbstractFilter:
        """Build the filter with its inference for a model."""
        inference = self.inference.build(model, key)
        return filter_with(
            inference, self.bound, self.num_particles, self.gradient, num_samples=self.num_samples
        )


def filter_with(
    inference: AbstractInference,
    bound: Bound,
    num_particles: int,
    gradient: Gradient = "fixed-ancestors",
    *,
    num_samples: int = 1,
) -> VariationalFilter | ParticleFilter:
    """The filter that gives this bound, and this gradient of it where there is a choice."""
    if bound == "elbo":
        return VariationalFilter(inference, num_samples=num_samples)
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

    def build(
        self, steps_per_epoch: int, *, can_be_stacked: bool = False
    ) -> optax.GradientTransformation:
        """Build the optimizer for training that makes so many of its steps an epoch.

        Those that `can_be_stacked` differ in their numbers alone, and so does what they learn.
        """
        # What is None is left out, and another program.
        decays = self.weight_decay if self.weight_decay > 0.0 else None
        numbers = (self.learning_rate, self.decay, self.epsilon, self.clip_norm, decays)
        if can_be_stacked:
            return numbered(_adam, steps_per_epoch, *numbers)
        return _adam(steps_per_epoch, *numbers)


def _adam(
    steps_per_epoch: Any, learning_rate: Any, decay: Any, epsilon: Any, clip_norm: Any, decays: Any
) -> optax.GradientTransformation:
    """Adam by numbers, or by arrays, which optax's own schedule would compare with 0."""

    def rate(count: Any) -> Any:
        return learning_rate * jnp.power(decay, jnp.floor(count / steps_per_epoch))

    adam = optax.adam(rate, eps=epsilon)
    if decays is not None:
        adam = optax.adamw(rate, eps=epsilon, weight_decay=decays)
    if clip_norm is None:
        return adam
    return optax.chain(optax.clip_by_global_norm(clip_norm), adam)


@dataclass(frozen=True)
class Optimizers:
    """The optimizer of the model (theta) and that of the inference network (phi)."""

    theta: Adam = Adam()
    """The optimizer of the model."""
    phi: Adam = Adam()
    """The optimizer of the inference network."""
    num_phi_steps: int = 24
    """AVF: steps of phi for each of theta, on slices of the recorded problems."""
    dropout: float = 0.0
    """The chance that a weight of the model is left out of an update (DropConnect)."""
    dropout_epochs: int = 0
    """That chance rises from 0 over so many epochs, so that latents come into use first."""

    def __post_init__(self):
        require_rate(self.dropout)
        if self.dropout_epochs < 0:
            raise ValueError(
                f"`optimizer.dropout_epochs` must not be negative; got {self.dropout_epochs}."
            )

    def learner(
        self,
        filter: AbstractFilter,
        updates_per_epoch: int,
        *,
        complete: bool,
        can_be_stacked: bool = False,
    ) -> TimeParallel | EndToEnd:
        """The learner that fits the filter: all steps at once where its inference is local."""
        build = functools.partial(Adam.build, can_be_stacked=can_be_stacked)
        theta = build(self.theta, updates_per_epoch)
        # What is None is left out, and another program.
        dropout = None
        if self.dropout > 0.0:
            dropout = Dropout(self.dropout, self.dropout_epochs * updates_per_epoch)
        if isinstance(filter, VariationalFilter) and filter.inference.is_local:
            return TimeParallel(
                theta=theta,
                phi=build(self.phi, updates_per_epoch * self.num_phi_steps),
                num_phi_steps=self.num_phi_steps,
                complete=complete,
                dropout=dropout,
            )
        phi = build(self.phi, updates_per_epoch)
        return EndToEnd(theta=theta, phi=phi, complete=complete, dropout=dropout)


@dataclass(frozen=True)
class Schedule:
    """How long a run is trained, and on which batches. An epoch is one window of each sequence."""

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
    epochs_per_validation: int | None = None
    """How often the validation part is scored, whole; the best checkpoint is kept. None: as often
    as a fifth of the time allows, on a part of it if need be."""
    patience_epochs: int | None = None
    """Stop when validation has not improved for so many epochs after annealing. Where validations
    are further apart than an epoch, it takes as many of them too, or three."""
    semitones: int = 0
    """Music: move each training window by a random number of semitones, up to so many."""
    hidden_elements: float = 0.0
    """Hide this share of the elements of each training window."""
    hidden_gaps: float = 0.0
    """The chance that at a step of a training window a gap of hidden steps begins."""
    longest_gap: int = 5
    """A gap has 1 to so many steps."""

    def __post_init__(self):
        for name in ("num_epochs", "batch_size", "longest_gap"):
            require_positive(f"schedule.{name}", getattr(self, name))
        for name in ("windows_per_epoch", "patience_epochs", "epochs_per_validation"):
            if getattr(self, name) is not None:
                require_positive(f"schedule.{name}", getattr(self, name))
        if self.num_steps is not None and self.num_steps < 2:
            raise ValueError(
                "`schedule.num_steps` must be at least 2, one to condition on; got"
                f" {self.num_steps}."
            )

        if self.semitones < 0:
            raise ValueError(
                f"`schedule.semitones` must not be negative: it is up as well as down; got"
                f" {self.semitones}."
            )

    def updates_per_epoch(self, num_batches: int) -> int:
        """How many updates an epoch has, for data with so many batches in one pass."""
        if self.windows_per_epoch is None:
            return num_batches
        return max(1, -(-self.windows_per_epoch // self.batch_size))

    def window_steps(self, lengths: np.ndarray, num_before: int = 0) -> int:
        """How many steps a window has, for training sequences of so many steps each.

        `num_before` of them are those after which a model first knows what it is to predict from.
        """
        if self.num_steps is not None:
            return self.num_steps
        if not lengths.size:
            return LONGEST_WINDOW + num_before
        return max(
            2, min(LONGEST_WINDOW + num_before, int(np.quantile(lengths, 0.1, method="lower")))
        )

    def transposition(self) -> Transposition | None:
        """How training windows are moved to other keys; None if they are not."""
        return Transposition(self.semitones) if self.semitones else None

    def thinning(self, families: Sequence[Family] = ()) -> Thinning | None:
        """What is hidden of each training window; None if nothing is.

        `families` are those of the elements: the levels of a column are hidden together.
        """
        if self.hidden_elements == self.hidden_gaps == 0.0:
            return None
        names = [family.group or i for i, family in enumerate(families)]
        together = tuple(names.index(name) for name in names)
        is_alone = together == tuple(range(len(together)))
        return Thinning(
            self.hidden_elements,
            self.hidden_gaps,
            self.longest_gap,
            None if is_alone else together,
        )

    def annealing(self, updates_per_epoch: int) -> Annealing:
        """The weight of the KL by the number of the update."""
        return Annealing(self.annealing_epochs, updates_per_epoch, self.annealing_power)
