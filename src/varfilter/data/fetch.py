"""Get a named data set: download, unpack, check what it holds, and only then put it in place."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote, urlsplit
from urllib.request import url2pathname

from varfilter.data.archives import unpack
from varfilter.data.catalogue import data_folder, load, locate, named
from varfilter.data.checks import judge
from varfilter.data.downloads import Progress, download
from varfilter.data.entries import Entry, Item
from varfilter.data.extras import require


def fetch(
    name: str,
    folder: str | Path | None = None,
    *,
    mirror: str | Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Get the data set of a name into the data folder (or `folder`); returns where it lies.

    Nothing is done if it is there already. An interrupted fetch goes on where it stopped. What
    does not hold what it should is deleted again. `mirror` is where the files are, instead of
    the addresses in the catalogue: a folder (or, for a set of one file, that file) or an
    address. `progress(file, bytes, total)` is called as they come.
    """
    entry = named(name)
    folder = data_folder() if folder is None else Path(folder).expanduser()
    if not entry.places:
        raise ValueError(f"{name!r} is simulated: there is nothing to fetch, only to `load`.")
    if found := locate(entry, folder):
        return found
    if not entry.sources:
        raise ValueError(entry.by_hand.format(place=folder / entry.places[0]))
    if entry.needs:
        # To check it, and at once: not after an hour of download.
        require(entry.needs[0], extra=entry.needs[1])
    sources = [_at_mirror(entry, items, mirror) for items in entry.sources]
    if not any(sources):
        names = " or ".join(", ".join(_titles(i)[0] for i in items) for items in entry.sources)
        raise FileNotFoundError(f"`mirror` is {str(mirror)!r}: it does not hold {names}.")
    with _alone(entry, folder) as scratch:
        if found := locate(entry, folder):  # by another process, just before we had the lock
            return found
        problems: list[Exception] = []
        for number, items in enumerate(sources):
            if not items:
                continue
            try:
                path = _from_source(entry, items, folder, scratch / str(number), progress)
            except (ValueError, ConnectionError, FileNotFoundError) as error:
                problems.append(error)
                continue
            shutil.rmtree(scratch)
            return path
    kind = ValueError if any(isinstance(e, ValueError) for e in problems) else ConnectionError
    hint = "" if mirror else " If you have the files, give their folder as `mirror` (--from DIR)."
    raise kind(f"`{name}` could not be fetched. {' '.join(map(str, problems))}{hint}")


def _from_source(
    entry: Entry, items: tuple[Item, ...], folder: Path, scratch: Path, progress: Progress | None
) -> Path:
    """Downloads stay in `scratch` if the network fails, and go if they prove wrong."""
    files = scratch / "files"
    for item in items:
        download(item.urls, files / item.name, digest=item.digest, progress=progress)
    try:
        with tempfile.TemporaryDirectory(dir=scratch, prefix="unpacked-") as unpacked:
            made = _arranged(items, files, Path(unpacked))
            if Path(entry.places[0]).suffix:  # It is a file, not a folder of them.
                made /= items[0].name
            return _put(entry, made, folder, scratch)
    except (ValueError, FileNotFoundError):
        shutil.rmtree(scratch)
        raise


def _arranged(items: tuple[Item, ...], files: Path, unpacked: Path) -> Path:
    """The folder that holds what the set consists of."""
    if not any(item.place for item in items):
        return files
    for item in items:
        if item.place:
            unpack(files / item.name, unpacked / "set", item.place)
        else:
            (unpacked / "set").mkdir(exist_ok=True)
            shutil.copyfile(files / item.name, unpacked / "set" / item.name)
    return unpacked / "set"


def _put(entry: Entry, made: Path, folder: Path, scratch: Path) -> Path:
    """Checked, and then moved to its place in one step."""
    target = folder / entry.places[0]
    target = target.with_name(made.name) if made.is_file() else target
    options: dict[str, Any] = {"cache": scratch / "decoded"} if entry.is_large else {}
    judgement = judge(entry, load(entry.name, at=made, **options), made)
    if not judgement.is_good:
        raise ValueError(f"What came is not `{entry.name}`: {'; '.join(judgement.lines)}.")
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        target.rmdir()  # It is empty, or it would have been found.
    os.replace(made, target)
    for kept in (scratch / "decoded").glob("*"):
        (folder / "decoded").mkdir(exist_ok=True)
        os.replace(kept, folder / "decoded" / kept.name)
    return target


def _at_mirror(
    entry: Entry, items: tuple[Item, ...], mirror: str | Path | None
) -> tuple[Item, ...]:
    """The items with the mirror's addresses; none if the mirror is a folder that lacks one."""
    if mirror is None:
        return items
    text = str(mirror)
    is_address = "://" in text
    if is_address and urlsplit(text).scheme != "file":
        places = [[f"{text.rstrip('/')}/{quote(name)}" for name in _titles(item)] for item in items]
    else:
        place = Path(url2pathname(urlsplit(text).path)) if is_address else Path(text).expanduser()
        is_it = place.is_file() and place.suffix == Path(items[0].name).suffix and len(items) == 1
        paths = [[place] if is_it else [place / name for name in _titles(i)] for i in items]
        places = [[p.resolve().as_uri() for p in some if p.is_file()] for some in paths]
        if not all(places):
            return ()
    # A copy may be packed otherwise: where the content is known, that is what is compared.
    is_known = bool(entry.expected.sha256)
    return tuple(
        replace(item, urls=tuple(urls), digest="" if is_known else item.digest)
        for item, urls in zip(items, places, strict=True)
    )


def _titles(item: Item) -> list[str]:
    """What the file may be called: as at its address, or as here."""
    at_home = (unquote(url.rsplit("/", 1)[-1]) for url in item.urls)
    return list(dict.fromkeys([*at_home, item.name]))


@contextmanager
def _alone(entry: Entry, folder: Path) -> Iterator[Path]:
    """A place to work in that no other fetch of this set uses; gone if nothing is worth keeping."""
    work = folder / ".fetch"
    work.mkdir(parents=True, exist_ok=True)
    scratch, lock = work / entry.name, work / f"{entry.name}.lock"
    with lock.open("w") as file:
        if not _locked(file, lock):
            raise BlockingIOError(
                f"Another process is fetching {entry.name!r} into {folder}. Wait for it."
            )
        try:
            for left in scratch.glob("*/unpacked-*"):
                shutil.rmtree(left)
            yield scratch
        finally:
            for source in scratch.glob("*"):
                if not any(path.is_file() for path in source.rglob("*")):
                    shutil.rmtree(source)
            # Windows keeps a file that is open.
            with suppress(PermissionError):
                lock.unlink()
            for path in (scratch, work):
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()


def _locked(file: IO[str], lock: Path) -> bool:
    """Whether the lock is ours; the system takes it back when the process ends, however it ends."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The one before us may have deleted it between our opening and our locking.
        return os.path.samestat(os.fstat(file.fileno()), lock.stat())
    except OSError:
        return False
