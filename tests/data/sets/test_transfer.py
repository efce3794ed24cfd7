"""One file from a server: whole, interrupted, resumed, wrong."""

import time

import pytest

from refusals import refuses
from servers import BODY, Server, listing, raw_server, sha256
from varfilter.data.sets import archives
from varfilter.data.sets.transfer import Allowance, download

pytestmark = pytest.mark.usefixtures("as_users_run_it")


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


# What a server may take.

OK = b"HTTP/1.1 200 OK\r\n"
MIB = b"\0" * (1 << 20)
FEW = Allowance(max_gib=3 / 1024, max_minutes=0.02)  # 3 MiB, 1.2 seconds


def test_a_file_that_is_too_large_is_not_begun_or_not_kept(tmp_path):
    target = tmp_path / "a.bin"
    with raw_server(OK + b"Content-Length: 99999999999\r\n\r\n", MIB, forever=True) as url:
        refuses(
            lambda: download([f"{url}/a.bin"], target, allowance=FEW),
            ValueError, url, "announces 93.1 GiB", "`max_gib` is 0.00292969",
        )  # fmt: skip
    assert listing(tmp_path) == []
    # It says nothing of its size, and does not end.
    with raw_server(OK + b"\r\n", MIB, forever=True) as url:
        refuses(
            lambda: download([f"{url}/a.bin"], target, allowance=FEW),
            ValueError, url, "has sent", "`max_gib`", "Nothing of it was kept",
        )  # fmt: skip
    assert not target.exists()
    assert not (tmp_path / "a.bin.part").exists()


def test_a_file_that_takes_too_long_is_left_and_goes_on(server, tmp_path):
    target = tmp_path / "a.bin"
    for head in (OK + b"\r\n", b""):  # a byte now and then: of the file, or of the headers
        with raw_server(head, b"x", pause=0.05, forever=True) as url:
            begin = time.monotonic()
            refuses(
                lambda url=url: download([f"{url}/a.bin"], target, allowance=FEW),
                ConnectionError, url, "longer than `max_minutes` 0.02",
            )  # fmt: skip
            # At once where the time is up, not after the 30 s that a silent server has.
            assert time.monotonic() - begin < 15.0
    server.files["b.bin"] = BODY
    server.cuts["b.bin"] = [300_000]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("varfilter.data.sets.transfer.NUM_ATTEMPTS", 1)
        with pytest.raises(ConnectionError, match="What has come is kept"):
            download([f"{server.url}/b.bin"], tmp_path / "b.bin")
    download([f"{server.url}/b.bin"], tmp_path / "b.bin", allowance=Allowance(1.0, 1.0))
    assert (tmp_path / "b.bin").read_bytes() == BODY


def test_an_allowance_is_positive():
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        refuses(lambda wrong=wrong: Allowance(max_gib=wrong), ValueError, "`max_gib`")
        refuses(lambda wrong=wrong: Allowance(max_minutes=wrong), ValueError, "`max_minutes`")
