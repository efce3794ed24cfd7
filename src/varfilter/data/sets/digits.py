"""Stochastic moving digits: handwritten digits that leave each wall in a random direction."""

import numpy as np

from varfilter._arguments import require_all_positive, require_library
from varfilter.data.dataset import Dataset, Family
from varfilter.data.ragged import Ragged
from varfilter.data.splits import split_by_sequence
from varfilter.data.video import resize
from varfilter.distributions import Bernoulli

SMALLEST = 16


def moving_digits(
    num_train: int = 2000,
    num_valid: int = 200,
    num_test: int = 200,
    num_steps: int = 20,
    size: int = 64,
    num_digits: int = 2,
    seed: int = 0,
) -> Dataset:
    """Simulate videos of digits that fly straight and leave walls in a new direction and speed.

    The 1,797 handwritten digits of scikit-learn, enlarged, black or white; where they cross,
    white wins. Each split has digits of its own, and depends on nothing but its own count, the
    sizes and `seed`. A name such as "3#417 8#1203" tells the digits and their images.
    """
    require_all_positive(
        num_train=num_train, num_valid=num_valid, num_test=num_test,
        num_steps=num_steps, size=size, num_digits=num_digits,
    )  # fmt: skip
    if size < SMALLEST:
        raise ValueError(
            f"`size` must be at least {SMALLEST}, for digits that can be told apart; got {size}."
        )
    if seed < 0:
        raise ValueError(f"`seed` must be a whole number, at least 0; got {seed}.")
    digits = require_library("sklearn.datasets", extra="digits").load_digits()
    # 28 pixels of 64, as in the set of this kind that is most used.
    glyphs = resize(np.rint(digits.images * (255 / 16)), max(size * 7 // 16, 8)) > 127
    own = split_by_sequence(len(glyphs), (0.8, 0.1, 0.1), seed)
    parts, names = {}, {}
    counts = {"train": num_train, "valid": num_valid, "test": num_test}
    for index, (split, count) in enumerate(counts.items()):
        generator = np.random.default_rng([seed, index])
        chosen = generator.choice(own[split], (count, num_digits))
        paths = _paths(chosen.shape, num_steps, size, glyphs.shape[-1], generator)
        frames = _drawn(glyphs[chosen], paths, size)
        parts[split] = Ragged(frames[:, None], np.full(count, num_steps))
        names[split] = tuple(
            " ".join(f"{digits.target[image]}#{image}" for image in row) for row in chosen
        )
    return Dataset("moving-digits", **parts, family=Family(Bernoulli), names=names, medium="video")


def _paths(
    shape: tuple[int, ...],
    num_steps: int,
    size: int,
    glyph_size: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """The upper left corner of each digit: whole pixels (num_steps, *shape, 2)."""
    limit = size - glyph_size
    position = generator.uniform(0.0, limit, (*shape, 2))
    velocity = _velocities(shape, size, generator)
    path = np.empty((num_steps, *shape, 2), np.int64)
    for step in range(num_steps):
        path[step] = np.rint(position)
        moved = position + velocity
        low, high = moved < 0.0, moved > limit
        position = np.clip(moved, 0.0, limit)
        # Any direction that leads away from the wall.
        fresh = _velocities(shape, size, generator)
        fresh = np.where(low, np.abs(fresh), np.where(high, -np.abs(fresh), fresh))
        velocity = np.where((low | high).any(-1, keepdims=True), fresh, velocity)
    return path


def _velocities(shape: tuple[int, ...], size: int, generator: np.random.Generator) -> np.ndarray:
    """Random velocities in any direction, of 2 to 5 pixels a step in an image of 64."""
    angle = generator.uniform(0.0, 2 * np.pi, shape)
    speed = generator.uniform(2.0, 5.0, shape) * (size / 64)
    return np.stack([speed * np.cos(angle), speed * np.sin(angle)], -1)


def _drawn(glyphs: np.ndarray, paths: np.ndarray, size: int) -> np.ndarray:
    """Draw each glyph (sequence, digit, height, width) at its places: bytes (frame, size, size)."""
    num_steps, num_sequences, num_digits, _ = paths.shape
    frames = np.zeros((num_sequences * num_steps, size, size), np.uint8)
    # A view that has at (frame, y, x) the square whose upper left corner is there.
    squares = np.lib.stride_tricks.sliding_window_view(
        frames, glyphs.shape[-2:], axis=(1, 2), writeable=True
    )
    number = np.arange(len(frames))
    for digit in range(num_digits):
        y, x = np.moveaxis(paths[:, :, digit], 0, 1).reshape(-1, 2).T
        squares[number, y, x] |= np.repeat(glyphs[:, digit], num_steps, 0)
    return frames
