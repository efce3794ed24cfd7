"""`filter`, `forecast` and `sample` of each medium: every format, and what does not fit."""

import csv
import json
import shlex
import shutil

import mido
import numpy as np
import polars
import pytest

from commands import refuse, succeed
from tiny_runs import keep_untrained, tiny
from varfilter.data import read_audio, read_midi, write_midi, write_wav
from varfilter.runs import Run

FEW = ("--num-particles", 2, "--num-samples", 3)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Runs on music and on sound as they were before any update, and a new piece of each."""
    place = tmp_path_factory.mktemp("place")
    for medium in ("music", "sound"):
        experiment, dataset = tiny(medium, place)
        run = Run.begin(place / medium, experiment, dataset)
        run.__dict__["dataset"] = dataset
        keep_untrained(run)
        rows = dataset.test[0][: 6 * dataset.rows_per_step]
        if medium == "music":
            # Slower and softer than the rolls, of which a step would take half a second.
            write_midi(rows, place / "new.mid", seconds_per_step=0.75, velocity=50)
        else:
            write_wav(rows, place / "new.wav", 16000)
    return place


def test_surprise_and_latents_of_music_in_every_format(place, tmp_path):
    words = ("filter", place / "music", place / "new.mid", "--latents", *FEW)
    lines = [json.loads(line) for line in succeed(*words).out.splitlines()]
    assert len(lines) == 6
    expected = [line["surprise"] for line in lines[1:]]
    assert np.isfinite(expected).all()
    latents = [f"z{i}_{part}" for i in range(3) for part in ("mean", "std")]
    for name, options in (
        ("a.csv", ()),
        ("a.parquet", ()),
        ("a.npz", ()),
        ("a.jsonl", ()),
        ("a.txt", ("--format", "csv")),
    ):
        out = tmp_path / name
        assert f"6 rows written to {out}" in succeed(*words, "--out", out, *options).err
        if name.endswith(".npz"):
            with np.load(out) as found:
                table = {key: found[key] for key in found.files}
            assert table["prediction"].shape == (6, 88)
            assert table["notes"].dtype == np.int64
        elif name.endswith(".parquet"):
            table = polars.read_parquet(out).to_dict(as_series=False)
        elif name.endswith(".jsonl"):
            rows = [json.loads(line) for line in out.read_text().splitlines()]
            table = {key: [row[key] for row in rows] for key in rows[0]}
        else:
            rows = list(csv.DictReader(out.read_text().splitlines()))
            table = {key: [row[key] for row in rows] for key in rows[0]}
            assert "prediction_note60" in table
        assert set(latents) <= set(table)
        found = np.array([float(value) for value in table["surprise"][1:]])
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    printed = succeed(*words, "--format", "csv").out
    assert printed == (tmp_path / "a.csv").read_text()


def test_what_is_expected_of_music_is_heard(place, tmp_path):
    out = tmp_path / "expected.mid"
    said = succeed("filter", place / "music", place / "new.mid", "--out", out, *FEW)
    assert said.out == f"{out}\n"
    assert "expected of each step before it was seen" in said.err
    given, expected = (read_midi(path, steps_per_beat=1) for path in (place / "new.mid", out))
    assert expected.shape == given.shape == (6, 88)
    np.testing.assert_array_equal(expected[0], given[0])
    lines = succeed("filter", place / "music", place / "new.mid", *FEW).out.splitlines()
    notes = [json.loads(line)["expected_notes"] for line in lines[1:]]
    np.testing.assert_array_equal(expected[1:].sum(1), np.rint(notes))
    out = tmp_path / "ahead.midi"
    words = ("forecast", place / "music", place / "new.mid", "--horizon", 3, "--out", out, *FEW)
    said = succeed(*words).err
    assert "The mean over 3 futures, which stands rather still" in said
    assert read_midi(out, steps_per_beat=1).shape == (3, 88)
    # The command that has one to hear can be typed as it stands.
    _, *onward = shlex.split(said[said.index("varfilter sample") :])
    succeed(*onward, "--out", tmp_path / "next.mid", *FEW[:2])
    assert (tmp_path / "next.mid").exists()


def test_several_recordings_are_numbered_and_which_is_which_is_said(place, tmp_path):
    (tmp_path / "songs" / "b").mkdir(parents=True)
    for name in ("b/first", "second"):
        shutil.copyfile(place / "new.mid", tmp_path / "songs" / f"{name}.mid")
    out = tmp_path / "a.mid"
    said = succeed("filter", place / "music", tmp_path / "songs", "--out", out, *FEW)
    assert said.out.split() == [str(tmp_path / f"a-{i}.mid") for i in (1, 2)]
    assert f"{tmp_path / 'a-1.mid'}: b/first\n" in said.err
    assert f"{tmp_path / 'a-2.mid'}: second\n" in said.err


def test_sound_has_its_surprise_in_columns_and_its_predictions_in_a_file_to_hear(place, tmp_path):
    words = ("filter", place / "sound", place / "new.wav", *FEW)
    out = tmp_path / "a.csv"
    said = succeed(*words, "--latents", "--out", out).err
    assert "left out" in said
    header = out.read_text().splitlines()[0].split(",")
    assert header[:3] == ["sequence", "time", "surprise"]
    assert "z2_std" in header
    assert not any(name.startswith("prediction") for name in header)
    succeed(*words, "--out", tmp_path / "a.wav")
    sound, given = read_audio(tmp_path / "a.wav"), read_audio(place / "new.wav")
    assert (len(sound.samples), sound.rate) == (1200, 16000)
    np.testing.assert_array_equal(sound.samples[:200], given.samples[:200])
    assert not np.array_equal(sound.samples[200:], given.samples[200:])
    # A forecast without its predictions would be nothing.
    words = ("forecast", place / "sound", place / "new.wav", "--horizon", 2, *FEW)
    said = refuse(*words, "--out", tmp_path / "b.csv")
    assert "200 numbers" in said
    assert ".jsonl, .wav or .npz" in said
    succeed(*words, "--out", tmp_path / "b.wav")
    assert len(read_audio(tmp_path / "b.wav").samples) == 400


def test_a_piece_goes_on_and_where_is_said(place, tmp_path):
    out = tmp_path / "on.mid"
    words = ("sample", place / "music", "--start", place / "new.mid", "--num-steps", 4)
    said = succeed(*words, "--out", out, "--num-particles", 2)
    assert said.out == f"{out}\n"
    assert "new: the first 6 steps (4.5 s) are as given, and the 4 after them made up." in said.err
    # What is made up stands beside the songs that were learned from, in numbers.
    assert [line.split()[-2:] for line in said.err.splitlines()[1:2]] == [["up", "training"]]
    assert "notes a step" in said.err
    given, whole = (read_midi(path, steps_per_beat=1) for path in (place / "new.mid", out))
    np.testing.assert_array_equal(whole[:6], given)
    succeed(*words, "--only-new", "--out", out, "--num-particles", 2)
    np.testing.assert_array_equal(read_midi(out, steps_per_beat=1), whole[6:])


def test_which_piece_a_numbered_file_goes_on_from_is_said(place, tmp_path):
    (tmp_path / "songs").mkdir()
    still = tmp_path / "songs" / "still.mid"
    write_midi(np.zeros((1, 88)), still, seconds_per_step=0.5)
    shutil.copyfile(place / "new.mid", tmp_path / "songs" / "moving.mid")
    # A beat that lasts no time at all has no place in a file: the tempo is the usual one.
    file = mido.MidiFile(still)
    file.tracks[0][0].tempo = 0
    file.save(still)
    out = tmp_path / "a.mid"
    words = ("--num-steps", 2, "--num-sequences", 2, "--num-particles", 2, "--out", out)
    said = succeed("sample", place / "music", "--start", tmp_path / "songs", *words).err
    assert f"{tmp_path / 'a-2.mid'}: moving 2\n" in said
    assert f"{tmp_path / 'a-3.mid'}: still 1\n" in said
    assert "still: the first step (0.5 s) is as given, the 2 after it made up." in said


def test_what_is_written_of_a_song_has_its_tempo_and_loudness(place, tmp_path):
    out, song = tmp_path / "a.mid", place / "new.mid"
    for words, num_steps in (
        (("filter", place / "music", song), 6),
        (("forecast", place / "music", song, "--horizon", 5), 5),
        (("sample", place / "music", "--start", song, "--num-steps", 4), 10),
        (("sample", place / "music", "--start", song, "--num-steps", 4, "--only-new"), 4),
    ):
        succeed(*words, "--num-particles", 2, "--out", out)
        file = mido.MidiFile(out)
        assert file.length == pytest.approx(0.75 * num_steps)
        assert {each.velocity for each in file if each.type == "note_on"} == {50}
    succeed("sample", place / "music", "--num-steps", 4, "--out", out)
    assert mido.MidiFile(out).length == pytest.approx(0.5 * 4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("filter", "music", "new.mid", "--out", "a.wav"), ".mid, .midi, .jsonl, .csv"),
        (("filter", "music", "new.mid", "--out", "a.mid", "--latents"), "`--latents` says what"),
        (("filter", "music", "new.mid", "--format", "npz"), "give --out FILE"),
        (("filter", "music", "new.mid", "--levels", "0.1"), "`--levels` asks for quantiles, but"),
        (
            ("forecast", "sound", "new.wav", "--horizon", "2", "--format", "csv"),
            "`--format` is 'csv', but",
        ),
        (("forecast", "sound", "new.wav", "--horizon", "2", "--out", "a.mid"), ".wav, .jsonl"),
        (("sample", "music", "--out", "a.csv"), ".mid"),
        (("sample", "music", "--only-new"), "--start"),
        (("sample", "music", "--num-particles", "3"), "`--num-particles` is for what goes on from"),
        # Options of tables, and of lines, where there are none.
        (("filter", "music", "new.mid", "--alarm-rate", "0.1"), "`--alarm-rate` is for tables"),
        (("filter", "music", "new.mid", "--fill-gaps"), "`--fill-gaps` is for tables"),
        (("filter", "music", "new.mid", "--stop-on-bad-line"), "give - for INPUT"),
        (
            ("forecast", "music", "new.mid", "--horizon", "2", "--longest-gap", "3"),
            "`--longest-gap` is for lines on standard input, and `INPUT` is 'new.mid'",
        ),
        (("filter", "music", "-", "--out", "a.mid"), "cannot be read from lines"),
        (
            ("forecast", "music", "new.mid", "--horizon", "2", "--no-pool"),
            "`--no-pool` leaves out the references of a table",
        ),
        (("sample", "music", "--start", "-"), "`--start` is -, but takes no lines"),
        (("sample", "music", "--temperature", "0"), "`--temperature` must be a number above 0"),
        (("sample", "music", "--temperature", "nan"), "`--temperature` must be a number above 0"),
        (("sample", "music", "--start", "no.mid"), "`--start` is 'no.mid'"),
        (("sample", "music", "--start", "new.wav"), "`--start` is 'new.wav', but the run was"),
    ],
)
def test_refusals(place, monkeypatch, words, said):
    monkeypatch.chdir(place)
    before = sorted(place.iterdir())
    assert said in refuse(*words)
    assert sorted(place.iterdir()) == before
