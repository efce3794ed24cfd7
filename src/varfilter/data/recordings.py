"""Recordings decoded one by one: into memory, or into a folder that is mapped the next time."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.dataset import SPLITS
from varfilter.data.ragged import Ragged

# Part of the names of stored sets: raise it when recordings are decoded differently.
DECODING = 2


class Recording(NamedTuple):
    """A video or a sound: its files, the names of the sequences in it, and how to decode them.

    `read` gives (values, rate in a second or None) for each of the names.
    """

    files: tuple[Path, ...]
    names: tuple[str, ...]
    read: Callable[[], Sequence[tuple[np.ndarray, float | int | None]]]


class Decoded(NamedTuple):
    """The sequences by split, and their common rate: None if they have none."""

    parts: dict[str, Ragged]
    rate: float | int | None


def decoded(
    name: str,
    recordings: Mapping[str, Sequence[Recording]],
    row: np.ndarray,
    *,
    options: Sequence[Any] = (),
    cache: Path | str | None = None,
) -> Decoded:
    """Decode recordings of rows like `row`, by split, or map them from the folder `cache`.

    What is stored there is found again if neither the files nor the `options` have changed. It is
    written recording by recording: the set need not fit in memory.
    """
    if cache is None:
        rates: set[float | int | None] = set()
        parts = {s: Ragged.of(_values(recordings[s], rates), like=row) for s in SPLITS}
        return Decoded(parts, _common(rates))
    stored = Path(cache) / f"{name}-{_digest(recordings, [*options, str(row.dtype)])}"
    if not stored.is_dir():
        _store(stored, recordings, row)
    return _mapped(stored)


def names_of(recordings: Mapping[str, Sequence[Recording]]) -> dict[str, tuple[str, ...]]:
    """The names of the sequences of recordings, by split."""
    return {s: tuple(name for each in recordings[s] for name in each.names) for s in SPLITS}


def _values(
    recordings: Sequence[Recording], rates: set[float | int | None]
) -> Iterator[np.ndarray]:
    """Decode sequence by sequence; the rates of the sequences are added to `rates`."""
    for recording in recordings:
        for values, rate in recording.read():
            rates.add(rate)
            yield values
            del values  # else it is in memory while the next is read


def _common(rates: set[float | int | None]) -> float | int | None:
    """The rate of all recordings, if they have the same."""
    return next(iter(rates)) if len(rates) == 1 else None


def _digest(recordings: Mapping[str, Sequence[Recording]], options: list[Any]) -> str:
    """A hash of all that decides what a stored set holds, which is not where the files lie."""
    files = {
        split: [
            [each.names, [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in each.files]]
            for each in recordings[split]
        ]
        for split in SPLITS
    }
    text = json.dumps([DECODING, options, files])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _store(stored: Path, recordings: Mapping[str, Sequence[Recording]], row: np.ndarray) -> None:
    """Decode into another folder and then rename it: what has the name is whole."""
    stored.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=stored.parent, prefix=".decoding-") as scratch:
        rates: set[float | int | None] = set()
        for split in SPLITS:
            values = _values(recordings[split], rates)
            Ragged.write(values, Path(scratch) / "set" / split, like=row)
        text = json.dumps(_common(rates))
        (Path(scratch) / "set" / "rate.json").write_text(text, encoding="utf-8")
        try:
            (Path(scratch) / "set").rename(stored)
        except OSError:
            # Another process has decoded the same files meanwhile: its copy is as good.
            if not stored.is_dir():
                raise


def _mapped(stored: Path) -> Decoded:
    try:
        rate = json.loads((stored / "rate.json").read_text(encoding="utf-8"))
        return Decoded({split: Ragged.open(stored / split) for split in SPLITS}, rate)
    except (OSError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ValueError(
            f"`cache` holds a damaged copy in {stored} ({reason}). Delete that folder."
        ) from None
