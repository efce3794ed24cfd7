"""What a filter said of each step, as rows: the value seen, the prediction of it, the surprise."""

import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np

from varfilter import distributions
from varfilter._arguments import kind
from varfilter.data.dataset import Dataset
from varfilter.data.rolls import HIGHEST, LOWEST
from varfilter.data.tables.read import Table
from varfilter.distributions import AbstractDistribution
from varfilter.filters.base import Filtered
from varfilter.media.axes import (
    own_names,
    quantile_name,
    restored,
    restored_std,
    times_from,
)
from varfilter.media.medium import dataset_of, medium
from varfilter.media.rows import Row, Vector
from varfilter.prediction import Predicted

NOTES = tuple(f"note{note}" for note in range(LOWEST, HIGHEST + 1))


def step_rows(
    data: Dataset | Table,
    rows: Any,
    filtered: Filtered,
    *,
    predicted: Predicted | None = None,
    sequence: str | int = 0,
    times: Any = None,
    latents: bool = False,
) -> Iterator[Row]:
    """A row for each step of one sequence: `sequence`, `time`, and in the user's units

    - of a table, for each column: `COLUMN` as it was seen, `COLUMN_mean` and `COLUMN_std` of the
      prediction made before it was seen; then `surprise`, in nats;
    - of music: `surprise`, `notes` (how many sounded), `expected_notes` (the sum of the
      probabilities) and `prediction`, the probability of each of the 88 notes from 21 to 108;
    - of all else: `surprise`, `prediction` and `prediction_std`, of the shape of an observation;
    - with levels in `predicted`, of all but music: `COLUMN_q05` or `prediction_q05`, ...;
    - with `latents`: `z0_mean`, `z0_std`, ... of the posterior of the latent.

    The prediction is `predicted`, as `run_predictive` gives it. Without, it is
    `filtered.prediction`: exact for `KalmanFilter`; the other filters put the latent to its prior
    mean, so that `_std` leaves out what is not known of the latent, and is too narrow.

    A name that a column of the user's has already gets an underscore. `rows` are those of the
    recording, as `dataset.split(...)` or `Table.read_like(...).rows` hold them. `filtered` has
    time as first axis, as `run` gives it; where it is one step shorter, the first step was
    conditioned on (`x0`): its prediction and surprise are missing. `times` are of the steps; not
    given, they count from 0, in seconds where the data have a rate.
    """
    dataset = dataset_of(data)
    rows, num_steps = _recorded(dataset, rows)
    surprise = -np.asarray(filtered.bound)
    num_given = num_steps - len(surprise) if surprise.ndim == 1 else -1
    if num_given not in (0, 1):
        raise ValueError(
            f"`filtered` must have the {num_steps} steps of `rows`, or one less if the first was"
            f" conditioned on; its bound is {kind(surprise)}."
        )
    times = times_from(data, 0, num_steps) if times is None else np.asarray(times)
    if times.shape != (num_steps,):
        raise ValueError(
            f"`times` must have one for each of the {num_steps} steps; got {kind(times)}."
        )
    if predicted is None:
        means, variances = _moments(filtered.prediction)
    else:
        means, variances = np.asarray(predicted.mean), np.asarray(predicted.variance)
    if means.shape[1:] != dataset.observation_shape:
        raise ValueError(
            f"`filtered` predicts observations of shape {means.shape[1:]}; those of"
            f" {dataset.name!r} have {dataset.observation_shape}. Give the data it was filtered on."
        )
    columns = {
        "mean": restored(dataset, means),
        "std": restored_std(dataset, variances),
        **_quantiles(dataset, predicted),
        "surprise": surprise,
    }
    if latents:
        columns["z_mean"], columns["z_std"] = _latents(filtered.posterior)
    columns = {name: _shifted(values, num_given) for name, values in columns.items()}
    write = {"table": _table_rows, "music": _music_rows}.get(medium(data), _vector_rows)
    return write(data, rows, times, columns, sequence)


def step_row(
    data: Dataset | Table,
    row: Any,
    filtered: Filtered,
    *,
    predicted: Predicted | None = None,
    sequence: str | int = 0,
    time: Any = 0,
    latents: bool = False,
) -> Row:
    """As `step_rows`, of one step, as `Stream.push` gives it: without an axis of time.

    `row` is what was pushed, in the user's units.
    """
    filtered, predicted = jax.tree.map(lambda leaf: np.asarray(leaf)[None], (filtered, predicted))
    row = np.asarray(row)
    rows = row[None] if dataset_of(data).rows_per_step == 1 else row
    return next(
        step_rows(
            data, rows, filtered,
            predicted=predicted, sequence=sequence, times=[time], latents=latents,
        )
    )  # fmt: skip


