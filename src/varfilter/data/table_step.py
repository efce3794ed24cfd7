"""The step of a grid, found from the time stamps of the training rows."""

import numpy as np

# A slip of the grid that puts two rows on a point loses a value; one that leaves a point empty
# loses none.
WEIGHT_OF_MERGED = 10.0
# Above this share of neighbours with a gap between them a step is too short to be the usual one.
MOST_GAPS = 2.0 / 3.0
# How far a rounded step may lead from the fitted one over the whole of a run, in steps.
MOST_DRIFT = 0.1


def usual_step(runs: list[np.ndarray], unit: float = 1.0) -> float | int | None:
    """The step whose grid loses the fewest rows, rounded (in `unit`s) where that loses nothing.

    Several guesses are fitted to all stamps at once, so that the grid does not drift: of months,
    or of a clock that jitters, the median alone would soon be a step ahead of the data. None if
    no run has two different stamps.
    """
    is_whole = bool(runs) and runs[0].dtype.kind == "i"
    elapsed = [(run - run[0]).astype(np.float64) for run in map(np.unique, runs) if len(run)]
    elapsed = [run for run in elapsed if len(run) > 1]
    if not elapsed:
        return None
    differences = np.concatenate([np.diff(run) for run in elapsed])
    middle = np.median(differences)
    near = differences[(differences >= 0.5 * middle) & (differences <= 2.0 * middle)]
    guesses = [*np.quantile(differences, [0.1, 0.25, 0.5], method="lower"), near.mean()]
    fitted = [_fitted(elapsed, float(guess)) for guess in dict.fromkeys(guesses)]
    best = min(fitted, key=lambda step: _cost(elapsed, step))
    best = _tidy(elapsed, best, unit)
    return max(round(best), 1) if is_whole else best


def _fitted(runs: list[np.ndarray], step: float) -> float:
    """Least squares of stamps on grid points, over windows that double until they are whole runs.

    What a window has told of the step is enough to count the points of one twice as long.
    """
    # In steps and not in rows: at last a window spans all gaps.
    length, longest = 2, max(float(run[-1]) for run in runs) / step
    final = 0
    while final < 3:
        products = squares = 0.0
        for run in runs:
            new = np.zeros(len(run), bool)
            new[::length] = True
            # Over a gap longer than a window the points cannot be counted yet.
            new[1:] |= np.diff(run) > length * step
            starts = np.flatnonzero(new)
            sizes = np.diff(np.append(starts, len(run)))
            since = run - np.repeat(run[starts], sizes)
            points = np.floor(since / step + 0.5)
            centre = np.add.reduceat(points, starts) / sizes
            points -= np.repeat(centre, sizes)
            products += float(np.sum(points * since))
            squares += float(np.sum(points * points))
        refined = products / squares if squares > 0 else step
        if not 0.5 * step < refined < 2.0 * step:
            return step
        step = refined
        final += length >= longest
        length *= 2
    return step


def _slips(runs: list[np.ndarray], step: float) -> tuple[float, float]:
    """The shares of neighbours that come to lie on one point, and of those with a gap between."""
    jumps = np.concatenate([np.diff(np.floor(run / step + 0.5)) for run in runs])
    return float(np.mean(jumps == 0)), float(np.mean(jumps > 1))


def _cost(runs: list[np.ndarray], step: float) -> tuple[bool, float]:
    merged, gaps = _slips(runs, step)
    return gaps > MOST_GAPS, WEIGHT_OF_MERGED * merged + gaps


def _tidy(runs: list[np.ndarray], step: float, unit: float) -> float:
    """The same with as few digits as the stamps allow, if no row is lost and no gap opened."""
    merged, gaps = _slips(runs, step)
    farthest = max(float(run[-1]) for run in runs) / step
    allowed = min(_uncertainty(runs, step), MOST_DRIFT * step / farthest)
    for digits in range(1, 13):
        # Through decimal text: 0.3 and not 0.30000000000000004.
        rounded = float(f"{step / unit:.{digits - 1}e}") * unit
        if abs(rounded - step) > max(allowed, 1e-12 * step):
            continue
        other = _slips(runs, rounded)
        if other[0] <= merged and other[1] <= gaps:
            return rounded
    return step


def _uncertainty(runs: list[np.ndarray], step: float) -> float:
    """Four standard errors of the fitted step: none if all rows lie on the grid."""
    residuals = squares = 0.0
    for run in runs:
        points = np.floor(run / step + 0.5)
        residuals += float(np.sum(np.square(run - step * points - np.mean(run - step * points))))
        squares += float(np.sum(np.square(points - np.mean(points))))
    num_rows = sum(map(len, runs))
    return 4.0 * (residuals / num_rows / max(squares, 1.0)) ** 0.5
