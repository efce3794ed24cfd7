"""`varfilter data` as users type it, and the one line of Python that does the same."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from commands import command, refuse
from real_data import DATA, needs_data
from refusals import refuses
from songs import as_pickle
from varfilter import load
from varfilter.data import fetch, read_rolls, write_midi, write_wav
from varfilter.data.sets.checks import judge
from varfilter.data.sets.registry import CATALOGUE, ENTRIES, locate

pytestmark = pytest.mark.usefixtures("as_users_run_it")

HERE = [entry.name for entry in ENTRIES if not entry.places or locate(entry, DATA)]


@pytest.fixture
def in_data(monkeypatch):
    monkeypatch.setenv("VARFILTER_DATA", str(DATA))


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A user's own files: {kind: path}."""
    folder = tmp_path_factory.mktemp("own")
    rng = np.random.default_rng(0)
    for kind in ("songs", "sounds", "videos", "frames"):
        (folder / kind).mkdir()
    for i in range(4):
        roll = np.zeros((30 + i, 88), np.uint8)
        roll[np.arange(30 + i), rng.integers(20, 60, 30 + i)] = 1
        write_midi(roll, folder / "songs" / f"{i}.mid")
        write_wav(rng.normal(0.0, 1000.0, 8000 + i), folder / "sounds" / f"{i}.wav", 8000)
        write_video(folder / "videos" / f"{i}.avi", rng.integers(0, 256, (6 + i, 32, 48), np.uint8))
    readings = {
        "when": np.arange(40) * 0.5,
        "machine": np.repeat(["a", "b", "c", "d"], 10),
        "warm": np.round(rng.normal(20.0, 2.0, 40), 3),
        "is_on": rng.integers(0, 2, 40),
    }
    # As tables are: without some rows, without some values, and with words.
    cells = readings | {"remark": [f"seen by {i}" for i in range(40)]}
    rows = [[str(cell) for cell in row] for row in zip(*cells.values(), strict=True)]
    rows[3][2] = rows[25][2] = ""
    rows = [row for i, row in enumerate(rows) if i not in (5, 6, 34)]
    lines = [",".join(cells), *map(",".join, rows)]
    (folder / "readings.csv").write_text("\n".join(lines) + "\n")
    import polars

    polars.DataFrame(readings).write_parquet(folder / "readings.parquet")
    np.save(folder / "readings.npy", np.stack([readings["warm"], readings["when"]], 1))
    np.savez(folder / "readings.npz", warm=readings["warm"], cold=-readings["warm"])
    paths = {path.name: path for path in folder.iterdir()}
    paths["folder"] = folder
    return paths


def write_video(path, images):
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("rawvideo", rate=25)
        stream.height, stream.width = images.shape[1:]
        stream.pix_fmt = "yuv420p"
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, "gray")))
        container.mux(stream.encode(None))


# List.


@needs_data
def test_list_says_what_is_here(in_data):
    code, out, _ = command("data", "list")
    assert code == 0
    for entry in ENTRIES:
        assert re.search(
            rf"^{entry.name} +{'/'.join(map(str, entry.expected.sequences))} ", out, re.M
        )
        assert entry.what in out
        assert f"Licence: {entry.licence}." in out
    assert "music/jsb_chorales.npz" in out
    assert "simulated" in out
    assert str(DATA) in out
    report = json.loads(command("data", "list", "--json")[1])
    assert [name for name, shown in report["sets"].items() if shown["where"]] == [
        name for name in HERE if name != "moving-digits"
    ]
    assert report["sets"]["jsb"]["sequences"] == [229, 76, 77]


def test_nothing_is_here_in_an_empty_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path / "none"))
    code, out, _ = command("data", "list")
    assert code == 0
    assert out.count("not here") == len(ENTRIES) - 1
    code, out, err = command("data", "check", "jsb")
    assert (code, out) == (2, "")
    assert "varfilter data fetch jsb" in err
    assert str(tmp_path / "none" / "music" / "jsb_chorales.npz") in err
    refuses(lambda: load("jsb"), FileNotFoundError, "varfilter data fetch jsb", str(tmp_path))
    refuses(lambda: load("timit"), FileNotFoundError, "LDC93S1", "timit-sample")