def _table_rows(
    data: Dataset | Table, rows: np.ndarray, times: np.ndarray, values: dict, sequence: str | int
) -> Iterator[Row]:
    dataset = dataset_of(data)
    wanted = ["sequence", "time", "surprise"]
    parts = [part for part in values if part not in ("surprise", "z_mean", "z_std")]
    wanted += [f"{name}_{part}" for name in dataset.columns for part in parts]
    names = own_names(data, [*wanted, *_latent_names(values)])
    for t, time in enumerate(times):
        row: Row = {names["sequence"]: sequence, names["time"]: time}
        for i, name in enumerate(dataset.columns):
            row[name] = rows[t, i]
            for part in parts:
                row[names[f"{name}_{part}"]] = values[part][t, i]
        row[names["surprise"]] = values["surprise"][t]
        yield row | {names[name]: value for name, value in _latent_row(values, t).items()}


def _music_rows(
    data: Dataset | Table, rows: np.ndarray, times: np.ndarray, values: dict, sequence: str | int
) -> Iterator[Row]:
    for t, time in enumerate(times):
        yield {
            "sequence": sequence,
            "time": time,
            "surprise": values["surprise"][t],
            "notes": np.sum(rows[t]),
            "expected_notes": np.sum(values["mean"][t]),
            "prediction": Vector(values["mean"][t], NOTES),
            **_latent_row(values, t),
        }


def _vector_rows(
    data: Dataset | Table, rows: np.ndarray, times: np.ndarray, values: dict, sequence: str | int
) -> Iterator[Row]:
    for t, time in enumerate(times):
        yield {
            "sequence": sequence,
            "time": time,
            "surprise": values["surprise"][t],
            "prediction": Vector(values["mean"][t]),
            **{
                f"prediction_{part}": Vector(array[t])
                for part, array in values.items()
                if part not in ("mean", "surprise", "z_mean", "z_std")
            },
            **_latent_row(values, t),
        }


def _latent_row(values: dict, t: int) -> Row:
    if "z_mean" not in values:
        return {}
    numbers = np.stack([values["z_mean"][t], values["z_std"][t]], axis=1).ravel()
    return dict(zip(_latent_names(values), numbers, strict=True))


def _latent_names(values: dict) -> list[str]:
    size = values["z_mean"].shape[1] if "z_mean" in values else 0
    return [f"z{i}_{part}" for i in range(size) for part in ("mean", "std")]


def _recorded(dataset: Dataset, rows: Any) -> tuple[np.ndarray, int]:
    """The rows, if they are like those of the data set, and how many steps they make."""
    rows = np.asarray(rows)
    row = dataset.train.values.shape[1:]
    if rows.ndim < 1 or rows.shape[1:] != row:
        raise ValueError(
            f"`rows` must have the shape (time, {', '.join(map(str, row))}) of"
            f" {dataset.name!r}; got {kind(rows)}."
        )
    return rows, len(rows) // dataset.rows_per_step


def _shifted(values: np.ndarray, by: int) -> np.ndarray:
    """With `by` missing steps in front."""
    missing = np.full((by, *values.shape[1:]), np.nan, values.dtype)
    return np.concatenate([missing, values])


def _quantiles(dataset: Dataset, predicted: Predicted | None) -> dict[str, np.ndarray]:
    """By level; the levels are the axis after time."""
    if predicted is None:
        return {}
    quantiles = np.asarray(predicted.quantiles)
    return {
        quantile_name(level): restored(dataset, quantiles[:, i])
        for i, level in enumerate(predicted.levels)
    }


@eqx.filter_jit
def _means_and_variances(distribution: AbstractDistribution) -> Any:
    # One step at a time: a mixture's mean is a sum over its first axis, which is not time.
    return jax.vmap(lambda d: (d.mean, d.variance))(distribution)


def _moments(distribution: AbstractDistribution) -> tuple[np.ndarray, np.ndarray]:
    means, variances = _means_and_variances(distribution)
    return np.asarray(means), np.asarray(variances)


def _latents(posterior: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations (time, latents) of all levels of a hierarchy, one by one."""
    leaves = jax.tree.leaves(posterior, is_leaf=distributions.is_distribution)
    moments = [_means_and_variances(leaf) for leaf in leaves]
    means, variances = (
        np.concatenate(
            [
                np.asarray(a).reshape(len(a), math.prod(a.shape[1:]))
                for a in jax.tree.leaves([m[part] for m in moments])
            ],
            axis=1,
        )
        for part in (0, 1)
    )
    return means, np.sqrt(variances)
