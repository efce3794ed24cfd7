"""Video: square frames, grey or in colour, from video files or folders of images."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from varfilter._arguments import require_library
from varfilter._text import count
from varfilter.data.dataset import Dataset, Family
from varfilter.media.base import AbstractMedium, Figure, Inspection, Source
from varfilter.media.measures import Measure, Predictor
from varfilter.media.reference import Reference, last_value_reference

# A row is an image from so many pixels each way; one longer than this is a matrix.
FEWEST_SIDE, MOST_LONGER = 8, 4
# Frames in a second where the data do not say.
FRAME_RATE = 10.0
# A video of 16 pixels is shown as one of at least so many.
FEWEST_PIXELS = 128
# Frames of the data that say what is black and what is white.
NUM_SAMPLED = 200
# As in papers on video prediction: so many frames are seen, and so many predicted; of how many
# videos, since drawing futures takes time.
NUM_SEEN, NUM_AHEAD, MOST_VIDEOS = 10, 20, 16
# Frames side by side, by the width of the figure in inches.
NUM_FRAMES_WIDE, NUM_FRAMES_NARROW = 10, 5


@dataclass(frozen=True)
class VideoSource(Source):
    """Which video, and how it is read; what is not given is the paper's."""

    medium: ClassVar[str] = "video"

    size: int | None = None
    """The height and width of the frames in pixels (64)."""
    color: bool | None = None
    """Frames in colour; else they are made grey."""
    crop: bool | None = None
    """Cut out the largest square in the middle; else frames are squeezed to a square."""
    frame_rate: float | None = None
    """Frames a second, by leaving out others (every frame is a step)."""


