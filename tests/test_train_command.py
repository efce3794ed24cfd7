"""`varfilter train`, `evaluate` and `list` as users type them, and what they refuse."""

import contextlib
import io
import json
import math
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file
from varfilter.cli.overrides import meant_by, overridden
from varfilter.experiments.expected import H200_MINUTES, cpu_minutes
from varfilter.experiments.parameters import OBSERVATIONS, num_parameters

import varfilter as vf
from refusals import as_users_run_it  # noqa: F401
from varfilter import _saved, cli
from varfilter.data import Dataset, Family, Ragged
from varfilter.experiments import AVF, EXPERIMENTS, Baseline, Run, Source
from varfilter.experiments.experiment import differences, from_json
from varfilter.runs.run import Trained
from varfilter.runs.scores import _in_density_units, score
from varfilter.runs.training import Best, Resumed, Updated, Validated, train
from varfilter.training.checkpoints import CHECKPOINT, kept_checkpoints
from varfilter.training.evaluation import Evaluation

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("VARFILTER_DATA", ROOT.parent / "shared" / "data"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the data sets in {DATA}")

NUM_STEPS, NUM_EPOCHS = 12, 40
TINY = (
    *("--model.latent-size", 4, "--model.recurrent-size", 8, "--model.prior-size", 8),
    *("--model.decoder-size", 8, "--model.num-decoder-layers", 1, "--optimizer.num-phi-steps", 2),
    *("--filter.inference.hidden-size", 8, "--filter.inference.num-layers", 1),
    *("--filter.inference.num-samples", 2),
    *("--schedule.batch-size", 8, "--schedule.num-steps", 6, "--schedule.num-epochs", NUM_EPOCHS),
    *("--schedule.annealing-epochs", 3, "--schedule.epochs-per-validation", 1),
    *("--checkpoint-seconds", 0),
)
NOBODY = 65534
# Two batches of eight of the sixteen songs.
LAST = 2 * NUM_EPOCHS


def write_songs(path, seed=0):
    """A few songs of twelve steps each, for `--data.at`."""
    rng, parts = np.random.default_rng(seed), {}
    for split, count in (("train", 16), ("valid", 4), ("test", 5)):
        rolls = np.zeros((count * NUM_STEPS, 88), np.uint8)
        rolls[np.arange(len(rolls)), rng.integers(30, 50, len(rolls))] = 1
        parts[f"{split}_rolls"] = np.packbits(rolls, axis=1)
        parts[f"{split}_lengths"] = np.full(count, NUM_STEPS)
    np.savez(path, **parts)


@pytest.fixture(scope="module")
def songs(tmp_path_factory):
    path = tmp_path_factory.mktemp("songs") / "songs.npz"
    write_songs(path)
    return path


@pytest.fixture(scope="module")
def unbroken(songs, tmp_path_factory):
    """(the folder of a run that nobody interrupted, what was printed, on stderr)."""
    folder = tmp_path_factory.mktemp("runs") / "unbroken"
    words = ("train", "srnn-jsb-avf", *TINY, "--data.at", songs, "--out", folder)
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["varfilter", *map(str, words)])
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as caught,
        ):
            cli.main()
    assert caught.value.code == 0, err.getvalue()
    return folder, out.getvalue(), err.getvalue()


@pytest.fixture
def run(unbroken, tmp_path):
    """The folder of a finished run, to be spoiled."""
    return Path(shutil.copytree(unbroken[0], tmp_path / "run"))


