"""Films: frames as files that viewers and pages play, and the futures of a video beside what came.

Futures are drawn as in papers on video prediction: some frames are seen, several futures are drawn,
and the one that is nearest to what came counts.
"""

import io
import itertools
import warnings
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from varfilter._arguments import require_library
from varfilter._text import count
from varfilter.data.dataset import Dataset, Family
from varfilter.media.exhibits import Clip, Exhibit, Maker
from varfilter.media.measures import Measure, Predictor

# Frames in a second where the data do not say.
FRAME_RATE = 10.0
# Frames a second that a film can have: a GIF counts hundredths of a second, and viewers slow down
# what lasts less than two of them; of time lapse, whose frames are hours apart, it has no room.
SLOWEST, FASTEST_GIF, FASTEST = 1 / 600, 50.0, 1000.0
# Frames of the data that say what is black and what is white.
NUM_SAMPLED = 200
# As in papers on video prediction: so many frames are seen, and so many predicted; of how many
# videos, since drawing futures takes time.
NUM_SEEN, NUM_AHEAD, MOST_VIDEOS = 10, 20, 16
# Frames of each video that is made up for a report, and videos side by side.
NUM_MADE, NUM_BESIDE = 40, 4
# A film of 16 pixels is shown as one of at least so many.
FEWEST_PIXELS = 128


