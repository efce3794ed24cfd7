"""The user's own videos: a folder of video files or of frame images, decoded once and stored."""

import functools
import io
import itertools
import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter._arguments import require_library, require_positive
from varfilter.data.dataset import SPLITS, Dataset, Family, Scaling
from varfilter.data.limits import require_size
from varfilter.data.recordings import FrameHeader, Recording, decoded, frame_changes, names_of
from varfilter.data.splits import split_by_file
from varfilter.distributions import DiscretizedNormal

VIDEOS = frozenset({".avi", ".mp4", ".mov", ".mkv", ".webm", ".mpg", ".mpeg", ".m4v", ".gif"})
IMAGES = frozenset({".png", ".jpg", ".jpeg"})
# The pixels of a frame: 8192 x 8192. Pillow warns of what has 89 million, and refuses twice that.
MOST_PIXELS = 1 << 26
# Frames whose times say whether a video's are even, and how many of the last are out of order.
NUM_TIMED, MOST_REORDERED, FEWEST_TIMED = 256, 16, 4
# How much longer or shorter than usual a frame lasts, and what share of such is no accident.
UNEVEN, LOST = 0.4, 0.1


class Frames(NamedTuple):
    """A decoded video: bytes (time, channels, size, size); frames in a second, if that is known."""

    values: np.ndarray
    rate: float | None


class FrameForm(NamedTuple):
    """What is made of the frames of every file: `size` pixels each way, grey or in colour (RGB).

    - `crop` cuts out the largest square in the middle; else the aspect ratio is not kept.
    - `frame_rate` leaves frames out until so many are left of a second; None keeps all.
    - `stretch` first rescales each frame from its own lowest and highest value to 0 and 255,
      which is what the paper's code did to KTH.
    """

    size: int = 64
    color: bool = False
    crop: bool = False
    frame_rate: float | int | None = None
    stretch: bool = False

    @property
    def num_channels(self) -> int:
        """Numbers of a pixel."""
        return 3 if self.color else 1

    @property
    def options(self) -> list[Any]:
        """What a stored set is found by, beside its files; newer ones only where they are given."""
        newer = [self.crop, self.frame_rate] if self.crop or self.frame_rate else []
        return [self.size, self.color, self.stretch, *newer]

    def checked(self) -> "FrameForm":
        """Return it, and refuse sizes and rates that are not positive."""
        require_positive("size", self.size)
        rate = self.frame_rate
        if rate is not None and not 0.0 < rate < math.inf:
            raise ValueError(f"`frame_rate` must be positive, of frames a second; got {rate}.")
        return self


def read_video(
    path: Path | str,
    size: int = 64,
    *,
    color: bool = False,
    crop: bool = False,
    frame_rate: float | int | None = None,
    stretch: bool = False,
) -> np.ndarray:
    """Read the frames of a video file: bytes (time, channels, size, size), grey or (`color`) RGB.

    The other options are those of `FrameForm`.
    """
    path = Path(path)
    form = FrameForm(size, color, crop, frame_rate, stretch).checked()
    if not path.is_file():
        raise FileNotFoundError(f"`path` must be a video file; there is none at {path}.")
    return decode_video(path, str(path), form).values


def read_videos(path: Path | str, form: FrameForm) -> Iterator[tuple[str, Frames]]:
    """Iterate over (name, frames) of a video, a folder of images, or each video of a folder.

    Of one with fewer frames a second than `form` asks for, every frame is read.
    """
    path, form = Path(path), form.checked()
    if not path.is_dir():
        if not path.is_file():
            raise FileNotFoundError(f"`path` must be a video file; there is none at {path}.")
        yield path.stem, decode_video(path, str(path), form, keep_slow=True)
        return
    places = _places(path)
    if not places:
        raise _no_videos(path)
    for place, files in places.items():
        name = place.relative_to(path).as_posix() if place != path else path.resolve().name
        yield name, _whole(place, files, form)[0]


