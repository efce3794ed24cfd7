"""What an engineer would use instead: models of statsmodels, fitted to the same rows of a table.

Each column by itself: UnobservedComponents, exponential smoothing (ETS) and ARIMA, in a few forms
each, of the column or, where it is positive, of its logarithm; the form is the one with the best
log score one step ahead on the validation rows. All columns together: VAR, of values or of changes.
Then all are fitted to the training and validation rows, and predict the test rows with their
parameters as they are, told of all rows before, as the filter of a run is.

All predictions are Gaussian, of the logarithm where that was taken; their log scores, RMSE, CRPS
and bands are those of the same functions as ours.
"""

import dataclasses
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from varfilter.data.continued import Continued
from varfilter.data.dataset import Dataset, Family
from varfilter.distributions import Normal
from varfilter.media.gaussians import Gaussians
from varfilter.media.naive import season_of
from varfilter.training.predictive_draws import origins
from varfilter.training.predictive_scores import Predictions, column_scores

# Fits of longer columns take minutes, and are no better: these are the last of them.
MOST_ROWS = 2000
# With a longer season, the state of ARIMA and ETS is too large.
LONGEST_SEASON = 24
MOST_ITERATIONS = 100
# A form of a model: what fits it to values, from the first of them on.
Form = Callable[[np.ndarray], Any]


def peer_scores(
    dataset: Dataset, sequence: Continued, horizon: int, every: int
) -> dict[str, dict[str, Any]]:
    """The scores of each peer by column, at horizon 1 and `horizon`; and its seconds."""
    xs = np.asarray(sequence.xs, np.float64)
    num_valid = len(dataset.valid.values)
    found = season_of(dataset)
    season = found.length if found is not None else None
    columns = [
        i
        for i, family in enumerate(dataset.families)
        if not family.is_binary and np.unique(xs[~np.isnan(xs[:, i]), i]).size > 2
    ]
    results: dict[str, dict[str, Any]] = {}
    families = {"UnobservedComponents": _components, "ETS": _smoothing, "ARIMA": _arima}
    for name, forms in families.items():
        begin = time.perf_counter()
        parts = {
            i: _best_form(dataset, sequence, i, forms(season), num_valid, horizon, every)
            for i in columns
        }
        if all(part is not None for part in parts.values()):
            results[name] = _scores(dataset, sequence, parts, horizon, every)
            results[name]["forms"] = {dataset.columns[i]: parts[i][0] for i in columns}
            results[name]["seconds"] = time.perf_counter() - begin
    if len(columns) > 1:
        for name, is_changes in (("VAR", False), ("VAR of changes", True)):
            begin = time.perf_counter()
            parts = _vector(sequence, columns, horizon, every, is_changes=is_changes)
            results[name] = _scores(dataset, sequence, parts, horizon, every)
            results[name]["seconds"] = time.perf_counter() - begin
    return results


def _scores(
    dataset: Dataset, sequence: Continued, parts: dict[int, Any], horizon: int, every: int
) -> dict[str, Any]:
    """By horizon and column: `parts` have (form, {horizon: Gaussian}, whether of the logarithm)."""
    scores: dict[str, Any] = {}
    for ahead in (1, horizon):
        steps = origins(sequence, ahead, every if ahead > 1 else 1) + ahead - 1
        by_column = {}
        for i, (_, gaussians, is_log) in parts.items():
            mean, spread = gaussians[ahead]
            found = _judged(dataset, sequence.xs[steps].astype(np.float64), i, mean, spread, is_log)
            name = dataset.columns[i]
            by_column[name] = column_scores(dataset, found)[name]
        scores[str(ahead)] = by_column
    return {"columns": scores}


def _judged(
    dataset: Dataset, xs: np.ndarray, i: int, mean: np.ndarray, spread: np.ndarray, is_log: bool
) -> Predictions:
    """The predictions of one column, the others left out."""
    alone = np.where(np.arange(xs.shape[1]) == i, xs, np.nan)
    centre, width = (np.repeat(each[:, None], xs.shape[1], axis=1) for each in (mean, spread))
    found = Gaussians.of(centre, width)
    if not is_log:
        return found.scored(dataset, alone)
    # Of values in the user's units, whose logarithm was taken: there no column has bounds.
    values = np.asarray(dataset.scaling.restore(alone))
    found = found._replace(is_log=np.ones(xs.shape[1], bool))
    free = dataclasses.replace(dataset, family=(Family(Normal),) * xs.shape[1])
    return _scaled(dataset, found.scored(free, values))


