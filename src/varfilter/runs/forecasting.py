"""What the forecasts of a run are pooled with: found by its validation part, kept in its folder.

The pool itself, its weights and what it says, is in `varfilter.runs.pooling`.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from varfilter.data.continued import MOST_BEFORE, Continued, continued
from varfilter.data.dataset import Dataset
from varfilter.media import Ahead, NewSequence
from varfilter.media.gaussians import Predictor, reference_gaussians
from varfilter.media.naive import Naive
from varfilter.runs.folder import list_damaged, read_list, write_list
from varfilter.runs.pool_futures import pooled_forecast
from varfilter.runs.pooling import ForecastPool, Lately, widened_elements
from varfilter.runs.run import Run
from varfilter.simulation import Forecast
from varfilter.training.predictive_draws import filter_predictions, origins

if TYPE_CHECKING:
    from varfilter.runs.applied import AppliedRun

FILE, ENTRY, VERSION = "pool.json", "pools", 2
# What was learned for the linear reference, in the folder of a run.
LINEAR = "linear.safetensors"
# Steps of the validation part, forecasts from there, and how far ahead these are worth their time.
MOST_STEPS, MOST_FORECASTS, LONGEST = 2000, 100, 64
NUM_SAMPLES = 128
# What references said of the training rows just before counts half as much after so many lengths of
# the validation part, and nothing after so many.
HALF_LIFE, LONGEST_AGO = 0.5, 2.5
# With fewer forecasts there is nothing to weigh by.
FEWEST_FORECASTS = 2


@dataclass(frozen=True)
class PooledReferences:
    """A pool, and the references of its run in the order of its weights.

    `lost` says what has become of the linear model, where it is not there any more, and is in the
    pool no longer.
    """

    pool: ForecastPool
    predictors: tuple[Predictor, ...]
    lost: str = ""

    def forecast(self, dataset: Dataset, own: Forecast, history: Continued) -> Forecast:
        """The model's own forecast from the end of what came, pooled.

        The known inputs of `history`, where there are any, go on through the steps ahead.
        """
        place, horizon = np.array([len(history)]), len(own.mean)
        found = [predictor(history, place, horizon) for predictor in self.predictors]
        return pooled_forecast(dataset, self.pool, own, [each.part(0) for each in found])


def history_of(sequence: NewSequence, ahead: Ahead) -> Continued:
    """The last steps of a sequence, and the known inputs of those that follow it."""
    first = max(len(sequence.xs) - MOST_BEFORE, 0)
    xs, us = sequence.xs[first:], None
    if sequence.us is not None and ahead.us is not None:
        us = np.concatenate([sequence.us[first:], ahead.us])
    return Continued(str(sequence.name), xs, us, None, len(xs))


def with_pool(run: Run, applied: "AppliedRun", dataset: Dataset | None = None) -> "AppliedRun":
    """Return `applied` with forecasts that are pooled, if its medium has references by column.

    The weights are found by the validation part of `dataset`, the run's own, which is read again if
    it is not given; a warning says so where it is not at hand, and was not before, and where it is
    too short.
    """
    if not run.medium.has_column_references:
        return applied
    pooled = known_pool(run, applied)
    if pooled is None or pooled.lost:
        reason = "It has too few steps"
        try:
            dataset = run.dataset if dataset is None else dataset
        except (ValueError, OSError) as error:
            reason = str(error).partition(". ")[0].rstrip(".")
        else:
            pooled = fit_pool(run, applied, dataset)
        if pooled is None:
            warnings.warn(
                "Forecasts are the model's alone, and not pooled with its references: the weights"
                " are found by the validation part of the run's data, for the trajectories that"
                f" are asked for. {reason}.",
                stacklevel=3,
            )
        elif pooled.lost:
            warnings.warn(
                "Forecasts are pooled with the naive references alone, and not with the linear"
                f" model: {pooled.lost}. Put it back, or learn it again where the run's data are at"
                f" hand, by `{run.command('evaluate')}`; here they are not. {reason}.",
                stacklevel=3,
            )
    return replace(applied, pool=pooled)


def fit_pool(run: Run, applied: "AppliedRun", dataset: Dataset) -> PooledReferences | None:
    """Find the weights of a pool, and keep them in the run's folder.

    None where the validation part is too short, or the data have no columns. All randomness is of
    one seed, so that a pool does not depend on who asked for it first.
    """
    sequences = continued(dataset, "valid", most_steps=MOST_STEPS)
    lengths = [len(each) - each.begin for each in sequences]
    longest = max(lengths, default=0) // 2
    if longest < 1 or sum(lengths) < FEWEST_FORECASTS:
        return None
    horizons = validated_horizons(longest)
    found = run.medium.column_references(dataset, run.folder / LINEAR, horizons)
    if found is None:
        return None
    every = math.ceil(sum(lengths) / MOST_FORECASTS)
    drawn = filter_predictions(
        applied.filter, applied.model, sequences, jax.random.key(0),
        horizons=horizons, every=every, num_samples=NUM_SAMPLES, widened=widened_elements(dataset),
    )  # fmt: skip
    references = {
        name: reference_gaussians(predictor, sequences, horizons, every)
        for name, predictor in found.predictors.items()
    }
    lately = said_lately(found.predictors, sequences, horizons, every)
    pool = ForecastPool.of(dataset, drawn, references, every, lately)
    pooled = PooledReferences(pool, tuple(found.predictors.values()))
    _keep(run.folder, applied, pooled)
    return pooled


def said_lately(
    predictors: Mapping[str, Predictor],
    sequences: Sequence[Continued],
    horizons: Sequence[int],
    every: int,
) -> Lately | None:
    """What references said of the rows just before those that `sequences` have to predict.

    None where these rows do not go on from others, or from fewer than are to be forecast.
    """
    before, num_own = [], [len(each) - each.begin for each in sequences]
    for sequence, num in zip(sequences, num_own, strict=True):
        begin = max(sequence.begin - math.ceil(LONGEST_AGO * num), 1)
        if sequence.begin - begin >= max(horizons):
            us = None if sequence.us is None else sequence.us[: sequence.begin]
            xs = sequence.xs[: sequence.begin]
            before.append(Continued(sequence.name, xs, us, None, begin))
    if not before:
        return None
    half_life = HALF_LIFE * sum(num_own) / len(sequences)
    xs, counts = {}, {}
    for horizon in horizons:
        # As in `reference_gaussians`: all steps one ahead, else origins that reach the longest.
        starts = [
            origins(each, 1, 1) if horizon == 1 else origins(each, max(horizons), every)
            for each in before
        ]
        steps = [each + horizon - 1 for each in starts]
        xs[horizon] = np.concatenate(
            [each.xs[at].astype(np.float64) for each, at in zip(before, steps, strict=True)]
        )
        ago = np.concatenate([len(b) - at for b, at in zip(before, steps, strict=True)])
        independent = 1.0 if horizon == 1 else min(1.0, every / horizon)
        counts[horizon] = independent * 0.5 ** (ago / half_life)
    said = {
        name: reference_gaussians(predictor, before, horizons, every)
        for name, predictor in predictors.items()
    }
    return Lately(xs, counts, said)


def validated_horizons(longest: int) -> tuple[int, ...]:
    """1, 2, 4, ... steps ahead, up to `longest` or 64."""
    longest = min(longest, LONGEST)
    return tuple(2**power for power in range(longest.bit_length()))


def known_pool(run: Run, applied: "AppliedRun") -> PooledReferences | None:
    """The pool of a filter that a run's folder has; None if it has none of this one.

    The linear model has a file of its own. If that is not the one that the weights were found with,
    the pool is without it, and says so.
    """
    for known in read_list(run.folder / FILE, ENTRY, VERSION):
        try:
            if known["filter"] == _identity(applied):
                return _from_json(run, known)
        except (ValueError, KeyError, TypeError) as error:
            raise list_damaged(run.folder / FILE, error) from None
    return None


def _identity(applied: "AppliedRun") -> dict[str, Any]:
    """What tells one filter of a run from another; its draws do not matter to a weight."""
    settings = applied.settings
    return {
        "num_particles": settings.num_particles, "spread": settings.spread, "step": applied.step,
    }  # fmt: skip


def _keep(folder: Path, applied: "AppliedRun", pooled: PooledReferences) -> None:
    """Keep a pool beside those of other filters of the same checkpoint.

    What is not naive was learned, and has a file of its own: here is only which one it was.
    """
    own = _identity(applied)
    others = [
        each
        for each in read_list(folder / FILE, ENTRY, VERSION)
        if each["filter"] != own and each["filter"]["step"] == applied.step
    ]
    references = [
        each.as_json() if isinstance(each, Naive) else {"sha256": getattr(each, "sha256", "")}
        for each in pooled.predictors
    ]
    record = {"filter": own, "pool": pooled.pool.as_json(), "references": references}
    write_list(folder / FILE, ENTRY, VERSION, [*others, record])


def _from_json(run: Run, known: dict[str, Any]) -> PooledReferences:
    pool, predictors, lost = ForecastPool.from_json(known["pool"]), [], ""
    for number, each in enumerate(known["references"]):
        if "sha256" not in each:
            predictors.append(Naive.from_json(each))
            continue
        found = _linear_reference(run, each["sha256"])
        if isinstance(found, str):
            pool, lost = pool.without(number), found
        else:
            predictors.append(found)
    return PooledReferences(pool, tuple(predictors), lost)


def _linear_reference(run: Run, sha256: str) -> Predictor | str:
    """The linear model in the folder of a run; or why that is not the one that it should be."""
    # Here, since it takes an optimizer, and without a pool there is no need of it.
    from varfilter.media.linear import LinearReference, load_linear

    path = run.folder / LINEAR
    if not path.exists():
        return f"{str(path)!r} is not there"
    try:
        found = LinearReference(load_linear(path, run.template), run.template)
    except (ValueError, OSError) as error:
        return f"{str(path)!r} cannot be read ({str(error).partition('. ')[0].rstrip('.')})"
    return found if found.sha256 == sha256 else f"{str(path)!r} is of another learning"
