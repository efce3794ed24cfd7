"""Films as arrays of bytes: decoded, turned upright, stretched and resized, frame by frame."""

import functools
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from varfilter.data.extras import require


class Frames(NamedTuple):
    """A decoded film: bytes (time, channels, size, size); `rate` in a second, if it is known."""

    values: np.ndarray
    rate: float | None


def decode_video(
    source: Path | io.BytesIO, name: str, size: int, *, color: bool = False, stretch: bool = False
) -> Frames:
    """The film of a video file; `name` is what an error calls it."""
    av = require("av", extra="video")
    # One converter for all frames: making one costs more than converting a small frame.
    converter = av.video.reformatter.VideoReformatter()
    images = []
    try:
        with av.open(str(source) if isinstance(source, Path) else source) as container:
            if not container.streams.video:
                raise ValueError(f"{name} holds no film: it has no video stream.")
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            for frame in container.decode(stream):
                image = converter.reformat(frame, format="rgb24" if color else "gray").to_ndarray()
                # Telephones film sideways and note the turn, counted against the clock.
                image = np.rot90(image, round(frame.rotation / 90))
                images.append(_prepared(image, size, stretch))
            rate = float(stream.average_rate) if stream.average_rate else None
            announced = stream.frames if container.format.name == "avi" else 0
    except av.error.FFmpegError as error:
        raise ValueError(
            f"{name} cannot be decoded ({error.strerror}). It must be a video, copied whole."
        ) from None
    if not images:
        raise ValueError(f"{name} holds no film: not one frame could be decoded.")
    # Other formats fail on a part of a file, or do not say how many frames there should be.
    if len(images) < 0.9 * announced:
        raise ValueError(
            f"{name} breaks off: {len(images)} frames of {announced} could be decoded."
            " Copy it again."
        )
    return Frames(np.stack(images), rate)


def decode_images(
    files: Sequence[Path], size: int, *, color: bool = False, stretch: bool = False
) -> Frames:
    """The film whose frames are image files, in the order given."""
    return Frames(np.stack([_prepared(_image(file, color), size, stretch) for file in files]), None)


def stretched(image: np.ndarray) -> np.ndarray:
    """Contrast stretch: from the frame's own lowest and highest value to 0 and 255."""
    low, high = int(image.min()), int(image.max())
    return _rounded((image.astype(np.float32) - low) * (255.0 / max(high - low, 1)))


def resize(images: np.ndarray, size: int) -> np.ndarray:
    """Bytes (..., height, width) as (..., size, size), bilinear; the aspect ratio is not kept.

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


def _prepared(image: np.ndarray, size: int, stretch: bool) -> np.ndarray:
    """A frame (height, width) or (height, width, 3) as (channels, size, size)."""
    channels = image[None] if image.ndim == 2 else np.moveaxis(image, -1, 0)
    return resize(stretched(channels) if stretch else channels, size)


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
    images: Any = require("PIL.Image", extra="video")
    try:
        with images.open(file) as image:
            if not image.mode.startswith("I"):
                return np.asarray(image.convert("RGB" if color else "L"))
            # Pillow would clip 16-bit values at 255 instead of scaling them.
            grey = (np.asarray(image.convert("I")) // 257).astype(np.uint8)
    # Pillow's own errors: a broken chunk of a PNG is a SyntaxError.
    except (OSError, SyntaxError, ValueError) as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"{file} cannot be read as an image ({reason}).") from None
    return np.stack([grey] * 3, -1) if color else grey
