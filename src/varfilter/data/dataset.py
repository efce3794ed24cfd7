"""What every data set is: ragged sequences by split, what one observation is, and its scale."""

import dataclasses
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

from varfilter._arguments import kind, require_positive
from varfilter.data.ragged import Ragged
from varfilter.distributions import AbstractDistribution, Bernoulli, Categorical, ZeroInflated

SPLITS = ("train", "valid", "test")
# How many numbers are in memory, in double precision, while a large set is gone through.
BLOCK = 1 << 20


@dataclass(frozen=True)
class Transform:
    """How an element x is transformed for a model: by its logarithm, by its change, or by both.

    y = (log x - log_centre) / log_scale, or x itself where `log_scale` is None; and of that
    (y_t - y_{t-1} - drift) / change_scale, or y itself where `change_scale` is None. With a
    `season` s, y_{t-1} + y_{t-s} - y_{t-s-1} is in the place of y_{t-1}, and `season_spread` is
    the spread of y_t - y_{t-1}, which is all that is known in a first season. The numbers are in
    scaled units and fitted to the training part alone, so that what a model sees has a spread of
    about 1.
    """

    log_scale: float | int | None = None
    log_centre: float | int = 0.0
    change_scale: float | int | None = None
    drift: float | int = 0.0
    # Not in the text of which hashes of data are made: those of other transforms stay as they were.
    season: int | None = field(default=None, repr=False)
    season_spread: float | int | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Family:
    """The kind of distribution that fits an observation, and how the data are quantised.

    `width` is the distance of two neighbouring levels, `low` and `high` are the lowest and
    the highest level, all in scaled units: what `DiscretizedNormal` takes. None: not so.
    `transform` is how a model is told of it; None: as it is. `freedom` are the degrees of freedom
    of its tails where learning starts. `group` is the column that the element is a level of: a
    column of several levels has an element for each, which is 0 or 1.
    """

    distribution: type[AbstractDistribution]
    width: float | int | None = None
    low: float | int | None = None
    high: float | int | None = None
    transform: Transform | None = None
    freedom: float | int | None = None
    group: str | None = None

    @property
    def model_family(self) -> "Family":
        """The family of the transformed element; a change has no lowest or highest level."""
        if self.transform is None:
            return self
        scale = self.transform.change_scale or 1.0
        width = None if self.width is None else self.width / scale
        return dataclasses.replace(self, width=width, low=None, high=None, transform=None)

    @property
    def is_binary(self) -> bool:
        """Whether the values are 0 and 1."""
        return issubclass(self.distribution, Bernoulli | Categorical)

    @property
    def has_levels(self) -> bool:
        """Whether the values are on a grid of levels, and have probabilities, not densities."""
        return self.is_binary or self.width is not None

    @property
    def has_atoms(self) -> bool:
        """Whether single numbers have probabilities: levels, bounds, and the 0 of many zeros."""
        is_held = self.low is not None or self.high is not None
        return self.has_levels or is_held or self.distribution is ZeroInflated


@dataclass(frozen=True)
class Scaling:
    """x = (value - offset) / scale, and back; a number, or one for each element of a row."""

    offset: float | int | np.ndarray = 0.0
    scale: float | int | np.ndarray = 1.0

    @staticmethod
    def standardizing(values: np.ndarray, *, axis: int | None = None) -> "Scaling":
        """The scaling that brings `values` to zero mean and unit spread, NaN left out.

        One number serves for all of them, or with `axis=0` one for each column. A constant is
        only centred: there is no spread to divide by.
        """
        if axis not in (None, 0):
            raise ValueError(f"`axis` must be None (one for all) or 0 (by column); got {axis}.")
        shape = () if axis is None else values.shape[1:]
        count, mean, square = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape)
        # Block by block, each merged into the mean and the squared deviations of those before:
        # one pass, without a copy of the whole.
        for block in _blocks(values):
            block = np.asarray(block, np.float64)
            if np.isinf(block).any():
                raise ValueError("`values` must be finite; got an infinity. NaN marks a gap.")
            seen = ~np.isnan(block)
            here = np.sum(seen, axis=axis)
            total = np.maximum(count + here, 1)
            own_mean = np.sum(block, axis=axis, where=seen) / np.maximum(here, 1)
            deviations = np.square(block - own_mean)
            shift = own_mean - mean
            square += np.sum(deviations, axis=axis, where=seen) + shift**2 * count * here / total
            mean += shift * here / total
            count += here
        std = np.sqrt(square / np.maximum(count, 1))
        # Sums of equal numbers are equal but for rounding; and models divide in float32.
        least = np.maximum(1e-12 * np.abs(mean), np.finfo(np.float32).tiny)
        std = np.where(std > least, std, 1.0)
        return Scaling(*(float(v) if axis is None else v for v in (mean, std)))

    def __call__(self, values: Any) -> Any:
        """Values in the model's units, from the recording's; whole numbers become float32."""
        values = _floating(values)
        return (values - _like(self.offset, values)) / _like(self.scale, values)

    def restore(self, xs: Any) -> Any:
        """Values in the recording's units, from the model's."""
        xs = _floating(xs)
        return xs * _like(self.scale, xs) + _like(self.offset, xs)


