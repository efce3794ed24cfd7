"""Fetching: whole, interrupted, resumed, wrong and hostile, from a real server on this machine."""

import io
import os
import pickle
import stat
import sys
import tarfile
import tempfile
import threading
import zipfile
from collections import defaultdict
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from refusals import as_users_run_it, refuses  # noqa: F401
from varfilter.data import Dataset, Family, Ragged, archives, catalogue, downloads, fetch, load
from varfilter.data.sets.archives import unpack
from varfilter.data.sets.registry import Entry, Expected, Item
from varfilter.data.sets.transfer import download
from varfilter.distributions import Normal

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("VARFILTER_DATA", ROOT.parent / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the data sets in {DATA}")

BODY = np.random.default_rng(0).bytes(700_000)


class Server(ThreadingHTTPServer):
    """Serves `files`; can be told to ignore ranges, to lie, to fail and to hang up."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.has_ranges = True
        self.minds_if_range = True
        self.cuts: dict[str, list[int]] = defaultdict(list)  # bytes to send before hanging up
        self.statuses: dict[str, list[int]] = defaultdict(list)
        self.asked: list[tuple[str, str | None]] = []
        self.agents: set[str] = set()

    def handle_error(self, *_):
        """A client that hangs up is what some of these tests are about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_):
        pass

    def do_GET(self):
        name = self.path.lstrip("/")
        asked = self.headers["Range"]
        self.server.asked.append((name, asked))
        self.server.agents.add(self.headers["User-Agent"])
        if self.server.statuses[name]:
            self.send_error(self.server.statuses[name].pop(0))
            return
        if name not in self.server.files:
            self.send_error(404)
            return
        body, etag = self.server.files[name], self.server.etags.get(name)
        wanted = self.headers["If-Range"]
        fits = wanted in (None, etag) or not self.server.minds_if_range
        begin = int(asked[len("bytes=") : -1]) if asked and self.server.has_ranges and fits else 0
        if begin >= len(body) > 0 and begin:
            self.send_error(416)
            return
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(body) - begin))
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        cut = self.server.cuts[name].pop(0) if self.server.cuts[name] else None
        # The rest never comes, though it was announced: a lost connection, or a truncated file.
        self.wfile.write(body[begin:] if cut is None else body[begin : begin + cut])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def listing(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def sha256(body):
    import hashlib

    return f"sha256:{hashlib.sha256(body).hexdigest()}"


# One file.


def test_a_whole_file_comes_with_progress(server, tmp_path):
    server.files["a.bin"] = BODY
    seen = []
    download(
        [f"{server.url}/a.bin"],
        tmp_path / "a.bin",
        digest=sha256(BODY),
        progress=lambda *now: seen.append(now),
    )
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert listing(tmp_path) == ["a.bin"]
    assert seen[-1] == ("a.bin", len(BODY), len(BODY))
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})
    (agent,) = server.agents
    assert agent.startswith("varfilter/")
    # It is there: the server is not asked again.
    download([f"{server.url}/a.bin"], tmp_path / "a.bin")
    assert server.asked == [("a.bin", None)]


@pytest.mark.parametrize("etag", [None, '"one"'])
def test_a_cut_download_is_kept_and_only_the_rest_is_asked_for(server, tmp_path, etag):
    server.files["a.bin"] = BODY
    if etag:
        server.etags["a.bin"] = etag
    server.cuts["a.bin"] = [100_000, 50_000, 25_000]
    target = tmp_path / "a.bin"
    refuses(
        lambda: download([f"{server.url}/a.bin"], target),
        ConnectionError, "a.bin", "3 times", "broke off after 175000 of 700000 bytes", "kept",
    )  # fmt: skip
    assert server.asked == [("a.bin", None), ("a.bin", "bytes=100000-"), ("a.bin", "bytes=150000-")]
    assert (tmp_path / "a.bin.part").read_bytes() == BODY[:175_000]
    assert not target.exists()
    server.asked.clear()
    seen = []
    download(
        [f"{server.url}/a.bin"],
        target,
        digest=sha256(BODY),
        progress=lambda _, done, total: seen.append((done, total)),
    )
    assert server.asked == [("a.bin", "bytes=175000-")]
    assert target.read_bytes() == BODY
    assert listing(tmp_path) == ["a.bin"]
    assert seen[0][0] > 175_000
    assert seen[-1] == (len(BODY), len(BODY))


