"""Naive predictions of each column, a Gaussian each: the last value, and that of a season before.

The season of a table is the lag at which its columns are like themselves again. With g(p) the mean
of (x_t - x_{t-p})^2 (the variogram), g(p) is well below g(p/2), or below the mean of g over shorter
lags, if p is the length of a season; of a column that wanders it is twice as large, and of noise it
is the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.continued import Continued
from varfilter.data.dataset import Dataset
from varfilter.data.tables.inputs import LEAST_STEPS, PERIODS
from varfilter.media.gaussians import Gaussians, Predictor
from varfilter.media.reference import last_seen

# The names of the references.
LAST, SEASONAL_NAIVE, LINEAR = "last value", "seasonal naive", "linear model"
# What is left of g(p) in a column that has a season, at most; and in its second time round. Where
# no calendar tells of it, and any lag may be one by chance, it is to be plain to see.
BY_CALENDAR, BY_ROWS = (0.75, 0.9), (0.5, 0.8)
# Such a season is seen so many times in training, one of the calendar twice.
FEWEST_SEASONS = 4
LONGEST_LAG = 1000
# Rows by which the season is found: the last ones, and those of the longest sequences.
MOST_ROWS, MOST_SEQUENCES = 5000, 8


class ColumnReferences(NamedTuple):
    """What a model is held against, column by column.

    `predictors` say, by their names, what they expect of the steps after any place of a sequence.
    `notes` tell of them, and why one is left out.
    """

    predictors: dict[str, Predictor]
    notes: tuple[str, ...]


class Season(NamedTuple):
    """How many steps a season has, and how that is known, in words."""

    length: int
    what: str


def column_references(dataset: Dataset, kept: Path, horizons: Sequence[int]) -> ColumnReferences:
    """The references of a table, up to so many steps ahead; what had to be learned is at `kept`."""
    # Here, since most that is naive needs no such model.
    from varfilter.media.linear import MOST_COLUMNS, kept_linear, linear_predictions

    predictors: dict[str, Predictor] = {LAST: Naive.of(dataset, horizons)}
    notes = []
    if (season := season_of(dataset)) is not None:
        predictors[SEASONAL_NAIVE] = Naive.of(dataset, horizons, season.length)
        notes.append(f"A season has {season.what}.")
    else:
        notes.append("There is no season: nothing in the training rows comes back regularly.")
    if dataset.num_elements <= MOST_COLUMNS:
        predictors[LINEAR] = partial(linear_predictions, kept_linear(kept, dataset), dataset)
    else:
        notes.append(f"There is no linear state-space model: it takes {MOST_COLUMNS} columns.")
    return ColumnReferences(predictors, tuple(notes))


def season_of(dataset: Dataset) -> Season | None:
    """The season of the training rows, by the calendar or by what they do; None without any."""
    order = np.argsort(-dataset.train.lengths, kind="stable")[:MOST_SEQUENCES]
    sequences = [
        dataset.observations(np.asarray(dataset.train[int(i)][-MOST_ROWS:])).astype(np.float64)
        for i in order
    ]
    longest = max(map(len, sequences))
    known = {length: name for length, name in _calendar(dataset) if 2 * length <= longest}
    if known and (length := _best_lag(sequences, list(known), BY_CALENDAR)) is not None:
        return Season(length, f"{length} steps, a {known[length]}")
    lags = range(2, min(longest // FEWEST_SEASONS, LONGEST_LAG) + 1)
    # What wanders comes back by chance; its changes do not.
    moves = [getattr(f.transform, "change_scale", None) is not None for f in dataset.families]
    sequences = [np.where(moves, xs - _lagged(xs, 1), xs) for xs in sequences]
    if (length := _best_lag(sequences, lags, BY_ROWS)) is not None:
        return Season(length, f"{length} steps, as the training rows repeat themselves")
    return None


@dataclass(frozen=True)
class Naive:
    """Each value as it was last seen, or a season before, with the spread of such changes.

    `season` is its length in steps; None: the last value. Where that of a season before was not
    observed, it is the last value too. `spread` (horizons, columns) is that of the changes in the
    training rows, so many steps ahead, and `stays` how often what is 0 or 1 is still the same;
    between these horizons both lie on a line, over the logarithm of the horizon, and beyond the
    last they stay. `mean` is for what was never observed.
    """

    season: int | None
    is_binary: tuple[bool, ...]
    mean: np.ndarray
    horizons: tuple[int, ...]
    spread: np.ndarray
    stays: np.ndarray

    @staticmethod
    def of(dataset: Dataset, horizons: Sequence[int], season: int | None = None) -> "Naive":
        """What the training rows say of changes, so many steps ahead."""
        training = [
            dataset.observations(np.asarray(rows)).astype(np.float64) for rows in dataset.train
        ]
        everything = np.concatenate(training)
        mean, overall = np.nanmean(everything, axis=0), np.nanstd(everything, axis=0)
        spreads, stays = [], []
        for ahead in horizons:
            changes = np.concatenate([xs - _before(xs, ahead, season) for xs in training])
            count = np.sum(~np.isnan(changes), axis=0)
            square = np.nansum(changes**2, axis=0)
            spreads.append(np.where(count > 0, np.sqrt(square / np.maximum(count, 1)), overall))
            # A change of what is 0 or 1 has the square 1; one is added to either count.
            stays.append((count - square + 1.0) / (count + 2.0))
        is_binary = tuple(family.is_binary for family in dataset.families)
        return Naive(season, is_binary, mean, tuple(horizons), np.stack(spreads), np.stack(stays))

    def __call__(self, sequence: Continued, places: np.ndarray, horizon: int) -> Gaussians:
        """What is said of the steps from each place on, up to `horizon` of them."""
        values = sequence.xs.astype(np.float64)
        # Steps that have not come are as if they were not observed.
        values = np.concatenate([values, np.full((horizon, *values.shape[1:]), np.nan)])
        centres, spreads = [], []
        for ahead in range(1, horizon + 1):
            centre = _before(values, ahead, self.season)[places + ahead - 1]
            centre = np.where(np.isnan(centre), self.mean, centre)
            stays = at_horizon(self.stays, self.horizons, ahead)
            chance = np.where(centre > 0.5, stays, 1.0 - stays)
            centres.append(np.where(self.is_binary, chance, centre))
            spread = at_horizon(self.spread, self.horizons, ahead)
            spreads.append(np.broadcast_to(spread, centre.shape))
        return Gaussians.of(np.stack(centres, axis=1), np.stack(spreads, axis=1))

    def as_json(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }

    @staticmethod
    def from_json(known: dict[str, Any]) -> "Naive":
        """What `as_json` made."""
        mean, spread, stays = (
            np.asarray(known[name], np.float64) for name in ("mean", "spread", "stays")
        )
        is_binary, horizons = tuple(known["is_binary"]), tuple(known["horizons"])
        return Naive(known["season"], is_binary, mean, horizons, spread, stays)


def at_horizon(values: np.ndarray, horizons: Sequence[int], ahead: int) -> np.ndarray:
    """Values (horizons, ...) at another horizon: by a line over the logarithm of the horizon."""
    logs = np.log(np.asarray(horizons, np.float64))
    place = float(np.interp(np.log(ahead), logs, np.arange(len(logs))))
    low = min(int(place), len(logs) - 1)
    high = min(low + 1, len(logs) - 1)
    return values[low] + (place - low) * (values[high] - values[low])


def _before(xs: np.ndarray, horizon: int, season: int | None) -> np.ndarray:
    """What is said of each step `horizon` steps before it; NaN where nothing was seen till then."""
    last = _lagged(last_seen(xs), horizon)
    if season is None:
        return last
    like = _lagged(xs, season * -(-horizon // season))
    return np.where(np.isnan(like), last, like)


def _lagged(xs: np.ndarray, lag: int) -> np.ndarray:
    missing = np.full((min(lag, len(xs)), *xs.shape[1:]), np.nan)
    return np.concatenate([missing, xs[: max(len(xs) - lag, 0)]])


def _calendar(dataset: Dataset) -> list[tuple[int, str]]:
    """(steps, name) of the periods of the calendar, where times are dates and steps are regular."""
    times = [np.asarray(each) for each in dataset.times.get("train", ())]
    if not times or times[0].dtype.kind != "M":
        return []
    steps = np.concatenate([np.diff(each) for each in times]) / np.timedelta64(1, "us")
    usual = float(np.median(steps)) if steps.size else 0.0
    if not usual > 0:
        return []
    lengths = [(round(period / usual), name) for name, period in PERIODS.items()]
    return [(length, name) for length, name in lengths if length >= LEAST_STEPS]


def _best_lag(
    sequences: list[np.ndarray], lags: Sequence[int] | range, most: tuple[float, float]
) -> int | None:
    """The lag at which the columns are most like themselves again; None if none is.

    `most` is what may be left of their variogram there, and the second time round.
    """
    level = [xs - _trend(xs) for xs in sequences]
    known: dict[int, np.ndarray] = {}

    def variogram(lag: int) -> np.ndarray:
        if lag not in known:
            squares = np.concatenate([(xs[lag:] - xs[:-lag]) ** 2 for xs in level if len(xs) > lag])
            with np.errstate(invalid="ignore"):
                total, count = np.nansum(squares, axis=0), np.sum(~np.isnan(squares), axis=0)
            known[lag] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        return known[lag]

    longest = max(map(len, level))
    gains: dict[int, float] = {}
    # The means over all shorter lags, in the order of the lags.
    total, num_lags = np.zeros(level[0].shape[1]), 0
    for lag in sorted(lags):
        while num_lags < lag - 1:
            num_lags += 1
            total = total + np.nan_to_num(variogram(num_lags))
        before = np.fmax(variogram(max(lag // 2, 1)), total / max(num_lags, 1))
        ratio = _ratio(variogram(lag), before)
        again = np.full_like(ratio, 0.5 * most[1])
        if 2 * lag < longest:
            again = _ratio(variogram(2 * lag), variogram(max(3 * lag // 2, 1)))
        is_seasonal = (ratio < most[0]) & (again < most[1])
        if is_seasonal.any():
            gains[lag] = float(np.sum(np.log(np.maximum(ratio * again, 1e-6))[is_seasonal]))
    if not gains:
        return None
    best = min(gains.values())
    # An odd multiple of a season is as good: the shortest that is nearly the best.
    return next(lag for lag in sorted(gains) if gains[lag] <= 0.9 * best)


def _ratio(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The ratio of two variograms, 1 for constants and what was not observed."""
    good = (others > 0) & ~np.isnan(some)
    return np.where(good, some / np.where(good, others, 1.0), 1.0)


def _trend(xs: np.ndarray) -> np.ndarray:
    """The straight line through each column, 0 where there is too little of it."""
    t = np.arange(len(xs), dtype=np.float64)[:, None]
    seen = ~np.isnan(xs)
    count = np.maximum(seen.sum(0), 1)
    mean_t = np.sum(np.where(seen, t, 0.0), axis=0) / count
    mean_x = np.sum(np.where(seen, xs, 0.0), axis=0) / count
    away = np.where(seen, t - mean_t, 0.0)
    slope = np.sum(away * np.where(seen, xs - mean_x, 0.0), axis=0)
    slope = slope / np.maximum(np.sum(away**2, axis=0), 1e-12)
    return mean_x + slope * (t - mean_t)
