"""Batches are the sequences: each window inside one, each step once, whatever loads them."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from itertools import islice
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
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
from varfilter.distributions import Bernoulli, Normal

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("VARFILTER_DATA", ROOT.parent / "shared" / "data"))
KEY = jax.random.key(7)


@pytest.fixture
def plain_errors():
    """Without the type checker of `conftest.py`, which refuses wrong types in its own words."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


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
    bounds = []
    for xs, mask in zip(batch.xs, batch.mask, strict=True):
        _, filtered = vf.run(filter, model, xs, KEY, mask=mask)
        bounds.append(float(filtered.bound.sum()))
    # The same sums in the same order, by two programs: some roundings of 6e-8.
    for number in range(2):
        _, filtered = vf.run(filter, model, data.test[number], KEY)
        assert bounds[number] == pytest.approx(float(filtered.bound.sum()), rel=1e-6)
    assert bounds[2] == 0.0
    learner = vf.EndToEnd(theta=optax.sgd(1e-3), phi=None)
    _, metrics = learner.update(learner.init(model, filter), batch.xs, KEY, mask=batch.mask)
    assert float(metrics.free_energy) == pytest.approx(-sum(bounds) / 20, rel=1e-6)


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


# Ragged sequences


def test_ragged_gives_its_sequences():
    arrays = [np.arange(n * 2).reshape(n, 2) + 100 * n for n in (3, 1, 4, 2)]
    ragged = Ragged.of(arrays)
    assert len(ragged) == 4
    assert repr(ragged) == "Ragged(4 sequences, 10 rows of (2,))"
    for found in (list(ragged), [ragged[i] for i in range(4)], [ragged[i - 4] for i in range(4)]):
        for sequence, array in zip(found, arrays, strict=True):
            np.testing.assert_array_equal(sequence, array)
    some = {
        "slice": (ragged[1:3], [1, 2]),
        "backwards": (ragged[::-1], [3, 2, 1, 0]),
        "list": (ragged[[3, 0]], [3, 0]),
        "tuple": (ragged[(-1,)], [3]),
        "array": (ragged[np.array([2, 3])], [2, 3]),
        "mask": (ragged[ragged.lengths > 1], [0, 2, 3]),
        "nothing": (ragged[[]], []),
        "empty slice": (ragged[3:1], []),
    }
    for found, numbers in some.values():
        assert isinstance(found, Ragged)
        assert found.lengths.tolist() == [len(arrays[n]) for n in numbers]
        assert found.values.shape[1:] == (2,)
        for sequence, number in zip(found, numbers, strict=True):
            np.testing.assert_array_equal(sequence, arrays[number])
    # Neighbours are not copied: a part of a mapped set is mapped.
    for view in (ragged[2], ragged[1:3].values, ragged[[2, 3]].values):
        assert np.shares_memory(view, ragged.values)
    assert len(Ragged.of([], like=ragged.values)) == 0


@pytest.mark.usefixtures("plain_errors")
def test_bad_sequences_are_refused():
    rows = np.zeros((5, 2))
    for lengths in ([2, 2], [5, 0], [6, -1], [2.5, 2.5], [[2, 3]], [True] * 5):
        refuses(lambda n=lengths: Ragged(rows, n), ValueError, "`lengths`", "5 rows")
    refuses(lambda: Ragged(np.array(1.0), [1]), ValueError, "`values`")
    refuses(lambda: Ragged.of([]), ValueError, "`sequences` is empty")
    # Left out silently, it would shift all names after it.
    refuses(lambda: Ragged.of([rows, rows[:0]]), ValueError, "number 1", "at least one row")
    refuses(lambda: Ragged.of([rows, rows[:, :1]]), ValueError, "number 1", "[5, 1]")
    ragged = Ragged(rows, [2, 3])
    refuses(lambda: ragged[2], IndexError, "2 sequences", "index 2")
    refuses(lambda: ragged[1.0], TypeError, "index", "`1.0`")
    refuses(lambda: ragged["a"], TypeError, "index")


