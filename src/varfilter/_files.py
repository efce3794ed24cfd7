"""New files in the place of old ones: whole, or not at all, even if the power fails."""

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
# The variable that names the folder of traced programs; the commands set it for themselves.
PROGRAMS = "VARFILTER_PROGRAMS"
# What a file is called while it is written: its name, who writes it, and a number of its own.
PARTIAL = re.compile(r"(?P<name>.+)\.\d+-[0-9a-f]{8}\.partial", re.DOTALL)
# What systems say of folders that cannot be synced, and of files that cannot be locked.
UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.ENOSYS, errno.ENOLCK)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name for a new file, which takes the place of `path` when the block is left without error.

    Otherwise nothing is left of it, and what was at `path` stays. A link stays one: the file it
    leads to is replaced. What is no file (a named pipe) is written to as it stands. The name is
    no other process's, and what processes that were killed left of theirs is removed.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        reason = f"there is no folder {str(target.parent)!r}"
        raise reworded(
            FileNotFoundError(errno.ENOENT, reason),
            f"`path`: cannot write {str(path)!r} ({reason})."
            " Make it, or give a file name in a folder that exists.",
        )
    if target.is_dir():
        raise reworded(
            IsADirectoryError(errno.EISDIR, "it is a folder"),
            f"`path`: cannot write {str(path)!r} (it is a folder). Give a file name in it.",
        )
    if target.exists() and not target.is_file():
        yield target
        return
    remove_abandoned(target.parent, target.name)
    with naming(path):
        partial, descriptor = _new_file(target)
    try:
        yield partial
        with naming(path):
            with open(partial, "rb+") as file:
                os.fsync(file.fileno())  # else a power cut could leave an empty file in its place
            os.replace(partial, target)
            sync_folder(target.parent)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        os.close(descriptor)


def ending_of(path: Path) -> str:
    """The ending of a file, in small letters; of one that is being written, that of the new file.

    The name that `replacing` gives has another ending of its own.
    """
    found = PARTIAL.fullmatch(path.name)
    return Path(found["name"] if found else path.name).suffix.lower()


@contextmanager
def written(path: Path) -> Iterator[Callable[[bytes], None]]:
    """A function that adds bytes to the new file of `replacing`.

    Its errors name `path`; those of the block itself stay as they are.
    """
    with replacing(path) as partial:
        with naming(path):
            file = open(partial, "wb")  # noqa: SIM115

        def write(content: bytes) -> None:
            with naming(path):
                file.write(content)

        try:
            yield write
            with naming(path):
                file.flush()
        finally:
            with suppress(OSError):  # a full disk was reported by the flush
                file.close()


def append(path: Path, content: bytes) -> None:
    """Add bytes at the end of a file; they are on the disk when this returns."""
    is_new = not path.exists()
    with open(path, "ab") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have a folder's names on the disk: until then a power cut may undo a rename."""
    if os.name == "nt":  # which has no such thing
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder that may be written to, but not listed
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def remove_abandoned(folder: Path, name: str | None = None) -> None:
    """Remove what processes that were killed left of new files: of `name`, or of any.

    A file that is being written is locked by the process that writes it.
    """
    if fcntl is None:
        return
    with suppress(OSError):
        for entry in os.scandir(folder):
            found = PARTIAL.fullmatch(entry.name)
            if found and name in (None, found["name"]):
                _remove_if_abandoned(entry.path)


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this process, unless another one has: whether it is locked now.

    The lock goes with the process, however that ends. True, too, where the file system knows no
    locks.
    """
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            # One byte far beyond the end, so that others can read what is in the file.
            os.lseek(descriptor, 1 << 30, os.SEEK_SET)
            getattr(msvcrt, "locking")(descriptor, getattr(msvcrt, "LK_NBLCK"), 1)  # noqa: B009
    except OSError as error:
        return error.errno in UNSUPPORTED
    return True


def is_at(descriptor: int, path: str | Path) -> bool:
    """Whether an open file is the one that has this name now."""
    try:
        named, own = os.stat(path), os.fstat(descriptor)
    except OSError:
        return False
    return (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have errors of the system inside the block name the path, the reason and the fix."""
    try:
        yield
    except OSError as error:
        raise reworded(
            error,
            f"`path`: cannot write {str(path)!r} ({error.strerror or error}). What was there is"
            " unchanged; make room, or give a file name in a folder that may be written to.",
        ) from None


def reworded(error: OSError, message: str) -> OSError:
    """An error of the same class that says `message`; the system's reason stays in `strerror`."""
    found = type(error)(message)
    found.strerror = error.strerror or str(error)
    return found


def cache_folder() -> Path:
    """The folder `varfilter` in the user's folder for caches, by the custom of the system."""
    if sys.platform == "win32":
        caches = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "varfilter"


def _new_file(target: Path) -> tuple[Path, int]:
    """A new file beside `target`, and the open descriptor that holds its lock."""
    while True:
        partial = target.with_name(f"{target.name}.{os.getpid()}-{os.urandom(4).hex()}.partial")
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        # Before it was locked, another process may have taken it for abandoned. (On Windows a
        # lock would keep ourselves from writing; there, nobody removes any.)
        if fcntl is None or (try_lock(descriptor) and is_at(descriptor, partial)):
            return partial, descriptor
        os.close(descriptor)


def _remove_if_abandoned(path: str) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR)
        try:
            if try_lock(descriptor):
                os.unlink(path)
        finally:
            os.close(descriptor)
