"""Music: the four real sets in three formats, pickles that must not run, and MIDI both ways.

The real sets lie beside a checkout (or where VARFILTER_DATA says); only their tests are skipped
where they are absent.
"""

import gc
import os
import pickle
import time
import warnings
from pathlib import Path

import jax.numpy as jnp
import mido
import numpy as np
import pytest
from scipy.io import savemat

from refusals import as_users_run_it, refuses  # noqa: F401
from varfilter.data import Scaling, whole_sequences
from varfilter.data.dataset import SPLITS
from varfilter.data.midi import midi_folder, read_midi, write_midi
from varfilter.data.rolls import read_plain_pickle, read_rolls
from varfilter.data.splits import split_by_sequence
from varfilter.distributions import Bernoulli

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("VARFILTER_DATA", ROOT.parent / "shared" / "data"))

real = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the data sets in {DATA}")

# Songs and steps of train, valid, test; lowest and highest pitch of all; notes a step in train.
TABLE = {
    "jsb_chorales": ((229, 76, 77), (13807, 4602, 4725), (43, 96), 3.90),
    "nottingham": ((694, 173, 170), (176561, 45513, 44463), (31, 93), 3.96),
    "piano_midi_de": ((87, 12, 25), (75911, 8540, 19036), (21, 108), 3.04),
    "musedata": ((524, 135, 124), (245202, 82755, 64339), (21, 105), 3.49),
}
# Spec 1.7, and what we measure: equal weight a song, equal weight a step.
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


@real
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


@real
def test_test_songs_have_the_lengths_of_the_paper(sets):
    # Spec 6.2: mean, shortest, longest; notes a step.
    for name, expected in {
        "piano_midi_de": (761, 65, 2645, 2.95),
        "musedata": (519, 45, 4273, 3.29),
        "jsb_chorales": (61, 32, 160, 3.89),
        "nottingham": (262, 63, 1793, 3.99),
    }.items():
        test = sets[name].test
        assert (round(test.lengths.mean()), test.lengths.min(), test.lengths.max()) == expected[:3]
        assert test.values.sum() / len(test.values) == pytest.approx(expected[3], abs=0.005)


