"""What a run expects of recordings, as recordings like them: to be heard and watched."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from varfilter._arguments import require_positive
from varfilter.media import new_sequences
from varfilter.runs.applied import apply_run
from varfilter.runs.metrics import verdict
from varfilter.runs.run import Run
from varfilter.runs.sampling import Sample


def expected_steps(
    run: Run,
    data: Any,
    *,
    seed: int = 0,
    num_particles: int | None = None,
    num_samples: int | None = None,
    spread: float | None = None,
) -> Iterator[Sample]:
    """Each sequence of `data` as it was expected, every step before it was seen.

    The mean of p(x_t | x_<t), or what stands for it in the medium (`AbstractMedium.likely`); the
    first step is as it was given. Arguments as of `filter_data`.
    """
    applied = apply_run(
        run, seed=seed, num_particles=num_particles, num_samples=num_samples, spread=spread
    )
    for sequence in applied.inspected(
        new_sequences(run.template, run.experiment.data, data), _warn
    ):
        means = np.asarray(run.medium.likely(run.template, applied.expected(sequence)))
        xs = np.concatenate([sequence.xs[:1], means])
        yield Sample(xs, 1, sequence.name, sequence.times, sequence.schema)


def expected_ahead(
    run: Run,
    data: Any,
    horizon: int,
    *,
    inputs: Any = None,
    seed: int = 0,
    num_particles: int | None = None,
    num_samples: int = 256,
    spread: float | None = None,
) -> Iterator[Sample]:
    """What is expected after each sequence of `data`, by the mean over all futures drawn.

    Arguments as of `forecast_data`. The further ahead, the more the futures differ, and the less
    their mean is like any of them: `sample_run` with `start` has one as it may be.
    """
    horizon = require_positive("horizon", horizon)
    applied = apply_run(
        run, seed=seed, num_particles=num_particles, num_samples=num_samples, spread=spread,
        levels=(0.5,),
    )  # fmt: skip
    plan = run.medium.plan(run.template, inputs)
    sequences = new_sequences(run.template, run.experiment.data, data)
    for number, each in enumerate(applied.inspected(sequences, _warn)):
        if number == 0 and (naive := verdict(run)) is not None:
            _warn(naive)
        sequence, ahead = run.medium.ahead(run.template, each, horizon, plan)
        found = applied.forecast(applied.last_belief(sequence), sequence, ahead)
        xs = np.asarray(run.medium.likely(run.template, np.asarray(found.mean)))
        yield Sample(xs, 0, sequence.name, ahead.times, sequence.schema)


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=3)