def test_a_server_without_ranges_starts_again(server, tmp_path):
    server.files["a.bin"] = BODY
    server.has_ranges = False
    server.cuts["a.bin"] = [300_000]
    download([f"{server.url}/a.bin"], tmp_path / "a.bin", digest=sha256(BODY))
    assert server.asked == [("a.bin", None), ("a.bin", "bytes=300000-")]
    assert (tmp_path / "a.bin").read_bytes() == BODY


@pytest.mark.parametrize("minds_if_range", [True, False])
@pytest.mark.parametrize("new", [BODY[::-1], BODY + b"more", BODY[:200_000]])
def test_a_file_that_has_changed_starts_again(server, tmp_path, minds_if_range, new):
    server.files["a.bin"], server.etags["a.bin"] = BODY, '"old"'
    server.minds_if_range = minds_if_range
    server.cuts["a.bin"] = [300_000, 0, 0]
    with pytest.raises(ConnectionError):
        download([f"{server.url}/a.bin"], tmp_path / "a.bin")
    server.files["a.bin"], server.etags["a.bin"] = new, '"new"'
    server.cuts.clear()
    server.asked.clear()
    download([f"{server.url}/a.bin"], tmp_path / "a.bin")
    # A server that minds the tag sends all at once.
    assert len(server.asked) == (1 if minds_if_range else 2)
    assert (tmp_path / "a.bin").read_bytes() == new
    assert listing(tmp_path) == ["a.bin"]


