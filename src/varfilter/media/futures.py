"""What may come, as rows: mean and quantiles of each step ahead."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from varfilter.data.dataset import Dataset
from varfilter.data.tables.read import Table
from varfilter.media.axes import own_names, quantile_name, restored, times_from
from varfilter.media.medium import dataset_of, medium
from varfilter.media.rows import Row, Vector
from varfilter.media.steps import NOTES
from varfilter.prediction import Forecast


def forecast_rows(
    data: Dataset | Table, forecast: Forecast, *, sequence: str | int = 0, last: Any = 0
) -> Iterator[Row]:
    """A row for each step ahead: `sequence`, `time`, `step` (1, 2, ...), and in the user's units

    - of a table, for each column: `COLUMN_mean`, and `COLUMN_q05`, ... for each level;
    - of music: `expected_notes` and `prediction`, the probability of each of the 88 notes;
    - of all else: `prediction`, and `prediction_q05`, ... for each level.

    The mean of a binary column is the probability of a one. `last` is the time of the last step
    seen, a number or a `datetime64`: the times go on from there, a step of the data apart.
    """
    dataset = dataset_of(data)
    mean = np.asarray(forecast.mean)
    if mean.shape[1:] != dataset.observation_shape:
        raise ValueError(
            f"`forecast` is of observations of shape {mean.shape[1:]}; those of {dataset.name!r}"
            f" have {dataset.observation_shape}. Give the data it was made for."
        )
    times = times_from(data, last, len(mean), begin=1)
    parts = {"mean": restored(dataset, mean)}
    for level, values in zip(forecast.levels, np.asarray(forecast.quantiles), strict=True):
        parts[quantile_name(level)] = restored(dataset, values)
    write = {"table": _table_row, "music": _music_row}.get(medium(data), _vector_row)
    wanted = [f"{name}_{part}" for name in dataset.columns for part in parts]
    # No column is written by its own name here, but `step` beside a column of that name misleads.
    names = own_names(data, ["sequence", "time", "step", *wanted])
    return (
        {names["sequence"]: sequence, names["time"]: time, names["step"]: i + 1}
        | write(dataset, names, {part: values[i] for part, values in parts.items()})
        for i, time in enumerate(times)
    )


def _table_row(dataset: Dataset, names: dict[str, str], parts: dict[str, np.ndarray]) -> Row:
    return {
        names[f"{name}_{part}"]: values[i]
        for i, name in enumerate(dataset.columns)
        for part, values in parts.items()
    }


def _music_row(dataset: Dataset, names: dict[str, str], parts: dict[str, np.ndarray]) -> Row:
    return {
        "expected_notes": np.sum(parts["mean"]),
        "prediction": Vector(parts["mean"], NOTES),
    }


def _vector_row(dataset: Dataset, names: dict[str, str], parts: dict[str, np.ndarray]) -> Row:
    return {
        "prediction" if part == "mean" else f"prediction_{part}": Vector(values)
        for part, values in parts.items()
    }
