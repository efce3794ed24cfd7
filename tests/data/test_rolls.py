"""Rolls: the four real sets in three formats, and pickles that must not run."""

import gc
import os
import pickle
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from real_data import DATA, needs_data
from refusals import refuses
from varfilter.data import Scaling, whole_sequences
from varfilter.data.dataset import SPLITS
from varfilter.data.plain_pickle import read_plain_pickle
from varfilter.data.rolls import read_rolls
from varfilter.distributions import Bernoulli

pytestmark = pytest.mark.usefixtures("as_users_run_it")

# Songs and steps of train, valid, test; lowest and highest pitch of all; notes a step in train.
TABLE = {
    "jsb_chorales": ((229, 76, 77), (13807, 4602, 4725), (43, 96), 3.90),
    "nottingham": ((694, 173, 170), (176561, 45513, 44463), (31, 93), 3.96),
    "piano_midi_de": ((87, 12, 25), (75911, 8540, 19036), (21, 108), 3.04),
    "musedata": ((524, 135, 124), (245202, 82755, 64339), (21, 105), 3.49),
}
# By another program, to two places, and by this test: equal weight a song, equal weight a step.
MARGINALS = {
    "piano_midi_de": ((11.39, 11.05), (11.3848, 11.0455)),
    "musedata": ((10.55, 11.51), (10.5535, 11.5097)),
    "jsb_chorales": ((11.00, 11.06), (11.0047, 11.0614)),
    "nottingham": ((10.12, 10.25), (10.1162, 10.2519)),
}


@pytest.fixture(scope="module")
def sets():
    return {name: read_rolls(DATA / "music" / f"{name}.npz") for name in TABLE}


def notes_of(dataset, number=int):
    """The canonical pickles' structure: steps are tuples of note numbers."""
    return {
        split: [
            [tuple(number(21 + key) for key in np.flatnonzero(row)) for row in song]
            for song in dataset.split(split)
        ]
        for split in SPLITS
    }


def small_songs():
    return {
        "train": [[(60, 64), ()], [(21,)]],
        "valid": [[(108, 21), (60,), (60,)]],
        "test": [[(), (33,)]],
    }


def write_pickle(path, contents, protocol=2):
    path.write_bytes(pickle.dumps(contents, protocol=protocol))
    return path


def write_mat(path, songs_by_split, dtype=np.float64):
    contents = {}
    for split, songs in songs_by_split.items():
        contents[f"{split}data"] = np.empty((1, len(songs)), object)
        for number, song in enumerate(songs):
            contents[f"{split}data"][0, number] = np.asarray(song, dtype)
    savemat(path, contents)
    return path


# The four real sets


@needs_data
@pytest.mark.parametrize("name", TABLE)
def test_counts_lengths_range_and_density(sets, name):
    songs, steps, pitches, density = TABLE[name]
    dataset = sets[name]
    parts = [dataset.split(split) for split in SPLITS]
    assert tuple(map(len, parts)) == songs
    assert tuple(len(part.values) for part in parts) == steps
    assert tuple(int(part.lengths.sum()) for part in parts) == steps
    values = np.concatenate([part.values for part in parts])
    assert values.shape[1] == 88
    assert values.dtype == np.uint8
    assert values.max() == 1
    keys = np.flatnonzero(values.any(axis=0))
    assert (keys[0] + 21, keys[-1] + 21) == pitches
    train = dataset.train.values
    assert train.sum() / len(train) == pytest.approx(density, abs=0.005)
    assert dataset.name == name
    assert dataset.family.distribution is Bernoulli
    assert dataset.scaling == Scaling()
    assert dataset.observation_shape == (88,)


@needs_data
def test_test_songs_have_the_lengths_of_the_paper(sets):
    # Mean, shortest and longest; notes a step.
    for name, expected in {
        "piano_midi_de": (761, 65, 2645, 2.95),
        "musedata": (519, 45, 4273, 3.29),
        "jsb_chorales": (61, 32, 160, 3.89),
        "nottingham": (262, 63, 1793, 3.99),
    }.items():
        test = sets[name].test
        assert (round(test.lengths.mean()), test.lengths.min(), test.lengths.max()) == expected[:3]
        assert test.values.sum() / len(test.values) == pytest.approx(expected[3], abs=0.005)


