"""A run is one thing: changed bytes, others' checkpoints and second trainers are refused."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from commands import command, refuse, succeed
from refusals import refuses
from songs import contents
from tiny_runs import keep_untrained, tiny
from varfilter.runs import Run, calibration, forecasting
from varfilter.runs.checkpointing import Best, Checkpointing, Standing
from varfilter.runs.folder import locked, read_list, sealed, unsealed, write_list
from varfilter.runs.run import Progress, Trained
from varfilter.runs.training import train_run
from varfilter.training.checkpoints import kept_checkpoints

pytestmark = pytest.mark.usefixtures("as_users_run_it")

NUM_FLIPS = 500
NUM_LINES = 20
# As `keep_untrained` leaves it.
BEST = Best(300.0, 2)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run on a table as training leaves it, without the training."""
    folder = tmp_path_factory.mktemp("made")
    experiment, dataset = tiny("table", folder)
    run = Run.begin(folder / "run", experiment, dataset)
    keep_untrained(run)
    for step in range(3, NUM_LINES + 1):
        run.append_metrics(run.metrics()[-1] | {"step": step, "seconds": 1.0 * step})
    keep_state(run, NUM_LINES)
    return run


def keep_state(run, step, best=BEST):
    """A checkpoint of a state that nobody trained, at `step`; the best is there already."""
    model, filter, learner = run.experiment.build(run.template)
    learning = learner.init(model, filter)
    learning = eqx.tree_at(lambda s: s.num_updates, learning, jnp.asarray(step, jnp.int32))
    standing = Standing(Progress(learning, model, filter), step, best, validated=step)
    with run.held() as lock:
        checkpointing = Checkpointing(run, lock, 0.0, Standing(standing.state), best.step)
        checkpointing.standing = standing
        checkpointing.save()


@pytest.fixture
def run(made, tmp_path):
    return Run.load(shutil.copytree(made.folder, tmp_path / "run"))


def flips(path):
    """The file with one bit changed, at many places; the first and the last bytes among them."""
    whole, random = path.read_bytes(), np.random.default_rng(0)
    places = random.choice(np.arange(8, len(whole) - 8), NUM_FLIPS - 16, replace=False)
    edges = np.r_[np.arange(8), np.arange(len(whole) - 8, len(whole))]
    for place in np.r_[edges, places]:
        changed = bytearray(whole)
        changed[place] ^= 1 << random.integers(8)
        path.write_bytes(bytes(changed))
        yield int(place)
    path.write_bytes(whole)


# Changed bytes.


def test_no_flipped_bit_of_the_record_is_accepted(run):
    path = run.folder / "run.json"
    num_refused = 0
    for number, place in enumerate(flips(path)):
        with pytest.raises(ValueError, match=r"damaged|version") as caught:
            Run.load(run.folder)
        assert "\n" not in str(caught.value), place
        assert str(caught.value).endswith(".")
        if number % 100 == 0:
            said = refuse("evaluate", run.folder)
            assert f"varfilter repair {run.folder}" in said or "Update varfilter" in said
        num_refused += 1
    assert num_refused == NUM_FLIPS
    assert Run.load(run.folder).record == run.record


def test_no_flipped_bit_of_the_metrics_is_accepted(run):
    path, before = run.folder / "metrics.jsonl", run.metrics()
    num_refused = 0
    for number, place in enumerate(flips(path)):
        with pytest.raises(ValueError, match=r"damaged in line \d+ of \d+ \(") as caught:
            run.metrics()
        assert "\n" not in str(caught.value), place
        if number % 250 == 0:
            # Nothing is cut: training does not even begin.
            content = contents(run.folder)
            assert f"varfilter repair {run.folder}" in refuse("train", run.folder)
            assert contents(run.folder) == content
        num_refused += 1
    assert num_refused == NUM_FLIPS
    assert run.metrics() == before


def test_a_last_line_that_was_cut_short_is_no_damage(run):
    path, before = run.folder / "metrics.jsonl", run.metrics()
    whole = path.read_bytes()
    last = len(whole.splitlines(keepends=True)[-1])
    assert len(before) == NUM_LINES
    for length in range(1, last):
        path.write_bytes(whole[:-length])
        # All but the end of the line: it is whole, and kept.
        assert run.metrics() == (before if length == 1 else before[:-1])
    # A power cut may leave zeros where bytes were to come.
    path.write_bytes(whole + b"\0" * 50)
    assert run.metrics() == before
    run.cut_metrics(NUM_LINES)
    assert path.read_bytes() == whole


