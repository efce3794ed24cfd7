"""A trained run beside what takes no training, column by column, on the same held-out steps."""

import math
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from varfilter._arguments import require_positive
from varfilter._text import count
from varfilter.data.continued import Continued, continued
from varfilter.data.dataset import Dataset
from varfilter.media.gaussians import Gaussians, reference_gaussians
from varfilter.runs.applied import apply_run
from varfilter.runs.forecasting import LINEAR, PooledReferences, fit_pool, known_pool, with_pool
from varfilter.runs.metrics import MODEL, POOLED
from varfilter.runs.pooling import PoolWeights, pooled_predictions, widened_elements
from varfilter.runs.run import Run
from varfilter.training.predictive_draws import Drawn, filter_predictions
from varfilter.training.predictive_scores import column_scores

# Steps to be predicted, and forecasts further ahead, that tell scores well enough.
MOST_STEPS, MOST_FORECASTS = 2000, 200
NUM_SAMPLES = 256
USUAL_HORIZON = 10
# Nats by which a column must be worse than with the best reference to be named, or the part by
# which its error must be larger: of 2,000 values, less may be chance.
MARGIN = 0.1


def compare_run(
    run: Run,
    *,
    dataset: Dataset | None = None,
    split: str = "test",
    horizon: int | None = None,
    num_particles: int | None = None,
    num_iterations: int | None = None,
    seed: int = 0,
) -> dict[str, Any] | None:
    """The scores of the run and of the references of its medium, as plain JSON.

    Of each column, one step ahead and `horizon` steps ahead: `rmse` and `crps` in its own units,
    `nats`, minus the log of the density or probability of a value in standardised units (`units`;
    the spread of each numeric column in training is in `scales`: the log of it more is the score in
    its own units, but for values that are held at a bound or are 0), and the shares of values
    `within_50` and `within_90`, bands that should hold so many in a hundred. `nats` of a predictor
    are summed over the columns. All have predicted the same values, told of all rows before them;
    the run with the filter that `filter_data` has, by 256 draws. `model` is its own prediction, as
    `filter_data` gives it, and `pooled` what `forecast_data` makes of it and the references; the
    weights of the pool are found by the validation part, where it is therefore not scored. None
    where there are no columns.

    Without a `horizon` it is ten, or half of the longest sequence if that is less. `dataset` is
    that of the run, if it is at hand. `num_iterations` are those of AVF in place of those of
    training, by which the weights are found all the same.
    """
    if horizon is not None:
        require_positive("horizon", horizon)
    dataset = run.dataset if dataset is None else dataset
    sequences, horizon, every = compared_part(dataset, split, horizon)
    horizons = tuple(dict.fromkeys((1, horizon)))
    references = run.medium.column_references(dataset, run.folder / LINEAR, horizons)
    if references is None:
        return None
    trained = apply_run(run, seed=seed, num_particles=num_particles)
    applied = trained
    if num_iterations is not None:
        applied = apply_run(
            run, seed=seed, num_particles=num_particles, num_iterations=num_iterations
        )
    # Where there is no pool, nobody asks for predictions of other widths.
    drawn = filter_predictions(
        applied.filter, applied.model, sequences, jax.random.key(seed),
        horizons=horizons, every=every, num_samples=NUM_SAMPLES,
        widened=() if split == "valid" else widened_elements(dataset),
    )  # fmt: skip
    said = {
        name: reference_gaussians(predictor, sequences, horizons, every)
        for name, predictor in references.predictors.items()
    }
    pool = None
    if split != "valid":
        pooled = with_pool(run, trained, dataset).pool
        pool = None if pooled is None else pooled.pool
    found = {
        str(ahead): _scores_at(dataset, own, {name: each[ahead] for name, each in said.items()},
                               None if pool is None else pool.at(dataset, ahead))
        for ahead, own in drawn.items()
    }  # fmt: skip
    by_predictor = {
        name: {ahead: scores[name] for ahead, scores in found.items()}
        for name in next(iter(found.values()))
    }
    return {
        "split": split,
        "num_sequences": len(sequences),
        "num_steps": sum(len(each) - each.begin for each in sequences),
        "horizons": list(drawn),
        "forecast_every": every,
        "num_samples": NUM_SAMPLES,
        "units": run.medium.score_units,
        "scales": _scales(dataset),
        "notes": list(references.notes),
        "columns": by_predictor,
        "nats": {
            name: {ahead: _total(scores) for ahead, scores in by_horizon.items()}
            for name, by_horizon in by_predictor.items()
        },
    }


