"""How the experiments learn: optimizers, epochs, annealing, and when to stop."""

import math
from dataclasses import dataclass

import numpy as np
import optax

from varfilter._arguments import require_positive
from varfilter.filters import AbstractFilter, VariationalFilter
from varfilter.learning import EndToEnd, TimeParallel
from varfilter.training.updates import Annealing, Thinning

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
