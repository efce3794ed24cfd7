"""Ragged sequences: in memory and on the disk, whole and damaged."""

import numpy as np
import pytest

from refusals import refuses
from varfilter.data import (
    Ragged,
)


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
    refuses(lambda: ragged[2], IndexError, "`index`", "2 sequences", "got 2")
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
