"""Naive predictions of each column, a Gaussian each: the last value, and that of a season before.

The season of a table is the lag at which its columns are like themselves again. With g(p) the mean
of (x_t - x_{t-p})^2 (the variogram), g(p) is well below g(p/2), or below the mean of g over shorter
lags, if p is the length of a season; of a column that wanders it is twice as large, and of noise it
is the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.continued import MOST_BEFORE, Continued
from varfilter.data.dataset import Dataset
from varfilter.data.tables.inputs import LEAST_STEPS, PERIODS
from varfilter.media.gaussians import Gaussians, Predictor
from varfilter.media.reference import last_seen, level_groups

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
# How far columns go is counted up to a part of the longest sequence, in which as many such changes
# do not overlap, and no further than so many steps.
FEWEST_APART, LONGEST_REACH = 8, 1024
# By this power of time a random walk spreads.
WALK = 0.5


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
    from varfilter.media.linear import MOST_COLUMNS, LinearReference, kept_linear

    predictors: dict[str, Predictor] = {LAST: Naive.of(dataset, horizons)}
    notes = []
    if (season := season_of(dataset)) is not None:
        predictors[SEASONAL_NAIVE] = Naive.of(dataset, horizons, season.length)
        notes.append(f"A season has {season.what}.")
    else:
        notes.append("There is no season: nothing in the training rows comes back regularly.")
    if dataset.num_elements <= MOST_COLUMNS:
        predictors[LINEAR] = LinearReference(kept_linear(kept, dataset), dataset)
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
    # None is longer than `MOST_BEFORE`, the rows that a forecast knows.
    known = {
        length: name
        for length, name in _calendar(dataset)
        if 2 * length <= longest and length <= MOST_BEFORE
    }
    if known and (length := _best_lag(sequences, list(known), BY_CALENDAR)) is not None:
        return Season(length, f"{length} steps, a {known[length]}")
    lags = range(2, min(longest // FEWEST_SEASONS, LONGEST_LAG) + 1)
    # What wanders comes back by chance; its changes do not.
    moves = [getattr(f.transform, "change_scale", None) is not None for f in dataset.families]
    sequences = [np.where(moves, xs - _lagged(xs, 1), xs) for xs in sequences]
    if (length := _best_lag(sequences, lags, BY_ROWS)) is not None:
        return Season(length, f"{length} steps, as the training rows repeat themselves")
    return None


class Growth(NamedTuple):
    """How far each column has gone from what it was, by how long ago that was.

    `reach` (lags, columns) is how many steps ago that was, or how many seasons; `spread` is that of
    such changes in the training rows, and `stays` how often what is 0 or 1 was still the same.
    Between two of them both lie on a line, over the logarithm of the reach. Beyond the last the
    spread goes on as a power of the reach, by which it grew in the last two doublings of what is
    known: none of what comes back to a mean, the root of a random walk, at most in proportion.
    """

    reach: np.ndarray
    spread: np.ndarray
    stays: np.ndarray

    @staticmethod
    def of(
        lags: Sequence[int],
        pairs: Callable[[int], tuple[np.ndarray, np.ndarray]],
        overall: np.ndarray,
    ) -> "Growth":
        """Find how spreads grow with the reach: `pairs` of a lag are (changes, reach) by column.

        A change that was not observed is NaN. `overall` is the spread where none was.
        """
        found = []
        for lag in lags:
            changes, reach = pairs(lag)
            seen = ~np.isnan(changes)
            count = np.maximum(np.sum(seen, axis=0), 1)
            square = np.nansum(changes**2, axis=0)
            found.append((
                np.where(seen.any(axis=0), np.sum(reach, axis=0, where=seen) / count, lag),
                np.where(seen.any(axis=0), np.sqrt(square / count), overall),
                # A change of what is 0 or 1 has the square 1; one is added to either count.
                (np.sum(seen, axis=0) - square + 1.0) / (np.sum(seen, axis=0) + 2.0),
            ))  # fmt: skip
        reach, spread, stays = map(np.stack, zip(*found, strict=True))
        return Growth(np.maximum.accumulate(reach, axis=0), spread, stays)

    def at(self, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(spread, stays) of values (..., columns) that were seen so long ago."""
        spread, stays = np.empty(reach.shape), np.empty(reach.shape)
        for i, power in enumerate(self._power):
            known, wanted = np.log(self.reach[:, i]), np.log(reach[..., i])
            beyond = np.maximum(wanted - known[-1], 0.0)
            spread[..., i] = np.interp(wanted, known, self.spread[:, i]) * np.exp(power * beyond)
            stays[..., i] = np.interp(wanted, known, self.stays[:, i])
        return spread, stays

    @property
    def _power(self) -> np.ndarray:
        """The power of the reach by which each spread grows; a walk's where one is known."""
        before = self.reach <= self.reach[-1] / 4
        place = np.where(before.any(axis=0), np.sum(before, axis=0) - 1, 0)[None]
        reach, spread = (
            np.log(np.maximum(np.take_along_axis(each, place, axis=0)[0], 1e-12))
            for each in (self.reach, self.spread)
        )
        apart = np.log(self.reach[-1]) - reach
        grown = np.log(np.maximum(self.spread[-1], 1e-12)) - spread
        power = np.where(apart > 0, grown / np.where(apart > 0, apart, 1.0), WALK)
        return np.clip(power, 0.0, 1.0)


