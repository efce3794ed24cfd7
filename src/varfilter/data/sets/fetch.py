"""Get a named data set: download, unpack, check what it holds, and only then put it in place."""

import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote, urlsplit
from urllib.request import url2pathname

from varfilter._arguments import require_library
from varfilter.data.dataset import Dataset
from varfilter.data.sets.archives import unpack
from varfilter.data.sets.checks import judge
from varfilter.data.sets.entry import Entry, Item
from varfilter.data.sets.registry import damaged, data_folder, entry_named, locate, read_set
from varfilter.data.sets.transfer import Allowance, Progress, download


def fetch(
    name: str,
    folder: str | Path | None = None,
    *,
    mirror: str | Path | None = None,
    again: bool = False,
    progress: Progress | None = None,
    max_gib: float | int = 8.0,
    max_minutes: float | int = 120.0,
) -> Path:
    """Get the data set of a name into the data folder (or `folder`), and return where it lies.

    If it is there already it is only checked; `again` replaces what is there. An interrupted
    fetch goes on where it stopped. What does not hold what it should is deleted again; a warning
    says what may be right and cannot be verified. `mirror` is where the files are, instead of
    the addresses in the catalogue: a folder (or, for a set of one file, that file), somebody's
    data folder, or an address. `progress(file, bytes, total)` is called as they come. A file may
    have `max_gib` and come within `max_minutes`; if it is not all there then, the next fetch goes
    on from there.
    """
    allowance = Allowance(float(max_gib), float(max_minutes))
    entry = entry_named(name)
    folder = data_folder() if folder is None else Path(folder).expanduser()
    if not entry.places:
        raise ValueError(f"{name!r} is simulated: there is nothing to fetch, only to `load`.")
    if not again and (found := locate(entry, folder)):
        return _checked(entry, found, folder)
    if not entry.sources:
        raise ValueError(entry.by_hand.format(place=folder / entry.places[0]))
    if entry.needs:
        # To check it, and at once: not after an hour of download.
        require_library(entry.needs[0], extra=entry.needs[1])
    mirrors = (mirror, *_places_in(entry, mirror))
    sources = [_at_mirror(entry, items, at) for at in mirrors for items in entry.sources]
    # A set that lies there as it would here is copied, if its content tells that it is the one.
    copies = mirrors[1:] if entry.expected.sha256 else ()
    if not any(sources) and not copies:
        names = " or ".join(", ".join(_file_names(i)[0] for i in items) for items in entry.sources)
        raise FileNotFoundError(f"`mirror` is {str(mirror)!r}: it does not hold {names}.")
    with _locked_folder(entry, folder) as scratch:
        # By another process, just before we had the lock.
        if not again and (found := locate(entry, folder)):
            return found
        problems: list[Exception] = []
        for number, source in enumerate((*sources, *copies)):
            if not source:
                continue
            place = scratch / str(number)
            try:
                if isinstance(source, tuple):
                    path = _from_source(entry, source, folder, place, progress, allowance)
                else:
                    path = _from_copy(entry, Path(source), folder, place)
            except (ValueError, ConnectionError, FileNotFoundError) as error:
                problems.append(error)
                continue
            shutil.rmtree(scratch)
            return path
    kind = ValueError if any(isinstance(e, ValueError) for e in problems) else ConnectionError
    hint = "" if mirror else " If you have the files, give their folder as `mirror` (--from DIR)."
    reasons = " ".join(dict.fromkeys(map(str, problems)))
    raise kind(f"`{name}` could not be fetched. {reasons}{hint}")


def _checked(entry: Entry, found: Path, folder: Path) -> Path:
    """The path of a set that is there; an error if it is another set or damaged."""
    options: dict[str, Any] = {}
    if entry.is_large and os.access(folder, os.W_OK):
        options["cache"] = folder / "decoded"
    try:
        _require_good(entry, read_set(entry, at=found, **options), found)
    except (ValueError, OSError) as error:
        raise ValueError(f"{error} {damaged(entry, found)}") from None
    return found


def _require_good(entry: Entry, dataset: Dataset, path: Path) -> None:
    judgement = judge(entry, dataset, path)
    lines = "; ".join(line.strip() for line in judgement.lines)
    if not judgement.is_good:
        raise ValueError(f"{path} is not `{entry.name}`: {lines.rstrip('.')}.")
    if entry.expected.sha256 and not judgement.is_verified:
        warnings.warn(f"`{entry.name}` is NOT VERIFIED: {lines}.", stacklevel=4)


def _from_copy(entry: Entry, source: Path, folder: Path, scratch: Path) -> Path:
    """Copy a set from somebody's data folder."""
    scratch.mkdir(parents=True)
    try:
        made = scratch / source.name
        if source.is_dir():
            shutil.copytree(source, made, ignore=shutil.ignore_patterns(".*"))
        else:
            shutil.copyfile(source, made)
        return _install(entry, made, folder, scratch)
    except (ValueError, FileNotFoundError) as error:
        raise type(error)(str(error).replace(str(scratch / source.name), str(source))) from None
    finally:
        shutil.rmtree(scratch)


