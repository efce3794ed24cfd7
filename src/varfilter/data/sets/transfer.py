"""One file from the network or this disk: resumed if interrupted, and checked before it is used."""

import hashlib
import http.client
import json
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, url2pathname, urlopen

from varfilter.data.sets.archives import require_space

NUM_ATTEMPTS = 3
PAUSE = 1.0  # seconds before the second attempt; twice as long before the third
TIMEOUT = 30.0
CHUNK = 1 << 18
# The server is asked again after these; any other refusal is its last word.
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})

# (name of the file, bytes so far, bytes in all if the server says)
Progress = Callable[[str, int, int | None], None]


def download(
    urls: Sequence[str], target: Path, *, digest: str = "", progress: Progress | None = None
) -> str:
    """Download a file to `target` from the first of the http, https or file addresses that has it.

    Returns that address, or the first where it is there already.

    It is written to `target`.part and renamed when it is whole and has the `digest`
    ("sha256:...", "sha1:..." or "md5:..."). After an interruption the part is kept, and the
    next call asks for the rest, unless the file at the address has changed.
    """
    if target.is_file():
        return urls[0]
    target.parent.mkdir(parents=True, exist_ok=True)
    problems: list[Exception] = []
    for url in urls:
        try:
            _attempts(url, target, progress)
            _require_digest(url, target, digest)
        except (ConnectionError, FileNotFoundError, ValueError) as error:
            problems.append(error)
            continue
        os.replace(_part(target), target)
        _note(target).unlink(missing_ok=True)
        return url
    # The worst is reported as what it is: a wrong file is not a lost connection.
    kinds = (ValueError, ConnectionError, FileNotFoundError)
    worst = next(kind for kind in kinds if any(isinstance(e, kind) for e in problems))
    raise worst(" ".join(dict.fromkeys(map(str, problems))))


def file_digest(path: Path, algorithm: str) -> str:
    """The digest of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        made = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return made.hexdigest()


@dataclass(frozen=True)
class _Origin:
    """What shows whether a part of a file that is here still belongs to its address."""

    url: str
    etag: str | None
    modified: str | None
    total: int | None

    def agrees(self, other: "_Origin") -> bool:
        pairs = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return all(mine == theirs for mine, theirs in pairs if None not in (mine, theirs))


class _Passing(Exception):
    """A failure that may be gone at the next attempt."""


class _Changed(Exception):
    """What is at the address does not continue the part that is here."""


def _part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def _note(target: Path) -> Path:
    return target.with_name(target.name + ".part.json")


def _attempts(url: str, target: Path, progress: Progress | None) -> None:
    scheme = urlsplit(url).scheme
    if scheme == "file":
        _copy(Path(url2pathname(urlsplit(url).path)), target, progress)
        return
    if scheme not in ("http", "https"):
        raise ValueError(f"The address {url} must begin with http, https or file.")
    problem: Exception | None = None
    for attempt in range(NUM_ATTEMPTS):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            try:
                return _transfer(url, target, progress)
            except _Changed:
                _part(target).unlink(missing_ok=True)
                return _transfer(url, target, progress)
        except (_Passing, _Changed) as error:
            problem = error
    hint = " What has come is kept: the next fetch goes on from there."
    raise ConnectionError(
        f"{url} failed {NUM_ATTEMPTS} times ({problem})." + hint * _part(target).is_file()
    ) from None


def _transfer(url: str, target: Path, progress: Progress | None) -> None:
    """Ask once for the rest of the part that is here, or for all; an error if it breaks off."""
    part, known = _part(target), _known(target)
    begin = part.stat().st_size if known and known.url == url and part.is_file() else 0
    if known and begin and begin == known.total:
        return
    with _response(url, begin, known) as response:
        origin = _Origin(
            url, response.headers["ETag"], response.headers["Last-Modified"], _total(response)
        )
        if response.status != 206:
            begin = 0
        elif not (known and _first(response) == begin and origin.agrees(known)):
            raise _Changed("the file has changed meanwhile")
        if origin.total is not None:
            require_space(part.parent, origin.total - begin)
        _note(target).write_text(json.dumps(asdict(origin)), encoding="utf-8")
        with part.open("ab" if begin else "wb") as file:
            while chunk := _read(response):
                file.write(chunk)
                begin += len(chunk)
                if progress:
                    progress(target.name, begin, origin.total)
    if origin.total is not None and begin != origin.total:
        if begin > origin.total:
            part.unlink()
        raise _Passing(f"it broke off after {begin} of {origin.total} bytes")


def _response(url: str, begin: int, known: _Origin | None) -> Any:
    from varfilter import __version__

    headers = {"User-Agent": f"varfilter/{__version__}", "Accept-Encoding": "identity"}
    if begin and known:
        headers["Range"] = f"bytes={begin}-"
        # A weak tag says that two files mean the same, not that they have the same bytes.
        strong = known.etag if known.etag and not known.etag.startswith("W/") else known.modified
        if strong:
            headers["If-Range"] = strong
    try:
        return urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        with error:
            if error.code == 416:
                raise _Changed("it has no such part") from None
            if error.code in PASSING:
                raise _Passing(f"the server says {error.code} {error.reason}") from None
            raise FileNotFoundError(
                f"{url} is not to be had: the server says {error.code} {error.reason}."
            ) from None
    except URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise ValueError(f"{url} does not prove who it is ({error.reason}).") from None
        # No such machine, or nobody listens there: in three seconds it will be the same.
        if isinstance(error.reason, ConnectionRefusedError | socket.gaierror):
            host = "{0.scheme}://{0.netloc}".format(urlsplit(url))
            raise ConnectionError(f"{host} cannot be reached ({error.reason.strerror}).") from None
        raise _Passing(str(error.reason)) from None
    except (http.client.HTTPException, OSError) as error:
        raise _Passing(str(error) or type(error).__name__) from None


def _read(response: Any) -> bytes:
    try:
        return response.read(CHUNK)
    except (http.client.HTTPException, OSError) as error:
        raise _Passing(f"the connection was lost: {error}") from None


def _total(response: Any) -> int | None:
    if response.status == 206:
        found = re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers["Content-Range"] or "")
        return int(found[1]) if found else None
    length = response.headers["Content-Length"]
    return int(length) if length and length.isdecimal() else None


def _first(response: Any) -> int | None:
    found = re.match(r"bytes (\d+)-", response.headers["Content-Range"] or "")
    return int(found[1]) if found else None


def _known(target: Path) -> _Origin | None:
    """What is known of the part; None if there is none, or the note of it is damaged."""
    try:
        return _Origin(**json.loads(_note(target).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _copy(source: Path, target: Path, progress: Progress | None) -> None:
    if not source.is_file():
        raise FileNotFoundError(f"There is no file {source}.")
    total = source.stat().st_size
    require_space(target.parent, total)
    _note(target).unlink(missing_ok=True)
    with source.open("rb") as old, _part(target).open("wb") as new:
        while chunk := old.read(CHUNK):
            new.write(chunk)
            if progress:
                progress(target.name, new.tell(), total)


def _require_digest(url: str, target: Path, digest: str) -> None:
    """Delete a file that is not the expected one: continuing it would not mend it."""
    if not digest:
        return
    algorithm, _, expected = digest.partition(":")
    got = file_digest(_part(target), algorithm)
    if got != expected:
        _part(target).unlink()
        _note(target).unlink(missing_ok=True)
        raise ValueError(
            f"{url} is not the expected file: its {algorithm} is {got}, not {expected}."
            " Nothing of it was kept."
        )
