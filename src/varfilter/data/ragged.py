"""Sequences of different lengths as one array, in memory or mapped from the disk."""

import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from varfilter._arguments import kind
from varfilter._text import count


class Ragged(Sequence[np.ndarray]):
    """Sequences of different lengths, one after another in a single array.

    `values` has a row for each time step of the recording (a roll's column, a speech sample,
    a frame, a line of a table), stored as compactly as the files are (bytes, 16-bit integers);
    `lengths` says how many rows each sequence has. A memory-mapped `values` stays on the disk
    until a row is asked for.
    """

    def __init__(self, values: np.ndarray, lengths: Any):
        values, lengths = np.asanyarray(values), np.asarray(lengths)
        if values.ndim < 1:
            raise ValueError(f"`values` must have a row for each step; got {kind(values)}.")
        fits = lengths.ndim == 1 and (lengths.dtype.kind in "iu" or not lengths.size)
        if not fits or (lengths < 1).any() or lengths.sum() != len(values):
            raise ValueError(
                "`lengths` must be whole numbers, at least 1, that sum to the rows of `values`;"
                f" got {kind(lengths)} with the sum {lengths.sum()} for {len(values)} rows."
            )
        self.values = values
        self.lengths = lengths.astype(np.int64)
        self.offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])

    @staticmethod
    def of(sequences: Iterable[np.ndarray], like: np.ndarray | None = None) -> "Ragged":
        """Join arrays (time, ...); `like` gives the dtype and shape of a row if there are none."""
        arrays = [np.asarray(sequence) for sequence in sequences]
        if not arrays and like is None:
            raise _no_sequences()
        for number, array in enumerate(arrays):
            _require_rows(number, array, arrays[0])
        values = np.concatenate(arrays) if arrays else np.asarray(like)[:0]
        return Ragged(values, [len(array) for array in arrays])

    @staticmethod
    def write(
        sequences: Iterable[np.ndarray], folder: Path | str, like: np.ndarray | None = None
    ) -> "Ragged":
        """Write arrays (time, ...) to files one by one, and map them: memory need not hold all."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        first = None if like is None else np.asarray(like)
        lengths: list[int] = []
        # Under another name until it is whole: the old file, if any, may be mapped, even read here.
        unfinished = folder / "values.npy.unfinished"
        try:
            with open(unfinished, "wb") as file:
                for number, sequence in enumerate(sequences):
                    array = np.asarray(sequence)
                    if number == 0 or first is None:
                        first = array
                        _write_header(file, first, 0)
                    _require_rows(number, array, first, same_type=True)
                    array.tofile(file)
                    lengths.append(len(array))
                if first is None:
                    raise _no_sequences()
                file.seek(0)
                _write_header(file, first, sum(lengths))
            os.replace(unfinished, folder / "values.npy")
        finally:
            unfinished.unlink(missing_ok=True)
        np.save(folder / "lengths.npy", np.array(lengths, np.int64))
        return Ragged.open(folder)

    def save(self, folder: Path | str) -> None:
        """Write two files that `open` maps, for sets that do not fit in memory."""
        Ragged.write(self, folder, like=self.values)

    @staticmethod
    def open(folder: Path | str) -> "Ragged":
        """Map what `save` or `write` wrote; nothing is read until it is asked for."""
        folder = Path(folder)
        try:
            lengths = np.load(folder / "lengths.npy", allow_pickle=False)
            values = np.load(folder / "values.npy", mmap_mode="r", allow_pickle=False)
            return Ragged(values, lengths)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"`folder` must hold what `Ragged.save` wrote; there is no {error.filename}."
            ) from None
        except (OSError, ValueError, EOFError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise ValueError(
                f"{folder} holds damaged files ({reason}). Write them again."
            ) from None

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Any) -> Any:
        """One sequence; or, for a slice, a list of numbers or a mask, several as a `Ragged`.

        A single one and neighbours in their order are not copied.
        """
        if not isinstance(index, slice) and np.ndim(index) == 0:
            number = _whole(index)
            if not -len(self) <= number < len(self):
                raise IndexError(
                    f"`index` must be that of one of {count(len(self), 'sequence')}; got {number}."
                )
            number %= len(self)
            return self.values[self.offsets[number] : self.offsets[number + 1]]
        index = index if isinstance(index, slice | np.ndarray) else list(index)
        chosen = np.arange(len(self))[index]
        if chosen.size and (np.diff(chosen) == 1).all():
            first, last = chosen[0], chosen[-1] + 1
            rows = self.values[self.offsets[first] : self.offsets[last]]
            return Ragged(rows, self.lengths[first:last])
        return Ragged.of([self[number] for number in chosen.tolist()], like=self.values)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        shape = tuple(self.values.shape[1:])
        return (
            f"Ragged({count(len(self), 'sequence')}, {count(len(self.values), 'row')} of {shape})"
        )


def _whole(index: Any) -> int:
    try:
        return operator.index(index)
    except TypeError:
        raise TypeError(
            f"The index must be a whole number, a list of them or a slice; got {kind(index)}."
        ) from None


def _require_rows(
    number: int, array: np.ndarray, first: np.ndarray, *, same_type: bool = False
) -> None:
    """Raise an error unless a sequence has rows, and rows like those of the first sequence."""
    if array.ndim < 1 or not len(array):
        raise ValueError(
            f"`sequences` must have at least one row each; number {number} (counted from 0) is"
            f" {kind(array)}. Leave it out, with its name."
        )
    if array.shape[1:] != first.shape[1:] or (same_type and array.dtype != first.dtype):
        raise ValueError(
            f"`sequences` must have rows of the same kind; number {number} (counted from 0) is"
            f" {kind(array)}, the first {kind(first)}."
        )


def _no_sequences() -> ValueError:
    return ValueError("`sequences` is empty: a split needs at least one sequence.")


def _write_header(file: Any, row: np.ndarray, num_rows: int) -> None:
    """Write the header of a .npy file, in which numpy leaves room for any number of rows."""
    described = np.lib.format.header_data_from_array_1_0(row)
    header = described | {"fortran_order": False, "shape": (num_rows, *row.shape[1:])}
    np.lib.format.write_array_header_1_0(file, header)