def _from_source(
    entry: Entry,
    items: tuple[Item, ...],
    folder: Path,
    scratch: Path,
    progress: Progress | None,
    allowance: Allowance,
) -> Path:
    """Download a set; files stay in `scratch` if the network fails, and go if they prove wrong."""
    files = scratch / "files"
    origins = {
        files / item.name: _as_written(
            download(
                item.urls,
                files / item.name,
                digest=item.digest,
                progress=progress,
                allowance=allowance,
            )
        )
        for item in items
    }
    try:
        with tempfile.TemporaryDirectory(dir=scratch, prefix="unpacked-") as unpacked:
            made = _unpacked(items, files, Path(unpacked))
            if Path(entry.places[0]).suffix:  # It is a file, not a folder of them.
                made /= items[0].name
            return _install(entry, made, folder, scratch)
    except (ValueError, FileNotFoundError) as error:
        shutil.rmtree(scratch)
        # The user knows the files by where they come from, not by where they were for a moment.
        message = str(error)
        for file, origin in origins.items():
            message = message.replace(str(file), origin)
        first = next(iter(origins.values()))
        whole = first if len(items) == 1 else first.rpartition("/")[0]
        message = re.sub(
            rf"{re.escape(str(scratch))}/(files|unpacked-[^/]+/set)", lambda _: whole, message
        )
        raise type(error)(message) from None


def _unpacked(items: tuple[Item, ...], files: Path, unpacked: Path) -> Path:
    """The folder with what the set consists of, unpacked if it came in archives."""
    if not any(item.place for item in items):
        return files
    for item in items:
        if item.place:
            unpack(files / item.name, unpacked / "set", item.place)
        else:
            (unpacked / "set").mkdir(exist_ok=True)
            shutil.copyfile(files / item.name, unpacked / "set" / item.name)
    return unpacked / "set"


def _install(entry: Entry, made: Path, folder: Path, scratch: Path) -> Path:
    """Check a set, and only then move it to its place in one step."""
    target = folder / entry.places[0]
    target = target.with_name(made.name) if made.is_file() else target
    options: dict[str, Any] = {"cache": scratch / "decoded"} if entry.is_large else {}
    _require_good(entry, read_set(entry, at=made, **options), made)
    target.parent.mkdir(parents=True, exist_ok=True)
    # What is to be replaced, wherever it would be found, or what holds hidden files only.
    for path in (folder / place for place in entry.places):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    os.replace(made, target)
    for decoded in (scratch / "decoded").glob("*"):
        (folder / "decoded").mkdir(exist_ok=True)
        os.replace(decoded, folder / "decoded" / decoded.name)
    return target


def _places_in(entry: Entry, mirror: str | Path | None) -> tuple[Path, ...]:
    """Where the set lies, if `mirror` is a data folder, a folder of one, or the set itself."""
    if mirror is None or (place := _local(mirror)) is None:
        return ()
    candidates = [place / there for there in entry.places]
    candidates += [place / Path(there).name for there in entry.places]
    candidates += [place for there in entry.places if place.name == Path(there).name]
    there = (path for path in candidates if path.is_file() or path.is_dir())
    return tuple(dict.fromkeys(path.resolve() for path in there))


def _local(mirror: str | Path) -> Path | None:
    """The path that a mirror is on this disk; None if it is an address in the network."""
    text = str(mirror)
    if "://" not in text:
        return Path(text).expanduser()
    parts = urlsplit(text)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def _as_written(url: str) -> str:
    """An address as people write it: a path if it is one of this disk."""
    return str(_local(url) or url)


def _at_mirror(
    entry: Entry, items: tuple[Item, ...], mirror: str | Path | None
) -> tuple[Item, ...]:
    """The items with the mirror's addresses; none if the mirror is a folder that lacks one."""
    if mirror is None:
        return items
    place = _local(mirror)
    if place is None:
        base = str(mirror).rstrip("/")
        places = [[f"{base}/{quote(name)}" for name in _file_names(item)] for item in items]
    else:
        is_it = place.is_file() and place.suffix == Path(items[0].name).suffix and len(items) == 1
        paths = [[place] if is_it else [place / name for name in _file_names(i)] for i in items]
        places = [[p.resolve().as_uri() for p in some if p.is_file()] for some in paths]
        if not all(places):
            return ()
    # A copy may be packed otherwise: where the content is known, that is what is compared.
    is_known = bool(entry.expected.sha256)
    return tuple(
        replace(item, urls=tuple(urls), digest="" if is_known else item.digest)
        for item, urls in zip(items, places, strict=True)
    )


def _file_names(item: Item) -> list[str]:
    """The names that a file may have: as at its address, or as here."""
    at_home = (unquote(url.rsplit("/", 1)[-1]) for url in item.urls)
    return list(dict.fromkeys([*at_home, item.name]))


@contextmanager
def _locked_folder(entry: Entry, folder: Path) -> Iterator[Path]:
    """A folder to work in that no other fetch of this set uses; removed at the end if empty."""
    work = folder / ".fetch"
    made = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"The data folder {folder} cannot be written to ({error.strerror}). Set"
            " $VARFILTER_DATA to a folder of yours, or give `folder` (--folder DIR)."
        ) from None
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
            for path in (scratch, work, *made):
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()


def _locked(file: IO[str], lock: Path) -> bool:
    """Whether this process has the lock now; the system frees it however the process ends."""
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
