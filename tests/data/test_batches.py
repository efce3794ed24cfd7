"""Batches are the sequences: each window inside one, each step once, whatever loads them."""

import os
import threading
from itertools import islice
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import chisquare

import varfilter as vf
import worlds
from refusals import refuses
from varfilter.data import (
    Dataset,
    Family,
    Ragged,
    RandomWindows,
    Scaling,
    consecutive_windows,
    prefetched,
    whole_sequences,
)
from varfilter.distributions import Normal

KEY = jax.random.key(7)


def dataset(ragged, **options):
    """The same sequences in each split."""
    return Dataset("numbers", ragged, ragged, ragged, Family(Normal), **options)


def numbered(lengths, **options):
    """Every row holds its number, so that a batch tells where it came from."""
    values = np.arange(sum(lengths), dtype=np.int32)
    return dataset(Ragged(values, lengths), scaling=Scaling(3.0, 0.5), **options)


def rows_of(batch):
    """The numbers of the rows of each window of a `numbered` set."""
    return np.rint(np.asarray(batch.xs) * 0.5 + 3.0).astype(int).reshape(len(batch.xs), -1)


def sequence_of(lengths, rows):
    return np.searchsorted(np.cumsum(lengths), rows, side="right")


# Random windows


def test_windows_are_the_scaled_rows_of_one_sequence():
    lengths = [5, 9, 3, 4, 12]
    windows = RandomWindows(numbered(lengths), 4, 3)
    assert windows.num_batches == 2
    for step in range(12):
        batch = windows.windows(step, KEY)
        assert batch.xs.shape == (3, 4)
        assert batch.xs.dtype == jnp.float32
        assert batch.mask.all()
        rows = rows_of(batch)
        np.testing.assert_array_equal(np.diff(rows, axis=1), 1)
        np.testing.assert_array_equal(rows[:, 0], windows.places(step, KEY))
        owners = sequence_of(lengths, rows)
        assert (owners == owners[:, :1]).all()
        assert not (owners == 2).any()  # three rows are less than a window
        np.testing.assert_array_equal(batch.xs, (rows.astype(np.float32) - 3.0) / 0.5)