def _scaled(dataset: Dataset, found: Predictions) -> Predictions:
    """Scores in the user's units as those of the model's: densities gain the scale."""
    scale = np.asarray(dataset.scaling.scale, np.float64)
    return Predictions(
        np.asarray(dataset.scaling(found.xs), np.float64),
        np.asarray(dataset.scaling(found.mean), np.float64),
        found.nats - np.log(scale),
        found.crps / scale,
        np.stack([np.asarray(dataset.scaling(each), np.float64) for each in found.quantiles]),
        found.chances,
    )


def _best_form(
    dataset: Dataset,
    sequence: Continued,
    i: int,
    forms: list[tuple[str, Form]],
    num_valid: int,
    horizon: int,
    every: int,
) -> tuple[str, dict[int, tuple[np.ndarray, np.ndarray]], bool] | None:
    """(its name, its Gaussians by horizon, whether of the logarithm) of the form that is best."""
    raw = np.asarray(dataset.scaling.restore(sequence.xs.astype(np.float64)))[:, i]
    scaled = sequence.xs[:, i].astype(np.float64)
    family = dataset.families[i]
    choices = [(scaled, False)]
    # Zeros went through float32: what is next to nothing is no positive column.
    if np.nanmin(raw) > 1e-3 * np.nanmean(raw) and not family.has_levels:
        choices.append((np.log(raw), True))
    begin = sequence.begin
    valid = Continued(sequence.name, sequence.xs[:begin], None, None, begin - num_valid)

    def tried(name: str, fit: Form, values: np.ndarray, is_log: bool) -> Any:
        """(nats on the validation rows, form); infinite where there is no such fit."""
        try:
            fitted = fit(values[max(begin - num_valid - MOST_ROWS, 0) : begin - num_valid])
            mean, spread = _gaussians(fitted, values[:begin], valid, 1, 1)
        except (np.linalg.LinAlgError, ValueError, IndexError):
            return np.inf, name, fit, values, is_log
        xs = valid.xs[valid.begin :].astype(np.float64)
        found = _judged(dataset, xs, i, mean, spread, is_log)
        nats = np.mean(found.nats[~np.isnan(found.xs[:, i]), i])
        return nats if np.isfinite(nats) else np.inf, name, fit, values, is_log

    # Whether of the logarithm, the first form says, the simplest; then all of them are tried.
    first = min((tried(*forms[0], *choice) for choice in choices), key=lambda each: each[0])
    others = [tried(*form, *first[3:]) for form in forms[1:]]
    best = min([first, *others], key=lambda each: each[0])
    if not np.isfinite(best[0]):
        return None
    _, name, fit, values, is_log = best
    fitted = fit(values[max(begin - MOST_ROWS, 0) : begin])
    gaussians = {
        ahead: _gaussians(fitted, values, sequence, ahead, every if ahead > 1 else 1)
        for ahead in (1, horizon)
    }
    return f"{'log ' if is_log else ''}{name}", gaussians, is_log


