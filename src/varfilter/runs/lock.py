"""One trainer a folder: a lock that ends with the process that holds it, and says who that is."""

import errno
import json
import os
import shlex
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from varfilter._files import is_at, reworded, try_lock

NAME = "lock"
# How long to look for the name of a holder that has locked the file, but not yet signed it.
PATIENCE = 1.0


class FolderLock:
    """The folder of a run while it is this process's alone."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._path, self._descriptor = folder / NAME, _hold(folder / NAME)
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
