"""MIDI files to rolls and back: which notes sound in a step, and folders of songs."""

import json
import warnings
from dataclasses import replace
from itertools import pairwise

import jax.numpy as jnp
import mido
import numpy as np
import pytest

from real_data import DATA, needs_data
from refusals import refuses
from varfilter.data.dataset import SPLITS
from varfilter.data.midi import read_midi, write_midi
from varfilter.data.note_grid import NoteGrid
from varfilter.data.rolls import read_rolls
from varfilter.data.songs import midi_folder
from varfilter.distributions import Bernoulli

pytestmark = pytest.mark.usefixtures("as_users_run_it")


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


@needs_data
def test_real_songs_survive_midi(tmp_path):
    names = ("musedata", "jsb_chorales", "piano_midi_de", "nottingham")
    sets = {name: read_rolls(DATA / "music" / f"{name}.npz") for name in names}
    longest = sets["musedata"].test[int(sets["musedata"].test.lengths.argmax())]
    assert len(longest) == 4273
    some = [sets[name].train[0] for name in names[1:]]
    for roll in (longest, *some, *list(sets["nottingham"].test)[:10]):
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


def test_a_note_sounds_where_a_step_begins(tmp_path):
    path = write_notes(
        tmp_path / "a.mid",
        [
            *note(0, 960, 60),  # steps 0 and 1
            *note(960 + 60, 1440 + 60, 61),  # an eighth of a beat late, and so let go: step 2
            *note(960 + 61, 1440 + 61, 62),  # later than that: heard where step 3 begins
            *note(0, 240, 63),  # an eighth note on the beat
            *note(240, 480, 64),  # and one off the beat, which no step has: lost
            *note(240, 720, 65),  # syncopated: sounds where step 1 begins
            *note(1000, 1000, 66),  # no length at all: lost
            *note(960, 1920, 67),
        ],
    )
    roll = read_midi(path, steps_per_beat=1)
    assert roll.shape == (4, 88)
    expected = {60: [0, 1], 61: [2], 62: [3], 63: [0], 64: [], 65: [1], 66: [], 67: [2, 3]}
    assert {pitch: steps_of(roll, pitch) for pitch in expected} == expected
    assert roll.sum() == 8
    halves = read_midi(path, steps_per_beat=2)
    assert [steps_of(halves, pitch) for pitch in (63, 64, 65)] == [[0], [1], [1, 2]]


@pytest.mark.parametrize(
    ("lengths", "chosen"),
    [
        ([480, 960, 1920], 1),
        ([480, 240, 240], 2),
        ([160, 160, 160, 480], 3),
        ([120, 360, 480], 4),
        ([480] * 39 + [240, 240], 1),  # but for one note in forty
        ([160, 160, 160, 240, 240], 6),
    ],
)
def test_the_grid_is_the_coarsest_that_the_notes_are_on(tmp_path, lengths, chosen):
    rng, begins = np.random.default_rng(0), np.cumsum([0, *np.tile(lengths, 12)])
    for song in range(3):
        # Players and programs are not in time to the tick.
        late = np.maximum(begins + rng.integers(-3, 4, len(begins)), 0)
        notes = [note(a, b, 40 + song + i % 7) for i, (a, b) in enumerate(pairwise(late))]
        write_notes(tmp_path / f"{song}.mid", [event for each in notes for event in each])
    dataset = midi_folder(tmp_path)
    assert dataset.schema.steps_per_beat == chosen
    part = "a beat" if chosen == 1 else f"1/{chosen} of a beat"
    assert dataset.notes[0].startswith(f"A step is {part}, the longest on which at least 95%")


def test_music_that_is_played_freely_has_quarters_and_is_told_so(tmp_path):
    rng = np.random.default_rng(0)
    for song in range(3):
        begins = np.cumsum(rng.uniform(200, 700, 60)).astype(int)
        notes = [note(a, a + 300, 40 + song + i % 9) for i, a in enumerate(begins.tolist())]
        write_notes(tmp_path / f"{song}.mid", [event for each in notes for event in each])
    dataset = midi_folder(tmp_path)
    assert dataset.schema.steps_per_beat == 4
    assert "begin on no grid of beats" in dataset.notes[0]


