"""How surprising healthy steps are, column by column: the tails that alarms are judged by.

Each column is judged twice: by the past alone, and by the past and the other columns of its step,
which also sees what does not go together. What counts is the excess over what a prediction of the
same spread costs, so that a wide one is not alarming by itself. A step of which cells are missing
has fewer chances to be rare, and is not misjudged for having fewer terms. Beyond what was seen a
tail is a generalised Pareto distribution (Pickands 1975).

How rare the rarest column of a step is, is found twice. By tails that were fitted to it each step
seems more usual than a new one is, and by tails that were fitted to the others a little rarer,
since they know less. The truth lies between: the two are mixed as in the .632 estimator of an error
of prediction (Efron 1983).

A few validated sequences scatter, and say next to nothing of one step in a thousand. Training steps
are many, but a model is less surprised by what it has learned. So these are told with the centre
and the spread that validated ones have, column by column: the shape of a tail is then that of all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter.media.rows import ColumnSurprises, Filtering
from varfilter.runs.folder import list_damaged, read_list, write_list

FILE, ENTRY = "alarms.json", "calibrations"
VERSION = 3
# A column that was seen less often while validating has no alarms of its own.
FEWEST_VALUES = 30
# Which part of the values is the tail, and of how many it is at least.
TAIL, FEWEST_IN_TAIL = 0.1, 10
# A shape is uncertain by 1 / sqrt(values in the tail); it counts as if so many had said 0, as
# the tail of Gaussian surprises has it.
PRIOR_WEIGHT = 20
HEAVIEST = 0.5
# The tails of the columns are fitted to all of so many parts but one, for the steps of that one.
NUM_FOLDS = 10
# The share of a sample's steps that are among as many that are drawn from it: 1 - 1/e.
HELD_OUT = 0.632
# Nats below which no excess counts: a column that never changed is not alarming by a rounding.
SMALLEST = 0.05
# Of steps one after another so many are as one; and the spread of training steps counts as if so
# many had been validated with the same.
ALIKE, PRIOR_STEPS = 5, 20
# The part below the tail is kept at so many places.
NUM_KNOTS = 50


@dataclass(frozen=True)
class Tail:
    """P(S >= s) for the surprise S of healthy values: empirical, and beyond `knots[-1]` Pareto.

    `knots` are the quantiles of the values from the lowest to the beginning of the tail, at even
    probabilities. A part `share` lies beyond, where P(S >= s) = share (1 + shape (s - u) /
    scale)^(-1 / shape), u = knots[-1]. They are of a further value, with what so few values leave
    open: on average over samples a part p of further values has p or less.
    """

    knots: tuple[float, ...]
    share: float
    scale: float
    shape: float
    num_values: int

    @staticmethod
    def of(values: np.ndarray, fewest: int = FEWEST_VALUES) -> "Tail | None":
        """Fit the tail by probability-weighted moments (Hosking and Wallis 1987).

        None where there are fewer than `fewest` values. Shapes below 0, by which something could be
        impossible that was only never seen, are 0.

        Of n values with m in the tail, a further one has m + 1 of n + 1 places in it, and beyond
        exponential ones with a mean that is found of m, it is Pareto's of shape 1 / m.
        """
        values = np.sort(values[np.isfinite(values)]).astype(np.float64)
        if len(values) < fewest:
            return None
        count = max(FEWEST_IN_TAIL, int(TAIL * len(values)))
        below, beyond = values[:-count], values[-count:]
        excess = beyond - below[-1]
        mean = float(excess.mean())
        weighted = float(np.mean(excess * (count - 1 - np.arange(count)) / (count - 1)))
        shape = 0.0
        if mean > SMALLEST:
            shape = 2.0 - mean / max(mean - 2.0 * weighted, 1e-6 * mean)
            shape = float(np.clip(shape * count / (count + PRIOR_WEIGHT), 0.0, HEAVIEST))
        scale = max(mean, SMALLEST) * (1.0 - shape)
        shape = min(shape + 1.0 / count, HEAVIEST)
        share = (count + 1) / (len(values) + 1)
        return Tail(_knots(below), share, scale, shape, len(values))

    def __call__(self, surprise: Any) -> np.ndarray:
        """The probability that a healthy value is as surprising; NaN for NaN."""
        surprise = np.asarray(surprise, np.float64)
        excess = np.maximum(surprise - self.knots[-1], 0.0) / self.scale
        if self.shape > 1e-6:
            beyond = self.share * (1.0 + self.shape * excess) ** (-1.0 / self.shape)
        else:
            beyond = self.share * np.exp(-excess)
        levels = np.linspace(1.0, self.share, len(self.knots))
        # Of equal knots the first: a value there is as surprising as all of them.
        levels = levels[np.searchsorted(self.knots, self.knots)]
        within = np.interp(surprise, self.knots, levels)
        found = np.where(surprise > self.knots[-1], beyond, within)
        return np.where(np.isnan(surprise), np.nan, found)


class Settings(NamedTuple):
    """The filter that a calibration is of: another one is surprised by other steps."""

    num_particles: int
    num_samples: int
    spread: float


@dataclass(frozen=True)
class Calibration:
    """How surprising healthy steps are, in each column and in the most surprising of them.

    `alone` and `given` have a tail for each column, None for one that was hardly seen. `rarest` is
    that of -log p, where p is the probability that the rarest of so many would be as rare if
    columns were independent; it knows how far they are not. `rarest_held_out` is the same by tails
    of columns that were fitted to other steps. `step` is that of the checkpoint.
    """

    settings: Settings
    step: int
    columns: tuple[str, ...]
    alone: tuple[Tail | None, ...]
    given: tuple[Tail | None, ...]
    rarest: Tail
    rarest_held_out: Tail
    num_steps: int

    @staticmethod
    def of(
        settings: Settings,
        step: int,
        columns: Sequence[str],
        filterings: Iterable[Filtering],
        learned: Iterable[Filtering] = (),
    ) -> "Calibration | None":
        """Calibrate on what the filter said of healthy steps; None where they are too few.

        `learned` is what it said of training steps, as if they had been as surprising.
        """
        found = [each.columns for each in filterings if each.columns is not None]
        more = [each.columns for each in learned if each.columns is not None]
        if not found:
            return None
        values = []
        for name in ("alone", "given"):
            own = np.concatenate([getattr(each, name) for each in found])
            others = [getattr(each, name) for each in more]
            # The validated ones last: parts of steps are of either.
            values.append(np.concatenate([_as_surprising(np.concatenate(others), own), own])
                          if others else own)  # fmt: skip
        alone, given = (tuple(map(Tail.of, each.T)) for each in values)
        every = _scores(_rarity(alone, values[0]), _rarity(given, values[1]))
        rarest, rarest_held_out = Tail.of(every), Tail.of(_held_out_scores(*values))
        if rarest is None or rarest_held_out is None:
            return None
        num_steps = int(np.isfinite(every).sum())
        return Calibration(
            settings, step, tuple(columns), alone, given, rarest, rarest_held_out, num_steps
        )

    def judged(self, columns: ColumnSurprises) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(p-values of the steps; how rare each column is, by the past; and given the others).

        NaN where nothing was seen.
        """
        alone = _rarity(self.alone, columns.alone)
        given = _rarity(self.given, columns.given)
        scores = _scores(alone, given)
        mixed = self.rarest(scores) ** (1.0 - HELD_OUT) * self.rarest_held_out(scores) ** HELD_OUT
        return mixed, alone, given

    def as_json(self) -> dict[str, Any]:
        """The calibration as plain JSON."""
        return asdict(self) | {"settings": self.settings._asdict()}

    @staticmethod
    def from_json(record: dict[str, Any]) -> "Calibration":
        """What `as_json` made."""

        def tail(known: Any) -> Tail | None:
            return None if known is None else Tail(**known | {"knots": tuple(known["knots"])})

        rarest, rarest_held_out = tail(record["rarest"]), tail(record["rarest_held_out"])
        assert rarest is not None
        assert rarest_held_out is not None
        return Calibration(
            Settings(**record["settings"]),
            record["step"],
            tuple(record["columns"]),
            tuple(map(tail, record["alone"])),
            tuple(map(tail, record["given"])),
            rarest,
            rarest_held_out,
            record["num_steps"],
        )


