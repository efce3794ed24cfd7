"""How good predictions are, column by column: of weighted draws, and of Gaussians.

All are proper: the log score, -log p(x), and the continuous ranked probability score, E|X - x| -
E|X - X'| / 2 (Gneiting and Raftery 2007), are least on average for who says what he believes.

Of what has levels, or is often exactly 0 or at a bound, no band holds nine in ten: who is sure of a
0 has a band that holds all of them. There a value counts as inside by the part of its own
probability, P(X < x) to P(X <= x), that lies within 5% and 95%: as often as a draw from between
them would (the randomised probability integral transform; Czado, Gneiting and Held 2009), in the
mean over such draws. So counted, a band of 90% holds 90% of any values that are as was said.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.dataset import Dataset

# The edges of the bands of 90% and 50%.
LEVELS = (0.05, 0.25, 0.75, 0.95)
# Levels went through float32: what is on an edge of a band may lie a rounding beyond it.
SLACK = 1e-4


class Predictions(NamedTuple):
    """What was predicted of values and how well, (values, columns) in the model's units.

    - `xs`: what came, NaN where nothing was observed. `mean`: the expected value.
    - `nats`: -log p(x) of the column alone. `crps`: the continuous ranked probability score.
    - `quantiles`: (4, values, columns), at `LEVELS`; NaN for columns without bands.
    - `chances`: (2, values, columns), P(X < x) and P(X = x); None where they are not known.
    """

    xs: np.ndarray
    mean: np.ndarray
    nats: np.ndarray
    crps: np.ndarray
    quantiles: np.ndarray
    chances: np.ndarray | None = None

    def part(self, which: slice) -> "Predictions":
        """The predictions of some of the values."""
        xs, mean, nats, crps = (each[which] for each in self[:4])
        chances = None if self.chances is None else self.chances[:, which]
        return Predictions(xs, mean, nats, crps, self.quantiles[:, which], chances)

    @staticmethod
    def joined(parts: Sequence["Predictions"]) -> "Predictions":
        """The predictions of several sequences as one."""
        *others, quantiles, chances = zip(*parts, strict=True)
        xs, mean, nats, crps = map(np.concatenate, others)
        known = [each for each in chances if each is not None]
        return Predictions(
            xs, mean, nats, crps, np.concatenate(quantiles, axis=1),
            np.concatenate(known, axis=1) if len(known) == len(parts) else None,
        )  # fmt: skip


class Weighted(NamedTuple):
    """A mixture as values in order, (values, ..., columns), and how much each weighs, 1 in all.

    Some are random draws, others the quantiles of a distribution that is known, which tell of it
    without chance: `random` are the weights of the draws, and 0 for the others. `repeats` is the
    sum of the squared weights of the draws, and `own` that of w w' |x - x'| over the pairs that
    were made of one draw.
    """

    values: np.ndarray
    weights: np.ndarray
    random: np.ndarray
    repeats: np.ndarray
    own: np.ndarray

    @staticmethod
    def of(
        draws: Sequence[np.ndarray],
        weights: Sequence[np.ndarray],
        known: Sequence[np.ndarray] = (),
        known_weights: Sequence[np.ndarray] = (),
    ) -> "Weighted":
        """Put what there is of each element in order.

        `draws` (num_samples, ..., columns) are those of one model, each time told differently, and
        `known` (levels, ..., columns) equally probable quantiles of others. The weights are those
        of each of them as a whole, (..., columns).
        """
        each = [weight / len(part) for part, weight in zip(draws, weights, strict=True)]
        shares = [weight / len(part) for part, weight in zip(known, known_weights, strict=True)]
        # What is made of one draw is one draw.
        repeats = len(draws[0]) * np.sum(each, axis=0) ** 2
        own = np.zeros_like(repeats)
        for i, j in itertools.combinations(range(len(draws)), 2):
            own += 2 * each[i] * each[j] * np.sum(np.abs(draws[i] - draws[j]), axis=0)
        parts = [*draws, *known]
        values = np.concatenate(parts)
        order = np.argsort(values, axis=0)

        def in_order(of_parts: Sequence[np.ndarray]) -> np.ndarray:
            pairs = zip(of_parts, parts, strict=True)
            whole = np.concatenate([np.broadcast_to(w, part.shape) for w, part in pairs])
            return np.take_along_axis(whole, order, axis=0)

        all_weights = in_order([*each, *shares])
        random = in_order([*each, *(0.0 * share for share in shares)]) if known else all_weights
        values = np.take_along_axis(values, order, axis=0)
        return Weighted(values, all_weights, random, repeats, own)

    @property
    def ranks(self) -> np.ndarray:
        """The share of the whole that lies below each of them, and half of its own."""
        return np.cumsum(self.weights, axis=0) - 0.5 * self.weights

    def quantiles(self, levels: Sequence[float]) -> np.ndarray:
        """The values (levels, ..., columns) below which one more draw lies so often.

        As `varfilter.prediction.predictive_quantiles`: of n equal draws the one of rank p (n + 1),
        since one more is as likely to fall into each of the n + 1 places between them.
        """
        # Ranks run from 0 to 1 less half of a draw at each end; p (n + 1) - 1/2 of n are these.
        places = [level + (level - 0.5) * self.repeats for level in levels]
        return np.stack([self._at(place) for place in places])

    def _at(self, places: np.ndarray) -> np.ndarray:
        """The values at the ranks `places` (..., columns), between two of them by a line."""
        ranks, last = self.ranks, len(self.values) - 1
        above = np.sum(ranks < places[None], axis=0)
        ends = [np.clip(above - 1, 0, last)[None], np.minimum(above, last)[None]]
        (lower, upper), (low, high) = (
            [np.take_along_axis(each, end, axis=0)[0] for end in ends]
            for each in (ranks, self.values)
        )
        apart = upper - lower
        share = np.where(apart > 0, (places - lower) / np.where(apart > 0, apart, 1.0), 0.0)
        return low + np.clip(share, 0.0, 1.0) * (high - low)

    def chances(self, xs: np.ndarray) -> np.ndarray:
        """P(X < x) and P(X = x) of each value, (2, ..., columns), but for a rounding."""
        slack = SLACK * np.maximum(1.0, np.abs(xs))
        below = np.sum(self.weights * (self.values < xs - slack), axis=0)
        up_to = np.sum(self.weights * (self.values <= xs + slack), axis=0)
        return np.stack([below, up_to - below])

    def crps(self, xs: np.ndarray) -> np.ndarray:
        """E|X - x| - E|X - X'| / 2, where no draw is held against itself."""
        away = np.sum(self.weights * np.abs(self.values - xs[None]), axis=0)
        total = np.sum(self.random, axis=0)
        of_draws = self._apart(self.random)
        others = 1.0 - self.repeats / np.maximum(total**2, 1e-12)
        fair = (of_draws - self.own) / np.maximum(others, 1e-12)
        return away - 0.5 * (self._apart(self.weights) - of_draws + fair)

    def _apart(self, weights: np.ndarray) -> np.ndarray:
        """The sum of w w' |x - x'| over all pairs, of draws in order, by the rank of each."""
        ends = np.cumsum(weights, axis=0)
        return np.sum(weights * (4.0 * ends - 2.0 * weights - 2.0 * ends[-1]) * self.values, axis=0)


