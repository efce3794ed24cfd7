"""A data set: its scale, its hash, and what one observation is."""

import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest

from refusals import refuses
from varfilter.data import (
    Dataset,
    Family,
    Ragged,
    Scaling,
)
from varfilter.distributions import Bernoulli, Normal


def dataset(ragged, **options):
    """The same sequences in each split."""
    return Dataset("numbers", ragged, ragged, ragged, Family(Normal), **options)


# Scaling


def test_standardizing_is_exact_and_leaves_gaps_out():
    random = np.random.default_rng(4)
    values = random.normal(size=(3000, 5)) * [1.0, 1e-3, 1e4, 1.0, 0.0] + [0.0, 7.0, -1e6, 1e4, 3.3]
    values[random.random(values.shape) < 0.2] = np.nan
    values[0, 4] = 3.3
    values[:, 3] = np.nan
    scaling = Scaling.standardizing(values, axis=0)
    seen = [0, 1, 2]
    means, spreads = (f(values[:, seen], axis=0) for f in (np.nanmean, np.nanstd))
    np.testing.assert_allclose(scaling.offset[seen], means, rtol=1e-12)
    np.testing.assert_allclose(scaling.scale[seen], spreads, rtol=1e-12)
    # Nothing seen; a constant.
    assert (scaling.offset[3], scaling.scale[3]) == (0.0, 1.0)
    assert scaling.offset[4] == pytest.approx(3.3, rel=1e-15)
    assert scaling.scale[4] == 1.0
    xs = scaling(values)
    np.testing.assert_array_equal(np.isnan(xs), np.isnan(values))
    np.testing.assert_allclose(np.nanmean(xs[:, seen], 0), 0.0, atol=1e-9)
    np.testing.assert_allclose(np.nanstd(xs[:, seen], 0), 1.0, rtol=1e-9)
    np.testing.assert_allclose(scaling.restore(xs), values, rtol=1e-12)
    together = Scaling.standardizing(values[:, :2])
    assert together.offset == pytest.approx(np.nanmean(values[:, :2]), rel=1e-12)
    assert together.scale == pytest.approx(np.nanstd(values[:, :2]), rel=1e-12)
    assert Scaling.standardizing(np.zeros((0, 3), np.int16)) == Scaling(0.0, 1.0)
    with pytest.raises(ValueError, match="infinity"):
        Scaling.standardizing(np.array([1.0, np.inf]))
    with pytest.raises(ValueError, match="`axis`"):
        Scaling.standardizing(values, axis=1)


@pytest.mark.parametrize(("shape", "dtype"), [((2**24,), np.int16), ((4096, 64, 64), np.uint8)])
def test_standardizing_and_hashing_take_little_memory(shape, dtype):
    """A double-precision copy of these would be 134 MB, a mask of them 17."""
    values = np.random.default_rng(5).integers(0, 100, shape, dtype)
    data = dataset(Ragged(values, [len(values)]))
    tracemalloc.start()
    scaling = Scaling.standardizing(values)
    data.sha256()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Blocks of 8 MB: one, its deviations, and masks.
    assert peak < 40e6
    assert scaling.offset == pytest.approx(values.mean(dtype=np.float64), rel=1e-12)
    assert scaling.scale == pytest.approx(values.std(dtype=np.float64), rel=1e-12)


def test_scaling_goes_there_and_back():
    columns = Scaling(np.array([1.0, -2.0]), np.array([0.5, 4.0]))
    frames = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    for xs in (frames, frames[0, 0], jnp.asarray(frames)):
        scaled = columns(xs)
        assert scaled.dtype == np.float32
        np.testing.assert_array_equal(scaled, (np.asarray(xs) - [1.0, -2.0]) / [0.5, 4.0])
        np.testing.assert_allclose(columns.restore(scaled), xs, rtol=1e-6)
    # Whole numbers are scaled as numbers, not rounded first.
    for whole in (np.array([1, 2], np.int16), jnp.array([1, 2]), [1, 2]):
        np.testing.assert_array_equal(Scaling(0.5, 2)(whole), np.array([0.25, 0.75], np.float32))
    assert Scaling(0.5, 2.0).restore(np.array([1, 2])).tolist() == [2.5, 4.5]
    assert Scaling(0.5, 2.0).restore(1.0) == 2.5


# The data set


def test_the_hash_is_of_every_number_and_of_nothing_else(tmp_path):
    values = np.arange(20, dtype=np.int16).reshape(10, 2)
    lengths = [4, 6]
    base = dataset(Ragged(values, lengths)).sha256()
    for place in np.ndindex(values.shape):
        changed = values.copy()
        changed[place] += 1
        assert dataset(Ragged(changed, lengths)).sha256() != base
        parts = [Ragged(values, lengths)] * 2 + [Ragged(changed, lengths)]
        assert Dataset("numbers", *parts, Family(Normal)).sha256() != base
    others = [
        dataset(Ragged(values, [6, 4])),
        dataset(Ragged(values, [10])),
        dataset(Ragged(values.astype(np.int32), lengths)),
        dataset(Ragged(values.reshape(10, 1, 2), lengths)),
        dataset(Ragged(values, lengths), scaling=Scaling(0.0, 2.0)),
        dataset(Ragged(values, lengths), rows_per_step=2),
    ]
    assert base not in [other.sha256() for other in others]
    Ragged(values, lengths).save(tmp_path)
    assert dataset(Ragged.open(tmp_path)).sha256() == base
    assert dataset(Ragged(np.asfortranarray(values), lengths)).sha256() == base
    wide = np.zeros((10, 4), np.int16)
    wide[:, ::2] = values
    assert (
        dataset(Ragged(wide[:, ::2], lengths), rate=25, names={"test": ("a", "b")}).sha256() == base
    )


def test_a_dataset_knows_its_observations():
    rows = Ragged(np.arange(11, dtype=np.int32), [7, 4])
    data = dataset(rows, scaling=Scaling(3.0, 0.5), rows_per_step=3, rate=16000)
    assert data.rate == 16000
    assert data.observation_shape == (3,)
    assert data.num_elements == 3
    xs = data.observations(data.train[0])
    np.testing.assert_array_equal(xs, (np.arange(6, dtype=np.float32).reshape(2, 3) - 3.0) / 0.5)
    assert data == data
    assert data != dataset(rows, scaling=Scaling(3.0, 0.5), rows_per_step=3, rate=16000)
    assert {data: 1}[data] == 1


@pytest.mark.usefixtures("plain_errors")
def test_a_bad_dataset_is_refused():
    rows = Ragged(np.zeros((4, 2)), [4])
    others = Ragged(np.zeros((4, 3)), [4])
    letters = Ragged(np.array(["a"] * 4), [4])
    both = (Family(Normal), Family(Bernoulli))
    cases = [
        (lambda: Dataset("d", rows, rows, others, Family(Normal)), "`test`", "[4, 3]", "[4, 2]"),
        (lambda: dataset(letters), "`train`", "numbers"),
        (lambda: dataset(rows, names={"test": ("a", "b")}), "`names['test']`", "got 2"),
        (lambda: dataset(rows, names={"tests": ("a",)}), "`split`", "'tests'"),
        (lambda: dataset(rows, columns=("a",)), "`columns`", "2 columns", "got 1"),
        (lambda: Dataset("d", others, others, others, both), "`family`", "3 columns", "got 2"),
        (lambda: dataset(rows, rows_per_step=0), "`rows_per_step`", "got 0"),
        (lambda: dataset(rows).split("training"), "`split`", "'training'"),
    ]
    for call, *words in cases:
        refuses(call, ValueError, *words)
