"""A run: a folder that holds an experiment, its metrics and its checkpoints."""

import functools
import json
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from varfilter import __version__, distributions
from varfilter._files import written
from varfilter.data.dataset import SPLITS, Dataset, Family, Scaling
from varfilter.data.ragged import Ragged
from varfilter.devices import is_first_process
from varfilter.experiments.experiment import Experiment, as_json, differences, from_json
from varfilter.filters import AbstractFilter
from varfilter.media import AbstractMedium, load, medium_of
from varfilter.model import AbstractModel
from varfilter.training.checkpoints import (
    Checkpoint,
    kept_checkpoints,
    load_checkpoint,
    read_manifest,
    save_checkpoint,
)

VERSION = 1
# What may differ when a run is resumed: it changes nothing of what was done so far.
MAY_DIFFER = ("schedule.num_epochs", "schedule.patience_epochs", "published")
# What the source of data is called that came from memory, and not from a file.
IN_MEMORY = "<frame>"


class Trained(NamedTuple):
    """What a run has learned, at `step`; `valid` is its score on the validation part."""

    model: AbstractModel
    filter: AbstractFilter
    step: int
    valid: float | None


class Run:
    """The folder of a run.

    - `run.json`: the experiment, what is known of its data, versions, the revision.
    - `metrics.jsonl`: a line for each epoch that was validated.
    - `checkpoints/`: the last few, to go on from. `best.safetensors`: the best by validation.
    """

    def __init__(self, folder: Path, experiment: Experiment, record: dict[str, Any]):
        self.folder = folder
        self.experiment = experiment
        self.record = record

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.experiment.name})"

    @classmethod
    def load(cls, folder: str | Path) -> "Run":
        """Load a run that was started earlier, here or elsewhere."""
        folder = Path(folder).expanduser()
        path = folder / "run.json"
        if not path.is_file():
            what = "has no run.json" if folder.is_dir() else "does not exist"
            what = "is a file" if folder.is_file() else what
            raise FileNotFoundError(
                f"`folder` {str(folder)!r} is not the folder of a run: it {what}. Make one with"
                " `varfilter train EXPERIMENT --out FOLDER`."
            )
        with _damaged(path, ValueError):
            record = json.loads(path.read_text(encoding="utf-8"))
            version = record["version"]
        if version != VERSION:
            raise ValueError(
                f"{str(path)!r} has version {version} of a run; this varfilter reads version"
                f" {VERSION}. Update varfilter."
            )
        with _damaged(path, ValueError):
            medium = medium_of(data_template(record["data"])).name
        with _damaged(path):  # what is wrong with a setting, it says itself
            return cls(folder, from_json(record["experiment"], medium), record)

    @classmethod
    def begin(cls, folder: str | Path, experiment: Experiment, dataset: Dataset) -> "Run":
        """A new run in `folder`, or the one that is there, if it is of the same experiment.

        Of several processes the first alone writes.
        """
        folder = Path(folder).expanduser()
        if (folder / "run.json").exists():
            run = cls.load(folder)
            # One that stopped before it had anything to keep, over a wrong setting perhaps, is
            # in nobody's way.
            if run.has_learned:
                run._require_same(experiment, dataset)
                resumed = cls(folder, experiment, run.record | {"experiment": as_json(experiment)})
                if resumed.record != run.record:
                    resumed._write(resumed.record)
                return resumed
        record = {
            "version": VERSION,
            "experiment": as_json(experiment),
            "data": data_record(dataset),
            "notes": list(dataset.notes),
            "begun": datetime.now(UTC).isoformat(timespec="seconds"),
            **surroundings(),
        }
        run = cls(folder, experiment, record)
        if is_first_process():
            _make(folder)
        run._write(record)
        return run

    @functools.cached_property
    def dataset(self) -> Dataset:
        """The run's data, read again; an error if they are no longer what they were."""
        if self.experiment.data.source == IN_MEMORY:
            raise ValueError(
                "These data were a table in memory, not a file: they cannot be read again. Fit"
                " anew, or filter other data with the run."
            )
        try:
            dataset = load(self.experiment.data)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"The data of the run {str(self.folder)!r} are not where they were. {error} Put"
                " them back there; other data can be filtered without them."
            ) from None
        self._require_data(dataset)
        return dataset

    @functools.cached_property
    def template(self) -> Dataset:
        """The run's data without the numbers: enough to build the model and to read others."""
        return data_template(self.record["data"])

    @property
    def medium(self) -> AbstractMedium:
        """What the run's data are recordings of."""
        return medium_of(self.template)

    @property
    def checkpoints(self) -> Path:
        """The folder of the last few checkpoints."""
        return self.folder / "checkpoints"

    @property
    def has_learned(self) -> bool:
        """Whether anything was learned."""
        return self._best.exists() or bool(kept_checkpoints(self.checkpoints))

    def why_best_is_bad(self) -> str | None:
        """The reason for which the best checkpoint cannot be read; None if it can."""
        try:
            read_manifest(self._best)
        except (ValueError, OSError) as error:
            return str(error)
        return None

    def trained(self) -> Trained:
        """The model and the filter of the best checkpoint by validation."""
        path = self._best
        if not path.exists():
            raise FileNotFoundError(
                f"{str(self.folder)!r} has no validated checkpoint yet. Train it:"
                f" `varfilter train {self.folder}`."
            )
        built = self.experiment.build(self.template)
        try:
            found = load_checkpoint(path, (built.model, built.filter))
        except ValueError as error:
            raise ValueError(
                f"{error} Or have it written again from the last checkpoint:"
                f" `varfilter train {self.folder}`."
            ) from None
        model, filter = found.state
        return Trained(model, filter, found.step, found.manifest.get("valid"))

    def keep_best(self, trained: Trained) -> None:
        """Write the best checkpoint, in the place of the one before."""
        manifest = {"experiment": as_json(self.experiment), "valid": trained.valid}
        manifest |= {"data_sha256": self.record["data"]["sha256"]}
        checkpoint = Checkpoint((trained.model, trained.filter), trained.step, manifest)
        save_checkpoint(self._best, checkpoint)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, in order; a last line that was cut short is left out."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return []
        found = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(dict(json.loads(line)))
            except (ValueError, TypeError):
                break
        return found

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Add a line to `metrics.jsonl`."""
        path = self.folder / "metrics.jsonl"
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise _unwritable(path, error) from None

    def cut_metrics(self, step: int) -> None:
        """Drop the lines of the metrics after `step`: training goes on from there."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        write_whole(self.folder / "metrics.jsonl", "".join(json.dumps(m) + "\n" for m in kept))

    @property
    def _best(self) -> Path:
        return self.folder / "best.safetensors"

    def _write(self, record: dict[str, Any]) -> None:
        if is_first_process():
            write_whole(self.folder / "run.json", json.dumps(record, indent=1))

    def _require_same(self, experiment: Experiment, dataset: Dataset) -> None:
        for name, (mine, given) in differences(self.experiment, experiment).items():
            if not name.startswith(MAY_DIFFER):
                raise ValueError(
                    f"`--out {self.folder}` holds a run of `{self.experiment.name}` with"
                    f" `{name}` {mine!r}; got {given!r}. To go on with it:"
                    f" `varfilter train {self.folder}`. To begin another: give another `--out`."
                )
        self._require_data(dataset)

    def _require_data(self, dataset: Dataset) -> None:
        known, now = self.record["data"]["sha256"], dataset.sha256()
        if known != now:
            raise ValueError(
                f"The data {dataset.name!r} are not those that the run {str(self.folder)!r} was"
                f" trained on: their sha256 is {now[:12]}..., it was {known[:12]}.... Put the old"
                " ones back, or begin a new run with another `--out`."
            )