class ScoreRow(NamedTuple):
    """What a predictor scored on one column, or by the sum over all columns (`column` is None).

    `number` counts the predictors from 0, and `is_best` says whether none has fewer nats. A sum
    has `nats` alone.
    """

    column: str | None
    number: int
    predictor: str
    scores: Mapping[str, Any]
    is_best: bool


def score_rows(
    compared: Mapping[str, Any], horizon: int, most_columns: int | None = None
) -> list[ScoreRow]:
    """The rows of a table of what `compare_run` found so many steps ahead, with the sums last."""
    by_predictor = {name: each[str(horizon)] for name, each in compared["columns"].items()}
    sums = {name: {"nats": each[str(horizon)]} for name, each in compared["nats"].items()}
    groups: list[tuple[str | None, dict[str, Any]]] = [
        (column, {name: each[column] for name, each in by_predictor.items()})
        for column in list(next(iter(by_predictor.values())))[:most_columns]
    ]
    rows = []
    for column, scores in [*groups, (None, sums)]:
        best = min(each["nats"] for each in scores.values())
        rows += [
            ScoreRow(column, number, predictor, each, each["nats"] == best)
            for number, (predictor, each) in enumerate(scores.items())
        ]
    return rows


def _scores_at(
    dataset: Dataset, own: Drawn, references: dict[str, Gaussians], weights: PoolWeights | None
) -> dict[str, Any]:
    """The scores of each predictor so many steps ahead; `weights` are those of the pool."""
    found = {MODEL: own.scored()}
    if weights is not None:
        found[POOLED] = pooled_predictions(dataset, weights, own, list(references.values()))
    found |= {name: each.scored(dataset, own.xs) for name, each in references.items()}
    return {name: column_scores(dataset, each) for name, each in found.items()}


def pool_run(run: Run, dataset: Dataset) -> PooledReferences | None:
    """What forecasts of a run are pooled with, found by its validation part unless it was before.

    It is kept in the run's folder. None for data without references by column, and where the
    validation part is too short.
    """
    if not run.medium.has_column_references:
        return None
    applied = apply_run(run)
    known = known_pool(run, applied)
    return fit_pool(run, applied, dataset) if known is None or known.lost else known


def remember_comparison(run: Run, dataset: Dataset, horizon: int = 1) -> dict[str, Any] | None:
    """Compare on the validation part, and put on record who predicts best there.

    By the same part the weights are found of the pool that forecasts are.
    """
    found = compare_run(run, dataset=dataset, split="valid", horizon=horizon)
    if found is not None:
        if run.medium.has_column_references and pool_run(run, dataset) is None:
            found["notes"].append(
                "Forecasts will be the model's alone: the validation part is too short to find the"
                " weights of a pool."
            )
        first = {name: each["1"] for name, each in found["nats"].items()}
        run.remember(comparison=first, losses=losses(found))
    return found


def losses(compared: Mapping[str, Any]) -> dict[str, Any]:
    """Where the model is worse than its references, beside the sum of all columns a step ahead.

    - `ahead`: the nats of each predictor further ahead, by the number of steps.
    - `columns`: those of which the RMSE is a tenth more than that of the best reference, or the log
      score worse by 0.1 nats; the worst first, each with the two scores, and how many steps ahead.
    """
    ahead = {
        str(steps): {name: each[str(steps)] for name, each in compared["nats"].items()}
        for steps in compared["horizons"]
        if steps != 1
    }
    found: dict[str, tuple[float, dict[str, Any]]] = {}
    for steps in sorted(compared["horizons"]):
        scores = {name: each[str(steps)] for name, each in compared["columns"].items()}
        for column, own in scores[MODEL].items():
            others = {n: e[column] for n, e in scores.items() if n not in (MODEL, POOLED)}
            if others and column not in found and (lost := _loss(own, others)) is not None:
                found[column] = lost[0], lost[1] | {"steps": steps}
    worst = sorted(found.items(), key=lambda each: -each[1][0])
    return {"ahead": ahead, "columns": {column: lost for column, (_, lost) in worst}}