@needs_data
@pytest.mark.parametrize("name", MARGINALS)
def test_marginal_baseline(sets, name):
    """Notes as independent coins, each as often down as in train (one added to both sides).

    The added ones are for pitches that train never has. How the other program treats them is not
    known; clipping at 1e-5 to 1e-10 instead moves no figure by more than 0.004, while adding 5
    moves JSB by 0.012. All steps are scored, the first too.
    """
    dataset = sets[name]
    train = dataset.train.values
    p = (train.sum(axis=0, dtype=np.float64) + 1.0) / (len(train) + 2.0)
    total, steps = np.zeros(len(dataset.test)), np.zeros(len(dataset.test))
    for numbers, batch in whole_sequences(dataset, 16):
        xs, mask = np.asarray(batch.xs, np.float64), np.asarray(batch.mask)
        nats = -(xs @ np.log(p) + (1.0 - xs) @ np.log(1.0 - p))
        used = numbers >= 0
        total[numbers[used]] = np.where(mask, nats, 0.0).sum(axis=1)[used]
        steps[numbers[used]] = mask.sum(axis=1)[used]
    assert steps.sum() == len(dataset.test.values)
    got = ((total / steps).mean(), total.sum() / steps.sum())
    other, measured = MARGINALS[name]
    assert got == pytest.approx(other, abs=0.01)
    assert got == pytest.approx(measured, abs=1e-4)


@needs_data
def test_reading_is_quick():
    begin = time.process_time()
    read_rolls(DATA / "music" / "musedata.npz")
    # 0.05 s of the processor; a loop over the 392,296 steps takes longer than this.
    assert time.process_time() - begin < 0.5


@needs_data
@pytest.mark.parametrize("name", ["jsb_chorales", "piano_midi_de"])
def test_the_formats_agree(sets, name, tmp_path):
    dataset = sets[name]
    expected = dataset.sha256()
    songs = notes_of(dataset)
    for protocol in (0, 2):
        path = write_pickle(tmp_path / f"{protocol}.pickle", songs, protocol)
        assert read_rolls(path).sha256() == expected
    mat = write_mat(tmp_path / "set.mat", {s: list(dataset.split(s)) for s in SPLITS})
    assert read_rolls(mat).sha256() == expected


# The formats


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("number", [int, float, np.int64, np.int16, np.uint8, np.float32])
def test_pickles_of_any_protocol_and_number(tmp_path, protocol, number):
    songs = {
        split: [[[number(note) for note in step] for step in song] for song in part]
        for split, part in small_songs().items()
    }
    dataset = read_rolls(write_pickle(tmp_path / "a.pickle", songs, protocol), "mine")
    assert dataset.name == "mine"
    assert dataset.train.lengths.tolist() == [2, 1]
    rows, keys = np.nonzero(dataset.train.values)
    assert (rows.tolist(), keys.tolist()) == ([0, 0, 2], [60 - 21, 64 - 21, 0])
    assert np.flatnonzero(dataset.valid[0][0]).tolist() == [0, 87]
    assert dataset.test[0].sum(axis=1).tolist() == [0, 1]


def python2_song(data, code=b"f8", order=b"<"):
    """A pickle as Python 2 writes it, protocol 2: one step of one NumPy number, as a str."""
    dtype = b"cnumpy\ndtype\nU" + bytes([len(code)]) + code + b"K\x00K\x01\x87R"
    dtype += b"(K\x03U\x01" + order + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    scalar = b"cnumpy.core.multiarray\nscalar\n" + dtype + b"U" + bytes([len(data)]) + data
    song = b"]]]" + scalar + b"\x86Raaa"
    return (
        b"\x80\x02}("
        + b"".join(b"U\x05" + k + song for k in (b"train", b"valid"))
        + (b"U\x04test" + song + b"u.")
    )


