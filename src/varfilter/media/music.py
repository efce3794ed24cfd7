"""Music: rolls of the 88 keys of a piano, from MIDI files or from files of rolls, and back."""

import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from varfilter.data.dataset import SPLITS, Dataset
from varfilter.data.ragged import Ragged
from varfilter.media.base import AbstractMedium, Figure, Inspection, Source, files_in
from varfilter.media.formats import Row, Vector
from varfilter.media.reference import Reference, marginal_reference
from varfilter.media.rows import Filtering, latent_row, step_length

LOWEST, NUM_KEYS = 21, 88
NOTES = tuple(f"note{note}" for note in range(LOWEST, LOWEST + NUM_KEYS))
ROLLS = frozenset({".pickle", ".pkl", ".p", ".pck", ".mat"})
# The seconds of a step where the data do not say: a beat.
SECONDS_PER_BEAT = 0.5
# MIDI note 60 is the middle C, C4.
CS = range(24, LOWEST + NUM_KEYS, 12)


@dataclass(frozen=True)
class MusicSource(Source):
    """Which music, and how it is read; what is not given, the files decide."""

    medium: ClassVar[str] = "music"

    steps_per_beat: float | None = None
    """MIDI: steps in a beat (1)."""
    seconds_per_step: float | None = None
    """MIDI: the length of a step in seconds, instead of a part of a beat."""
    percussion: bool | None = None
    """MIDI: whether the notes of drums count."""

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
        from varfilter.data.midi import midi_folder
        from varfilter.data.rolls import read_rolls

        return midi_folder if path.is_dir() else read_rolls

    def recordings(
        self, dataset: Dataset, source: Source, path: Path
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Songs from MIDI files, with the steps of the run's, or from a file of rolls."""
        from varfilter.data.midi import read_midi
        from varfilter.data.rolls import read_rolls

        if path.is_file() and path.suffix.lower() not in self.suffixes:
            rolls = read_rolls(path)
            for split in SPLITS:
                for i, roll in enumerate(rolls.split(split)):
                    yield f"{split}/{i}", roll
            return
        for name, file in files_in(path, self):
            yield name, read_midi(file, **source.options())

    def numbers(self, dataset: Dataset, ragged: Ragged) -> dict[str, Any]:
        """The lowest and the highest pitch that sounds."""
        keys = np.flatnonzero(ragged.values.any(axis=0)) + LOWEST
        return {"pitches": [int(keys[0]), int(keys[-1])]} if keys.size else {}

    def reference(self, dataset: Dataset, split: str) -> Reference:
        """Score each note by its frequency in training, whatever was heard before."""
        return marginal_reference(dataset, split)._replace(
            what="each note by its frequency in training"
        )

    def step_rows(self, dataset: Dataset, filtering: Filtering) -> Iterator[Row]:
        """`surprise`, `notes` that sounded, `expected_notes` and the probability of each note."""
        means = filtering.parts["mean"]
        for t, time in enumerate(filtering.times):
            yield {
                "sequence": filtering.sequence,
                "time": time,
                "surprise": filtering.surprise[t],
                "notes": np.sum(filtering.rows[t]),
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
        """A MIDI file; a step lasts what it does in the data, or half a second."""
        from varfilter.data.midi import write_midi

        seconds = SECONDS_PER_BEAT if dataset.rate is None else step_length(dataset)
        write_midi(xs, path, seconds_per_step=seconds)

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


def _limit_keys(axis: Any, rolls: np.ndarray, *, margin: float) -> None:
    """Show only the pitches round those that sound in (time, 88), and name the Cs."""
    sounding = np.flatnonzero((np.nan_to_num(rolls) > 0).any(axis=0))
    keys = LOWEST + (sounding if sounding.size else np.arange(NUM_KEYS))
    axis.set_yticks(CS, [f"C{note // 12 - 1}" for note in CS])
    axis.set_ylim(keys[0] - margin, keys[-1] + margin)
