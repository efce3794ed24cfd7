"""`varfilter train` as users type it: what is trained, goes on, ends; words that mean nothing."""

import contextlib
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from commands import command, refuse, succeed
from songs import LAST, NUM_EPOCHS, TINY, contents, write_songs
from varfilter import _saved
from varfilter.cli.options import meant_by, overridden
from varfilter.experiments.experiment import differences, from_json
from varfilter.media import source_of
from varfilter.media.music import MusicSource
from varfilter.media.table import TableSource
from varfilter.runs.run import Run
from varfilter.runs.training import Best, Resumed, Updated, Validated, Validating, train_run
from varfilter.training.checkpoints import CHECKPOINT, kept_checkpoints

pytestmark = pytest.mark.usefixtures("as_users_run_it")

ROOT = Path(__file__).parent.parent.parent


# What is meant.


def test_the_commands_of_our_results_make_those_runs():
    folder = ROOT / "results"
    rows = re.findall(
        r"^\| `(\S+)` \| `varfilter train (.*?)`", (folder / "README.md").read_text(), re.M
    )
    # Those of several seeds have commands of their own (`test_results.py`).
    assert {name for name, _ in rows} == {path.parent.name for path in folder.glob("*/run.json")}
    for name, words in rows:
        word, *rest = shlex.split(words)
        meant = overridden(meant_by(word), rest)[0]
        record = json.loads((folder / name / "run.json").read_text())
        assert differences(meant, from_json(record["experiment"], meant.data.medium)) == {}, name


def test_help_teaches():
    for words in (("train",), ("train", "--help")):
        code, out, _ = command(*words)
        assert code == 0
        assert "varfilter train srnn-jsb-avf --out" in out
    code, out, _ = command("train", "srnn-jsb-avf", "--help-all")
    assert code == 0
    for words in ("--filter.inference.num-iterations N", "K, the updates of q", "(800)"):
        assert words in out
    assert "--data.source" not in out
    out = command("train", "srnn-jsb-avf", "--method", "descent", "--help-all")[1]
    assert "--filter.inference.learning-rate" in out
    assert "--filter.inference.hidden-size" not in out


def test_a_table_is_an_experiment_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("readings.csv").write_text("pump,warm,cold\n" + "a,1.5,2\nb,2.5,3\n" * 20)
    words = ["--data.columns", "warm", "--data.sequence", "pump", "--schedule.num-epochs", "7"]
    target = meant_by("readings.csv")
    assert target.out == Path("runs/readings")
    experiment, options = overridden(target, words)
    assert options.out == target.out
    # Found from any folder.
    path = str(tmp_path / "readings.csv")
    assert experiment.data == TableSource(path, columns=("warm",), sequence="pump")
    assert experiment.schedule.num_epochs == 7
    code, out, _ = command("train", "readings.csv", "--help")
    assert code == 0
    assert "--data.sequence" in out
    assert "--schedule.* (12)" in out


def test_a_folder_of_recordings_is_trained_as_the_papers_of_its_kind(tmp_path):
    from varfilter.data import write_midi, write_wav
    from varfilter.experiments import SRNNSizes, VRNNSizes, own_experiment

    songs, sounds = tmp_path / "songs", tmp_path / "sounds"
    songs.mkdir()
    sounds.mkdir()
    write_midi(np.eye(8, 88), songs / "scale.mid", seconds_per_step=0.5)
    write_wav(np.zeros(4000, np.int16), sounds / "quiet.wav", 16000)
    music, speech = (own_experiment(source_of(path)) for path in (songs, sounds))
    assert (music.name, music.data.source) == ("songs", str(songs))
    assert isinstance(music.model, SRNNSizes)
    assert isinstance(speech.model, VRNNSizes)
    # The paper's number is of other data.
    assert music.published is speech.published is None


def test_a_set_is_named_where_no_folder_is_called_like_it(tmp_path, monkeypatch):
    from varfilter.cli.options import meant_by
    from varfilter.data import write_midi

    monkeypatch.chdir(tmp_path)
    target = meant_by("jsb")
    assert (target.experiment.data.source, target.is_own) == ("jsb", True)
    assert (target.experiment.name, target.out) == ("jsb", Path("runs/jsb"))
    assert target.experiment.published is None
    (tmp_path / "jsb").mkdir()
    write_midi(np.eye(8, 88), tmp_path / "jsb" / "scale.mid", seconds_per_step=0.5)
    assert meant_by("jsb").experiment.data.source == str(tmp_path / "jsb")


