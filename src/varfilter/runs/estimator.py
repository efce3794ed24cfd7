"""A filter for tables as other libraries have estimators; a run's folder underneath."""

import inspect
import shutil
import stat
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from varfilter._arguments import require_positive
from varfilter.data.dataset import Dataset
from varfilter.data.tables.read import read_table
from varfilter.data.tables.schema import TableSchema
from varfilter.experiments.experiment import Experiment
from varfilter.experiments.paper import own_experiment
from varfilter.media import NewSequence, new_sequences
from varfilter.media.frames import frame_like
from varfilter.media.rows import joined, restored
from varfilter.media.table import TableSource
from varfilter.runs.alarms import lack_of_steps, require_rate, with_alarms
from varfilter.runs.applied import apply_run, calibrate_run
from varfilter.runs.comparison import pool_run, remember_comparison
from varfilter.runs.fine_tuning import update_run
from varfilter.runs.forecasting import with_pool
from varfilter.runs.metrics import verdict
from varfilter.runs.predictions import filter_data, forecast_data
from varfilter.runs.run import IN_MEMORY, Run
from varfilter.runs.training import train_run

# The quantiles between which bands and fans are drawn.
BAND = (0.05, 0.95)
# The arguments that a saved filter has on record; how it reads tables, its run knows.
KEPT = ("split", "num_epochs", "seed", "alarm_rate")


