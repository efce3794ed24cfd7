"""The folder of a run on the disk: its record, who trains in it, and what cannot be written."""

import json
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from varfilter._files import PARTIAL, sync_folder, written
from varfilter.runs import lock
from varfilter.runs.checksums import is_sealed, sealed, unsealed
from varfilter.training.checkpoints import kept_checkpoints

# Since version 2 the record, and each line of the metrics, carry checksums.
VERSION = 2
RECORD, METRICS, BEST = "run.json", "metrics.jsonl", "best.safetensors"
CHECKPOINTS = "checkpoints"


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, be its record damaged or lost."""
    return (folder / RECORD).exists() or bool(kept_checkpoints(folder / CHECKPOINTS))


def make_folder(folder: Path) -> None:
    """Make the folder of a run; refuse one that holds anything that is not a run's."""
    if folder.is_dir() and not (folder / RECORD).exists() and not _is_bare(folder):
        raise FileExistsError(
            f"`--out {folder}` is a folder with other things in it, and not a run. Give a new"
            " folder, or an empty one."
        )
    inner = folder / CHECKPOINTS
    new = [each for each in (inner, *inner.parents) if not each.exists()]
    try:
        inner.mkdir(parents=True, exist_ok=True)
        for each in new:
            sync_folder(each.parent)
    except OSError as error:
        raise unwritable(folder, error) from None


@contextmanager
def held(folder: Path) -> Iterator[lock.FolderLock]:
    """Hold the folder for this process alone, or say which one holds it."""
    with ExitStack() as stack:
        try:
            holding = stack.enter_context(lock.locked(folder))
        except BlockingIOError:  # which says it all
            raise
        except OSError as error:
            raise unwritable(folder / lock.NAME, error) from None
        yield holding


def read_record(folder: Path) -> dict[str, Any]:
    """Read the record of a run: an error if it is not there, damaged, or of a newer varfilter."""
    path = folder / RECORD
    if not path.is_file():
        raise _no_record(folder)
    with damage(path, ValueError):
        text = path.read_bytes()
        record = unsealed(text) if is_sealed(text) else dict(json.loads(text))
        version = record["version"]
    if version not in range(1, VERSION + 1):
        raise ValueError(
            f"{str(path)!r} has version {version} of a run; this varfilter reads up to version"
            f" {VERSION}. Update varfilter."
        )
    if version > 1 and not is_sealed(text):
        raise damaged(path, "it has no checksum at its end")
    return record


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write the record of a run with its checksum, in the place of the one before."""
    write_whole(folder / RECORD, sealed(record, indent=1).decode())


def write_whole(path: Path, text: str) -> None:
    """Write a file of text, whole or not at all: what is there stays until the new one is."""
    with writing(path), written(path) as put:
        put(text.encode("utf-8"))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Errors of the system inside the block, as a sentence on what could not be written."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> OSError:
    """The error about a file or a folder that the system does not let us write."""
    return type(error)(
        f"Cannot write {str(path)!r} ({error.strerror}). What was saved before is not lost. Make"
        " room, or give a folder that may be written to."
    )


@contextmanager
def damage(path: Path, *others: type[Exception]) -> Iterator[None]:
    """What a record lacks, or has of another type, as one sentence with the fix."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, *others) as error:
        reason = str(error) if type(error) is ValueError else repr(error)
        raise damaged(path, reason) from None


def damaged(path: Path, reason: str) -> ValueError:
    """The error about a record that was changed since it was written."""
    return ValueError(
        f"{str(path)!r} is damaged ({reason}). To restore it from the copy in the checkpoints:"
        f" `varfilter repair {shlex.quote(str(path.parent))}`."
    )


def _no_record(folder: Path) -> FileNotFoundError:
    what = f"has no {RECORD}" if folder.is_dir() else "does not exist"
    what = "is a file" if folder.is_file() else what
    fix = "Make one with `varfilter train EXPERIMENT --out FOLDER`."
    if kept_checkpoints(folder / CHECKPOINTS):
        fix = (
            "It has checkpoints: to restore the record from the copy in them,"
            f" `varfilter repair {shlex.quote(str(folder))}`."
        )
    return FileNotFoundError(
        f"`folder` {str(folder)!r} is not the folder of a run: it {what}. {fix}"
    )


def _is_bare(folder: Path) -> bool:
    """Whether there is nothing in a folder but what a run that died at its start leaves."""
    for path in folder.iterdir():
        begun = PARTIAL.fullmatch(path.name)
        is_own = path.name == lock.NAME or (begun is not None and begun["name"] == RECORD)
        if path.name == CHECKPOINTS and path.is_dir():
            is_own = not any(path.iterdir())
        if not is_own:
            return False
    return True
