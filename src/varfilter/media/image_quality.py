"""How near a predicted frame is to the one that came: PSNR and SSIM, as the field reports them.

Predicted futures are judged as in SVG (Denton and Fergus 2018): of several that were drawn after
the first frames of a video, the one that is nearest to what came, by the mean over its frames; and
beside it the last frame that was seen, copied.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

# A difference that rounding to bytes makes is none: 58.9 decibels are the most.
LEAST_SQUARE = 1 / (12 * 255**2)
# The window of Wang et al. (2004), and the constants that keep the ratios finite.
WINDOW_SIZE, WINDOW_STD = 11, 1.5
STEADY_MEAN, STEADY_SPREAD = 0.01**2, 0.03**2


def psnr(frames: np.ndarray, others: np.ndarray) -> np.ndarray:
    """10 log10(1 / mean square error), in decibels, of frames (..., channels, height, width).

    Black is 0 and white is 1.
    """
    square = np.mean(np.square(frames - others), axis=(-3, -2, -1))
    return -10.0 * np.log10(np.maximum(square, LEAST_SQUARE))


def ssim(frames: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The structural similarity (Wang et al. 2004) of frames (..., channels, height, width).

    (2 m n + c) (2 s + d) / ((m^2 + n^2 + c) (v + w + d)) for the local means m and n, variances v
    and w and covariance s of the two, by a Gaussian window of 11 by 11 pixels and a spread of 1.5,
    wherever it fits into the frame; the mean over places and channels. Black is 0 and white is 1.
    Of frames that are smaller than the window, it is as large as they are.
    """
    frames, others = (np.asarray(each, np.float64) for each in (frames, others))
    window = _window(min(WINDOW_SIZE, *frames.shape[-2:]))
    mean, other_mean = _local(frames, window), _local(others, window)
    variance = _local(frames**2, window) - mean**2
    other_variance = _local(others**2, window) - other_mean**2
    covariance = _local(frames * others, window) - mean * other_mean
    alike = (2 * mean * other_mean + STEADY_MEAN) * (2 * covariance + STEADY_SPREAD)
    size = mean**2 + other_mean**2 + STEADY_MEAN
    return np.mean(alike / (size * (variance + other_variance + STEADY_SPREAD)), axis=(-3, -2, -1))


class FrameScores(NamedTuple):
    """Scores of predictions 1, 2, ... frames ahead, the means over sequences.

    `best` is of the best of the futures that were drawn, `average` of all of them, `copy` of the
    last frame that was seen; `standard_error` is that of `best` less `copy` over sequences.
    """

    best: np.ndarray
    average: np.ndarray
    copy: np.ndarray
    standard_error: np.ndarray
    num_sequences: int


def frame_scores(
    futures: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> dict[str, FrameScores]:
    """Score futures by PSNR and by SSIM, each by its own best.

    Of each sequence: the last frame that was seen (channels, height, width), the frames that came
    (horizon, ...) and those that were drawn (num_futures, horizon, ...), from 0 to 1.
    """
    found: dict[str, list[np.ndarray]] = {"PSNR": [], "SSIM": []}
    for last, came, drawn in futures:
        for name, score in (("PSNR", psnr), ("SSIM", ssim)):
            own = score(drawn, np.broadcast_to(came, drawn.shape))
            copied = score(np.broadcast_to(last, came.shape), came)
            best = own[np.argmax(own.mean(axis=1))]
            found[name].append(np.stack([best, own.mean(axis=0), copied]))
    return {name: _averaged(np.stack(each)) for name, each in found.items() if each}


def _averaged(scores: np.ndarray) -> FrameScores:
    """The means of scores (sequences, 3, horizon)."""
    count = len(scores)
    gains = scores[:, 0] - scores[:, 2]
    error = np.full(scores.shape[-1], np.nan)
    if count > 1:
        error = gains.std(axis=0, ddof=1) / count**0.5
    best, average, copy = scores.mean(axis=0)
    return FrameScores(best, average, copy, error, count)


def _window(size: int) -> np.ndarray:
    places = np.arange(size) - (size - 1) / 2
    weights = np.exp(-0.5 * (places / WINDOW_STD) ** 2)
    return weights / weights.sum()


def _local(frames: np.ndarray, window: np.ndarray) -> np.ndarray:
    """Weighted means over each place where the window fits, along one axis and then the other."""
    for axis in (-2, -1):
        views = np.lib.stride_tricks.sliding_window_view(frames, len(window), axis=axis)
        frames = views @ window
    return frames
