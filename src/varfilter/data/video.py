"""The user's own films: a folder of videos or of frame images, decoded once and kept."""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from varfilter._arguments import require_positive
from varfilter.data.dataset import SPLITS, Dataset, Family, Scaling
from varfilter.data.frames import Frames, decode_images, decode_video
from varfilter.data.kept import Recording, decoded, names_of
from varfilter.data.splits import split_by_file
from varfilter.distributions import DiscretizedNormal

VIDEOS = frozenset({".avi", ".mp4", ".mov", ".mkv", ".webm", ".mpg", ".mpeg", ".m4v", ".gif"})
IMAGES = frozenset({".png", ".jpg", ".jpeg"})


def read_video(
    path: Path | str, size: int = 64, *, color: bool = False, stretch: bool = False
) -> np.ndarray:
    """The frames of a video file: bytes (time, channels, size, size), grey or (`color`) RGB.

    The aspect ratio is not kept. `stretch` first rescales each frame from its own lowest and
    highest value to 0 and 255, which is what the paper's code did to KTH.
    """
    path = Path(path)
    require_positive("size", size)
    if not path.is_file():
        raise FileNotFoundError(f"`path` must be a video file; there is none at {path}.")
    return decode_video(path, str(path), size, color=color, stretch=stretch).values


def read_films(
    path: Path | str, size: int = 64, *, color: bool = False
) -> Iterator[tuple[str, np.ndarray]]:
    """(name, frames) of a video, of a folder of images, or of each film of a folder."""
    path = Path(path)
    if not path.is_dir():
        yield path.stem, read_video(path, size, color=color)
        return
    places = _places(path)
    if not places:
        raise _no_films(path)
    for place, files in places.items():
        name = place.relative_to(path).as_posix() if place != path else path.name
        yield name, _whole(place, files, size, color)[0].values


def video_folder(
    folder: Path | str,
    size: int = 64,
    *,
    color: bool = False,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    group: Callable[[Path], Hashable] | None = None,
    cache: Path | str | None = None,
) -> Dataset:
    """Every film of a folder and the folders in it, split at random by film.

    A film is a video file (avi, mp4, mov, mkv, webm, mpg, m4v, gif), or a folder of images
    (png, jpg) that are its frames in the natural order of their names (2 before 10); images
    beside videos are not frames. `group` says from the path of a film which films belong
    together (a person, a day), so that no group is in two splits; nor are exact copies of a film.
    `cache` is a folder that keeps the decoded films, written film by film: the set need not fit
    in memory. The next time they are mapped from there, if neither the files nor the options
    have changed.
    """
    folder = existing_folder(folder)
    require_positive("size", size)
    places = _places(folder)
    if not places:
        raise _no_films(folder)
    split_of = split_by_file(folder, places, fractions, seed, group, kind="films")
    films: dict[str, list[Recording]] = {split: [] for split in SPLITS}
    for place, files in places.items():
        name = place.relative_to(folder).as_posix() if place != folder else folder.name
        read = partial(_whole, place, files, size, color)
        films[split_of[place]].append(Recording(files, (name,), read))
    return film_dataset(folder.name, films, size, color=color, cache=cache)


def film_dataset(
    name: str,
    films: Mapping[str, Sequence[Recording]],
    size: int,
    *,
    color: bool = False,
    stretch: bool = False,
    cache: Path | str | None = None,
) -> Dataset:
    """The clips of films by split; decoded now, or mapped from `cache`."""
    row = np.zeros((1, 3 if color else 1, size, size), np.uint8)
    parts, rate = decoded(name, films, row, options=[size, color, stretch], cache=cache)
    return Dataset(
        name,
        train=parts["train"],
        valid=parts["valid"],
        test=parts["test"],
        family=Family(DiscretizedNormal, width=1 / 255, low=0.0, high=1.0),
        scaling=Scaling(0.0, 255.0),
        names=names_of(films),
        rate=rate,
    )


def existing_folder(folder: Path | str) -> Path:
    """`folder` as a path, if it is one."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"`folder` must be a folder of films; there is none at {folder}.")
    return folder


def _places(folder: Path) -> dict[Path, tuple[Path, ...]]:
    """The files of each film: by the video, or by the folder of its frames; in natural order."""
    videos: list[Path] = []
    images: dict[Path, list[Path]] = {}
    for file in folder.rglob("*"):
        if file.name.startswith(".") or not file.is_file():  # `._x.avi` is no film
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
    """Numbers in a path count as numbers; the path itself decides between 1 and 01."""
    parts = re.split(r"([0-9]+)", path.as_posix().lower())
    return [int(part) if part.isdecimal() else part for part in parts], path.as_posix()


def _whole(place: Path, files: tuple[Path, ...], size: int, color: bool) -> list[Frames]:
    if place.is_dir():
        return [decode_images(files, size, color=color)]
    return [decode_video(place, str(place), size, color=color)]


def _endings(suffixes: frozenset[str]) -> str:
    return ", ".join(sorted(suffix[1:] for suffix in suffixes))


def _no_films(folder: Path) -> FileNotFoundError:
    return FileNotFoundError(
        f"`folder` must hold videos ({_endings(VIDEOS)}) or folders of images"
        f" ({_endings(IMAGES)}); found none in {folder}."
    )