def _gaussians(
    fitted: Any, values: np.ndarray, sequence: Continued, horizon: int, every: int
) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the spread of each forecast, by the recursion of the state-space form.

    It is told of the last rows before the first forecast, as the fit was.
    """
    first = max(sequence.begin - MOST_ROWS, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = fitted.apply(values[first:], refit=False)
    ssm = told.filter_results
    places = origins(sequence, horizon, every) - first
    mean = ssm.predicted_state[:, places].T
    covariance = np.moveaxis(ssm.predicted_state_cov, 2, 0)[places]
    a, c = ssm.transition[..., -1], ssm.state_intercept[..., -1]
    noise = ssm.selection[..., -1] @ ssm.state_cov[..., -1] @ ssm.selection[..., -1].T
    z, d, h = ssm.design[..., -1], ssm.obs_intercept[..., -1], ssm.obs_cov[..., -1]
    for _ in range(1, horizon):
        mean = mean @ a.T + c
        covariance = a @ covariance @ a.T + noise
    variance = np.einsum("ij,njk,ik->ni", z, covariance, z)[:, 0] + h[0, 0]
    return (mean @ z.T)[:, 0] + d[0], np.sqrt(np.maximum(variance, 1e-12))


def _fit(make: Callable[[np.ndarray], Any]) -> Form:
    def fit(values: np.ndarray) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make(values).fit(disp=0, maxiter=MOST_ITERATIONS, low_memory=False)

    return fit


def _components(season: int | None) -> list[tuple[str, Form]]:
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    found = []
    waves = {"freq_seasonal": [{"period": season, "harmonics": min(4, (season or 2) // 2)}]}
    plain = [("llevel", None), ("llevel", 1), ("lltrend", None)]
    seasonal = [("llevel", 1), ("lltrend", None), ("lltrend", 1)] if season else []
    for level, ar in plain:
        options: dict[str, Any] = {"level": level, "autoregressive": ar}
        found.append((f"{level}{' ar' if ar else ''}", options))
    for level, ar in seasonal:
        options = {"level": level, "autoregressive": ar, **waves}
        found.append((f"{level}{' ar' if ar else ''} season {season}", options))
    return [
        (name, _fit(lambda values, o=options: UnobservedComponents(values, **o)))
        for name, options in found
    ]


def _smoothing(season: int | None) -> list[tuple[str, Form]]:
    from statsmodels.tsa.statespace.exponential_smoothing import ExponentialSmoothing

    short = season if season and season <= LONGEST_SEASON else None
    found = []
    for trend, damped in ((False, False), (True, False), (True, True)):
        for seasonal in (None, short) if short else (None,):
            options = {"trend": trend, "damped_trend": damped, "seasonal": seasonal}
            name = f"A{'Ad' if damped else 'A' if trend else 'N'}{'A' if seasonal else 'N'}"
            found.append((name, _fit(lambda v, o=options: ExponentialSmoothing(v, **o))))
    return found


def _arima(season: int | None) -> list[tuple[str, Form]]:
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    short = season if season and 1 < season <= LONGEST_SEASON else None
    orders: list[tuple[Any, Any]] = [
        ((0, 1, 1), None), ((1, 0, 0), None), ((9, 0, 0), None), ((2, 1, 2), None),
    ]  # fmt: skip
    if short:
        orders += [((1, 0, 0), (0, 1, 1, short)), ((0, 1, 1), (0, 1, 1, short))]
    found = []
    for order, seasonal in orders:
        options: dict[str, Any] = {"order": order, "seasonal_order": seasonal or (0, 0, 0, 0)}
        options["trend"] = None if order[1] or seasonal else "c"
        name = f"{order}{seasonal or ''}".replace(" ", "")
        found.append((name, _fit(lambda values, o=options: SARIMAX(values, **o))))
    return found


def _vector(
    sequence: Continued, columns: list[int], horizon: int, every: int, *, is_changes: bool
) -> dict[int, Any]:
    """The Gaussians of a VAR, its lags chosen by the criterion of Akaike."""
    from statsmodels.tsa.api import VAR

    values = _filled(sequence.xs[:, columns].astype(np.float64))
    told = np.diff(values, axis=0, prepend=values[:1]) if is_changes else values
    training = told[max(sequence.begin - MOST_ROWS, 1) : sequence.begin]
    most = max(1, min(12, len(training) // (4 * len(columns) + 4)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = VAR(training).fit(maxlags=most, ic="aic")
        if fitted.k_ar == 0:
            fitted = VAR(training).fit(1)
    psi = fitted.ma_rep(horizon)
    psi = np.cumsum(psi, axis=0) if is_changes else psi
    parts: dict[int, dict[int, Any]] = {i: {} for i in columns}
    for ahead in (1, horizon):
        covariance = sum(psi[k] @ fitted.sigma_u @ psi[k].T for k in range(ahead))
        means = []
        for place in origins(sequence, ahead, every if ahead > 1 else 1):
            path = fitted.forecast(told[place - fitted.k_ar : place], ahead)
            means.append(values[place - 1] + path.sum(0) if is_changes else path[-1])
        mean, spread = np.array(means), np.sqrt(np.diagonal(np.asarray(covariance)))
        for k, i in enumerate(columns):
            parts[i][ahead] = mean[:, k], np.full(len(mean), spread[k])
    return {i: ("", gaussians, False) for i, gaussians in parts.items()}


def _filled(values: np.ndarray) -> np.ndarray:
    """What is missing as it was last seen, at the beginning as it was first seen."""
    values = values.copy()
    for column in values.T:
        seen = np.flatnonzero(~np.isnan(column))
        latest = np.searchsorted(seen, np.arange(len(column)), side="right") - 1
        column[:] = column[seen[np.maximum(latest, 0)]]
    return values