def test_sequences_go_to_the_disk_one_by_one(tmp_path):
    random = np.random.default_rng(3)
    arrays = [random.normal(size=(n, 3)).astype(np.float32) for n in (4, 1, 7)]
    alive = []

    def sequences():
        for number, array in enumerate(arrays):
            alive.append(number)
            yield np.asfortranarray(array)

    made = Ragged.write(sequences(), str(tmp_path / "a" / "b"))
    assert alive == [0, 1, 2]
    opened = Ragged.open(tmp_path / "a" / "b")
    for ragged in (made, opened):
        assert isinstance(ragged.values, np.memmap)
        assert isinstance(ragged[1:].values, np.memmap)
        assert not ragged.values.flags.writeable
        np.testing.assert_array_equal(ragged.values, np.concatenate(arrays))
        assert ragged.lengths.tolist() == [4, 1, 7]
    # Over itself: what is mapped stays readable, and nothing is lost.
    opened[[2, 0]].save(tmp_path / "c")
    opened[1:].save(tmp_path / "a" / "b")
    np.testing.assert_array_equal(made.values, np.concatenate(arrays))
    np.testing.assert_array_equal(
        Ragged.open(tmp_path / "a" / "b").values, np.concatenate(arrays[1:])
    )
    np.testing.assert_array_equal(Ragged.open(tmp_path / "c")[1], arrays[0])
    Ragged.of([], like=arrays[0]).save(tmp_path / "empty")
    assert Ragged.open(tmp_path / "empty").values.shape == (0, 3)
    # The file is what numpy itself would have written.
    made.save(tmp_path / "d")
    np.save(tmp_path / "plain.npy", made.values)
    written = (tmp_path / "d" / "values.npy").read_bytes()
    assert written == (tmp_path / "plain.npy").read_bytes()


@pytest.mark.usefixtures("plain_errors")
def test_a_bad_file_is_named_and_a_failure_loses_nothing(tmp_path):
    good = Ragged.of([np.arange(5), np.arange(3)])
    good.save(tmp_path)

    def failing():
        yield np.arange(4)
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        Ragged.write(failing(), tmp_path)
    mixed = [np.arange(4), np.arange(4.0)]
    refuses(lambda: Ragged.write(mixed, tmp_path), ValueError, "number 1", "float64")
    refuses(lambda: Ragged.write([], tmp_path), ValueError, "`sequences` is empty")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lengths.npy", "values.npy"]
    np.testing.assert_array_equal(Ragged.open(tmp_path).values, good.values)
    refuses(lambda: Ragged.open(tmp_path / "no"), FileNotFoundError, str(tmp_path / "no"))
    np.save(tmp_path / "lengths.npy", np.array([5, 4]))
    refuses(lambda: Ragged.open(tmp_path), ValueError, str(tmp_path), "damaged", "8 rows")
    good.save(tmp_path)
    whole = (tmp_path / "values.npy").read_bytes()
    for part in (whole[:-8], whole[:20], b""):
        (tmp_path / "values.npy").write_bytes(part)
        refuses(lambda: Ragged.open(tmp_path), ValueError, str(tmp_path), "damaged")
    np.save(tmp_path / "values.npy", np.array([{}] * 8), allow_pickle=True)
    refuses(lambda: Ragged.open(tmp_path), ValueError, str(tmp_path), "damaged")


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
    data = numbered([7, 4], rows_per_step=3, rate=16000)
    assert data.rate == 16000
    assert data.observation_shape == (3,)
    assert data.num_elements == 3
    xs = data.observations(data.train[0])
    np.testing.assert_array_equal(xs, (np.arange(6, dtype=np.float32).reshape(2, 3) - 3.0) / 0.5)
    assert data == data
    assert data != numbered([7, 4])
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


# The benchmark


