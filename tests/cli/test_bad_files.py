"""Runs with damaged files, full disks and closed folders: refused or mended, nothing is lost."""

import contextlib
import json
import os
import resource
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from commands import command
from songs import LAST, NUM_EPOCHS, TINY, contents, newest
from varfilter import _saved
from varfilter.runs import Run
from varfilter.runs.folder import sealed
from varfilter.training.checkpoints import CHECKPOINT, kept_checkpoints

pytestmark = pytest.mark.usefixtures("as_users_run_it")

NOBODY = 65534


def truncated(path, before):
    path.write_bytes(path.read_bytes()[:-100])


def corrupted(path, before):
    whole = bytearray(path.read_bytes())
    whole[-20] ^= 1
    path.write_bytes(bytes(whole))


def renamed(path, before):
    shutil.copy(before, path)


def foreign(path, before):
    save_file({"weight": np.zeros(3)}, path)


def too_new(path, before):
    save_file({"a": np.zeros(3)}, path, {"format": "varfilter-checkpoint", "version": "99"})


SPOILT = {
    truncated: "damaged",
    corrupted: "checksum",
    renamed: "renamed",
    foreign: "not a saved checkpoint",
    too_new: "Update varfilter",
}


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda spoil: spoil.__name__)
def test_a_bad_checkpoint_costs_the_steps_since_the_one_before(spoil, run):
    last, before = newest(run)
    spoil(last, before)
    # As far as the one before: that nothing is learned is enough to see what it goes on from.
    code, out, err = command("train", run, "--max-updates", LAST - 2)
    assert code == 0
    assert "A checkpoint was left out" in err
    assert last.name in err
    assert SPOILT[spoil] in err
    assert f"Going on from step {LAST - 2}." in err
    assert f"Done at step {LAST - 2}" in out


def test_a_bad_best_is_refused_and_written_again(run):
    best = run / "best.safetensors"
    whole = _saved.read(best, CHECKPOINT)
    for spoil in (truncated, foreign, too_new):
        spoil(best, best)
        before = contents(run)
        code, _, err = command("evaluate", run)
        assert code == 2
        assert "best.safetensors" in err
        assert SPOILT[spoil] in err
        assert f"varfilter train {run}" in err
        assert contents(run) == before
    code, _, err = command("train", run)
    assert code == 0
    assert "It is written again" in err
    metadata, arrays = _saved.read(best, CHECKPOINT)
    # The naive reference came on record when training had ended.
    manifest = json.loads(metadata.pop("manifest"))
    assert manifest["record"].pop("reference")["nats"] > 0
    assert manifest == json.loads(whole[0].pop("manifest"))
    assert metadata == whole[0]
    assert {n: a.tobytes() for n, a in arrays.items()} == {
        n: a.tobytes() for n, a in whole[1].items()
    }


def test_without_a_good_checkpoint_nothing_is_overwritten(run):
    for _, path in kept_checkpoints(run / "checkpoints"):
        truncated(path, None)
    before = contents(run)
    code, _, err = command("train", run)
    assert code == 2
    assert "can be resumed from" in err
    assert "--out" in err
    assert contents(run) == before


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "damaged"), ('{"version": 99}', "version 99"), ("[]", "damaged")],
)
def test_a_bad_record_of_a_run(text, reason, run):
    (run / "run.json").write_text(text)
    for name in ("train", "evaluate"):
        before = contents(run)
        code, _, err = command(name, run)
        assert code == 2
        assert reason in err
        assert contents(run) == before


def test_a_full_disk_in_the_middle_of_training(run):
    before = contents(run)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file grows beyond this: the metrics do not, the next checkpoint does.
    longest = 2 * (run / "metrics.jsonl").stat().st_size
    checkpoint = newest(run)[0].stat().st_size
    most = 16384 + longest
    if checkpoint <= most:
        (run / "metrics.jsonl").write_text("")
        before = contents(run)
        most = checkpoint // 2
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        code, out, err = command("train", run, "--schedule.num-epochs", NUM_EPOCHS + 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 2
    assert "cannot write" in err
    assert f"varfilter train {run}" in out
    after = contents(run)
    for path in before:
        if path.parent.name == "checkpoints":
            assert after[path] == before[path]
    assert not list(run.rglob("*.partial"))
    code, out, _ = command("train", run, "--quiet", "--max-updates", LAST)
    assert code == 0
    assert f"step {LAST}" in out


def test_places_where_nothing_can_be_written(songs, tmp_path):
    (tmp_path / "file").write_text("mine")
    out = tmp_path / "file" / "run"
    code, _, err = command("train", "srnn-jsb-avf", *TINY, "--data.at", songs, "--out", out)
    assert code == 2
    assert "Cannot write" in err
    code, _, err = command("train", "srnn-jsb-avf", *TINY, "--data.at", songs, "--out", tmp_path)
    assert code == 2
    assert "other things in it" in err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.fixture
def closed():
    """A folder that all may read; what is put in it can be closed to everyone but root."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def not_as_root():
    """No folder is closed to root: be somebody else for a while."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(own)


def close(folder, *, is_closed=True):
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o555 if is_closed else 0o755) if path.is_dir() else 0o644)


def test_a_folder_that_is_read_only(unbroken, songs, closed):
    data = shutil.copy(songs, closed / "songs.npz")
    (closed / "runs").mkdir()
    run = Path(shutil.copytree(unbroken[0], closed / "runs" / "begun"))
    record = json.dumps(Run.load(run).record).replace(str(songs), str(data))
    (run / "run.json").write_bytes(sealed(json.loads(record), indent=1))
    close(closed)
    before = contents(closed)
    with not_as_root():
        for words in (
            ("srnn-jsb-avf", *TINY, "--data.at", data, "--out", closed / "runs" / "new"),
            (run, "--schedule.num-epochs", NUM_EPOCHS + 1),
        ):
            code, _, err = command("train", *words)
            assert code == 2
            assert "Cannot write" in err
            assert str(closed / "runs") in err
    close(closed, is_closed=False)
    assert contents(closed) == before
