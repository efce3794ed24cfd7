"""SIGHUP, SIGTERM and SIGINT: from the first second on a training saves, and leaves at once."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from commands import command
from songs import write_songs
from varfilter import _saved
from varfilter.runs import Run
from varfilter.training.checkpoints import CHECKPOINT, kept_checkpoints

pytestmark = pytest.mark.usefixtures("as_users_run_it")

SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
# What may pass between a signal and the end of the process, when an update is over.
MOST_SECONDS = 5.0
# Long before a worker that hears nothing comes back.
WORKER = """
import hashlib, os, sys, time
from pathlib import Path
from varfilter.cli.exits import Stopping

folder, phase = Path(sys.argv[1]), sys.argv[2]
with Stopping() as stopping:
    if phase != "start-up":
        stopping.save_with(lambda: (folder / "saved").write_text("all"), lambda: "Farewell.")
    print("begun", flush=True)
    if phase == "updating":
        while not stopping.is_asked:
            time.sleep(0.01)
        stopping.take_over()
        print("I go by myself.")
        sys.exit(130)
    # Inside the compiler, say: in C, where no handler of Python is called.
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("phase", ["start-up", "compiling", "updating"])
def test_a_worker_that_hears_nothing_is_left_behind(phase, number, tmp_path):
    # Whatever the tests themselves were started under, such as `nohup`.
    heeding = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n" + WORKER
    child = subprocess.Popen(
        [sys.executable, "-c", heeding, str(tmp_path), phase],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout.readline() == "begun\n"
        begin = time.monotonic()
        child.send_signal(number)
        if phase == "compiling" and number == signal.SIGINT:
            time.sleep(0.2)
            child.send_signal(number)  # at once
        out, err = child.communicate(timeout=30)
        seconds = time.monotonic() - begin
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 130, err
    assert "Traceback" not in err
    assert seconds < MOST_SECONDS
    words = {
        "start-up": "Stopped; there was nothing to save.",
        "compiling": "Farewell.",
        "updating": "I go by myself.",
    }
    assert out == words[phase] + "\n"
    assert (tmp_path / "saved").exists() == (phase == "compiling")


def test_what_was_ignored_stays_so(tmp_path):
    """As `nohup` leaves SIGHUP."""
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + WORKER
    child = subprocess.Popen(
        [sys.executable, "-c", ignoring, str(tmp_path), "start-up"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout.readline() == "begun\n"
        child.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.5)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=30)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == 130


# The command itself.

WORDS = (
    *("--model.latent-size", 4, "--model.recurrent-size", 8, "--model.prior-size", 8),
    *("--model.decoder-size", 8, "--model.num-decoder-layers", 1, "--method", "baseline"),
    *("--filter.inference.hidden-size", 8, "--filter.inference.num-layers", 1),
    *("--schedule.batch-size", 8, "--schedule.num-steps", 6, "--schedule.num-epochs", 4000),
    *("--schedule.annealing-epochs", 3, "--schedule.epochs-per-validation", 50),
)
PHASES = ("start-up", "compiling", "training", "validating")


@pytest.fixture(scope="module")
def long_songs(tmp_path_factory):
    """Songs to validate on that take as long as to be met by a signal: many seconds."""
    path = tmp_path_factory.mktemp("songs") / "songs.npz"
    write_songs(path, num_valid_steps=400_000)
    return path


def wait_for(phase, folder, random):
    """Until the process is there, as far as its folder says; and a moment longer."""
    deadline = time.monotonic() + 300

    def reached():
        steps = [step for step, _ in kept_checkpoints(folder / "checkpoints")]
        return {
            "start-up": True,
            "compiling": (folder / "run.json").exists(),
            "training": bool(steps),
            # After the hundredth update; two to an epoch.
            "validating": 100 in steps,
        }[phase]

    while not reached() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(random.uniform(*{"start-up": (0.3, 2.5), "compiling": (0, 2)}.get(phase, (0, 0.5))))


@pytest.mark.slow
def test_ten_signals_of_each_kind_at_all_times(long_songs, tmp_path):
    random, states, ends = np.random.default_rng(0), {}, []
    for turn in range(10):
        for number in SIGNALS:
            phase = PHASES[(turn + SIGNALS.index(number)) % len(PHASES)]
            folder = tmp_path / f"{turn}-{number.name}"
            words = ("train", "srnn-jsb-avf", *WORDS, "--data.at", long_songs, "--out", folder)
            # Saved by time alone in training; before a validation, that is the first, always.
            often = 0 if phase in ("training", "validating") else 30
            words = (*words, "--checkpoint-seconds", often)
            child = subprocess.Popen(
                [sys.executable, "-m", "varfilter", *map(str, words)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            try:
                wait_for(phase, folder, random)
                begin = time.monotonic()
                child.send_signal(number)
                out, err = child.communicate(timeout=60)
                seconds = time.monotonic() - begin
            finally:
                child.kill()
                child.wait()
            assert child.returncode == 130, (phase, number, out, err)
            assert "Traceback" not in err
            assert seconds < MOST_SECONDS, (phase, number, seconds)
            steps = kept_checkpoints(folder / "checkpoints")
            if phase in ("training", "validating"):
                assert "Stopped, and saved. To go on: varfilter train" in out
                # Whatever was saved at a step, it is the state of any other run at that step.
                for step, path in steps:
                    found = {n: a.tobytes() for n, a in _saved.read(path, CHECKPOINT)[1].items()}
                    assert states.setdefault(step, found) == found
            ends.append((phase, number.name, round(seconds, 1), steps[0][0] if steps else 0))
    for end in ends:
        print(*end)
    # What one of them left before any validation can be used as it is.
    folder = next(tmp_path / f for f in os.listdir(tmp_path) if is_unvalidated(tmp_path / f))
    done = command("sample", folder, "--out", tmp_path / "made.mid", "--num-steps", 4)
    assert done.code == 0
    assert "stands in for the best" in done.err
    done = command("evaluate", folder, "--num-particles", 1)
    assert done.code == 0
    assert "stands in for the best" in done.err


# The child's own terminal: what is at the other end is closed like a window.
ON_TERMINAL = """
import fcntl, sys, termios
from varfilter.cli import main
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
main(sys.argv[1:])
"""


def is_unvalidated(folder):
    return bool(kept_checkpoints(folder / "checkpoints")) and not Run.load(folder).metrics()


@pytest.mark.slow
def test_a_terminal_that_is_closed(songs, tmp_path):
    """As when a window or a connection goes: SIGHUP, and nobody to write to."""
    folder, random = tmp_path / "run", np.random.default_rng(0)
    words = ("train", "srnn-jsb-avf", *WORDS, "--data.at", songs, "--out", folder)
    words = (*words, "--checkpoint-seconds", 0.2)
    screen, terminal = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", ON_TERMINAL, *map(str, words)],
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    deadline = time.monotonic() + 300
    while not kept_checkpoints(folder / "checkpoints") and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            os.read(screen, 65536)
    time.sleep(random.uniform(0.5, 1.0))
    before = kept_checkpoints(folder / "checkpoints")[0][0]
    os.close(screen)
    begin = time.monotonic()
    assert child.wait(60) == 130
    assert time.monotonic() - begin < MOST_SECONDS
    assert kept_checkpoints(folder / "checkpoints")[0][0] >= before
    assert not (folder / "lock").exists()
    assert command("train", folder, "--quiet", "--max-updates", before)[0] == 0