# Compared and hashed by identity; `sha256` says whether two hold the same numbers.
@dataclass(frozen=True, eq=False)
class Dataset:
    """Ragged sequences for `train`, `valid` and `test`, and what is known about them.

    - `rows_per_step`: how many rows of the recording make one observation (200 samples of
      speech); the last rows that fill no step are left out.
    - `scaling`: from stored values to observations; fitted to the training part alone.
    - `family`: of an observation, or one for each column of a table.
    - `names`: of the sequences, by split, where they have any (files, speakers).
    - `columns`: of the user's table. `rate`: rows in a second, for sound and video.
    - `medium`: what it is a recording of, by the name it has in `varfilter.media`; empty: it is
      recognised by the shape of a row.
    - `schema`: what else its medium must know to read others like it (of a table, the
      `TableSchema`). `times`: of the rows, by split, where the recording has them.
    - `inputs`: the known inputs u_t of each step (steps, inputs), by split, as the model takes
      them; `input_names` says what they are. They are conditioned on: never scored, never missing.
    - `notes`: sentences on how it was read, where there was something to decide.
    """

    name: str
    train: Ragged
    valid: Ragged
    test: Ragged
    family: Family | tuple[Family, ...]
    scaling: Scaling = Scaling()
    rows_per_step: int = 1
    names: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    columns: tuple[str, ...] = ()
    rate: float | int | None = None
    medium: str = ""
    schema: Any = None
    times: dict[str, Ragged] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    input_names: tuple[str, ...] = ()
    inputs: dict[str, Ragged] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        require_positive("rows_per_step", self.rows_per_step)
        row = self.train.values[:0]
        for split in SPLITS:
            values = self.split(split).values
            if values.dtype.kind not in "buif" or values.shape[1:] != row.shape[1:]:
                raise ValueError(
                    f"`{split}` must hold rows of numbers, of the same shape in each split;"
                    f" got {kind(values)}, where `train` has {kind(self.train.values)}."
                )
        for split, names in self.names.items():
            if len(names) != len(self.split(split)):
                raise ValueError(
                    f"`names[{split!r}]` must have one name for each of the"
                    f" {len(self.split(split))} sequences; got {len(names)}."
                )
        width = row.shape[-1] if row.ndim > 1 else 1
        families = self.family if isinstance(self.family, tuple) else ()
        for name, parts in (("columns", self.columns), ("family", families)):
            if parts and len(parts) != width:
                raise ValueError(
                    f"`{name}` must have one for each of the {width} columns; got {len(parts)}."
                )
        if self.input_names:
            self._require_inputs()

    def split(self, name: str) -> Ragged:
        """The sequences of `train`, `valid` or `test`."""
        if name not in SPLITS:
            raise ValueError(f"`split` must be one of {', '.join(SPLITS)}; got {name!r}.")
        return getattr(self, name)

    @property
    def input_size(self) -> int:
        """How many known inputs a step has."""
        return len(self.input_names)

    def known(self, split: str, number: int) -> np.ndarray | None:
        """The known inputs (steps, inputs) of one sequence; None if the data have none."""
        return np.asarray(self.inputs[split][number]) if self.input_names else None

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        row = self.train.values.shape[1:]
        return row if self.rows_per_step == 1 else (self.rows_per_step, *row)

    @property
    def num_elements(self) -> int:
        """How many numbers one observation has."""
        return math.prod(self.observation_shape)

    def observations(self, rows: np.ndarray) -> np.ndarray:
        """Rows of one sequence as scaled observations (steps, *observation_shape)."""
        num_steps = len(rows) // self.rows_per_step
        rows = np.asarray(rows[: num_steps * self.rows_per_step], np.float32)
        with np.errstate(over="ignore"):
            xs = self.scaling(rows).reshape(num_steps, *self.observation_shape)
        # An absurd reading may overflow in other units: it is then the largest number there is.
        if np.isinf(xs).any():
            largest = np.finfo(xs.dtype).max
            xs = np.clip(xs, -largest, largest)
        return xs

    @property
    def families(self) -> tuple[Family, ...]:
        """The families of the columns of a table; else the one that all elements share."""
        return self.family if isinstance(self.family, tuple) else (self.family,)

    @property
    def column_families(self) -> tuple[tuple[str, Family], ...]:
        """The name and the family of each element of a row, which is numbered if it has no name."""
        width = math.prod(self.train.values.shape[1:])
        names = self.columns or tuple(f"element {i}" for i in range(width))
        families = self.families * (len(names) // len(self.families))
        return tuple(zip(names, families, strict=True))

    @property
    def is_binary(self) -> bool:
        """Whether every element of an observation is 0 or 1."""
        return all(family.is_binary for family in self.families)

    def has_gaps(self, split: str) -> bool:
        """Whether an element of the split is missing."""
        values = self.split(split).values
        return values.dtype.kind == "f" and bool(np.isnan(values).any())

    def sequence_names(self, split: str) -> tuple[str, ...]:
        """The names of the sequences of a split; those that have none are numbered."""
        count = len(self.split(split))
        return self.names.get(split) or tuple(f"sequence {i}" for i in range(count))

    def by_column(self, xs: Any) -> dict[str, np.ndarray]:
        """Numbers in the model's units (..., columns) in the user's units, by column."""
        xs = np.asarray(xs, np.float64)
        if xs.ndim < 1 or xs.shape[-1] != len(self.columns):
            listed = ", ".join(self.columns[:6]) + (", ..." if len(self.columns) > 6 else "")
            raise ValueError(
                f"`xs` must have a last axis of {len(self.columns)}, one for each column"
                f" ({listed}); got {kind(xs)}."
            )
        values = self.scaling.restore(xs)
        return {name: values[..., i] for i, name in enumerate(self.columns)}

    def sha256(self) -> str:
        """The hash of the numbers of all splits and their scale: two runs saw the same data."""
        digest = hashlib.sha256()
        for split in SPLITS:
            ragged = self.split(split)
            digest.update(f"{split} {ragged.values.dtype.str} {ragged.values.shape}".encode())
            digest.update(np.ascontiguousarray(ragged.lengths).data)
            for block in _blocks(ragged.values):
                digest.update(np.ascontiguousarray(block).data)
        for number in (self.scaling.offset, self.scaling.scale):
            digest.update(np.asarray(number, np.float64).tobytes())
        digest.update(str(self.rows_per_step).encode())
        transforms = [family.transform for family in self.families]
        if any(transform is not None for transform in transforms):
            digest.update(repr(transforms).encode())
        seasons = [(each.season, each.season_spread) for each in transforms if each is not None]
        if any(season is not None for season, _ in seasons):
            digest.update(repr(seasons).encode())
        for split in SPLITS if self.input_names else ():
            digest.update(np.ascontiguousarray(self.inputs[split].values).data)
        return digest.hexdigest()

    def _require_inputs(self) -> None:
        """Refuse inputs that are not there for each step, or not all."""
        for split in SPLITS:
            steps = self.split(split).lengths // self.rows_per_step
            us = self.inputs.get(split)
            if us is None or not np.array_equal(us.lengths, steps):
                raise ValueError(
                    f"`inputs[{split!r}]` must have a row for each step of each sequence of the"
                    " split."
                )
            if us.values.shape[1:] != (self.input_size,) or not np.isfinite(us.values).all():
                raise ValueError(
                    f"`inputs[{split!r}]` must hold finite numbers (steps, {self.input_size}), one"
                    f" for each of `input_names`; got {kind(us.values)}."
                )


def _blocks(values: np.ndarray) -> Iterator[np.ndarray]:
    """All rows, about a `BLOCK` of numbers at a time."""
    rows = max(1, BLOCK // max(1, math.prod(values.shape[1:])))
    return (values[begin : begin + rows] for begin in range(0, len(values), rows))


def _floating(values: Any) -> Any:
    """Floats as they are, in numpy or jax; whole numbers and booleans as float32."""
    values = values if hasattr(values, "dtype") else np.asarray(values)
    return values if jnp.issubdtype(values.dtype, jnp.floating) else values.astype(np.float32)


def _like(number: float | int | np.ndarray, values: Any) -> Any:
    """`number` in the dtype of `values`, to be combined with them row by row."""
    array = np.asarray(number, values.dtype)
    return array.reshape((1,) * (values.ndim - array.ndim) + array.shape)


def require_dataset(dataset: Any) -> Dataset:
    """Return a data set, and refuse arrays, which do not say what they are."""
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"`dataset` must be a `Dataset`; got {kind(dataset)}. `varfilter.load(path)` reads one;"
            " of arrays, each (time, *event): `Dataset(name, Ragged.of(train), Ragged.of(valid),"
            " Ragged.of(test), Family(Normal))`, of `varfilter.data`."
        )
    return dataset
