"""A report says how its run is made again, and how far it came beside the paper's number."""

import dataclasses
import shlex

import numpy as np
import pytest

from varfilter.cli.options import meant_by, overridden, with_method
from varfilter.cli.presets import with_preset_given
from varfilter.data import write_wav
from varfilter.experiments import experiment_named
from varfilter.report.repetition import brevity, command, epochs_in_words, typed
from varfilter.runs import Run
from varfilter.runs.commands import keeping, kept_commands


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
