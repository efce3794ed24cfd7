"""A run: a folder that holds an experiment, its metrics and its checkpoints."""

import functools
import json
import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from varfilter import distributions
from varfilter._files import remove_abandoned
from varfilter._programs import kept_shapes
from varfilter.data.dataset import SPLITS, Dataset, Family, Scaling, Transform
from varfilter.data.ragged import Ragged
from varfilter.devices import is_first_process
from varfilter.experiments.experiment import Experiment, as_json, differences, from_json
from varfilter.filters import AbstractFilter
from varfilter.learning import LearnerState
from varfilter.media import AbstractMedium, load, medium_of
from varfilter.media.traits import some
from varfilter.model import AbstractModel
from varfilter.runs.folder import (
    BEST,
    CHECKPOINTS,
    METRICS,
    RECORD,
    VERSION,
    FolderLock,
    held,
    make_folder,
    read_record,
    reading,
    surroundings,
    write_record,
    writing,
)
from varfilter.runs.metrics import append_line, read_metrics, training_range, write_lines
from varfilter.runs.pretrained import run_folder
from varfilter.runs.starts import STARTS, keep_starts
from varfilter.training.checkpoints import (
    Checkpoint,
    kept_checkpoints,
    load_checkpoint,
    newest_checkpoint,
    read_manifest,
    save_checkpoint,
)

# What may differ when a run is resumed: it changes nothing of what was done so far.
MAY_DIFFER = ("schedule.num_epochs", "schedule.patience_epochs", "published", "preset")
# Where the data lie. What they are, their hash says.
PLACES = ("data.source", "data.at")
# What the source of data is called that came from memory, and not from a file.
IN_MEMORY = "<frame>"


class Trained(NamedTuple):
    """What a run has learned, at `step`; `valid` is its score on the validation part."""

    model: AbstractModel
    filter: AbstractFilter
    step: int
    valid: float | None


class Progress(eqx.Module):
    """What training carries from update to update: the learner's state, and the best so far."""

    learning: LearnerState
    best_model: AbstractModel
    best_filter: AbstractFilter


