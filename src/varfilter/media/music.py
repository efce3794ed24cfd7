"""Music: rolls of the 88 keys of a piano, from MIDI files or from files of rolls, and back."""

import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from varfilter._text import count
from varfilter.data.dataset import SPLITS, Dataset
from varfilter.data.note_grid import LOWEST, NUM_KEYS, NoteGrid, Sampling
from varfilter.data.ragged import Ragged
from varfilter.data.sets.registry import CATALOGUE
from varfilter.media.base import AbstractMedium, Figure
from varfilter.media.exhibits import Exhibit, Inspection, Maker
from varfilter.media.formats import Row, Vector
from varfilter.media.measures import Measure, Predictor
from varfilter.media.reference import Reference, marginal_reference
from varfilter.media.rows import Filtering, latent_row
from varfilter.media.sequences import NewRecording, Source, files_in
from varfilter.media.traits import music_traits

NOTES = tuple(f"note{note}" for note in range(LOWEST, LOWEST + NUM_KEYS))
ROLLS = frozenset({".pickle", ".pkl", ".p", ".pck", ".mat"})
# Steps that a model makes up of each piece at most, to count the notes of.
NUM_MADE_UP = 32
# MIDI note 60 is the middle C, C4.
CS = range(24, LOWEST + NUM_KEYS, 12)


@dataclass(frozen=True)
class MusicSource(Source):
    """Which music, and how it is read; what is not given, the files decide."""

    medium: ClassVar[str] = "music"

    steps_per_beat: float | None = None
    """MIDI: steps in a beat (the fewest on which 95% of the notes begin)."""
    seconds_per_step: float | None = None
    """MIDI: the length of a step in seconds, instead of a part of a beat."""
    percussion: bool | None = None
    """MIDI: whether the notes of drums count."""
    sampling: Sampling | None = None
    """MIDI: onset, notes that sound where a step begins; or middle, every note, so that runs of
    short ones sound together (onset)."""

    def options(self) -> dict[str, Any]:
        """The options that were given, as the function that reads the data calls them."""
        given = super().options()
        # Files of rolls have no such option, and without drums is how MIDI files are read.
        return {name: value for name, value in given.items() if value is not False}