def test_a_seal_says_whether_a_byte_changed():
    record = {"a": [1, 2.5, None], "b": {"c": 'ü"}'}}
    for indent in (None, 1):
        text = sealed(record, indent=indent)
        assert unsealed(text) == record
        assert json.loads(text).keys() == {"a", "b", "checksum"}
        for place in range(len(text)):
            for bit in range(8):
                changed = bytearray(text)
                changed[place] ^= 1 << bit
                with pytest.raises(ValueError, match="checksum"):
                    unsealed(bytes(changed))


# Repair.


def test_a_damaged_record_is_restored_from_the_newest_checkpoint(run):
    path = run.folder / "run.json"
    whole = path.read_bytes()
    record = json.loads(whole)
    record["data"]["scale"][0] *= 3.0  # predictions would be off by degrees
    for damaged in (json.dumps(record, indent=1).encode(), whole[:100], b"", None):
        if damaged is None:
            path.unlink()
        else:
            path.write_bytes(damaged)
        for name in ("train", "evaluate"):
            assert f"varfilter repair {run.folder}" in refuse(name, run.folder)
        out = succeed("repair", run.folder).out
        assert f"run.json was restored from the copy in step-{NUM_LINES:09}.safetensors" in out
        assert path.read_bytes() == whole
        if damaged is not None:
            assert (run.folder / "run.json.damaged").read_bytes() == damaged
    # Of a checkpoint that is damaged itself the copy is not taken.
    newest = kept_checkpoints(run.checkpoints)[0][1]
    newest.write_bytes(newest.read_bytes()[:-1])
    path.write_bytes(b"{}")
    out = succeed("repair", run.folder).out
    assert "from the copy in best.safetensors" in out
    assert f"Left as it is: {str(newest)!r}" in out
    assert path.read_bytes() == whole


def test_damaged_metrics_keep_the_lines_that_are_whole(run):
    path, before = run.folder / "metrics.jsonl", run.metrics()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"0", b"1", 1)
    lines[10:11] = [b"\n", lines[10]]
    path.write_bytes(b"".join(lines))
    assert "damaged in line 4 of 21" in refuse("train", run.folder)
    out = succeed("repair", run.folder).out
    assert "has the 19 of its 21 lines that were whole; damaged: 4, 11" in out
    assert run.metrics() == before[:3] + before[4:]
    assert (run.folder / "metrics.jsonl.damaged").read_bytes() == b"".join(lines)
    assert f"nothing to repair in {run.folder}" in succeed("repair", run.folder).out


@pytest.mark.parametrize("room", [calibration, forecasting])
def test_what_validation_finds_again_is_put_out_of_the_way(run, room):
    path = run.folder / room.FILE
    write_list(path, room.ENTRY, room.VERSION, [])
    assert f"nothing to repair in {run.folder}" in succeed("repair", run.folder).out
    cut = path.read_bytes()[:-9]
    path.write_bytes(cut)
    with pytest.raises(ValueError, match="varfilter repair"):
        read_list(path, room.ENTRY, room.VERSION)
    assert (
        f"{room.FILE} was removed; validation finds it again" in succeed("repair", run.folder).out
    )
    assert not path.exists()
    assert path.with_name(f"{room.FILE}.damaged").read_bytes() == cut


def test_what_cannot_be_repaired_is_said(run, tmp_path):
    path = run.folder / "run.json"
    record = run.record | {"version": 99}
    path.write_bytes(sealed(record, indent=1))
    # It is whole, but newer: no older copy takes its place.
    assert "Update varfilter" in refuse("repair", run.folder)
    path.write_text("{")
    for file in (
        *(p for _, p in kept_checkpoints(run.checkpoints)),
        run.folder / "best.safetensors",
    ):
        file.write_bytes(b"x")
    before = contents(run.folder)
    assert "no good copy" in refuse("repair", run.folder)
    assert contents(run.folder) == before
    assert "not the folder of a run" in refuse("repair", tmp_path)


# Checkpoints of other runs.


def changed(run, what):
    """The run of another experiment, seed or data, whose arrays have the same shapes."""
    experiment, record = run.experiment, run.record
    if what == "seed":
        experiment = dataclasses.replace(experiment, seed=1)
    elif what == "optimizer.theta.learning_rate":
        theta = dataclasses.replace(experiment.optimizer.theta, learning_rate=0.5)
        optimizer = dataclasses.replace(experiment.optimizer, theta=theta)
        experiment = dataclasses.replace(experiment, optimizer=optimizer)
    else:
        record = record | {"data": record["data"] | {"sha256": "0" * 64}}
    from varfilter.experiments.experiment import as_json

    return experiment, record | {"experiment": as_json(experiment)}


