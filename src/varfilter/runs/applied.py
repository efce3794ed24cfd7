"""A trained run at work: filter new recordings, and forecast how they go on."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from varfilter._arguments import require_positive
from varfilter._programs import kept_jit
from varfilter.contracts import require_inputs
from varfilter.data.dataset import Dataset
from varfilter.filtering import Belief, run, start
from varfilter.filters import (
    AbstractFilter,
    Filtered,
    ParticleFilter,
    VariationalFilter,
    of_each_member,
    share_of_member,
)
from varfilter.inference import AbstractInference, Iterative
from varfilter.media import (
    Ahead,
    NewSequence,
    Row,
    forecast_rows,
    medium_of,
)
from varfilter.media.rows import Filtering, filtering_of
from varfilter.model import AbstractModel
from varfilter.models import settled, widened
from varfilter.prediction import Predicted, no_steps, predict, require_levels, run_predictive
from varfilter.runs.alarms import AlarmRule, calibrated
from varfilter.runs.calibration import Calibration, Settings, known_calibration
from varfilter.runs.forecasting import PooledReferences, history_of
from varfilter.runs.metrics import TrainingRange
from varfilter.runs.run import Run
from varfilter.simulation import Forecast, forecast


@dataclass(frozen=True)
class AppliedRun:
    """A trained run with all that is decided before the first observation comes.

    `dataset` is what is known of the run's data. `filter` has the inference that was trained, and
    the number of trajectories that was asked for. `num_samples` draws make a prediction, whose
    quantiles are at `levels`; `latents` says whether rows have the latents too. `training_range` is
    that of the run's data, where it is on record. `settings` and `step`, of the checkpoint, say
    by which calibration `alarms` judges the steps; None: nobody does, and where that was asked for,
    `is_uncalibrated`, rows have the columns of alarms, empty. `fill_gaps` says whether steps for
    which there is no row have one too. Forecasts are pooled with the references of `pool`; None:
    they are the model's alone.
    """

    dataset: Dataset
    model: AbstractModel
    filter: AbstractFilter
    key: PRNGKeyArray
    num_samples: int
    levels: tuple[float, ...]
    latents: bool
    training_range: TrainingRange | None
    settings: Settings
    step: int
    alarms: AlarmRule | None = None
    is_uncalibrated: bool = False
    fill_gaps: bool = False
    pool: PooledReferences | None = None

    def inspected(
        self, sequences: Iterable[NewSequence], tell: Callable[[str], None]
    ) -> Iterator[NewSequence]:
        """The sequences as they are; `tell` hears once of each column that leaves its range."""
        told: set[str] = set()
        for sequence in sequences:
            known = self.training_range
            for name, text in {} if known is None else known.outside(sequence.rows).items():
                if name not in told:
                    tell(f"{sequence.name}: {text}")
                    told.add(name)
            yield sequence

    @property
    def surprises(self) -> bool:
        """Whether the surprise of each element is told by itself."""
        return medium_of(self.dataset).has_alarms

    @property
    def num_steps(self) -> int:
        """How many steps one dispatch filters; a shorter sequence is padded to it.

        One program serves all lengths: compiling takes longer than filtering thousands of steps.
        """
        return medium_of(self.dataset).num_steps

    def started(self, x0: np.ndarray) -> Belief:
        """The belief after the first observation, which is conditioned on and not scored."""
        return _start(self.filter, self.model, jnp.asarray(x0), self.key)

    def predict(
        self, belief: Belief, u: np.ndarray | None = None, x: np.ndarray | None = None
    ) -> Predicted:
        """What is expected next, with the run's number of draws; `u` is what is known of it.

        `x` is what came, of which only the surprises know.
        """
        return predict(
            self.filter, self.model, belief, self.key, u=u, x=x if self.surprises else None,
            num_samples=self.num_samples, levels=self.levels,
        )  # fmt: skip

    def first_rows(self, sequence: NewSequence) -> Iterator[Row]:
        """Make the rows of a first step, of which there is no prediction."""
        return self.rows(sequence, 0, 1, *self._no_steps)

    def rows(
        self, sequence: NewSequence, begin: int, end: int, filtered: Filtered, predicted: Predicted
    ) -> Iterator[Row]:
        """The rows of the steps from `begin` to `end`: those that were given, and perhaps gaps."""
        return self.as_rows(
            sequence, begin, end, self.filtering(sequence, begin, end, filtered, predicted)
        )

    def as_rows(
        self, sequence: NewSequence, begin: int, end: int, filtering: Filtering
    ) -> Iterator[Row]:
        """What was said of the steps from `begin` to `end`, as the rows that were given."""
        given = sequence.steps(begin, end, self.dataset.rows_per_step).given
        if given is not None:
            filtering = filtering.as_given(given, fill_gaps=self.fill_gaps)
        return medium_of(self.dataset).step_rows(self.dataset, filtering)

    def filtering(
        self, sequence: NewSequence, begin: int, end: int, filtered: Filtered, predicted: Predicted
    ) -> Filtering:
        """What was said of the steps from `begin` to `end`, with their alarms."""
        part = sequence.steps(begin, end, self.dataset.rows_per_step)
        found = filtering_of(
            self.dataset,
            part.rows,
            filtered,
            predicted=predicted,
            sequence=sequence.name,
            times=part.times,
            latents=self.latents,
        )
        if self.alarms is not None:
            return self.alarms.judged(found)
        return replace(found, is_uncalibrated=self.is_uncalibrated)

    def filterings(self, sequence: NewSequence) -> Iterator[Filtering]:
        """What is said of a whole sequence, a part of its steps after another."""
        belief = self.started(sequence.xs[0])
        if len(sequence.xs) == 1:
            yield self.filtering(sequence, 0, 1, *self._no_steps)
        for begin, num_steps, xs, us, mask in _chunks(self, sequence):
            belief, *found = _run_predictive(
                self.filter, self.model, xs, self.key, us=us, mask=mask, belief=belief,
                num_samples=self.num_samples, levels=self.levels, surprises=self.surprises,
            )  # fmt: skip
            if begin == 1:  # of the first step there is no more than of no step at all
                yield self.filtering(sequence, 0, 1, *_first_steps(found, 0))
            filtered, predicted = _first_steps(found, num_steps)
            yield self.filtering(sequence, begin, begin + num_steps, filtered, predicted)

    def expected(self, sequence: NewSequence) -> np.ndarray:
        """The mean of each step but the first, (steps - 1, *event), before it was seen.

        In the model's units.
        """
        belief, means = self.started(sequence.xs[0]), [np.zeros_like(sequence.xs[:0])]
        for _, num_steps, xs, us, mask in _chunks(self, sequence):
            belief, _, predicted = _run_predictive(
                self.filter, self.model, xs, self.key, us=us, mask=mask, belief=belief,
                num_samples=self.num_samples,
            )  # fmt: skip
            means.append(np.asarray(predicted.mean)[:num_steps])
        return np.concatenate(means)

    def last_belief(self, sequence: NewSequence) -> Belief:
        """The belief after the last step of a sequence."""
        belief = self.started(sequence.xs[0])
        for _, _, xs, us, mask in _chunks(self, sequence):
            belief, _ = _run(self.filter, self.model, xs, self.key, us=us, mask=mask, belief=belief)
        return belief

    def forecast(self, belief: Belief, sequence: NewSequence, ahead: Ahead) -> Forecast:
        """Draw futures through the steps `ahead` of a sequence, after which this is believed.

        Where there is a pool, its references are told of the last steps of the sequence.
        """
        # As a stream's own: the same each time it is asked for at this step.
        key = jax.random.fold_in(jax.random.fold_in(self.key, belief.t), 0xF0)
        own = forecast(
            self.filter, settled(self.model), belief, len(ahead.times), key,
            us=ahead.us, num_samples=self.num_samples, levels=self.levels,
        )  # fmt: skip
        if self.pool is None:
            return own
        return self.pool.forecast(self.dataset, own, history_of(sequence, ahead))

    def forecast_rows(self, belief: Belief, sequence: NewSequence, ahead: Ahead) -> Iterator[Row]:
        """How a sequence may go on through the steps `ahead`."""
        found = self.forecast(belief, sequence, ahead)
        return forecast_rows(self.dataset, found, sequence=sequence.name, times=ahead.times)

    @functools.cached_property
    def _no_steps(self) -> tuple[Filtered, Predicted]:
        """What was filtered and predicted in no step at all."""
        return no_steps(
            self.filter, self.model, self.key,
            num_samples=self.num_samples, levels=self.levels, surprises=self.surprises,
        )  # fmt: skip


def apply_run(
    run: Run,
    *,
    seed: int = 0,
    num_particles: int | None = None,
    num_samples: int | None = None,
    spread: float | None = None,
    levels: Sequence[float] = (),
    latents: bool = False,
    fill_gaps: bool = False,
    num_iterations: int | None = None,
) -> AppliedRun:
    """Load the best checkpoint of a run, ready to filter new data with.

    `num_particles`, `num_samples` and `spread` that are None are those of the run's medium; by
    `spread` the prior of each step is wider than it was learned (`varfilter.models.Widened`).
    `num_iterations` of AVF are those of training where they are None.
    """
    if not 0 <= seed < 2**32:
        raise ValueError(f"`seed` must lie in [0, 2^32); got {seed}.")
    levels = require_levels(levels) if len(levels) else ()
    num_samples = run.medium.num_samples if num_samples is None else num_samples
    num_samples = require_positive("num_samples", num_samples)
    num_particles = run.medium.num_particles if num_particles is None else num_particles
    num_particles = require_positive("num_particles", num_particles)
    spread = run.medium.spread_of(num_particles) if spread is None else spread
    if not 0.0 < spread < math.inf:
        raise ValueError(f"`spread` must be positive, 1 for what was learned; got {spread}.")
    trained = run.trained()
    model = widened(trained.model, spread)
    filter = applied_filter(trained.filter, num_particles, num_iterations)
    key = jax.random.key(seed)
    known = TrainingRange.of_record(run.record["data"])
    settings = Settings(num_particles, num_samples, spread)
    return AppliedRun(
        run.template, model, filter, key, num_samples, levels, latents, known, settings,
        trained.step, fill_gaps=fill_gaps,
    )  # fmt: skip


def applied_filter(
    trained: AbstractFilter, num_particles: int, num_iterations: int | None = None
) -> AbstractFilter:
    """The filter with the inference of `trained`, whatever it was trained with, for new data.

    One sampled past is what AVF learns from, and as a belief it is overconfident: it holds one
    guess of all that was not observed for a fact. So `num_particles` weighted trajectories are
    carried, each proposed by the trained inference, and resampled where fewer than half of them
    count; 1 gives the paper's filter. The members of an ensemble share them. `num_iterations` that
    are None are those of training.
    """
    own = share_of_member(trained, num_particles)
    inference = trained_inference(trained, num_iterations)

    def applied(_: AbstractFilter) -> AbstractFilter:
        if own == 1:
            return VariationalFilter(inference)
        return ParticleFilter(inference, own, resample_below=0.5)

    return of_each_member(trained, applied)


def trained_inference(filter: AbstractFilter, num_iterations: int | None) -> AbstractInference:
    """The inference that was trained, of an ensemble those of its members, with so many updates."""
    trained = getattr(filter, "members", filter)
    assert isinstance(trained, VariationalFilter | ParticleFilter)
    inference = trained.inference
    if num_iterations is None:
        return inference
    if not isinstance(inference, Iterative):
        raise ValueError(
            f"`num_iterations` is {num_iterations}, but this run infers with"
            f" `{type(inference).__name__}`, whose iterations are not to be chosen after"
            " training. Leave it out, or evaluate a run of AVF."
        )
    return inference.with_num_iterations(num_iterations)


def calibrate_run(
    run: Run,
    dataset: Dataset | None = None,
    *,
    num_particles: int | None = None,
    num_samples: int | None = None,
    spread: float | None = None,
) -> Calibration | None:
    """How surprising healthy steps are to the filter of these settings, by the validation part.

    It is kept in the run's folder, and found there the next time. `dataset` is the run's own, read
    again if it is not given. None for data whose columns mean nothing by themselves, and where too
    few steps were held out.
    """
    if not run.medium.has_alarms:
        return None
    applied = apply_run(run, num_particles=num_particles, num_samples=num_samples, spread=spread)
    known = known_calibration(run.folder, applied.settings, applied.step)
    if known is not None:
        return known
    return calibrated(run, applied, run.dataset if dataset is None else dataset)


def _first_steps(tree: Any, num_steps: int) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:num_steps], tree)


def _chunks(
    applied: AppliedRun, sequence: NewSequence
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray | None, np.ndarray]]:
    """Cut the steps after the first into chunks: (first step, count, padded xs and us, mask)."""

    def padded(values: np.ndarray, begin: int, padding: float) -> np.ndarray:
        part = values[begin : begin + size]
        missing = np.full((size - len(part), *values.shape[1:]), padding, values.dtype)
        return np.concatenate([part, missing])

    size = applied.num_steps
    xs, us = sequence.xs, sequence.us
    # Inside of a program nobody would see that one is missing.
    require_inputs("us", us, applied.model, xs.shape[:1])
    for begin in range(1, len(xs), size):
        count = min(size, len(xs) - begin)
        known = None if us is None else padded(us, begin, 0.0)
        yield begin, count, padded(xs, begin, np.nan), known, np.arange(size) < count


# With their checks inside: what has once been traced has passed them, and a later start finds it.
_start, _run, _run_predictive = kept_jit(start), kept_jit(run), kept_jit(run_predictive)