def test_the_catalogue_is_consistent():
    assert list(CATALOGUE) == [
        "piano-midi", "musedata", "jsb", "nottingham", "timit", "timit-sample",
        "emodb", "kth", "kth-sample", "weizmann", "moving-digits",
    ]  # fmt: skip
    lengths = {"sha256": 64, "sha1": 40, "md5": 32}
    for entry in ENTRIES:
        assert len(entry.expected.sequences) == 3
        for items in entry.sources:
            for item in items:
                assert item.urls
                assert all(re.match(r"https?://[^ ]+$", url) for url in item.urls)
                algorithm, _, digest = item.digest.partition(":")
                assert not item.digest or len(digest) == lengths[algorithm]
            # What a single file is called when it has come is looked for.
            if entry.places[0].endswith(".npz"):
                assert f"music/{items[0].name}" in entry.places


# Check.


# Films take seconds to decode: `data/sets/test_checks.py` has them by default.
FILMS = ("weizmann", "kth-sample")


@needs_data
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in FILMS else ()) for n in HERE]
)
def test_check_verifies_every_set_that_is_here(in_data, name):
    code, out, err = command("data", "check", name, "--json")
    assert code == 0, err
    report = json.loads(out)
    expected = CATALOGUE[name].expected
    assert report["is_good"]
    assert report["is_verified"]
    assert report["sha256"] == expected.sha256
    assert tuple(s["sequences"] for s in report["splits"].values()) == expected.sequences
    assert "bit by bit" in " ".join(report["verdict"])


@needs_data
def test_check_has_the_numbers_of_the_sets_pages(in_data):
    report = json.loads(command("data", "check", "jsb", "--json")[1])
    frames = [report["splits"][split]["steps"] for split in ("train", "valid", "test")]
    assert frames == [13807, 4602, 4725]
    ones = [report["splits"][split]["ones_per_step"] for split in ("train", "valid", "test")]
    assert np.average(ones, weights=frames) == pytest.approx(3.89, abs=0.01)
    assert report["splits"]["test"]["length"] == {"shortest": 32, "mean": 61.36, "longest": 160}
    code, out, _ = command("data", "check", "jsb")
    assert code == 0
    assert "verdict: verified" in out
    assert CATALOGUE["jsb"].expected.sha256 in out
    code, out, _ = command("data", "check", "kth-sample", "--size", "16")
    assert code == 0
    assert "not verified" in out
    assert "(1, 16, 16)" in out


@needs_data
def test_check_finds_what_is_wrong(tmp_path):
    # Another set, and the right one with a note too many.
    code, out, _ = command("data", "check", "jsb", "--at", DATA / "music" / "piano_midi_de.npz")
    assert code == 1
    assert "BAD sequences" in out
    assert "verdict: WRONG" in out
    with np.load(DATA / "music" / "jsb_chorales.npz") as file:
        arrays = dict(file)
    arrays["test_rolls"][0, 0] ^= 1
    np.savez(tmp_path / "jsb.npz", **arrays)
    code, out, _ = command("data", "check", "jsb", "--at", tmp_path / "jsb.npz", "--json")
    assert code == 1
    report = json.loads(out)
    assert not report["is_good"]
    assert "BAD content" in report["verdict"][-1]
    # A film that is decoded otherwise is right if its file is; and wrong if that differs too.
    shutil.copytree(DATA / "video" / "kth_sample", tmp_path / "kth")
    dataset, entry = load("kth-sample", at=tmp_path / "kth"), CATALOGUE["kth-sample"]
    dataset.train.values[0, 0, 0, 0] ^= 1
    assert judge(entry, dataset, tmp_path / "kth")[:2] == (True, True)
    with (tmp_path / "kth" / "person01_jogging_d3_uncomp.avi").open("ab") as file:
        file.write(b"\0")
    assert judge(entry, dataset, tmp_path / "kth")[:2] == (False, False)


