"""What was filtered and what may come, as rows of named values in the user's own units.

What the rows of a medium hold, its own file says; here is what all of them have in common.
"""

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from varfilter import distributions
from varfilter._arguments import kind
from varfilter.data.dataset import Dataset
from varfilter.distributions import AbstractDistribution
from varfilter.filters.base import Filtered
from varfilter.media.cells import whole_quantiles
from varfilter.media.formats import Row
from varfilter.prediction import Predicted

# How far a count, in the user's units, may lie from a whole number by rounding.
NEARLY_WHOLE = 1e-4


@dataclass(frozen=True)
class ColumnSurprises:
    """How surprising each column was by itself, (steps, columns); NaN where it is missing.

    `nats` is -log p(x) by the past. `alone` is the same less 1/2 log of the variance of the
    prediction: a wide prediction, as after a gap, is not alarming by itself. `given` is such an
    excess by the past and the other columns of the step. `band` and `band_given`, (steps, columns,
    2), are from where to where nine in ten values should lie by these, in the user's units.
    """

    nats: np.ndarray
    alone: np.ndarray
    given: np.ndarray
    band: np.ndarray
    band_given: np.ndarray


@dataclass(frozen=True)
class Alarms:
    """How rare steps like these are among healthy ones, time first.

    - `p_values`: the probability that a healthy step is as surprising; NaN where nothing was seen.
    - `flags`: whether that is an alarm, at the rate that was asked for.
    - `causes`: which columns caused it, and what was expected of them; empty where there is none.
    - `columns`: (steps, columns), whether a column is one of these.
    """

    p_values: np.ndarray
    flags: np.ndarray
    causes: np.ndarray
    columns: np.ndarray


class GivenRows(NamedTuple):
    """The user's own rows of a sequence, where they are not simply its steps.

    `places` are the steps on which they lie, in order; `numbers` say where they stood; `rows` are
    their values, `times` their times as they were given, and `cells` the columns as they came.
    """

    places: np.ndarray
    numbers: np.ndarray
    rows: np.ndarray
    times: np.ndarray
    cells: Mapping[str, np.ndarray] = MappingProxyType({})

    def steps(self, begin: int, end: int) -> "GivenRows":
        """The rows on the steps from `begin` to before `end`, with `begin` as step 0."""
        first, last = np.searchsorted(self.places, [begin, end])
        return GivenRows(
            self.places[first:last] - begin,
            self.numbers[first:last],
            self.rows[first:last],
            self.times[first:last],
            {name: values[first:last] for name, values in self.cells.items()},
        )


