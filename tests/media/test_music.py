"""Music: notes that stand for probabilities, what it is judged by, and MIDI as the data are."""

from dataclasses import replace

import jax
import mido
import numpy as np
import pytest

from tiny_runs import chorales
from varfilter.data import NoteGrid, Ragged, midi_folder, read_midi, write_midi
from varfilter.media import MEDIA, Measure, load, write_samples
from varfilter.media.measures import Futures, OneStep
from varfilter.media.music import MusicSource

MUSIC = MEDIA["music"]


def test_as_many_keys_sound_as_are_expected_to():
    rng = np.random.default_rng(0)
    means = (rng.random((50, 88)) ** 12).astype(np.float32)
    found = np.asarray(MUSIC.likely(chorales(), means))
    np.testing.assert_array_equal(found.sum(1), np.rint(means.sum(1)))
    for row, mean in zip(found, means, strict=True):
        # None that is silent is more probable than one that sounds.
        assert mean[row == 0].max() <= mean[row == 1].min()
    traced = jax.jit(lambda mean: MUSIC.likely(chorales(), mean))(means[0])
    np.testing.assert_array_equal(traced, found[0])
    assert found.dtype == means.dtype


class Oracle:
    """One that predicts the notes that come, and others, with these probabilities."""

    num_futures = 10

    def __init__(self, right, wrong):
        self.right, self.wrong = right, wrong

    def one_step(self):
        dataset = chorales()
        for song in dataset.test:
            xs = dataset.observations(song)
            means = np.where(xs[1:] > 0.5, self.right, self.wrong).astype(np.float32)
            yield OneStep(xs, means)

    def futures(self, begin, horizon, num_samples, *, mean=True):
        assert not mean
        yield Futures(np.zeros((1, 88)), np.ones((horizon, 88)), np.zeros((1, horizon, 88)))


def measured(oracle):
    found = MUSIC.measures(chorales(), "test", oracle, {})
    assert all(isinstance(each, Measure) for each in found)
    return {each.name: each for each in found}


def test_the_measures_of_music_are_what_they_say():
    perfect = measured(Oracle(1.0, 0.0))
    assert perfect["frame accuracy"].value == 1.0
    songs = np.stack(list(chorales().test)).astype(bool)
    now, before = songs[:, 1:], songs[:, :-1]
    copied = (now & before).sum() / (now | before).sum()
    assert perfect["frame accuracy"].others["the step before"] == pytest.approx(copied)
    notes = perfect["notes a step, expected"]
    assert notes.value == pytest.approx(notes.others["the data"])
    assert notes.value == pytest.approx(now.sum() / now[..., 0].size)
    made = perfect["notes a step, made up"]
    assert (made.value, made.others["the data"]) == (0.0, 88.0)
    # Unsure of all, and yet right of the most probable ones.
    unsure = measured(Oracle(0.45, 0.0))
    assert unsure["frame accuracy"].value == 0.0
    assert 0.3 < unsure["frame accuracy, most probable"].value < 0.7
    # Every key at every step: TP / all keys.
    wild = measured(Oracle(1.0, 1.0))
    assert wild["frame accuracy"].value == pytest.approx(now.mean())


def test_notes_are_made_up_of_songs_however_short():
    """Those of less than 33 steps were left out, and of short songs alone nothing was said."""
    whole, asked = chorales(), []
    short = replace(whole, test=Ragged.of([whole.test[0][:1], whole.test[1][:5]]))

    class Heard(Oracle):
        def futures(self, begin, horizon, num_samples, *, mean=True):
            asked.append(horizon)
            return super().futures(begin, horizon, num_samples, mean=mean)

    names = [each.name for each in MUSIC.measures(short, "test", Heard(1.0, 0.0), {})]
    assert (names[-1], asked) == ("notes a step, made up", [4])


def test_midi_has_the_grid_the_tempo_and_the_loudness_of_the_data(tmp_path):
    made = replace(chorales(), schema=NoteGrid(2, None, "onset", 0.8, (99, 61)))
    roll = made.train[0]
    (path,) = write_samples(tmp_path / "a.mid", made, [made.observations(roll)])
    np.testing.assert_array_equal(read_midi(path, steps_per_beat=2), roll)
    file = mido.MidiFile(path)
    assert file.length == pytest.approx(0.4 * len(roll))
    struck, now = set(), 0
    for message in file.tracks[0]:
        now += message.time
        if message.type == "note_on":
            struck.add((2 * now / file.ticks_per_beat % 2, message.velocity))
    assert struck == {(0.0, 99), (1.0, 61)}
    assert MUSIC.seconds_per_step(made) == 0.4
    assert MUSIC.seconds_per_step(chorales()) == 0.5


