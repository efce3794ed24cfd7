"""New files in the place of old ones: whole, or not at all."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name for a new file, which takes the place of `path` when the block is left without error.

    Otherwise nothing is left of it, and what was at `path` stays. A link stays one: the file it
    leads to is replaced. What is no file (a named pipe) is written to as it stands.
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
    partial = target.with_name(target.name + ".partial")
    try:
        yield partial
        with naming(path):
            with open(partial, "rb+") as file:
                os.fsync(file.fileno())  # else a power cut could leave an empty file in its place
            os.replace(partial, target)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


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


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the system inside the block, with the path, the reason and the fix."""
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
