"""The named sets of video: KTH Actions, Weizmann's actions, and stochastic moving digits.

- KTH: the table of its sub-sequences, and its videos in zip files or unpacked.
- Weizmann "Actions as Space-Time Shapes": nine people, ten actions, a static camera.
- Moving digits: handwritten digits that leave each wall in a random direction.
"""

import io
import re
import zipfile
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from varfilter._arguments import require_all_positive, require_library
from varfilter.data.dataset import SPLITS, Dataset, Family
from varfilter.data.ragged import Ragged
from varfilter.data.recordings import Recording
from varfilter.data.sets.registry import KTH_ACTIONS, KTH_TABLE
from varfilter.data.splits import split_by_sequence
from varfilter.data.video import (
    FrameForm,
    Frames,
    decode_video,
    existing_folder,
    resize,
    video_dataset,
)
from varfilter.distributions import Bernoulli

ACTIONS = tuple(KTH_ACTIONS)
PERSONS = {
    "train": (11, 12, 13, 14, 15, 16, 17, 18),
    "valid": (19, 20, 21, 23, 24, 25, 1, 4),
    "test": (22, 2, 3, 5, 6, 7, 8, 9, 10),
}
# In the order of their names: the first six learn, the last two test.
PEOPLE = {
    "train": ("daria", "denis", "eli", "ido", "ira", "lena"),
    "valid": ("lyova",),
    "test": ("moshe", "shahar"),
}
SMALLEST = 16


class Clip(NamedTuple):
    """One sub-sequence: frames `start` to `end` of a video, counted from 1, both included."""

    person: int
    action: str
    scene: int
    start: int
    end: int

    @property
    def video(self) -> str:
        """The name of the video that the clip is cut from, without the ending of the file."""
        return f"person{self.person:02}_{self.action}_d{self.scene}"

    @property
    def name(self) -> str:
        """The name of the clip: the video and the frames."""
        return f"{self.video}_{self.start}-{self.end}"


class VideoFile(NamedTuple):
    """Where a video lies: a file, or a member of a zip file."""

    file: Path
    member: str | None = None


