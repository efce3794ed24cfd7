"""Moving digits: the same for the same seed, straight between walls, of their split."""

from itertools import combinations

import numpy as np
import pytest

from refusals import refuses
from varfilter.data.dataset import SPLITS
from varfilter.data.sets.videos import moving_digits
from varfilter.distributions import Bernoulli


@pytest.fixture(scope="module")
def digits():
    return moving_digits(300, 40, 50, num_steps=30, size=32, seed=3)


def test_moving_digits_are_the_same_for_the_same_seed(digits):
    again = moving_digits(300, 40, 50, num_steps=30, size=32, seed=3)
    assert digits.sha256() == again.sha256()
    other = moving_digits(300, 40, 50, num_steps=30, size=32, seed=4)
    assert digits.sha256() != other.sha256()
    # A split does not depend on the counts of the others.
    small = moving_digits(7, 3, 50, num_steps=30, size=32, seed=3)
    np.testing.assert_array_equal(small.test.values, digits.test.values)


def test_moving_digits_are_black_or_white_and_of_their_split(digits):
    assert [len(digits.split(split)) for split in SPLITS] == [300, 40, 50]
    assert digits.train.values.shape == (9000, 1, 32, 32)
    assert digits.train.values.dtype == np.uint8
    assert set(np.unique(digits.train.values)) == {0, 1}
    assert digits.family.distribution is Bernoulli
    assert digits.observations(digits.train[0]).max() == 1.0
    images = {
        split: {word.split("#")[1] for name in digits.names[split] for word in name.split()}
        for split in SPLITS
    }
    assert len(images["train"]) > 400
    for one, other in combinations(SPLITS, 2):
        assert not images[one] & images[other]


def test_a_digit_flies_straight_and_leaves_walls_at_random():
    videos = moving_digits(400, 1, 1, num_steps=40, num_digits=1, seed=5)
    frames = videos.train.values[:, 0].reshape(400, 40, 64, 64)
    # The first row and column with white: they move as the digit does, in whole pixels.
    corner = np.stack([frames.any(3).argmax(2), frames.any(2).argmax(2)], -1)
    step = np.diff(corner, axis=1)
    assert np.all(np.abs(step) <= 6)
    assert np.mean(np.any(step != 0, -1)) > 0.95
    # The same glyph in every frame of a video: nothing is cut off at a wall.
    count = frames.sum((2, 3))
    assert np.all(count == count[:, :1])
    # Positions are rounded: in straight flight, steps differ by one pixel at most.
    bends = np.abs(np.diff(step, axis=1)).max(-1) > 1
    assert 0.03 < bends.mean() < 0.3
    # A mirror would keep the speed, up to the rounding of both ends over 6 steps.
    speed = np.linalg.norm(corner[:, 6:] - corner[:, :-6], axis=-1) / 6
    windows = np.lib.stride_tricks.sliding_window_view(bends, 5, axis=1)
    straight = np.where(windows.any(-1), np.nan, speed)
    spread = np.nanmax(straight, 1) - np.nanmin(straight, 1)
    assert np.mean(spread > 2 * np.sqrt(2) / 6) > 0.8


def test_moving_digits_refuse_bad_sizes():
    refuses(lambda: moving_digits(0), ValueError, "`num_train`", "0")
    refuses(lambda: moving_digits(size=15), ValueError, "`size`", "at least 16", "15")
    refuses(lambda: moving_digits(seed=-1), ValueError, "`seed`", "-1")
    refuses(lambda: moving_digits(num_digits=-1), ValueError, "`num_digits`", "-1")