@pytest.mark.parametrize(
    ("code", "order"), [(b"f8", b"<"), (b"f8", b">"), (b"i8", b"<"), (b"u2", b">"), (b"i1", b"|")]
)
def test_python_2_numbers(tmp_path, code, order):
    # 90.0 as a double has the byte 0x80, which is no ASCII.
    data = np.array(90, np.dtype((order + code).decode())).tobytes()
    (tmp_path / "old.pickle").write_bytes(python2_song(data, code, order))
    dataset = read_rolls(tmp_path / "old.pickle")
    assert [np.argwhere(dataset.split(s).values).tolist() for s in SPLITS] == [[[0, 69]]] * 3


def test_the_file_says_what_it_is_whatever_its_name(tmp_path):
    songs = small_songs()
    expected = read_rolls(write_pickle(tmp_path / "a.pickle", songs))
    rolls = {split: list(expected.split(split)) for split in SPLITS}
    mat = write_mat(tmp_path / "set.mat", rolls, np.uint8)
    packed = {f"{s}_rolls": np.packbits(expected.split(s).values, axis=1) for s in SPLITS}
    lengths = {f"{s}_lengths": expected.split(s).lengths.astype(np.int32) for s in SPLITS}
    np.savez(tmp_path / "set.npz", **packed, **lengths)
    for path in (tmp_path / "a.pickle", mat, tmp_path / "set.npz"):
        path.with_suffix(".data").write_bytes(path.read_bytes())
        assert read_rolls(path.with_suffix(".data")).sha256() == expected.sha256()
        assert read_rolls(str(path)).name == path.stem


def test_empty_songs_are_left_out_in_every_format(tmp_path):
    songs = small_songs()
    expected = read_rolls(write_pickle(tmp_path / "a.pickle", songs)).sha256()
    songs["train"] = [[], songs["train"][0], [], songs["train"][1]]
    dataset = read_rolls(write_pickle(tmp_path / "b.pickle", songs))
    assert dataset.sha256() == expected
    rolls = {split: [*dataset.split(split), np.zeros((0, 88))] for split in SPLITS}
    assert read_rolls(write_mat(tmp_path / "b.mat", rolls)).sha256() == expected
    parts = {f"{s}_rolls": np.packbits(dataset.split(s).values, axis=1) for s in SPLITS}
    parts |= {f"{s}_lengths": np.append(0, dataset.split(s).lengths) for s in SPLITS}
    np.savez(tmp_path / "b.npz", **parts)
    assert read_rolls(tmp_path / "b.npz").sha256() == expected


@pytest.mark.parametrize("note", [20, 109, 10**400, -1, 60.5, float("nan"), float("inf")])
def test_a_note_off_the_keyboard_is_refused(tmp_path, note):
    songs = small_songs()
    songs["valid"] = [[(60,)], [(61,), (60, note)]]
    path = write_pickle(tmp_path / "high.pickle", songs)
    refuses(lambda: read_rolls(path), ValueError, "high.pickle", "'valid'", "song 1", "21 to 108")


@pytest.mark.parametrize(
    ("train", "words"),
    [
        (None, "list of songs"),
        ({"a": 1}, "list of songs"),
        ("abc", "list of songs"),
        ([60, 61], "list of songs"),
        ([[60, 61]], "list of MIDI note numbers"),
        ([[("60",)]], "`'60'`"),
        ([[(True,)]], "`True`"),
        ([[((60,),)]], "`tuple`"),
        ([], "no songs for 'train'"),
        ([[], []], "no songs for 'train'"),
    ],
)
def test_other_structures_are_refused(tmp_path, train, words):
    path = write_pickle(tmp_path / "odd.pickle", small_songs() | {"train": train})
    refuses(lambda: read_rolls(path), ValueError, "odd.pickle", words)