class Run:
    """The folder of a run.

    - `run.json`: the experiment, what is known of its data, versions, the revision.
    - `metrics.jsonl`: a line for each epoch that was validated.
    - `checkpoints/`: the last few, to go on from. `best.safetensors`: the best by validation.
    - `starts.safetensors`: some first steps of training sequences, for those that it makes up.
    """

    def __init__(self, folder: Path, experiment: Experiment, record: dict[str, Any]):
        self.folder = folder
        self.experiment = experiment
        self.record: dict[str, Any] = record
        self._has_warned = False

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.experiment.name})"

    @classmethod
    def load(cls, folder: str | Path) -> "Run":
        """Load a run that was started earlier, here or elsewhere, or a model that has a name."""
        folder = run_folder(folder)
        record = read_record(folder)
        path = folder / RECORD
        with reading(path, ValueError):
            medium = medium_of(data_template(record["data"])).name
        with reading(path):  # what is wrong with a setting, it says itself
            return cls(folder, from_json(record["experiment"], medium), record)

    @classmethod
    def begin(cls, folder: str | Path, experiment: Experiment, dataset: Dataset) -> "Run":
        """A new run in `folder`, or the one that is there, if it is of the same experiment.

        Of several processes the first alone writes.
        """
        folder = Path(folder).expanduser()
        if is_first_process():
            make_folder(folder)
        with held(folder) if is_first_process() else nullcontext():
            if (folder / RECORD).exists():
                run = cls.load(folder)
                # One that stopped before it had anything to keep, over a wrong setting perhaps,
                # is in nobody's way.
                if run.has_learned:
                    run._require_same(experiment, dataset)
                    record = run.record | {"experiment": as_json(experiment)}
                    resumed = cls(folder, experiment, record)
                    if record != run.record:
                        resumed._write()
                    if is_first_process() and not (folder / STARTS).exists():
                        keep_starts(folder, dataset)
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
            run._write()
            if is_first_process():
                keep_starts(folder, dataset)
        return run

    @contextmanager
    def held(self) -> Iterator[FolderLock | None]:
        """Hold the folder for this process, to train in it; None where another process does that.

        What processes that were killed left unfinished is removed, and the files of earlier
        versions get checksums.
        """
        if not is_first_process():
            yield None
            return
        with held(self.folder) as lock:
            if json.dumps(read_record(self.folder)) != json.dumps(self.record):
                raise ValueError(
                    f"{str(self.folder)!r} was taken for another experiment meanwhile, so nothing"
                    " was changed. Give another `--out`."
                )
            for folder in (self.folder, self.checkpoints):
                remove_abandoned(folder)
            if self.record["version"] != VERSION:
                write_lines(self._metrics, self.metrics())
                self.record = self.record | {"version": VERSION}
                self._write()
            yield lock

    @functools.cached_property
    def dataset(self) -> Dataset:
        """The run's data, read again; an error if they are no longer what they were."""
        if self.experiment.data.source == IN_MEMORY:
            raise ValueError(
                "These data were a table in memory, not a file: they cannot be read again. Fit"
                " anew, or filter other data with the run."
            )
        try:
            source = self.experiment.data
            dataset = load(self.medium.as_recorded(source, self.template.schema))
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
        return self.folder / CHECKPOINTS

    @property
    def has_learned(self) -> bool:
        """Whether anything was learned."""
        return self._best.exists() or bool(kept_checkpoints(self.checkpoints))

    def why_best_is_bad(self) -> str | None:
        """The reason for which the best checkpoint cannot be read; None if it can.

        An error if it is another run's.
        """
        try:
            manifest = read_manifest(self._best)
        except (ValueError, OSError) as error:
            return str(error)
        self.require_own(self._best, manifest)
        return None

    def trained(self) -> Trained:
        """The model and the filter of the best checkpoint by validation.

        Where no validation has come yet, the last state stands in for it, and a warning says so.
        """
        path = self._best
        if not path.exists():
            return self._last()

        try:
            found = load_checkpoint(path, kept_shapes(_built, self.experiment, self.template))
            self.require_own(path, found.manifest)
        except ValueError as error:
            raise ValueError(
                f"{error} Or have it written again from the last checkpoint:"
                f" `{self.command('train')}`."
            ) from None
        model, filter = found.state
        return Trained(model, filter, found.step, found.manifest.get("valid"))

    def _last(self) -> Trained:
        """What the newest checkpoint holds, which nobody has validated."""
        progress = kept_shapes(_initial_progress, self.experiment, self.template)
        found, refused = newest_checkpoint(self.checkpoints, progress)
        if found is None:
            reason = refused[0] if refused else "Nothing was learned yet."
            raise FileNotFoundError(
                f"{str(self.folder)!r} has no validated checkpoint yet, and no other to take in its"
                f" place. {reason} Train it: `{self.command('train')}`."
            )
        self.require_own(self.checkpoints, found.manifest)
        if not self._has_warned:  # once is enough
            self._has_warned = True
            warnings.warn(
                f"{str(self.folder)!r} has not been validated yet: its last state, of step"
                f" {found.step}, stands in for the best.",
                stacklevel=3,
            )
        learning = found.state.learning
        return Trained(learning.model, learning.filter, found.step, None)

    def require_own(self, path: Path, manifest: dict[str, Any]) -> None:
        """Refuse a checkpoint that another run made, be its arrays of the same shapes."""
        record = manifest.get("record") or {
            "experiment": manifest.get("experiment"),
            "data": {"sha256": manifest.get("data_sha256")},
        }
        reason = None
        known, found = self.record["data"]["sha256"], record["data"]["sha256"]
        try:
            other = from_json(record["experiment"], self.medium.name)
        except (ValueError, TypeError, AttributeError) as error:
            reason = f"its experiment cannot be read: {str(error).rstrip('.')}"
        else:
            for name, (mine, theirs) in differences(self.experiment, other).items():
                if not name.startswith((*MAY_DIFFER, *PLACES)):
                    reason = f"its `{name}` is {theirs!r}, here it is {mine!r}"
        if found != known:
            reason = f"the sha256 of its data is {str(found)[:12]}..., here it is {known[:12]}..."
        if reason is not None:
            raise ValueError(
                f"{str(path)!r} is of another run ({reason}), so nothing was changed. Put it back"
                " where it belongs, out of this folder."
            )

    def keep_best(self, trained: Trained, *, is_half: bool = False) -> None:
        """Write the best checkpoint, in the place of the one before; `is_half`: for handing on."""
        manifest = {"record": self.record, "valid": trained.valid}
        checkpoint = Checkpoint((trained.model, trained.filter), trained.step, manifest)
        save_checkpoint(self._best, checkpoint, is_half=is_half)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`, in order; a last line that was cut short is left out."""
        return read_metrics(self._metrics, need_checksums=self.record["version"] > 1)

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Add a line to `metrics.jsonl`."""
        with writing(self._metrics):
            append_line(self._metrics, line)

    def cut_metrics(self, step: int) -> None:
        """Drop the lines of the metrics after `step`: training goes on from there."""
        kept = [line for line in self.metrics() if line["step"] <= step]
        with writing(self._metrics):
            write_lines(self._metrics, kept)

    def remember(self, **facts: Any) -> None:
        """Put on record what was found out while training, and holds from then on."""
        self.record = self.record | facts
        self._write()

    def command(self, name: str) -> str:
        """A command on this run, as it is typed."""
        return f"varfilter {name} {shlex.quote(str(self.folder))}"

    @property
    def _best(self) -> Path:
        return self.folder / BEST

    @property
    def _metrics(self) -> Path:
        return self.folder / METRICS

    def _write(self) -> None:
        if is_first_process():
            write_record(self.folder, self.record)

    def _require_same(self, experiment: Experiment, dataset: Dataset) -> None:
        for name, (mine, given) in differences(self.experiment, experiment).items():
            if not name.startswith(MAY_DIFFER):
                raise ValueError(
                    f"`--out {self.folder}` holds a run of `{self.experiment.name}` with"
                    f" `{name}` {mine!r}; got {given!r}. To go on with it:"
                    f" `{self.command('train')}`. To begin another: give another `--out`."
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
                "transform": None if family.transform is None else vars(family.transform),
                "freedom": family.freedom,
                "group": family.group,
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
        "traits": medium_of(dataset).traits(dataset, some(dataset.train)),
        **training_range(dataset),
    }


def data_template(record: dict[str, Any]) -> Dataset:
    """The data set of a record without a single sequence: what models are built for."""
    families = tuple(
        Family(
            getattr(distributions, f["distribution"]),
            f["width"],
            f["low"],
            f["high"],
            # Records of before there were any have none.
            Transform(**f["transform"]) if f.get("transform") else None,
            f.get("freedom"),
            f.get("group"),
        )
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


# Of what a checkpoint is read into, the shapes are enough: its numbers are in the file, and to draw
# others would take longer than all the rest.


def _built(experiment: Experiment, template: Dataset) -> tuple[AbstractModel, AbstractFilter]:
    built = experiment.build(template)
    return built.model, built.filter


def _initial_progress(experiment: Experiment, template: Dataset) -> Progress:
    model, filter, learner = experiment.build(template)
    return Progress(learner.init(model, filter), model, filter)
