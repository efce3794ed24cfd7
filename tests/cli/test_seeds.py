"""`varfilter train --seeds` as users type it: one program, a folder for each, and what is said."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from commands import PROGRAM, command, refuse
from songs import TINY
from varfilter.runs.folder import seeds_in
from varfilter.runs.run import Run
from varfilter.training.checkpoints import kept_checkpoints

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@pytest.fixture(scope="module")
def both(songs, tmp_path_factory):
    """(the folder of two runs, what was printed when they began, and when they went on)."""
    folder = tmp_path_factory.mktemp("runs") / "both"
    words = (*TINY, "--data.at", songs, "--out", folder, "--seeds", 2, "--max-updates", 4)
    began = command("train", "srnn-jsb-avf", *words)
    went_on = command("train", folder, "--max-updates", 6)
    return folder, began, went_on


@pytest.mark.slow  # as `tests/runs/test_sweep.py` shows by default
def test_each_is_the_run_of_its_seed_alone(both, unbroken):
    folder, began, went_on = both
    assert (began.code, went_on.code) == (0, 0), began.err + went_on.err
    runs = [Run.load(folder / f"seed-{seed}") for seed in seeds_in(folder)]
    assert [run.experiment.seed for run in runs] == [0, 1]
    alone = Run.load(unbroken[0])
    for line, other in zip(runs[0].metrics(), alone.metrics()[:3], strict=True):
        assert line["step"] == other["step"]
        for part, name in (("valid", "nats"), ("train", "free_energy"), ("train", "kl")):
            # Six updates by Adam at 1e-4 or so, each 1e-7 of rounding off.
            assert line[part][name] == pytest.approx(other[part][name], rel=1e-3), (part, name)
    assert runs[1].metrics()[-1]["valid"]["nats"] != runs[0].metrics()[-1]["valid"]["nats"]


def test_what_is_said_is_of_all(both):
    folder, began, went_on = both
    assert "0 and 1, in one program" in began.err
    assert "2 of 2 runs: train" in began.err
    assert " +- " in began.err
    for seed in (0, 1):
        assert f"seed-{seed}    done at step 4: the most updates allowed were made\n" in began.out
        assert f"seed-{seed} ends at step 4: the most updates allowed were made" in began.err
    assert began.out.count("          best validation: ") == 2
    assert "2 seeds   best validation: " in began.out
    # Wrapped at words to the 80 columns of where there is no terminal, but for commands to paste.
    lines = [line for line in began.out.splitlines() if str(folder) not in line]
    assert max(map(len, lines)) < 80
    assert f"varfilter evaluate {folder}/seed-0" in began.out
    assert "Going on from step 4." in went_on.err


def test_refusals(both, unbroken, songs, tmp_path):
    folder = both[0]
    words = ("train", "srnn-jsb-avf", *TINY, "--data.at", songs)
    assert "`--seeds`" in refuse(*words, "--out", tmp_path / "none", "--seeds", 0)
    assert not (tmp_path / "none").exists()
    said = refuse(*words, "--out", unbroken[0], "--seeds", 2)
    assert "which is the folder of one run" in said
    said = refuse(*words, "--out", folder, "--seeds", 2, "--schedule.batch-size", 4)
    assert "--schedule.batch-size" in said
    assert "seed-0" in said
    # A third seed has not begun where the others stand.
    said = refuse(*words, "--out", folder, "--seeds", 3)
    assert "seed-0 is at step 6" in said
    assert "`--seed 2 --seeds 1`" in said
    assert seeds_in(folder) == [0, 1]
    assert "Give one of them" in refuse(*words, "--seeds", 2, "--distributed")


@pytest.mark.slow
def test_killed_at_random_moments_they_end_as_if_nothing_had_been(both, songs, tmp_path):
    folder, random = tmp_path / "killed", np.random.default_rng(time.time_ns())
    words = [*TINY, "--data.at", songs, "--out", folder, "--seeds", 2, "--max-updates", 40]
    words = [sys.executable, str(PROGRAM), "train", "srnn-jsb-avf", *map(str, words)]
    for _ in range(3):
        child = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert child.stderr is not None
        for line in child.stderr:
            if line.startswith("epoch"):
                break
        time.sleep(random.uniform(0.0, 0.3))
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    whole = tmp_path / "whole"
    words[words.index(str(folder))] = str(whole)
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0
    for seed in (0, 1):
        lines = []
        for each in (folder, whole):
            run = Run.load(Path(each) / f"seed-{seed}")
            lines.append([line | {"seconds": 0, "checksum": ""} for line in run.metrics()])
            assert kept_checkpoints(run.checkpoints)[0][0] == 40
        # To the bit: it is the same program from each checkpoint on.
        assert lines[0] == lines[1]