def test_wrong_files_are_refused(tmp_path):
    path = tmp_path / "set.npz"
    refuses(lambda: read_rolls(path), FileNotFoundError, "set.npz", "no such file")
    refuses(lambda: read_rolls(tmp_path), FileNotFoundError, "no such file")
    for text in (b"", b"PK\x03\x04 and no more", b"hello"):
        path.write_bytes(text)
        refuses(lambda: read_rolls(path), ValueError, "set.npz", "not an .npz file")
    (tmp_path / "set.mat").write_bytes(b"MATLAB 5.0 MAT-file, cut short")
    refuses(lambda: read_rolls(tmp_path / "set.mat"), ValueError, "set.mat", "not a .mat file")
    (tmp_path / "song.mid").write_bytes(b"MThd")
    refuses(lambda: read_rolls(tmp_path / "song.mid"), ValueError, "song.mid", "midi_folder")

    missing = {"train": [], "test": []}
    odd = write_pickle(tmp_path / "odd.pickle", missing)
    refuses(lambda: read_rolls(odd), ValueError, "valid is missing", "It has: train, test")
    refuses(lambda: read_rolls(write_pickle(odd, [1])), ValueError, "is missing. It has: `list`")

    np.savez(path, train=np.zeros(3), other=np.array([None]))
    refuses(lambda: read_rolls(path), ValueError, "set.npz", "It has: train, other")
    np.savez(path, train_rolls=np.array([Runs(print, 1)]))
    refuses(lambda: read_rolls(path), ValueError, "set.npz", "Object arrays cannot be loaded")
    arrays = {f"{s}_rolls": np.zeros((4, 11), np.uint8) for s in SPLITS}
    np.savez(path, **arrays)
    refuses(lambda: read_rolls(path), ValueError, "train_lengths", "is missing")
    np.savez(path, **arrays, **{f"{s}_lengths": np.array([2, 3]) for s in SPLITS})
    refuses(lambda: read_rolls(path), ValueError, "set.npz", "`train_lengths`", "the sum 5")
    arrays |= {f"{s}_lengths": np.array([4]) for s in SPLITS}
    np.savez(path, **(arrays | {"test_rolls": np.zeros((4, 88), np.uint8)}))
    refuses(lambda: read_rolls(path), ValueError, "`test_rolls`", "uint8[4, 88]")

    roll = np.zeros((3, 88))
    for wrong, words in [
        (np.zeros((3, 87)), "song 1 is an array `float64[3, 87]`"),
        (np.full((3, 88), 0.5), "song 1 has other values"),
        (np.full((3, 88), np.nan), "song 1 has other values"),
    ]:
        parts = {"train": [roll], "valid": [roll, wrong], "test": [roll]}
        mat = write_mat(tmp_path / "odd.mat", parts)
        refuses(lambda mat=mat: read_rolls(mat), ValueError, "odd.mat", "`validdata`", words)
    savemat(mat, {f"{s}data": roll for s in SPLITS})
    refuses(lambda: read_rolls(mat), ValueError, "`traindata` must be a cell array")


# Pickles that must not run


