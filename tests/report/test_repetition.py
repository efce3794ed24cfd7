"""A report says how its run is made again, and how far it came beside the paper's number."""

import dataclasses
import shlex

import numpy as np
import pytest

from varfilter.cli.options import meant_by, overridden, with_method
from varfilter.cli.train import with_preset_given
from varfilter.data import write_wav
from varfilter.experiments import VRNNSizes, experiment_named
from varfilter.report.repetition import brevity, command, epochs_in_words, in_python, typed
from varfilter.report.run_section import how_to_repeat
from varfilter.runs import Run
from varfilter.runs.commands import keeping, kept_commands
from varfilter.runs.plan import Reached


def parsed(words):
    """The experiment that a command line means, as `varfilter train` reads it."""
    _, _, first, *rest = words
    target = with_preset_given(meant_by(first), rest)
    target = dataclasses.replace(target, experiment=with_method(target.experiment, rest))
    return overridden(target, rest)


@pytest.fixture
def sounds(tmp_path):
    folder = tmp_path / "sounds"
    folder.mkdir()
    for number in range(3):
        write_wav(np.arange(900) - number, folder / f"{number}.wav", 8000)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "--preset small --schedule.num-epochs 5 --model.latent-size 24 --seed 4",
        "--preset small --method baseline --filter.inference.hidden-size 7 --data.rate 4000",
        "--preset paper --schedule.batch-size 3 --max-updates 40",
    ],
)
def test_the_command_of_a_folder_makes_the_same_experiment(sounds, tmp_path, words):
    typed_words = ["varfilter", "train", str(sounds), *words.split()]
    experiment, options = parsed(typed_words)
    run = Run(tmp_path, experiment, {})
    keeping(typed_words, options.max_updates, [run])()
    again, chosen = parsed(shlex.split(command(run)))
    assert again == experiment
    assert chosen.max_updates == options.max_updates
    assert typed(tmp_path) == [shlex.join(typed_words)]


def test_the_command_has_the_paths_as_they_were_typed(sounds, tmp_path, monkeypatch):
    """And no others: a page that is passed on told how the folders of a machine are called."""
    monkeypatch.chdir(tmp_path)
    words = ["varfilter", "train", "sounds", "--seed", "4", "--out", "runs/other"]
    experiment, options = parsed(words)
    run = Run(tmp_path, experiment, {})
    # Of a run that no command began, the path is from here.
    assert command(run).split()[:3] == ["varfilter", "train", "sounds"]
    keeping(words, None, [run])()
    made = shlex.split(command(run))
    assert made[:3] == words[:3]
    assert made[-2:] == ["--out", "runs/other"]
    assert str(tmp_path) not in command(run)
    again, chosen = parsed(made)
    assert (again, chosen.out) == (experiment, options.out)
    # Elsewhere what was typed is still what was typed; what was not typed is whole.
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert command(run) == shlex.join(made)
    assert str(sounds.resolve()) in command(Run(sounds, experiment, {}))
    # `--out` of several runs is not that of one.
    several = Run(sounds, experiment, {})
    keeping([*words, "--seeds=2"], None, [several])()
    assert "--out" not in command(several)


def test_what_was_cut_short_is_made_again_as_far_as_it_came(tmp_path, monkeypatch):
    """By a signal, from Python, or by a budget below that of the command before: all the same."""
    experiment = experiment_named("srnn-jsb-avf")
    run = Run(tmp_path, experiment, {})
    keeping(["varfilter", "train", "srnn-jsb-avf"], 900, [run])()
    lines = [{"step": 60, "epoch": 20.0}]
    monkeypatch.setattr(Run, "metrics", lambda self: lines)
    planned = 3 * experiment.schedule.num_epochs
    for step, budget in ((61, 61), (planned, None)):
        reached = Reached(step, validated=60, best=60)
        monkeypatch.setattr("varfilter.report.repetition.reached_in", lambda _, r=reached: r)
        _, chosen = parsed(shlex.split(command(run)))
        assert chosen.max_updates == budget
    # One that stopped by itself stops there again.
    patient = dataclasses.replace(experiment.schedule, patience_epochs=5)
    stale = Run(tmp_path, dataclasses.replace(experiment, schedule=patient), {})
    reached = Reached(60, validated=60, best=30)
    monkeypatch.setattr("varfilter.report.repetition.reached_in", lambda _: reached)
    assert "--max-updates" not in command(stale)