def test_notes_that_are_lost_and_merged_are_counted(tmp_path):
    for song in range(3):
        eighths = [note(240 * i, 240 * i + 240, 50 + song + i % 2) for i in range(20)]
        held = [note(480 * i, 480 * i + 480, 70) for i in range(10)]
        write_notes(tmp_path / f"{song}.mid", [e for each in eighths + held for e in each])
    lost, merged = midi_folder(tmp_path, steps_per_beat=1).notes[1:]
    # Ten of twenty eighths lie between steps, the other ten run together on one key.
    assert lost.startswith("30 of 90 notes (33.3%) begin and end between two steps")
    assert merged.startswith("54 of 90 notes (60.0%) are merged")
    (merged,) = midi_folder(tmp_path, sampling="middle", steps_per_beat=2).notes[1:]
    assert merged.startswith("27 of 90 notes")


def test_tempo_and_loudness_are_those_of_the_middle_song(tmp_path):
    for song, (seconds, loud) in enumerate(((0.3, 60), (0.4, 70), (0.9, 80))):
        roll = random_roll(song)
        options = {"seconds_per_step": seconds / 2, "steps_per_beat": 2}
        write_midi(roll, tmp_path / f"{song}.mid", velocity=(loud, loud - 20), **options)
    grid = midi_folder(tmp_path).schema
    assert grid.steps_per_beat == 2
    assert grid.seconds_per_beat == pytest.approx(0.4)
    assert grid.step_seconds == pytest.approx(0.2)
    on, off = grid.velocities
    assert (60 <= on <= 80, 40 <= off <= 60) == (True, True)
    assert on - off >= 10
    assert NoteGrid.of_json(json.loads(json.dumps(grid.as_json()))) == grid
    # Runs of before have a velocity for each step on record, and no more.
    names = ("registers", "spread", "softest_loudest")
    usual = {name: getattr(NoteGrid(), name) for name in names}
    old = {name: value for name, value in grid.as_json().items() if name not in names}
    assert NoteGrid.of_json(old) == replace(grid, **usual)
    assert midi_folder(tmp_path, seconds_per_step=0.1).schema.step_seconds == 0.1


def test_notes_without_length_do_not_choose_the_grid(tmp_path):
    for song in range(3):
        beats = [note(480 * i, 480 * i + 480, 50 + song + i % 2) for i in range(20)]
        empty = [note(480 * i, 480 * i, 70) for i in range(10)]
        write_notes(tmp_path / f"{song}.mid", [e for each in beats + empty for e in each])
    dataset = midi_folder(tmp_path)
    assert dataset.schema.steps_per_beat == 1
    assert "(100.0%)" in dataset.notes[0]
    assert dataset.notes[1].startswith("30 of 90 notes have no length")
    assert not any("between two steps" in each for each in dataset.notes)


def test_the_tempo_is_one_that_a_song_has(tmp_path):
    for song, seconds in enumerate((0.3, 0.4, 0.6, 0.9)):
        write_midi(random_roll(song), tmp_path / f"{song}.mid", seconds_per_step=seconds)
    assert midi_folder(tmp_path).schema.seconds_per_beat == pytest.approx(0.4)