class VideoMedium(AbstractMedium):
    """Video: one frame is a step."""

    name = "video"
    plural = "video"
    source = VideoSource
    experiment = "svg-weizmann-avf"
    suffixes = frozenset({".avi", ".mp4", ".mov", ".mkv", ".webm", ".mpg", ".mpeg", ".m4v", ".gif"})
    # Images beside sound or music are covers; where there is nothing else, they are frames.
    frame_suffixes = frozenset({".png", ".jpg", ".jpeg"})
    endings = (".gif", ".npz")
    num_steps = 16
    num_samples = 16
    num_particles = 8
    inputs = "a video, a folder of images that are its frames, or a folder of videos"
    inspection = Inspection(num_sequences=3, num_steps=40, num_samples=24)
    caption = (
        "Frames at even distances, the prediction of each before it was seen, the reconstruction"
        " after inference, and the surprise of every frame."
    )

    def holds(self, dataset: Dataset) -> bool:
        """Whether a row is an image, grey (with or without an axis of channels) or in colour."""
        row = dataset.train.values.shape[1:]
        has_image = len(row) == 2 or (len(row) == 3 and row[0] in (1, 3))
        if not has_image or dataset.rows_per_step != 1:
            return False
        short, long = sorted(row[-2:])
        return short >= FEWEST_SIDE and long <= MOST_LONGER * short

    def reader(self, path: Path) -> Callable[..., Dataset]:
        """Return the reader of a folder of videos, or of folders of images."""
        from varfilter.data.video import video_folder

        return video_folder

    def recordings(
        self, dataset: Dataset, source: Source, path: Path
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Videos with frames of the size and the colours of the run's data."""
        from varfilter.data.video import FrameForm, read_videos

        shape = dataset.train.values.shape[1:]
        has_channels = len(shape) == 3
        crop, frame_rate = (getattr(source, name, None) for name in ("crop", "frame_rate"))
        form = FrameForm(shape[-1], has_channels and shape[0] == 3, bool(crop), frame_rate)
        for name, frames in read_videos(path, form):
            frames = frames if has_channels else frames[:, 0]
            yield name, (frames >= 128).astype(np.uint8) if dataset.is_binary else frames

    def reference(self, dataset: Dataset, split: str) -> Reference:
        """Score the previous frame, with the spread by which each pixel changes in training."""
        return last_value_reference(dataset, split)._replace(
            what="the previous frame, with the spread of the changes in training"
        )

    def measures(
        self, dataset: Dataset, split: str, predictor: Predictor, scores: dict[str, Any]
    ) -> list[Measure]:
        """Bits a dimension; PSNR and SSIM of the best of several futures, by frames ahead."""
        found = []
        if scores and dataset.families[0].has_levels:
            nats = dataset.num_elements * math.log(2.0)
            naive = scores.get("reference") or self.reference(dataset, split)._asdict()
            copied = {"the previous frame with its spread": naive["nats"] / nats}
            what = "minus the bound by dimension, of levels of bytes"
            found = [Measure("bits a dimension", scores["nats"] / nats, what, copied, "lower")]
        return [*found, *_frame_measures(dataset, split, predictor)]

    def write(self, path: Path, dataset: Dataset, xs: np.ndarray) -> None:
        """A .gif that repeats, at the rate of the data or 10 frames a second.

        Pixels are whole, and enlarged to at least 128 a side.
        """
        images: Any = require_library("PIL.Image", extra="video")
        low, high = _black_and_white(dataset, [_sampled(dataset)])
        values = xs if xs.dtype.kind == "f" else xs.astype(np.float32)
        levels = np.nan_to_num(255.0 * (values - low) / (high - low), nan=127.5)
        frames = np.clip(np.rint(levels), 0, 255).astype(np.uint8)
        if frames.ndim == 4:
            frames = frames[:, 0] if frames.shape[1] == 1 else np.moveaxis(frames, 1, -1)
        times = -(-FEWEST_PIXELS // min(frames.shape[1:3]))
        frames = frames.repeat(times, axis=1).repeat(times, axis=2)
        first, *rest = (images.fromarray(frame) for frame in frames)
        rate = dataset.rate or FRAME_RATE
        # The format counts hundredths of a second, and viewers slow down what lasts less than two.
        milliseconds = 10 * max(2, round(100 / rate))
        first.save(
            path, format="GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0
        )

    def draw_dataset(self, page: Any, dataset: Dataset, shown: list[Any]) -> Figure:
        """Draw strips of frames at even distances."""
        from varfilter.plots.datasets import strips

        limits = _black_and_white(dataset, [video.rows for video in shown])
        return strips(page, dataset, shown, limits)

    def draw_sequence(self, dataset: Dataset, sequence: Any, width: float) -> Figure:
        """Draw strips of frames, one below another, at the same steps."""
        from varfilter.plots.figures import drawn_rows, surprise
        from varfilter.plots.style import NARROW, blank, coloured, plain, title

        rows = drawn_rows(sequence)
        height, breadth = sequence.xs.shape[-2:]
        most = NUM_FRAMES_NARROW if width == NARROW else NUM_FRAMES_WIDE
        number = min(most, len(sequence.xs))
        steps = np.unique(np.linspace(0, len(sequence.xs) - 1, number).round().astype(int))
        pitch = breadth + max(1, breadth // 24)
        strip_height = 0.93 * width * height / (most * pitch)
        figure = blank(width, len(rows) * (strip_height + 0.32) + 1.7)
        *axes, below = figure.subplots(
            len(rows) + 1, 1, height_ratios=[strip_height + 0.1] * len(rows) + [1.2]
        )
        low, high = _black_and_white(dataset, [dataset.scaling.restore(sequence.xs)])
        for axis, (name, frames) in zip(axes, rows.items(), strict=True):
            strip = np.ones((height, most * pitch, 3), np.float32)
            for place, t in enumerate(steps):
                left = place * pitch
                strip[:, left : left + breadth] = coloured((frames[t] - low) / (high - low))
            axis.imshow(strip, interpolation="nearest")
            plain(axis)
            axis.spines[:].set_visible(False)
            axis.set_yticks([])
            centres = np.arange(len(steps)) * pitch + (breadth - 1) / 2
            axis.set_xticks(centres, [f"t={sequence.first + t}" for t in steps])
            axis.tick_params(length=0, labelsize=8, labelbottom=name == list(rows)[-1])
            axis.set_anchor("W")
            title(axis, name)
        plain(below, grid=True)
        surprise(below, sequence, [])
        return figure


def first_frames(lengths: np.ndarray) -> tuple[int, int]:
    """How many frames are seen, and how many follow, so that half of the videos are long enough."""
    half = int(np.median(lengths)) if len(lengths) else 0
    seen = min(NUM_SEEN, half // 2)
    return seen, min(NUM_AHEAD, half - seen)


def _frame_measures(dataset: Dataset, split: str, predictor: Predictor) -> list[Measure]:
    """PSNR and SSIM of what was drawn after the first frames of some videos."""
    from varfilter.media.image_quality import frame_scores

    seen, horizon = first_frames(dataset.split(split).lengths)
    number = predictor.num_futures
    if seen < 1 or horizon < 1 or not number:
        return []
    futures = itertools.islice(predictor.futures(seen, horizon, number), MOST_VIDEOS)
    limits = _black_and_white(dataset, [_sampled(dataset)])
    triples = (
        (pixels(each.seen[-1], limits), pixels(each.came, limits), pixels(each.draws, limits))
        for each in futures
    )
    measures = []
    for name, each in frame_scores(triples).items():
        best, average, copy = f"best of {number}", f"mean of {number}", "copy of the last frame"
        unit = " in decibels" if name == "PSNR" else ""
        frames = "frame" if horizon == 1 else f"{horizon} frames"
        what = (
            f"{best} futures after {seen} seen frames, mean over the next {frames} of"
            f" {count(each.num_sequences, 'video')}{unit}"
        )
        curves = {best: each.best, average: each.average, copy: each.copy}
        others = {average: float(each.average.mean()), copy: float(each.copy.mean())}
        by_step = {key: values.tolist() for key, values in curves.items()}
        errors = {} if each.num_sequences < 2 else {best: each.standard_error.tolist()}
        value = float(each.best.mean())
        measures.append(Measure(name, value, what, others, "higher", by_step, errors))
    return measures


def pixels(frames: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """Frames (..., channels, height, width) with black as 0 and white as 1, in scaled units."""
    low, high = limits
    return np.clip((np.asarray(frames, np.float64) - low) / (high - low), 0.0, 1.0)


def _sampled(dataset: Dataset) -> np.ndarray:
    """Some frames of training."""
    rows = dataset.train.values
    return np.asarray(rows[:: -(-len(rows) // NUM_SAMPLED) or 1])


def _black_and_white(dataset: Dataset, rows: Sequence[np.ndarray]) -> tuple[float, float]:
    """What is black and what is white, in scaled units: by the family, or by some rows."""
    from varfilter.plots.style import value_range

    family = dataset.family
    if isinstance(family, Family) and family.low is not None and family.high is not None:
        return float(family.low), float(family.high)
    if dataset.is_binary:
        return 0.0, 1.0
    return value_range([dataset.scaling(video.astype(np.float32)) for video in rows])
