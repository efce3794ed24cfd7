"""The folder of a run on the disk: its record, what it was made with, and who trains in it.

A record is JSON that carries its own checksum: any byte that changes later is noticed. One process
a folder trains: a lock ends with the process that holds it, and says who that is.
"""

import errno
import hashlib
import json
import os
import platform
import re
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

from varfilter import __version__
from varfilter._files import PARTIAL, is_at, reworded, sync_folder, try_lock, written
from varfilter.runs.pretrained import known_models
from varfilter.training.checkpoints import kept_checkpoints

# Since version 2 the record, and each line of the metrics, carry checksums.
VERSION = 2
RECORD, METRICS, BEST = "run.json", "metrics.jsonl", "best.safetensors"
CHECKPOINTS = "checkpoints"
# The last entry of a record, in one line or over several.
SEAL = re.compile(
    rb'(?P<body>.*),(?:\n "checksum": "(?P<long>[0-9a-f]{64})"\n\}|'
    rb' "checksum": "(?P<short>[0-9a-f]{64})"\})',
    re.DOTALL,
)
LOCK = "lock"
# How long to look for the name of a holder that has locked the file, but not yet signed it.
PATIENCE = 1.0


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run, be its record damaged or lost."""
    return (folder / RECORD).exists() or bool(kept_checkpoints(folder / CHECKPOINTS))


def seed_folder(folder: str | Path, seed: int) -> Path:
    """The folder of the run of one seed, beside those of the others."""
    return Path(folder) / f"seed-{seed}"


def seeds_in(folder: str | Path) -> list[int]:
    """The seeds whose runs are in a folder of several, in order."""
    found = Path(folder).glob("seed-*/run.json")
    names = (path.parent.name.removeprefix("seed-") for path in found)
    return sorted(int(name) for name in names if name.isdecimal())


def updates_made(folder: Path) -> int:
    """How many updates the newest checkpoint of a run in `folder` has; 0 if there is none."""
    kept = kept_checkpoints(folder / CHECKPOINTS)
    return kept[0][0] if kept else 0


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
def held(folder: Path) -> Iterator["FolderLock"]:
    """Hold the folder for this process alone, or say which one holds it."""
    with ExitStack() as stack:
        try:
            holding = stack.enter_context(locked(folder))
        except BlockingIOError:  # which says it all
            raise
        except OSError as error:
            raise unwritable(folder / LOCK, error) from None
        yield holding


def read_record(folder: Path) -> dict[str, Any]:
    """Read the record of a run: an error if it is not there, damaged, or of a newer varfilter."""
    path = folder / RECORD
    if not path.is_file():
        raise _no_record(folder)
    with reading(path, ValueError):
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


def read_list(path: Path, entry: str, version: int) -> list[dict[str, Any]]:
    """What `write_list` wrote there; nothing where there is no file, or one of another version."""
    if not path.exists():
        return []
    try:
        record = unsealed(path.read_bytes().rstrip(b"\n"))
        return record[entry] if record["version"] == version else []
    except (ValueError, KeyError, TypeError) as error:
        raise list_damaged(path, error) from None


def list_damaged(path: Path, error: Exception) -> ValueError:
    """The error of a list that cannot be read, and what to do."""
    return ValueError(
        f"{str(path)!r} is damaged ({error}). Remove it, or run"
        f" `varfilter repair {shlex.quote(str(path.parent))}`: it is made again from the validation"
        " data of the run, where they are at hand."
    )


def write_list(path: Path, entry: str, version: int, listed: list[dict[str, Any]]) -> None:
    """Keep what can be made again, such as what was found of a filter by validation.

    Where the folder cannot be written to, it is not kept, and made again when it is needed.
    """
    with suppress(OSError):
        write_whole(path, sealed({"version": version, entry: listed}).decode() + "\n")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the system inside the block into a sentence on what could not be written."""
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
def reading(path: Path, *others: type[Exception]) -> Iterator[None]:
    """Turn errors about what a record lacks, or has of another type, into one with the fix."""
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