class NotFittedError(RuntimeError, ValueError):
    """A filter was asked for what only a fitted one has."""


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
    `num_epochs` shortens it, `seed` is of all its randomness, and `alarm_rate` is the part of
    healthy steps that may raise an alarm (0 for no alarms).

    The conventions are those of scikit-learn: arguments are kept as they were given (`get_params`,
    `set_params`, `sklearn.base.clone`), `fit` returns the filter itself, and `score` is higher for
    a better one, so that `cross_val_score`, `GridSearchCV` and a `Pipeline` that ends in it work.
    Their folds should be of rows that follow each other, as `TimeSeriesSplit` makes them.
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
        date_order: Literal["day-first", "month-first"] | None = None,
        split: Literal["auto", "sequence", "time"] = "auto",
        choose: Callable[[TableSource], Experiment] = own_experiment,
        num_epochs: int | None = None,
        seed: int = 0,
        alarm_rate: float | None = None,
    ):
        self.time: str | Literal[False] | None = time
        self.calendar: Sequence[str] | Literal[False] | None = calendar
        self.sequence, self.columns, self.inputs, self.kinds = sequence, columns, inputs, kinds
        self.step, self.date_order, self.split = step, date_order, split
        self.choose, self.num_epochs, self.seed = choose, num_epochs, seed
        self.alarm_rate = alarm_rate
        self._run: Run | None = None
        self._fitted: Any = None
        self._dataset: Dataset | None = None
        self._compared: dict[str, Any] | None = None

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        given = self.get_params().items()
        changed = [f"{name}={v!r}" for name, v in given if v is not defaults[name].default]
        return f"{type(self).__name__}({', '.join(changed)})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments by name, as they were given; nothing in them is deeper."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> "TableFilter":
        """Change arguments, for the next `fit`."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(
                    f"`{name}` is no argument of `{type(self).__name__}`; it has"
                    f" {', '.join(known)}."
                )
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn, which alone asks, should know: no target is needed, NaN is allowed."""
        from sklearn.utils import InputTags, Tags, TargetTags

        reads = InputTags(string=True, categorical=True, allow_nan=True)
        return Tags(estimator_type=None, target_tags=TargetTags(required=False), input_tags=reads)

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a run to filter with, for scikit-learn's `check_is_fitted`."""
        return self._run is not None

    @property
    def run(self) -> Run:
        """The run: its folder, its metrics, what it learned."""
        if self._run is None:
            raise NotFittedError("This filter is not fitted. Call `fit(frame)`, or `load` one.")
        return self._run

    def fit(self, X: Any, y: Any = None) -> "TableFilter":
        """Train on the first part of the table, and keep the best by validation on the next.

        What was learned is then held against naive and linear predictors (`comparison_`); that it
        is no better than one of them is a warning, and that there are too few rows for alarms.
        `y` is there for pipelines, which give one, and is not looked at.
        """
        require_rate(self.alarm_rate)
        dataset = read_table(X, **self._reading)
        source = self._source(X)
        experiment = replace(self.choose(source), seed=self.seed)
        if source.source == IN_MEMORY:
            experiment = replace(experiment, name="table")
        if self.num_epochs is not None:
            schedule = replace(experiment.schedule, num_epochs=self.num_epochs)
            experiment = replace(experiment, schedule=schedule)
        run = Run.begin(self._folder(), experiment, dataset)
        for _ in train_run(run, dataset):
            pass
        self._run, self._fitted, self._dataset = run, X, dataset
        self._compare()
        lack = lack_of_steps(dataset) if self.alarm_rate != 0 else None
        if lack is not None:
            warnings.warn(
                f"`filter` will have no alarms: they are set by the validation part. {lack}",
                stacklevel=2,
            )
        return self

    def _compare(self) -> None:
        """Hold what was learned against its references, and warn if it is no better."""
        run, dataset = self.run, self._dataset
        assert dataset is not None
        self._compared = remember_comparison(run, dataset)
        if (said := verdict(run)) is not None:
            warnings.warn(said, stacklevel=3)

    @property
    def comparison_(self) -> dict[str, Any] | None:
        """The scores of the last `fit` or `update` beside naive and linear predictors.

        They are of the validation part, as `varfilter.runs.comparison.compare_run` has them; None
        of a filter that was loaded.
        """
        return self._compared

    def update(self, frame: Any, *, num_epochs: int | None = None) -> "TableFilter":
        """Go on with new rows, from what was learned: `varfilter.runs.fine_tuning.update_run`.

        It learns from the old rows and the new ones together, for of the new ones alone it would
        forget what they do not show. A filter that was loaded has the old ones where the file that
        it was fitted to is still there, and else goes on with the new ones alone.
        """
        run, old = self.run, self._dataset
        if old is None:
            try:
                old = run.dataset
            except (ValueError, OSError):
                old = None
        self._run, self._dataset = update_run(
            run, self._folder(), frame, old, num_epochs=num_epochs
        )
        self._fitted = frame
        self._compare()
        return self

    def filter(
        self,
        frame: Any,
        *,
        levels: Sequence[float] = (),
        latents: bool = False,
        num_particles: int | None = None,
        num_samples: int | None = None,
        spread: float | None = None,
        fill_gaps: bool = False,
    ) -> Any:
        """The rows of `filter_data`, as a frame of the kind given, or a dictionary of arrays.

        They are those of `frame`, in its order and with its index; with `fill_gaps` each step
        without a row has one too.
        """
        rows = filter_data(
            self.run, frame, seed=self.seed, levels=levels, latents=latents,
            num_particles=num_particles, num_samples=num_samples, spread=spread,
            fill_gaps=fill_gaps, alarm_rate=self.alarm_rate, dataset=self._dataset,
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
        spread: float | None = None,
        pool: bool = True,
    ) -> Any:
        """The rows of `forecast_data`, from the end of `frame`, or of what it was fitted to.

        They are pooled with the references of the table, unless `pool` is False. `inputs` is a
        table of the known inputs of the steps ahead, of a filter that has any.
        """
        run, frame = self.run, self._given(frame)
        rows = forecast_data(
            run, frame, horizon, inputs=inputs, seed=self.seed, levels=levels,
            num_particles=num_particles, num_samples=num_samples, spread=spread, pool=pool,
            dataset=self._dataset,
        )  # fmt: skip
        return frame_like(frame, rows, run.template.schema)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log score of a step: log p(x_t | x_<t) in nats, higher is better.

        Densities are of standardised columns: less their mean in training, by their spread there.
        First steps, which are conditioned on, and steps of which nothing was observed do not count.
        """
        applied = apply_run(self.run, seed=self.seed)
        found = [
            part.surprise[~np.isnan(part.rows).all(axis=1) & np.isfinite(part.surprise)]
            for sequence in self._sequences(X)
            for part in applied.filterings(sequence)
        ]
        scored = np.concatenate(found)
        if not scored.size:
            raise ValueError("`X` has no step to score: each sequence needs two or more rows.")
        return -float(np.mean(scored))

    def plot(
        self,
        frame: Any = None,
        *,
        sequence: str | int | None = None,
        horizon: int = 0,
        inputs: Any = None,
        width: float = 9.2,
    ) -> Any:
        """A figure of one sequence: values, the bands of their predictions, alarms, and a fan.

        A panel for each column, in its own unit: dots are what was seen, the band should hold nine
        in ten of them, and alarms are marked. With a `horizon`, the fan shows what may follow.
        `sequence` is the name of it (the first); `frame` is what it was fitted to if not given.
        """
        if horizon != 0:  # without one there is no fan
            horizon = require_positive("horizon", horizon)
        run, frame = self.run, self._given(frame)
        applied = apply_run(run, seed=self.seed, levels=BAND)
        applied = with_alarms(run, applied, self.alarm_rate, self._dataset)
        names = []
        for each in self._sequences(frame):
            names.append(str(each.name))
            if sequence is None or str(each.name) == str(sequence):
                break
        else:
            raise ValueError(
                f"`sequence` is {sequence!r}, but `frame` has {', '.join(names[:6])}. Give one of"
                " them."
            )
        fan = None
        if horizon:
            template = run.template
            plan = run.medium.plan(template, inputs)
            each, ahead = run.medium.ahead(template, each, horizon, plan)
            pooled = with_pool(run, applied, self._dataset)
            found = pooled.forecast(applied.last_belief(each), each, ahead)
            low, high = (restored(template, quantile) for quantile in found.quantiles)
            fan = (ahead.times, restored(template, found.mean), low, high)
        filtering = joined(list(applied.filterings(each)))
        return run.medium.draw_filtering(run.template, filtering, fan, width=width)

    def save(self, path: str | Path) -> None:
        """A copy of the run's folder: `load` reads it, and so does `varfilter filter PATH`.

        Alarms are calibrated first, and the pool of forecasts is found, unless they were, since the
        rows stay behind. The arguments go with it, but for `choose`.
        """
        path = Path(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise FileExistsError(f"`path` {str(path)!r} is there already. Give a new folder.")
        if self._dataset is not None and self.alarm_rate != 0:
            calibrate_run(self.run, self._dataset)
        if self._dataset is not None:
            pool_run(self.run, self._dataset)
        shutil.copytree(self.run.folder, path, dirs_exist_ok=True)
        path.chmod(path.stat().st_mode | stat.S_IWUSR)  # the run's own may be read-only
        arguments = {name: getattr(self, name) for name in KEPT}
        Run.load(path).remember(estimator=arguments)

    @classmethod
    def load(cls, path: str | Path) -> "TableFilter":
        """Load what `save` wrote, or the folder of any run on a table.

        Its arguments are those that it was made with, and of how a table is read what was found, so
        that `fit` reads another one likewise.
        """
        run = Run.load(path)
        schema = run.template.schema
        if not isinstance(schema, TableSchema):
            raise ValueError(
                f"`path` {str(path)!r} is a run on {run.experiment.data.source!r}, which is no"
                " table. Use `filter_data(Run.load(path), ...)`."
            )
        source, schedule = run.experiment.data, run.experiment.schedule
        arguments = {
            "seed": run.experiment.seed,
            "num_epochs": schedule.num_epochs,
            "split": getattr(source, "split_by", None) or "auto",
            **run.record.get("estimator", {}),  # where it was an estimator that was trained
        }
        found = cls(**arguments, **_reading_of(schema))
        found._run = run
        return found

    def _sequences(self, frame: Any) -> Iterator[NewSequence]:
        return new_sequences(self.run.template, self.run.experiment.data, frame)

    def _given(self, frame: Any) -> Any:
        """The table that was given, or the one that the filter was fitted to."""
        _ = self.run
        frame = self._fitted if frame is None else frame
        if frame is None:
            raise ValueError(
                "`frame` is None, and what this filter was fitted to is not kept with it. Give the"
                " table to go on from."
            )
        return frame

    def _folder(self) -> Path:
        """A folder that goes with this object, if not before: `save` is what keeps a copy."""
        folder = Path(tempfile.mkdtemp(prefix="varfilter-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    @property
    def _reading(self) -> dict[str, Any]:
        """How tables are read, as `read_table` takes it."""
        return {
            "time": self.time,
            "sequence": self.sequence,
            "columns": None if self.columns is None else tuple(self.columns),
            "inputs": tuple(self.inputs),
            "calendar": tuple(self.calendar) if self.calendar else self.calendar,
            "kinds": self.kinds,
            "step": self.step,
            "date_order": self.date_order,
            "split": self.split,
        }

    def _source(self, frame: Any) -> TableSource:
        """How the table was read, in the words of an experiment."""
        given = self._reading
        time, kinds, calendar = (given.pop(name) for name in ("time", "kinds", "calendar"))
        return TableSource(
            str(Path(frame).resolve()) if isinstance(frame, str | Path) else IN_MEMORY,
            time="none" if time is False else time,
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