@dataclass(frozen=True)
class Filtering:
    """What a filter said of the steps of one sequence, in the user's units, time first.

    - `rows`: as they were seen. `times`: of the steps.
    - `parts`: of the prediction made before a step was seen: `mean`, `std`, and `q05`, ... for
      each quantile. `surprise`: in nats. What was not predicted, a first step that was
      conditioned on, is NaN.
    - `z_mean`, `z_std`: (steps, latents) of the posterior of the latent; None if not asked for.
    - `columns`: what each column was by itself; None if not asked for.
    - `alarms`: how rare such steps are among healthy ones; None where nothing is known of these.
      `is_uncalibrated` says that they were asked for all the same: rows have them, empty.
    - `cells`: columns as the user's rows have them, by name, where these are known.
    """

    sequence: str | int
    rows: np.ndarray
    times: np.ndarray
    parts: dict[str, np.ndarray]
    surprise: np.ndarray
    z_mean: np.ndarray | None = None
    z_std: np.ndarray | None = None
    columns: ColumnSurprises | None = None
    alarms: Alarms | None = None
    is_uncalibrated: bool = False
    cells: Mapping[str, np.ndarray] = field(default_factory=dict)

    def at(self, steps: np.ndarray) -> "Filtering":
        """The filtering of some steps, in the order given; a step may be given several times."""

        def of(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {name: of(each) for name, each in value.items()}
            if is_dataclass(value) and not isinstance(value, type):
                each = {field.name: of(getattr(value, field.name)) for field in fields(value)}
                return replace(value, **each)
            return value[steps] if isinstance(value, np.ndarray) else value

        return of(self)

    def as_given(self, given: GivenRows, *, fill_gaps: bool) -> "Filtering":
        """The filtering of each row of the user's; with `fill_gaps`, also of steps without a row.

        Of two rows on a step, what is said of a column is said to the row whose value it is. A row
        that lost a value to another was not judged: it has neither surprise nor alarm.
        """
        gaps = np.zeros(0, np.int64)
        if fill_gaps:
            gaps = np.setdiff1d(np.arange(len(self.times)), given.places)
        steps = np.concatenate([given.places, gaps])
        order = np.argsort(steps, kind="stable")
        rows = np.concatenate([given.rows, self.rows[gaps]])[order]
        times = objects([*given.times, *self.times[gaps]])[order]
        cells = {name: _padded(values, len(gaps))[order] for name, values in given.cells.items()}
        found = self.at(steps[order])
        is_lost = ~np.isnan(rows) & (rows != found.rows)
        found = found._without(is_lost.any(axis=1), is_lost | np.isnan(rows))
        return replace(found, rows=rows, times=times, cells=cells)

    def _without(self, rows: np.ndarray, elements: np.ndarray) -> "Filtering":
        """The filtering without the surprise of some rows and of some elements (rows, elements)."""
        columns, alarms = self.columns, self.alarms
        if columns is not None:
            columns = replace(columns, nats=np.where(elements, np.nan, columns.nats))
        if alarms is not None:
            alarms = Alarms(
                np.where(rows, np.nan, alarms.p_values),
                alarms.flags & ~rows,
                np.where(rows, "", alarms.causes),
                alarms.columns & ~elements,
            )
        surprise = np.where(rows, np.nan, self.surprise)
        return replace(self, surprise=surprise, columns=columns, alarms=alarms)


def _padded(values: np.ndarray, count: int) -> np.ndarray:
    """The values, followed by `count` missing ones."""
    if not count:
        return values
    return np.concatenate([values.astype(object), np.full(count, None, object)])


def filtering_of(
    dataset: Dataset,
    rows: Any,
    filtered: Filtered,
    *,
    predicted: Predicted | None = None,
    sequence: str | int = 0,
    times: Any = None,
    latents: bool = False,
) -> Filtering:
    """What the filter said of one sequence, ready to be written as rows.

    The prediction is `predicted`, as `run_predictive` gives it. Without, it is
    `filtered.prediction`: exact for `KalmanFilter`; the other filters put the latent to its prior
    mean, so that `std` leaves out what is not known of the latent, and is too narrow.

    `rows` are those of the recording. `filtered` has time as first axis, as `run` gives it; where
    it is one step shorter, the first step was conditioned on (`x0`): its prediction and surprise
    are missing. `times` are of the steps; not given, they count from 0, in seconds where the data
    have a rate.
    """
    rows, num_steps = _recorded(dataset, rows)
    surprise = 0.0 - np.asarray(filtered.bound)  # 0 where nothing was observed, and not -0
    num_given = num_steps - len(surprise) if surprise.ndim == 1 else -1
    if num_given not in (0, 1):
        raise ValueError(
            f"`filtered` must have the {num_steps} steps of `rows`, or one less if the first was"
            f" conditioned on; its bound is {kind(surprise)}."
        )
    times = times_from(dataset, 0, num_steps) if times is None else np.asarray(times)
    if times.shape != (num_steps,):
        raise ValueError(
            f"`times` must have one for each of the {num_steps} steps; got {kind(times)}."
        )
    if predicted is None:
        means, variances = _moments(filtered.prediction)
    else:
        means, variances = np.asarray(predicted.mean), np.asarray(predicted.variance)
    require_shape("filtered", means, dataset)
    parts = {"mean": restored(dataset, means), "std": restored_std(dataset, variances)}
    if predicted is not None:
        quantiles = np.asarray(predicted.quantiles)
        parts |= {
            quantile_name(level): whole_quantiles(
                dataset, level, restored(dataset, quantiles[:, i])
            )
            for i, level in enumerate(predicted.levels)
        }
    parts = {name: _shifted(values, num_given) for name, values in parts.items()}
    moments = _latent_moments(filtered.posterior) if latents else ()
    z: Any = [_shifted(values, num_given) for values in moments]
    surprise = _shifted(surprise, num_given)
    found = Filtering(sequence, rows, times, parts, surprise, *z)
    if predicted is None or predicted.surprises is None:
        return found
    columns = _column_surprises(dataset, predicted, num_given)
    return replace(found, columns=_as_one(dataset, columns, surprise))


def joined(filterings: Sequence[Filtering]) -> Filtering:
    """What was said of a sequence, part after part, as one; without the latents."""
    first = filterings[0]

    def whole(values: Callable[[Filtering], Any]) -> np.ndarray:
        return np.concatenate([values(each) for each in filterings])

    def fields(name: str) -> list[np.ndarray]:
        return [
            whole(lambda each, field=field: getattr(getattr(each, name), field))
            for field in vars(getattr(first, name))
        ]

    return Filtering(
        first.sequence,
        whole(lambda each: each.rows),
        whole(lambda each: each.times),
        {name: whole(lambda each, name=name: each.parts[name]) for name in first.parts},
        whole(lambda each: each.surprise),
        columns=None if first.columns is None else ColumnSurprises(*fields("columns")),
        alarms=None if first.alarms is None else Alarms(*fields("alarms")),
    )


def require_shape(name: str, values: np.ndarray, dataset: Dataset) -> None:
    """Refuse predictions of observations that are not like those of the data."""
    if values.shape[1:] != dataset.observation_shape:
        raise ValueError(
            f"`{name}` is of observations of shape {values.shape[1:]}; those of {dataset.name!r}"
            f" have {dataset.observation_shape}. Give the data it was made for."
        )


def objects(values: Iterable[Any]) -> np.ndarray:
    """An array of the values as they are: NumPy would make others of dates and of tuples."""
    values = list(values)
    found = np.empty(len(values), object)
    for i, value in enumerate(values):
        found[i] = value
    return found


def latent_names(filtering: Filtering) -> list[str]:
    """`z0_mean`, `z0_std`, ...: none if the latents were not asked for."""
    size = 0 if filtering.z_mean is None else filtering.z_mean.shape[1]
    return [f"z{i}_{part}" for i in range(size) for part in ("mean", "std")]


def latent_row(filtering: Filtering, t: int) -> Row:
    """The mean and the spread of each latent at one step, by name."""
    if filtering.z_mean is None or filtering.z_std is None:
        return {}
    numbers = np.stack([filtering.z_mean[t], filtering.z_std[t]], axis=1).ravel()
    return dict(zip(latent_names(filtering), numbers, strict=True))


def free_names(taken: Iterable[str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Each wanted name as it is written: with underscores after it while another has it.

    The user's columns keep theirs: beside one called `surprise`, ours is `surprise_`.
    """
    used, names = set(taken), {}
    for own, free in wanted.items():
        while free in used:
            free += "_"
        used.add(free)
        names[own] = free
    return names


def quantile_name(level: float) -> str:
    """The name of a quantile: `q05` for 0.05, `q97.5` for 0.975."""
    whole, point, rest = f"{100 * level:.6g}".partition(".")
    return f"q{whole.zfill(2)}{point}{rest}"


def restored(dataset: Dataset, xs: Any) -> np.ndarray:
    """x * scale + offset: values in the user's units, of the precision of `xs`.

    What is a whole count but for rounding is one: 0, not -7e-8. After an absurd reading a value may
    be larger than its precision has numbers; it is infinite then, of which nothing need be said.
    """
    xs = np.asarray(xs)
    xs = xs if xs.dtype.kind == "f" else xs.astype(np.float32)
    values = dataset.scaling.restore(xs.astype(np.float64))
    with np.errstate(invalid="ignore", over="ignore"):
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


def step_length(dataset: Dataset) -> float | int:
    """The time from one observation to the next: in seconds or the table's unit; else 1."""
    step = getattr(dataset.schema, "step", None)
    if step is not None:
        return step
    return 1 if dataset.rate is None else dataset.rows_per_step / dataset.rate


def times_from(dataset: Dataset, first: Any, num_steps: int, *, begin: int = 0) -> np.ndarray:
    """first + (begin + i) * step, for i = 0, ..., num_steps - 1; `first` is a date or a number."""
    steps = np.arange(begin, begin + num_steps)
    length = step_length(dataset)
    first = np.datetime64(first) if isinstance(first, dt.datetime) else first
    if isinstance(first, np.datetime64):
        if getattr(dataset.schema, "step", None) is None:
            raise ValueError(
                f"The time {str(first)!r} is a date, but {dataset.name!r} has no step in time."
                " Give the table whose column of dates it comes from, or a number."
            )
        stamp = first.astype("datetime64[us]").astype(np.int64).item()
        return dataset.schema.spacing.stamps(stamp, steps).astype("datetime64[us]")
    if isinstance(first, bool) or not isinstance(first, int | float | np.number):
        raise TypeError(f"The time must be a number or a `datetime64`; got {kind(first)}.")
    times = first + steps * length
    if times.dtype.kind != "f":
        return times
    # Through decimal text: 0.3 and not 0.30000000000000004.
    return np.array([float(f"{time:.15g}") for time in times], np.float64)


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
    """The values with `by` missing steps in front."""
    missing = np.full((by, *values.shape[1:]), np.nan, values.dtype)
    return np.concatenate([missing, values])


def _column_surprises(dataset: Dataset, predicted: Any, num_given: int) -> ColumnSurprises:
    found = predicted.surprises
    # No prediction is narrower than the distance of two levels of what has levels.
    levels = np.array(
        [1.0 if family.is_binary else family.width or 0.0 for _, family in dataset.column_families]
    )

    def excess(nats: Any, variances: Any) -> np.ndarray:
        return np.asarray(nats) - 0.5 * np.log(np.asarray(variances, np.float64) + levels**2)

    values = (
        np.asarray(found.alone),
        excess(found.alone, predicted.variance),
        excess(found.given, found.variance),
        _bands(dataset, found.band),
        _bands(dataset, found.band_given),
    )
    return ColumnSurprises(*(_shifted(each, num_given) for each in values))


def _as_one(dataset: Dataset, columns: ColumnSurprises, surprise: np.ndarray) -> ColumnSurprises:
    """Where only one column was observed, give it the surprise of the step.

    Both are estimates of the same probability; two numbers for it would only differ by the draws.
    """
    groups = [family.group or name for name, family in dataset.column_families]
    seen = ~np.isnan(columns.nats)
    firsts = [groups.index(group) for group in dict.fromkeys(groups)]
    is_alone = seen[:, firsts].sum(axis=1) == 1
    nats = np.where(is_alone[:, None] & seen, surprise[:, None], columns.nats)
    return replace(columns, nats=nats)


def _bands(dataset: Dataset, quantiles: Any) -> np.ndarray:
    """From where to where nine in ten values lie, in the user's units; ends last.

    They are quantiles of draws, (steps, ends, columns), and lie where values of the family can.
    """
    found = np.array(quantiles, np.float64)
    for i, (_, family) in enumerate(dataset.column_families):
        if family.low is not None or family.high is not None:
            found[..., i] = np.clip(found[..., i], family.low, family.high)
    return np.moveaxis(restored(dataset, found), 1, -1).astype(np.float32)


@eqx.filter_jit
def _means_and_variances(distribution: AbstractDistribution) -> Any:
    # One step at a time: a mixture's mean is a sum over its first axis, which is not time.
    return jax.vmap(lambda d: (d.mean, d.variance))(distribution)


def _moments(distribution: AbstractDistribution) -> tuple[np.ndarray, np.ndarray]:
    means, variances = _means_and_variances(distribution)
    return np.asarray(means), np.asarray(variances)


def _latent_moments(posterior: Any) -> tuple[np.ndarray, np.ndarray]:
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