def known_calibration(folder: Path, settings: Settings, step: int) -> Calibration | None:
    """The calibration of a filter that a run's folder has; None if it has none of this one."""
    for known in _read(folder):
        if known.settings == settings and known.step == step:
            return known
    return None


def keep_calibration(folder: Path, calibration: Calibration) -> None:
    """Keep a calibration in a run's folder, beside those of other filters of the checkpoint."""
    others = [
        each
        for each in _read(folder)
        if each.step == calibration.step and each.settings != calibration.settings
    ]
    listed = [each.as_json() for each in [*others, calibration]]
    write_list(folder / FILE, ENTRY, VERSION, listed)


def _read(folder: Path) -> list[Calibration]:
    listed = read_list(folder / FILE, ENTRY, VERSION)
    try:
        return [Calibration.from_json(each) for each in listed]
    except (ValueError, KeyError, TypeError) as error:
        raise list_damaged(folder / FILE, error) from None


def _as_surprising(learned: np.ndarray, validated: np.ndarray) -> np.ndarray:
    """The surprises (steps, columns) of training steps, with the centre and spread of others.

    The centre is the median, the spread the mean excess over it. A column that was hardly seen
    among the others is not told.
    """
    found = np.full(learned.shape, np.nan)
    for i in range(learned.shape[1]):
        own, other = (each[np.isfinite(each)] for each in (learned[:, i], validated[:, i]))
        if len(own) < FEWEST_VALUES or len(other) < FEWEST_VALUES:
            continue
        centres = np.median(own), np.median(other)
        spreads = [
            max(float(np.mean(np.maximum(each - centre, 0.0))), SMALLEST)
            for each, centre in zip((own, other), centres, strict=True)
        ]
        count = len(other) / ALIKE
        factor = (spreads[1] / spreads[0]) ** (count / (count + PRIOR_STEPS))
        found[:, i] = centres[1] + factor * (learned[:, i] - centres[0])
    return found