@real
@pytest.mark.parametrize("name", MARGINALS)
def test_marginal_baseline(sets, name):
    """Notes as independent coins, each as often down as in train (one added to both sides).

    The added ones are for pitches that train never has. Spec 1.7 does not say how it treats
    them; clipping at 1e-5 to 1e-10 instead moves no figure by more than 0.004, while adding 5
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
    spec, measured = MARGINALS[name]
    assert got == pytest.approx(spec, abs=0.01)
    assert got == pytest.approx(measured, abs=1e-4)


@real
def test_reading_is_quick():
    begin = time.process_time()
    read_rolls(DATA / "music" / "musedata.npz")
    # 0.05 s of the processor; a loop over the 392,296 steps takes longer than this.
    assert time.process_time() - begin < 0.5


@real
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


# Splits


def test_splits_are_whole_disjoint_and_never_empty():
    for num in (3, 4, 5, 9, 10, 17, 100, 1234):
        for seed in range(3):
            parts = split_by_sequence(num, seed=seed)
            assert list(parts) == list(SPLITS)
            assert sorted(np.concatenate(list(parts.values()))) == list(range(num))
            assert all(len(part) >= 1 and (np.diff(part) > 0).all() for part in parts.values())
            if num >= 10:
                sizes = [len(part) for part in parts.values()]
                assert np.abs(np.array(sizes) - num * np.array([0.8, 0.1, 0.1])).max() < 1
    assert [len(p) for p in split_by_sequence(3, (0.98, 0.01, 0.01)).values()] == [1, 1, 1]
    assert [len(p) for p in split_by_sequence(20, (0.5, 0.3, 0.2)).values()] == [10, 6, 4]


def test_a_seed_gives_one_split_for_ever():
    parts = split_by_sequence(10, seed=1)
    # Pinned: another machine, or another version of NumPy, must not move songs about.
    assert {split: part.tolist() for split, part in parts.items()} == {
        "train": [0, 1, 3, 4, 5, 6, 7, 9],
        "valid": [8],
        "test": [2],
    }
    for split, part in split_by_sequence(10, seed=1).items():
        np.testing.assert_array_equal(part, parts[split])
    tests = {tuple(split_by_sequence(50, seed=seed)["test"]) for seed in range(20)}
    assert len(tests) == 20


def test_bad_splits_are_refused():
    for num in (1, 2):
        refuses(lambda num=num: split_by_sequence(num), ValueError, f"`num` is {num}", "own split")
    refuses(lambda: split_by_sequence(0), ValueError, "`num`")
    for fractions in [(0.5, 0.5), (0.5, 0.5, 0.5), (1.0, 0.0, 0.0), (1.2, -0.1, -0.1), "abc"]:
        refuses(lambda f=fractions: split_by_sequence(9, f), ValueError, "`fractions`", "sum to 1")
    refuses(lambda: split_by_sequence(9, seed=0.5), ValueError, "`seed`", "0.5")


# MIDI


def random_roll(seed, num_steps=40):
    """Sparse, with held keys, the outermost keys, and silence at both ends."""
    rng = np.random.default_rng(seed)
    roll = np.repeat(rng.random((num_steps // 2, 88)) < 0.06, 2, axis=0)
    roll ^= rng.random(roll.shape) < 0.02
    roll[5:9, [0, 87]] = True
    roll[:2] = False
    roll[-3:] = False
    return roll


def write_notes(path, *tracks, ticks_per_beat=480, kind=1):
    """Each track is a list of (tick, message), in any order but for equal ticks."""
    file = mido.MidiFile(type=kind, ticks_per_beat=ticks_per_beat)
    for events in tracks:
        track, now = mido.MidiTrack(), 0
        for tick, message in sorted(events, key=lambda event: event[0]):
            track.append(message.copy(time=tick - now))
            now = tick
        file.tracks.append(track)
    file.save(path)
    return path


def note(begin, end, pitch, channel=0):
    """Two events; with `end` None the note is never ended."""
    on = (begin, mido.Message("note_on", note=pitch, velocity=64, channel=channel))
    if end is None:
        return [on]
    return [on, (end, mido.Message("note_off", note=pitch, channel=channel))]


def tempo(tick, seconds_per_beat):
    return (tick, mido.MetaMessage("set_tempo", tempo=round(seconds_per_beat * 1e6)))


def steps_of(roll, pitch):
    return np.flatnonzero(roll[:, pitch - 21]).tolist()


@pytest.mark.parametrize("seconds", [0.5, 0.1, 1 / 3, 0.007, 16.0])
def test_midi_round_trip(tmp_path, seconds):
    for seed in range(3):
        roll = random_roll(seed)
        write_midi(roll, tmp_path / "song.mid", seconds_per_step=seconds)
        again = read_midi(tmp_path / "song.mid", seconds_per_step=seconds)
        np.testing.assert_array_equal(again, roll.astype(np.uint8))
        np.testing.assert_array_equal(read_midi(tmp_path / "song.mid"), again)
        twice = read_midi(tmp_path / "song.mid", steps_per_beat=2)
        np.testing.assert_array_equal(twice, np.repeat(again, 2, axis=0))


@real
def test_real_songs_survive_midi(sets, tmp_path):
    longest = sets["musedata"].test[int(sets["musedata"].test.lengths.argmax())]
    assert len(longest) == 4273
    for roll in (longest, sets["jsb_chorales"].train[0], sets["piano_midi_de"].valid[0]):
        # A third of a second is no whole number of microseconds: the error stays under a step.
        write_midi(roll, tmp_path / "song.mid", seconds_per_step=1 / 3)
        for resolution in ({"seconds_per_step": 1 / 3}, {"steps_per_beat": 1}):
            np.testing.assert_array_equal(read_midi(tmp_path / "song.mid", **resolution), roll)


def test_a_held_key_is_one_note_and_rolls_may_be_of_any_number_type(tmp_path):
    roll = np.zeros((6, 88))
    roll[1:4, 39] = roll[5, 39] = 1.0
    for array in (roll, roll.astype(bool), roll.astype(np.int32), jnp.asarray(roll, jnp.float32)):
        write_midi(array, tmp_path / "song.mid", velocity=100)
        played = [m for m in mido.MidiFile(tmp_path / "song.mid") if m.type.startswith("note")]
        assert [(m.type, m.note, m.time) for m in played] == [
            ("note_on", 60, 0.5), ("note_off", 60, 1.5), ("note_on", 60, 0.5), ("note_off", 60, 0.5)
        ]  # fmt: skip
        assert played[0].velocity == 100


def test_a_note_sounds_in_the_steps_whose_middle_it_covers(tmp_path):
    path = write_notes(
        tmp_path / "a.mid",
        [
            *note(0, 960, 60),  # steps 0 and 1
            *note(960 + 30, 1440 - 50, 61),  # played late and let go early: step 2
            *note(960 - 30, 1440 + 50, 62),  # early and late: step 2
            *note(240, 480, 63),  # the second half of step 0, with its middle
            *note(0, 240, 64),  # the first half, without: too short, so where its middle is
            *note(300, 600, 65),  # covers no middle; its own, 450, lies in step 0
            *note(400, 700, 66),  # its own, 550, lies in step 1
            *note(1000, 1000, 67),  # no length at all
            *note(480 * 4 - 1, 480 * 4, 68),  # at the very end
        ],
    )
    roll = read_midi(path)
    assert roll.shape == (4, 88)
    expected = {60: [0, 1], 61: [2], 62: [2], 63: [0], 64: [0], 65: [0], 66: [1], 67: [2], 68: [3]}
    assert {pitch: steps_of(roll, pitch) for pitch in expected} == expected
    assert roll.sum() == 10
    assert steps_of(read_midi(path, steps_per_beat=2), 63) == [1]
    assert steps_of(read_midi(path, steps_per_beat=0.5), 60) == [0]


def test_tempo_changes_count_in_seconds_alone(tmp_path):
    # Beats of 0.5 s (the default) for 2 beats, then 1 s for 2 beats, then 0.25 s for 4.
    events = [*note(0, 960, 60), *note(960, 1920, 62), *note(1920, 3840, 64)]
    # In another track than the notes, as in files of type 1; the second at a tick counts.
    path = write_notes(
        tmp_path / "a.mid", [tempo(960, 3.0), tempo(960, 1.0), tempo(1920, 0.25)], events
    )
    in_beats = read_midi(path, steps_per_beat=1)
    assert [steps_of(in_beats, p) for p in (60, 62, 64)] == [[0, 1], [2, 3], [4, 5, 6, 7]]
    in_seconds = read_midi(path, seconds_per_step=0.5)
    assert [steps_of(in_seconds, p) for p in (60, 62, 64)] == [[0, 1], [2, 3, 4, 5], [6, 7]]
    assert len(in_seconds) == 8
    fine = read_midi(path, seconds_per_step=0.1)
    assert [len(steps_of(fine, p)) for p in (60, 62, 64)] == [10, 20, 10]


def test_what_is_left_out(tmp_path):
    pedal = [(0, mido.Message("control_change", control=64, value=127))]
    path = write_notes(
        tmp_path / "a.mid",
        [*note(0, 480, 60), *note(0, 480, 20), *note(0, 480, 109), *note(0, 480, 21), *pedal],
        [*note(480, 960, 38, channel=9), *note(480, 960, 40, channel=8)],
    )
    roll = read_midi(path)
    # No octave is folded: 20 does not sound as 32, nor 109 as 97.
    assert np.argwhere(roll).tolist() == [[0, 0], [0, 39], [1, 19]]
    assert np.argwhere(read_midi(path, percussion=True)).tolist()[2:] == [[1, 17], [1, 19]]


def test_untidy_ends(tmp_path):
    off = mido.Message("note_on", note=60, velocity=0)
    on = mido.Message("note_on", note=60, velocity=9)
    # Struck again before the end of the stroke before, whose end comes after in the same tick.
    path = write_notes(tmp_path / "a.mid", [(0, on), (480, on), (480, off), (1440, off)])
    assert steps_of(read_midi(path), 60) == [0, 1, 2]
    # Struck twice and ended once: silent after the end. An end without a beginning is nothing.
    path = write_notes(tmp_path / "a.mid", [(0, on), (480, on), (960, off), (1440, off)])
    assert steps_of(read_midi(path), 60) == [0, 1]
    assert len(read_midi(path)) == 3
    # Never ended: until its track ends. The same key in another track is another note.
    path = write_notes(
        tmp_path / "a.mid", [*note(0, None, 60), *note(1440, 1920, 61)], note(480, 960, 60)
    )
    assert steps_of(read_midi(path), 60) == [0, 1, 2, 3]


def folder_of_songs(folder, num=10):
    """Songs 0 to num - 1, each with its own number of steps: 10 + its number."""
    (folder / "deep" / "er").mkdir(parents=True)
    for song in range(num):
        roll = np.zeros((10 + song, 88), bool)
        roll[:, 30 + song] = roll[::2, 45] = True
        place = [folder, folder / "deep", folder / "deep" / "er"][song % 3]
        write_midi(roll, place / f"song{song}.{['mid', 'midi', 'MID'][song % 3]}")
    (folder / "._song0.mid").write_bytes(b"left by another system")
    (folder / "notes.txt").write_text("no music")
    return folder


def test_a_folder_in_one_line(tmp_path):
    dataset = midi_folder(folder_of_songs(tmp_path / "songs"))
    assert [len(dataset.split(split)) for split in SPLITS] == [8, 1, 1]
    assert dataset.name == "songs"
    assert dataset.observation_shape == (88,)
    assert dataset.family.distribution is Bernoulli
    assert dataset.rate is None
    names = [name for split in SPLITS for name in dataset.names[split]]
    assert len(set(names)) == 10
    assert "deep/er/song5.MID" in names
    for split in SPLITS:
        for name, roll in zip(dataset.names[split], dataset.split(split), strict=True):
            song = int(name.split("song")[1].split(".")[0])
            assert roll.shape == (10 + song, 88)
            assert roll[:, 30 + song].all()
    again = midi_folder(str(tmp_path / "songs"), seconds_per_step=0.5, name="mine")
    assert again.sha256() == dataset.sha256()
    assert (again.name, again.rate) == ("mine", 2.0)
    others = {midi_folder(tmp_path / "songs", seed=seed).names["test"] for seed in range(8)}
    assert len(others) > 2
    shallow = midi_folder(tmp_path / "songs", recursive=False, fractions=(0.5, 0.25, 0.25))
    assert [len(shallow.split(split)) for split in SPLITS] == [2, 1, 1]
    assert all("/" not in name for split in SPLITS for name in shallow.names[split])


def test_transposition_is_of_the_training_songs_alone(tmp_path):
    folder = folder_of_songs(tmp_path / "songs")
    plain = midi_folder(folder)
    moved = midi_folder(folder, transpose=range(-2, 3))
    assert moved.valid.values.tobytes() == plain.valid.values.tobytes()
    assert moved.test.values.tobytes() == plain.test.values.tobytes()
    assert moved.names["test"] == plain.names["test"]
    assert len(moved.train) == 5 * len(plain.train)
    rolls = dict(zip(moved.names["train"], moved.train, strict=True))
    for name, roll in zip(plain.names["train"], plain.train, strict=True):
        np.testing.assert_array_equal(rolls[name], roll)
        np.testing.assert_array_equal(rolls[f"{name} +2"][:, 2:], roll[:, :-2])
        np.testing.assert_array_equal(rolls[f"{name} -1"][:, :-1], roll[:, 1:])
    held_out = {name for split in ("valid", "test") for name in moved.names[split]}
    assert not held_out & {name.split(" ")[0] for name in rolls}
    # The keys 30 + song to 45: up by 43 there is no room for any, down by 32 only for some.
    assert len(midi_folder(folder, transpose=[43]).train) == len(plain.train)
    some = midi_folder(folder, transpose=[0, -32]).names["train"]
    expected = [name for name in plain.names["train"] if int(name.split("song")[1][0]) >= 2]
    assert [name.split(" ")[0] for name in some if name.endswith("-32")] == expected


def test_copies_of_a_song_stay_together(tmp_path):
    for song in range(4):
        roll = random_roll(song)
        for copy in "abc":
            write_midi(roll, tmp_path / f"{copy}{song}.mid", velocity=ord(copy))
    for seed in range(5):
        names = midi_folder(tmp_path, seed=seed).names
        songs = [{name[1] for name in names[split]} for split in SPLITS]
        assert [len(part) for part in songs] == [2, 1, 1]
        assert set.union(*songs) == set("0123")
        assert sum(map(len, names.values())) == 12


def test_a_silent_file_is_left_out_aloud(tmp_path):
    folder = folder_of_songs(tmp_path / "songs", 4)
    write_notes(folder / "drums.mid", note(0, 480, 38, channel=9))
    drums = r"1 of 5 files .* but percussion .*: drums\.mid\. Give `percussion=True`"
    with pytest.warns(UserWarning, match=drums):
        dataset = midi_folder(folder)
    assert sum(len(dataset.split(split)) for split in SPLITS) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_drums = midi_folder(folder, percussion=True)
    assert sum(len(with_drums.split(split)) for split in SPLITS) == 5
    (folder / "drums.mid").unlink()
    write_notes(folder / "deep.mid", note(0, 480, 20))
    with pytest.warns(UserWarning, match=r"no notes between 21 and 108 and .*: deep\.mid\.$"):
        midi_folder(folder)


def test_bad_midi_is_refused(tmp_path):
    songs = folder_of_songs(tmp_path / "songs", 4)
    for contents in (b"", b"MThd", b"not music at all", (songs / "song0.mid").read_bytes()[:-9]):
        (songs / "broken.mid").write_bytes(contents)
        refuses(lambda: midi_folder(songs), ValueError, "broken.mid", "not a MIDI file")
    (songs / "broken.mid").unlink()
    write_notes(songs / "two.mid", note(0, 480, 60), kind=2)
    refuses(lambda: midi_folder(songs), ValueError, "two.mid", "type 2")
    header = b"MThd\x00\x00\x00\x06\x00\x00\x00\x01\xe7\x28MTrk\x00\x00\x00\x04\x00\xff\x2f\x00"
    (songs / "two.mid").write_bytes(header)
    refuses(lambda: midi_folder(songs), ValueError, "two.mid", "SMPTE")
    write_notes(songs / "two.mid", note(0, 2**27, 60), ticks_per_beat=96)
    refuses(lambda: midi_folder(songs), ValueError, "two.mid", "1398101 steps long")
    (songs / "two.mid").unlink()

    refuses(lambda: read_midi(tmp_path / "no.mid"), FileNotFoundError, "no.mid")
    refuses(lambda: midi_folder(tmp_path / "no"), FileNotFoundError, "`folder`", "no such folder")
    (tmp_path / "empty").mkdir()
    refuses(lambda: midi_folder(tmp_path / "empty"), FileNotFoundError, "no .mid or .midi files")
    write_midi(random_roll(0), tmp_path / "empty" / "a.mid")
    write_midi(random_roll(1), tmp_path / "empty" / "b.mid")
    refuses(
        lambda: midi_folder(tmp_path / "empty"),
        ValueError,
        str(tmp_path),
        "2 different songs",
        "at least 3",
    )

    both = {"steps_per_beat": 2, "seconds_per_step": 0.1}
    refuses(lambda: midi_folder(songs, **both), ValueError, "`steps_per_beat`", "one of them")
    for wrong in (0, -1.0, float("nan"), float("inf")):
        refuses(lambda w=wrong: midi_folder(songs, seconds_per_step=w), ValueError, "positive")
    refuses(lambda: midi_folder(songs, steps_per_beat="4"), TypeError, "`steps_per_beat`", "'4'")
    refuses(lambda: midi_folder(songs, seconds_per_step=1e-300), ValueError, "steps long")
    for wrong in (2, (0.5,), "ab"):
        refuses(lambda w=wrong: midi_folder(songs, transpose=w), TypeError, "`transpose`")


def test_bad_rolls_are_not_written(tmp_path):
    path = tmp_path / "song.mid"
    roll = random_roll(0)
    for wrong, word in [
        (roll[:, :87], "bool[40, 87]"),
        (roll[:0], "bool[0, 88]"),
        (roll[0], "bool[88]"),
        (roll * 0.5, "other values"),
        (roll * np.nan, "other values"),
        (roll.astype(str), "other values"),
    ]:
        refuses(lambda w=wrong: write_midi(w, path), ValueError, "`roll`", word)
    for seconds in (0.0, -1.0, 17.0, 1e-9):
        refuses(
            lambda s=seconds: write_midi(roll, path, seconds_per_step=s),
            ValueError, "`seconds_per_step`",
        )  # fmt: skip
    for velocity in (0, 128, 1.5, True, "loud"):
        refuses(
            lambda v=velocity: write_midi(roll, path, velocity=v), ValueError, "`velocity`", "127"
        )
    nowhere = tmp_path / "no" / "song.mid"
    refuses(lambda: write_midi(roll, nowhere), FileNotFoundError, "no such folder")
    assert not list(tmp_path.iterdir())