@needs_data
def test_check_of_a_part_of_timit_as_timit(tmp_path):
    sample = DATA / "speech" / "timit_sample"
    for i, file in enumerate(sorted(sample.glob("dr1-*.flac"))):
        speaker, sentence = file.stem.split("-")[1].split("_")
        target = tmp_path / ("TRAIN" if i % 2 else "TEST") / "DR1" / speaker / f"{sentence}.flac"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    code, out, _ = command("data", "check", "timit", "--at", tmp_path)
    assert code == 1
    assert "expected (4389, 231, 1680)" in out
    assert "not the whole TIMIT" in out


def test_check_of_the_users_own(own):
    code, out, _ = command("data", "check", own["readings.csv"], "--sequence", "machine", "--json")
    assert code == 0
    report = json.loads(out)
    assert report["is_good"] is None
    assert list(report["columns"]) == ["when", "warm", "is_on"]
    assert report["splits"]["train"]["sequences"] == 2
    code, out, _ = command(
        "data", "check", own["readings.csv"], "--sequence", "machine", "--time", "when"
    )
    assert code == 0
    assert "column (train)" in out
    assert "verdict" not in out
    for words in ("'when'", "0.5", "'machine'", "'remark' is left out: text"):
        assert words in out, f"{words!r} is not in: {out}"
    assert command("data", "check", own["sounds"], "--rate", "4000")[0] == 0


def test_options_of_tables_and_music_at_the_prompt(own):
    def report(kind, *arguments):
        code, out, err = command("data", "check", own[kind], "--json", *arguments)
        assert code == 0, err
        return json.loads(out)

    def steps(report):
        return sum(split["steps"] for split in report["splits"].values())

    table = ("readings.csv", "--sequence", "machine")
    shown = report(*table, "--time", "when")
    assert steps(shown) == 40  # the gaps are steps
    assert shown["splits"]["train"]["missing"] > 0.0
    assert any("'remark' is left out" in note for note in shown["notes"])
    assert steps(report(*table, "--time", "none")) == 37
    assert steps(report(*table, "--time", "when", "--step", "1")) < 30
    shown = report(*table, "--time", "when", "--columns", "is_on", "--kinds", "is_on=count")
    assert {n: c["family"] for n, c in shown["columns"].items()} == {"is_on": "DiscretizedNormal"}
    shown = report(*table, "--time", "when", "--split-by", "time")
    assert [split["sequences"] for split in shown["splits"].values()] == [4, 4, 4]
    assert steps(report("songs", "--steps-per-beat", "2")) > 1.9 * steps(report("songs"))
    assert report("songs")["splits"]["train"]["pitches"][0] >= 41
    # The notes of a reader name its arguments; what is printed, the options of the command.
    assert "`steps_per_beat` chooses another" in report("songs")["notes"][0]
    assert "; `--steps-per-beat` chooses another." in command("data", "check", own["songs"]).out
    code, _, err = command("data", "check", own["songs"], "--columns", "a")
    assert (code, "no option --columns" in err) == (2, True)
    code, _, err = command("data", "check", own["readings.csv"], "--kinds", "warm")
    assert (code, "COLUMN=count" in err) == (2, True)


def test_a_long_table_at_the_prompt(tmp_path):
    rows = [f"{t},{name},{t % 7 + 0.5}" for t in range(40) for name in ("warm", "cold")]
    (tmp_path / "long.csv").write_text("\n".join(["t,what,value", *rows]) + "\n")
    _, out, _ = command("data", "check", tmp_path / "long.csv", "--long", "what", "value", "--json")
    assert list(json.loads(out)["columns"]) == ["cold", "warm"]
    # As columns are typed elsewhere, with commas.
    code, _, err = command("data", "check", tmp_path / "long.csv", "--long", "what,value")
    assert code == 2
    assert err == "`--long` takes 2 words, with spaces between; got 'what,value'.\n"


