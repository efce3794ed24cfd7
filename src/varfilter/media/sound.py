"""Sound: samples of one channel at one rate, some hundred of them a step."""

import io
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from varfilter._text import count
from varfilter.data.dataset import Dataset
from varfilter.data.sets.registry import CATALOGUE
from varfilter.media.base import AbstractMedium, Figure
from varfilter.media.exhibits import Clip, Exhibit, Gallery, Inspection, Maker
from varfilter.media.measures import Measure, Predictor
from varfilter.media.reference import Reference, marginal_reference
from varfilter.media.rows import restored
from varfilter.media.sequences import Source, files_in
from varfilter.media.traits import LIKENESS, some, sound_traits

# Half a second of speech at the steps of the paper.
NUM_DRAWN_STEPS = 40
# Seconds of sound in a player of a report; and sounds of as many seconds that are made up to say
# what such are like, of which two are played.
NUM_SECONDS, NUM_MADE, NUM_PLAYED = 2.0, 8, 2
# A spectrum that is flatter is heard as noise: that of speech and music is below 0.1.
NOISE = 0.5
# Runs that have no rate on record brought every file to this one.
RATE_BEFORE = 16000
# And those that do not say whether finer levels were kept read files of these endings alone.
SUFFIXES_BEFORE = (".wav", ".flac", ".sph", ".nist")


@dataclass(frozen=True)
class SoundSource(Source):
    """Which sound, and how it is read; what is not given is the paper's."""

    medium: ClassVar[str] = "sound"

    rate: int | None = None
    """Samples in a second (the files' own; where they have several, that of most files)."""
    frame_size: int | None = None
    """Samples in a step (200)."""
    fine: bool | None = None
    """Keep what is finer than 16 bits (24 bits, floats, MP3, OGG), and score densities where that
    leaves no levels; else it is rounded to 16 bits, as players do."""

    def options(self) -> dict[str, Any]:
        """The options that were given, as the function that reads the data calls them."""
        # The sets that have a name have no such option, and rounded is how folders are read.
        return {name: value for name, value in super().options().items() if value is not False}


@dataclass(frozen=True)
class _SoundBefore(SoundSource):
    """A folder in which a run found files of fewer endings than are read now."""

    suffixes: tuple[str, ...] | None = SUFFIXES_BEFORE