def kth_table(path: Path | str) -> list[Clip]:
    """Read the sub-sequences that `00sequences.txt` lists, video by video, in the order of time.

    Seven lines of the table overlap by a slip; there a sub-sequence begins at the frame after
    the end of the one before, so that no frame is in two of them.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"KTH needs its table of sub-sequences, {KTH_TABLE}, which comes beside the zip files;"
            f" there is none at {path}."
        )
    clips: list[Clip] = []
    for number, line in enumerate(path.read_text(encoding="latin-1").splitlines(), 1):
        if line.startswith("person") and "*missing*" not in line:
            clips += _clips(line, f"{path}, line {number}")
    if not clips:
        raise ValueError(f"{path} lists no sub-sequences: it is not the table of KTH.")
    return clips


def kth(
    folder: Path | str,
    *,
    size: int = 64,
    stretch: bool = False,
    actions: Sequence[str] = ACTIONS,
    cache: Path | str | None = None,
) -> Dataset:
    """Read KTH Actions, in the usual split by persons, from a folder with the table and videos.

    The videos lie in the zip files as they come (walking.zip, ...) or unpacked, in any folder
    below. `stretch` as the paper's code did, see `read_video`; `actions` for a part of the set;
    `cache` as in `video_folder`. A sub-sequence has all frames of the table, the last one too,
    which the paper's code left out.
    """
    folder = existing_folder(folder)
    form = FrameForm(size, stretch=stretch).checked()
    if unknown := [action for action in actions if action not in ACTIONS]:
        raise ValueError(f"`actions` must be of {', '.join(ACTIONS)}; got {unknown[0]!r}.")
    table = [clip for clip in kth_table(folder / KTH_TABLE) if clip.action in actions]
    sources = _sources(folder)
    if missing := [name for name in dict.fromkeys(c.video for c in table) if name not in sources]:
        raise FileNotFoundError(
            f"`folder` must hold all videos of KTH, in zip files or unpacked; in {folder}"
            f" {len(missing)} are missing, the first is {missing[0]}."
            " For some of the actions give `actions`, for a few videos use `kth_sample`."
        )
    videos = {
        split: [
            _recording(sources[name], list(clips), form)
            for name, clips in groupby(table, lambda clip: clip.video)
            if _person(name) in PERSONS[split]
        ]
        for split in SPLITS
    }
    return video_dataset("kth", videos, form, cache=cache)


def kth_sample(folder: Path | str, *, size: int = 64, stretch: bool = False) -> Dataset:
    """Read a few videos of KTH, of any person, for trying things out.

    One person cannot be split: of the sub-sequences of each video the third is for validation
    and the fourth for test, so that scores on it say nothing about other persons.
    """
    folder = existing_folder(folder)
    form = FrameForm(size, stretch=stretch).checked()
    sources = _sources(folder)
    videos: dict[str, list[Recording]] = {split: [] for split in SPLITS}
    for name, group in groupby(kth_table(folder / KTH_TABLE), lambda clip: clip.video):
        clips = list(group)
        for split, part in zip(SPLITS, (clips[:2], clips[2:3], clips[3:]), strict=True):
            if name in sources and part:
                videos[split].append(_recording(sources[name], part, form))
    if not videos["train"]:
        raise FileNotFoundError(
            f"`folder` must hold videos personNN_ACTION_dN_uncomp.avi; found none in {folder}."
        )
    return video_dataset("kth-sample", videos, form)


def weizmann(
    folder: Path | str,
    size: int = 64,
    *,
    color: bool = False,
    crop: bool = False,
    frame_rate: float | int | None = None,
    cache: Path | str | None = None,
) -> Dataset:
    """Read the clips PERSON_ACTION.avi of a folder, with people held out: `PEOPLE` says whom.

    There are 90 clips and 5,855 frames of 180x144 at 25 a second. The options are those of
    `video_folder`.
    """
    folder = existing_folder(folder)
    form = FrameForm(size, color, crop, frame_rate).checked()
    clips: dict[str, list[Path]] = {person: [] for split in SPLITS for person in PEOPLE[split]}
    for file in sorted(folder.glob("*.avi")):
        person, _, action = file.stem.partition("_")
        if person not in clips or not action:
            raise ValueError(
                f"{file} is not a clip of Weizmann: their names are PERSON_ACTION.avi, with one of"
                f" {', '.join(clips)}. For other videos use `video_folder`."
            )
        clips[person].append(file)
    if missing := [person for person, files in clips.items() if not files]:
        raise FileNotFoundError(
            f"`folder` must hold clips PERSON_ACTION.avi of nine people; in {folder} there are"
            f" none of {', '.join(missing)}."
        )
    videos = {
        split: [
            Recording((file,), (file.stem,), partial(_whole, file, form))
            for person in PEOPLE[split]
            for file in clips[person]
        ]
        for split in SPLITS
    }
    return video_dataset("weizmann", videos, form, cache=cache)


def moving_digits(
    num_train: int = 2000,
    num_valid: int = 200,
    num_test: int = 200,
    num_steps: int = 20,
    size: int = 64,
    num_digits: int = 2,
    seed: int = 0,
) -> Dataset:
    """Simulate videos of digits that fly straight and leave walls in a new direction and speed.

    The 1,797 handwritten digits of scikit-learn, enlarged, black or white; where they cross,
    white wins. Each split has digits of its own, and depends on nothing but its own count, the
    sizes and `seed`. A name such as "3#417 8#1203" tells the digits and their images.
    """
    require_all_positive(
        num_train=num_train, num_valid=num_valid, num_test=num_test,
        num_steps=num_steps, size=size, num_digits=num_digits,
    )  # fmt: skip
    if size < SMALLEST:
        raise ValueError(
            f"`size` must be at least {SMALLEST}, for digits that can be told apart; got {size}."
        )
    if seed < 0:
        raise ValueError(f"`seed` must be a whole number, at least 0; got {seed}.")
    digits = require_library("sklearn.datasets", extra="digits").load_digits()
    # 28 pixels of 64, as in the set of this kind that is most used.
    glyphs = resize(np.rint(digits.images * (255 / 16)), max(size * 7 // 16, 8)) > 127
    own = split_by_sequence(len(glyphs), (0.8, 0.1, 0.1), seed)
    parts, names = {}, {}
    counts = {"train": num_train, "valid": num_valid, "test": num_test}
    for index, (split, count) in enumerate(counts.items()):
        generator = np.random.default_rng([seed, index])
        chosen = generator.choice(own[split], (count, num_digits))
        paths = _paths(chosen.shape, num_steps, size, glyphs.shape[-1], generator)
        frames = _drawn(glyphs[chosen], paths, size)
        parts[split] = Ragged(frames[:, None], np.full(count, num_steps))
        names[split] = tuple(
            " ".join(f"{digits.target[image]}#{image}" for image in row) for row in chosen
        )
    return Dataset("moving-digits", **parts, family=Family(Bernoulli), names=names, medium="video")


def _clips(line: str, place: str) -> list[Clip]:
    """The sub-sequences of one line of the table, without overlaps."""
    found = re.fullmatch(
        r"person(\d\d)_([a-z]+)_d(\d)\s+frames\s+(\d+-\d+(?:\s*,\s*\d+-\d+)*)[\s,]*", line
    )
    if not found:
        raise ValueError(
            f"{place}: `{line.strip()[:60]}` is not a line of the table of KTH, such as"
            " `person01_boxing_d1 frames 1-95, 96-185`."
        )
    person, action, scene, text = found.groups()
    # Two lines are not in the order of time.
    ranges = sorted((int(a), int(b)) for a, b in re.findall(r"(\d+)-(\d+)", text))
    clips, last = [], 0
    for start, end in ranges:
        start = max(start, last + 1)
        if start > end:
            raise ValueError(f"{place}: the sub-sequence that ends with frame {end} has no frames.")
        clips.append(Clip(int(person), action, int(scene), start, end))
        last = end
    return clips


def _sources(folder: Path) -> dict[str, VideoFile]:
    """Where each video lies, by its name; an unpacked one comes before one in a zip file."""
    sources: dict[str, VideoFile] = {}
    for file in sorted(folder.glob("*.zip")):
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.namelist()
        except zipfile.BadZipFile as error:
            raise ValueError(f"{file} is not a whole zip file ({error}). Copy it again.") from None
        for member in members:
            if name := _video_name(member):
                sources[name] = VideoFile(file, member)
    for file in sorted(folder.rglob("*.avi")):
        if name := _video_name(file.name):
            sources[name] = VideoFile(file)
    return sources


def _video_name(path: str) -> str | None:
    found = re.search(r"(?:^|/)(person\d\d_[a-z]+_d\d)(?:_uncomp)?\.avi$", path)
    return found[1] if found else None


def _person(video: str) -> int:
    return int(video[len("person") :][:2])


def _recording(source: VideoFile, clips: list[Clip], form: FrameForm) -> Recording:
    names = tuple(clip.name for clip in clips)
    return Recording((source.file,), names, partial(_cut, source, clips, form))


def _cut(source: VideoFile, clips: list[Clip], form: FrameForm) -> list[Frames]:
    """Decode a video once and cut its sub-sequences out."""
    if source.member is None:
        opened, name = source.file, str(source.file)
    else:
        opened, name = _unpacked(source.file, source.member), f"{source.file}/{source.member}"
    video = decode_video(opened, name, form)
    for clip in clips:
        # The table is written by hand: a slip of some frames at the end of a video is
        # passed over, a video that breaks off is not.
        if clip.end - len(video.values) > 0.1 * (clip.end - clip.start):
            raise ValueError(
                f"{name} breaks off: it has {len(video.values)} frames, and the table has a"
                f" sub-sequence {clip.start}-{clip.end}. Copy it again."
            )
    # Copies: a view would hold the whole video in memory.
    return [Frames(video.values[c.start - 1 : c.end].copy(), video.rate) for c in clips]


def _unpacked(file: Path, member: str) -> io.BytesIO:
    """Unpack a member of a zip file to memory: decoders jump about, and there it is slow."""
    try:
        with zipfile.ZipFile(file) as archive:
            return io.BytesIO(archive.read(member))
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"{file}: {member} cannot be unpacked ({error}). Copy it again.") from None


def _whole(file: Path, form: FrameForm) -> list[Frames]:
    return [decode_video(file, str(file), form)]


def _paths(
    shape: tuple[int, ...],
    num_steps: int,
    size: int,
    glyph_size: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """The upper left corner of each digit: whole pixels (num_steps, *shape, 2)."""
    limit = size - glyph_size
    position = generator.uniform(0.0, limit, (*shape, 2))
    velocity = _velocities(shape, size, generator)
    path = np.empty((num_steps, *shape, 2), np.int64)
    for step in range(num_steps):
        path[step] = np.rint(position)
        moved = position + velocity
        low, high = moved < 0.0, moved > limit
        position = np.clip(moved, 0.0, limit)
        # Any direction that leads away from the wall.
        fresh = _velocities(shape, size, generator)
        fresh = np.where(low, np.abs(fresh), np.where(high, -np.abs(fresh), fresh))
        velocity = np.where((low | high).any(-1, keepdims=True), fresh, velocity)
    return path


def _velocities(shape: tuple[int, ...], size: int, generator: np.random.Generator) -> np.ndarray:
    """Random velocities in any direction, of 2 to 5 pixels a step in an image of 64."""
    angle = generator.uniform(0.0, 2 * np.pi, shape)
    speed = generator.uniform(2.0, 5.0, shape) * (size / 64)
    return np.stack([speed * np.cos(angle), speed * np.sin(angle)], -1)


def _drawn(glyphs: np.ndarray, paths: np.ndarray, size: int) -> np.ndarray:
    """Draw each glyph (sequence, digit, height, width) at its places: bytes (frame, size, size)."""
    num_steps, num_sequences, num_digits, _ = paths.shape
    frames = np.zeros((num_sequences * num_steps, size, size), np.uint8)
    # A view that has at (frame, y, x) the square whose upper left corner is there.
    squares = np.lib.stride_tricks.sliding_window_view(
        frames, glyphs.shape[-2:], axis=(1, 2), writeable=True
    )
    number = np.arange(len(frames))
    for digit in range(num_digits):
        y, x = np.moveaxis(paths[:, :, digit], 0, 1).reshape(-1, 2).T
        squares[number, y, x] |= np.repeat(glyphs[:, digit], num_steps, 0)
    return frames