def video_folder(
    folder: Path | str,
    size: int = 64,
    *,
    color: bool = False,
    crop: bool = False,
    frame_rate: float | int | None = None,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    group: Callable[[Path], Hashable] | None = None,
    cache: Path | str | None = None,
) -> Dataset:
    """Read every video of a folder and the folders in it, split at random by video.

    A video is one file (avi, mp4, mov, mkv, webm, mpg, m4v, gif), or a folder of images
    (png, jpg) that are its frames in the natural order of their names (2 before 10); images
    beside videos are not frames. They are grey unless in `color`; squeezed to a square unless
    `crop` cuts out that in the middle; and every frame is a step unless `frame_rate` leaves
    frames out (of images, it says how many a second has). A video that has fewer keeps them all,
    which `Dataset.notes` says.

    `group` says from the path of a video which videos belong together (a person, a day), so that
    no group is in two splits; nor are exact copies of a video. `cache` is a folder in which the
    decoded videos are stored one by one: the set need not fit in memory. The next time they are
    mapped from there, if neither the files nor the options have changed.
    """
    folder = existing_folder(folder)
    form = FrameForm(size, color, crop, frame_rate).checked()
    places = _places(folder)
    if not places:
        raise _no_videos(folder)
    split_of = split_by_file(folder, places, fractions, seed, group, kind="videos")
    videos: dict[str, list[Recording]] = {split: [] for split in SPLITS}
    for place, files in places.items():
        name = place.relative_to(folder).as_posix() if place != folder else folder.resolve().name
        read = partial(_whole, place, files, form)
        videos[split_of[place]].append(Recording(files, (name,), read))
    headers = [found for files in places.values() if (found := _header(files[0])) is not None]
    _require_fast(folder, headers, frame_rate)
    notes = frame_changes(headers, size, color=color, crop=crop, frame_rate=frame_rate)
    return replace(video_dataset(folder.resolve().name, videos, form, cache=cache), notes=notes)


def video_dataset(
    name: str,
    videos: Mapping[str, Sequence[Recording]],
    form: FrameForm,
    *,
    cache: Path | str | None = None,
) -> Dataset:
    """Make a data set of the clips of videos by split, decoded now or mapped from `cache`."""
    row = np.zeros((1, form.num_channels, form.size, form.size), np.uint8)
    parts, rate = decoded(name, videos, row, options=form.options, cache=cache)
    return Dataset(
        name,
        train=parts["train"],
        valid=parts["valid"],
        test=parts["test"],
        family=Family(DiscretizedNormal, width=1 / 255, low=0.0, high=1.0),
        scaling=Scaling(0.0, 255.0),
        names=names_of(videos),
        rate=rate,
        medium="video",
    )


def decode_video(
    source: Path | io.BytesIO,
    name: str,
    form: FrameForm,
    *,
    keep_slow: bool = False,
) -> Frames:
    """Decode the frames of a video file; `name` is what an error calls it.

    One with fewer frames a second than `form` asks for is refused; with `keep_slow`, every frame of
    it is kept.
    """
    av = require_library("av", extra="video")
    # One converter for all frames: making one costs more than converting a small frame.
    converter = av.video.reformatter.VideoReformatter()
    images = []
    num_bytes = form.num_channels * form.size**2
    num_decoded = 0
    try:
        with av.open(
            str(source) if isinstance(source, Path) else source,
            # To find out what a file holds, the library decodes some of it by itself.
            options={"max_pixels": str(MOST_PIXELS)},
        ) as container:
            if not container.streams.video:
                raise ValueError(
                    f"{name} holds no video: it has no video stream. Give another, or remove it."
                )
            stream = container.streams.video[0]
            if stream.codec_context is None:
                raise ValueError(f"{name} cannot be decoded: nobody here knows how it is coded.")
            stream.thread_type = "AUTO"
            _require_pixels(name, stream.width or 0, stream.height or 0)
            rate = _rate(stream)
            share = _share_kept(name, rate, form.frame_rate, keep_slow=keep_slow)
            for number, frame in enumerate(container.decode(stream)):
                num_decoded = number + 1
                # The first frame of each new period stays.
                if number and math.floor(number * share) == math.floor((number - 1) * share):
                    continue
                # The frames of some formats differ in size, whatever the file announces.
                _require_pixels(name, frame.width, frame.height)
                # Twice, since they are joined in the end.
                require_size(
                    f"{name} has {len(images)} frames or more", 2 * len(images) * num_bytes
                )
                kind = "rgb24" if form.color else "gray"
                image = converter.reformat(frame, format=kind).to_ndarray()
                # Phones record sideways and note the turn, counted against the clock.
                turn = frame.rotation if math.isfinite(frame.rotation) else 0
                image = np.rot90(image, round(turn / 90))
                images.append(_prepared(image, form))
            announced = stream.frames if container.format.name == "avi" else 0
    except av.error.FFmpegError as error:
        raise ValueError(
            f"{name} cannot be decoded ({error.strerror}). It must be a video, copied whole."
        ) from None
    if not images:
        raise ValueError(f"{name} holds no video: not one frame could be decoded.")
    # Other formats fail on a part of a file, or do not say how many frames there should be.
    if num_decoded < 0.9 * announced:
        raise ValueError(
            f"{name} breaks off: {num_decoded} frames of {announced} could be decoded."
            " Copy it again."
        )
    return Frames(np.stack(images), float(rate * share) if rate else None)


