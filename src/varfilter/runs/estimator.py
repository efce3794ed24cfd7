"""A filter for tables in three calls: `fit`, `filter`, `forecast`; a run's folder underneath."""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from varfilter.data.tables.read import read_table
from varfilter.data.tables.schema import TableSchema
from varfilter.experiments.experiment import Experiment
from varfilter.experiments.paper import own_experiment
from varfilter.media.frames import frame_like
from varfilter.media.table import TableSource
from varfilter.runs.applied import filter_data, forecast_data
from varfilter.runs.run import IN_MEMORY, Run
from varfilter.runs.training import train_run


class TableFilter:
    """Learns a table of sensors, then filters and forecasts others like it.

    ```python
    pumps = TableFilter(time="when", sequence="pump").fit(frame)
    pumps.filter(new)["surprise"]
    pumps.forecast(24, new)
    pumps.save("runs/pumps")
    ```

    A table is a pandas or polars frame, a dictionary of arrays, an array, or the path of a file.
    The arguments say how it is read, as those of `varfilter.data.read_table`; `choose` makes the
    experiment that is trained (`own_experiment`: an object whose every field can be replaced),
    `num_epochs` shortens it, and `seed` is of all its randomness.
    """

    def __init__(
        self,
        *,
        time: str | Literal[False] | None = None,
        sequence: str | None = None,
        columns: Sequence[str] | None = None,
        inputs: Sequence[str] = (),
        calendar: Sequence[str] | Literal[False] | None = None,
        kinds: dict[str, str] | None = None,
        step: float | int | str | None = None,
        split: Literal["auto", "sequence", "time"] = "auto",
        choose: Callable[[TableSource], Experiment] = own_experiment,
        num_epochs: int | None = None,
        seed: int = 0,
    ):
        self.reading: dict[str, Any] = {
            "time": time,
            "sequence": sequence,
            "columns": None if columns is None else tuple(columns),
            "inputs": tuple(inputs),
            "calendar": calendar and tuple(calendar),
            "kinds": kinds,
            "step": step,
            "split": split,
        }
        self.choose, self.num_epochs, self.seed = choose, num_epochs, seed
        self._run: Run | None = None
        self._fitted: Any = None

    @property
    def run(self) -> Run:
        """The run: its folder, its metrics, what it learned."""
        if self._run is None:
            raise RuntimeError("This filter is not fitted. Call `fit(frame)`, or `load` one.")
        return self._run

    def fit(self, frame: Any) -> "TableFilter":
        """Train on the first part of the table, and keep the best by validation on the next."""
        dataset = read_table(frame, **self.reading)
        source = self._source(frame)
        experiment = replace(self.choose(source), seed=self.seed)
        if source.source == IN_MEMORY:
            experiment = replace(experiment, name="table")
        if self.num_epochs is not None:
            schedule = replace(experiment.schedule, num_epochs=self.num_epochs)
            experiment = replace(experiment, schedule=schedule)
        folder = tempfile.mkdtemp(prefix="varfilter-")
        # With this object, if not before: `save` is what keeps a copy.
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        run = Run.begin(folder, experiment, dataset)
        for _ in train_run(run, dataset):
            pass
        self._run, self._fitted = run, frame
        return self

    def filter(
        self,
        frame: Any,
        *,
        levels: Sequence[float] = (),
        latents: bool = False,
        num_particles: int | None = None,
        num_samples: int | None = None,
        fill_gaps: bool = False,
    ) -> Any:
        """The rows of `filter_data`, as a frame of the kind given, or a dictionary of arrays.

        They are those of `frame`, in its order and with its index; with `fill_gaps` each step
        without a row has one too.
        """
        rows = filter_data(
            self.run, frame, seed=self.seed, levels=levels, latents=latents,
            num_particles=num_particles, num_samples=num_samples, fill_gaps=fill_gaps,
        )  # fmt: skip
        return frame_like(frame, rows, self.run.template.schema, is_aligned=not fill_gaps)

    def forecast(
        self,
        horizon: int,
        frame: Any = None,
        *,
        inputs: Any = None,
        levels: Sequence[float] = (0.05, 0.5, 0.95),
        num_particles: int | None = None,
        num_samples: int = 256,
    ) -> Any:
        """The rows of `forecast_data`, from the end of `frame`, or of what it was fitted to.

        `inputs` is a table of the known inputs of the steps ahead, of a filter that has any.
        """
        run = self.run
        frame = self._fitted if frame is None else frame
        if frame is None:
            raise ValueError(
                "`frame` is None, and what this filter was fitted to is not kept with it. Give the"
                " table to go on from."
            )
        rows = forecast_data(
            run, frame, horizon, inputs=inputs, seed=self.seed, levels=levels,
            num_particles=num_particles, num_samples=num_samples,
        )  # fmt: skip
        return frame_like(frame, rows, run.template.schema)

    def save(self, path: str | Path) -> None:
        """A copy of the run's folder: `load` reads it, and so does `varfilter filter PATH`."""
        path = Path(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise FileExistsError(f"`path` {str(path)!r} is there already. Give a new folder.")
        shutil.copytree(self.run.folder, path, dirs_exist_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> "TableFilter":
        """Load what `save` wrote, or the folder of any run on a table."""
        run = Run.load(path)
        schema = run.template.schema
        if not isinstance(schema, TableSchema):
            raise ValueError(
                f"`path` {str(path)!r} is a run on {run.experiment.data.source!r}, which is no"
                " table. Use `filter_data(Run.load(path), ...)`."
            )
        found = cls(seed=run.experiment.seed, **_reading_of(schema))
        found._run = run
        return found

    def _source(self, frame: Any) -> TableSource:
        """How the table was read, in the words of an experiment."""
        given = dict(self.reading)
        kinds, calendar = given.pop("kinds"), given.pop("calendar")
        return TableSource(
            str(Path(frame).resolve()) if isinstance(frame, str | Path) else IN_MEMORY,
            time="none" if given.pop("time") is False else self.reading["time"],
            kinds=kinds and tuple(f"{name}={kind}" for name, kind in kinds.items()),
            split_by=given.pop("split"),
            inputs=given.pop("inputs") or None,
            calendar=("none",) if calendar in ((), False) else calendar,
            **given,
        )


def _reading_of(schema: TableSchema) -> dict[str, Any]:
    step = schema.step if schema.calendar is None else schema.calendar.word
    time = False if schema.time is None else schema.time
    return {
        "time": None if schema.layout.clock.parts else time,
        "sequence": schema.sequence,
        "columns": schema.columns,
        "inputs": tuple(schema.inputs.columns),
        "calendar": schema.inputs.calendar or False,
        "kinds": {
            name: f"{kind} {schema.motions.get(name, 'level')}"
            for name, kind in schema.kinds.items()
        },
        "step": "rows" if schema.inputs.is_by_rows else step,
    }
