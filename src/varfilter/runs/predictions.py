"""What a trained run says of new data: rows of filtered steps and of forecasts, or recordings."""

import itertools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from varfilter._arguments import require_positive
from varfilter.data.dataset import Dataset
from varfilter.media import NewSequence, Row, new_sequences
from varfilter.media.formats import in_order
from varfilter.prediction import require_levels
from varfilter.runs.alarms import require_rate, with_alarms
from varfilter.runs.applied import AppliedRun, apply_run
from varfilter.runs.forecasting import with_pool
from varfilter.runs.metrics import verdict
from varfilter.runs.run import Run
from varfilter.runs.sampling import Sample


def filter_data(
    run: Run,
    data: Any,
    *,
    seed: int = 0,
    num_particles: int | None = None,
    num_samples: int | None = None,
    spread: float | None = None,
    levels: Sequence[float] = (),
    latents: bool = False,
    alarm_rate: float | None = None,
    dataset: Dataset | None = None,
    fill_gaps: bool = False,
) -> Iterator[Row]:
    """A row for each row of a table, or each step of other data, as the run's medium writes them.

    The rows of a table come back in its order, whatever that is, and of two that fall on one step
    both do, each with its own cells and with what was predicted of the step. With `fill_gaps` they
    come by sequence and time, and each step without a row has one too.

    `num_particles` trajectories are carried (256 for tables, 32 for sound, 16 for music, 8 for
    video; 1 is the paper's filter), and predictions, surprise and latents come from all of them.
    The prediction is that of `predict`, from `num_samples` draws (128; 16 for video), with
    quantiles at `levels`. `spread` is how much wider the prior of each step is than it was learned
    (1.1 for the many trajectories of tables, else 1).
    Surprise is -log p(x_t | x_<t) in nats, of a table's columns in standardised units: less their
    mean in training, by their spread there.
    The first step of a sequence is conditioned on, as in training: it has neither prediction nor
    surprise. Every sequence draws from the same seed, so that its numbers do not depend on those
    beside it, and are those of the same lines on standard input.

    A part `alarm_rate` of healthy steps of tables (0.001) raises an alarm, as `calibrate_run` says;
    0 is for no alarms. `dataset` is the run's own, for data that cannot be read again.
    """
    applied = apply_run(
        run, seed=seed, num_particles=num_particles, spread=spread,
        num_samples=num_samples, levels=levels, latents=latents, fill_gaps=fill_gaps,
    )  # fmt: skip
    require_rate(alarm_rate)
    sequences = new_sequences(run.template, run.experiment.data, data)
    sequences = applied.inspected(sequences, _warn)

    def rows() -> Iterator[tuple[int | None, Row]]:
        judging = None
        for sequence in sequences:
            if judging is None:  # only of data that were read: it may take its time
                judging = with_alarms(run, applied, alarm_rate, dataset)
            yield from _numbered(judging, sequence)

    return in_order(rows())


def forecast_data(
    run: Run,
    data: Any,
    horizon: int,
    *,
    inputs: Any = None,
    seed: int = 0,
    num_particles: int | None = None,
    num_samples: int = 256,
    spread: float | None = None,
    levels: Sequence[float] = (0.05, 0.5, 0.95),
    pool: bool = True,
    dataset: Dataset | None = None,
) -> Iterator[Row]:
    """What may follow each sequence of `data`: `horizon` rows, as the run's medium writes them.

    A run with input columns must be told those of the steps to come: `inputs`, a table like `data`
    with these columns, or rows at the end of `data` whose other cells are empty.

    Each sequence is filtered to its end with `num_particles` trajectories, as by `filter_data`;
    `num_samples` futures begin there, each from one of them by its weight. Those of a table are
    pooled with its references, as `varfilter.runs.pooling` says; without `pool` they are the
    model's alone. `dataset` is the run's own, for data that cannot be read again.
    """
    horizon = require_positive("horizon", horizon)
    applied = apply_run(
        run, seed=seed, num_particles=num_particles, spread=spread,
        num_samples=num_samples, levels=require_levels(levels),
    )  # fmt: skip
    plan = run.medium.plan(run.template, inputs)
    sequences = new_sequences(run.template, run.experiment.data, data)
    sequences = applied.inspected(sequences, _warn)

    def rows() -> Iterator[Row]:
        pooled = None
        for each in sequences:
            sequence, ahead = run.medium.ahead(run.template, each, horizon, plan)
            if pooled is None:  # once, and only of data that were read
                naive = verdict(run)
                if naive is not None:
                    _warn(naive)
                pooled = with_pool(run, applied, dataset) if pool else applied
            yield from pooled.forecast_rows(applied.last_belief(sequence), sequence, ahead)

    return rows()


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


def _numbered(applied: AppliedRun, sequence: NewSequence) -> Iterator[tuple[int | None, Row]]:
    """The rows of a sequence, each with its number in the data; None: as they come."""
    numbers = itertools.repeat(None)
    if sequence.given is not None and not applied.fill_gaps:
        numbers = map(int, sequence.given.numbers)
    yield from zip(numbers, _filtered(applied, sequence), strict=False)


def _filtered(applied: AppliedRun, sequence: NewSequence) -> Iterator[Row]:
    begin = 0
    for filtering in applied.filterings(sequence):
        end = begin + len(filtering.times)
        yield from applied.as_rows(sequence, begin, end, filtering)
        begin = end


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=3)