# Training.


def test_a_run_holds_all_there_is_to_know(unbroken, songs):
    folder, out, err = unbroken
    for words in (f"step {LAST}", str(folder), "best validation", "varfilter evaluate"):
        assert words in out
    lines = [line for line in err.splitlines() if line.startswith("epoch")]
    # One at first and the last; between them at most one every few seconds.
    assert lines[-1].startswith(f"epoch {NUM_EPOCHS}, step {LAST}: train")
    assert len(lines) < NUM_EPOCHS // 2
    found = Run.load(folder)
    assert found.experiment.model.latent_size == 4
    assert found.experiment.data == MusicSource("jsb", at=str(songs))
    metrics = found.metrics()
    assert [line["epoch"] for line in metrics] == list(range(1, NUM_EPOCHS + 1))
    assert metrics[-1]["valid"]["nats"] < metrics[0]["valid"]["nats"] - 0.1
    best = min(metrics, key=lambda line: line["valid"]["nats"])
    trained = found.trained()
    assert (trained.step, trained.valid) == (best["step"], best["valid"]["nats"])


def wait_for(condition):
    end = time.monotonic() + 200
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)


def wait_for_a_new_checkpoint(folder, before, random):
    """And a moment longer."""
    wait_for(lambda: kept_checkpoints(folder / "checkpoints")[:1] != before)
    time.sleep(random.uniform(0.0, 0.15))


def kill(folder, songs, random, *options):
    """Train in a process of its own, and kill it."""
    before = kept_checkpoints(folder / "checkpoints")[:1]
    child = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "varfilter", "train", "srnn-jsb-avf",
         *map(str, (*TINY, "--data.at", songs, "--out", folder, *options))],
    )  # fmt: skip
    wait_for_a_new_checkpoint(folder, before, random)
    child.send_signal(signal.SIGKILL)
    assert child.wait(timeout=100) == -signal.SIGKILL


def assert_the_same(folder, unbroken):
    """Parameters, optimizers and the best, to the bit; a line for each epoch, once."""
    for name in ("best.safetensors", f"checkpoints/step-{LAST:09}.safetensors"):
        ends = [_saved.read(f / name, CHECKPOINT)[1] for f in (folder, unbroken)]
        assert ends[0].keys() == ends[1].keys()
        for array in ends[0]:
            assert ends[0][array].tobytes() == ends[1][array].tobytes(), array
    found, others = (
        [m | {"seconds": 0} for m in Run.load(f).metrics()] for f in (folder, unbroken)
    )
    assert found == others


class Board:
    """In the place of TensorBoard's library, if it is there."""

    written: ClassVar = {}

    def __init__(self, folder):
        self.written["folder"] = folder

    def add_scalar(self, name, number, step):
        self.written[name] = (number, step)

    def close(self):
        self.written["closed"] = True


def test_killed_and_terminated_and_made_longer_it_ends_with_the_same_bits(
    unbroken, songs, tmp_path, monkeypatch
):
    folder, random = tmp_path / "killed", np.random.default_rng(time.time_ns())
    shorter = ("--schedule.num-epochs", NUM_EPOCHS - 5)
    kill(folder, songs, random, *shorter)

    def terminate():
        # Not while anything is compiled, which would be left behind, and these tests with it.
        wait_for(lambda: len(Run.load(folder).metrics()) > num_lines + 1)
        os.kill(os.getpid(), signal.SIGTERM)

    # Without a handler it would end the tests if it came too late.
    own = signal.signal(signal.SIGTERM, lambda *_: None)
    num_lines, thread = len(Run.load(folder).metrics()), threading.Thread(target=terminate)
    try:
        thread.start()
        code, out, err = command("train", folder, "--checkpoint-seconds", 0)
    finally:
        thread.join()
        signal.signal(signal.SIGTERM, own)
    assert code == 130
    assert f"Stopped, and saved. To go on: varfilter train {folder}" in out
    assert kept_checkpoints(folder / "checkpoints")[0][0] < LAST - 10
    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=Board))
    longer = ("--schedule.num-epochs", NUM_EPOCHS, "--tensorboard")
    code, _, err = command("train", folder, *longer)
    assert code == 0
    assert "Going on from step" in err
    assert_the_same(folder, unbroken[0])
    assert Run.load(folder).experiment.schedule.num_epochs == NUM_EPOCHS
    line, written = Run.load(folder).metrics()[-1], Board.written
    assert written["valid/nats"] == (line["valid"]["nats"], LAST)
    assert written["train/free_energies/1"] == (line["train"]["free_energies"][1], LAST)
    assert written["folder"] == str(folder / "tensorboard")
    assert written["closed"]
    # It is done, and says so again.
    code, out, _ = command("train", folder, "--quiet")
    assert code == 0
    assert f"step {LAST}" in out