def _loss(
    own: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]
) -> tuple[float, dict[str, Any]] | None:
    """How many times the margin a column is worse than the best reference, and by which score."""
    found = []
    for score, word in (("rmse", "RMSE"), ("nats", "nats")):
        best = min(others, key=lambda name: others[name][score])
        mine, than = own[score], others[best][score]
        # The logarithm of a ratio: ten percent are as 0.1 nats. What has no bands has levels.
        if score == "rmse":
            worse = math.log(mine / than) if mine > 0 < than else 0.0
            worse = 0.0 if own["within_90"] is None else worse
        else:
            worse = mine - than
        if worse > MARGIN:
            known = {"score": word, "model": mine, "reference": best, "than": than}
            found.append((worse / MARGIN, known))
    return found[0] if found else None


def remember_comparisons(
    runs: Sequence[Run], dataset: Dataset, horizon: int = 1
) -> dict[str, Any] | None:
    """Compare runs that differ by their seeds; what references learn is learned once.

    The scores of the model are means over the runs.
    """
    found: list[dict[str, Any]] = []
    for run in runs:
        learned = runs[0].folder / LINEAR
        if found and learned.is_file():
            shutil.copyfile(learned, run.folder / LINEAR)
        each = remember_comparison(run, dataset, horizon)
        if each is None:
            return None
        found.append(each)
    first = found[0]
    own = {part: _mean([each[part][MODEL] for each in found]) for part in ("columns", "nats")}
    notes = first["notes"]
    if len(runs) > 1:
        notes = [f"Scores of the {MODEL} are means over {len(runs)} seeds.", *notes]
    return first | {part: first[part] | {MODEL: own[part]} for part in own} | {"notes": notes}


def _mean(scores: Sequence[Any]) -> Any:
    """The means of dictionaries of numbers with the same names; of what is None, None."""
    if isinstance(scores[0], dict):
        return {name: _mean([each[name] for each in scores]) for name in scores[0]}
    return None if scores[0] is None else sum(scores) / len(scores)


def compared_part(
    dataset: Dataset, split: str, horizon: int | None
) -> tuple[list[Continued], int, int]:
    """What all predictors are to predict: (sequences, steps ahead, from every so many-th step)."""
    sequences = continued(dataset, split, most_steps=MOST_STEPS)
    horizon = _reached(sequences, horizon, split)
    num_steps = sum(len(each) - each.begin for each in sequences)
    return sequences, horizon, 1 if horizon == 1 else math.ceil(num_steps / MOST_FORECASTS)


def _scales(dataset: Dataset) -> dict[str, float]:
    """What the values of each column with a density were divided by."""
    scale = np.broadcast_to(np.asarray(dataset.scaling.scale, np.float64), dataset.num_elements)
    return {
        name: float(scale[i])
        for i, (name, family) in enumerate(dataset.column_families)
        if not family.has_levels
    }


def _total(scores: dict[str, dict[str, Any]]) -> float:
    """Nats of a step: the sum over columns."""
    return float(sum(each["nats"] for each in scores.values()))


def _reached(sequences: Sequence[Continued], horizon: int | None, split: str) -> int:
    """The horizon that was asked for, or the usual one; refused if no sequence is as long."""
    longest = max((len(each) - each.begin for each in sequences), default=0)
    if not longest:
        raise ValueError(f"`split` is {split!r}, which has no step to predict.")
    if horizon is None:
        return min(USUAL_HORIZON, max(longest // 2, 1))
    if horizon > longest:
        raise ValueError(
            f"`horizon` is {horizon}, but the longest sequence of {split} has"
            f" {count(longest, 'step')} to predict. Give at most {longest}."
        )
    return horizon
