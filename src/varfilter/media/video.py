"""Video: square frames, grey or in colour, from video files or folders of images."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from varfilter._files import ending_of
from varfilter.data.dataset import Dataset
from varfilter.media.base import AbstractMedium, Figure
from varfilter.media.exhibits import Exhibit, Inspection, Maker
from varfilter.media.films import (
    FRAME_RATE,
    black_and_white,
    frame_measures,
    future_exhibits,
    made_up_exhibit,
    pixels,
    write_film,
)
from varfilter.media.measures import Measure, Predictor
from varfilter.media.reference import Reference, last_value_reference
from varfilter.media.sequences import NewRecording, Source

# A row is an image from so many pixels each way; one longer than this is a matrix.
FEWEST_SIDE, MOST_LONGER = 8, 4


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
    endings = (".gif", ".mp4", ".npz")
    num_steps = 16
    num_samples = 16
    num_particles = 8
    has_futures = True
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

    def recordings(self, dataset: Dataset, source: Source, path: Path) -> Iterator[NewRecording]:
        """Videos with frames of the size and the colours of the run's data, and their own rate."""
        from varfilter.data.video import FrameForm, read_videos

        shape = dataset.train.values.shape[1:]
        has_channels = len(shape) == 3
        crop, frame_rate = (getattr(source, name, None) for name in ("crop", "frame_rate"))
        form = FrameForm(shape[-1], has_channels and shape[0] == 3, bool(crop), frame_rate)
        for name, (frames, own_rate) in read_videos(path, form):
            _warn_of_rate(name, own_rate, frame_rate or dataset.rate)
            frames = frames if has_channels else frames[:, 0]
            frames = (frames >= 128).astype(np.uint8) if dataset.is_binary else frames
            yield NewRecording(name, frames, own_rate)

    def seconds_per_step(self, dataset: Dataset) -> float | None:
        """How long a frame lasts, at the rate of a given video or that of the data."""
        return 1.0 / dataset.schema if dataset.schema else super().seconds_per_step(dataset)

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
        return [*found, *frame_measures(dataset, split, predictor)]

    def exhibits(
        self, dataset: Dataset, split: str, predictor: Predictor, make: Maker
    ) -> list[Exhibit]:
        """Films and strips: what followed beside what was drawn, and videos that are made up."""
        return [*future_exhibits(dataset, split, predictor), made_up_exhibit(dataset, make)]

    def write(self, path: Path, dataset: Dataset, xs: np.ndarray) -> None:
        """A .gif that repeats, or an .mp4, at its own rate, that of the data or 10 frames a second.

        Pixels are whole, and enlarged to at least 128 a side.
        """
        low, high = black_and_white(dataset)
        values = xs if xs.dtype.kind == "f" else xs.astype(np.float32)
        frames = np.nan_to_num((values - low) / (high - low), nan=0.5)
        rate = dataset.schema or dataset.rate or FRAME_RATE
        write_film(path, frames, rate, is_gif=ending_of(path) == ".gif")

    def draw_dataset(self, page: Any, dataset: Dataset, shown: list[Any]) -> Figure:
        """Draw strips of frames at even distances."""
        from varfilter.plots.datasets import strips

        limits = black_and_white(dataset, [video.rows for video in shown])
        return strips(page, dataset, shown, limits)

    def draw_sequence(self, dataset: Dataset, sequence: Any, width: float) -> Figure:
        """Draw strips of frames, one below another, at the same steps."""
        from varfilter.plots.figures import drawn_rows, surprise
        from varfilter.plots.strips import draw_strips, strip_height
        from varfilter.plots.style import blank, plain

        limits = black_and_white(dataset, [dataset.scaling.restore(sequence.xs)])
        rows = {name: pixels(dataset, xs, limits) for name, xs in drawn_rows(sequence).items()}
        height = strip_height(rows["data"], width)
        figure = blank(width, len(rows) * (height + 0.32) + 1.7)
        *axes, below = figure.subplots(
            len(rows) + 1, 1, height_ratios=[height + 0.1] * len(rows) + [1.2]
        )
        draw_strips(axes, rows, width, lambda t: f"t={sequence.first + t}")
        plain(below, grid=True)
        surprise(below, sequence, [])
        return figure


def _warn_of_rate(name: str, own: float | None, known: float | int | None) -> None:
    """Say that the frames of a new video come faster or slower than those that were learned."""
    # 29.97 frames a second are as good as 30.
    if own is None or known is None or abs(own / known - 1.0) < 0.01:
        return
    slower = "slower" if own > known else "faster"
    warnings.warn(
        f"{name} has {own:.4g} frames a second, and the videos of the run have {known:.4g}: every"
        f" frame is a step, so that the same motion is {slower} for the model.",
        stacklevel=3,
    )