def decode_images(files: Sequence[Path], form: FrameForm) -> Frames:
    """Read image files, in the order given, as the frames of a video.

    They have no rate of their own: that of `form` is taken to be theirs.
    """
    size = form.size
    num_bytes = form.num_channels * size**2 * len(files)
    require_size(f"{len(files)} images of {size} x {size} pixels were asked for", 2 * num_bytes)
    images = [_prepared(_image(file, form.color), form) for file in files]
    return Frames(np.stack(images), None if form.frame_rate is None else float(form.frame_rate))


def stretched(image: np.ndarray) -> np.ndarray:
    """Stretch the contrast of a frame, from its own lowest and highest value to 0 and 255."""
    low, high = int(image.min()), int(image.max())
    return _rounded((image.astype(np.float32) - low) * (255.0 / max(high - low, 1)))


def resize(images: np.ndarray, size: int) -> np.ndarray:
    """Resize bytes (..., height, width) to (..., size, size), bilinear; the aspect may change.

    Shrinking widens the triangles to the distance of the new pixels, as image libraries do:
    every old pixel counts, and thin things do not flicker.
    """
    values = images.astype(np.float32)
    for axis in (-2, -1):
        lines = np.moveaxis(values, axis, 0)
        # Sparse: few old pixels count for a new one. And a dense product of this size would
        # start threads for each frame, which costs more than the product.
        mixed = _weights(len(lines), size) @ lines.reshape(len(lines), -1)
        values = np.moveaxis(mixed.reshape(size, *lines.shape[1:]), 0, axis)
    return _rounded(values)


def existing_folder(folder: Path | str) -> Path:
    """The path of a folder; an error if there is none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"`folder` must be a folder of videos; there is none at {folder}.")
    return folder


def middle_square(image: np.ndarray) -> np.ndarray:
    """The largest square in the middle of a frame (height, width, ...)."""
    height, width = image.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return image[top : top + side, left : left + side]


def _prepared(image: np.ndarray, form: FrameForm) -> np.ndarray:
    """A frame (height, width) or (height, width, 3) as (channels, size, size)."""
    image = middle_square(image) if form.crop else image
    channels = image[None] if image.ndim == 2 else np.moveaxis(image, -1, 0)
    return resize(stretched(channels) if form.stretch else channels, form.size)


def _share_kept(
    name: str, rate: Fraction | None, wanted: float | int | None, *, keep_slow: bool
) -> Fraction:
    """The share of a video's frames to keep, so that `wanted` are left of a second."""
    if wanted is None:
        return Fraction(1)
    if not rate:
        raise ValueError(
            f"{name} does not say how many frames a second has, so that `frame_rate` {wanted:g}"
            " means nothing there. Leave it out, or convert the video."
        )
    share = Fraction(wanted).limit_denominator(1000) / rate
    # Of 29.97 frames a second, 30 are all.
    if share > Fraction(101, 100) and not keep_slow:
        raise ValueError(
            f"`frame_rate` is {wanted:g}, but {name} has {float(rate):.4g} frames a second, and"
            f" none are made up. Give at most {float(rate):.4g}."
        )
    return min(share, Fraction(1))


@functools.lru_cache(maxsize=64)
def _weights(old: int, new: int) -> Any:
    """The part that each of `old` pixels has in each of `new`: a sparse matrix."""
    from scipy.sparse import csr_array

    centre = (np.arange(new) + 0.5) * old / new
    distance = np.abs(np.arange(old) + 0.5 - centre[:, None]) / max(old / new, 1.0)
    weights = np.maximum(1.0 - distance, 0.0)
    return csr_array((weights / weights.sum(1, keepdims=True)).astype(np.float32))


def _rounded(values: np.ndarray) -> np.ndarray:
    return np.clip(np.floor(values + 0.5), 0, 255).astype(np.uint8)


