"""Archives from strangers: zip and tar files, of which nothing gets out of its folder."""

import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path
from typing import IO, NamedTuple

# A video or a sound shrinks little, text ten times; a bomb, up to a thousand.
MOST_TIMES, MOST_AT_LEAST = 100, 16 << 20
MOST_MEMBERS = 100_000
CHUNK = 1 << 20


class Member(NamedTuple):
    """A file in an archive: its name, the size that the archive announces, and how to read it."""

    name: str
    size: int
    open: Callable[[], IO[bytes]]


def unpack(
    archive: Path, folder: Path, place: Callable[[str], str | None] = lambda name: name
) -> list[Path]:
    """Write the files of a zip or tar file into `folder`; all of them or none.

    `place` says from a member's name what the file is to be called in `folder`, or None for
    one to be left out. Refused, before anything is written: names that lead out of the folder,
    links, devices, and more than 100 times (and more than 16 MiB) of what the archive weighs.
    """
    written: list[Path] = []
    made: list[Path] = []
    try:
        with _opened(archive) as members:
            for member, name in _placed(archive, folder, members, place):
                path = folder / name
                missing = [p for p in (path.parent, *path.parent.parents) if not p.exists()]
                path.parent.mkdir(parents=True, exist_ok=True)
                made += reversed(missing)
                # Anew, never over another: two members of one name are no plain archive.
                with member.open() as source, path.open("xb") as target:
                    written.append(path)
                    _copy(source, target, member.size)
    except BaseException as error:
        for path in written:
            path.unlink(missing_ok=True)
        for path in reversed(made):
            path.rmdir()
        if isinstance(error, _BROKEN):
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            # Not what each of the four kinds of tar files said when it was tried.
            reason = "" if ": - method" in reason else f" ({reason})"
            raise ValueError(
                f"{archive} is not a whole zip or tar file{reason}. Get it again."
            ) from None
        raise
    return written


# What the libraries raise for damaged files, cut off or encrypted ones.
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    LZMAError,
    EOFError,
    RuntimeError,
    FileExistsError,
)


@contextmanager
def _opened(archive: Path) -> Iterator[Iterator[Member]]:
    """Open an archive and give its members that are files; links and devices are refused."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            yield (_of_zip(archive, file, info) for info in file.infolist() if not info.is_dir())
        return
    with tarfile.open(archive) as file:
        yield (_of_tar(archive, file, info) for info in file if not info.isdir())


def _of_zip(archive: Path, file: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise _refused(archive, info.filename, "is a link or a device, not a file")
    return Member(info.filename, info.file_size, lambda: file.open(info))


def _of_tar(archive: Path, file: tarfile.TarFile, info: tarfile.TarInfo) -> Member:
    if not info.isreg():
        raise _refused(archive, info.name, "is a link or a device, not a file")

    def opened() -> IO[bytes]:
        source = file.extractfile(info)
        assert source is not None  # It is a plain file.
        return source

    return Member(info.name, info.size, opened)


def _placed(
    archive: Path, folder: Path, members: Iterable[Member], place: Callable[[str], str | None]
) -> list[tuple[Member, str]]:
    """The members to be written and their names; every member is checked, written or not."""
    weight = archive.stat().st_size
    most = max(MOST_TIMES * weight, MOST_AT_LEAST)
    placed: list[tuple[Member, str]] = []
    size = 0
    # Added up on the way: merely to list a tar file means to unpack it.
    for number, member in enumerate(members):
        size += member.size
        if size > most or number >= MOST_MEMBERS:
            raise ValueError(
                f"{archive} would unpack to more than {most} bytes or {MOST_MEMBERS} files, and"
                f" has {weight} bytes itself: it is no plain archive of data. Nothing was unpacked."
            )
        _require_inside(archive, member.name)
        name = place(member.name)
        if name is not None:
            _require_inside(archive, name)
            placed.append((member, name))
    require_space(folder, sum(member.size for member, _ in placed))
    return placed


def require_space(folder: Path, size: int) -> None:
    """Raise an error if the disk of `folder` has less than `size` bytes free."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if size > free:
        raise OSError(
            f"The disk of {folder} has {free / 1e6:.0f} MB free, and {size / 1e6:.0f} MB are"
            " needed. Make room, or choose another folder."
        )


def _require_inside(archive: Path, name: str) -> None:
    # Either slash: what is a plain name here may be a path elsewhere.
    parts = re.split(r"[/\\]", name)
    if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name) or ".." in parts:
        raise _refused(archive, name, "leads out of the folder")
    if "\0" in name or not name.strip("/\\. "):
        raise _refused(archive, name, "has no name")


def _copy(source: IO[bytes], target: IO[bytes], size: int) -> None:
    """Copy what was announced, no more and no less: the announcement was checked, not the bytes."""
    got = 0
    while chunk := source.read(min(CHUNK, size - got + 1)):
        got += len(chunk)
        if got > size:
            raise EOFError(f"a file is longer than the {size} bytes announced")
        target.write(chunk)
    if got < size:
        raise EOFError(f"a file breaks off after {got} of {size} bytes")


def _refused(archive: Path, name: str, reason: str) -> ValueError:
    return ValueError(
        f"{archive} holds {name[:80]!r}, which {reason}: nothing was unpacked."
        " Get the archive from a source you trust."
    )
