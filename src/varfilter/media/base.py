"""What a medium is: how recordings of one kind are read, named, drawn, written and judged.

A table, music, sound and video are media; so is anything else that has a file like theirs. All
that depends on the kind of the data stands in the file of its medium, and nowhere else asks. Plain
arrays, which need no more than the defaults, are at the end of this file.
"""

from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from varfilter._arguments import kind
from varfilter._files import naming, replacing
from varfilter._text import count
from varfilter.data.arrays import read_array
from varfilter.data.dataset import Dataset
from varfilter.data.ragged import Ragged
from varfilter.media.exhibits import Exhibit, Gallery, Inspection, Maker
from varfilter.media.formats import Row, Vector, write_rows
from varfilter.media.measures import Measure, Predictor
from varfilter.media.reference import Reference, marginal_reference
from varfilter.media.rows import Filtering, latent_row, restored, times_from
from varfilter.media.sequences import Ahead, NewRecording, NewSequence, Source

# matplotlib is imported where something is drawn: most commands draw nothing.
Figure = Any


class AbstractMedium(ABC):
    """One kind of recordings. What is not overridden fits any array of numbers.

    - `name` is how the records of runs call it; `plural` is what people call such data.
    - `source` is the class of its options. `experiment` is the name of the experiment whose
      model, sizes and schedule suit the user's own recordings; `own_sizes` are those of the
      model's sizes that differ from it there, and `own_epochs` how many epochs the small preset
      has, where not as many as it has anyway.
    - `suffixes` are the endings of recordings of which a folder makes a data set;
      `frame_suffixes` those of files that count only where there is nothing else.
    - `endings` are those of the files that samples are written to, its own first.
    - `num_steps` of a sequence are filtered in one dispatch, `num_samples` draws make a
      prediction, and a trained run filters new data with `num_particles` trajectories: as many as
      the time of a step allows (`benchmarks/applied_cost.py`), and a step of video is large. The
      prior of each step is then `spread` times as wide as it was learned.
    - `inputs` says what `varfilter filter` takes, and `ones` what people call elements that are 1.
    - `has_alarms`: the elements of a step are columns that mean something by themselves, so that
      the surprise of each is told, and which of them caused an alarm.
    - `has_column_references`: `column_references` says what a model is held against column by
      column, and what its forecasts are pooled with.
    - `has_futures`: it is judged by the best of several futures, of which one can say how many.
    - `score_units`: in which units log scores are, in words.
    - `has_keys`: elements are pitches in order, so that a sequence can be moved to another key.
    - `has_quantiles`: rows tell quantiles of what is predicted; of values that are 0 or 1 alone,
      the mean says all.
    """

    name: ClassVar[str]
    plural: ClassVar[str]
    source: ClassVar[type[Source]]
    experiment: ClassVar[str] = "table"
    own_sizes: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    own_epochs: ClassVar[int | None] = None
    suffixes: ClassVar[frozenset[str]] = frozenset()
    frame_suffixes: ClassVar[frozenset[str]] = frozenset()
    endings: ClassVar[tuple[str, ...]] = (".npz",)
    num_steps: ClassVar[int] = 64
    num_samples: ClassVar[int] = 128
    num_particles: ClassVar[int] = 64
    spread: ClassVar[float] = 1.0
    inputs: ClassVar[str] = "a .npy file of rows like those of the data"
    ones: ClassVar[str] = "ones"
    has_alarms: ClassVar[bool] = False
    has_column_references: ClassVar[bool] = False
    has_futures: ClassVar[bool] = False
    score_units: ClassVar[str] = "nats per step; lower is better"
    has_keys: ClassVar[bool] = False
    has_quantiles: ClassVar[bool] = True
    gallery: ClassVar[Gallery] = Gallery()
    inspection: ClassVar[Inspection] = Inspection()
    has_reconstructions: ClassVar[bool] = True
    has_forecast: ClassVar[bool] = False
    caption: ClassVar[str] = (
        "The values, the prediction before each step was seen, the reconstruction after inference,"
        " and the surprise."
    )

    # Reading

    def holds(self, dataset: Dataset) -> bool:
        """Whether a data set that does not say its medium is of this one, by its rows."""
        return False

    def reads(self, path: Path) -> bool:
        """Whether one file makes a data set of this medium."""
        return False

    def reader(self, path: Path) -> Callable[..., Dataset]:
        """The function that reads a file or a folder; its options are the keyword arguments."""
        raise TypeError(
            f"`{type(self).__name__}` has no `reader`: {self.plural} cannot be read from"
            f" {str(path)!r}."
        )

    def recordings(
        self, dataset: Dataset, source: Source, path: Path
    ) -> Iterator[tuple[str, np.ndarray] | NewRecording]:
        """(name, rows) of each new recording at `path`, read as those of `dataset` were.

        A `NewRecording`, where more than these matters for what is written of it.
        """
        try:
            yield path.stem, np.atleast_1d(read_array(path, f"`INPUT` {str(path)!r}"))
        except (OSError, ValueError, EOFError) as error:
            if str(error).startswith("`INPUT`"):
                raise
            reason = " ".join(str(error).split()).rstrip(".")
            raise ValueError(
                f"`INPUT` {str(path)!r} cannot be read ({reason}). Give {self.inputs}."
            ) from None

    def sequences(self, dataset: Dataset, source: Source, data: Any) -> Iterator[NewSequence]:
        """New sequences to be filtered; `data` is a path."""
        if not isinstance(data, str | Path):
            raise TypeError(f"`INPUT` must be a path, of {self.inputs}; got {kind(data)}.")
        path = Path(data).expanduser()
        shape = dataset.train.values.shape[1:]
        for each in self.recordings(dataset, source, path):
            name, rows, schema = each if isinstance(each, NewRecording) else NewRecording(*each)
            if rows.shape[1:] != shape or rows.dtype.kind not in "buif":
                raise ValueError(
                    f"`INPUT` {str(path)!r} has rows of shape {rows.shape[1:]} ({rows.dtype}); the"
                    f" run was trained on rows of shape {shape}. Give {self.inputs}."
                )
            xs = dataset.observations(rows)
            if not len(xs):
                raise ValueError(
                    f"`INPUT` {str(path)!r}: {name!r} has {count(len(rows), 'row')}, less than the"
                    f" {dataset.rows_per_step} of one step. Give a longer one."
                )
            rows = rows[: len(xs) * dataset.rows_per_step]
            times = times_from(dataset, 0, len(xs))
            yield NewSequence(name, rows, xs, times, schema=schema)

    def plan(self, dataset: Dataset, data: Any) -> Any:
        """Read what is known beforehand of steps to come; None if nothing was given.

        Only tables have known inputs.
        """
        if data is not None:
            raise ValueError(
                f"`inputs` was given, but the run was trained on {self.plural} without any known"
                " inputs. Leave it out."
            )
        return None

    def ahead(
        self, dataset: Dataset, sequence: NewSequence, horizon: int, plan: Any
    ) -> tuple[NewSequence, Ahead]:
        """What a sequence is to be filtered up to, and what is known of the steps after it.

        `plan` is what the method of that name returned.
        """
        last = sequence.times[-1]
        return sequence, Ahead(times_from(dataset, last, horizon, begin=1), None)

    def inputs_of_samples(
        self, dataset: Dataset, num_steps: int, num_sequences: int, plan: Any
    ) -> list[np.ndarray | None]:
        """The known inputs of sequences that are made up; None where the data have none."""
        return [None] * num_sequences

    def lines(self, dataset: Dataset, *, longest_gap: int | None = None) -> Any:
        """Return a reader of lines of JSON, one step each; most media come in files alone.

        A gap of more than `longest_gap` steps between two lines is not filtered through.
        """
        raise ValueError(
            f"`INPUT` is -, but {self.plural} cannot be read from lines on standard input; this run"
            f" was trained on {dataset.name!r}. Give {self.inputs}."
        )

    def schema_json(self, dataset: Dataset) -> Any:
        """Describe what else is needed to read more such recordings, as plain JSON."""
        return None

    def schema(self, known: Any) -> Any:
        """What `schema_json` made, as the `Dataset.schema` it was."""
        return None

    def as_recorded(self, source: Source, schema: Any) -> Source:
        """The source with all that was decided by the data when a run began, as its schema says.

        So a run's data are read again as they were, whatever is decided otherwise since.
        """
        return source

    def numbers(self, dataset: Dataset, ragged: Ragged) -> dict[str, Any]:
        """Numbers that matter for this medium alone, of the sequences of a split."""
        return {}

    def traits(self, dataset: Dataset, recordings: Iterable[np.ndarray]) -> dict[str, float]:
        """What recordings, in the user's units, are like to an ear, by the names of the numbers.

        Nothing of what nobody listens to.
        """
        return {}

    def column_kinds(self, dataset: Dataset) -> dict[str, dict[str, str]]:
        """What each column was taken for, and why, by the names of its elements."""
        return {}

    def spread_of(self, num_particles: int) -> float:
        """How much wider than learned a prior is, in a filter of `num_particles` trajectories.

        One trajectory is the paper's filter, and has what was learned.
        """
        return 1.0 if num_particles == 1 else self.spread

    def reference(self, dataset: Dataset, split: str) -> Reference:
        """Score the naive predictor that a model must beat."""
        return marginal_reference(dataset, split)

    def stronger_reference(self, dataset: Dataset, split: str) -> Reference | None:
        """What is harder to beat than `reference`, where the field has such; None: nothing is."""
        return None

    def measures(
        self, dataset: Dataset, split: str, predictor: Predictor, scores: dict[str, Any]
    ) -> list[Measure]:
        """What a run is judged by beside nats, on a split of its data: nothing, of any numbers.

        `predictor` filters the split; `scores` are those of `evaluate`, in nats, which may be
        empty.
        """
        return []

    def column_references(self, dataset: Dataset, kept: Path, horizons: Sequence[int]) -> Any:
        """What a model is held against column by column; None where there are no columns.

        It says what it expects so many steps ahead. What has to be learned is in the file `kept`.
        """
        return None

    # Rows of filtered steps and of forecasts

    def seconds_per_step(self, dataset: Dataset) -> float | None:
        """How long a step lasts; None where time is not in seconds."""
        return None if dataset.rate is None else dataset.rows_per_step / dataset.rate

    def cell_size(self, dataset: Dataset) -> int:
        """Count the numbers of the largest value of a row."""
        return dataset.num_elements

    def step_rows(self, dataset: Dataset, filtering: Filtering) -> Iterator[Row]:
        """`sequence`, `time`, `surprise`, `prediction`, and its spread and quantiles."""
        for t, time in enumerate(filtering.times):
            yield {
                "sequence": filtering.sequence,
                "time": time,
                "surprise": filtering.surprise[t],
                "prediction": Vector(filtering.parts["mean"][t]),
                **{
                    f"prediction_{part}": Vector(values[t])
                    for part, values in filtering.parts.items()
                    if part != "mean"
                },
                **latent_row(filtering, t),
            }

    def forecast_rows(
        self,
        dataset: Dataset,
        times: np.ndarray,
        parts: dict[str, np.ndarray],
        sequence: str | int,
    ) -> Iterator[Row]:
        """`sequence`, `time`, `step`, `prediction` and its quantiles, of each step ahead."""
        for i, time in enumerate(times):
            yield {"sequence": sequence, "time": time, "step": i + 1} | {
                "prediction" if part == "mean" else f"prediction_{part}": Vector(values[i])
                for part, values in parts.items()
            }

    # Writing what a model makes up or expects

    def likely(self, dataset: Dataset, mean: Any) -> Any:
        """The observation that stands for a mean (..., *event) of such, in the model's units.

        The mean itself, of whatever is a number; of what is 0 or 1, the more probable, and of
        several levels the most probable. `mean` may be traced.
        """
        if not isinstance(dataset.family, tuple):
            return (mean > 0.5).astype(mean.dtype) if dataset.is_binary else mean
        columns = [mean[..., i] for i in range(len(dataset.family))]
        for i, family in enumerate(dataset.family):
            if family.group is not None:
                among = [j for j, other in enumerate(dataset.family) if other.group == family.group]
                best = jnp.argmax(mean[..., np.array(among)], axis=-1)
                columns[i] = (best == among.index(i)).astype(mean.dtype)
            elif family.is_binary:
                columns[i] = (mean[..., i] > 0.5).astype(mean.dtype)
        return jnp.stack(columns, axis=-1)

    def write(self, path: Path, dataset: Dataset, xs: np.ndarray) -> None:
        """Write one recording in the medium's own format, which is not .npz."""
        raise TypeError(
            f"`{type(self).__name__}` has no `write`, but its `endings` are more than .npz. Write"
            " the method, or leave the others out."
        )

    def write_samples(
        self,
        path: Path,
        dataset: Dataset,
        sequences: Sequence[np.ndarray],
        times: Sequence[np.ndarray | None],
        names: Sequence[str | int | None],
        schemas: Sequence[Any] = (),
    ) -> list[Path]:
        """Observations in the model's units as files; several sequences are numbered files.

        An .npz file holds `time`, and the values in the user's units as `observation`. `times` are
        those of the steps; where they are None, they count from 0. `names` are for media that have
        all sequences in one file, and `schemas` are the sequences' own (`NewSequence.schema`). A
        file that is there stays as it was until the new one is whole.
        """
        paths = [path]
        if len(sequences) > 1:
            width = len(str(len(sequences)))
            numbers = range(1, len(sequences) + 1)
            paths = [path.with_name(f"{path.stem}-{i:0{width}}{path.suffix}") for i in numbers]
        schemas = schemas or [None] * len(sequences)
        for each, xs, moments, schema in zip(paths, sequences, times, schemas, strict=True):
            if each.suffix.lower() == ".npz":
                self._write_arrays(each, dataset, xs, moments)
            else:
                with replacing(each) as partial, naming(each):
                    own = dataset if schema is None else replace(dataset, schema=schema)
                    self.write(partial, own, xs)
        return paths

    def _write_arrays(
        self, path: Path, dataset: Dataset, xs: np.ndarray, times: np.ndarray | None
    ) -> None:
        times = times_from(dataset, 0, len(xs)) if times is None else times
        pairs = zip(times, restored(dataset, xs), strict=True)
        write_rows(({"time": t, "observation": Vector(np.asarray(v))} for t, v in pairs), path)

    # Drawing, and what a page plays

    def exhibits(
        self, dataset: Dataset, split: str, predictor: Predictor, make: Maker
    ) -> list[Exhibit]:
        """What a report has to hear and to see of a run: of numbers without a medium, nothing.

        `predictor` filters the split, and `make` has the run make up sequences.
        """
        return []

    def gallery_of(self, dataset: Dataset) -> Gallery:
        """How much of this data set a figure of it shows at most."""
        return self.gallery

    def draw_dataset(self, page: Any, dataset: Dataset, shown: list[Any]) -> Figure:
        """Draw some sequences of a data set on a page: lines of a few numbers, else heat maps."""
        from varfilter.plots import datasets

        is_small = dataset.num_elements // dataset.rows_per_step <= datasets.MOST_PANELS
        return (datasets.lines if is_small else datasets.heat_maps)(page, dataset, shown)

    def draw_fit(self, dataset: Dataset) -> Figure:
        """Draw how well the families of the columns fit; only tables have such."""
        raise ValueError(
            f"`out` is given, but {dataset.name!r} holds {self.plural}: only the columns of a table"
            " have families that were chosen. Leave it out."
        )

    def inspected(self, sequence: Any) -> Any:
        """The part of an inspected sequence that is drawn: all of it."""
        return sequence

    def draw_filtering(
        self, dataset: Dataset, filtering: Filtering, fan: Any = None, *, width: float
    ) -> Figure:
        """Draw what was filtered with its alarms, and a fan of what may follow; tables alone."""
        raise TypeError(f"{type(self).__name__} has no alarms to draw.")

    def draw_forecast(self, dataset: Dataset, fan: Any, width: float) -> Figure:
        """Draw a forecast beside what came, where `has_forecast` says that a report has one."""
        raise TypeError(f"`{type(self).__name__}` has no `draw_forecast`: write the method.")

    def draw_sequence(self, dataset: Dataset, sequence: Any, width: float) -> Figure:
        """Draw a filtered sequence; the most surprising steps are marked."""
        from varfilter.plots import datasets, figures, tables

        if dataset.num_elements <= datasets.MOST_PANELS:
            return tables.draw_columns(dataset, sequence, width)
        return figures.images(dataset, sequence, width)[0]


@dataclass(frozen=True)
class ArraySource(Source):
    """A data set of plain arrays, made in Python: there is no file to read it from."""

    medium: ClassVar[str] = "array"


class ArrayMedium(AbstractMedium):
    """Numbers without names, units or a picture of their own."""

    name = "array"
    plural = "arrays"
    source = ArraySource
    gallery = Gallery(num_rows=500)

    def gallery_of(self, dataset: Dataset) -> Gallery:
        """A few numbers are drawn as lines, as the columns of a table are."""
        from varfilter.plots.datasets import MOST_PANELS

        is_small = dataset.num_elements // dataset.rows_per_step <= MOST_PANELS
        lines = Gallery(3, 1000, "marks at the bottom are missing values")
        return lines if is_small else self.gallery