def test_an_experiment_that_was_put_together_in_python_has_a_command_if_there_is_one(tmp_path):
    named = experiment_named("srnn-jsb-baseline")
    mine = dataclasses.replace(named, name="mine", seed=3)
    words = shlex.split(command(Run(tmp_path, mine, {})))
    again, _ = parsed(words)
    assert dataclasses.replace(again, name="mine") == mine
    # No command puts another model on these data: the line of Python does.
    other = dataclasses.replace(named, model=VRNNSizes())
    run = Run(tmp_path, other, {})
    assert command(run) is None
    assert f"Run.load({str(tmp_path)!r}).experiment" in in_python(run)
    shown = how_to_repeat({"command": None, "in_python": in_python(run)})
    assert "No command line" in shown
    assert "train_run(Run.begin(" in shown


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data.columns", ("a b", "naïve °C")),
        ("data.kinds", ("a b=level", "c=log-change")),
        ("data.sequence", "-x"),
        ("data.inputs", ("v",)),
        ("filter.bound", "fivo"),
        ("schedule.patience_epochs", None),
        ("optimizer.theta.learning_rate", 1 / 3),
        ("num_members", 3),
    ],
)
def test_the_command_of_a_table_has_each_kind_of_option(tmp_path, path, value):
    table = tmp_path / "my readings.csv"
    table.write_text("-x,a b,naïve °C,c,v\n" + "p,1.5,2,3,0\n" * 30, encoding="utf-8")
    experiment, _ = parsed(["varfilter", "train", str(table)])
    changed = put(experiment, path.split("."), value)
    again, _ = parsed(shlex.split(command(Run(tmp_path, changed, {}))))
    assert again == changed


def put(settings, path, value):
    first, *rest = path
    inner = put(getattr(settings, first), rest, value) if rest else value
    return dataclasses.replace(settings, **{first: inner})


def test_commands_are_kept_once_and_in_order(tmp_path):
    run = Run(tmp_path, experiment_named("srnn-jsb-avf"), {})
    assert kept_commands(tmp_path) == []
    first = keeping(["varfilter", "train", "a"], 5, [run])
    first()
    first()
    keeping(["varfilter", "train", "runs/a"], None, [run])()
    # A line that was cut short is nobody's loss.
    with (tmp_path / "commands.jsonl").open("ab") as file:
        file.write(b'{"words": ["varf')
    assert [each["max_updates"] for each in kept_commands(tmp_path)] == [5, None]
    assert typed(tmp_path)[1] == "varfilter train runs/a  (from update 0)"


def test_epochs_stand_beside_those_of_the_paper(tmp_path):
    paper = experiment_named("srnn-jsb-avf")
    short = dataclasses.replace(paper, schedule=dataclasses.replace(paper.schedule, num_epochs=40))
    lines = [{"epoch": 20.0}, {"epoch": 40.0}]
    run = Run(tmp_path, short, {})
    assert epochs_in_words(run, lines) == "40 of 800"
    assert "of 800 epochs; this run has had 40 of them" in brevity(run, lines)
    assert brevity(run, [{"epoch": 800.0}]) is None
    # Who has no number of the paper beside it is measured by its own schedule.
    own = Run(tmp_path, dataclasses.replace(short, published=None), {})
    assert epochs_in_words(own, lines) == "40 of 40"
    assert brevity(own, [{"epoch": 3.0}]) is None
