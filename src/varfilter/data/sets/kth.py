"""KTH Actions: the table of its sub-sequences, and its videos in zip files or unpacked."""

import io
import re
import zipfile
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from varfilter._arguments import require_positive
from varfilter.data.dataset import SPLITS, Dataset
from varfilter.data.recordings import Recording
from varfilter.data.sets.registry import KTH_ACTIONS, KTH_TABLE
from varfilter.data.video import Frames, decode_video, existing_folder, video_dataset

ACTIONS = tuple(KTH_ACTIONS)
PERSONS = {
    "train": (11, 12, 13, 14, 15, 16, 17, 18),
    "valid": (19, 20, 21, 23, 24, 25, 1, 4),
    "test": (22, 2, 3, 5, 6, 7, 8, 9, 10),
}


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
    require_positive("size", size)
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
            _recording(sources[name], list(clips), size, stretch)
            for name, clips in groupby(table, lambda clip: clip.video)
            if _person(name) in PERSONS[split]
        ]
        for split in SPLITS
    }
    return video_dataset("kth", videos, size, stretch=stretch, cache=cache)


def kth_sample(folder: Path | str, *, size: int = 64, stretch: bool = False) -> Dataset:
    """Read a few videos of KTH, of any person, for trying things out.

    One person cannot be split: of the sub-sequences of each video the third is for validation
    and the fourth for test, so that scores on it say nothing about other persons.
    """
    folder = existing_folder(folder)
    require_positive("size", size)
    sources = _sources(folder)
    videos: dict[str, list[Recording]] = {split: [] for split in SPLITS}
    for name, group in groupby(kth_table(folder / KTH_TABLE), lambda clip: clip.video):
        clips = list(group)
        for split, part in zip(SPLITS, (clips[:2], clips[2:3], clips[3:]), strict=True):
            if name in sources and part:
                videos[split].append(_recording(sources[name], part, size, stretch))
    if not videos["train"]:
        raise FileNotFoundError(
            f"`folder` must hold videos personNN_ACTION_dN_uncomp.avi; found none in {folder}."
        )
    return video_dataset("kth-sample", videos, size, stretch=stretch)


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


def _recording(source: VideoFile, clips: list[Clip], size: int, stretch: bool) -> Recording:
    names = tuple(clip.name for clip in clips)
    return Recording((source.file,), names, partial(_cut, source, clips, size, stretch))


def _cut(source: VideoFile, clips: list[Clip], size: int, stretch: bool) -> list[Frames]:
    """Decode a video once and cut its sub-sequences out."""
    if source.member is None:
        opened, name = source.file, str(source.file)
    else:
        opened, name = _unpacked(source.file, source.member), f"{source.file}/{source.member}"
    video = decode_video(opened, name, size, stretch=stretch)
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