def test_left_between_an_epoch_and_its_validation_it_is_validated_first(unbroken, tmp_path):
    before = Run.load(unbroken[0])
    left = Run.begin(tmp_path / "left", before.experiment, before.dataset)
    with contextlib.closing(train_run(left, before.dataset, seconds_per_dispatch=0.0)) as events:
        assert any(isinstance(event, Updated) and event.step == 4 for event in events)
    assert [line["step"] for line in left.metrics()] == [2]
    events = train_run(left, before.dataset, max_updates=6)
    assert next(events) == Resumed(4, ())
    assert isinstance(next(events), Validating)
    assert isinstance(next(events), Validated)
    assert [line["step"] for line in left.metrics()] == [2, 4]
    *_, end = events
    assert (end.step, end.best) == (6, Best(left.metrics()[-1]["best"], 6))
    # Left and resumed, one update a dispatch or several: to the bit.
    lines = [each | {"seconds": 0} for each in left.metrics()]
    assert lines == [each | {"seconds": 0} for each in before.metrics()[:3]]


@pytest.mark.slow
def test_killed_five_times_at_random_moments(unbroken, songs, tmp_path):
    folder, random = tmp_path / "killed", np.random.default_rng(time.time_ns())
    for _ in range(5):
        kill(folder, songs, random)
    assert command("train", folder)[0] == 0
    assert_the_same(folder, unbroken[0])


