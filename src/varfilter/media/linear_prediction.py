"""Linear prediction: what a sound is held against, each sample foretold from those before it.

x_n = c + sum_k a_k x_{n-k} + e_n with Gaussian e_n of one variance, which lossless coders of sound
are built on. It sees every sample up to the one it predicts, where a model that learns by steps
sees whole steps: below it a model has found more than the colour of the spectrum.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from varfilter.data.dataset import Dataset
from varfilter.media.reference import Reference, element_nats

# The highest order that lossless coders have.
ORDER = 32
# Samples of training that tell the coefficients well enough, and those in memory at once.
MOST_SAMPLES, BLOCK = 1 << 22, 1 << 15


class LinearPrediction(NamedTuple):
    """The constant, the coefficients a_1, ..., a_p and the spread of e_n, in the model's units."""

    constant: float
    coefficients: np.ndarray
    spread: float

    @property
    def order(self) -> int:
        """How many samples before it foretell one."""
        return len(self.coefficients)

    def means(self, samples: np.ndarray) -> np.ndarray:
        """What is expected of each sample from the `order`-th on."""
        before = np.lib.stride_tricks.sliding_window_view(samples, self.order)[:-1]
        return self.constant + before @ self.coefficients[::-1]


def fit_linear_prediction(sounds: Iterator[np.ndarray], order: int = ORDER) -> LinearPrediction:
    """Fit by least squares over all samples that have `order` others before them.

    `sounds` are in the model's units; one that is no longer than the order is left out.
    """
    size = order + 2  # a constant, the samples before, and the one that is foretold
    moments, num_samples = np.zeros((size, size)), 0
    for samples in sounds:
        if len(samples) <= order:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(samples, order + 1)
        for begin in range(0, len(windows), BLOCK):
            block = windows[begin : begin + BLOCK]
            rows = np.concatenate([np.ones((len(block), 1)), block], axis=1)
            moments += rows.T @ rows
            num_samples += len(rows)
    gram, cross = moments[:-1, :-1], moments[:-1, -1]
    # Silence, or a pure tone, foretells itself in more than one way: the least numbers do.
    solution = np.linalg.lstsq(gram, cross, rcond=1e-12)[0]
    square = moments[-1, -1] - 2 * solution @ cross + solution @ gram @ solution
    spread = float(np.sqrt(max(square, 0.0) / max(num_samples, 1)))
    return LinearPrediction(float(solution[0]), solution[:0:-1], spread)


def linear_prediction_reference(dataset: Dataset, split: str, order: int = ORDER) -> Reference:
    """Score the samples that a model is scored on: those after the first step of a sequence.

    The likelihood is that of the data's own family, of levels where they have any, so that the
    nats are those of a model's bound.
    """
    size = dataset.rows_per_step
    order = min(order, size)
    fitted = fit_linear_prediction(_training(dataset), order)
    scores = []
    for samples in _sounds(dataset, split):
        if len(samples) <= size:
            continue
        means = fitted.means(samples)[size - order :]
        nats = element_nats(dataset.families[0], samples[size:], means, fitted.spread)
        scores.append(float(np.sum(nats)) / (len(samples) // size - 1))
    return Reference(f"each sample from the {order} before it, linearly", float(np.mean(scores)))


def _sounds(dataset: Dataset, split: str) -> Iterator[np.ndarray]:
    """The samples of the whole steps of each sequence, in the model's units."""
    for rows in dataset.split(split):
        yield dataset.observations(rows).astype(np.float64).ravel()


def _training(dataset: Dataset) -> Iterator[np.ndarray]:
    """The training sounds; of a large set only some, at even distances."""
    every = -(-len(dataset.train.values) // MOST_SAMPLES)
    for number, samples in enumerate(_sounds(dataset, "train")):
        if number % every == 0:
            yield samples