def _image(file: Path, color: bool) -> np.ndarray:
    images: Any = require_library("PIL.Image", extra="video")
    try:
        with images.open(file) as image:
            # Only the header was read so far.
            _require_pixels(str(file), *image.size)
            if not image.mode.startswith("I"):
                return np.asarray(image.convert("RGB" if color else "L"))
            # Pillow would clip 16-bit values at 255 instead of scaling them.
            grey = (np.asarray(image.convert("I")) // 257).astype(np.uint8)
    except MemoryError:
        raise
    # Pillow's own errors are of many kinds: a broken chunk of a PNG is a SyntaxError, a picture
    # above its own limit, which lies above ours, an error that is nothing else.
    except Exception as error:
        if str(error).startswith(str(file)):
            raise
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise ValueError(
            f"{file} cannot be read as an image ({reason}). Copy it again, or remove it."
        ) from None
    return np.stack([grey] * 3, -1) if color else grey


def _require_pixels(name: str, width: int, height: int) -> None:
    """Refuse a picture that is too large to be a frame, by what its file announces."""
    announced = f"{name} announces frames of {width} x {height} pixels"
    if width * height > MOST_PIXELS:
        raise ValueError(
            f"{announced}; the most are {MOST_PIXELS}. A frame of a video is smaller: shrink or"
            " remove it."
        )
    # As it comes, in colours, and as numbers while it is resized.
    require_size(announced, 24 * width * height)


def _places(folder: Path) -> dict[Path, tuple[Path, ...]]:
    """The files of each video, by the file itself or by the folder of its frames."""
    videos: list[Path] = []
    images: dict[Path, list[Path]] = {}
    for file in folder.rglob("*"):
        if file.name.startswith(".") or not file.is_file():  # `._x.avi` is no video
            continue
        if file.suffix.lower() in VIDEOS:
            videos.append(file)
        elif file.suffix.lower() in IMAGES:
            images.setdefault(file.parent, []).append(file)
    places: dict[Path, tuple[Path, ...]] = {video: (video,) for video in videos}
    beside = {video.parent for video in videos}
    for place, files in images.items():
        if place not in beside:
            places[place] = tuple(sorted(files, key=_natural))
    return {place: places[place] for place in sorted(places, key=_natural)}


def _natural(path: Path) -> tuple[list[str | int], str]:
    """What paths are sorted by: numbers count as numbers, and the path decides between 1 and 01."""
    parts = re.split(r"([0-9]+)", path.as_posix().lower())
    return [int(part) if part.isdecimal() else part for part in parts], path.as_posix()


def _whole(place: Path, files: tuple[Path, ...], form: FrameForm) -> list[Frames]:
    if place.is_dir():
        return [decode_images(files, form)]
    # One slow video need not end the reading of a folder: a note says which are.
    return [decode_video(place, str(place), form, keep_slow=True)]


def _require_fast(
    folder: Path, headers: Sequence[FrameHeader], frame_rate: float | int | None
) -> None:
    """Refuse a frame rate that no video has: then nothing would be as it was asked for."""
    rates = [header.rate for header in headers if header.rate is not None]
    # Images have no rate of their own; of 29.97 frames a second, 30 are all.
    if frame_rate is None or len(rates) < len(headers) or frame_rate <= 1.01 * max(rates):
        return
    raise ValueError(
        f"`frame_rate` is {frame_rate:g}, but the videos of {str(folder)!r} have {max(rates):.4g}"
        f" frames a second at most, and none are made up. Give at most {max(rates):.4g}."
    )


def _header(file: Path) -> FrameHeader | None:
    """What a video, or the first image of one, says of its frames; None if nothing can be read.

    What is wrong with it then, decoding says.
    """
    try:
        if file.suffix.lower() in IMAGES:
            with require_library("PIL.Image", extra="video").open(file) as image:
                is_coloured = image.mode not in ("1", "L", "LA", "I", "I;16")
                return FrameHeader(image.width, image.height, is_coloured)
        with require_library("av", extra="video").open(str(file)) as container:
            stream = container.streams.video[0]
            is_coloured = None if stream.pix_fmt is None else not stream.pix_fmt.startswith("gray")
            rate = _rate(stream)
            return FrameHeader(
                stream.width,
                stream.height,
                is_coloured,
                None if rate is None else float(rate),
                _is_uneven(container, stream),
            )
    except Exception:
        return None


def _rate(stream: Any) -> Fraction | None:
    """How many frames a second a video says to have; None where it does not say.

    PyAV 19 has a rational number of its own, which is 0 / 0 for a file that says none.
    """
    rate = stream.average_rate
    if rate is None or not rate.numerator or not rate.denominator:
        return None
    return Fraction(int(rate.numerator), int(rate.denominator))


def _is_uneven(container: Any, stream: Any) -> bool:
    """Whether some of the first frames are shown much longer than others, as phones record them.

    By the packets, of which nothing has to be decoded. A GIF counts hundredths of a second, so that
    3 and 4 of them are even; and a frame that a camera has lost now and then is one in many.
    """
    packets = itertools.islice(container.demux(stream), NUM_TIMED)
    times = sorted(packet.pts for packet in packets if packet.pts is not None)
    if len(times) >= NUM_TIMED - 1:  # of the last, some that are shown before them come later
        times = times[:-MOST_REORDERED]
    lasts = np.diff(times)
    if len(lasts) < FEWEST_TIMED:
        return False
    usual = np.median(lasts)
    return bool(np.mean(np.abs(lasts - usual) > UNEVEN * usual) > LOST)


def _endings(suffixes: frozenset[str]) -> str:
    return ", ".join(sorted(suffix[1:] for suffix in suffixes))


def _no_videos(folder: Path) -> FileNotFoundError:
    return FileNotFoundError(
        f"`folder` must hold videos ({_endings(VIDEOS)}) or folders of images"
        f" ({_endings(IMAGES)}); found none in {folder}."
    )