def test_a_change_of_the_length_alone_is_seen(server, tmp_path):
    server.files["a.bin"] = BODY  # with no tag and no date
    server.cuts["a.bin"] = [300_000, 0, 0]
    with pytest.raises(ConnectionError):
        download([f"{server.url}/a.bin"], tmp_path / "a.bin")
    server.files["a.bin"] = new = b"new" + BODY
    download([f"{server.url}/a.bin"], tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == new


def test_a_part_with_all_bytes_needs_no_request(server, tmp_path):
    server.files["a.bin"] = BODY

    def interrupt(_, done, total):
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download([f"{server.url}/a.bin"], tmp_path / "a.bin", progress=interrupt)
    assert listing(tmp_path) == ["a.bin.part", "a.bin.part.json"]
    download([f"{server.url}/a.bin"], tmp_path / "a.bin", digest=sha256(BODY))
    assert len(server.asked) == 1
    assert listing(tmp_path) == ["a.bin"]


def test_a_damaged_note_of_a_part_starts_again(server, tmp_path):
    server.files["a.bin"] = BODY
    (tmp_path / "a.bin.part").write_bytes(b"what is this")
    (tmp_path / "a.bin.part.json").write_text("{")
    download([f"{server.url}/a.bin"], tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == BODY


@pytest.mark.parametrize("algorithm", ["sha256", "sha1", "md5"])
def test_a_wrong_hash_leaves_nothing(server, tmp_path, algorithm):
    server.files["a.bin"] = BODY
    refuses(
        lambda: download(
            [f"{server.url}/a.bin"], tmp_path / "a.bin", digest=f"{algorithm}:{'0' * 40}"
        ),
        ValueError, "a.bin", algorithm, "0" * 40, "Nothing",
    )  # fmt: skip
    assert listing(tmp_path) == []


def test_passing_failures_are_tried_again_and_lasting_ones_are_not(server, tmp_path):
    server.files["a.bin"] = BODY
    server.statuses["a.bin"] = [503, 429]
    download([f"{server.url}/a.bin"], tmp_path / "a.bin")
    assert len(server.asked) == 3
    server.asked.clear()
    refuses(lambda: download([f"{server.url}/b.bin"], tmp_path / "b.bin"), FileNotFoundError, "404")
    assert len(server.asked) == 1
    assert listing(tmp_path) == ["a.bin"]


def test_the_next_address_is_tried(server, tmp_path):
    server.files.update({"bad.bin": b"something else", "good.bin": BODY})
    closed = Server()  # It never answers, and then nobody listens there.
    closed.server_close()
    urls = [f"{closed.url}/a", *(f"{server.url}/{name}.bin" for name in ("none", "bad", "good"))]
    download(urls, tmp_path / "a.bin", digest=sha256(BODY))
    assert (tmp_path / "a.bin").read_bytes() == BODY
    # The worst is told as what it is.
    refuses(
        lambda: download(urls[:3], tmp_path / "b.bin", digest=sha256(BODY)),
        ValueError, closed.url, "none.bin", "404", "bad.bin", "sha256",
    )  # fmt: skip
    refuses(lambda: download(urls[:1], tmp_path / "b.bin"), ConnectionError, closed.url)
    assert listing(tmp_path) == ["a.bin"]


def test_files_of_this_disk(tmp_path):
    source = tmp_path / "there" / "a file.bin"
    source.parent.mkdir()
    source.write_bytes(BODY)
    download([source.as_uri()], tmp_path / "here" / "a.bin", digest=sha256(BODY))
    assert (tmp_path / "here" / "a.bin").read_bytes() == BODY
    refuses(
        lambda: download([source.as_uri() + "x"], tmp_path / "b.bin"),
        FileNotFoundError, "a file.binx",
    )  # fmt: skip
    refuses(lambda: download(["ftp://x/a"], tmp_path / "b.bin"), ValueError, "http, https or file")


def test_a_full_disk_is_said_before_anything_is_written(server, tmp_path, monkeypatch):
    server.files["a.bin"] = BODY
    usage = archives.shutil.disk_usage(tmp_path)._replace(free=600_000)
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda _: usage)
    refuses(
        lambda: download([f"{server.url}/a.bin"], tmp_path / "a.bin"),
        OSError, "1 MB free", "1 MB are needed", "Make room",
    )  # fmt: skip
    assert listing(tmp_path) == []


# A set. The toy has one array in one archive.

ARRAY = np.arange(24.0, dtype=np.float32).reshape(12, 2)


def toy_reader(folder):
    values = np.load(folder / "toy.npy", allow_pickle=False)
    return Dataset("toy", *(Ragged(values, [4, 8]) for _ in range(3)), family=Family(Normal))


def toy_bytes(array=ARRAY):
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


def zipped(members):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in members:
            file.writestr(name, body)
    return made.getvalue()


def tarred(*infos, mode="w:gz"):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as file:
        for info, body in infos:
            info.size = len(body)
            file.addfile(info, io.BytesIO(body))
    return made.getvalue()


def member(name, kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.fixture
def toy(server, monkeypatch):
    """A set in the catalogue that the server has, as a zip file."""
    sha = toy_reader_of(ARRAY).sha256()
    entry = Entry(
        "toy", "a toy", "none", toy_reader, Expected((2, 2, 2), (12, 12, 12), sha),
        places=("toys/toy",),
        sources=((Item("toy.zip", (f"{server.url}/toy.zip",), place=lambda name: name),),),
    )  # fmt: skip
    monkeypatch.setitem(catalogue.CATALOGUE, "toy", entry)
    server.files["toy.zip"] = zipped([("toy.npy", toy_bytes()), ("docs/read me.txt", b"hello")])
    return entry


def toy_reader_of(array):
    return Dataset("toy", *(Ragged(array, [4, 8]) for _ in range(3)), family=Family(Normal))


def test_a_set_is_fetched_once_and_loaded(server, toy, tmp_path, monkeypatch):
    path = fetch("toy", tmp_path)
    assert path == tmp_path / "toys" / "toy"
    assert listing(tmp_path) == ["toys/toy/docs/read me.txt", "toys/toy/toy.npy"]
    assert not (tmp_path / ".fetch").exists()
    assert fetch("toy", tmp_path) == path
    assert len(server.asked) == 1
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path))
    np.testing.assert_array_equal(load("toy").train.values, ARRAY)


def test_an_interrupted_set_goes_on(server, toy, tmp_path):
    server.files["toy.zip"] = body = zipped([("toy.npy", toy_bytes()), ("noise", BODY)])
    server.cuts["toy.zip"] = [200_000, 0, 0]
    refuses(lambda: fetch("toy", tmp_path), ConnectionError, "toy.zip", "200000", "kept")
    assert listing(tmp_path) == [
        ".fetch/toy/0/files/toy.zip.part", ".fetch/toy/0/files/toy.zip.part.json",
    ]  # fmt: skip

    def interrupt(_, done, __):
        if done > 400_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("toy", tmp_path, progress=interrupt)
    server.asked.clear()
    fetch("toy", tmp_path)
    ((_, asked),) = server.asked
    assert 400_000 < int(asked[len("bytes=") : -1]) < len(body)
    assert listing(tmp_path) == ["toys/toy/noise", "toys/toy/toy.npy"]


