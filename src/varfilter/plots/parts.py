"""What pictures of data and of predictions have in common: levels, colours, outlines."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_rgb

from varfilter.data.dataset import Dataset, Family
from varfilter.distributions import Bernoulli
from varfilter.plots.style import MISSING


def black_and_white(dataset: Dataset, rows: Sequence[np.ndarray]) -> tuple[float, float]:
    """What is black and what is white of films, in scaled units."""
    family = dataset.family
    if isinstance(family, Family) and family.low is not None and family.high is not None:
        return family.low, family.high
    if is_binary(family):
        return 0.0, 1.0
    return value_range([dataset.scaling(film.astype(np.float32)) for film in rows])


def is_binary(family: Family | tuple[Family, ...]) -> bool:
    """Whether all of an observation is noughts and ones."""
    return isinstance(family, Family) and issubclass(family.distribution, Bernoulli)


def coloured(frame: np.ndarray) -> np.ndarray:
    """(height, width, 3) from 0 to 1, of any frame; a pixel that is missing in its own colour."""
    channels = np.moveaxis(frame, 0, -1) if frame.ndim == 3 else frame[..., None]
    colour = np.broadcast_to(np.clip(channels, 0.0, 1.0), (*channels.shape[:2], 3))
    lost = np.isnan(channels).any(-1, keepdims=True)
    return np.where(lost, np.asarray(to_rgb(MISSING), colour.dtype), colour)


def outline(times: np.ndarray, values: np.ndarray, most: int = 4000) -> tuple[Any, Any]:
    """The same picture with few points: of each piece the lowest and the highest value."""
    size = -(-2 * len(values) // most)
    if size <= 2:
        return times, values
    begins = np.arange(0, len(values), size)
    ends = [np.fmin.reduceat(values, begins), np.fmax.reduceat(values, begins)]
    return np.repeat(times[begins], 2), np.stack(ends, 1).ravel()


def value_range(arrays: Sequence[np.ndarray]) -> tuple[float, float]:
    """The lowest and the highest value; never the same."""
    values = np.concatenate([array[np.isfinite(array)] for array in arrays])
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    return (low, high) if high > low else (low, low + max(1.0, abs(low)))


def ink(colour: str) -> Colormap:
    """From white to a colour; what is missing has its own."""
    return LinearSegmentedColormap.from_list("ink", ["white", colour]).with_extremes(bad=MISSING)