class MusicMedium(AbstractMedium):
    """Music: which of 88 keys are down at each step."""

    name = "music"
    plural = "music"
    source = MusicSource
    experiment = "srnn-jsb-avf"
    suffixes = frozenset({".mid", ".midi"})
    endings = (".mid", ".midi", ".npz")
    num_particles = 16
    inputs = "a MIDI file, a folder of them, or rolls (.pickle, .mat, .npz)"
    ones = "notes"
    has_keys = True
    has_quantiles = False
    inspection = Inspection(num_sequences=8)
    caption = (
        "Notes (dark: they sound), their predicted probabilities before each step was heard, the"
        " same after inference, and the surprise."
    )

    def holds(self, dataset: Dataset) -> bool:
        """Whether a row is 88 keys, up or down."""
        return (
            dataset.train.values.shape[1:] == (NUM_KEYS,)
            and dataset.rows_per_step == 1
            and not dataset.columns
            and dataset.is_binary
        )

    def reads(self, path: Path) -> bool:
        """Whether the file holds rolls, and not columns."""
        if path.suffix.lower() != ".npz":
            return path.suffix.lower() in ROLLS
        try:
            with zipfile.ZipFile(path) as file:
                return any(f"{split}_rolls.npy" in file.namelist() for split in SPLITS)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
            return False  # What is wrong with it, the reader of tables says.

    def reader(self, path: Path) -> Callable[..., Dataset]:
        """Choose the reader: of a folder of MIDI files, or of one file of rolls."""
        from varfilter.data.rolls import read_rolls
        from varfilter.data.songs import midi_folder

        return midi_folder if path.is_dir() else read_rolls

    def recordings(
        self, dataset: Dataset, source: Source, path: Path
    ) -> Iterator[tuple[str, np.ndarray] | NewRecording]:
        """Songs from MIDI files, with the steps of the run's, or from a file of rolls."""
        from varfilter.data.midi import read_song
        from varfilter.data.rolls import read_rolls

        if path.is_file() and path.suffix.lower() in (*ROLLS, ".npz"):
            rolls = read_rolls(path)
            for split in SPLITS:
                for i, roll in enumerate(rolls.split(split)):
                    yield f"{split}/{i}", roll
            return
        # Beside canonical rolls a step is a beat.
        options: dict[str, Any] = {"steps_per_beat": 1.0} if _is_of_rolls(source) else {}
        options |= self.as_recorded(source, dataset.schema).options()
        for name, file in files_in(path, self):
            roll, grid = read_song(file, **options)
            if not roll.any():
                drums = "" if options.get("percussion") else " but those of drums, if it has any"
                warnings.warn(
                    f"{name}: no note sounds at any step{drums}; it is silence for the run.",
                    stacklevel=2,
                )
            yield NewRecording(name, roll, grid)

    def schema_json(self, dataset: Dataset) -> Any:
        """The grid of steps, with tempo and loudness, as plain JSON."""
        return None if dataset.schema is None else dataset.schema.as_json()

    def schema(self, known: Any) -> Any:
        """What `schema_json` made, as the grid that it was."""
        return NoteGrid.of_json(known)

    def as_recorded(self, source: Source, schema: Any) -> Source:
        """The source with the grid that was chosen when a run began.

        Runs of before there was a choice had a beat for a step, and every note in it. Files of
        rolls, which have steps of their own, are read as ever.
        """
        assert isinstance(source, MusicSource)
        if schema is not None:
            return replace(
                source,
                steps_per_beat=schema.steps_per_beat and float(schema.steps_per_beat),
                seconds_per_step=schema.seconds_per_step and float(schema.seconds_per_step),
                sampling=schema.sampling,
            )
        if _is_of_rolls(source):
            return source
        sampling = source.sampling or "middle"
        if source.steps_per_beat is None and source.seconds_per_step is None:
            return replace(source, steps_per_beat=1.0, sampling=sampling)
        return replace(source, sampling=sampling)

    def seconds_per_step(self, dataset: Dataset) -> float | None:
        """How long a step lasts, at the tempo of the data; of rolls, half a second."""
        grid = dataset.schema
        return super().seconds_per_step(dataset) or (grid or NoteGrid()).step_seconds

    def measures(
        self, dataset: Dataset, split: str, predictor: Predictor, scores: dict[str, Any]
    ) -> list[Measure]:
        """Frame accuracy (Bay et al. 2009), and notes a step: expected, made up and of the data."""
        marginal = dataset.train.values.mean(axis=0, keepdims=True, dtype=np.float32)
        predictors = ("above 1/2", "most probable", "the step before", "by frequency")
        counts = {name: np.zeros(3) for name in predictors}
        num_steps = num_notes = expected = 0.0
        for xs, means in predictor.one_step():
            came, frequent = xs[1:] > 0.5, np.broadcast_to(marginal, means.shape)
            rolls = (
                means > 0.5,
                np.asarray(self.likely(dataset, means)) > 0.5,
                xs[:-1] > 0.5,
                np.asarray(self.likely(dataset, frequent)) > 0.5,
            )
            for name, roll in zip(predictors, rolls, strict=True):
                counts[name] += _counts(roll, came)
            num_steps += len(came)
            num_notes += float(came.sum())
            expected += float(means.sum())
        if not num_steps:
            return []
        accuracy = {name: float(c[0] / max(c.sum(), 1.0)) for name, c in counts.items()}
        others = {
            "the step before": accuracy["the step before"],
            "the most frequent notes": accuracy["by frequency"],
        }
        formula = "TP / (TP + FP + FN) over all steps and keys, one step ahead, where"
        found = [
            Measure(
                "frame accuracy",
                accuracy["above 1/2"],
                f"{formula} a key is predicted if its probability is above 1/2",
                others,
                "higher",
            ),
            Measure(
                "frame accuracy, most probable",
                accuracy["most probable"],
                f"{formula} as many of the most probable keys are predicted as are expected",
                others,
                "higher",
            ),
            Measure(
                "notes a step, expected",
                expected / num_steps,
                "the sum of the probabilities one step ahead",
                {"the data": num_notes / num_steps},
            ),
        ]
        return [*found, *_made_up(dataset, split, predictor)]

    def likely(self, dataset: Dataset, mean: Any) -> Any:
        """The most probable keys, as many of them as are expected to sound.

        Those above 1/2 alone would be too few: a model that knows a chord will come, and not yet
        which, gives none of its notes as much.
        """
        number = jnp.round(jnp.sum(mean, axis=-1, keepdims=True))
        rank = jnp.argsort(jnp.argsort(-jnp.asarray(mean), axis=-1), axis=-1)
        return (rank < number.astype(rank.dtype)).astype(mean.dtype)

    def numbers(self, dataset: Dataset, ragged: Ragged) -> dict[str, Any]:
        """The lowest and the highest pitch that sounds."""
        keys = np.flatnonzero(ragged.values.any(axis=0)) + LOWEST
        return {"pitches": [int(keys[0]), int(keys[-1])]} if keys.size else {}

    def reference(self, dataset: Dataset, split: str) -> Reference:
        """Score each note by its frequency in training, whatever was heard before."""
        return marginal_reference(dataset, split)._replace(
            what="each note by its frequency in training"
        )

    def traits(self, dataset: Dataset, recordings: Iterable[np.ndarray]) -> dict[str, float]:
        """How many notes there are, how long they are, and how the upper voice moves."""
        return music_traits(recordings)

    def step_rows(self, dataset: Dataset, filtering: Filtering) -> Iterator[Row]:
        """`surprise`, `notes` that sounded, `expected_notes` and the probability of each note."""
        means = filtering.parts["mean"]
        # NumPy adds up bytes without a sign, and the difference of two sums would have none either.
        rows = filtering.rows.astype(np.int64 if filtering.rows.dtype.kind in "bu" else float)
        for t, time in enumerate(filtering.times):
            yield {
                "sequence": filtering.sequence,
                "time": time,
                "surprise": filtering.surprise[t],
                "notes": np.sum(rows[t]),
                "expected_notes": np.sum(means[t]),
                "prediction": Vector(means[t], NOTES),
                **latent_row(filtering, t),
            }

    def forecast_rows(
        self,
        dataset: Dataset,
        times: np.ndarray,
        parts: dict[str, np.ndarray],
        sequence: str | int,
    ) -> Iterator[Row]:
        """`expected_notes` and the probability of each note, of each step ahead."""
        for i, time in enumerate(times):
            yield {
                "sequence": sequence,
                "time": time,
                "step": i + 1,
                "expected_notes": np.sum(parts["mean"][i]),
                "prediction": Vector(parts["mean"][i], NOTES),
            }

    def write(self, path: Path, dataset: Dataset, xs: np.ndarray) -> None:
        """A MIDI file with the grid, the tempo and the loudness of the data, or of a given song.

        Of rolls, which have none, a step is a beat of half a second.
        """
        from varfilter.data.midi import write_midi

        grid = dataset.schema or NoteGrid()
        write_midi(
            xs,
            path,
            seconds_per_step=self.seconds_per_step(dataset) or grid.step_seconds,
            steps_per_beat=grid.steps_per_beat or 1,
            velocity=grid.loudness(len(xs)),
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
        """MIDI files; one that begins in the midst of a piece has its accents where that has them.

        What follows a piece that ends in mid-beat goes on there, and not with a new beat.
        """
        grids = [schema or dataset.schema for schema in schemas or [None] * len(sequences)]
        for i, (grid, moments) in enumerate(zip(grids, times, strict=True)):
            # Steps that are parts of a beat are counted; of others, the loudness is one number.
            if grid is not None and grid.steps_per_beat is not None and moments is not None:
                grids[i] = grid.since(int(moments[0]))
        return super().write_samples(path, dataset, sequences, times, names, grids)

    def exhibits(
        self, dataset: Dataset, split: str, predictor: Predictor, make: Maker
    ) -> list[Exhibit]:
        """Players and rolls: a held-out song beside what the model makes up, by plain tones."""
        from varfilter.media.tones import music_exhibits

        seconds = self.seconds_per_step(dataset) or NoteGrid().step_seconds
        return music_exhibits(dataset, split, make, seconds, LOWEST)

    def draw_dataset(self, page: Any, dataset: Dataset, shown: list[Any]) -> Figure:
        """Draw scores: pitch against time, only the pitches round those that sound."""
        from varfilter.plots.datasets import images
        from varfilter.plots.style import COLOURS, GRID, LABEL, ink

        figure, body = page(1.5 * len(shown) + 0.3)
        rolls = np.concatenate([song.rows for song in shown])
        for axis in images(body, dataset, shown, LOWEST, ink(COLOURS[0]), (0.0, 1.0)):
            _limit_keys(axis, rolls, margin=2.5)
            for note in CS:  # between B and C: through C it would strike the notes out
                axis.axhline(note - 0.5, color=GRID, lw=0.6)
        body.supylabel("pitch", **LABEL)
        return figure

    def draw_sequence(self, dataset: Dataset, sequence: Any, width: float) -> Figure:
        """Draw the score, its predicted probabilities, and those after inference."""
        from varfilter.plots.figures import images
        from varfilter.plots.style import COLOURS, ink

        figure, axes = images(
            dataset, sequence, width,
            colours=ink(COLOURS[0]), limits=(0.0, 1.0), first=LOWEST, label="pitch",
        )  # fmt: skip
        for axis in axes:
            _limit_keys(axis, sequence.xs, margin=4.5)
        return figure


def _is_of_rolls(source: Source) -> bool:
    """Whether the data of a run are a file of rolls, or a set that is one."""
    return source.source in CATALOGUE or Path(source.source).suffix.lower() in (*ROLLS, ".npz")


def _made_up(dataset: Dataset, split: str, predictor: Predictor) -> list[Measure]:
    """Notes a step of what the model draws after the first step of pieces.

    Of short pieces so many steps that half of them go on for as long; a piece of one step, which
    nothing follows, does not count.
    """
    lengths = dataset.split(split).lengths
    lengths = lengths[lengths > 1]
    if not len(lengths):
        return []
    horizon = min(NUM_MADE_UP, int(np.median(lengths)) - 1)
    drawn = [
        (float(each.draws.sum(axis=-1).mean()), float(each.came.sum(axis=-1).mean()))
        for each in predictor.futures(1, horizon, 1, mean=False)
    ]
    if not drawn:
        return []
    made, came = np.mean(drawn, axis=0)
    what = (
        f"{count(horizon, 'step')} that the model draws after the first of"
        f" {count(len(drawn), 'piece')} that {'goes' if len(drawn) == 1 else 'go'} on for as long,"
        " as the data did"
    )
    return [Measure("notes a step, made up", float(made), what, {"the data": float(came)})]


def _counts(predicted: np.ndarray, came: np.ndarray) -> np.ndarray:
    """How many notes are right, how many are too many, and how many were missed."""
    return np.array(
        [(predicted & came).sum(), (predicted & ~came).sum(), (~predicted & came).sum()], float
    )


def _limit_keys(axis: Any, rolls: np.ndarray, *, margin: float) -> None:
    """Show only the pitches round those that sound in (time, 88), and name the Cs."""
    sounding = np.flatnonzero((np.nan_to_num(rolls) > 0).any(axis=0))
    keys = LOWEST + (sounding if sounding.size else np.arange(NUM_KEYS))
    axis.set_yticks(CS, [f"C{note // 12 - 1}" for note in CS])
    axis.set_ylim(keys[0] - margin, keys[-1] + margin)
