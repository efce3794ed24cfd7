"""How the experiments learn: optimizers, epochs, annealing, and when to stop."""

from dataclasses import dataclass

import optax

from varfilter.filters import AbstractFilter, VariationalFilter
from varfilter.learning import EndToEnd, TimeParallel
from varfilter.train import Annealing


@dataclass(frozen=True)
class Adam:
    """Adam with a learning rate that falls by a factor each epoch (spec 2.9)."""

    learning_rate: float = 1e-4
    """In the first epoch."""
    decay: float = 0.999
    """The learning rate is multiplied by this after each epoch."""
    epsilon: float = 1e-8
    """Added to the root of the mean square gradient: what is far below it hardly moves."""
    clip_norm: float | None = None
    """Gradients of a greater norm are scaled down to it."""
    weight_decay: float = 0.0
    """Parameters shrink by this times the learning rate at each step (AdamW)."""

    def build(self, steps_per_epoch: int) -> optax.GradientTransformation:
        """For an optimizer that makes so many steps an epoch."""
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
    """One for the model (theta), one for the inference network (phi)."""

    theta: Adam = Adam()
    """Of the model."""
    phi: Adam = Adam()
    """Of the inference network."""
    num_phi_steps: int = 24
    """AVF: steps of phi for each of theta, on slices of the recorded problems."""

    def learner(
        self, filter: AbstractFilter, updates_per_epoch: int, *, complete: bool
    ) -> TimeParallel | EndToEnd:
        """All steps at once where the inference is local, else end to end."""
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
    """Windows in a batch."""
    num_steps: int = 25
    """Steps in a window; the first is conditioned on, and not scored."""
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

    def updates_per_epoch(self, num_batches: int) -> int:
        """For data with so many batches in one pass."""
        if self.windows_per_epoch is None:
            return num_batches
        return max(1, -(-self.windows_per_epoch // self.batch_size))

    def annealing(self, updates_per_epoch: int) -> Annealing:
        """The weight of the KL by the number of the update."""
        return Annealing(self.annealing_epochs, updates_per_epoch, self.annealing_power)