def test_warnings_and_numbers_are_plain(own, tmp_path):
    songs = tmp_path / "songs"
    shutil.copytree(own["songs"], songs)
    write_midi(np.zeros((4, 88), np.uint8), songs / "silent.mid")
    code, out, err = command("data", "check", songs)
    assert code == 0
    assert err.count("\n") == 1
    assert "silent.mid" in err
    assert "Warning" not in err
    assert "notes in a step" in out
    assert re.search(r"pitches +│ \d\d-\d\d ", out)
    np.save(tmp_path / "long.npy", np.random.default_rng(0).normal(size=(100_000, 1)))
    out = command("data", "check", tmp_path / "long.npy")[1]
    assert "80000" in out
    assert "e+" not in out
    # So many digits have no room beside others, and would be folded.
    sales = {f"s{i}": 1e12 + 1e10 * np.random.default_rng(i).normal(size=60) for i in range(5)}
    np.savez(tmp_path / "sales.npz", **sales)
    rows = command("data", "check", tmp_path / "sales.npz")[1].splitlines()
    whole = re.compile(r"│ s\d .*e\+1[12] .*e\+1[12] .*e\+1[12] ")
    assert sum(bool(whole.match(row)) for row in rows) == 5


def test_a_set_without_a_whole_step_and_one_without_memory(own, monkeypatch):
    from varfilter.data.tables import read

    dataset = load(own["readings.npy"])
    short = replace(dataset, rows_per_step=30)
    monkeypatch.setattr(read, "read_table", lambda path: short)
    code, out, _ = command("data", "check", own["readings.npy"])
    assert code == 1
    assert "PROBLEM: `valid` has no whole step" in out

    def too_much(path):
        raise MemoryError("Unable to allocate 37.3 GiB")

    monkeypatch.setattr(read, "read_table", too_much)
    code, _, err = command("data", "check", own["readings.npy"])
    assert code == 2
    assert "not enough memory" in err
    assert "--size" in err

    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(read, "read_table", interrupted)
    assert command("data", "check", own["readings.npy"])[0] == 130


@needs_data
def test_a_damaged_set_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path))
    path = tmp_path / "music" / "jsb_chorales.npz"
    path.parent.mkdir()
    path.write_bytes(b"garbage")
    for name in ("check", "fetch"):
        code, _, err = command("data", name, "jsb")
        assert code == 2
        assert f"Delete {path}, or replace it with `varfilter data fetch jsb --again`." in err
    # Another set, under its name.
    shutil.copyfile(DATA / "music" / "piano_midi_de.npz", path)
    code, out, _ = command("data", "check", "jsb")
    assert (code, "fetch jsb --again" in out) == (1, True)
    assert command("data", "fetch", "jsb")[0] == 2
    code, out, err = command("data", "fetch", "jsb", "--again", "--from", DATA)
    assert code == 0, err
    assert "`jsb` is there" in out
    assert "verdict: verified" in command("data", "check", "jsb")[1]


# Show, and the one line of Python.


@pytest.mark.parametrize(
    ("kind", "arguments", "shape", "sequences"),
    [
        ("songs", [], (88,), (2, 1, 1)),
        ("sounds", ["--rate", "8000"], (200,), (2, 1, 1)),
        ("videos", ["--size", "32"], (1, 32, 32), (2, 1, 1)),
        ("readings.csv", ["--sequence", "machine", "--time", "when"], (2,), (2, 1, 1)),
        ("readings.parquet", ["--sequence", "machine"], (3,), (2, 1, 1)),
    ],
)
def test_show_and_load_of_the_users_own(own, tmp_path, kind, arguments, shape, sequences):
    out = tmp_path / "picture.png"
    code, printed, err = command("data", "show", own[kind], "--out", out, *arguments)
    assert code == 0, err
    assert printed.splitlines()[-1] == str(out)
    assert out.read_bytes().startswith(b"\x89PNG\r\n")
    assert len(out.read_bytes()) > 5000
    pairs = zip(arguments[::2], arguments[1::2], strict=True)
    options = {name[2:]: int(v) if v.isdecimal() else v for name, v in pairs}
    dataset = load(own[kind], **options)
    assert dataset.observation_shape == shape
    assert tuple(len(dataset.split(s)) for s in ("train", "valid", "test")) == sequences