def test_an_interruption_while_checking_keeps_the_download_alone(
    server, toy, tmp_path, monkeypatch
):
    def interrupted(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setitem(catalogue.CATALOGUE, "toy", replace(toy, read=interrupted))
        with pytest.raises(KeyboardInterrupt):
            fetch("toy", tmp_path)
    assert listing(tmp_path) == [".fetch/toy/0/files/toy.zip"]
    fetch("toy", tmp_path)
    assert len(server.asked) == 1


@pytest.mark.parametrize("array", [ARRAY[::-1], ARRAY + 1])
def test_wrong_content_is_removed_again(server, toy, tmp_path, array):
    server.files["toy.zip"] = zipped([("toy.npy", toy_bytes(array))])
    refuses(
        lambda: fetch("toy", tmp_path),
        ValueError, f"{server.url}/toy.zip is not `toy`", "sha256", "expected",
    )  # fmt: skip
    assert listing(tmp_path) == []
    assert not any(tmp_path.iterdir())


def test_what_is_there_is_checked_and_can_be_replaced(server, toy, tmp_path):
    path = tmp_path / "toys" / "toy"
    path.mkdir(parents=True)
    words = (str(path), "Delete", "varfilter data fetch toy --again")
    for body in (b"garbage", toy_bytes(ARRAY + 1)):
        (path / "toy.npy").write_bytes(body)
        refuses(lambda: fetch("toy", tmp_path), ValueError, *words)
    assert server.asked == []
    # What came wrong replaces nothing.
    server.files["toy.zip"] = zipped([("toy.npy", toy_bytes(ARRAY + 2))])
    refuses(lambda: fetch("toy", tmp_path, again=True), ValueError, "not `toy`")
    assert (path / "toy.npy").read_bytes() == toy_bytes(ARRAY + 1)
    server.files["toy.zip"] = zipped([("toy.npy", toy_bytes())])
    assert fetch("toy", tmp_path, again=True) == path
    assert listing(tmp_path) == ["toys/toy/toy.npy"]
    assert fetch("toy", tmp_path) == path


def test_hidden_files_are_not_a_set(server, toy, tmp_path):
    (tmp_path / "toys" / "toy").mkdir(parents=True)
    (tmp_path / "toys" / "toy" / ".DS_Store").write_bytes(b"x")
    fetch("toy", tmp_path)
    assert listing(tmp_path) == ["toys/toy/docs/read me.txt", "toys/toy/toy.npy"]


def test_counts_bind_and_other_content_is_said_not_to_be_verified(
    server, toy, tmp_path, monkeypatch
):
    loose = replace(toy, expected=replace(toy.expected, is_binding=False))
    monkeypatch.setitem(catalogue.CATALOGUE, "toy", loose)
    server.files["toy.zip"] = zipped([("toy.npy", toy_bytes(ARRAY + 1))])
    for _ in range(2):  # as it comes, and when it is there
        with pytest.warns(UserWarning, match="`toy` is NOT VERIFIED"):
            fetch("toy", tmp_path / "a")
    expected = replace(loose.expected, rows=(12, 12, 11))
    monkeypatch.setitem(catalogue.CATALOGUE, "toy", replace(loose, expected=expected))
    refuses(lambda: fetch("toy", tmp_path / "b"), ValueError, "BAD rows", "(12, 12, 11)")


def test_a_set_from_the_data_folder_of_another(server, toy, tmp_path):
    theirs = fetch("toy", tmp_path / "theirs")
    (theirs / ".DS_Store").write_bytes(b"x")
    server.asked.clear()
    for number, mirror in enumerate((tmp_path / "theirs", theirs.parent, theirs, theirs.as_uri())):
        folder = tmp_path / str(number)
        assert fetch("toy", folder, mirror=mirror) == folder / "toys" / "toy"
        assert listing(folder) == ["toys/toy/docs/read me.txt", "toys/toy/toy.npy"]
    (theirs / "toy.npy").write_bytes(toy_bytes(ARRAY + 1))
    refuses(
        lambda: fetch("toy", tmp_path / "bad", mirror=tmp_path / "theirs"),
        ValueError, f"{theirs} is not `toy`", "BAD content",
    )  # fmt: skip
    assert not (tmp_path / "bad").exists()
    assert server.asked == []


def test_where_nobody_listens_is_said_once_and_soon(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloads, "PAUSE", 1000.0)
    closed = Server()
    closed.server_close()
    with pytest.raises(ConnectionError, match="cannot be reached") as caught:
        fetch("jsb", tmp_path / "new", mirror=closed.url)
    assert str(caught.value).count("127.0.0.1") == 1
    assert not (tmp_path / "new").exists()


def test_a_data_folder_that_cannot_be_is_named(tmp_path, toy, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path / "file"))
    refuses(lambda: fetch("toy"), OSError, str(tmp_path / "file"), "$VARFILTER_DATA", "--folder")
    refuses(lambda: load("toy"), FileNotFoundError, "is a file", "$VARFILTER_DATA")