class SoundMedium(AbstractMedium):
    """Sound: the pressure of the air, sampled at a fixed rate."""

    name = "sound"
    plural = "sound"
    source = SoundSource
    experiment = "vrnn-timit-sample-avf"
    # Each sample depends on so many before it, by a filter that the paper's models do not have; and
    # the scores of the small preset still fall where that of the paper's data ends.
    own_sizes = MappingProxyType({"order": 16})
    own_epochs = 100
    suffixes = frozenset(
        {".wav", ".flac", ".sph", ".nist", ".aiff", ".aif", ".mp3", ".ogg", ".oga", ".opus"}
    )
    endings = (".wav", ".npz")
    num_particles = 32
    inputs = "a sound file (.wav, .flac, .mp3, .ogg, .aiff, .sph), or a folder of them"
    gallery = Gallery(num_rows=1 << 17)
    inspection = Inspection()
    caption = (
        "The waveform, the prediction decoded from the prior before each step was heard, the"
        " reconstruction after inference, and the surprise of each step; of the steps that were"
        " looked at, the loudest stretch. Where samples go on from each other, both are means from"
        " the end of the step before: they ring on from there, and fall silent within the step."
    )

    def holds(self, dataset: Dataset) -> bool:
        """Whether a row is one number, and the data have a rate."""
        return dataset.train.values.shape[1:] == () and dataset.rate is not None

    def reader(self, path: Path) -> Callable[..., Dataset]:
        """Return the reader of a folder of sound files."""
        from varfilter.data.audio import audio_folder

        return audio_folder

    def schema_json(self, dataset: Dataset) -> Any:
        """The rate that the files had, or were brought to, and whether finer levels were kept."""
        rate = None if dataset.rate is None else round(dataset.rate)
        return {"rate": rate, "fine": dataset.train.values.dtype.kind == "f"}

    def schema(self, known: Any) -> Any:
        """The rate and the levels, as they are on record."""
        return known

    def as_recorded(self, source: Source, schema: Any) -> Source:
        """The source with the rate and the levels that a run began with.

        Without a record of them: 16,000 Hz, and what was finer than 16 bits was kept, of files with
        the endings that were read then.
        """
        assert isinstance(source, SoundSource)
        if source.source in CATALOGUE:
            return source
        known = schema or {}
        rate = known.get("rate", RATE_BEFORE) if source.rate is None else source.rate
        fine = known.get("fine", True) if source.fine is None else source.fine
        source = replace(source, rate=rate, fine=fine)
        return source if "fine" in known else _SoundBefore(**vars(source))

    def recordings(
        self, dataset: Dataset, source: Source, path: Path
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Sound files at the rate of the run's data; a warning says which were resampled."""
        from varfilter.data.audio import LEVELS, read_audio, resampled

        rate, stored = round(dataset.rate or 1), dataset.train.values.dtype
        for name, file in files_in(path, self):
            sound = read_audio(file)
            if sound.rate != rate:
                rates = f"from {sound.rate:,} to {rate:,} Hz"
                warnings.warn(f"{name} was resampled {rates}, the rate of the run.", stacklevel=2)
            samples = resampled(sound.samples, sound.rate, rate, str(file))
            if stored.kind in "iu":  # Of what is kept as whole levels, new recordings are too.
                samples = np.rint(samples)
                _warn_of_clipping(samples, f"{name}: ")
                samples = np.clip(samples, LEVELS.min, LEVELS.max)
            yield name, samples.astype(stored)

    def reference(self, dataset: Dataset, split: str) -> Reference:
        """Score noise as loud as the training part, each sample independent of the others."""
        return marginal_reference(dataset, split)._replace(
            what="each sample by the mean and the spread of training"
        )

    def stronger_reference(self, dataset: Dataset, split: str) -> Reference | None:
        """Linear prediction, as lossless coders have it; None of sounds of a single step."""
        from varfilter.media.linear_prediction import linear_prediction_reference

        if not (dataset.split(split).lengths >= 2 * dataset.rows_per_step).any():
            return None
        found = linear_prediction_reference(dataset, split)
        return found._replace(what=f"linear prediction ({found.what})")

    def measures(
        self, dataset: Dataset, split: str, predictor: Predictor, scores: dict[str, Any]
    ) -> list[Measure]:
        """Bits a sample beside linear prediction; of files without levels, nats of densities."""
        if not scores:
            return []
        stronger = scores.get("stronger_reference")
        if stronger is None and (found := self.stronger_reference(dataset, split)) is not None:
            stronger = found._asdict()
        naive = scores.get("reference") or self.reference(dataset, split)._asdict()
        has_levels = dataset.families[0].has_levels
        per_sample = dataset.num_elements * (math.log(2.0) if has_levels else 1.0)
        what = "minus the bound by sample, of levels of the files"
        return [
            Measure(
                "bits a sample" if has_levels else "nats a sample",
                scores["nats"] / per_sample,
                what if has_levels else "minus the bound by sample, of densities when scaled",
                ({stronger["what"]: stronger["nats"] / per_sample} if stronger else {})
                | {"independent samples": naive["nats"] / per_sample},
                "lower",
            )
        ]

    def traits(self, dataset: Dataset, recordings: Iterable[np.ndarray]) -> dict[str, float]:
        """Loudness, pauses, spectrum and pitch."""
        return sound_traits(recordings, dataset.rate or 1.0)

    def write(self, path: Path, dataset: Dataset, xs: np.ndarray) -> None:
        """A WAV file of 16 bits; a warning counts the samples that had to be clipped."""
        from varfilter.data.audio import write_wav

        samples = np.rint(restored(dataset, xs))
        _warn_of_clipping(samples)
        write_wav(samples, path, dataset.rate or 1)

    def exhibits(
        self, dataset: Dataset, split: str, predictor: Predictor, make: Maker
    ) -> list[Exhibit]:
        """Players and spectra: a held-out recording, what the model makes up, and its mean."""
        from varfilter.plots.spectra import loudest_part, spectra

        rate, number = float(dataset.rate or 1.0), len(dataset.split(split))
        num_steps = max(2, round(NUM_SECONDS * rate / dataset.rows_per_step))
        heard: dict[str, np.ndarray] = {}
        if number:
            rows = np.asarray(dataset.split(split)[0], np.float64)
            part = loudest_part(rows, round(NUM_SECONDS * rate))
            heard[f"held out: {dataset.sequence_names(split)[0]}"] = part
        made = [np.ravel(restored(dataset, xs)) for xs in make(num_steps, NUM_MADE)]
        meant = make(num_steps, mean=True)
        heard |= {f"made up, {i}": each for i, each in enumerate(made[:NUM_PLAYED], 1)}
        heard["made up, means of the emissions"] = np.ravel(restored(dataset, meant[0]))
        loudness = float(np.asarray(dataset.scaling.scale).mean())
        shown = Exhibit(
            "The waves, and how loud each frequency is at each time, on the scale of the first."
            " What is made up begins with the first step of a training recording; none was chosen.",
            paint=lambda width: spectra(heard, rate, width),
        )
        traits = {
            split: self.traits(dataset, some(dataset.split(split))),
            f"made up ({NUM_MADE})": self.traits(dataset, made),
        }
        players = [_player(name, each, rate, loudness) for name, each in heard.items()]
        return [shown, *players, Exhibit(LIKENESS, traits=traits)]

    def draw_dataset(self, page: Any, dataset: Dataset, shown: list[Any]) -> Figure:
        """Draw the wave and the spectrum of each sound, on common axes of seconds."""
        from varfilter.plots.datasets import extent_of
        from varfilter.plots.spectra import DECIBELS, SILENCE, spectrum_of
        from varfilter.plots.style import (
            COLOURS,
            LABEL,
            OUTSIDE,
            ink,
            outline,
            plain,
            title,
            value_range,
        )

        figure, body = page(1.4 * len(shown) + 0.3)
        rate = float(dataset.rate or 1.0)
        seconds = max(len(sound.rows) for sound in shown) / rate
        spectra = [spectrum_of(sound.rows, rate) for sound in shown]
        loudest = max(value_range(spectra)[1], DECIBELS + SILENCE)
        unit, divisor = ("kHz", 1000.0) if rate >= 4000 else ("Hz", 1.0)
        axes = body.subplots(len(shown), 2, sharex=True, sharey="col", squeeze=False)
        for (wave, spectrum), sound, levels in zip(axes, shown, spectra, strict=True):
            end = len(sound.rows) / rate
            plain(wave, grid=True)
            times = np.arange(len(sound.rows)) / rate
            wave.plot(*outline(times, sound.rows), color=COLOURS[0], lw=0.6)
            wave.axvspan(end, seconds, color=OUTSIDE, zorder=0.6)
            wave.set_ylabel("amplitude", **LABEL)
            title(wave, f"{sound.name}, {extent_of(sound, dataset)}")
            plain(spectrum)
            spectrum.set_facecolor(OUTSIDE)
            spectrum.imshow(
                levels, cmap=ink("black"), vmin=loudest - DECIBELS, vmax=loudest, origin="lower",
                aspect="auto", extent=(0.0, end, 0.0, rate / 2 / divisor),
            )  # fmt: skip
            spectrum.set_ylabel(unit, **LABEL)
        axes[0, 0].set_xlim(0.0, seconds)
        title(axes[0, 1], f"spectrum, {DECIBELS:.0f} dB from black to white", small=True)
        for axis in axes[-1]:
            axis.set_xlabel("seconds", **LABEL)
        return figure

    def inspected(self, sequence: Any) -> Any:
        """Cut out the loudest neighbouring steps, since speech begins with silence."""
        loudness = np.nansum(np.square(sequence.xs.reshape(len(sequence.xs), -1)), axis=1)
        window = np.ones(min(NUM_DRAWN_STEPS, len(loudness)))
        begin = int(np.argmax(np.convolve(loudness, window, "valid")))
        steps = slice(begin, begin + NUM_DRAWN_STEPS)
        cut = [part if part is None else part[steps] for part in sequence[3:]]
        first = sequence.first + begin
        return type(sequence)(sequence.name, first, sequence.num_steps, *cut)

    def draw_sequence(self, dataset: Dataset, sequence: Any, width: float) -> Figure:
        """Draw waveforms over seconds, on one scale (as in figure 3 of the paper)."""
        from matplotlib.ticker import MaxNLocator

        from varfilter.plots.figures import drawn_rows, stack, surprise
        from varfilter.plots.style import COLOURS, INK, outline, title, x_label, y_label

        rows = {
            name: dataset.scaling.restore(values.astype(np.float64)).ravel()
            for name, values in drawn_rows(sequence).items()
        }
        figure, axes, below = stack(width, len(rows), 1.1)
        rate = float(dataset.rate or 1.0)
        begin = sequence.first * dataset.rows_per_step / rate
        loudest = 1.05 * max(float(np.nanmax(np.abs(rows["data"]))), 1e-6)
        times = begin + np.arange(len(rows["data"])) / rate
        for axis, (name, values) in zip(axes, rows.items(), strict=True):
            axis.plot(*outline(times, values), color=INK if name == "data" else COLOURS[0], lw=0.6)
            axis.set_ylim(-loudest, loudest)
            axis.yaxis.set_major_locator(MaxNLocator(3))
            title(axis, name)
            y_label(axis, "amplitude")
        surprise(below, sequence, axes, start=begin, per_step=dataset.rows_per_step / rate)
        x_label(below, "seconds")
        return figure


def _warn_of_clipping(samples: np.ndarray, begin: str = "") -> None:
    """Count the samples that 16 bits have no room for."""
    from varfilter.data.audio import LEVELS

    num_clipped = int(np.sum((samples < LEVELS.min) | (samples > LEVELS.max)))
    if num_clipped:
        verb = "was" if num_clipped == 1 else "were"
        warnings.warn(
            f"{begin}{num_clipped:,} of {count(samples.size, 'sample')} {verb} louder than 16 bits"
            " hold, and clipped.",
            stacklevel=4,
        )


def _player(name: str, samples: np.ndarray, rate: float, loudness: float) -> Exhibit:
    """A player of samples in levels of 16 bits, and numbers that say what is to be heard.

    `loudness` is the spread of the training part.
    """
    from varfilter.data.audio import LEVELS, write_wav
    from varfilter.plots.spectra import flatness

    buffer = io.BytesIO()
    write_wav(samples, buffer, round(rate))
    num_clipped = int(np.sum((samples < LEVELS.min) | (samples > LEVELS.max)))
    clipped = f", {num_clipped:,} of them clipped to 16 bits" if num_clipped else ""
    spread, flat = float(np.std(samples)) / max(loudness, 1e-9), flatness(samples, rate)
    verdict = " To the ear this is noise." if flat > NOISE else ""
    caption = (
        f"{name}: {len(samples) / rate:.2f} s, {len(samples):,} samples{clipped}; {spread:.2g}"
        f" times as loud as the training part, spectral flatness {flat:.2g} (1 is white noise, a"
        f" pure tone is 0).{verdict}"
    )
    return Exhibit(caption, Clip("audio/wav", buffer.getvalue()))