def column_scores(dataset: Dataset, found: Predictions) -> dict[str, dict[str, Any]]:
    """The averages over the values of each column that were observed, as plain JSON.

    `rmse` and `crps` are in the column's own units, `nats` per value in the model's. `within_50`
    and `within_90` are the shares of values inside of the bands; columns of 0 and 1 and of levels
    have none.
    """
    scale = np.broadcast_to(np.asarray(dataset.scaling.scale, np.float64), found.xs.shape[1:])
    scores: dict[str, dict[str, Any]] = {}
    for i, (name, family) in enumerate(dataset.column_families):
        if family.group is not None:
            if family.group not in scores:
                places = [j for j, f in enumerate(dataset.families) if f.group == family.group]
                scores |= _level_scores(family.group, found, places)
            continue
        seen = ~np.isnan(found.xs[:, i])
        if not seen.any():
            continue
        xs, mean = found.xs[seen, i], found.mean[seen, i]
        crps = (mean - xs) ** 2 if family.is_binary else found.crps[seen, i]
        low, lower, upper, high = found.quantiles[:, seen, i]
        own = None if found.chances is None or not family.has_atoms else found.chances[:, seen, i]
        has_bands = not family.is_binary and not np.isnan(low).any()
        scores[name] = {
            "num_values": int(seen.sum()),
            "rmse": float(np.sqrt(np.mean((mean - xs) ** 2)) * scale[i]),
            "nats": float(np.mean(found.nats[seen, i])),
            "crps": float(np.mean(crps) * scale[i]),
            "within_50": _share(lower, xs, upper, own, LEVELS[1:3]) if has_bands else None,
            "within_90": _share(low, xs, high, own, LEVELS[::3]) if has_bands else None,
        }
    return scores


def _level_scores(name: str, found: Predictions, places: list[int]) -> dict[str, dict[str, Any]]:
    """The scores of a column of levels, whose elements stand at these places; one of them came.

    The probabilities of a predictor that takes each level by itself are brought to a sum of one.
    Half the sum of squares is what a column of 0 and 1 has as its `crps`, with two levels.
    """
    seen = ~np.isnan(found.xs[:, places]).any(axis=1)
    if not seen.any():
        return {}
    xs, mean, nats = (each[seen][:, places] for each in (found.xs, found.mean, found.nats))
    chances = np.where(xs > 0.5, np.exp(-nats), -np.expm1(-nats))
    own = np.sum(xs * chances, axis=1) / np.sum(chances, axis=1)
    square = 0.5 * np.sum((mean - xs) ** 2, axis=1)
    return {
        name: {
            "num_values": int(seen.sum()),
            "rmse": float(np.sqrt(np.mean(square))),
            "nats": float(np.mean(-np.log(np.maximum(own, np.finfo(np.float64).tiny)))),
            "crps": float(np.mean(square)),
            "within_50": None,
            "within_90": None,
        }
    }


def _share(
    low: np.ndarray,
    xs: np.ndarray,
    high: np.ndarray,
    chances: np.ndarray | None,
    levels: Sequence[float],
) -> float:
    """The share of the values between `low` and `high`, which are those of the two `levels`.

    With `chances` a value counts by the part of its probability between the levels, if it has some.
    """
    slack = SLACK * np.maximum(1.0, np.abs(xs))
    inside = ((low - slack <= xs) & (xs <= high + slack)).astype(float)
    if chances is not None:
        below, own = chances
        common = np.minimum(below + own, levels[1]) - np.maximum(below, levels[0])
        part = np.maximum(common, 0.0) / np.where(own > 0, own, 1.0)
        inside = np.where(own > 0, np.minimum(part, 1.0), inside)
    return float(np.mean(inside))
