"""Fetching a named set: whole, interrupted, wrong and hostile, from a real server or a mirror."""

import io
import pickle
import sys
import threading
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from hostile import ARRAY, HOSTILE, OUTSIDE, toy_bytes, zipped
from real_data import DATA, needs_data
from refusals import refuses
from servers import BODY, Server, listing
from songs import as_pickle
from varfilter.data import Dataset, Family, Ragged, fetch, read_rolls
from varfilter.data.sets import transfer
from varfilter.data.sets.entry import Entry, Expected, Item
from varfilter.data.sets.registry import CATALOGUE, entry_named, read_set
from varfilter.distributions import Normal

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def read_toy(folder):
    return toy_dataset(np.load(folder / "toy.npy", allow_pickle=False))


def read_interrupted(_):
    raise KeyboardInterrupt


def toy_dataset(array):
    return Dataset("toy", *(Ragged(array, [4, 8]) for _ in range(3)), family=Family(Normal))


def load(name, **options):
    """A named set, from the data folder."""
    return read_set(entry_named(name), **options)


@pytest.fixture
def toy(server, monkeypatch):
    """A set in the catalogue that the server has, as a zip file."""
    sha = toy_dataset(ARRAY).sha256()
    entry = Entry(
        "toy", "a toy", "none", "table", (2,), f"{__name__}:read_toy",
        Expected((2, 2, 2), (12, 12, 12), sha),
        places=("toys/toy",),
        sources=((Item("toy.zip", (f"{server.url}/toy.zip",), place=lambda name: name),),),
    )  # fmt: skip
    monkeypatch.setitem(CATALOGUE, "toy", entry)
    server.files["toy.zip"] = zipped([("toy.npy", toy_bytes()), ("docs/read me.txt", b"hello")])
    return entry


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
    with monkeypatch.context() as patch:
        patch.setitem(CATALOGUE, "toy", replace(toy, reader=f"{__name__}:read_interrupted"))
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
    monkeypatch.setitem(CATALOGUE, "toy", loose)
    server.files["toy.zip"] = zipped([("toy.npy", toy_bytes(ARRAY + 1))])
    for _ in range(2):  # as it comes, and when it is there
        with pytest.warns(UserWarning, match="`toy` is NOT VERIFIED"):
            fetch("toy", tmp_path / "a")
    expected = replace(loose.expected, rows=(12, 12, 11))
    monkeypatch.setitem(CATALOGUE, "toy", replace(loose, expected=expected))
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
    monkeypatch.setattr(transfer, "PAUSE", 1000.0)
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


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_leaves_nothing_behind(server, toy, tmp_path, name):
    server.files["toy.zip"], *words = HOSTILE[name]
    OUTSIDE.unlink(missing_ok=True)
    folder = tmp_path / "deep" / "data"
    refuses(lambda: fetch("toy", folder), ValueError, "toy.zip", *words)
    # Not even the folder that was made for it.
    assert not any(p for p in tmp_path.iterdir())
    assert not OUTSIDE.exists()


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
    monkeypatch.setitem(CATALOGUE, "toy", entry)
    refuses(lambda: fetch("toy", tmp_path), ImportError, "pip install 'varfilter[video]'")
    assert server.asked == []


# The named sets, as their sources have them, made from the real data.


class Malice:
    """What a hostile pickle would have the reader do."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


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
    assert dataset.sha256() == read_rolls(original).sha256()
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

    songs = read_rolls(DATA / "music" / "jsb_chorales.npz")
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
def test_videos_as_their_authors_pack_them(tmp_path):
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
    """A small KTH: three persons, one video each; what was decoded to check it is used again."""
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
    kth = CATALOGUE["kth"]
    items = tuple(replace(i, digest="") for i in kth.sources[0] if i.name[:2] in ("00", "wa"))
    small = replace(kth, sources=(items,), expected=Expected((1, 1, 2)))
    monkeypatch.setitem(CATALOGUE, "kth", small)
    refuses(lambda: fetch("kth", folder, mirror=mirror), ValueError, "BAD sequences", "(1, 1, 2)")
    assert listing(folder) == []
    small = replace(small, expected=Expected((1, 1, 1)))
    monkeypatch.setitem(CATALOGUE, "kth", small)
    assert fetch("kth", folder, mirror=mirror) == folder / "video" / "kth"
    assert sorted(p.name for p in folder.iterdir()) == ["decoded", "video"]
    assert listing(folder / "video") == ["kth/00sequences.txt", "kth/walking.zip"]
    monkeypatch.setenv("VARFILTER_DATA", str(folder))
    monkeypatch.setattr(sys.modules["varfilter.data.sets.videos"], "decode_video", None)
    dataset = load("kth")
    assert [len(dataset.split(s).values) for s in ("train", "valid", "test")] == [6, 7, 8]
    with pytest.raises(TypeError):  # At another size it must be decoded anew.
        load("kth", size=16)