def test_what_goes_on_from_the_midst_of_a_beat_keeps_its_accents(tmp_path):
    """A forecast that began on the second half of a beat was as loud there as on the beat."""
    dataset = replace(chorales(), schema=NoteGrid(2, None, "onset", 0.8, (99, 61)))
    roll = np.zeros((4, 88), np.uint8)
    roll[range(4), [30, 31, 32, 33]] = 1
    for first, own, expected in (
        (0, None, [99, 61, 99, 61]),
        (5, None, [61, 99, 61, 99]),
        (5, NoteGrid(2, None, "onset", 0.8, (40, 20)), [20, 40, 20, 40]),
        (3, NoteGrid(3, None, "onset", 0.8, (40, 20, 10)), [40, 20, 10, 40]),
    ):
        times = [np.arange(first, first + 4)]
        (path,) = write_samples(tmp_path / "a.mid", dataset, [roll], times, None, [own])
        track = mido.MidiFile(str(path)).tracks[0]
        loud = [each.velocity for each in track if each.type == "note_on"]
        assert loud == expected
    # Steps that are parts of a second have no beats.
    seconds = replace(dataset, rate=4.0, schema=NoteGrid(None, 0.25, velocities=(70,)))
    write_samples(tmp_path / "b.mid", seconds, [roll], [np.array([0.5, 0.75, 1.0, 1.25])])


def test_a_run_reads_its_data_and_others_on_the_grid_that_was_chosen(tmp_path):
    for number, song in enumerate(chorales().train):
        write_midi(song, tmp_path / f"{number}.mid", steps_per_beat=2, seconds_per_step=0.25)
    source = MusicSource(str(tmp_path))
    dataset = load(source)
    assert dataset.schema.steps_per_beat == 2
    known = MUSIC.schema(MUSIC.schema_json(dataset))
    assert known == dataset.schema
    assert load(MUSIC.as_recorded(source, known)).sha256() == dataset.sha256()
    # A lone half note would choose whole beats for itself.
    slow = np.zeros((8, 88), np.uint8)
    slow[:, 40] = 1
    write_midi(slow, tmp_path / "slow.midi", steps_per_beat=2)
    ((_, roll, own),) = MUSIC.recordings(dataset, source, tmp_path / "slow.midi")
    np.testing.assert_array_equal(roll, slow)
    # Its tempo is its own: half a second a step, where those of the data have a quarter.
    assert (own.steps_per_beat, own.step_seconds) == (2, pytest.approx(0.5))
    assert dataset.schema.step_seconds == pytest.approx(0.25)


def test_a_song_without_a_note_is_said_to_be_silence(tmp_path):
    write_midi(np.zeros((8, 88)), tmp_path / "still.mid")
    with pytest.warns(UserWarning, match="still: no note sounds at any step but those of drums"):
        ((_, roll, _),) = MUSIC.recordings(chorales(), MusicSource("jsb"), tmp_path / "still.mid")
    assert roll.shape == (8, 88)


def test_runs_of_before_read_their_data_as_they_did(tmp_path):
    for number, song in enumerate(chorales().train):
        write_midi(song, tmp_path / f"{number}.mid", steps_per_beat=2)
    old = midi_folder(tmp_path, steps_per_beat=1, sampling="middle")
    source = MusicSource(str(tmp_path))
    assert load(MUSIC.as_recorded(source, None)).sha256() == old.sha256()
    assert midi_folder(tmp_path, steps_per_beat=1).sha256() != old.sha256()
    in_seconds = MUSIC.as_recorded(MusicSource(str(tmp_path), seconds_per_step=0.5), None)
    assert (in_seconds.steps_per_beat, in_seconds.sampling) == (None, "middle")
    # Canonical rolls have steps of their own; beside them, new files have a beat a step.
    jsb = MusicSource("jsb")
    assert MUSIC.as_recorded(jsb, None) == jsb
    ((_, roll, _),) = MUSIC.recordings(chorales(), jsb, tmp_path / "0.mid")
    np.testing.assert_array_equal(roll, chorales().train[0][::2])