def run_benchmark(*arguments, **variables):
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "data.py"), "--quick", *map(str, arguments)],
        env=os.environ | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_the_benchmark_times_every_loader(tmp_path):
    """What it reports, not how fast it was."""
    path = tmp_path / "data.json"
    done = run_benchmark("--json", path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text())
    found = {(row["set"], row["loader"]): row["shape"] for row in rows}
    expected = {("table", "windows on the device"): "32x50x8"}
    if DATA.is_dir():
        shapes = {"jsb_chorales": "16x25x88", "nottingham": "16x25x88"}
        expected |= {(name, "windows on the device"): shape for name, shape in shapes.items()}
        shapes = {"timit-sample": "64x40x200", "weizmann": "20x21x1x64x64"}
        workers = ("1 worker", "2 workers", "4 workers", "2, cold")
        loaders = ["windows on the device", "fixed windows", *(f"mapped, {n}" for n in workers)]
        expected |= {(name, loader): shapes[name] for name in shapes for loader in loaders}
    assert found.items() >= expected.items()
    for row in rows:
        assert row["batches_per_second"] == pytest.approx(1e3 / row["batch_ms"])
        assert row["ratio"] == pytest.approx(row["update_ms"] / row["batch_ms"])
        assert row["ratio"] > 0
        assert f"{row['set']}: an update of DeepMarkov" in done.stdout


def test_the_benchmark_leaves_absent_sets_out(tmp_path):
    done = run_benchmark("jsb_chorales", "weizmann", VARFILTER_DATA=str(tmp_path))
    assert done.returncode == 0, done.stderr
    for name in ("jsb_chorales", "weizmann"):
        assert f"{name} is left out: " in done.stdout
    assert str(tmp_path) in done.stdout


@pytest.fixture
def benchmark(monkeypatch):
    """`benchmarks/data.py` as a module."""
    place = ROOT / "benchmarks" / "data.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_data", place)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "benchmark_of_data", module)
    spec.loader.exec_module(module)
    return module


def test_the_benchmark_counts_no_batch_twice(benchmark, monkeypatch):
    """A loader that has two batches makes them again and again; none is kept and replayed."""
    made = []
    for name in ("consecutive_windows", "whole_sequences"):
        loader = getattr(benchmark, name)

        def counted(*arguments, loader=loader, name=name):
            for item in loader(*arguments):
                made.append(name)
                yield item

        monkeypatch.setattr(benchmark, name, counted)
    subject = benchmark.Subject(None, 4, 2, None)
    rows = {
        row["loader"]: row for row in benchmark.loaders(numbered([9] * 2), subject, quick=False)
    }
    assert set(rows) == {"windows on the device", "fixed windows", "whole sequences"}
    # A round to compile and five that count, each of all its batches.
    assert rows["fixed windows"]["num_batches"] == 50
    assert made.count("consecutive_windows") == made.count("whole_sequences") == 300


def test_the_benchmark_forgets_the_file_when_nobody_maps_it(benchmark, monkeypatch, tmp_path):
    def maps():
        try:
            return Path("/proc/self/maps").read_text().count("values.npy")
        except OSError:
            pytest.skip("needs /proc")

    found = []
    monkeypatch.setattr(benchmark, "forget", lambda path: found.append(maps()))
    subject = benchmark.Subject(None, 4, 2, None, is_mapped=True)
    rows = list(benchmark.loaders(numbered([9] * 5), subject, quick=True))
    (cold,) = (row for row in rows if row["loader"] == "mapped, 2, cold")
    assert cold["num_batches"] == 3  # an epoch
    assert found == [0] * 6


def test_the_benchmark_fails_if_a_loader_is_slow(benchmark, monkeypatch, capsys):
    row = {"loader": "fixed windows", "shape": "1x1", "batches_per_second": 1.0, "batch_ms": 1e3}
    monkeypatch.setattr(benchmark, "loaders", lambda *_, **__: iter([row]))
    monkeypatch.setattr(sys, "argv", ["data.py", "table"])

    def with_update(milliseconds):
        timed = {"model": "DeepMarkov", "update_ms": milliseconds, "update_batch": 1}
        monkeypatch.setattr(benchmark, "update", lambda *_, **__: timed)
        benchmark.main()

    with_update(2e3)
    with pytest.raises(SystemExit, match="Slower than the update: table, fixed windows"):
        with_update(5e2)
    assert "update/batch" in capsys.readouterr().out