def test_load_tells_files_apart(own, tmp_path):
    assert load(own["readings.npy"]).columns == ("x0", "x1")
    assert load(own["readings.npz"]).columns == ("warm", "cold")
    rolls = {}
    for split in ("train", "valid", "test"):
        rolls[f"{split}_rolls"] = np.packbits(np.eye(5, 88, dtype=np.uint8), axis=1)
        rolls[f"{split}_lengths"] = np.array([2, 3])
    np.savez(tmp_path / "songs.npz", **rolls)
    dataset = load(str(tmp_path / "songs.npz"))
    assert dataset.observation_shape == (88,)
    assert dataset.sha256() == read_rolls(tmp_path / "songs.npz").sha256()
    # Pictures beside music are its covers, and frames where there is nothing else.
    from PIL import Image

    music, frames = tmp_path / "music", tmp_path / "frames"
    shutil.copytree(own["songs"], music)
    Image.new("L", (8, 8)).save(music / "cover.png")
    assert load(music).sha256() == load(own["songs"]).sha256()
    for film in range(3):
        (frames / str(film)).mkdir(parents=True)
        for number in range(4):
            Image.new("L", (8, 8), 20 * number + film).save(frames / str(film) / f"{number}.png")
    assert load(frames, size=8).train.values.shape == (4, 1, 8, 8)


@needs_data
def test_load_by_name_takes_the_options_of_its_reader(in_data):
    assert load("kth-sample", size=16).observation_shape == (1, 16, 16)
    assert load("timit-sample", frame_size=100).observation_shape == (100,)
    assert load("moving-digits", num_train=3, num_valid=2, num_test=1).train.values.shape[0] == 60
    refuses(
        lambda: load("weizmann", rate=8000), TypeError, "`weizmann`", "'rate'", "size, color, crop"
    )
    refuses(lambda: load("moving-digits", folder="x"), TypeError, "'folder'", "num_train")


def test_load_of_what_is_no_path_points_to_table():
    import polars

    frame = polars.DataFrame({"a": [1.0, 2.0]})
    refuses(lambda: load(frame), TypeError, "`source`", "DataFrame", "read_table(source)`")


# Refusals.


def test_bad_sources_are_refused(own, tmp_path):
    cases = {
        ("jbs",): ["'jbs'", "Did you mean 'jsb'?", "kth-sample, weizmann"],
        ("timit_sample",): ["Did you mean 'timit-sample'?"],
        ("piano-midi.de",): ["no such file or folder", "Did you mean 'piano-midi'?"],
        (tmp_path / "none.csv",): ["none.csv", "no such file or folder"],
        (tmp_path,): [
            "no music, sound, video or image files (it is empty)",
            ".mp3",
            ".mid",
            ".mp4",
            ".png",
        ],
        (own["folder"],): ["4 music files and 4 sound files", "of their own"],
        (own["sounds"] / "0.wav",): ["single sound file", "Give the folder"],
        (own["songs"], "--size", 3): ["is music", "no option --size", "--steps-per-beat"],
        (own["readings.csv"], "--time", "whn"): ["`--time` names", "whn"],
        (own["readings.csv"], "--at", "x"): ["`--at`"],
    }
    for arguments, words in cases.items():
        code, out, err = command("data", "check", *arguments)
        assert (code, out) == (2, ""), arguments
        assert err.count("\n") == 1, err
        for word in words:
            assert word in err, f"{word!r} is not in: {err}"