def test_a_melody_stays_louder_than_what_goes_with_it(tmp_path):
    """Loud by step and by octave, a sum of both: the medians give each number back."""
    beat, octaves = np.array([[80], [70]]), np.repeat([-30, -10, 0, 0, 10, 20, 40], 12)
    loud = np.clip((beat + np.pad(octaves, (3, 1), "edge")), 1, 127)
    for song in range(3):
        # Each key on its own step of a beat and the other, equally often.
        roll = np.zeros((4 * 88, 88), np.uint8)
        roll[np.arange(0, 4 * 88, 2) + (np.arange(2 * 88) % 2), np.arange(2 * 88) // 2] = 1
        roll[:, 21 + song] = 0
        write_midi(roll, tmp_path / f"{song}.mid", steps_per_beat=2, velocity=loud)
    grid = midi_folder(tmp_path).schema
    assert grid.steps_per_beat == 2
    np.testing.assert_array_equal(grid.loudness(4), np.tile(loud, (2, 1)))
    assert np.ptp(grid.loudness(2)) == 80


def test_notes_are_as_unequal_in_loudness_as_in_the_data(tmp_path):
    rng = np.random.default_rng(0)
    for song in range(3):
        roll = random_roll(song, 200)
        loud = rng.integers(41, 111, roll.shape)
        write_midi(roll, tmp_path / f"{song}.mid", velocity=loud)
    made = midi_folder(tmp_path).schema.loudness(500)
    np.testing.assert_array_equal(made[:50], midi_folder(tmp_path).schema.loudness(50))
    assert (made.min(), made.max()) == (41, 110)
    # Even between these. Quantiles of some 3,000 notes are off by 70 sqrt(p (1 - p) / 3000), at
    # most 0.6; those of 16 in place of all, by half of 1/16 of 70; whole numbers, by 1/2; and the
    # middle of an octave of some 400 by 1.75.
    for part in (0.1, 0.5, 0.9):
        assert np.quantile(made, part) == pytest.approx(41 + 69 * part, abs=5.1)


@pytest.mark.parametrize("steps_per_beat", [0.5, 1, 2, 3, 4, 12, 1.5, 400])
def test_the_grid_survives_midi(tmp_path, steps_per_beat):
    roll = random_roll(0)
    options = {"steps_per_beat": steps_per_beat}
    write_midi(roll, tmp_path / "a.mid", seconds_per_step=0.03, **options)
    np.testing.assert_array_equal(read_midi(tmp_path / "a.mid", **options), roll)
    again = read_midi(tmp_path / "a.mid", seconds_per_step=0.03)
    np.testing.assert_array_equal(again, roll)


@needs_data
def test_the_canonical_chorales_are_read_back_from_midi_to_the_note(tmp_path):
    """All 382 songs, as a folder that knows nothing of how it was made."""
    chorales = read_rolls(DATA / "music" / "jsb_chorales.npz")
    songs = {}
    for split in SPLITS:
        for number, roll in enumerate(chorales.split(split)):
            songs[f"{split}{number}.mid"] = roll
            write_midi(roll, tmp_path / f"{split}{number}.mid")
    assert len(songs) == 382
    again = midi_folder(tmp_path)
    assert again.notes[0].startswith("A step is a beat, the longest")
    assert not any("between two steps" in sentence for sentence in again.notes)
    found = {
        name: roll
        for split in SPLITS
        for name, roll in zip(again.names[split], again.split(split), strict=True)
    }
    assert set(found) == set(songs)
    for name, roll in songs.items():
        np.testing.assert_array_equal(found[name], roll)


def test_in_the_middle_of_steps_no_note_is_lost(tmp_path):
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
    middle = {"sampling": "middle"}
    roll = read_midi(path, steps_per_beat=1, **middle)
    assert roll.shape == (4, 88)
    expected = {60: [0, 1], 61: [2], 62: [2], 63: [0], 64: [0], 65: [0], 66: [1], 67: [2], 68: [3]}
    assert {pitch: steps_of(roll, pitch) for pitch in expected} == expected
    assert roll.sum() == 10
    assert steps_of(read_midi(path, steps_per_beat=2, **middle), 63) == [1]
    assert steps_of(read_midi(path, steps_per_beat=0.5, **middle), 60) == [0]


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
    drums = r"1 of 5 files, .* but percussion: drums\.mid\. Give `percussion=True`"
    with pytest.warns(UserWarning, match=drums):
        dataset = midi_folder(folder)
    assert sum(len(dataset.split(split)) for split in SPLITS) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_drums = midi_folder(folder, percussion=True)
    assert sum(len(with_drums.split(split)) for split in SPLITS) == 5
    (folder / "drums.mid").unlink()
    write_notes(folder / "deep.mid", note(0, 480, 20))
    with pytest.warns(UserWarning, match=r"without notes between 21 and 108: deep\.mid\.$"):
        midi_folder(folder)


def test_bad_midi_is_refused(tmp_path):
    songs = folder_of_songs(tmp_path / "songs", 4)
    for contents in (b"", b"MThd", b"not music at all", (songs / "song0.mid").read_bytes()[:-9]):
        (songs / "broken.mid").write_bytes(contents)
        refuses(lambda: midi_folder(songs), ValueError, "broken.mid", "not a MIDI file")
    refuses(lambda: midi_folder(songs), ValueError, "it ends too soon")
    # All of them at once: collections have more than one.
    (songs / "empty.mid").touch()
    (songs / "text.mid").write_text("no music")
    rest = "2 more of 7 files: empty.mid, text.mid"
    refuses(lambda: midi_folder(songs), ValueError, "broken.mid", rest)
    refuses(lambda: read_midi(songs / "empty.mid"), ValueError, "it is empty")
    for name in ("broken", "empty", "text"):
        (songs / f"{name}.mid").unlink()
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
    refuses(lambda: midi_folder(songs, sampling="end"), ValueError, "`sampling`", "'end'")
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
    for velocity in (0, 128, 1.5, True, "loud", (), (80, 0), np.full((2, 87), 80)):
        refuses(
            lambda v=velocity: write_midi(roll, path, velocity=v), ValueError, "`velocity`", "127"
        )
    nowhere = tmp_path / "no" / "song.mid"
    refuses(lambda: write_midi(roll, nowhere), FileNotFoundError, "no such folder")
    assert not list(tmp_path.iterdir())
