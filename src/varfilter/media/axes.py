"""The names, the units and the times of what is written: the user's own."""

import datetime as dt
from collections.abc import Iterable
from typing import Any

import numpy as np

from varfilter._arguments import kind
from varfilter.data.dataset import Dataset
from varfilter.data.tables.files import SEQUENCE_AXIS
from varfilter.data.tables.read import Table
from varfilter.media.medium import dataset_of

# Of a count, in the user's units.
NEARLY_WHOLE = 1e-4


def own_names(data: Dataset | Table, wanted: Iterable[str]) -> dict[str, str]:
    """Each wanted name as it is written: with underscores after it while another has it.

    The user's columns keep theirs: beside one called `surprise`, ours is `surprise_`; and where
    a table has columns of its own for `sequence` and `time`, those are their names.
    """
    taken, names = set(dataset_of(data).columns), {}
    users: dict[str, str | None] = {}
    if isinstance(data, Table):
        users = {"sequence": data.layout.sequence, "time": data.layout.clock.column}
    for name in wanted:
        user = users.get(name)
        free = name if user is None or user == SEQUENCE_AXIS else user
        while free in taken:
            free += "_"
        taken.add(free)
        names[name] = free
    return names


def quantile_name(level: float) -> str:
    """`q05` for 0.05, `q97.5` for 0.975."""
    whole, point, rest = f"{100 * level:.6g}".partition(".")
    return f"q{whole.zfill(2)}{point}{rest}"


def restored(dataset: Dataset, xs: Any) -> np.ndarray:
    """x * scale + offset: values in the user's units, of the precision of `xs`.

    What is a whole count but for rounding is one: 0, not -7e-8.
    """
    xs = np.asarray(xs)
    values = dataset.scaling.restore(xs.astype(np.float64))
    if isinstance(dataset.family, tuple):
        is_count = np.array([family.width is not None for family in dataset.family])
        whole = np.rint(values) + 0.0  # -0 is 0
        is_close = np.abs(values - whole) < NEARLY_WHOLE
        values = np.where(is_close & is_count, whole, values)
    return values.astype(xs.dtype)


def restored_std(dataset: Dataset, variances: Any) -> np.ndarray:
    """sqrt(variance) * scale: standard deviations in the user's units."""
    variances = np.asarray(variances)
    scale = np.asarray(dataset.scaling.scale, np.float64)
    std = np.sqrt(variances.astype(np.float64)) * scale.reshape(
        (1,) * (variances.ndim - scale.ndim) + scale.shape
    )
    return std.astype(variances.dtype)


def step_length(data: Dataset | Table) -> float | int:
    """From one observation to the next: in seconds or the table's unit of time; else 1."""
    dataset = dataset_of(data)
    if isinstance(data, Table) and data.step is not None:
        return data.step
    return 1 if dataset.rate is None else dataset.rows_per_step / dataset.rate


def times_from(data: Dataset | Table, first: Any, num_steps: int, *, begin: int = 0) -> np.ndarray:
    """first + (begin + i) * step, for i = 0, ..., num_steps - 1; `first` is a date or a number."""
    steps = np.arange(begin, begin + num_steps)
    length = step_length(data)
    first = np.datetime64(first) if isinstance(first, dt.datetime) else first
    if isinstance(first, np.datetime64):
        if not isinstance(data, Table) or data.step is None:
            raise ValueError(
                f"The time {str(first)!r} is a date, but {dataset_of(data).name!r} has no step in"
                " time. Give the `Table` whose column of dates it comes from, or a number."
            )
        return first.astype("datetime64[us]") + steps * np.timedelta64(round(length * 1e6), "us")
    if isinstance(first, bool) or not isinstance(first, int | float | np.number):
        raise TypeError(f"The time must be a number or a `datetime64`; got {kind(first)}.")
    times = first + steps * length
    if times.dtype.kind != "f":
        return times
    # Through decimal text: 0.3 and not 0.30000000000000004.
    return np.array([float(f"{time:.15g}") for time in times], np.float64)