def test_bad_options_are_refused(own, tmp_path):
    for arguments, words in {
        ("data", "check"): ["NAME|PATH"],
        ("data", "check", "jsb", "--no-such-option"): ["no-such-option"],
        ("data", "show", own["songs"]): ["--out"],
        ("data", "lits"): ["list, fetch, check, show"],
        ("data", "show", own["songs"], "--out", tmp_path / "no" / "x.png"): ["no folder"],
        ("data", "show", own["songs"], "--out", tmp_path / "x.abc"): ["--out", ".png", "'.abc'"],
        ("data", "show", own["songs"], "--out", tmp_path / "x"): ["--out", ".png", ".svg"],
        ("data", "show", own["songs"], "--out", tmp_path): ["--out", "is a folder"],
        ("data", "show", own["songs"], "--out", "/proc/x.png"): ["--out", "cannot be written"],
        ("data", "show", own["songs"], "--out", tmp_path / "x.png", "--split", "tets"): ["tets"],
        ("data", "fetch", "timit", "--folder", tmp_path): ["LDC93S1"],
        ("data", "fetch", "jsb", "--folder", tmp_path, "--from", tmp_path): ["JSB_Chorales.mat"],
    }.items():
        code, _, err = command(*arguments)
        assert code == 2, arguments
        for word in words:
            assert word in err, f"{word!r} is not in: {err}"
    assert not list(tmp_path.iterdir())


def test_help_teaches():
    for name in ("list", "fetch", "check", "show"):
        code, out, _ = command("data", name, "--help")
        assert code == 0
        assert f"varfilter data {name}" in out.split("example", 1)[1]
    code, out, _ = command("data")
    assert code == 0
    assert "varfilter data fetch jsb" in out
    assert "varfilter data list" in command()[1]


# Fetch.


@needs_data
def test_fetch_from_a_mirror_and_once(tmp_path, monkeypatch):
    import pickle

    songs = pickle.dumps(as_pickle(DATA / "music" / "jsb_chorales.npz"))
    (tmp_path / "JSB Chorales.pickle").write_bytes(songs)
    folder = tmp_path / "data"
    arguments = ("data", "fetch", "jsb", "--folder", folder, "--from", tmp_path)
    code, out, err = command(*arguments)
    assert code == 0, err
    assert str(folder / "music" / "jsb_chorales.pickle") in out
    assert f"export VARFILTER_DATA={folder}" in out
    assert "licence" in out
    assert "was there already" in command(*arguments)[1]
    monkeypatch.setenv("VARFILTER_DATA", str(folder))
    assert "verdict: verified" in command("data", "check", "jsb")[1]
    assert fetch("jsb") == folder / "music" / "jsb_chorales.pickle"
    code, out, _ = command("data", "fetch", "moving-digits")
    assert (code, "simulated" in out) == (0, True)


def test_in_a_process_of_its_own(own, tmp_path):
    out = tmp_path / "songs.png"
    words = [sys.executable, "-m", "varfilter", "data", "show", str(own["songs"])]
    done = subprocess.run([*words, "--out", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert out.stat().st_size > 5000
    # What the reader says of the songs, with the option of the command, and nothing else.
    notes = [
        note.replace("steps_per_beat", "--steps-per-beat") for note in load(own["songs"]).notes
    ]
    assert set(done.stderr.splitlines()) <= set(notes)


def test_zero_is_a_value_that_was_given(tmp_path):
    """Not one that was left out: of a wrong value, and of another medium's option."""
    (tmp_path / "x.csv").write_text("x\n" + "\n".join(str(i % 7 + 0.5) for i in range(40)))
    assert "step" in refuse("data", "check", tmp_path / "x.csv", "--step", "0")
    assert "rate" in refuse("data", "check", tmp_path / "x.csv", "--rate", "0")
    said = refuse("data", "show", tmp_path / "x.csv", "--out", tmp_path / "x.png", "--seed", "-1")
    assert "seed" in said