@pytest.mark.parametrize(("count", "batch_size"), [(7, 3), (6, 3), (2, 5)])
def test_an_epoch_has_each_sequence_once_and_is_filled_up(count, batch_size):
    windows = RandomWindows(numbered([6] * count), 4, batch_size)
    orders = set()
    for epoch in range(8):
        steps = range(epoch * windows.num_batches, (epoch + 1) * windows.num_batches)
        rows = np.concatenate([rows_of(windows.windows(step, KEY)) for step in steps])
        order = rows[:, 0] // 6
        assert len(order) == -(-count // batch_size) * batch_size
        assert sorted(order[:count]) == list(range(count))
        # The rest are those that the epoch began with.
        np.testing.assert_array_equal(order, np.resize(order[:count], len(order)))
        orders.add(tuple(order[:count]))
    # Of 8 random orders of 6 or 7 sequences all differ, but for a chance of 4% or 0.6%.
    assert len(orders) == (2 if count == 2 else 8)


def test_windows_start_at_any_place_alike():
    lengths = [10, 4, 7]
    windows = RandomWindows(numbered(lengths), 4, 96)
    places = jax.vmap(lambda step: windows.places(step, KEY))(jnp.arange(40))
    counts = np.bincount(np.asarray(places).ravel(), minlength=21)
    allowed = np.array([1] * 7 + [0] * 3 + [1] + [0] * 3 + [1] * 4 + [0] * 3)
    assert (counts[allowed == 0] == 0).all()
    assert counts[10] == 32 * 40  # the only place of the second sequence
    for some in (counts[:7], counts[14:18]):
        assert some.sum() == 32 * 40
        assert chisquare(some).pvalue > 0.001


def test_windows_of_long_sequences_start_at_any_place_alike():
    """A float32 in [0, 1) has 24 bits: times 2**30 it would be a multiple of 64."""
    length = 2**30 + 9
    rows = np.broadcast_to(np.int8(0), (length,))
    windows = RandomWindows(dataset(Ragged(rows, [length])), 10, 8192, on_device=False)
    places = np.asarray(windows.places(0, KEY))
    assert places.min() >= 0
    assert places.max() <= length - 10
    assert chisquare(np.bincount(places % 64, minlength=64)).pvalue > 0.001
    assert chisquare(np.bincount(places * 64 // (length - 9), minlength=64)).pvalue > 0.001


def test_frames_of_sound_start_at_any_sample():
    lengths = [31, 14, 22]
    windows = RandomWindows(numbered(lengths, rows_per_step=5), 3, 3)
    assert windows.observation_shape == (5,)
    remainders = set()
    for step in range(30):
        batch = windows.windows(step, KEY)
        assert batch.xs.shape == (3, 3, 5)
        rows = rows_of(batch)
        np.testing.assert_array_equal(np.diff(rows, axis=1), 1)
        assert set(sequence_of(lengths, rows).ravel()) == {0, 2}
        remainders |= set(rows[:, 0] % 5)
    assert remainders == set(range(5))


def test_a_batch_depends_on_step_and_key_alone():
    windows = RandomWindows(numbered([9, 8, 20, 11, 15]), 4, 2)
    # One window, and another object made of the same data: as after a restart.
    again = RandomWindows(numbered([9, 8, 20, 11, 15]), 4, 2)
    loop = [windows.windows(step, KEY).xs for step in range(9)]
    np.testing.assert_array_equal(again.windows(7, KEY).xs, loop[7])
    np.testing.assert_array_equal(windows.windows(np.int64(7), KEY).xs, loop[7])
    traced = []

    @eqx.filter_jit
    def compiled(windows, step, key):
        traced.append(step)
        return windows.windows(step, key)

    for step in range(9):
        np.testing.assert_array_equal(compiled(windows, jnp.asarray(step), KEY).xs, loop[step])
    assert len(traced) == 1

    def body(key, step):
        return key, windows.windows(step, key).xs

    _, scanned = jax.lax.scan(body, KEY, jnp.arange(9))
    np.testing.assert_array_equal(scanned, np.stack(loop))
    other = np.stack([windows.windows(step, jax.random.key(8)).xs for step in range(9)])
    assert not np.array_equal(other, scanned)


def test_windows_are_compiled_once(monkeypatch):
    traced = []
    batch = RandomWindows.batch
    monkeypatch.setattr(RandomWindows, "batch", lambda s, rows: traced.append(1) or batch(s, rows))
    windows = RandomWindows(numbered([9, 8, 21]), 5, 2)
    for step in range(6):
        windows.windows(step, KEY)
    assert len(traced) == 1


def test_missing_values_pass_through():
    values = np.arange(24, dtype=np.float32).reshape(12, 2)
    values[3, 1] = values[7] = np.nan
    data = dataset(Ragged(values, [12]), scaling=Scaling(np.array([1.0, 2.0]), np.array([4.0, 8])))
    expected = (values - [1.0, 2.0]) / [4.0, 8.0]
    np.testing.assert_array_equal(RandomWindows(data, 12, 1).windows(0, KEY).xs[0], expected)
    np.testing.assert_array_equal(consecutive_windows(data, 12, 1)[0].xs[0], expected)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.uint64, np.float16, np.float64])
def test_every_kind_of_number_is_read_alike_everywhere(dtype):
    """Devices have no 64-bit numbers; cutting one to 32 bits would wrap 2**40 to 0."""
    values = np.array([0, 1, 1, 0, 1, 0, 0, 1], dtype)
    if np.dtype(dtype).itemsize > 4:
        values = values * np.asarray(2**40, dtype)
    data = dataset(Ragged(values, [8]), scaling=Scaling(0.5, 2.0))
    expected = (values.astype(np.float32) - 0.5) / 2.0
    np.testing.assert_array_equal(data.observations(values), expected)
    for on_device in (True, False):
        windows = RandomWindows(data, 8, 1, on_device=on_device)
        np.testing.assert_array_equal(windows.windows(0, KEY).xs[0], expected)


@pytest.mark.usefixtures("plain_errors")
def test_bad_windows_are_refused():
    data = numbered([9, 8], rows_per_step=2)
    long = Ragged(np.broadcast_to(np.int8(0), (2**31,)), [2**30, 2**30])
    longer = Ragged(long.values, [2**31])
    cases = [
        (lambda: RandomWindows(data, 5, 2), "`num_steps` is 5", "'numbers' (train) has 4 steps"),
        (lambda: RandomWindows(data, 0, 2), "`num_steps`", "got 0"),
        (lambda: RandomWindows(data, 2, 1.5), "`batch_size`", "got 1.5"),
        (lambda: RandomWindows(data, 2, 2, split="tests"), "`split`", "'tests'"),
        (lambda: RandomWindows(dataset(long), 2, 2), "2147483648 rows", "`on_device=False`"),
        (lambda: RandomWindows(dataset(longer), 2, 2, on_device=False), "2147483648", "Split it"),
        (lambda: consecutive_windows(data, 2, 0), "`batch_size`"),
        (lambda: whole_sequences(data, 2, growth=1.0), "`growth`", "got 1.0"),
        (lambda: whole_sequences(data, 2, split="all"), "`split`"),
        (lambda: prefetched(RandomWindows(data, 2, 2), KEY, num_workers=0), "`num_workers`"),
        (lambda: prefetched(RandomWindows(data, 2, 2), KEY, first_step=-1), "`first_step`", "-1"),
    ]
    for call, *words in cases:
        refuses(call, ValueError, *words)
    windows = RandomWindows(data, 2, 2)
    refuses(lambda: windows.windows(0, 5), TypeError, "`key`", "got `5`")
    refuses(lambda: prefetched(windows, 5), TypeError, "`key`")
    on_host = RandomWindows(data, 2, 2, on_device=False)
    compiled = jax.jit(lambda step: on_host.windows(step, KEY))
    refuses(lambda: compiled(0), TypeError, "`prefetched`", "`on_device=True`")


# Fixed windows and whole sequences


@pytest.mark.parametrize("num_steps", [1, 2, 4, 50])
def test_fixed_windows_have_every_step_once(num_steps):
    lengths = np.array([2, 15, 9, 27, 3, 24, 4])
    data = numbered(lengths, rows_per_step=3)
    batches = consecutive_windows(data, num_steps, 3)
    steps = lengths // 3
    rest = steps % num_steps
    left_out = rest == 1 if num_steps > 1 else np.zeros(7, bool)
    expected = [
        row
        for begin, num, out in zip(np.cumsum(lengths) - lengths, steps, left_out, strict=True)
        for row in range(begin, begin + 3 * (num - out))
    ]
    seen = [rows_of(batch)[np.repeat(batch.mask, 3, axis=1)] for batch in batches]
    assert np.concatenate(seen).tolist() == expected
    for batch in batches:
        xs, mask = np.asarray(batch.xs), np.asarray(batch.mask)
        assert xs.shape == (3, num_steps, 3)
        assert (xs[~mask] == 0.0).all()
        assert (np.diff(mask.astype(int), axis=1) <= 0).all()  # padding comes last
    # The same at every validation.
    for batch, again in zip(batches, batches, strict=True):
        np.testing.assert_array_equal(batch.xs, again.xs)
    assert len(batches) == len(list(batches))
    np.testing.assert_array_equal(batches[-1].xs, list(batches)[-1].xs)
    assert len(batches[:1]) == 1
    with pytest.raises(IndexError):
        batches[len(batches)]


def test_whole_sequences_are_whole_and_little_padded():
    random = np.random.default_rng(0)
    lengths = np.concatenate([random.integers(1, 4000, 300), [1, 3, 4, 5, 40, 4000]])
    data = numbered(lengths, rows_per_step=4)
    begins = np.cumsum(lengths) - lengths
    found, sizes = [], set()
    for numbers, batch in whole_sequences(data, 4, growth=1.25):
        xs, mask = np.asarray(batch.xs), np.asarray(batch.mask)
        assert xs.shape[:2] == mask.shape
        assert mask.shape[0] == 4
        sizes.add(mask.shape[1])
        assert (xs[~mask] == 0.0).all()
        rows = rows_of(batch)
        for number, place, row in zip(numbers, mask, rows, strict=True):
            steps = place.sum()
            assert place[:steps].all()
            if number < 0:
                assert steps == 0
                continue
            assert steps == lengths[number] // 4
            np.testing.assert_array_equal(row[: steps * 4], begins[number] + np.arange(steps * 4))
            # Rounded up from less than its own length.
            assert len(place) <= max(8, (steps - 1) * 1.25 + 1)
            found.append(number)
    assert sorted(found) == np.flatnonzero(lengths >= 4).tolist()
    # 8 times 1.25^n reaches 1000 steps with n = 22.
    assert 15 < len(sizes) <= 23
    *_, only = whole_sequences(data, len(lengths), growth=1000)
    assert only[1].xs.shape == (len(lengths), 8000, 4)


def test_padding_does_not_change_the_free_energy():
    model, filter = worlds.scalar_world(), vf.KalmanFilter()
    values = np.random.default_rng(1).normal(size=(20, 1)).astype(np.float32)
    data = dataset(Ragged(values, [10, 10]))
    ((numbers, batch),) = whole_sequences(data, 3, growth=1.5)
    assert numbers.tolist() == [0, 1, -1]
    assert batch.mask.sum(axis=1).tolist() == [10, 10, 0]
    assert batch.mask.shape == (3, 12)

    def bound(xs, mask=None):
        return vf.run(filter, model, xs, KEY, mask=mask)[1].bound.sum()

    bounds = np.asarray(eqx.filter_jit(jax.vmap(bound))(batch.xs, batch.mask))
    # The same sums in the same order, by two programs: some roundings of 6e-8.
    unpadded = eqx.filter_jit(jax.vmap(bound))(jnp.asarray(values.reshape(2, 10, 1)))
    np.testing.assert_allclose(bounds[:2], unpadded, rtol=1e-6)
    assert bounds[2] == 0.0
    learner = vf.EndToEnd(theta=optax.sgd(1e-3), phi=None)
    _, metrics = learner.update(learner.init(model, filter), batch.xs, KEY, mask=batch.mask)
    assert float(metrics.free_energy) == pytest.approx(-bounds.sum() / 20, rel=1e-6)


# Sets on the disk


@pytest.fixture
def on_disk(tmp_path):
    """A set of frames, mapped, and the same in memory."""
    random = np.random.default_rng(2)
    ragged = Ragged(random.integers(0, 256, (60, 1, 3, 2), np.uint8), [13, 8, 20, 4, 15])
    ragged.save(tmp_path / "frames")
    mapped = Ragged.open(tmp_path / "frames")
    return tuple(dataset(r, scaling=Scaling(0.0, 255.0)) for r in (mapped, ragged))


@pytest.mark.parametrize("num_workers", [1, 2, 4])
@pytest.mark.parametrize("first_step", [0, 5])
def test_prefetching_changes_no_number(on_disk, num_workers, first_step):
    mapped, in_memory = on_disk
    windows = RandomWindows(mapped, 5, 3, on_device=False)
    assert isinstance(windows.values, np.memmap)
    on_device = RandomWindows(in_memory, 5, 3)
    options = {"first_step": first_step, "num_workers": num_workers}
    batches = prefetched(windows, KEY, **options)
    others = prefetched(on_device, KEY, num_ahead=1, **options)
    # Seven steps are three epochs and a half.
    steps = range(first_step, first_step + 7)
    for step, batch, other in zip(steps, batches, others, strict=False):
        expected = on_device.windows(step, KEY)
        assert batch.xs.shape == (3, 5, 1, 3, 2)
        for found in (batch, other, windows.windows(step, KEY)):
            np.testing.assert_array_equal(found.xs, expected.xs)
            np.testing.assert_array_equal(found.mask, expected.mask)
    batches.close()
    others.close()


def prefetching_threads():
    return [t for t in threading.enumerate() if t.name.startswith("varfilter-prefetch")]


def test_closing_ends_the_workers(on_disk):
    windows = RandomWindows(on_disk[0], 5, 3, on_device=False)
    batches = prefetched(windows, KEY, num_workers=3)
    next(batches)
    assert prefetching_threads()
    batches.close()
    assert not prefetching_threads()
    for _ in zip(range(2), prefetched(windows, KEY), strict=False):
        pass  # left in the middle, and forgotten
    assert not prefetching_threads()


def test_an_error_of_a_worker_reaches_the_caller(on_disk, monkeypatch):
    read = RandomWindows.read
    calls = []

    def failing(self, chosen, first):
        calls.append(1)
        if len(calls) == 3:
            raise OSError("the disk is gone")
        return read(self, chosen, first)

    monkeypatch.setattr(RandomWindows, "read", failing)
    windows = RandomWindows(on_disk[0], 5, 3, on_device=False)
    batches = prefetched(windows, KEY, num_workers=1)
    next(batches)
    next(batches)
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)
    assert not prefetching_threads()


