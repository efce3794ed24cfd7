"""One file from the network or this disk: resumed if interrupted, and checked before it is used."""

import hashlib
import http.client
import json
import os
import queue
import re
import socket
import ssl
import threading
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

_KEPT = " What has come is kept: the next fetch goes on from there."

# (name of the file, bytes so far, bytes in all if the server says)
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Allowance:
    """What one file from the network may take: bytes, in GiB, and time, in minutes.

    A server may announce a modest file and send without end, or a byte in half a minute.
    """

    max_gib: float = 8.0
    max_minutes: float = 120.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0.0 < value < float("inf"):
                raise ValueError(f"`{name}` must be a positive number; got {value!r}.")

    def require_size(self, url: str, size: int, verb: str) -> None:
        """Refuse a file of more than `max_gib`."""
        if size > self.max_gib * 2**30:
            raise ValueError(
                f"{url} {verb} {size / 2**30:.3g} GiB; `max_gib` is {self.max_gib:g}. Nothing of it"
                " was kept. If that is right, give a larger one."
            )


def download(
    urls: Sequence[str],
    target: Path,
    *,
    digest: str = "",
    progress: Progress | None = None,
    allowance: Allowance | None = None,
) -> str:
    """Download a file to `target` from the first of the http, https or file addresses that has it.

    Returns that address, or the first where it is there already.

    It is written to `target`.part and renamed when it is whole and has the `digest`
    ("sha256:...", "sha1:..." or "md5:..."). After an interruption the part is kept, and the
    next call asks for the rest, unless the file at the address has changed. So it is where the
    time is up that `allowance` has; a file that is larger than it allows is not kept.
    """
    if target.is_file():
        return urls[0]
    allowance = allowance or Allowance()
    target.parent.mkdir(parents=True, exist_ok=True)
    problems: list[Exception] = []
    for url in urls:
        try:
            _attempts(url, target, progress, allowance)
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


class _TooSlow(Exception):
    """The time that a file may take is up."""


class _Changed(Exception):
    """What is at the address does not continue the part that is here."""


def _part(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def _note(target: Path) -> Path:
    return target.with_name(target.name + ".part.json")


def _attempts(url: str, target: Path, progress: Progress | None, allowance: Allowance) -> None:
    scheme = urlsplit(url).scheme
    if scheme == "file":
        _copy(Path(url2pathname(urlsplit(url).path)), target, progress)
        return
    if scheme not in ("http", "https"):
        raise ValueError(f"The address {url} must begin with http, https or file.")
    problem: Exception | None = None
    deadline = time.monotonic() + 60.0 * allowance.max_minutes
    for attempt in range(NUM_ATTEMPTS):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            try:
                return _transfer(url, target, progress, allowance, deadline)
            except _Changed:
                _part(target).unlink(missing_ok=True)
                return _transfer(url, target, progress, allowance, deadline)
        except _TooSlow:
            raise ConnectionError(
                f"{url} takes longer than `max_minutes` {allowance.max_minutes:g}."
                + _KEPT * _part(target).is_file()
            ) from None
        except (_Passing, _Changed) as error:
            problem = error
    raise ConnectionError(
        f"{url} failed {NUM_ATTEMPTS} times ({problem})." + _KEPT * _part(target).is_file()
    ) from None


def _transfer(
    url: str, target: Path, progress: Progress | None, allowance: Allowance, deadline: float
) -> None:
    """Ask once for the rest of the part that is here, or for all; an error if it breaks off."""
    part, known = _part(target), _known(target)
    begin = part.stat().st_size if known and known.url == url and part.is_file() else 0
    if known and begin and begin == known.total:
        return
    with _in_time(lambda: _response(url, begin, known), deadline) as response:
        origin = _Origin(
            url, response.headers["ETag"], response.headers["Last-Modified"], _total(response)
        )
        if response.status != 206:
            begin = 0
        elif not (known and _first(response) == begin and origin.agrees(known)):
            raise _Changed("the file has changed meanwhile")
        if origin.total is not None:
            allowance.require_size(url, origin.total, "announces")
            require_space(part.parent, origin.total - begin)
        _note(target).write_text(json.dumps(asdict(origin)), encoding="utf-8")
        with part.open("ab" if begin else "wb") as file:
            while chunk := _read(response):
                file.write(chunk)
                begin += len(chunk)
                if begin > allowance.max_gib * 2**30:
                    part.unlink()
                    allowance.require_size(url, begin, "has sent")
                if time.monotonic() > deadline:
                    raise _TooSlow
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


def _in_time(call: Callable[[], Any], deadline: float) -> Any:
    """What `call` returns, unless it takes too long: a server may send its headers drop by drop.

    Nothing ends a call that waits, so that it is left behind in a thread of its own.
    """
    ended: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            ended.put((call(), None))
        except BaseException as error:
            ended.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    try:
        found, error = ended.get(timeout=max(deadline - time.monotonic(), 0.0))
    except queue.Empty:
        raise _TooSlow from None
    if error is not None:
        raise error
    return found


def _read(response: Any) -> bytes:
    try:
        # What is there already: to wait for a whole chunk may take days.
        return response.read1(CHUNK)
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