class Runs:
    """What a malicious file holds: on loading, `function(*arguments)`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def asks(path, pickled, *words):
    """The file is refused, naming itself and what it asked for; the marker was not made."""
    marker = path.parent / "it-ran"
    path.write_bytes(pickled)
    refuses(lambda: read_plain_pickle(path), ValueError, path.name, *words)
    refuses(lambda: read_rolls(path), ValueError, path.name, *words)
    assert not marker.exists()


@pytest.mark.parametrize("protocol", range(6))
def test_reduce_is_never_run(tmp_path, protocol):
    path, marker = tmp_path / "evil.pickle", str(tmp_path / "it-ran")
    command = f"touch {marker}"
    for evil, words in [
        (Runs(os.system, command), f"{os.system.__module__}.system"),
        (Runs(eval, f"open({marker!r}, 'w')"), "eval"),
        (Runs(exec, f"open({marker!r}, 'w')"), "exec"),
        (Runs(getattr, "a", "upper"), "getattr"),
        (Runs(pickle.loads, pickle.dumps(Runs(os.system, command))), "pickle.loads"),
        (Runs(np.load, marker), "numpy.load"),
        (Runs(Path(marker).touch), ""),
        (np.arange(3), "numpy._core."),
        (np.dtype("O"), "`numpy.dtype` of 'O8'"),
        (np.dtype([("a", "i4")]), "`numpy.dtype` of 'V4'"),
        (np.datetime64(3, "s"), "`numpy.dtype` of 'M8'"),
        (np.complex128(1), "`numpy.dtype` of 'c16'"),
        (Runs, "Runs"),
        (1j, "complex"),
    ]:
        songs = small_songs()
        songs["test"].append([(60, evil)])
        asks(path, pickle.dumps(songs, protocol=protocol), "asks for the global", words)


def test_hand_written_pickles_are_refused(tmp_path):
    path = tmp_path / "evil.pickle"
    touch = f"touch {tmp_path / 'it-ran'}".encode()
    system = b"S'" + touch + b"'\n"
    for pickled, words in [
        (b"cos\nsystem\n(" + system + b"tR.", "`os.system`"),
        (b"(" + system + b"ios\nsystem\n.", "`os.system`"),
        (b"(cos\nsystem\n" + system + b"o.", "`os.system`"),
        (b"c__builtin__\neval\n(S'1'\ntR.", "`__builtin__.eval`"),
        (b"cnumpy\ncore.multiarray.scalar\n.", "`numpy.core.multiarray.scalar`"),
        (b"\x80\x04\x8c\x05numpy\x8c\x09os.system\x93.", "`numpy.os.system`"),
        (b"\x80\x02cnumpy\ndtype\nU\x02O8\x85R.", "`numpy.dtype` of 'O8'"),
        # An object as the "bytes" of a number, and a number type that is none.
        (b"\x80\x02cnumpy.core.multiarray\nscalar\nK\x01K\x02\x86R.", "multiarray.scalar"),
        (b"c_codecs\nencode\n(S'a'\nS'rot13'\ntR.", "`_codecs.encode` with the encoding 'rot13'"),
        # A structured type smuggled in by the state of an innocent one.
        (b"\x80\x02cnumpy\ndtype\nU\x02i8\x85R(K\x03U\x01<N]NJ\xff\xff\xff\xffK\x00tb.", "dtype"),
    ]:
        asks(path, pickled, words)


def test_what_a_pickle_does_to_its_functions_is_gone_with_it(tmp_path):
    names = [b"numpy\ndtype\n", b"numpy.core.multiarray\nscalar\n", b"_codecs\nencode\n"]
    for name in names:
        path = tmp_path / "marks.pickle"
        path.write_bytes(b"\x80\x02c" + name + b"(N}U\x07__doc__U\x06markedstb.")
        assert read_plain_pickle(path).__doc__ == "marked"
        refuses(lambda path=path: read_rolls(path), ValueError, "marks.pickle", "is missing")
        path.write_bytes(b"\x80\x02c" + name + b".")
        assert read_plain_pickle(path).__doc__ != "marked"


def test_registered_extensions_and_persistent_names_are_refused(tmp_path):
    asks(tmp_path / "a.pickle", b"\x80\x02\x82\x01.", "not a whole pickle")
    asks(tmp_path / "b.pickle", b"Pos.system\n.", "not a whole pickle")


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_cut_anywhere_is_refused(tmp_path, protocol):
    songs = {split: [[[np.int64(60), 61.0]]] for split in SPLITS}
    whole = pickle.dumps(songs, protocol=protocol)
    path = tmp_path / "cut.pickle"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"cut\.pickle"):
            read_rolls(path)
    path.write_bytes(whole)
    assert len(read_rolls(path).train) == 1
    assert gc.isenabled()


def test_plain_values_pass(tmp_path):
    value = {"a": [1, 2.5, "ü", (None, True)], "b": {3: -(10**30)}}
    for protocol in range(6):
        path = write_pickle(tmp_path / "plain.pickle", value, protocol)
        assert read_plain_pickle(path) == value
    path = write_pickle(tmp_path / "numbers.pickle", [np.float32(0.5), np.bool(True), np.uint8(7)])
    assert [(type(v), v) for v in read_plain_pickle(path)] == [(float, 0.5), (bool, True), (int, 7)]
    missing = tmp_path / "none.pickle"
    refuses(lambda: read_plain_pickle(missing), FileNotFoundError, "none.pickle")