def test_workers_read_ahead_and_no_further(on_disk, monkeypatch):
    read = RandomWindows.read
    calls, done = [], threading.Event()

    def counted(self, chosen, first):
        rows = read(self, chosen, first)
        calls.append(1)
        if len(calls) == 4:
            done.set()
        return rows

    monkeypatch.setattr(RandomWindows, "read", counted)
    batches = prefetched(RandomWindows(on_disk[0], 5, 3, on_device=False), KEY, num_ahead=3)
    next(batches)
    assert done.wait(10)  # three more than were asked for, while the caller does nothing
    batches.close()
    assert len(calls) == 4


def test_a_large_set_is_read_by_the_window(tmp_path):
    """More rows than 32 bits count: 5.4 GB of zeros, which take no place on the disk."""
    lengths = np.array([2**29, 50, 2**31 - 50])
    shape = (int(lengths.sum()),)
    values = np.lib.format.open_memmap(tmp_path / "values.npy", "w+", np.int16, shape)
    values[2**29 : 2**29 + 50] = np.arange(50)
    values.flush()
    np.save(tmp_path / "lengths.npy", lengths)
    ragged = Ragged.open(tmp_path)
    windows = RandomWindows(dataset(ragged), 40, 3, on_device=False)
    before = resident_bytes()
    last = 0
    for step, batch in enumerate(islice(prefetched(windows, KEY), 8)):
        places = windows.places(step, KEY)
        assert places.dtype == np.int64
        owners = sequence_of(lengths, places)
        assert sorted(owners) == [0, 1, 2]
        assert (sequence_of(lengths, places + 39) == owners).all()
        (row,) = np.flatnonzero(owners == 1)
        np.testing.assert_array_equal(batch.xs[row], places[row] - 2**29 + np.arange(40))
        last = max(last, places.max())
    assert last > 2**31
    assert isinstance(windows.values, np.memmap)
    # Some compiled programs.
    assert resident_bytes() - before < 200e6


def resident_bytes():
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        pytest.skip("needs /proc")
    return pages * os.sysconf("SC_PAGE_SIZE")