@pytest.fixture
def varfilter(monkeypatch, capsys):
    """(exit code, what was printed, errors) of a command, in this process."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["varfilter", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return caught.value.code or 0, printed.out, printed.err

    return call


def contents(folder):
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def newest(run):
    """The paths of the two newest checkpoints."""
    return [path for _, path in kept_checkpoints(run / "checkpoints")[:2]]


# What is there.


def test_list(varfilter, monkeypatch, tmp_path):
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path))
    assert all(cpu_minutes(name, 1) for name in EXPERIMENTS)
    assert set(H200_MINUTES) <= set(EXPERIMENTS)
    names = ("srnn-jsb-avf", "srnn-nottingham-avf", "srnn-timit-sample-baseline")
    few = {name: EXPERIMENTS[name] for name in names}
    monkeypatch.setattr("varfilter.experiments.EXPERIMENTS", few)
    found = json.loads(varfilter("list", "--json")[1])["experiments"]
    assert list(found) == [*few, "table"]
    assert not any(found[name]["is_here"] for name in few)
    jsb = found["srnn-jsb-avf"]
    assert jsb["published"]["nats"] == 6.97
    assert jsb["num_updates"] == 800 * math.ceil(229 / 16)
    assert jsb["num_parameters"] == found["srnn-nottingham-avf"]["num_parameters"]
    assert 60 < jsb["cpu_minutes"] < 600
    assert jsb["h200_minutes"] == 3.3
    code, out, _ = varfilter("list")
    assert code == 0
    for name in few:
        assert name in out
    assert "6.97 (7.1)" in out
    assert "3 min" in out
    assert "timit-sample (not here)" in out


def test_the_commands_of_our_results_make_those_runs():
    folder = ROOT / "results"
    rows = re.findall(
        r"^\| `(\S+)` \| `varfilter train (.*?)`", (folder / "README.md").read_text(), re.M
    )
    assert {name for name, _ in rows} == {path.name for path in folder.iterdir() if path.is_dir()}
    for name, command in rows:
        word, *rest = shlex.split(command)
        meant = overridden(meant_by(word, rest), rest, prog="", description="")[0]
        record = json.loads((folder / name / "run.json").read_text())
        assert differences(meant, from_json(record["experiment"])) == {}, name


def test_sizes_are_told_without_the_data(songs):
    experiment = EXPERIMENTS["srnn-jsb-avf"]
    experiment = replace(
        experiment,
        data=Source("jsb", at=str(songs)),
        model=replace(experiment.model, latent_size=3, recurrent_size=5),
        filter=replace(experiment.filter, inference=replace(AVF(), hidden_size=4)),
    )
    model, filter, _ = experiment.build(experiment.data.load().dataset)
    arrays = [x for x in jax.tree.leaves((model, filter)) if isinstance(x, jax.Array)]
    assert num_parameters(experiment) == sum(x.size for x in arrays)
    assert {e.data.source for e in EXPERIMENTS.values()} <= set(OBSERVATIONS)


@needs_data
@pytest.mark.parametrize("source", ["jsb", "nottingham", "timit-sample"])
def test_observations_are_known_without_the_data(source, monkeypatch):
    monkeypatch.setenv("VARFILTER_DATA", str(DATA))
    dataset, (shape, family) = Source(source).load().dataset, OBSERVATIONS[source]
    assert dataset.observation_shape == shape
    assert dataset.family.distribution is family.distribution


def test_help_teaches(varfilter):
    for words in (("train",), ("train", "--help")):
        code, out, _ = varfilter(*words)
        assert code == 0
        assert "varfilter train srnn-jsb-avf --out" in out
    code, out, _ = varfilter("train", "srnn-jsb-avf", "--help")
    assert code == 0
    for words in ("--filter.inference.num-iterations", "K, the updates of q", "(default: 800)"):
        assert words in out
    assert "--data.source" not in out
    out = varfilter("train", "srnn-jsb-avf", "--method", "descent", "--help")[1]
    assert "--filter.inference.learning-rate" in out
    assert "--filter.inference.hidden-size" not in out


def test_a_table_is_an_experiment_too(varfilter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("readings.csv").write_text("pump,warm,cold\n" + "a,1.5,2\nb,2.5,3\n" * 20)
    words = ["--data.columns", "warm", "--data.sequence", "pump", "--schedule.num-epochs", "7"]
    meant = meant_by("readings.csv", words)
    assert meant.out == Path("runs/readings")
    experiment, options = overridden(meant, words, prog="", description="")
    assert options.out == meant.out
    # Found from any folder.
    path = str(tmp_path / "readings.csv")
    assert experiment.data == Source(path, columns=("warm",), sequence="pump")
    assert experiment.schedule.num_epochs == 7
    code, out, _ = varfilter("train", "readings.csv", "--help")
    assert code == 0
    assert "--schedule.num-epochs" in out


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
    assert found.experiment.data == Source("jsb", at=str(songs))
    metrics = found.metrics()
    assert [line["epoch"] for line in metrics] == list(range(1, NUM_EPOCHS + 1))
    assert metrics[-1]["valid"]["nats"] < metrics[0]["valid"]["nats"] - 0.1
    best = min(metrics, key=lambda line: line["valid"]["nats"])
    trained = found.trained()
    assert (trained.step, trained.valid) == (best["step"], best["valid"]["nats"])


def wait_for_a_new_checkpoint(folder, before, random):
    """And a moment longer."""
    end = time.monotonic() + 200
    while kept_checkpoints(folder / "checkpoints")[:1] == before and time.monotonic() < end:
        time.sleep(0.005)
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
    valid, others = ([m["valid"] for m in Run.load(f).metrics()] for f in (folder, unbroken))
    assert valid == others


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
    unbroken, songs, varfilter, tmp_path, monkeypatch
):
    folder, random = tmp_path / "killed", np.random.default_rng(time.time_ns())
    shorter = ("--schedule.num-epochs", NUM_EPOCHS - 5)
    kill(folder, songs, random, *shorter)
    before = kept_checkpoints(folder / "checkpoints")[:1]

    def terminate():
        wait_for_a_new_checkpoint(folder, before, random)
        os.kill(os.getpid(), signal.SIGTERM)

    # If it comes too late it must not end the tests.
    own = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    thread = threading.Thread(target=terminate)
    try:
        thread.start()
        code, out, err = varfilter("train", folder, "--checkpoint-seconds", 0)
    finally:
        thread.join()
        signal.signal(signal.SIGTERM, own)
    assert code == 130
    assert f"To go on: varfilter train {folder}" in out
    assert kept_checkpoints(folder / "checkpoints")[0][0] < LAST - 10
    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=Board))
    longer = ("--schedule.num-epochs", NUM_EPOCHS, "--tensorboard")
    code, _, err = varfilter("train", folder, *longer)
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
    code, out, _ = varfilter("train", folder, "--quiet")
    assert code == 0
    assert f"step {LAST}" in out


def test_left_between_an_epoch_and_its_validation_it_is_validated_first(unbroken, tmp_path):
    before = Run.load(unbroken[0])
    loaded = before.experiment.data.load()
    left = Run.begin(tmp_path / "left", before.experiment, loaded)
    with contextlib.closing(train(left, loaded.dataset, updates_per_dispatch=1)) as events:
        assert any(isinstance(event, Updated) and event.step == 4 for event in events)
    assert [line["step"] for line in left.metrics()] == [2]
    events = train(left, loaded.dataset, max_updates=6)
    assert next(events) == Resumed(4, ())
    assert isinstance(next(events), Validated)
    assert [line["step"] for line in left.metrics()] == [2, 4]
    *_, end = events
    assert (end.step, end.best) == (6, Best(left.metrics()[-1]["best"], 6))
    lines = [[{**line, "seconds": 0} for line in run.metrics()[:3]] for run in (left, before)]
    assert lines[0] == lines[1]


@pytest.mark.slow
def test_killed_five_times_at_random_moments(unbroken, songs, varfilter, tmp_path):
    folder, random = tmp_path / "killed", np.random.default_rng(time.time_ns())
    for _ in range(5):
        kill(folder, songs, random)
    assert varfilter("train", folder)[0] == 0
    assert_the_same(folder, unbroken[0])


@pytest.mark.slow
def test_of_two_processes_one_is_asked_to_stop_and_both_do(unbroken, songs, varfilter, tmp_path):
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
    assert varfilter("train", folder)[0] == 0
    found, wanted = (Run.load(f).metrics() for f in (folder, unbroken[0]))
    assert [line["step"] for line in found] == [line["step"] for line in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one["valid"]["nats"] == pytest.approx(other["valid"]["nats"], rel=1e-5)


def test_what_is_seen_live(run):
    from rich.console import Console

    from varfilter.cli.progress import _Live
    from varfilter.learning import Metrics
    from varfilter.runs.training import Updated, Validated

    def of(*values):
        return np.asarray(values, np.float32)

    metrics = Metrics(
        of(7.0, 8.0), of(6.0, 7.0), of(1.0, 1.0), of([9.0, 7.0], [9.0, 8.0]),
        of(0.5, 1.5), of(2.0, 2.0), np.array([0, 0], np.int32),
    )  # fmt: skip
    found = Run.load(run)
    screen = io.StringIO()
    with _Live(Console(file=screen, force_terminal=True, width=100), found, 50) as live:
        live.show(Validated(found.metrics()[-1], True))
        live.show(Updated(4, 100, 2, 50, metrics, 3, 1.0))
        live.last = 0.0
        live.pace.seen.append((4, time.perf_counter() - 2.0))
        live.pace.seen.popleft()
        live.show(Updated(24, 100, 12, 50, metrics, 3, 3.0))
    shown = screen.getvalue()
    for words in ("epoch 12 of 50, step 24", "7.5000", "reconstruction 6.5000, KL 1.0000"):
        assert words in shown
    # 26 of 50 updates are left, at ten a second.
    for words in ("prior 9.0000, then 7.5000", "theta 1", "3 updates skipped", "3 s left"):
        assert words in shown
    assert f"best {found.metrics()[-1]['best']:.4f}" in shown


# Scores.


def test_evaluate(run, varfilter):
    code, out, _ = varfilter("evaluate", run)
    assert code == 0
    scores = json.loads((run / "evaluation-test.json").read_text())
    assert scores["command"] == ["varfilter", "evaluate", str(run)]
    assert scores["data_sha256"] == Run.load(run).record["data"]["sha256"]
    assert (scores["num_sequences"], scores["num_steps"]) == (5, 5 * (NUM_STEPS - 1))
    # All songs are as long as each other: the averages differ by a factor, or not at all.
    assert scores["nats_by_step"] == pytest.approx(scores["nats"])
    as_published = scores["nats"] * (NUM_STEPS - 1) / NUM_STEPS
    assert scores["nats_as_published"] == pytest.approx(as_published)
    assert scores["nats_by_iteration"][-1] == pytest.approx(scores["nats"], rel=1e-5)
    assert scores["published"] == {
        "table": "table-3", "num_iterations": 1, "nats_as_published": 6.97, "nats": 7.1,
    }  # fmt: skip
    for words in (f"{scores['nats']:.4f}", "6.9700", "7.1000", "evaluation-test.json"):
        assert words in out
    options = ("--num-iterations", 2, "--split", "valid", "--seed", 3, "--json")
    code, out, _ = varfilter("evaluate", run, *options)
    assert code == 0
    twice = json.loads(out)
    assert len(twice["nats_by_iteration"]) == 3
    assert twice == json.loads((run / "evaluation-valid-iterations-2-seed-3.json").read_text())
    code, out, _ = varfilter("evaluate", run, "--bound", "fivo", "--num-particles", 2, "--json")
    assert code == 0
    assert json.loads(out)["num_particles"] == 2
    assert json.loads(out)["nats_by_iteration"] == []
    assert (run / "evaluation-test-fivo-2.json").exists()


def test_densities_of_quantised_data():
    """log p(x) = log P(level) - log(width), where levels are narrow."""
    width, xs = 1e-3, np.array([0.3, -0.1, 0.7], np.float32)
    q = vf.Normal(np.zeros(3, np.float32), np.zeros(3, np.float32))
    density = -float(q.log_prob(xs))
    probability = -float(vf.DiscretizedNormal(q.mean, q.log_var, width).log_prob(xs))
    ragged = Ragged.of([np.zeros((2, 3), np.float32)])
    family = Family(vf.DiscretizedNormal, width=width)
    dataset = Dataset("quantised", ragged, ragged, ragged, family)
    one, three = np.ones(1), np.full(1, 3.0)
    found = Evaluation(
        np.zeros(1, int), one, probability * one, probability * np.ones((1, 2)), one, three
    )
    scores = _in_density_units(found, dataset)
    # A float32 CDF is right to 6e-8, a level's probability of 4e-4 so to 1.5e-4.
    assert scores["nats"] == pytest.approx(density, abs=1e-3)
    assert scores["nats_by_iteration"] == pytest.approx([density, density], abs=1e-3)
    plain = Dataset("plain", ragged, ragged, ragged, Family(vf.Normal))
    assert _in_density_units(found, plain) is None


def test_scores_that_there_cannot_be(run, varfilter, tmp_path):
    code, _, err = varfilter("evaluate", run, "--num-particles", 4)
    assert code == 2
    assert "`num_particles`" in err
    assert "--bound" in err
    code, _, err = varfilter("evaluate", run, "--num-iterations", 0)
    assert code == 2
    assert "`num_iterations`" in err
    code, _, err = varfilter("evaluate", run, "--split", "tset")
    assert code == 2
    assert "tset" in err
    code, _, err = varfilter("evaluate", tmp_path / "none")
    assert code == 2
    assert "does not exist" in err
    # A run of a one-shot inference.
    experiment = Run.load(run).experiment
    choice = replace(experiment.filter, inference=Baseline(hidden_size=4))
    experiment = replace(experiment, filter=choice)
    loaded = experiment.data.load()
    other = Run.begin(tmp_path / "baseline", experiment, loaded)
    code, _, err = varfilter("evaluate", other.folder)
    assert code == 2
    assert "no validated checkpoint yet" in err
    built = experiment.build(loaded.dataset)
    other.keep_best(Trained(built.model, built.filter, 1, 1.0))
    with pytest.raises(ValueError, match="infers with `Amortized`"):
        score(other, num_iterations=3)


# Bad files.


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
def test_a_bad_checkpoint_costs_the_steps_since_the_one_before(spoil, run, varfilter):
    last, before = newest(run)
    spoil(last, before)
    # As far as the one before: that nothing is learned is enough to see what it goes on from.
    code, out, err = varfilter("train", run, "--max-updates", LAST - 2)
    assert code == 0
    assert "A checkpoint was left out" in err
    assert last.name in err
    assert SPOILT[spoil] in err
    assert f"Going on from step {LAST - 2}." in err
    assert f"Done at step {LAST - 2}" in out


def test_a_bad_best_is_refused_and_written_again(run, varfilter):
    best = run / "best.safetensors"
    whole = _saved.read(best, CHECKPOINT)
    for spoil in (truncated, foreign, too_new):
        spoil(best, best)
        before = contents(run)
        code, _, err = varfilter("evaluate", run)
        assert code == 2
        assert "best.safetensors" in err
        assert SPOILT[spoil] in err
        assert f"varfilter train {run}" in err
        assert contents(run) == before
    code, _, err = varfilter("train", run)
    assert code == 0
    assert "It is written again" in err
    metadata, arrays = _saved.read(best, CHECKPOINT)
    assert metadata == whole[0]
    assert {n: a.tobytes() for n, a in arrays.items()} == {
        n: a.tobytes() for n, a in whole[1].items()
    }


def test_without_a_good_checkpoint_nothing_is_overwritten(run, varfilter):
    for _, path in kept_checkpoints(run / "checkpoints"):
        truncated(path, None)
    before = contents(run)
    code, _, err = varfilter("train", run)
    assert code == 2
    assert "can be gone on from" in err
    assert "--out" in err
    assert contents(run) == before


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "damaged"), ('{"version": 99}', "version 99"), ("[]", "damaged")],
)
def test_a_bad_record_of_a_run(text, reason, run, varfilter):
    (run / "run.json").write_text(text)
    for command in ("train", "evaluate"):
        before = contents(run)
        code, _, err = varfilter(command, run)
        assert code == 2
        assert reason in err
        assert contents(run) == before


def test_a_full_disk_in_the_middle_of_training(run, varfilter):
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
        code, out, err = varfilter("train", run, "--schedule.num-epochs", NUM_EPOCHS + 2)
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
    code, out, _ = varfilter("train", run, "--quiet", "--max-updates", LAST)
    assert code == 0
    assert f"step {LAST}" in out


def test_places_where_nothing_can_be_written(songs, varfilter, tmp_path):
    (tmp_path / "file").write_text("mine")
    out = tmp_path / "file" / "run"
    code, _, err = varfilter("train", "srnn-jsb-avf", *TINY, "--data.at", songs, "--out", out)
    assert code == 2
    assert "Cannot write" in err
    code, _, err = varfilter("train", "srnn-jsb-avf", *TINY, "--data.at", songs, "--out", tmp_path)
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


def test_a_folder_that_is_read_only(unbroken, songs, varfilter, closed):
    data = shutil.copy(songs, closed / "songs.npz")
    (closed / "runs").mkdir()
    run = Path(shutil.copytree(unbroken[0], closed / "runs" / "begun"))
    record = (run / "run.json").read_text()
    (run / "run.json").write_text(record.replace(str(songs), str(data)))
    close(closed)
    before = contents(closed)
    with not_as_root():
        for words in (
            ("srnn-jsb-avf", *TINY, "--data.at", data, "--out", closed / "runs" / "new"),
            (run, "--schedule.num-epochs", NUM_EPOCHS + 1),
        ):
            code, _, err = varfilter("train", *words)
            assert code == 2
            assert "Cannot write" in err
            assert str(closed / "runs") in err
    close(closed, is_closed=False)
    assert contents(closed) == before


# Bad words.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["srnn-jsb-afv"], ["Did you mean 'srnn-jsb-avf'?", "varfilter list"]),
        (["readings.csv"], ["no file 'readings.csv'"]),
        (["--quiet", "srnn-jsb-avf"], ["comes first"]),
        (["srnn-jsb-avf", "--max-updates", "0"], ["`max_updates`"]),
        (["srnn-jsb-avf", "--checkpoint-seconds", "-1"], ["`--checkpoint-seconds`"]),
        (["srnn-jsb-avf", "--schedule.num-epochs", "0"], ["schedule.num_epochs", "at least 1"]),
        (["srnn-jsb-avf", "--optimizer.theta.learning-rate", "nan"], ["learning_rate", "nan"]),
        (["srnn-jsb-avf", "--filter.inference.num-iteration", "2"], ["inference.num-iterations"]),
        (["srnn-jsb-avf", "--filter.inference.num-iterations", "x"], ["num-iterations", "'x'"]),
        (["srnn-jsb-avf", "--filter.bound", "x"], ["--filter.bound", "fivo"]),
        (["srnn-jsb-avf", "--model.latent-size", "0"], ["`latent_size`", "got 0"]),
        (["srnn-jsb-avf", "--data.sequence", "pump"], ["'sequence'"]),
        (["srnn-jsb-avf", "--data.source", "timit"], ["--data.source"]),
    ],
    ids=lambda words: "_".join(words[-2:]),
)
def test_words_that_mean_nothing(words, said, songs, varfilter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, *others = words
    tiny = [*TINY, "--data.at", songs] if first.startswith("srnn") else []
    code, _, err = varfilter("train", first, *tiny, *others)
    assert code == 2
    in_one_line = " ".join(err.replace("│", " ").split())
    for word in said:
        assert word in in_one_line
    assert len(err.splitlines()) < 20
    # And it is in nobody's way: the folder can be used for what was meant.
    assert not list(tmp_path.rglob("*.safetensors"))


def test_data_that_are_not_here(varfilter, monkeypatch, tmp_path):
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    code, _, err = varfilter("train", "srnn-jsb-avf")
    assert code == 2
    assert "varfilter data fetch jsb" in err
    assert not list(tmp_path.iterdir())


def test_without_tensorboard(varfilter, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    code, _, err = varfilter("train", "srnn-jsb-avf", "--tensorboard")
    assert code == 2
    assert "pip install 'varfilter[tensorboard]'" in err


def test_another_experiment_in_the_same_folder(run, songs, varfilter):
    before = contents(run)
    words = (*TINY, "--data.at", songs, "--out", run)
    for other in (
        ("srnn-jsb-avf", *words, "--seed", 1),
        ("srnn-jsb-avf", *words, "--model.latent-size", 5),
        ("srnn-nottingham-avf", *words),
        (run, "--filter.inference.num-iterations", 2),
    ):
        code, _, err = varfilter("train", *other)
        assert code == 2
        assert f"varfilter train {run}" in err
        assert "another `--out`" in err
    assert contents(run) == before


def test_a_folder_where_nothing_was_learned_is_in_nobodys_way(songs, varfilter, tmp_path):
    words = ("train", "srnn-jsb-avf", *TINY, "--data.at", songs, "--out", tmp_path / "run")
    assert varfilter(*words, "--model.latent-size", 0)[0] == 2
    code, _, err = varfilter(*words, "--filter.inference.num-layers", 0)
    assert code == 2
    assert "num_layers" in err


def test_changed_data(run, songs, varfilter):
    before, whole = contents(run), songs.read_bytes()
    try:
        write_songs(songs, seed=1)
        for command in ("train", "evaluate"):
            code, _, err = varfilter(command, run)
            assert code == 2
            assert "are not those that the run" in err
        songs.unlink()
        for command in ("train", "evaluate"):
            code, _, err = varfilter(command, run)
            assert code == 2
            assert "no such file" in err
    finally:
        songs.write_bytes(whole)
    assert contents(run) == before


def test_a_folder_of_recordings_is_trained_as_the_papers_of_its_kind(tmp_path):
    from varfilter.data import write_midi, write_wav
    from varfilter.experiments import SRNNSizes, VRNNSizes, recordings_experiment

    songs, sounds = tmp_path / "songs", tmp_path / "sounds"
    songs.mkdir()
    sounds.mkdir()
    write_midi(np.eye(8, 88), songs / "scale.mid", seconds_per_step=0.5)
    write_wav(np.zeros(4000, np.int16), sounds / "quiet.wav", 16000)
    music, speech = recordings_experiment(songs), recordings_experiment(sounds)
    assert (music.name, music.data.source) == ("songs", str(songs))
    assert isinstance(music.model, SRNNSizes)
    assert isinstance(speech.model, VRNNSizes)
    # The paper's number is of other data.
    assert music.published is speech.published is None