@dataclass(frozen=True)
class Naive:
    """Each value as it was last seen, or a season before, with the spread of such changes.

    `season` is its length in steps; None: the last value. Where that of a season before was not
    observed, it is the last value too. `last` tells how far columns go from their last value, by
    the steps since it was seen, and `seasonal` from that of so many seasons before. `groups` are
    the levels of each column that has them. `mean` and `overall`, their spread, are for what was
    never observed.
    """

    season: int | None
    is_binary: tuple[bool, ...]
    groups: tuple[tuple[int, ...], ...]
    mean: np.ndarray
    overall: np.ndarray
    last: Growth
    seasonal: Growth | None

    @staticmethod
    def of(dataset: Dataset, horizons: Sequence[int], season: int | None = None) -> "Naive":
        """What the training rows say of changes, at these horizons and as far as they reach."""
        training = [
            dataset.observations(np.asarray(rows)).astype(np.float64) for rows in dataset.train
        ]
        everything = np.concatenate(training)
        is_binary = np.array([family.is_binary for family in dataset.families])
        count, total = np.sum(~np.isnan(everything), axis=0), np.nansum(everything, axis=0)
        mean = np.where(is_binary, (total + 1.0) / (count + 2.0), np.nanmean(everything, axis=0))
        overall = np.nanstd(everything, axis=0)
        longest = max(map(len, training))
        lags = sorted({*horizons, *_doubling(min(longest // FEWEST_APART, LONGEST_REACH))})
        last = Growth.of(lags, lambda lag: _since_last_seen(training, lag), overall)
        seasonal = None
        if season is not None:
            seasons = sorted({
                *(-(-horizon // season) for horizon in horizons),
                *_doubling(longest // (FEWEST_SEASONS * season)),
            })  # fmt: skip
            seasonal = Growth.of(
                seasons, lambda num: _since_seasons(training, num, season), overall
            )
        groups = tuple(map(tuple, level_groups(dataset)))
        return Naive(season, tuple(is_binary.tolist()), groups, mean, overall, last, seasonal)

    def __call__(self, sequence: Continued, places: np.ndarray, horizon: int) -> Gaussians:
        """What is said of the steps from each place on, up to `horizon` of them."""
        xs = sequence.xs.astype(np.float64)
        shape = (len(places), horizon, xs.shape[1])
        ahead = np.arange(1, horizon + 1)
        centre = np.broadcast_to(last_seen(xs)[places - 1][:, None], shape)
        # What was last seen some steps before a forecast begins has had these to change, too.
        since = _age(xs)[places - 1][:, None] + ahead[:, None]
        spread, stays = self.last.at(np.broadcast_to(since, shape))
        if self.season is not None and self.seasonal is not None:
            num = -(-ahead // self.season)
            before = places[:, None] + ahead - 1 - self.season * num
            like = np.where(before[..., None] >= 0, xs[np.maximum(before, 0)], np.nan)
            found = self.seasonal.at(np.broadcast_to(num[:, None].astype(float), shape))
            is_seen = ~np.isnan(like)
            centre = np.where(is_seen, like, centre)
            spread, stays = (
                np.where(is_seen, *each) for each in zip(found, (spread, stays), strict=True)
            )
        chance = np.where(centre > 0.5, stays, 1.0 - stays)
        never = np.isnan(centre)
        centre = np.where(self.is_binary, chance, centre)
        centre, spread = np.where(never, self.mean, centre), np.where(never, self.overall, spread)
        return Gaussians.of(centre, spread).summing_to_one(self.groups)

    def as_json(self) -> dict[str, Any]:
        """The predictor as plain JSON."""
        return vars(self) | {
            "mean": self.mean.tolist(),
            "overall": self.overall.tolist(),
            "last": [each.tolist() for each in self.last],
            "seasonal": self.seasonal and [each.tolist() for each in self.seasonal],
        }

    @staticmethod
    def from_json(known: dict[str, Any]) -> "Naive":
        """The predictor that `as_json` wrote down."""

        def growth(parts: list[Any]) -> Growth:
            return Growth(*(np.asarray(each, np.float64) for each in parts))

        mean, overall = (np.asarray(known[name], np.float64) for name in ("mean", "overall"))
        seasonal = None if known["seasonal"] is None else growth(known["seasonal"])
        return Naive(
            known["season"], tuple(known["is_binary"]), tuple(map(tuple, known["groups"])),
            mean, overall, growth(known["last"]), seasonal,
        )  # fmt: skip


def _doubling(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`, or 1 alone."""
    return [1 << power for power in range(max(most, 1).bit_length())]


def _age(xs: np.ndarray) -> np.ndarray:
    """How many steps before each step its column was last observed; 0 before the first time."""
    steps = np.arange(len(xs))[:, None]
    latest = np.maximum.accumulate(np.where(np.isnan(xs), -1, steps), axis=0)
    return np.where(latest < 0, 0, steps - latest)


def _since_last_seen(training: Sequence[np.ndarray], lag: int) -> tuple[np.ndarray, np.ndarray]:
    """The changes since what was last seen `lag` steps before, and how long before it was seen."""
    changes = [xs - _lagged(last_seen(xs), lag) for xs in training]
    reach = [lag + np.nan_to_num(_lagged(_age(xs).astype(float), lag)) for xs in training]
    return np.concatenate(changes), np.concatenate(reach)


def _since_seasons(
    training: Sequence[np.ndarray], num: int, season: int
) -> tuple[np.ndarray, np.ndarray]:
    """The changes since `num` seasons before, and `num` for each of them."""
    changes = np.concatenate([xs - _lagged(xs, season * num) for xs in training])
    return changes, np.full(changes.shape, float(num))


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
