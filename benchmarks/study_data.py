"""Data sets in files that need neither soundfile nor PyAV: for machines that lack them.

`VARFILTER_DATA=... python benchmarks/study_data.py FOLDER timit-sample emodb weizmann`

writes FOLDER/prepared/NAME.zip for each, with the numbers as `varfilter` reads them, bit by bit,
and what else the data set says. With FOLDER as VARFILTER_DATA, `load_set` finds them. Music needs
no such files: its sets are read by NumPy.
"""

import argparse
import io
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = "prepared"


def main() -> None:
    """Prepare some named sets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="+", metavar="SET")
    given = parser.parse_args()
    for name in given.sets:
        path = prepare(name, given.folder)
        print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")


def prepare(name: str, folder: Path) -> Path:
    """Write a named set to a file of `folder`, and read it back to see that it is the same."""
    from varfilter.data.dataset import SPLITS
    from varfilter.media import load
    from varfilter.runs.run import data_record

    dataset = load(name)
    path = folder / FOLDER / f"{name}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
        names = {split: dataset.sequence_names(split) for split in SPLITS}
        file.writestr("record.json", json.dumps(data_record(dataset) | {"names": names}))
        for split in SPLITS:
            part = dataset.split(split)
            _write(file, f"{split}-lengths", np.asarray(part.lengths))
            # What changes from row to row is small: its bytes pack better.
            _write(file, f"{split}-changes", _planes(np.asarray(part.values)))
    if (found := load_prepared(path).sha256()) != dataset.sha256():
        raise ValueError(f"{path} holds other numbers than {name}: {found}.")
    return path


def load_set(source: Any) -> Any:
    """The data of an experiment: from a prepared file where there is one, else as ever."""
    from varfilter.media import load

    path = Path(os.environ.get("VARFILTER_DATA", ".")) / FOLDER / f"{source.source}.zip"
    return load_prepared(path) if path.exists() else load(source)


def load_prepared(path: Path) -> Any:
    """The data set of a prepared file."""
    from varfilter.data import Ragged
    from varfilter.data.dataset import SPLITS
    from varfilter.runs.run import data_template

    with zipfile.ZipFile(path) as file:
        record = json.loads(file.read("record.json"))
        parts = {}
        for split in SPLITS:
            shape = (record["rows"][split], *record["row_shape"])
            changes = _joined(_read(file, f"{split}-changes"), record["dtype"], shape)
            parts[split] = Ragged(changes, _read(file, f"{split}-lengths"))
    names = {split: tuple(own) for split, own in record["names"].items()}
    return replace(data_template(record), **parts, names=names)


def _planes(values: np.ndarray) -> np.ndarray:
    """The differences of following rows, modulo what the type holds: each of its bytes apart."""
    unsigned = np.dtype(f"<u{values.dtype.itemsize}")
    whole = values.view(unsigned)
    changes = np.diff(whole, axis=0, prepend=np.zeros_like(whole[:1]))
    return changes.view(np.uint8).reshape(-1, unsigned.itemsize).T.copy()


def _joined(planes: np.ndarray, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Undo `_planes`."""
    unsigned = np.dtype(f"<u{len(planes)}")
    changes = planes.T.copy().view(unsigned).reshape(shape)
    return np.cumsum(changes, axis=0, dtype=unsigned).view(dtype)


def _write(file: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array)
    file.writestr(f"{name}.npy", buffer.getvalue())


def _read(file: zipfile.ZipFile, name: str) -> np.ndarray:
    return np.load(io.BytesIO(file.read(f"{name}.npy")))


if __name__ == "__main__":
    main()
