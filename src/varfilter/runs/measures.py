"""What the medium of a run is judged by beside nats, on held-out sequences."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from varfilter.data.dataset import Dataset
from varfilter.media import NewSequence
from varfilter.media.measures import Futures, OneStep
from varfilter.models import settled
from varfilter.runs.alarms import held_sequences
from varfilter.runs.applied import AppliedRun, apply_run
from varfilter.runs.run import Run
from varfilter.runs.sampling import observed_mean
from varfilter.simulation import Observe, forecast

# Numbers that are predicted at most, which tell a mean well enough; a part of a large split.
MOST_NUMBERS = 1 << 23
MOST_STEPS = 20_000
# Futures of which the best counts, where the medium asks for it: papers on video draw a hundred.
NUM_FUTURES = 10


def measure_run(
    run: Run,
    *,
    split: str = "test",
    dataset: Dataset | None = None,
    num_particles: int | None = None,
    num_iterations: int | None = None,
    num_futures: int | None = None,
    seed: int = 0,
    scores: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """The measures of the run's medium on a split, as plain JSON; none where it has none.

    They are of the filter that `filter_data` applies, with `num_particles` trajectories, and with
    `num_iterations` of AVF in place of those of training; `scores`
    are those of `score_run`, for measures that are nats in other units. `num_futures` are drawn
    where the best of several counts (10; 0 leaves such measures out). `dataset` is the run's own.
    """
    dataset = run.dataset if dataset is None else dataset
    predictor = run_predictor(
        run, dataset, split=split, num_particles=num_particles, num_iterations=num_iterations,
        num_futures=num_futures, seed=seed,
    )  # fmt: skip
    found = run.medium.measures(dataset, split, predictor, scores or {})
    return [measure.as_json() for measure in found]


def run_predictor(
    run: Run,
    dataset: Dataset,
    *,
    split: str,
    num_particles: int | None = None,
    num_iterations: int | None = None,
    num_futures: int | None = None,
    seed: int = 0,
) -> "RunPredictor":
    """The run on a split of its data, for its medium to ask."""
    num_futures = NUM_FUTURES if num_futures is None else num_futures
    if num_futures < 0:
        raise ValueError(f"`num_futures` must not be negative; got {num_futures}.")
    applied = apply_run(run, seed=seed, num_particles=num_particles, num_iterations=num_iterations)
    return RunPredictor(applied, dataset, split, observed_mean(run), num_futures)


@dataclass(frozen=True)
class RunPredictor:
    """A run that is applied to a split of its data: the `Predictor` of a medium's measures."""

    applied: AppliedRun
    dataset: Dataset
    split: str
    observe: Observe
    num_futures: int = NUM_FUTURES

    def one_step(self) -> Iterator[OneStep]:
        """What was expected of each step before it was seen, of each sequence of two or more."""
        for sequence in self._sequences():
            if len(sequence.xs) > 1:
                yield OneStep(sequence.xs, self.applied.expected(sequence))

    def futures(
        self, begin: int, horizon: int, num_samples: int, *, mean: bool = True
    ) -> Iterator[Futures]:
        """Draw so many futures after `begin` steps of each sequence that is long enough."""
        rows_per_step = self.dataset.rows_per_step
        # No more is read of each than is asked for: long ones leave room for many.
        long_enough = self._sequences(first=(begin + horizon) * rows_per_step)
        for number, sequence in enumerate(long_enough):
            seen = sequence.steps(0, begin, rows_per_step)
            after = sequence.steps(begin, begin + horizon, rows_per_step)
            belief = self.applied.last_belief(seen)
            drawn = forecast(
                self.applied.filter, settled(self.applied.model), belief, horizon,
                jax.random.fold_in(self.applied.key, number),
                us=after.us, num_samples=num_samples, observe=self.observe if mean else None,
            )  # fmt: skip
            yield Futures(seen.xs, after.xs, np.asarray(drawn.samples), sequence.name)

    def _sequences(self, *, first: int | None = None) -> Iterator[NewSequence]:
        per_step = max(1, self.dataset.num_elements)
        most = min(MOST_STEPS, max(64, MOST_NUMBERS // per_step)) * self.dataset.rows_per_step
        yield from held_sequences(self.dataset, self.split, most, first=first)