def _knots(values: np.ndarray) -> tuple[float, ...]:
    return tuple(np.quantile(values, np.linspace(0.0, 1.0, NUM_KNOTS)).tolist())


def _rarity(tails: Sequence[Tail | None], surprises: np.ndarray) -> np.ndarray:
    """How rare each column is among healthy ones; NaN where it is missing, or has no tail."""
    nothing = np.full(len(surprises), np.nan)
    each = [
        nothing if tail is None else tail(values)
        for tail, values in zip(tails, surprises.T, strict=True)
    ]
    return np.stack(each, axis=1)


def _held_out_scores(*both: np.ndarray) -> np.ndarray:
    """The score of each step, by tails that were fitted to the others and not to those around it.

    Parts are of steps one after another, so that what lasts for some steps is in one part.
    """
    scores = np.full(len(both[0]), np.nan)
    for part in np.array_split(np.arange(len(scores)), NUM_FOLDS):
        rarities = []
        for surprises in both:
            others = np.delete(surprises, part, axis=0)
            seen_often = np.isfinite(surprises).sum(axis=0) >= FEWEST_VALUES
            tails = [
                Tail.of(values, 2 * FEWEST_IN_TAIL) if is_known else None
                for values, is_known in zip(others.T, seen_often, strict=True)
            ]
            rarities.append(_rarity(tails, surprises[part]))
        scores[part] = _scores(*rarities)
    return scores


def _scores(alone: np.ndarray, given: np.ndarray) -> np.ndarray:
    """-log(1 - (1 - p)^n), p the least of the n rarities of a step; NaN where there are none."""
    both = np.concatenate([alone, given], axis=1)
    count = np.isfinite(both).sum(axis=1)
    least = np.clip(np.where(np.isfinite(both), both, 1.0).min(axis=1), 1e-300, 1.0 - 1e-12)
    with np.errstate(divide="ignore"):
        found = -np.log(-np.expm1(count * np.log1p(-least)))
    return np.where(count > 0, found, np.nan)