@contextmanager
def _damaged(path: Path, *others: type[Exception]) -> Iterator[None]:
    """What a record lacks, or has of another type, as one sentence with the fix."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, *others) as error:
        raise ValueError(
            f"{str(path)!r} is damaged ({error!r}). Restore another copy of it."
        ) from None


def _make(folder: Path) -> None:
    if not (folder / "run.json").exists() and folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(
            f"`--out {folder}` is a folder with other things in it, and not a run. Give a new"
            " folder, or an empty one."
        )
    try:
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None


def write_whole(path: Path, text: str) -> None:
    """Write a file of text, whole or not at all: what is there stays until the new one is."""
    try:
        with written(path) as put:
            put(text.encode("utf-8"))
    except OSError as error:
        raise _unwritable(path, error) from None


def data_record(dataset: Dataset) -> dict[str, Any]:
    """All that is known of a data set but the numbers themselves, as plain JSON.

    With it a run filters new recordings where the training data are not at hand.
    """
    row = dataset.train.values
    return {
        "name": dataset.name,
        "medium": medium_of(dataset).name,
        "sha256": dataset.sha256(),
        "sequences": {split: len(dataset.split(split)) for split in SPLITS},
        "rows": {split: len(dataset.split(split).values) for split in SPLITS},
        "row_shape": list(row.shape[1:]),
        "dtype": row.dtype.str,
        "families": [
            {
                "distribution": family.distribution.__name__,
                "width": family.width,
                "low": family.low,
                "high": family.high,
            }
            for family in dataset.families
        ],
        "is_by_column": isinstance(dataset.family, tuple),
        "offset": np.asarray(dataset.scaling.offset, np.float64).tolist(),
        "scale": np.asarray(dataset.scaling.scale, np.float64).tolist(),
        "rows_per_step": dataset.rows_per_step,
        "columns": list(dataset.columns),
        "rate": dataset.rate,
        "schema": medium_of(dataset).schema_json(dataset),
        "input_names": list(dataset.input_names),
    }


def data_template(record: dict[str, Any]) -> Dataset:
    """The data set of a record without a single sequence: what models are built for."""
    families = tuple(
        Family(getattr(distributions, f["distribution"]), f["width"], f["low"], f["high"])
        for f in record["families"]
    )
    empty = Ragged(np.zeros((0, *record["row_shape"]), record["dtype"]), np.zeros(0, np.int64))
    offset, scale = (
        np.asarray(record[name], np.float64)
        if isinstance(record[name], list)
        else record[name] + 0.0
        for name in ("offset", "scale")
    )
    # Version 0.1.0 named no medium, and called the schema after the only one that had any.
    schema = record.get("schema", record.get("table"))
    found = Dataset(
        record["name"],
        *(empty, empty, empty),
        family=families if record["is_by_column"] else families[0],
        scaling=Scaling(offset, scale),
        rows_per_step=record["rows_per_step"],
        columns=tuple(record["columns"]),
        rate=record["rate"],
        medium=record.get("medium", ""),
    )
    medium = medium_of(found)
    # Records of before there were known inputs have none.
    names = tuple(record.get("input_names", ()))
    nothing = Ragged(np.zeros((0, len(names)), np.float32), np.zeros(0, np.int64))
    return replace(
        found,
        medium=medium.name,
        schema=schema and medium.schema(schema),
        input_names=names,
        inputs=dict.fromkeys(SPLITS, nothing) if names else {},
    )


def surroundings() -> dict[str, Any]:
    """What ran: versions, the revision of the sources where they are a checkout, the device."""
    return {
        "varfilter": __version__,
        "revision": _revision(),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
        "num_devices": jax.device_count(),
    }


def _revision() -> str | None:
    here = Path(__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(here), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        is_ours = Path(git("rev-parse", "--show-toplevel")) in here.parents
        if not (is_ours and git("ls-files", __file__)):
            return None
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", str(here)) else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _unwritable(path: Path, error: OSError) -> OSError:
    return type(error)(
        f"Cannot write {str(path)!r} ({error.strerror}). What was saved before is not lost. Make"
        " room, or give a folder that may be written to."
    )