@pytest.mark.parametrize("what", ["seed", "optimizer.theta.learning_rate", "sha256"])
def test_a_checkpoint_of_another_run_is_refused(run, tmp_path, what):
    folder = shutil.copytree(run.folder, tmp_path / "other")
    experiment, record = changed(run, what)
    (folder / "run.json").write_bytes(sealed(record, indent=1))
    other = Run(folder, experiment, record)
    for _, path in kept_checkpoints(other.checkpoints):
        path.unlink()
    keep_state(other, 999_999)
    name = "step-000999999.safetensors"
    shutil.copy(other.checkpoints / name, run.checkpoints / name)
    before = contents(run.folder)
    said = refuse("train", run.folder)
    assert name in said
    assert "is of another run" in said
    assert what in said.replace("-", "_")  # as the option is typed
    assert contents(run.folder) == before
    # Nor is its best taken for ours.
    (run.checkpoints / name).unlink()
    other.keep_best(Trained(*other.experiment.build(other.template)[:2], 7, 1.0))
    shutil.copy(other.folder / "best.safetensors", run.folder / "best.safetensors")
    before = contents(run.folder)
    for word in ("train", "sample"):
        said = refuse(word, run.folder)
        assert "best.safetensors' is of another run" in said
        assert what in said.replace("-", "_")  # as the option is typed
    assert contents(run.folder) == before


# Two trainers.

HOLDER = """
import sys
from pathlib import Path
from varfilter.runs.folder import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_trainer_is_told_who_the_first_is(run, made):
    command_line = [sys.executable, "-c", HOLDER, str(run.folder)]
    child = subprocess.Popen(command_line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "held\n"
        before = contents(run.folder)
        for words in (("train", run.folder), ("repair", run.folder)):
            said = refuse(*words)
            assert f"process {child.pid} on" in said
            assert "since 20" in said
        with pytest.raises(BlockingIOError, match=f"process {child.pid}"):
            next(train_run(run, made.dataset))
        assert contents(run.folder) == before
        # It dies without a word: what it held is free.
        child.kill()
        child.wait()
        assert (run.folder / "lock").exists()
        with locked(run.folder):
            assert json.loads((run.folder / "lock").read_text())["pid"] == os.getpid()
        assert not (run.folder / "lock").exists()
    finally:
        child.kill()
        child.communicate()


def test_a_folder_that_was_taken_for_another_experiment_is_not_trained_in(made, tmp_path):
    experiment, dataset = made.experiment, made.dataset
    first = Run.begin(tmp_path / "run", experiment, dataset)
    second = Run.begin(tmp_path / "run", dataclasses.replace(experiment, seed=3), dataset)
    refuses(lambda: next(train_run(first, dataset)), ValueError, "another experiment", "--out")
    assert Run.load(tmp_path / "run").experiment == second.experiment


def test_a_run_that_died_at_its_start_is_in_nobodys_way(made, tmp_path):
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "lock").write_text("")
    (folder / "run.json.123-0123abcd.partial").write_text('{"versi')
    run = Run.begin(folder, made.experiment, made.dataset)
    with run.held():
        names = {path.name for path in folder.iterdir()}
        assert names == {"run.json", "checkpoints", "lock", "starts.safetensors"}
    (folder / "run.json").rename(folder / "mine.txt")
    refuses(
        lambda: Run.begin(folder, made.experiment, made.dataset), FileExistsError, "other things"
    )


# Before any validation.


def test_the_last_state_stands_in_for_the_best(run, tmp_path):
    (run.folder / "best.safetensors").unlink()
    said = f"its last state, of step {NUM_LINES}, stands in for the best"
    with pytest.warns(UserWarning, match=said):
        trained = run.trained()
    assert (trained.step, trained.valid) == (NUM_LINES, None)
    done = command("sample", run.folder, "--out", tmp_path / "made.csv", "--num-steps", 3)
    assert done.code == 0, done.err
    assert said in done.err
    assert (tmp_path / "made.csv").exists()
    for _, path in kept_checkpoints(run.checkpoints):
        path.unlink()
    assert "Nothing was learned yet" in refuse("sample", run.folder)
