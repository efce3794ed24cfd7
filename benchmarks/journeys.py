"""The first hour of a user with a folder of recordings, from `data check` to `report`.

    python benchmarks/journeys.py FOLDER [FOLDER ...] [--new FILE ...] [--keep DIR] [--json FILE]

Each folder has MIDI files, sounds or videos. The commands are those of the tutorials, as they stand
there, each a process of its own: nothing is given that has a default, so that the preset is the
small one; but videos are made up of means (`--mean`), since a draw of the pixels is a draw of their
noise. What they compile goes to a new folder, as on the day of the installation. Beside the
seconds on the clock stand those of the processor, of all its cores, which other programs do not
lengthen. With `--new`, a file for each folder in the same order, that file is filtered, forecast
and continued; without it, the first of the folder is, which the model may have learned from. Its
forecast is the mean over many futures, and stands rather still; one of them, which is what is heard
or seen, is that of `sample --start`.

The journey of each folder must take less than 15 minutes, and every file that a command was to
write must be there and hold something: else the exit code is 1.
"""

import argparse
import json
import platform
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from table_time import timed

from varfilter.media.catalogue import medium_at

MOST_SECONDS = 15 * 60
# In what each kind of recording is written back, and how many steps are worth a look or a listen.
WRITTEN = {"music": (".mid", 32), "sound": (".wav", 160), "video": (".gif", 16)}
# How each is made up.
MADE = {"video": ["--mean"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--new", nargs="+", type=Path, metavar="FILE", help="a file for each folder"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work there, and leave it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="a line for each command")
    options = parser.parse_args()
    news = options.new or [first_file(folder) for folder in options.folders]
    if len(news) != len(options.folders):
        parser.error(f"`--new` has {len(news)} files for {len(options.folders)} folders")
    lines: list[dict[str, Any]] = []
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) if options.keep is None else options.keep
        for folder, new in zip(options.folders, news, strict=True):
            told, wrong = travelled(folder, new, place / folder.name)
            lines += told
            faults += wrong
    if options.json is not None:
        options.json.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if faults:
        raise SystemExit("\n".join(faults))


def first_file(folder: Path) -> Path:
    """The first file of the folder."""
    return next(path for path in sorted(folder.rglob("*")) if path.is_file())


def travelled(folder: Path, new: Path, place: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Take one folder from `data check` to `report`: what each command took, and what is wrong."""
    place.mkdir(parents=True, exist_ok=True)
    medium = medium_at(folder).name
    ending, num_steps = WRITTEN[medium]
    run = place / "run"
    written = {
        "check": place / "data.png",
        "filter": place / f"expected{ending}",
        "forecast": place / f"ahead{ending}",
        "sample": place / f"made-up{ending}",
        "go on": place / f"goes-on{ending}",
        "report": place / "report.html",
    }
    made = ["--num-steps", str(num_steps), *MADE.get(medium, ())]
    commands = {
        "check": ["data", "check", str(folder)],
        "show": ["data", "show", str(folder), "--out", str(written["check"])],
        "train": ["train", str(folder), "--out", str(run)],
        "evaluate": ["evaluate", str(run)],
        "filter": ["filter", str(run), str(new), "--out", str(written["filter"])],
        "forecast": ["forecast", str(run), str(new), "--horizon", str(num_steps),
                     "--out", str(written["forecast"])],
        "sample": ["sample", str(run), *made, "--out", str(written["sample"])],
        "go on": ["sample", str(run), "--start", str(new), "--only-new", *made,
                  "--out", str(written["go on"])],
        "report": ["report", str(run), "--out", str(written["report"])],
    }  # fmt: skip
    print(f"\n{medium}: {folder.name}; seconds, python {platform.python_version()}\n")
    print(f"{'command':12}{'clock':>8}{'processor':>11}")
    lines = []
    for name, words in commands.items():
        line = timed(words, place / "compiled", None) | {"medium": medium, "step": name}
        (place / f"{name}.txt").write_text(line.pop("out"))
        print(f"{name:12}{line['seconds']:8.1f}{line['processor_seconds']:11.1f}", flush=True)
        lines.append(line)
    seconds = sum(line["seconds"] for line in lines)
    used = sum(line["processor_seconds"] for line in lines)
    print(f"{'together':12}{seconds:8.1f}{used:11.1f}")
    return lines, faults_of(folder.name, seconds, written.values())


def faults_of(name: str, seconds: float, written: Iterable[Path]) -> list[str]:
    """What was not as it must be: the time, and the files that were to be written."""
    found = [
        f"{name}: {path.name} was to be written, and is not there."
        for path in written
        if not path.is_file() or not path.stat().st_size
    ]
    if seconds > MOST_SECONDS:
        found.append(f"{name}: {seconds:.0f} s are more than {MOST_SECONDS // 60} minutes.")
    return found


if __name__ == "__main__":
    main()