def sealed(record: dict[str, Any], *, indent: int | None = None) -> bytes:
    """A record as JSON whose last entry is the SHA-256 of all that stands before it.

    `indent` 1 gives each entry a line; None gives all in one.
    """
    body, end = json.dumps(record, indent=indent).encode(), b"}" if indent is None else b"\n}"
    body = body.removesuffix(end)
    before = b" " if indent is None else b"\n "
    digest = hashlib.sha256(body).hexdigest().encode()
    return body + b"," + before + b'"checksum": "' + digest + b'"' + end


def is_sealed(text: bytes) -> bool:
    """Whether a text ends with a checksum, right or wrong."""
    return SEAL.fullmatch(text) is not None


def is_intact(text: bytes) -> bool:
    """Whether a text ends with the right checksum."""
    try:
        unsealed(text)
    except ValueError:
        return False
    return True


def unsealed(text: bytes) -> dict[str, Any]:
    """Read what `sealed` wrote; a ValueError says what is wrong with it."""
    found = SEAL.fullmatch(text)
    if found is None:
        raise ValueError("it has no checksum at its end")
    digest = found["long"] or found["short"]
    if hashlib.sha256(found["body"]).hexdigest().encode() != digest:
        raise ValueError("its checksum does not match its contents")
    record = dict(json.loads(text))
    del record["checksum"]
    return record


def surroundings() -> dict[str, Any]:
    """What ran: versions, the revision of the sources where they are a checkout, the device."""
    return {
        "varfilter": __version__,
        "revision": _revision(),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
        "num_devices": jax.device_count(),
    }


class FolderLock:
    """The folder of a run while it is this process's alone."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._path, self._descriptor = folder / LOCK, _hold(folder / LOCK)
        self._place = _place(folder)

    def require_in_place(self) -> None:
        """Refuse to write where the folder no longer is: it was moved, removed or replaced."""
        if _place(self.folder) != self._place:
            reason = "it was moved, renamed or removed while it was trained in"
            raise reworded(
                FileNotFoundError(errno.ENOENT, reason),
                f"The folder {str(self.folder)!r} is no longer what it was: {reason}. What was"
                " saved before is in it, wherever it is now. To go on: `varfilter train FOLDER`"
                " with its new name.",
            )

    def remove(self) -> None:
        """Remove the file, while the lock is held: what is locked has no name any more.

        Another process makes a file of its own then, and one that had opened this file before
        notices that it is no longer the one of this name.
        """
        if is_at(self._descriptor, self._path):
            with suppress(OSError):
                self._path.unlink()

    def close(self) -> None:
        """Let the folder go."""
        self.remove()
        os.close(self._descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[FolderLock]:
    """Hold the folder for this process alone, or say which one holds it.

    A file `lock` is locked by the system, which lets it go when the process ends, however it
    ends; so a file that a dead process left behind is in nobody's way.
    """
    with closing(FolderLock(folder)) as lock:
        yield lock


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
        f"{known_models(folder)}"
    )


def _is_bare(folder: Path) -> bool:
    """Whether there is nothing in a folder but what a run that died at its start leaves."""
    for path in folder.iterdir():
        begun = PARTIAL.fullmatch(path.name)
        is_own = path.name == LOCK or (begun is not None and begun["name"] == RECORD)
        if path.name == CHECKPOINTS and path.is_dir():
            is_own = not any(path.iterdir())
        if not is_own:
            return False
    return True


def _revision() -> str | None:
    here = Path(__file__).parent

    def git(*words: str) -> str:
        command = ["git", "-C", str(here), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        is_ours = Path(git("rev-parse", "--show-toplevel")) in here.parents
        if not (is_ours and git("ls-files", __file__)):
            return None
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", str(here)) else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _hold(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not try_lock(descriptor):
                raise BlockingIOError(
                    f"The folder {str(path.parent)!r} is being trained in by {_holder(path)}. Wait"
                    " until it is done or stop it, and then go on with `varfilter train"
                    f" {shlex.quote(str(path.parent))}`; or give another `--out`."
                )
            if is_at(descriptor, path):
                _sign(descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _sign(descriptor: int) -> None:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    who = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, json.dumps(who).encode() + b"\n")


def _holder(path: Path) -> str:
    """Who has locked the file, in words."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            who = json.loads(path.read_bytes())
            return f"process {who['pid']} on {who['host']!r}, since {who['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            if time.monotonic() > end:
                return "another process"
            time.sleep(0.02)


def _place(folder: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino
