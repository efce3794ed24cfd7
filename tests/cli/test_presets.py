"""`--preset` on the command line, and what `train` says before it starts."""

from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
import soundfile

import videos
from commands import refuse, succeed
from songs import write_songs
from sounds import noise
from varfilter._text import say_labelled
from varfilter.cli.options import meant_by, overridden
from varfilter.cli.overview import Correction, overview
from varfilter.cli.train import with_preset_given
from varfilter.data import write_midi
from varfilter.experiments import EXPERIMENTS, SRNNSizes, own_experiment
from varfilter.experiments.presets import SMALL
from varfilter.media import load, source_of
from varfilter.runs.plan import Reached, plan_run, reached_in
from varfilter.runs.run import Run
from varfilter.runs.training import Updated
from varfilter.runs.validation import Validation
from videos import write_video

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def target_of(word, *rest):
    target = with_preset_given(meant_by(str(word)), rest)
    return target, overridden(target, rest)[0]


@pytest.fixture
def music(tmp_path, monkeypatch):
    """A folder of four short songs, two parts each."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my songs"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(4):
        roll = np.zeros((30, 88), np.uint8)
        roll[np.arange(30), rng.integers(20, 60, 30)] = 1
        write_midi(roll, folder / f"{number}.mid")
    return folder


def test_a_name_is_the_papers_unless_small_is_asked_for():
    target, experiment = target_of("srnn-jsb-avf")
    assert experiment == EXPERIMENTS["srnn-jsb-avf"]
    target, experiment = target_of(
        "srnn-jsb-avf", "--preset", "small", "--schedule.num-epochs", "7"
    )
    assert (experiment.name, target.out) == ("srnn-jsb-avf-small", Path("runs/srnn-jsb-avf-small"))
    assert experiment.model == SMALL[SRNNSizes].model
    assert experiment.schedule.num_epochs == 7
    assert experiment.published is None
    same = target_of("srnn-jsb-avf", "--preset=small", "--schedule.num-epochs", "7")[1]
    assert same == experiment


def test_ones_own_folder_is_small_unless_the_paper_is_asked_for(music):
    # These tests run on a CPU.
    assert target_of(music)[1].preset == "small"
    target, experiment = target_of(music, "--preset", "paper")
    assert experiment.model == EXPERIMENTS["srnn-jsb-avf"].model
    assert (experiment.name, target.out) == ("my songs", Path("runs/my songs"))


def test_a_run_keeps_its_preset(music):
    experiment = own_experiment(source_of(music), "paper")
    Run.begin(Path("runs/my songs"), experiment, load(experiment.data))
    # By its folder, or by its data again.
    assert target_of("runs/my songs")[1].preset == "paper"
    assert target_of(music)[1].preset == "paper"
    assert target_of(music, "--out", "elsewhere")[1].preset == "small"
    message = refuse("train", "runs/my songs", "--preset", "small")
    assert "`--preset small` cannot be given to a run that goes on" in message


def clips_of_another_size(folder):
    """Words for a folder of short videos, in frames half as large as usual, and a tiny model."""
    for number in range(3):
        write_video(folder / "clips" / f"{number}.avi", videos.noise(5, seed=number))
    tiny = {
        "model.code-size": 4, "model.latent-size": 2, "model.recurrent-size": 4,
        "filter.inference.hidden-size": 4, "optimizer.num-phi-steps": 1,
        "schedule.batch-size": 1, "schedule.num-steps": 3,
    }  # fmt: skip
    return ["--data.size", "32", *(f"--{name}={value}" for name, value in tiny.items())]


def test_video_of_another_size_has_a_model_that_learns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = clips_of_another_size(tmp_path)
    target, experiment = target_of("clips", *given)
    assert experiment.model.channels == (8, 16, 32)
    dataset = load(experiment.data)
    windows = experiment.windows(dataset, on_device=False)
    model, filter, learner = experiment.build(dataset, experiment.updates_per_epoch(windows))
    batch = windows.windows(0, jax.random.key(0))

    def update(state):
        mask, first = batch.mask[:, 1:], batch.xs[:, 0]
        return learner.update(state, batch.xs[:, 1:], jax.random.key(1), mask=mask, x0=first)

    # An update is traced, so that every shape fits; to compile it takes far longer.
    before = learner.init(model, filter)
    after, metrics = eqx.filter_eval_shape(update, before)
    shapes = [
        [leaf.shape for leaf in jax.tree.leaves(each.model) if hasattr(leaf, "shape")]
        for each in (before, after)
    ]
    assert shapes[0] == shapes[1]
    assert metrics.free_energy.shape == ()
    # The same words go on with its run, and so does its folder; stages that are given stay.
    Run.begin(target.out, experiment, dataset)
    assert target_of("clips", *given)[1] == experiment
    assert target_of(target.out, *given)[1] == target_of(target.out)[1] == experiment
    stages = ("--model.channels", "4", "8", "8", "--model.convolutions", "1", "1", "1")
    assert target_of("clips", *given, *stages)[1].model.channels == (4, 8, 8)


@pytest.mark.slow  # what it compiles takes as long as all else in this file
def test_video_of_another_size_is_trained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = clips_of_another_size(tmp_path)
    succeed("train", "clips", *given, "--max-updates", "1", "--quiet")
    trained = Run.load("runs/clips").experiment
    assert trained.model.channels == (8, 16, 32)
    assert target_of("clips", *given)[1] == trained


def test_unknown_presets_and_tables(tmp_path):
    path = tmp_path / "readings.csv"
    path.write_text("a,b\n" + "1,2\n3,4\n" * 40)
    assert target_of(path)[1].preset == "small"
    assert "the paper has no tables" in refuse("train", path, "--preset", "paper")
    assert "big" in refuse("train", "srnn-jsb-avf", "--preset", "big")


def test_what_is_said_before_it_starts(music, capsys):
    experiment = own_experiment(source_of(music), "paper")
    dataset = load(experiment.data)
    run = Run.begin("run", experiment, dataset)
    plan = plan_run(experiment, dataset, max_updates=100)
    lines = overview(run, dataset, plan)
    said = {label: text for label, text in lines if label}
    assert list(said) == ["data", "model", "training", "expected", "smaller", "run"]
    assert str(music) in said["data"]
    assert any(text.startswith("A step is a beat, the longest on which") for _, text in lines)
    assert "2 for training (60 steps), 1 for validation" in lines[1][1]
    assert "5,005,560 parameters (1,264,488 of the model" in said["model"]
    # Two songs are one batch.
    assert "100 updates (100 epochs of 1), each on 16 windows of 25 steps" in said["training"]
    assert "160 epochs" in said["training"]
    assert "--preset small" in said["smaller"]
    assert "about" in said["expected"]
    for columns in ("80", "120"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", columns)
            say_labelled(lines)
        shown = capsys.readouterr().err.splitlines()
        # But for the path, which is one word, and as long as the folder of the tests makes it.
        assert all(len(line) < int(columns) for line in shown if str(music)[:20] not in line)
        assert " ".join(" ".join(shown).split()) == " ".join(
            " ".join(f"{label} {text}" for label, text in lines).split()
        )


def test_a_set_that_has_a_name_is_told_of_with_its_file(tmp_path, monkeypatch):
    monkeypatch.setenv("VARFILTER_DATA", str(tmp_path))
    path = tmp_path / "music" / "jsb_chorales.npz"
    path.parent.mkdir()
    write_songs(path)
    words = ("--preset", "small", "--schedule.num-steps", "6")
    experiment = target_of("srnn-jsb-avf", *words)[1]
    dataset = load(experiment.data)
    run = Run.begin(tmp_path / "run", experiment, dataset)
    lines = overview(run, dataset, plan_run(experiment, dataset))
    assert lines[0] == ("data", f"jsb: music, from {path}")


def test_samples_that_fill_no_step_are_not_counted_across_files(tmp_path):
    (tmp_path / "tones").mkdir()
    for number in range(10):
        soundfile.write(tmp_path / "tones" / f"{number}.wav", noise(40 * 200 + 190, number), 16000)
    experiment = own_experiment(source_of(tmp_path / "tones"))
    dataset = load(experiment.data)
    run = Run.begin(tmp_path / "run", experiment, dataset)
    said = " ".join(text for _, text in overview(run, dataset, plan_run(experiment, dataset)))
    assert "8 for training (320 steps), 1 for validation (40 steps)" in said


def test_what_is_said_of_a_run_that_goes_on_is_of_what_is_left(music):
    experiment = own_experiment(source_of(music))
    dataset = load(experiment.data)
    run = Run.begin("run", experiment, dataset)
    whole = plan_run(experiment, dataset)
    per_epoch, num_updates = whole.updates_per_epoch, whole.num_updates

    def said(max_updates, *reached):
        plan = plan_run(experiment, dataset, max_updates=max_updates, reached=reached)
        return plan, dict(overview(run, dataset, plan))

    # A quarter is made: the rest is three quarters of the time, up to noise in what a product
    # takes.
    plan, lines = said(None, Reached(num_updates // 4))
    assert plan.left == num_updates - num_updates // 4
    assert plan.expected.seconds == pytest.approx(0.75 * whole.expected.seconds, rel=0.5)
    begin = f"{plan.left:,} more updates after step {num_updates // 4:,} ("
    assert lines["training"].startswith(begin)
    assert "to the end" in lines["expected"]
    # Half of what is left, not half of the whole; and what cannot be changed any more is not said.
    epochs = (num_updates // 4 + plan.left // 2) // per_epoch
    assert lines["smaller"] == f"--schedule.num-epochs {epochs} takes half the time"
    # Where the end is not the schedule's, fewer epochs would change nothing.
    _, lines = said(2 * per_epoch, Reached())
    assert f"--max-updates {per_epoch} takes half the time" in lines["smaller"]
    assert "num-epochs" not in lines["smaller"]
    # Two of four runs have ended: one was given up, and one has made all that are allowed.
    patience = experiment.schedule.patience_epochs
    stale = Reached(
        per_epoch * (patience + 1), per_epoch * (patience + 1), per_epoch, Validation(1)
    )
    last = stale.step + 100
    plan, _ = said(last, stale, Reached(last), Reached(last - 30), Reached(last - 30))
    assert (plan.done, plan.left, plan.num_runs) == (last - 30, 30, 2)
    # Nothing to do: nothing is expected.
    plan, lines = said(None, stale)
    assert plan.left == plan.expected.seconds == 0
    assert lines["training"].startswith(f"at its end, step {stale.step:,}: validation has not")
    assert not {"expected", "smaller"} & set(lines)


def test_how_far_a_run_has_come_is_read_from_its_folder(unbroken, tmp_path):
    assert reached_in(tmp_path) == Reached()
    run, found = Run.load(unbroken[0]), reached_in(unbroken[0])
    lines = run.metrics()
    assert found.step == found.validated == lines[-1]["step"]
    assert found.best == min(lines, key=lambda line: line["valid"]["nats"])["step"]
    assert plan_run(run.experiment, run.dataset, reached=[found]).left == 0


def test_memory_that_is_not_there_is_said(music):
    experiment = own_experiment(source_of(music), "paper")
    plan = plan_run(experiment, load(experiment.data))
    tight = type(plan)(**(vars(plan) | {"available_gib": 0.01}))
    run = Run.begin("run", experiment, load(experiment.data))
    texts = [text for _, text in overview(run, load(experiment.data), tight)]
    assert tight.is_too_large == any("more memory than there is" in text for text in texts)
    assert tight.is_too_large == (plan.expected.gib is not None)


def test_the_guess_is_corrected_once_by_the_first_updates(music, capsys):
    experiment = own_experiment(source_of(music))
    plan = plan_run(experiment, load(experiment.data))
    correction = Correction(plan)
    for step, seconds in ((20, 60.0), (21, 61.0), (40, 80.0), (60, 100.0)):
        correction.show(Updated(step, plan.num_updates, 1, 150, None, 0, seconds))
    # 20 updates in the 20 seconds after the first dispatch, which compiled for a minute.
    said = capsys.readouterr().err
    left = plan.num_updates - 40
    assert "1.0 s an update" in said
    assert f"so {left / 60:.0f} min to the end" in said
    assert said.count("measured") == 1


def test_a_validation_is_no_update(music, capsys):
    experiment = own_experiment(source_of(music))
    plan = plan_run(experiment, load(experiment.data))
    correction = Correction(plan)
    # Fifty updates a second but for the validation, which compiles for a minute.
    times = [(50, 1.0), (100, 2.0), None, (150, 63.0), *((50 * n, 60.0 + n) for n in range(4, 9))]
    for each in times:
        event = None if each is None else Updated(each[0], 10_000, 1, 150, None, 0, each[1])
        correction.show(event)
    assert "20 ms an update" in capsys.readouterr().err


def test_a_run_says_it_before_its_first_update(unbroken):
    _, _, err = unbroken
    said, _, later = err.partition("epoch 1, step ")
    labels = [line[:10].strip() for line in said.splitlines()]
    for label in ("data", "model", "training", "expected", "smaller", "run"):
        assert label in labels
        assert f"\n{label} " not in later