@pytest.mark.slow
def test_of_two_processes_one_is_asked_to_stop_and_both_do(unbroken, songs, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path / "together"
    words = (*TINY, "--data.at", songs, "--out", folder, "--distributed")
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "varfilter", "train", "srnn-jsb-avf", *map(str, words)],
            env=os.environ
            | {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_NUM_PROCESSES": "2"}
            | {"JAX_PROCESS_ID": str(number), "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        wait_for_a_new_checkpoint(folder, [], np.random.default_rng(time.time_ns()))
        children[1].send_signal(signal.SIGTERM)
        printed = [child.communicate(timeout=100)[0] for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [130, 130]
    assert f"To go on: varfilter train {folder}" in printed[0]
    assert "To go on" not in printed[1]
    assert kept_checkpoints(folder / "checkpoints")[0][0] < LAST
    # It goes on in one.
    assert command("train", folder)[0] == 0
    found, wanted = (Run.load(f).metrics() for f in (folder, unbroken[0]))
    assert [line["step"] for line in found] == [line["step"] for line in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one["valid"]["nats"] == pytest.approx(other["valid"]["nats"], rel=1e-5)


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr("varfilter.cli.progress.time", made)
    return made


def updated(step, num_updates=100):
    from varfilter.learning import Metrics
    from varfilter.runs.training import Updated

    def of(*values):
        return np.asarray(values, np.float32)

    metrics = Metrics(
        of(7.0, 8.0), of(6.0, 7.0), of(1.0, 1.0), of([9.0, 7.0], [9.0, 8.0]),
        of(0.5, 1.5), of(2.0, 2.0), np.array([0, 0], np.int32),
    )  # fmt: skip
    return Updated(step, num_updates, step // 2, num_updates // 2, metrics, 3, 1.0)


def test_what_is_seen_live(run, clock):
    from rich.console import Console

    from varfilter.cli.progress import _Live
    from varfilter.runs.training import Stopped, Validated

    found = Run.load(run)
    screen = io.StringIO()
    line = found.metrics()[-1]
    with _Live(Console(file=screen, force_terminal=True, width=100), found, 50) as live:
        live.show(Validated(line, True))
        clock.now = 40.0
        live.show(updated(4))
        clock.now = 42.0
        live.show(updated(24))
        shown = screen.getvalue()
        # The best comes with the very last validation, at once after the picture before.
        live.show(Validated(line | {"best": 1.25}, True))
        live.show(Stopped("done", 24, Best(1.25, 24)))
    for words in ("epoch 12 of 50, step 24 of 50", "7.5000", "reconstruction 6.5000, KL 1.0000"):
        assert words in shown
    # 26 of 50 updates are left, at ten a second; the first took 40 s to compile.
    for words in ("prior 9.0000, then 7.5000", "theta 1", "3 updates skipped", "3 s left"):
        assert words in shown
    assert f"best {line['best']:.4f}" in shown
    assert "best 1.2500" in screen.getvalue()


def test_a_validation_before_the_first_update_is_seen_too(run):
    """A run that was left just before it, and goes on with it."""
    from rich.console import Console

    from varfilter.cli.progress import _Live
    from varfilter.runs.training import Validated, Validating

    found, screen = Run.load(run), io.StringIO()
    with _Live(Console(file=screen, force_terminal=True, width=100), found, None) as live:
        live.show(Validating(4, 12, 135))
        assert screen.getvalue().endswith("validating 12 of 135 sequences ...")
        live.show(Validated(found.metrics()[-1], True))
        assert screen.getvalue().endswith("compiling ...")


def test_what_stays_on_the_screen_is_what_is_saved(songs, tmp_path, monkeypatch, capsys):
    """A signal is looked at after the update that came with it was shown."""
    from varfilter.cli.exits import STOPPED, Stopping
    from varfilter.cli.train import Train

    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal
    stopping, folder = Stopping(), tmp_path / "run"
    stopping.is_asked = True
    words = ["srnn-jsb-avf", *map(str, TINY), "--data.at", str(songs), "--out", str(folder)]
    assert Train.main("varfilter train", words, stopping) == STOPPED
    (step, _), *_ = kept_checkpoints(folder / "checkpoints")
    assert f"step {step} of {LAST}" in capsys.readouterr().err


def test_a_run_that_has_ended_does_not_go_on(unbroken):
    done = succeed("train", unbroken[0])
    assert f"training  at its end, step {LAST}: " in done.err
    assert "Going on" not in done.err
    assert f"Done at step {LAST}: " in done.out


def test_of_a_display_of_nothing_nothing_stays(run):
    from rich.console import Console

    from varfilter.cli.progress import _Live

    screen = io.StringIO()
    with _Live(Console(file=screen, force_terminal=True, width=100), Run.load(run), None):
        before = len(screen.getvalue())
    # Up a line, and that is cleared.
    assert "\x1b[1A\x1b[2K" in screen.getvalue()[before:]


def test_the_time_left_does_not_count_compiling(clock):
    from varfilter.cli.progress import Pace
    from varfilter.runs.training import Validated, Validating

    pace = Pace(None)
    # Ten updates a second; the first and the fourth ten are compiled, the latter because an epoch
    # ended early. A validation of 2 s follows every 20, the first of them 20 s longer. After the
    # first ten one was measured.
    for step in range(10, 110, 10):
        clock.now += 1.0 + {10: 30.0, 40: 15.0}.get(step, 0.0)
        pace.add(updated(step, 1000))
        if step == 10:
            pace.add(Validating(step, 2, 2))
            clock.now += 25.0
        if step % 20 == 0:
            clock.now += 22.0 if step == 20 else 2.0
            pace.add(Validated({}, False))
    assert pace.per_second == pytest.approx(10.0)
    # 900 updates of 0.1 s; and a validation of 2 s after every 20 of them.
    assert pace.left(updated(100, 1000)) == pytest.approx(90.0 + 90.0)


def test_the_time_left_of_a_run_that_goes_on_is_of_what_it_has_to_do(clock):
    from varfilter.cli.progress import Pace
    from varfilter.runs.training import Validated

    # Left at step 138 of 1,000, to go on to 200: ten updates a second, and a validation of 2 s
    # at 140, 150, 160.
    pace = Pace(200)
    for step in range(139, 161):
        clock.now += 0.1
        pace.add(updated(step, 1000))
        if step % 10 == 0:
            clock.now += 2.0
            pace.add(Validated({}, False))
    assert pace.left(updated(160, 1000)) == pytest.approx(4.0 + 4 * 2.0)


# Bad words.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["srnn-jsb-afv"], ["Did you mean 'srnn-jsb-avf'?", "varfilter list"]),
        (["readings.csv"], ["no file 'readings.csv'"]),
        (["--quiet", "srnn-jsb-avf"], ["comes first"]),
        (["srnn-jsb-avf", "--max-updates", "0"], ["`--max-updates`"]),
        (["srnn-jsb-avf", "--checkpoint-seconds", "-1"], ["`--checkpoint-seconds`"]),
        (["srnn-jsb-avf", "--schedule.num-epochs", "0"], ["`--schedule.num-epochs`", "at least 1"]),
        (
            ["srnn-jsb-avf", "--optimizer.theta.learning-rate", "nan"],
            ["`--optimizer.theta.learning-rate`", "nan"],
        ),
        (["srnn-jsb-avf", "--filter.inference.num-iteration", "2"], ["inference.num-iterations"]),
        (["srnn-jsb-avf", "--filter.inference.num-iterations", "x"], ["num-iterations", "'x'"]),
        (["srnn-jsb-avf", "--filter.bound", "x"], ["--filter.bound", "fivo"]),
        (["srnn-jsb-avf", "--filter.gradient", "x"], ["--filter.gradient", "scored-ancestors"]),
        (["srnn-jsb-avf", "--model.latent-size", "0"], ["`--model.latent-size`", "got 0"]),
        (
            ["srnn-jsb-avf", "--data.sequence", "pump"],
            ["'jsb' is music", "no option --data.sequence", "--data.steps-per-beat"],
        ),
        (["srnn-jsb-avf", "--data.source", "timit"], ["--data.source"]),
    ],
    ids=lambda words: "_".join(words[-2:]),
)
def test_words_that_mean_nothing(words, said, songs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, *others = words
    tiny = [*TINY, "--data.at", songs] if first.startswith("srnn") else []
    code, _, err = command("train", first, *tiny, *others)
    assert code == 2
    in_one_line = " ".join(err.split())
    for word in said:
        assert word in in_one_line
    assert len(err.splitlines()) < 20
    # And it is in nobody's way: the folder can be used for what was meant.
    assert {path.name for path in tmp_path.rglob("*.safetensors")} <= {"starts.safetensors"}


def test_data_that_are_not_here(monkeypatch, tmp_path):
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    code, _, err = command("train", "srnn-jsb-avf")
    assert code == 2
    assert "varfilter data fetch jsb" in err
    assert not list(tmp_path.iterdir())


def test_without_tensorboard(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    code, _, err = command("train", "srnn-jsb-avf", "--tensorboard")
    assert code == 2
    assert "pip install 'varfilter[tensorboard]'" in err


def test_another_experiment_in_the_same_folder(run, songs):
    before = contents(run)
    words = (*TINY, "--data.at", songs, "--out", run)
    for other in (
        ("srnn-jsb-avf", *words, "--seed", 1),
        ("srnn-jsb-avf", *words, "--model.latent-size", 5),
        ("srnn-nottingham-avf", *words),
        (run, "--filter.inference.num-iterations", 2),
    ):
        code, _, err = command("train", *other)
        assert code == 2
        assert f"varfilter train {run}" in err
        assert "another `--out`" in err
    assert contents(run) == before


def test_a_folder_where_nothing_was_learned_is_in_nobodys_way(songs, tmp_path):
    words = ("train", "srnn-jsb-avf", *TINY, "--data.at", songs, "--out", tmp_path / "run")
    assert command(*words, "--model.latent-size", 0)[0] == 2
    code, _, err = command(*words, "--filter.inference.num-layers", 0)
    assert code == 2
    assert "`--filter.inference.num-layers`" in err


def test_changed_data(run, songs):
    before, whole = contents(run), songs.read_bytes()
    try:
        write_songs(songs, seed=1)
        for name in ("train", "evaluate"):
            code, _, err = command(name, run)
            assert code == 2
            assert "are not those that the run" in err
        songs.unlink()
        for name in ("train", "evaluate"):
            code, _, err = command(name, run)
            assert code == 2
            assert "no such file" in err
    finally:
        songs.write_bytes(whole)
    assert contents(run) == before


def test_what_cannot_be_trained_is_refused_before_a_folder_is_made(tmp_path):
    (tmp_path / "x.csv").write_text("x\n" + "\n".join(str(i % 7 + 0.5) for i in range(90)))
    out = tmp_path / "run"
    for words in (("--max-updates", "0"), ("--filter.num-particles", "0")):
        assert words[0].split(".")[-1].strip("-")[:3] in refuse(
            "train", tmp_path / "x.csv", "--out", out, *words
        )
        assert not out.exists()
    said = refuse("train", tmp_path / "x.csv", "--out", out, "--model.hidden-size", "0")
    assert "`--model.hidden-size` must be a whole number, at least 1; got 0." in said