def write_film(
    path: Path | io.BytesIO, frames: np.ndarray, rate: float | int, *, is_gif: bool
) -> None:
    """Write frames (time, height, width) or (time, 1 or 3, height, width), black 0 and white 1.

    Pixels are whole, and enlarged to at least 128 a side. A rate that films cannot have is brought
    to the nearest, with a warning.
    """
    shown = float(np.clip(rate, SLOWEST, FASTEST_GIF if is_gif else FASTEST))
    if shown != rate:
        warnings.warn(
            f"The film has {shown:.4g} frames a second, which is the nearest that"
            f" {'.gif' if is_gif else '.mp4'} has to the {rate:.4g} of the data.",
            stacklevel=2,
        )
    levels = np.clip(np.rint(255.0 * frames), 0, 255).astype(np.uint8)
    if levels.ndim == 4:
        levels = levels[:, 0] if levels.shape[1] == 1 else np.moveaxis(levels, 1, -1)
    times = -(-FEWEST_PIXELS // min(levels.shape[1:3]))
    levels = levels.repeat(times, axis=1).repeat(times, axis=2)
    (_write_gif if is_gif else _write_mp4)(path, levels, shown)


def _write_gif(path: Path | io.BytesIO, levels: np.ndarray, rate: float | int) -> None:
    images: Any = require_library("PIL.Image", extra="video")
    first, *rest = (images.fromarray(frame) for frame in levels)
    # A GIF counts hundredths of a second: each frame begins at the one that is nearest to its time.
    begins = np.floor(100 * np.arange(len(levels) + 1) / rate + 0.5).astype(int)
    milliseconds = (10 * np.diff(begins)).tolist()
    first.save(path, format="GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0)


def _write_mp4(path: Path | io.BytesIO, levels: np.ndarray, rate: float | int) -> None:
    """Write a film as H.264 of high quality, in the colours that every viewer knows."""
    av: Any = require_library("av", extra="video")
    # The coding of colours takes pixels two by two.
    even = levels[:, : levels.shape[1] // 2 * 2, : levels.shape[2] // 2 * 2]
    colours = even if even.ndim == 4 else np.stack([even] * 3, -1)
    with av.open(str(path) if isinstance(path, Path) else path, "w", format="mp4") as container:
        stream = container.add_stream("h264", rate=Fraction(rate).limit_denominator(1001))
        stream.height, stream.width = colours.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "12"}
        for image in colours:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def pixels(
    dataset: Dataset, frames: np.ndarray, limits: tuple[float, float] | None = None
) -> np.ndarray:
    """Frames in scaled units as (..., channels, height, width) with black as 0 and white as 1.

    `limits` are black and white in scaled units, of the data set if they are not given.
    """
    low, high = black_and_white(dataset) if limits is None else limits
    frames = np.asarray(frames, np.float64)
    if len(dataset.observation_shape) == 2:
        frames = frames[..., None, :, :]
    return np.clip((frames - low) / (high - low), 0.0, 1.0)


def black_and_white(
    dataset: Dataset, rows: Sequence[np.ndarray] | None = None
) -> tuple[float, float]:
    """What is black and what is white, in scaled units: by the family, or by some rows.

    Without `rows`, some of training are taken.
    """
    from varfilter.plots.style import value_range

    family = dataset.family
    if isinstance(family, Family) and family.low is not None and family.high is not None:
        return float(family.low), float(family.high)
    if dataset.is_binary:
        return 0.0, 1.0
    if rows is None:
        every = -(-len(dataset.train.values) // NUM_SAMPLED) or 1
        rows = [np.asarray(dataset.train.values[::every])]
    return value_range([dataset.scaling(video.astype(np.float32)) for video in rows])


def first_frames(lengths: np.ndarray) -> tuple[int, int]:
    """How many frames are seen, and how many follow, so that half of the videos are long enough.

    A video of a single frame, which nothing follows, does not count; (0, 0) where all are such.
    """
    lengths = np.asarray(lengths)
    lengths = lengths[lengths > 1]
    half = int(np.median(lengths)) if len(lengths) else 0
    seen = min(NUM_SEEN, half // 2)
    return seen, min(NUM_AHEAD, half - seen)


def future_exhibits(dataset: Dataset, split: str, predictor: Predictor) -> list[Exhibit]:
    """What followed the first frames of a video, beside the best and another of the futures."""
    from varfilter.media.image_quality import psnr
    from varfilter.plots.strips import named_strips

    seen, horizon = first_frames(dataset.split(split).lengths)
    number = predictor.num_futures
    if seen < 1 or horizon < 1 or not number:
        return []
    found = next(predictor.futures(seen, horizon, number), None)
    if found is None:
        return []
    last, came, draws = (pixels(dataset, xs) for xs in (found.seen[-1], found.came, found.draws))
    scores = psnr(draws, np.broadcast_to(came, draws.shape)).mean(axis=1)
    best, first = int(np.argmax(scores)), 0 if np.argmax(scores) else number - 1
    rows = {
        "what came": came,
        f"best of {number} futures": draws[best],
        "another": draws[first],
        "copy of the last frame": np.broadcast_to(last, came.shape),
    }
    if number == 1:
        del rows["another"]
    said = (
        f"{found.name}, {split}, after its first {seen} frames: {', '.join(rows)}. Futures are"
        " means of emissions, with z_t drawn; the best is the one that is nearest to what came, by"
        " PSNR."
    )
    film = np.concatenate(list(rows.values()), axis=-1)
    return [
        Exhibit(said, paint=lambda width: named_strips(rows, width, first=1)),
        Exhibit("The same as a film, from left to right.", _film(dataset, film)),
    ]


def made_up_exhibit(dataset: Dataset, make: Maker) -> Exhibit:
    """Videos that the model makes up from the first frames of training videos, side by side."""
    made = make(NUM_MADE, NUM_BESIDE, mean=True)
    film = np.concatenate([pixels(dataset, xs) for xs in made], axis=-1)
    said = (
        f"{count(len(made), 'video')} that the model makes up, side by side, {NUM_MADE} frames"
        " each; none was chosen. The first frame of each is that of a training video; then each is"
        " the mean of its emission, with z_t drawn, and what the model sees next."
    )
    return Exhibit(said, _film(dataset, film))


def _film(dataset: Dataset, frames: np.ndarray) -> Clip:
    buffer = io.BytesIO()
    write_film(buffer, frames, dataset.rate or FRAME_RATE, is_gif=True)
    return Clip("image/gif", buffer.getvalue())


def frame_measures(dataset: Dataset, split: str, predictor: Predictor) -> list[Measure]:
    """PSNR and SSIM of what was drawn after the first frames of some videos.

    None, with a warning, where no video has the two frames that it takes.
    """
    from varfilter.media.image_quality import frame_scores

    lengths = dataset.split(split).lengths
    seen, horizon = first_frames(lengths)
    number = predictor.num_futures
    if not number:
        return []
    if not horizon:
        warnings.warn(
            f"PSNR and SSIM are left out: none of the {count(len(lengths), 'video')} of the {split}"
            " part has two frames or more, one to be seen and one to be predicted.",
            stacklevel=2,
        )
        return []
    num_long = int(np.sum(lengths >= seen + horizon))
    futures = itertools.islice(predictor.futures(seen, horizon, number), MOST_VIDEOS)
    triples = (
        (pixels(dataset, each.seen[-1]), pixels(dataset, each.came), pixels(dataset, each.draws))
        for each in futures
    )
    measures = []
    for name, each in frame_scores(triples).items():
        best, average, copy = f"best of {number}", f"mean of {number}", "copy of the last frame"
        unit = "in decibels, " if name == "PSNR" else ""
        frames = "frame" if horizon == 1 else f"{horizon} frames"
        what = (
            f"{best} futures after {seen} seen frames, {unit}mean over the next {frames} of"
            f" {_videos(each.num_sequences, num_long)}"
        )
        curves = {best: each.best, average: each.average, copy: each.copy}
        others = {average: float(each.average.mean()), copy: float(each.copy.mean())}
        by_step = {key: values.tolist() for key, values in curves.items()}
        errors = {} if each.num_sequences < 2 else {best: each.standard_error.tolist()}
        value = float(each.best.mean())
        measures.append(Measure(name, value, what, others, "higher", by_step, errors))
    return measures


def _videos(number: int, num_long: int) -> str:
    """The number of videos in words; and of how many long enough ones, if not all were taken."""
    if number == num_long:
        return count(number, "video")
    return f"the first {number:,} of {count(num_long, 'video')} that are long enough"
