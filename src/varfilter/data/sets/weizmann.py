"""Weizmann "Actions as Space-Time Shapes": nine people, ten actions, a static camera."""

from functools import partial
from pathlib import Path

from varfilter._arguments import require_positive
from varfilter.data.dataset import SPLITS, Dataset
from varfilter.data.recordings import Recording
from varfilter.data.video import Frames, decode_video, existing_folder, video_dataset

# In the order of their names: the first six learn, the last two test.
PEOPLE = {
    "train": ("daria", "denis", "eli", "ido", "ira", "lena"),
    "valid": ("lyova",),
    "test": ("moshe", "shahar"),
}


def weizmann(
    folder: Path | str, size: int = 64, *, color: bool = False, cache: Path | str | None = None
) -> Dataset:
    """Read the clips PERSON_ACTION.avi of a folder, with people held out: `PEOPLE` says whom.

    There are 90 clips and 5,855 frames of 180x144 at 25 a second. `cache` is as in
    `video_folder`.
    """
    folder = existing_folder(folder)
    require_positive("size", size)
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
            Recording((file,), (file.stem,), partial(_whole, file, size, color))
            for person in PEOPLE[split]
            for file in clips[person]
        ]
        for split in SPLITS
    }
    return video_dataset("weizmann", videos, size, color=color, cache=cache)


def _whole(file: Path, size: int, color: bool) -> list[Frames]:
    return [decode_video(file, str(file), size, color=color)]
