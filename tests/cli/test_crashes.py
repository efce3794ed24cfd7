"""Trainings that are killed: fifty times at random moments, and inside the writes of files.

`tests/runs/test_crashes.py` has a short version of the second, without processes.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from commands import succeed
from varfilter import _saved
from varfilter.runs import Run
from varfilter.training.checkpoints import CHECKPOINT, kept_checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("as_users_run_it")]

TESTS = Path(__file__).parent.parent
NUM_KILLS = 50
NUM_EPOCHS = 150
# A baseline, for it compiles in half the time; two updates an epoch.
WORDS = (
    *("--model.latent-size", 4, "--model.recurrent-size", 8, "--model.prior-size", 8),
    *("--model.decoder-size", 8, "--model.num-decoder-layers", 1, "--method", "baseline"),
    *("--filter.inference.hidden-size", 8, "--filter.inference.num-layers", 1),
    *("--schedule.batch-size", 8, "--schedule.num-steps", 6, "--schedule.num-epochs", NUM_EPOCHS),
    *("--schedule.annealing-epochs", 3, "--schedule.epochs-per-validation", 5, "--quiet"),
)


def start(folder, songs, seconds, **crash):
    """A training in a process of its own, which may end itself, as `CrashingDisk` is told."""
    words = ["train", "srnn-jsb-avf", *WORDS, "--data.at", songs, "--out", folder]
    words += ["--checkpoint-seconds", seconds]
    return subprocess.Popen(
        [sys.executable, TESTS / "crashing.py", folder, json.dumps(crash), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )


def newest_step(folder):
    return max([0, *(step for step, _ in kept_checkpoints(folder / "checkpoints"))])


def arrays(path):
    return {name: array.tobytes() for name, array in _saved.read(path, CHECKPOINT)[1].items()}


def assert_the_same(folder, other):
    last = f"checkpoints/step-{2 * NUM_EPOCHS:09}.safetensors"
    for name in ("best.safetensors", last):
        assert arrays(folder / name) == arrays(other / name)
    lines = [[line | {"seconds": 0} for line in Run.load(f).metrics()] for f in (folder, other)]
    assert lines[0] == lines[1]


def crash_of(number, random):
    """How the process of a number ends: inside a write, with or without power, or from outside."""
    if number % 5 in (0, 1):
        return {"after_bytes": int(random.integers(0, 3_000_000))}
    if number % 5 == 2:
        return {"at_moment": int(random.integers(1, 200)), "power": True, "seed": number}
    if number % 5 == 3:
        return {"after_bytes": int(random.integers(0, 3_000_000)), "power": True, "seed": number}
    return {}


@pytest.fixture(scope="module")
def unbroken(songs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    succeed("train", "srnn-jsb-avf", *WORDS, "--data.at", songs, "--out", folder)
    return folder


def test_killed_fifty_times_it_ends_with_the_bits_of_an_unbroken_run(unbroken, songs, tmp_path):
    """Some resume a folder that was killed often before; each that comes to its end is compared."""
    random = np.random.default_rng(0)
    folder, num_kills, num_ends, resumed = tmp_path / "killed", 0, 0, []
    while num_kills < NUM_KILLS:
        crash, before = crash_of(num_kills, random), newest_step(folder)
        child = start(folder, songs, seconds=[0, 0.05][num_kills % 2], **crash)
        if not crash:
            deadline = time.monotonic() + 300
            while newest_step(folder) == before and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(random.uniform(0.0, 0.5))
            child.kill()
        err = child.communicate(timeout=300)[1]
        assert "Traceback" not in err
        if child.returncode == 0:
            assert_the_same(folder, unbroken)
            num_ends += 1
            shutil.rmtree(folder)
            continue
        assert child.returncode == -signal.SIGKILL, err
        num_kills += 1
        # Never back, but for what the power took before it was certain.
        assert newest_step(folder) >= (0 if crash.get("power") else before)
        resumed.append(newest_step(folder))
    end = start(folder, songs, 0)
    err = end.communicate(timeout=600)[1]
    assert end.returncode == 0, err
    assert_the_same(folder, unbroken)
    assert not list(folder.rglob("*.partial"))
    assert not (folder / "lock").exists()
    print(f"{num_kills} kills, {num_ends + 1} runs came to their end; resumed from {resumed}")


def wait_for_a_checkpoint(folder):
    deadline = time.monotonic() + 300
    while not newest_step(folder) and time.monotonic() < deadline:
        time.sleep(0.01)


def test_of_two_trainers_the_second_is_refused_and_the_first_ends_as_if_alone(
    unbroken, songs, tmp_path
):
    folder = tmp_path / "shared"
    first = start(folder, songs, 0.05)
    wait_for_a_checkpoint(folder)
    second = start(folder, songs, 0.05)
    out, err = second.communicate(timeout=300)
    assert second.returncode == 2
    assert out == ""
    assert f"process {first.pid} on" in err
    assert "Traceback" not in err
    err = first.communicate(timeout=600)[1]
    assert first.returncode == 0, err
    assert_the_same(folder, unbroken)


def test_a_folder_that_is_moved_in_the_middle_of_training(unbroken, songs, tmp_path):
    folder, moved = tmp_path / "here", tmp_path / "there"
    child = start(folder, songs, 0.05)
    wait_for_a_checkpoint(folder)
    folder.rename(moved)
    err = child.communicate(timeout=300)[1]
    assert child.returncode == 2
    assert "moved, renamed or removed" in err
    assert "Traceback" not in err
    assert not folder.exists()
    end = start(moved, songs, 0.05)
    err = end.communicate(timeout=600)[1]
    assert end.returncode == 0, err
    assert_the_same(moved, unbroken)
