"""Models that come with the package: small, known by name, and without a note of their data."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from commands import refuse, succeed
from refusals import refuses
from tiny_runs import chorales, keep_untrained, tiny
from varfilter.data import write_midi
from varfilter.media import load, source_of
from varfilter.runs import Run, filter_data, pack_run, pretrained
from varfilter.runs.packing import NUM_STARTS
from varfilter.runs.starts import starts_of
from varfilter.training.checkpoints import Checkpoint, save_checkpoint

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def songs(tmp_path_factory):
    """A folder with a run on MIDI files, which are beside it."""
    from dataclasses import replace

    folder = tmp_path_factory.mktemp("songs")
    (folder / "midi").mkdir()
    for number, song in enumerate(chorales().train):
        write_midi(song, folder / "midi" / f"{number}.mid", steps_per_beat=2)
    source = source_of(folder / "midi")
    experiment = replace(tiny("music", folder)[0], data=source)
    run = Run.begin(folder / "run", experiment, load(source))
    keep_untrained(run)
    return run


@pytest.fixture
def named(songs, tmp_path, monkeypatch):
    """The run as the model `tiny-songs` of the package, seen from an empty folder."""
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "pretrained")
    monkeypatch.chdir(tmp_path)
    return pack_run(songs, tmp_path / "pretrained" / "tiny-songs", num_starts=4)


def test_a_name_is_a_run_in_half_the_bytes_that_filters_nearly_alike(songs, named):
    run = Run.load("tiny-songs")
    assert run.folder == named.folder
    sizes = [(each.folder / "best.safetensors").stat().st_size for each in (songs, run)]
    # What is not weights, the manifest and the names of arrays, stays as long as it was.
    manifest = sizes[1] - (sizes[0] - sizes[1])
    assert 0 < manifest < sizes[1] < sizes[0]
    new = songs.folder.parent / "midi" / "0.mid"
    surprises = [
        np.asarray([row["surprise"] for row in filter_data(each, new) if row["surprise"]])
        for each in (songs, run)
    ]
    # Eleven bits of each weight, and sums of a few dozen of them: 88 keys of 5e-4 log-odds each.
    np.testing.assert_allclose(surprises[1], surprises[0], atol=88 * 5e-4 * 4)
    assert not np.array_equal(surprises[0], surprises[1])


def test_no_beginning_of_a_packed_run_is_from_its_data(songs, named):
    starts = starts_of(named)
    assert starts.shape == (4, 88)
    assert set(np.unique(starts)) <= {0.0, 1.0}
    firsts = {rows.tobytes() for rows in starts_of(songs)}
    assert not firsts & {rows.tobytes() for rows in starts}
    assert not list(named.folder.glob("checkpoints/*"))
    assert NUM_STARTS > 4


def test_commands_take_the_name_and_a_folder_of_that_name_comes_first(songs, named, tmp_path):
    new = str(songs.folder.parent / "midi" / "1.mid")
    before = sorted(path.name for path in named.folder.iterdir())
    rows = succeed("filter", "tiny-songs", new, "--out", str(tmp_path / "rows.jsonl"))
    assert rows.code == 0
    out = succeed("sample", "tiny-songs", "--num-steps", "3", "--out", str(tmp_path / "a.mid")).out
    assert "a.mid" in out
    assert sorted(path.name for path in named.folder.iterdir()) == before
    # A folder that is no run is in nobody's way; that of a run is meant.
    (tmp_path / "tiny-songs").mkdir()
    assert Run.load("tiny-songs").folder == named.folder
    own = pack_run(songs, tmp_path / "other", num_starts=1)
    (tmp_path / "tiny-songs").rmdir()
    own.folder.rename(tmp_path / "tiny-songs")
    assert Run.load("tiny-songs").folder == (tmp_path / "tiny-songs").relative_to(tmp_path)


def test_an_unknown_name_says_what_there_is(named, tmp_path):
    said = refuse("filter", "tiny-song", str(tmp_path / "a.mid"))
    assert "Did you mean 'tiny-songs'? What comes trained with varfilter is tiny-songs." in said
    assert "What comes trained" not in refuse("filter", "runs/other", str(tmp_path / "a.mid"))
    refuses(lambda: pack_run(named, named.folder), FileExistsError, "Give a new one")


def test_the_script_packs_a_run_and_says_what_that_costs(songs, tmp_path, monkeypatch, capsys):
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        script = importlib.import_module("pretrained")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    words = [songs.folder, "songs", "--to", tmp_path, "--split", "valid"]
    monkeypatch.setattr(sys, "argv", ["pretrained.py", *map(str, words)])
    script.main()
    said = json.loads(capsys.readouterr().out)
    assert said["moved_by"] == said["nats_in_half_precision"] - said["nats"]
    # As above: eleven bits of each weight.
    assert 0.0 < abs(said["moved_by"]) < 88 * 5e-4 * 4
    assert Run.load(tmp_path / "songs").trained().step == songs.trained().step


def test_numbers_beyond_half_precision_are_refused(tmp_path):
    state = {"weight": np.asarray([1.0, 7e4], np.float32)}
    checkpoint = Checkpoint(state, 1, {})
    path = tmp_path / "a.safetensors"
    refuses(
        lambda: save_checkpoint(path, checkpoint, is_half=True),
        ValueError,
        "7e+04",
        "half precision ends at 65504",
    )
    assert not list(tmp_path.iterdir())