OUTSIDE = Path(tempfile.gettempdir()) / "varfilter-outside.txt"
BOMB = b"\0" * (40 << 20)
LINK = zipfile.ZipInfo("link")
LINK.external_attr = (stat.S_IFLNK | 0o777) << 16
GOOD = ("toy.npy", toy_bytes())
HOSTILE = {
    "parent": (zipped([GOOD, ("../outside.txt", b"x")]), "'../outside.txt'", "leads out"),
    "deep parent": (zipped([GOOD, ("a/../../x", b"x")]), "leads out"),
    "absolute": (zipped([GOOD, (str(OUTSIDE), b"x")]), "leads out"),
    "windows parent": (zipped([GOOD, ("..\\outside.txt", b"x")]), "leads out"),
    "windows drive": (zipped([GOOD, ("C:outside.txt", b"x")]), "leads out"),
    "symlink": (zipped([GOOD, (LINK, "../../..")]), "'link'", "link or a device"),
    "twice": (zipped([GOOD, ("sub", b"x"), ("sub/y", b"x")]), "not a whole"),
    "bomb": (zipped([GOOD, ("zeros", BOMB)]), "more than 16777216 bytes", "Nothing was unpacked"),
    "truncated": (zipped([GOOD, ("noise", BODY)])[:300_000], "not a whole zip or tar"),
    "damaged": (zipped([GOOD, ("noise", BODY)]).replace(BODY[:50], BODY[50:100]), "not a whole"),
    "no archive": (b"<html>404 Not Found</html>", "not a whole zip or tar"),
    "empty": (b"", "not a whole zip or tar"),
    "tar parent": (tarred((member("../x"), b"x")), "leads out"),
    "tar absolute": (tarred((member(str(OUTSIDE)), b"x")), "leads out"),
    "tar symlink": (tarred((member("l", tarfile.SYMTYPE, "/etc"), b"")), "link or a device"),
    "tar hard link": (tarred((member("l", tarfile.LNKTYPE, "../x"), b"")), "link or a device"),
    "tar device": (tarred((member("d", tarfile.CHRTYPE), b"")), "link or a device"),
    "tar pipe": (tarred((member("d", tarfile.FIFOTYPE), b"")), "link or a device"),
    "tar bomb": (tarred((member("zeros"), BOMB)), "more than 16777216 bytes"),
    "tar truncated": (tarred((member("noise"), BODY))[:300_000], "not a whole zip or tar"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_leaves_nothing_behind(server, toy, tmp_path, name):
    server.files["toy.zip"], *words = HOSTILE[name]
    OUTSIDE.unlink(missing_ok=True)
    folder = tmp_path / "deep" / "data"
    refuses(lambda: fetch("toy", folder), ValueError, "toy.zip", *words)
    # Not even the folder that was made for it.
    assert not any(p for p in tmp_path.iterdir())
    assert not OUTSIDE.exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_unpacking_is_all_or_nothing(tmp_path, name):
    archive = tmp_path / "toy.zip"
    archive.write_bytes(HOSTILE[name][0])
    with pytest.raises(ValueError, match=r"toy\.zip"):
        unpack(archive, tmp_path / "made")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy.zip"]


def test_good_archives_are_unpacked_and_members_are_chosen(tmp_path):
    infos = (
        (member("a/b.txt"), b"b"),
        (member("a/c.txt"), b"c"),
        (member("d", tarfile.DIRTYPE), b""),
    )
    bodies = {"a.zip": zipped([("a/b.txt", b"b"), ("a/c.txt", b"c"), ("d/", b"")])}
    for mode in ("gz", "bz2", "xz", ""):
        bodies[f"a.tar.{mode}"] = tarred(*infos, mode=f"w:{mode}")
    for name, body in bodies.items():
        (tmp_path / name).write_bytes(body)
        unpack(tmp_path / name, tmp_path / f"{name}-all")
        assert listing(tmp_path / f"{name}-all") == ["a/b.txt", "a/c.txt"]
        chosen = unpack(
            tmp_path / name, tmp_path / f"{name}-one", lambda m: "x" if m == "a/c.txt" else None
        )
        assert [path.read_bytes() for path in chosen] == [b"c"]
        assert listing(tmp_path / f"{name}-one") == ["x"]
        assert not os.access(chosen[0], os.X_OK)


def test_two_fetches_at_once_do_not_meet(server, toy, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    (tmp_path / ".fetch").mkdir()
    with (tmp_path / ".fetch" / "toy.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        refuses(lambda: fetch("toy", tmp_path), BlockingIOError, "Another process", "toy")
    # A lock that a dead process has left behind holds nobody up.
    assert (tmp_path / ".fetch" / "toy.lock").exists()
    fetch("toy", tmp_path)
    assert listing(tmp_path) == ["toys/toy/docs/read me.txt", "toys/toy/toy.npy"]


def test_threads_that_fetch_the_same_set_get_it_once(server, toy, tmp_path):
    outcomes = []

    def one():
        try:
            outcomes.append(fetch("toy", tmp_path))
        except BlockingIOError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tmp_path / "toys" / "toy" in outcomes
    assert listing(tmp_path) == ["toys/toy/docs/read me.txt", "toys/toy/toy.npy"]


def test_what_cannot_be_fetched(tmp_path, toy):
    refuses(
        lambda: fetch("timit", tmp_path),
        ValueError, "https://catalog.ldc.upenn.edu/LDC93S1", str(tmp_path / "speech" / "timit"),
    )  # fmt: skip
    refuses(lambda: fetch("moving-digits", tmp_path), ValueError, "simulated", "load")
    refuses(
        lambda: fetch("jbs", tmp_path), ValueError, "'jbs'", "Did you mean 'jsb'?", "kth-sample"
    )
    refuses(
        lambda: fetch("jsb", tmp_path, mirror=tmp_path),
        FileNotFoundError, "`mirror`", "JSB Chorales.pickle", "JSB_Chorales.mat",
    )  # fmt: skip
    assert listing(tmp_path) == []


def test_a_missing_library_is_said_before_the_download(server, toy, tmp_path, monkeypatch):
    entry = replace(toy, needs=("no_such_library", "video"))
    monkeypatch.setitem(catalogue.CATALOGUE, "toy", entry)
    refuses(lambda: fetch("toy", tmp_path), ImportError, "pip install 'varfilter[video]'")
    assert server.asked == []


# The named sets, as their sources have them, made from the real data.


class Malice:
    """What a hostile pickle would have the reader do."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


def as_pickle(path):
    with np.load(path) as file:
        rolls = {
            split: [
                [tuple(int(key) + 21 for key in np.flatnonzero(row)) for row in song]
                for song in np.split(
                    np.unpackbits(file[f"{split}_rolls"], axis=1),
                    np.cumsum(file[f"{split}_lengths"])[:-1],
                )
            ]
            for split in ("train", "valid", "test")
        }
    return rolls


def test_a_malicious_pickle_is_not_run(server, tmp_path):
    marker = tmp_path / "run.txt"
    songs = {"train": Malice(marker), "valid": [], "test": []}
    server.files["JSB%20Chorales.pickle"] = pickle.dumps(songs)
    folder = tmp_path / "data"
    refuses(
        lambda: fetch("jsb", folder, mirror=server.url),
        ValueError, "JSB_Chorales.mat", "404", "asks for", "not run",
    )  # fmt: skip
    assert listing(tmp_path) == []


@needs_data
def test_music_from_a_server_as_a_pickle(server, tmp_path, monkeypatch):
    original = DATA / "music" / "jsb_chorales.npz"
    songs = as_pickle(original)
    server.files["JSB%20Chorales.pickle"] = pickle.dumps(songs, protocol=2)
    path = fetch("jsb", tmp_path, mirror=server.url)
    assert path == tmp_path / "music" / "jsb_chorales.pickle"
    assert listing(tmp_path) == ["music/jsb_chorales.pickle"]
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path))
    dataset = load("jsb")
    assert dataset.name == "jsb"
    assert dataset.sha256() == load(original).sha256()
    assert len(dataset.train.values) == 13807

    # One note is wrong: it is not the set.
    songs["valid"][3][2] = (*songs["valid"][3][2], 21)
    server.files["JSB%20Chorales.pickle"] = pickle.dumps(songs)
    refuses(
        lambda: fetch("jsb", tmp_path / "other", mirror=server.url),
        ValueError, "not `jsb`", "BAD content", "ae764c74",
    )  # fmt: skip
    assert listing(tmp_path / "other") == []


@needs_data
def test_music_from_a_mirror_folder_as_a_mat_file(tmp_path):
    from scipy.io import savemat

    songs = load(DATA / "music" / "jsb_chorales.npz")
    cells = {}
    for split in ("train", "valid", "test"):
        cells[f"{split}data"] = np.empty((1, len(songs.split(split))), object)
        for i, song in enumerate(songs.split(split)):
            cells[f"{split}data"][0, i] = song.astype(np.float64)
    (tmp_path / "mirror").mkdir()
    savemat(tmp_path / "mirror" / "JSB_Chorales.mat", cells)
    path = fetch("jsb", tmp_path / "a", mirror=tmp_path / "mirror")
    assert path == tmp_path / "a" / "music" / "jsb_chorales.mat"
    # The same by its address; and the file itself.
    fetch("jsb", tmp_path / "b", mirror=(tmp_path / "mirror").as_uri())
    fetch("jsb", tmp_path / "c", mirror=str(tmp_path / "mirror" / "JSB_Chorales.mat"))
    assert listing(tmp_path / "a") == listing(tmp_path / "b") == listing(tmp_path / "c")


@needs_data
def test_the_sample_of_timit_as_nltk_packs_it(tmp_path, monkeypatch):
    soundfile = pytest.importorskip("soundfile")
    members = [("timit/README", b"TIMIT CORPUS SAMPLE"), ("timit/dr1-fvmh0/sa1.txt", b"0 1 She")]
    for file in (DATA / "speech" / "timit_sample").glob("*.flac"):
        speaker, sentence = file.stem.split("_")
        samples, rate = soundfile.read(file, dtype="int16")
        made = io.BytesIO()
        soundfile.write(made, samples, rate, format="WAV", subtype="PCM_16")
        members.append((f"timit/{speaker}/{sentence}.wav", made.getvalue()))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as packed:  # not compressed: it is only a test
        for name, body in members:
            packed.writestr(name, body)
    (tmp_path / "timit.zip").write_bytes(made.getvalue())
    path = fetch("timit-sample", tmp_path / "data", mirror=tmp_path)
    assert path == tmp_path / "data" / "speech" / "timit_sample"
    files = listing(path)
    assert len(files) == 161
    assert {"README", "dr1-fvmh0/sa1.wav"} <= set(files)
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path / "data"))
    assert load("timit-sample").sha256() == load("timit-sample", at=path).sha256()
    assert load("timit-sample").names["valid"][0] == "dr7-fblv0_sa1"


@needs_data
def test_films_as_their_authors_pack_them(tmp_path):
    pytest.importorskip("av")
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    kth, weizmann = DATA / "video" / "kth_sample", DATA / "video" / "weizmann"
    (mirror / "00sequences.txt").write_bytes((kth / "00sequences.txt").read_bytes())
    for action, scene in (("walking", "d1"), ("jogging", "d3")):
        name = f"person01_{action}_{scene}_uncomp.avi"
        with zipfile.ZipFile(mirror / f"{action}.zip", "w") as packed:
            packed.write(kth / name, name)
            packed.writestr(f"person02_{action}_d1_uncomp.avi", b"another")
    path = fetch("kth-sample", tmp_path, mirror=mirror)
    assert listing(path) == [
        "00sequences.txt", "person01_jogging_d3_uncomp.avi", "person01_walking_d1_uncomp.avi",
    ]  # fmt: skip

    # The originals have three clips of Lena twice; the first of the two counts.
    twice = ("run", "skip", "walk")
    for action in {file.stem.split("_")[1] for file in weizmann.glob("*.avi")}:
        with zipfile.ZipFile(mirror / f"{action}.zip", "w") as packed:
            for file in weizmann.glob(f"*_{action}.avi"):
                is_twice = file.stem.startswith("lena") and action in twice
                packed.write(file, f"{file.stem}1.avi" if is_twice else file.name)
                if is_twice:
                    packed.writestr(f"{file.stem}2.avi", b"the second")
    path = fetch("weizmann", tmp_path, mirror=mirror)
    assert listing(path) == sorted(file.name for file in weizmann.glob("*.avi"))


def test_a_large_set_is_decoded_once(tmp_path, monkeypatch):
    """A small KTH: three persons, one film each; what was decoded to check it is used again."""
    av = pytest.importorskip("av")
    mirror, folder = tmp_path / "mirror", tmp_path / "data"
    mirror.mkdir()
    persons = {11: 6, 19: 7, 22: 8}
    lines = [f"person{p}_walking_d1\t\tframes\t1-{n}\n" for p, n in persons.items()]
    (mirror / "00sequences.txt").write_text("".join(lines))
    with zipfile.ZipFile(mirror / "walking.zip", "w") as packed:
        for person, num_frames in persons.items():
            made = io.BytesIO()
            with av.open(made, "w", format="avi") as container:
                stream = container.add_stream("rawvideo", rate=25)
                stream.height, stream.width, stream.pix_fmt = 32, 32, "yuv420p"
                for i in range(num_frames):
                    image = np.full((32, 32), 10 * i + person, np.uint8)
                    container.mux(stream.encode(av.VideoFrame.from_ndarray(image, "gray")))
                container.mux(stream.encode(None))
            packed.writestr(f"person{person}_walking_d1_uncomp.avi", made.getvalue())
    kth = catalogue.CATALOGUE["kth"]
    items = tuple(replace(i, digest="") for i in kth.sources[0] if i.name[:2] in ("00", "wa"))
    small = replace(kth, sources=(items,), expected=Expected((1, 1, 2)))
    monkeypatch.setitem(catalogue.CATALOGUE, "kth", small)
    refuses(lambda: fetch("kth", folder, mirror=mirror), ValueError, "BAD sequences", "(1, 1, 2)")
    assert listing(folder) == []
    small = replace(small, expected=Expected((1, 1, 1)))
    monkeypatch.setitem(catalogue.CATALOGUE, "kth", small)
    assert fetch("kth", folder, mirror=mirror) == folder / "video" / "kth"
    assert sorted(p.name for p in folder.iterdir()) == ["decoded", "video"]
    assert listing(folder / "video") == ["kth/00sequences.txt", "kth/walking.zip"]
    monkeypatch.setenv("VARFILTER_DATA", str(folder))
    monkeypatch.setattr(sys.modules["varfilter.data.sets.kth"], "decode_video", None)
    dataset = load("kth")
    assert [len(dataset.split(s).values) for s in ("train", "valid", "test")] == [6, 7, 8]
    with pytest.raises(TypeError):  # At another size it must be decoded anew.
        load("kth", size=16)


def test_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path / "mine"))
    assert catalogue.data_folder() == tmp_path / "mine"
    monkeypatch.delenv("VARFILTER_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = {
        "linux": tmp_path / "caches" / "varfilter",
        "darwin": tmp_path / "Library" / "Caches" / "varfilter",
    }
    for platform, folder in expected.items():
        monkeypatch.setattr(sys, "platform", platform)
        assert catalogue.data_folder() == folder
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert catalogue.data_folder() == tmp_path / ".cache" / "varfilter"
